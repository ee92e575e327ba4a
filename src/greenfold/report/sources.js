"use strict";
// Maps of u, f and misfit; one hypothetical source, whose strength is solved for.

const told = JSON.parse(document.getElementById("told").textContent);
const $ = (id) => document.getElementById(id);

function numbers({ shape, ...data }) {
  const [kind, text] = Object.entries(data)[0], bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  return kind === "f4" ? new Float32Array(bytes.buffer) : new Float64Array(bytes.buffer);
}

const R = Object.fromEntries(["x", "y", "expected", "weight", "half"].map((name) => [name, numbers(told.readings[name])]));
const n = R.y.length, nx = told.grid.x.length, ny = told.grid.y.length;
const columns = numbers(told.grid.columns);  // (ny·nx, n)
const fields = { u: numbers(told.map.u), std: numbers(told.map.std) };
if (told.map.f) Object.assign(fields, { f: numbers(told.map.f.f), fstd: numbers(told.map.f.std) });
const LABELS = { u: "u, what is read", std: "deviation of u", f: "f, what is emitted", fstd: "deviation of f" };

const state = { node: 0, share: 1 };
const sensorX = Float64Array.from({ length: n }, (_, i) => R.x[2 * i]);
const sensorY = Float64Array.from({ length: n }, (_, i) => R.x[2 * i + 1]);

// What is left to explain (n,): all of it, or what the sources found leave.
const left = () => Float64Array.from(R.y, (y, i) => ($("how").value === "beside" ? y - R.expected[i] : y));

// Best strength at a node, within the sign that sources have.
function best(node, r) {
  let rc = 0, cc = 0;
  for (let i = 0; i < n; i++) {
    const c = columns[node * n + i];
    rc += R.weight[i] * r[i] * c;
    cc += R.weight[i] * c * c;
  }
  const q = cc > 0 ? rc / cc : 0;
  return told.sign === "positive" ? Math.max(q, 0) : told.sign === "negative" ? Math.min(q, 0) : q;
}

function rms(r, node, q) {
  let total = 0, weight = 0;
  for (let i = 0; i < n; i++) {
    const e = r[i] - (q ? q * columns[node * n + i] : 0);
    total += R.weight[i] * e * e;
    weight += R.weight[i];
  }
  return Math.sqrt(total / weight);
}

let landscape = [];  // log10 of the misfit at every node
function survey() {
  const r = left();
  landscape = Float64Array.from({ length: nx * ny }, (_, node) => Math.log10(Math.max(rms(r, node, best(node, r)), 1e-300)));
}

function hypothesis() {
  const r = left(), q = state.share * best(state.node, r);
  return { q, rms: rms(r, state.node, q), x: told.grid.x[state.node % nx], y: told.grid.y[Math.floor(state.node / nx)] };
}

// --- pictures

function ellipse(p, { position, covariance: [[a, b], [, c]] }, label) {
  const { ctx } = p, mean = (a + c) / 2, half = Math.hypot((a - c) / 2, b), angle = Math.atan2(2 * b, a - c) / 2;
  const radii = [mean + half, Math.max(mean - half, 0)].map((v) => Math.sqrt(4.605 * v));  // 90% of a bell in the plane
  for (const [width, color] of [[4, Draw.isDark() ? "#000b" : "#fffd"], [2, "#d1622b"]]) {
    ctx.strokeStyle = color;
    ctx.lineWidth = width;
    ctx.beginPath();
    for (let k = 0; k <= 60; k++) {
      const t = (2 * Math.PI * k) / 60, u = radii[0] * Math.cos(t), v = radii[1] * Math.sin(t);
      const x = position[0] + u * Math.cos(angle) - v * Math.sin(angle), y = position[1] + u * Math.sin(angle) + v * Math.cos(angle);
      ctx[k ? "lineTo" : "moveTo"](p.X(x), p.Y(y));
    }
    const px = p.X(position[0]), py = p.Y(position[1]);
    ctx.moveTo(px - 4, py); ctx.lineTo(px + 4, py); ctx.moveTo(px, py - 4); ctx.lineTo(px, py + 4);
    ctx.stroke();
  }
  ctx.font = "600 13px system-ui, sans-serif";
  ctx.textAlign = "left";
  ctx.textBaseline = "middle";
  ctx.lineWidth = 3;
  ctx.strokeStyle = Draw.isDark() ? "#000c" : "#fffe";
  const at = [p.X(position[0] + radii[0]) + 6, p.Y(position[1]) - 9];
  ctx.strokeText(label, ...at);
  ctx.fillStyle = Draw.isDark() ? "#ffb38a" : "#a8441a";
  ctx.fillText(label, ...at);
}

