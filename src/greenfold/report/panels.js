"use strict";
// The four linked pictures: rows on the chart, the response, the source, and the Green's function.

const View = {
  a: Math.min(...told.chart.order.slice(0, 2)), b: told.chart.order.length > 1 ? Math.max(...told.chart.order.slice(0, 2)) : -1,
  output: told.outputs.first, color: Model.Y ? "target" : "prediction", slice: "mean", row: null, atom: 0,
};

const Panels = (() => {
  const $ = (id) => document.getElementById(id);
  const { d, n, c, xi, Y, task, live } = Model;
  const name = (j) => `ξ${String(j + 1).replace(/\d/g, (t) => "₀₁₂₃₄₅₆₇₈₉"[t])}`;
  const axis = (j) => (told.chart.names ? `${name(j)}  ${told.chart.names[j]}` : name(j));
  const along = (j) => Float64Array.from({ length: n }, (_, i) => xi[i * d + j]);
  const mean = Array.from({ length: d }, (_, j) => along(j).reduce((s, v) => s + v, 0) / n);
  const bounds = Array.from({ length: d }, (_, j) => Draw.range(along(j), 0.08));
  let shown = {}; // panels by name, for pointers

  const slice = () => (View.slice === "row" && View.row !== null ? [...xi.subarray(View.row * d, View.row * d + d)] : mean);
  const grid = ([low, high], N) => Float64Array.from({ length: N }, (_, i) => low + ((high - low) * i) / (N - 1));

  // What rows are colored by: values (n,), and the map of colors.
  function coloring() {
    const { u } = Model, k = View.output;
    if (task === "classification") {
      const { P } = Solve.softmax(Model.logits(), n, c);
      const label = (v) => Array.from({ length: n }, (_, i) => {
        let top = 0;
        for (let t = 1; t < c; t++) if (v[i * c + t] > v[i * c + top]) top = t;
        return top;
      });
      if (View.color === "target" || View.color === "prediction") return { values: label(View.color === "target" ? Y : u), classes: true };
      const values = Array.from({ length: n }, (_, i) => {
        let entropy = 0, loss = 0;
        for (let t = 0; t < c; t++) {
          const p = P[i * c + t];
          if (p > 0) entropy -= p * Math.log2(p);
          if (Y && Y[i * c + t] > 0) loss = -Math.log(Math.max(p, 1e-300));
        }
        return View.color === "residual" ? loss : entropy;
      });
      return { values, map: "sequential" };
    }
    const value = (i) => {
      if (View.color === "target") return Model.outside(Y[i * c + k], k);
      if (View.color === "prediction") return Model.outside(u[i * c + k], k);
      if (View.color === "residual") return told.outputs.scale[k] * (Y[i * c + k] - u[i * c + k]);
      return Model.std[i * c + k];
    };
    return { values: Array.from({ length: n }, (_, i) => value(i)), map: View.color === "residual" ? "diverging" : "sequential" };
  }

  const frameFor = (extra) => ({
    x: bounds[View.a], y: View.b < 0 ? Draw.range(heights()) : bounds[View.b],
    xLabel: axis(View.a), yLabel: View.b < 0 ? told.outputs.names[View.output] : axis(View.b), ...extra,
  });
  const heights = () => Array.from({ length: n }, (_, i) => Model.outside((Y || Model.u)[i * c + View.output], View.output));
  const upward = () => (View.b < 0 ? heights() : along(View.b));

  // What colors of rows depend on: the response, unless they are those of targets or of what the fit has said.
  const fixed = () => Y && (View.color === "target" || (View.color === "uncertainty" && task !== "classification"));
  const colored = () => [View.a, View.b, View.color, View.output, fixed() ? 0 : Model.changes];

  function chart() {
    if (!Draw.stale($("chart"), View.row, ...colored())) return;
    const { values, map, classes } = coloring(), bar = classes ? null : Draw.scale(values, map);
    const p = Draw.panel($("chart"), frameFor({ bar }));
    const size = n > 1200 ? 2.6 : n > 400 ? 3.2 : 4;
    const color = classes ? (i) => Draw.ofClass(values[i]) : (i) => bar.color(values[i]);
    Draw.dots(p, along(View.a), upward(), color, size);
    p.frame();
    if (View.row !== null) Draw.ring(p, along(View.a)[View.row], upward()[View.row]);
    shown.chart = p;
    $("chart-cap").textContent = `by ${$("color").selectedOptions[0]?.text || View.color}${classes || c === 1 ? "" : ` of ${told.outputs.names[View.output]}`}`;
    $("chart-cap").innerHTML += classes ? legend() : "";
  }
  const escape = (s) => s.replace(/[&<>"]/g, (t) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[t]);
  const legend = () => told.outputs.names.slice(0, 10).map((v, k) => ` <span class="class" style="color:${Draw.ofClass(k)}">● ${escape(v)}</span>`).join("");

  function fields() {
    const k = View.output, terms = live ? Model.atoms.n * (told.model.members[0].n_terms || 1) : 1;
    const N = live ? Math.round(Math.min(120, Math.max(40, Math.sqrt(3e7 / terms)))) : told.model.fields[0].u.shape[0] ** 0.5;
    const xs = grid(bounds[View.a], N), ys = View.b < 0 ? Float64Array.of(0) : grid(bounds[View.b], N);
    if (!live) return { ...stored(N, k), f: source(xs, ys, k) };
    const { u, green } = Model.fields(View.a, View.b, xs, ys, slice(), k);
    return { xs, nx: N, ny: ys.length, u: u && u.map((v) => Model.outside(v, k)), green, f: source(xs, ys, k) };
  }
  function source(xs, ys, k) {
    if (!Model.atoms) return null;
    const blur = [View.a, View.b].map((j) => (j < 0 ? 1 : (bounds[j][1] - bounds[j][0]) / 40));
    return Model.source(View.a, View.b, xs, ys, slice(), k, blur);
  }

  // Fields that Python computed, if they are of this plane.
  function stored(N, k) {
    const found = told.model.fields.find(({ axes }) => axes[0] === Math.min(View.a, View.b) && axes[1] === Math.max(View.a, View.b));
    const outputs = found ? found.outputs.length : 0, at = found ? found.outputs.indexOf(k) : -1;
    if (at < 0) return { nx: N, ny: N };
    const turn = View.a > View.b, pick = (packed) => {
      const v = unpack(packed);
      return Float64Array.from({ length: N * N }, (_, i) => v[(turn ? (i % N) * N + Math.floor(i / N) : i) * outputs + at]);
    };
    const green = found.green && unpack(found.green), turned = green && green.map((_, i) => green[turn ? (i % N) * N + Math.floor(i / N) : i]);
    return { nx: N, ny: N, u: pick(found.u).map((v) => Model.outside(v, k)), green: turned };
  }

  function draw(id, values, { nx, ny, xs }, map, contours) {
    if (!values) {
      shown[id] = Draw.panel($(id), frameFor({}));
      shown[id].frame();
      return shown[id];
    }
    const bar = Draw.scale(values, map);
    if (View.b < 0) {
      const p = Draw.panel($(id), frameFor({ y: id === "u" ? frameFor({}).y : Draw.range(values), yLabel: id === "u" ? told.outputs.names[View.output] : "" }));
      if (id === "u") Draw.dots(p, along(View.a), heights(), Draw.css("--axis"), 2, 0.5);
      Draw.line(p, xs, values, Draw.css("--accent"));
      p.frame();
      return (shown[id] = p);
    }
    const p = Draw.panel($(id), frameFor({ bar }));
    Draw.field(p, values, nx, ny, bar);
    if (contours) Draw.contours(p, values, nx, ny, Draw.ticks(bar.low, bar.high, 9));
    p.frame();
    return (shown[id] = p);
  }

  function anchors(p, w) {
    const { mu } = Model.atoms, top = Math.max(...w.map(Math.abs)) || 1;
    const xs = Array.from({ length: w.length }, (_, r) => mu[r * d + View.a]);
    const ys = View.b < 0 ? xs.map(() => 0) : xs.map((_, r) => mu[r * d + View.b]);
    Draw.dots(p, xs, ys, Draw.css("--ink"), (r) => 1 + 2 * Math.sqrt(Math.abs(w[r]) / top), 0.55);
    Draw.ring(p, xs[View.atom], ys[View.atom]);
  }

  function probeOn(p, id) {
    const { probe } = Model.now;
    if (probe) Draw.ring(p, probe.at[View.a], View.b < 0 ? (id === "g" ? 1 : p.fromY((p.box.top + p.box.bottom) / 2)) : probe.at[View.b]);
  }

  // While the point source is dragged, only what it changes: its own response, and u if it is a part of that.
  const under = new OffscreenCanvas(1, 1); // u without the ring
  function response(dragged = false) {
    if (dragged && !Model.now.height && shown.u && shown.u.of === Model.version) {
      const { width, height } = under, { ctx } = shown.u;
      ctx.save();
      ctx.setTransform(1, 0, 0, 1, 0, 0);
      ctx.clearRect(0, 0, width, height);
      ctx.drawImage(under, 0, 0);
      ctx.restore();
      probeOn(shown.u, "u");
      return green();
    }
    const made = fields(), at = d > 2 ? (View.slice === "row" && View.row !== null ? `, through row ${View.row + 1}` : ", others at their mean") : "";
    const of = task === "classification" ? `logit of ${told.outputs.names[View.output]}` : told.outputs.names[View.output];
    const u = draw("u", made.u, made, task === "classification" ? "diverging" : "sequential", true);
    if (View.b >= 0) Draw.dots(u, along(View.a), along(View.b), Draw.isDark() ? "#000" : "#fff", 1.3, 0.45);
    [under.width, under.height] = [$("u").width, $("u").height];
    under.getContext("2d").drawImage($("u"), 0, 0);
    u.of = Model.version;
    probeOn(u, "u");
    $("u-cap").textContent = made.u ? `u = L⁻¹f̂: ${of}${at}` : "computed for four coordinates and four outputs only";
    if (live && !made.u) $("u-cap").textContent = "is being computed…";
    if (!dragged) {
      const f = draw("f", made.f, made, "diverging", false);
      if (Model.atoms) anchors(f, Model.strengths(View.output));
      $("f-cap").textContent = !made.f ? "too many to show" : Model.atoms.point ? "f̂ = Σ wᵣ δ(ξ − μᵣ): points, drawn as bumps" : "f̂ = Σ wᵣ φᵣ";
    }
    green(made);
  }
  function green(made = fields()) {
    probeOn(draw("g", made.green, made, "sequential", true), "g");
    $("g-cap").textContent = live ? "L⁻¹ of one source, 1 at its place: drag it" : made.green ? "L⁻¹ of one source at the mean, 1 at its place" : "";
  }

  const all = () => { chart(); response(); };
  return { all, chart, response, slice, name, axis, bounds, upward, along, coloring, mean, colored, shown: () => shown };
})();
