"use strict";
// Controls, pointers and keys: what the reader does, and what is drawn again after it.

(() => {
  const $ = (id) => document.getElementById(id);
  const { live, d, n, c, Y, task } = Model;
  const open = told.chart.order.filter((j) => told.chart.gates[j] > 0); // those that vary most first
  const order = [...open.slice(0, 16)].sort((i, j) => i - j);
  const UNITS = { regression: "R²", reconstruction: "R²", classification: "Accuracy" };

  const scored = (v) => (Math.abs(v) < 10 ? v.toFixed(3) : Draw.text(v));

  // --- drawing, once per frame however much has changed

  let waiting = null;
  function redraw(what = "all") {
    if (waiting) return void (waiting = waiting === what ? what : "all");
    waiting = what;
    requestAnimationFrame(() => {
      const due = waiting;
      waiting = null;
      if (due === "response") Panels.response();
      else if (due === "probe") { Panels.response(true); if (Model.now.height) { Panels.chart(); Story.truth(); Story.training(); } }
      else { Panels.all(); Story.truth(); Story.loadings(); Effects.draw(); Story.training(); Story.dimension(); }
      readouts();
    });
  }

  function readouts() {
    const s = Model.score(), digits = scored;
    $("score-name").textContent = s === null ? "" : UNITS[task];
    $("score").textContent = s === null ? "" : digits(s);
    $("fit-score").textContent = s === null ? "no targets to compare with" : `on ${scoredOn}${told.rows.kind === "given" ? "" : ", which flatters"} · as fitted ${digits(Model.fitScore)}`;
    if (!live) return;
    const { now } = Model, part = told.model.members[0], w = Model.strengths(View.output);
    const one = told.model.members.length === 1 && part.value.every((v) => v === part.value[0]);
    $("scale-value").textContent = one ? `${Draw.text(part.value[0] * now.factor)} (× ${Draw.text(now.factor)})` : `× ${Draw.text(now.factor)}`;
    $("strength-value").textContent = Draw.text(w[View.atom] * Model.unit() * told.outputs.scale[View.output]);
    $("height-value").textContent = now.height ? `${Draw.text(now.height * told.outputs.scale[View.output])} at its place` : "nothing";
  }

  // --- changes

  let trying = false; // is a solve under way that only asks for its score?
  function centerProbe() {
    const at = [...Panels.slice()];
    Model.now.probe = live ? { at, output: View.output } : null;
  }

  function setGate(j, value) {
    changing();
    Model.now.gate[j] = value;
    Model.rekernel();
    gateChips();
    redraw();
    judgeGates();
  }

  // What closed gates cost: the score as fitted, with the strengths as they are, and solved for again, which
  // is tried beside the page where that is a matter of seconds.
  let trial = 0;
  async function judgeGates() {
    const mine = ++trial, closed = order.filter((j) => Model.now.gate[j] === 0 && told.chart.gates[j] > 0);
    const show = (text) => { if (mine === trial) $("gate-score").textContent = text; };
    if (!closed.length || !Y) return show("");
    await Model.settled();
    if (mine !== trial) return;
    const names = closed.map(Panels.name).join(", ");
    const start = `${names} closed: ${UNITS[task]} ${scored(Model.fitScore)} → ${scored(Model.score())} with the strengths as they are`;
    if (!fitted || Model.effort() > 3e9) return show(`${start}. ${fitted ? "Re-solve to see what the others make up for." : ""}`);
    if (Beside.busy) return show(`${start}.`); // one that was asked for meanwhile comes first
    show(`${start}; solving again…`);
    trying = true;
    const again = await Model.tried().catch(() => null);
    trying = Beside.busy && trying && mine !== trial;
    show(again === null ? `${start}.` : `${start} → ${scored(again)} solved again.`);
  }
  function setScale(factor) {
    changing();
    const before = Model.now.factor;
    try {
      Model.now.factor = factor;
      Model.rekernel();
    } catch (error) {
      Model.now.factor = before;
      Model.rekernel();
      say(`The scale stays: ${error.message}.`);
    }
    redraw();
  }
  function setStrength(r, value) {
    changing();
    for (let i = r; i < Model.now.w.length / c; i += Model.atoms.n) Model.now.w[i * c + View.output] = value;
    Model.reweigh();
    redraw();
  }
  function moveProbe(x, y) {
    const { probe } = Model.now, clip = (v, [low, high]) => Math.min(Math.max(v, low), high);
    probe.at = [...Panels.slice()];
    probe.at[View.a] = clip(x, Panels.bounds[View.a]);
    if (View.b >= 0) probe.at[View.b] = clip(y, Panels.bounds[View.b]);
    probe.output = View.output;
    Model.reprobe();
    redraw("probe");
  }
  function setHeight(value) {
    Model.now.height = value;
    Model.now.probe.output = View.output;
    Model.reprobe();
    redraw();
  }

  // Which rows, in words: those the source is solved on, and those the score is of.
  const part = (n, known) => (n < known ? `${n} of the ${known}` : `the ${n}`);
  const { fitted } = told, solvedOn = fitted && `${part(fitted.n, fitted.known)} rows fitted to`;
  const KINDS = { given: "given", fitted: "fitted to", anchors: "its sources are tied to" };
  const scoredOn = `${part(told.rows.shown, told.rows.known)} rows ${KINDS[told.rows.kind]}`;

  // Solves in a worker; the promise is kept when strengths are in place, or when it was stopped.
  async function resolve() {
    const bar = $("progress");
    trying = false;
    say(`Solving on ${solvedOn}…`);
    $("solve").textContent = "Cancel";
    bar.hidden = false;
    bar.value = 0;
    try {
      const done = await Model.resolve((share) => { bar.value = share; });
      if (Beside.busy && !trying) return; // another one took its place
      say(done ? outcome() : "The solve was canceled.");
    } catch (error) {
      say(`The source could not be solved for: ${error.message}.`);
    }
    bar.hidden = true;
    $("solve").textContent = "Re-solve the source";
    strengthSlider();
    redraw();
  }
  function outcome() {
    const where = `Solved on ${solvedOn}`, fewer = fitted.n < fitted.known ? ", so even with nothing changed the source is not quite that of the fit" : "";
    if (!Y) return `${where}${fewer}.`;
    const flatters = told.rows.kind === "given" ? `; the score is of ${scoredOn}` : "; the score is of the same rows, which flatters";
    return `${where}${flatters}${fewer}.`;
  }
  // Before a change: what was solved for, or is being, belongs to the model without it.
  function changing() {
    if (Beside.busy) Beside.cancel();
    else say("");
  }
  function reset() {
    changing();
    Model.reset();
    for (const id of ["scale", "height"]) $(id).value = 0;
    gateChips();
    judgeGates();
    strengthSlider();
    redraw();
  }
  const say = (text) => { $("message").textContent = text; };

  // --- controls

  function gateChips() {
    $("gates").replaceChildren(...order.map((j) => {
      const chip = document.createElement("button"), open = Model.now.gate[j] > 0, g = told.chart.gates[j];
      chip.type = "button";
      chip.textContent = Panels.axis(j) + (g < 1 ? ` ${g.toFixed(2)}` : "");
      chip.setAttribute("aria-pressed", open);
      chip.setAttribute("aria-label", `Coordinate ${j + 1}, ${open ? "open" : "closed"}`);
      chip.addEventListener("click", () => { setGate(j, open ? 0 : g); $("gates").children[order.indexOf(j)].focus(); });
      return chip;
    }));
    if (open.length === order.length) return;
    const rest = document.createElement("span");
    rest.textContent = `and ${open.length - order.length} more that vary less`;
    $("gates").append(rest);
  }

  // The slider moves a strength by up to twice the largest.
  let strengthFrom = 0, strengthUnit = 1;
  function strengthSlider() {
    if (!live) return;
    const w = Model.strengths(View.output);
    strengthFrom = w[View.atom];
    strengthUnit = 2 * Math.max(...w.map(Math.abs)) || 1;
    $("strength").value = 0;
    $("which").value = View.atom + 1;
  }

  function choose(id, options, value, change) {
    for (const [text, v] of options) $(id).add(new Option(text, v, v === value, v === value));
    $(id).addEventListener("change", () => { change($(id).value); redraw(); });
  }

  function controls() {
    const axes = order.map((j) => [Panels.axis(j), j]);
    choose("a", axes, View.a, (v) => { if (Number(v) === View.b) $("b").value = View.b = View.a; View.a = Number(v); centerProbe(); });
    choose("b", View.b < 0 ? [["the target", -1]] : axes, View.b, (v) => { if (Number(v) === View.a) $("a").value = View.a = View.b; View.b = Number(v); centerProbe(); });
    const classes = task === "classification", colors = [["prediction", "prediction"]];
    if (Y) colors.unshift(["target", "target"]);
    if (Y) colors.push([classes ? "log-loss" : "residual", "residual"]);
    if (Model.std || classes) colors.push([classes ? "entropy (bits)" : "standard deviation", "uncertainty"]);
    choose("color", colors, View.color, (v) => { View.color = v; });
    choose("output", told.outputs.names.map((v, k) => [v, k]), View.output, (v) => { View.output = Number(v); strengthSlider(); });
    $("output-row").hidden = c === 1;
    $("at-row").hidden = d < 3;
    $("at").addEventListener("change", () => { View.slice = $("at").value; centerProbe(); Model.reprobe(); redraw(); });
    for (const set of document.querySelectorAll(".edits")) set.disabled = !live;
    $("solve").disabled = !live || !fitted;
    $("reset").disabled = !live;
    if (!live) return;
    const part = told.model.members[0];
    $("scale-name").textContent = { time: "Time t", kappa: "Screening κ", length: "Length ℓ", omega: "Frequency ω", diffusivity: "Diffusivity D" }[part.scale];
    const most = Math.log(Math.min(...told.model.members.map((v) => v.reach)));
    $("scale").addEventListener("input", () => setScale(Math.exp((Number($("scale").value) / 100) * most)));
    $("which").max = Model.atoms.n;
    $("which").addEventListener("change", () => pickAtom(Number($("which").value) - 1));
    $("strength").addEventListener("input", () => setStrength(View.atom, strengthFrom + (Number($("strength").value) / 100) * strengthUnit));
    $("height").addEventListener("input", () => setHeight((3 * Number($("height").value)) / 100));
    $("solve").addEventListener("click", () => { if (Beside.busy && !trying) Beside.cancel(); else resolve(); });
    $("reset").addEventListener("click", reset);
    gateChips();
    strengthSlider();
  }

  function pickAtom(r) {
    View.atom = Math.min(Math.max(0, Math.round(r) || 0), Model.atoms.n - 1);
    strengthSlider();
    redraw("response");
  }

  // --- pointers and keys

  const place = (event) => { const box = event.currentTarget.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
  function nearest(p, xs, ys, [px, py], within) {
    let best = null, least = within * within;
    for (let i = 0; i < xs.length; i++) {
      const r = (p.X(xs[i]) - px) ** 2 + (p.Y(ys[i]) - py) ** 2;
      if (r < least) [best, least] = [i, r];
    }
    return best;
  }

  function tip(i, x, y) {
    const box = $("tip");
    box.hidden = i === null;
    if (i === null) return;
    const lines = [], k = View.output, value = (v) => Draw.text(v);
    box.replaceChildren();
    if (told.rows.images) box.append(thumbnail(i));
    const head = document.createElement("b");
    head.textContent = `row ${i + 1}`;
    box.append(head);
    if (task === "classification") {
      const { P } = Solve.softmax(Model.logits().subarray(i * c, (i + 1) * c), 1, c);
      const top = P.indexOf(Math.max(...P));
      if (Y) lines.push(["true", told.outputs.names[Y.subarray(i * c, (i + 1) * c).indexOf(1)]]);
      lines.push(["predicted", `${told.outputs.names[top]} (${(100 * P[top]).toFixed(0)}%)`]);
    } else {
      const u = Model.outside(Model.u[i * c + k], k), y = Y && Model.outside(Y[i * c + k], k);
      if (Y) lines.push([told.outputs.names[k], value(y)]);
      lines.push(["predicted", value(u) + (Model.std ? ` ± ${Draw.text(+Model.std[i * c + k].toPrecision(2))}` : "")]);
      if (Y) lines.push(["residual", value(y - u)]);
    }
    const m = told.rows.features.length;
    if (!told.rows.images) told.rows.features.forEach((name, j) => lines.push([name, value(values[i * m + j])]));
    const list = document.createElement("dl");
    for (const [name, text] of lines) {
      const dt = document.createElement("dt"), dd = document.createElement("dd");
      dt.textContent = name;
      dd.textContent = text;
      list.append(dt, dd);
    }
    box.append(list);
    if (!told.rows.images && m < told.rows.n_features) box.append(`${m} of ${told.rows.n_features} columns`);
    const w = box.offsetWidth, h = box.offsetHeight;
    box.style.left = `${Math.max(4, x + 18 + w > innerWidth ? x - w - 14 : x + 18)}px`;
    box.style.top = `${Math.max(4, Math.min(y + 12, innerHeight - h - 6))}px`;
  }
  const values = unpack(told.rows.values), pixels = told.rows.images && unpack(told.rows.images.pixels);

  function thumbnail(i) {
    const [h, w] = told.rows.images.shape, canvas = document.createElement("canvas"), image = new ImageData(w, h);
    canvas.width = w;
    canvas.height = h;
    for (let k = 0; k < w * h; k++) {
      const v = pixels[i * w * h + k];
      image.data.set([v, v, v, 255], 4 * k);
    }
    canvas.getContext("2d").putImageData(image, 0, 0);
    return canvas;
  }

  function rowUnder(event) {
    return nearest(Panels.shown().chart, Panels.along(View.a), Panels.upward(), place(event), 14);
  }
  function chooseRow(i) {
    View.row = i;
    if (View.slice === "row") centerProbe();
    redraw();
  }
  function tipAtRow(i) {
    const p = Panels.shown().chart, box = $("chart").getBoundingClientRect();
    tip(i, box.left + p.X(Panels.along(View.a)[i]), box.top + p.Y(Panels.upward()[i]));
  }

  function pointers() {
    $("chart").addEventListener("pointermove", (e) => tip(rowUnder(e), e.clientX, e.clientY));
    $("chart").addEventListener("pointerleave", () => tip(null));
    $("chart").addEventListener("click", (e) => { const i = rowUnder(e); if (i !== null) { chooseRow(i); tip(i, e.clientX, e.clientY); } });
    $("chart").addEventListener("blur", () => tip(null));
    $("chart").addEventListener("keydown", (e) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[e.key];
      if (!step) return;
      e.preventDefault();
      const sorted = Array.from({ length: n }, (_, i) => i).sort((i, j) => Panels.along(View.a)[i] - Panels.along(View.a)[j]);
      const next = sorted[(sorted.indexOf(View.row ?? sorted[0]) + step + n) % n];
      chooseRow(next);
      tipAtRow(next);
    });
    if (!live) return;
    for (const id of ["u", "g"]) {
      const canvas = $(id), go = (e) => { const [x, y] = place(e), p = Panels.shown()[id]; moveProbe(p.fromX(x), p.fromY(y)); };
      canvas.addEventListener("pointerdown", (e) => { canvas.setPointerCapture(e.pointerId); canvas.focus(); go(e); });
      canvas.addEventListener("pointermove", (e) => { if (canvas.hasPointerCapture(e.pointerId)) go(e); });
      canvas.addEventListener("keydown", (e) => {
        const move = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[e.key];
        if (!move) return;
        e.preventDefault();
        const size = ([low, high]) => (high - low) / (e.shiftKey ? 10 : 40), { at } = Model.now.probe;
        const up = View.b < 0 ? 0 : at[View.b] + move[1] * size(Panels.bounds[View.b]);
        moveProbe(at[View.a] + move[0] * size(Panels.bounds[View.a]), up);
      });
    }
    $("f").addEventListener("click", (e) => {
      const { mu } = Model.atoms, p = Panels.shown().f, xs = Array.from({ length: Model.atoms.n }, (_, r) => mu[r * d + View.a]);
      const r = nearest(p, xs, xs.map((_, i) => (View.b < 0 ? 0 : mu[i * d + View.b])), place(e), 30);
      if (r !== null) pickAtom(r);
    });
    $("f").addEventListener("keydown", (e) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[e.key];
      if (!step) return;
      e.preventDefault();
      pickAtom((View.atom + step + Model.atoms.n) % Model.atoms.n);
    });
  }

  // --- theme, facts, start

  function theme() {
    const dark = matchMedia("(prefers-color-scheme: dark)"), root = document.documentElement;
    root.dataset.theme = dark.matches ? "dark" : "light";
    dark.addEventListener("change", () => { root.dataset.theme = dark.matches ? "dark" : "light"; redraw(); });
    $("theme").addEventListener("click", () => { root.dataset.theme = Draw.isDark() ? "light" : "dark"; redraw(); });
  }

  function facts() {
    const { rows, chart, model } = told;
    $("title").textContent = told.title;
    const shown = rows.kind === "anchors"
      ? `the ${rows.shown} rows its sources are tied to`
      : `${rows.shown}${rows.shown < rows.known ? ` of ${rows.known}` : ""} rows ${rows.kind === "given" ? "given to the report" : "it was fitted to"}`;
    $("facts").textContent = `${told.estimator} · ${rows.n_features} columns → ${open.length} coordinate${open.length === 1 ? "" : "s"} (${chart.encoder}) · ${model.n_atoms} sources · ${model.name} · ${shown}`;
    const note = $("live-note"), notes = [];
    if (!live) notes.push(`Nothing can be changed in this page: ${model.why}. The fields shown were computed when it was written, on planes through the mean.`);
    if (told.stack && told.stack.n > 1) notes.push(`The stack averages ${told.stack.n} charts. This page is of the one that weighs most, ${Math.round(100 * told.stack.weight)}%: response, source and score are its own.${Y ? ` All together have R² ${told.stack.score.toFixed(3)} on the same rows.` : ""}`);
    if (!Y) notes.push("The page has no targets, so there is no score: write the report with rows and their targets.");
    if (live && !fitted) notes.push("Re-solving is off: the model came from a file, which does not hold the rows it was fitted to. Solved on the rows shown instead, the score would be of rows it was solved on. Write the report where the model was fitted to have it.");
    if (told.outputs.known > c) notes.push(`The ${c} of ${told.outputs.known} outputs that vary most are shown, and the score is theirs.`);
    note.hidden = !notes.length;
    note.textContent = notes.join(" ");
  }

  theme();
  facts();
  centerProbe();
  controls();
  pointers();
  Story.begin();
  Model.hear(() => redraw());
  redraw();
  let width = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; redraw(); } });

  // For the console: what the page computes, and what it can be told to do.
  window.greenfold = { settled: Model.settled, u: (points) => Array.from(Model.at(points)), score: Model.score, setGate, setScale, setStrength, moveProbe, setHeight, resolve, reset, model: Model, view: View, told };
})();