const ends = (values) => [values[0], values[values.length - 1]];

function drawMap() {
  const shown = $("shown").value, values = fields[shown], { x, y } = told.map;
  const signed = shown === "f" || (shown === "u" && values.some((v) => v < 0) && told.sign === "any");
  const colors = Draw.scale(values, signed ? "diverging" : "sequential");
  const p = Draw.panel($("map"), { x: ends(x), y: ends(y), xLabel: told.names[0], yLabel: told.names[1], bar: colors });
  Draw.field(p, values, x.length, y.length, colors);
  const { ctx } = p;
  ctx.strokeStyle = Draw.isDark() ? "#fffb" : "#000a";
  ctx.lineWidth = 1;
  for (let i = 0; i < n; i++)  // boxes that were averaged over
    if (R.half[2 * i] || R.half[2 * i + 1]) {
      const [hx, hy] = [R.half[2 * i], R.half[2 * i + 1]];
      ctx.strokeRect(p.X(sensorX[i] - hx), p.Y(sensorY[i] + hy), p.X(sensorX[i] + hx) - p.X(sensorX[i] - hx), p.Y(sensorY[i] - hy) - p.Y(sensorY[i] + hy));
    }
  const value = (i) => (shown === "u" && told.readings.axis[i] < 0 ? colors.color(R.y[i]) : Draw.isDark() ? "#fff8" : "#0006");
  Draw.dots(p, sensorX, sensorY, value, 3.6, 1);
  told.sources.forEach((source, i) => ellipse(p, source, String(i + 1)));
  p.frame();
  $("map-cap").textContent = LABELS[shown] + (told.plane ? `, at ${told.plane.name} = ${Draw.text(told.plane.at)}` : "");
}

function drawMisfit() {
  const colors = Draw.scale(landscape.map((v) => -v), "sequential"), { x, y } = told.grid, h = hypothesis();
  const p = Draw.panel($("misfit"), { x: ends(x), y: ends(y), xLabel: told.names[0], yLabel: told.names[1] });
  Draw.field(p, landscape.map((v) => -v), nx, ny, colors);
  Draw.dots(p, sensorX, sensorY, Draw.isDark() ? "#fff8" : "#0006", 2.2, 1);
  told.sources.forEach((source, i) => ellipse(p, source, String(i + 1)));
  Draw.ring(p, h.x, h.y);
  p.frame();
  view = p;
  $("misfit-cap").textContent = "of one source there; bright is better";
}
let view = null;

function drawResiduals() {
  const r = left(), { q } = hypothesis(), beside = $("how").value === "beside";
  const other = Float64Array.from(r, (_, i) => (beside ? R.expected[i] : 0) + q * columns[state.node * n + i]);
  const all = [...R.y, ...R.expected, ...other], low = Math.min(...all), high = Math.max(...all), pad = 0.04 * (high - low || 1);
  const range = [low - pad, high + pad];
  const p = Draw.panel($("residuals"), { x: range, y: range, xLabel: "read", yLabel: "expected" });
  Draw.line(p, range, range, getComputedStyle(document.documentElement).getPropertyValue("--axis"), 1, [4, 4]);
  Draw.dots(p, R.y, other, "#d1622b", 3, 0.75);
  Draw.dots(p, R.y, R.expected, "#0c7a5e", 3, 0.9);
  p.frame();
}

function tell() {
  const h = hypothesis(), found = rms(Float64Array.from(R.y, (y, i) => y - R.expected[i]), 0, 0), at = (v) => Draw.text(v);
  $("strength-value").textContent = at(h.q);
  $("place").textContent = `at ${told.names[0]} = ${at(h.x)}, ${told.names[1]} = ${at(h.y)}`;
  $("rms").textContent = at(h.rms);
  $("compared").textContent = `root mean square of residuals, ${at(h.rms / found)} times that of what was found (${at(found)})`;
}

function redraw() { drawMap(); drawMisfit(); drawResiduals(); tell(); }

// --- controls

function move(node) {
  if (node === state.node) return;
  state.node = node;
  drawMisfit(); drawResiduals(); tell();
}
const nearest = (values, v) => values.reduce((b, w, i) => (Math.abs(w - v) < Math.abs(values[b] - v) ? i : b), 0);

function toPointer(event) {
  const box = $("misfit").getBoundingClientRect();
  move(nearest(told.grid.y, view.fromY(event.clientY - box.top)) * nx + nearest(told.grid.x, view.fromX(event.clientX - box.left)));
}

function start() {
  const root = document.documentElement, dark = matchMedia("(prefers-color-scheme: dark)");
  root.dataset.theme = dark.matches ? "dark" : "light";
  $("theme").addEventListener("click", () => { root.dataset.theme = Draw.isDark() ? "light" : "dark"; redraw(); });
  $("title").textContent = told.title;
  $("facts").textContent = told.facts.map(([name, value]) => `${name} ${value}`).join(" · ");
  $("check").textContent = `${told.check.fine ? "No sign of a wrong model" : "The model is doubtful"}: ${told.check.meaning} (z = ${told.check.z.toFixed(1)}).`;
  for (const name of Object.keys(fields)) $("shown").add(new Option(LABELS[name], name));
  $("key").textContent = "green found, orange hypothetical";
  table();
  for (const [name, value] of Object.entries(told.provenance)) term("provenance", name, value);
  survey();
  toBest();
  $("shown").addEventListener("change", drawMap);
  $("how").addEventListener("change", () => { survey(); redraw(); });
  $("strength").addEventListener("input", () => { state.share = $("strength").value / 100; drawMisfit(); drawResiduals(); tell(); });
  $("best").addEventListener("click", toBest);
  const canvas = $("misfit");
  canvas.addEventListener("pointerdown", (event) => { canvas.setPointerCapture(event.pointerId); toPointer(event); });
  canvas.addEventListener("pointermove", (event) => { if (event.buttons) toPointer(event); });
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key];
    if (!step) return;
    event.preventDefault();
    const i = Math.min(Math.max((state.node % nx) + step[0], 0), nx - 1), j = Math.min(Math.max(Math.floor(state.node / nx) + step[1], 0), ny - 1);
    move(j * nx + i);
  });
  addEventListener("resize", redraw);
}

function toBest() {
  state.node = landscape.reduce((b, v, i) => (v < landscape[b] ? i : b), 0);
  state.share = 1;
  $("strength").value = 100;
  redraw();
}

function term(list, name, value) {
  const [dt, dd] = [document.createElement("dt"), document.createElement("dd")];
  [dt.textContent, dd.textContent] = [name, value];
  $(list).append(dt, dd);
}

function table() {
  const pm = (v, s) => `${Draw.text(v)} ± ${Draw.text(+s.toPrecision(2))}`;
  const rows = told.sources.map((s, i) => [String(i + 1), ...s.position.map((v, j) => pm(v, s.position_std[j])), pm(s.strength, s.strength_std), s.strength_90.map((v) => Draw.text(v)).join(" to ")]);
  if (rows.length) rows.unshift(["", ...told.names, "strength", "90% interval"]);
  rows.forEach((cells, i) => {
    const row = $("sources").insertRow();
    for (const cell of cells) row.append(Object.assign(document.createElement(i ? "td" : "th"), { textContent: cell }));
  });
  for (const [name, value] of told.facts) term("numbers", name, value);
}

start();
