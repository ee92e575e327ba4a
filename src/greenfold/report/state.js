"use strict";
// The model in the page: as it was fitted, and as it stands after what was done to it.

const told = JSON.parse(document.getElementById("told").textContent);

// Arrays come as base64 of little-endian numbers.
function unpack(packed) {
  if (!packed) return null;
  const kind = Object.keys(packed)[0], text = atob(packed[kind]), bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return new { f8: Float64Array, f4: Float32Array, u1: Uint8Array }[kind](bytes.buffer);
}

const Model = (() => {
  const m = told.model, live = m.live, d = told.chart.gates.length, n = told.rows.shown;
  const c = told.outputs.names.length, task = told.task;
  const xi = unpack(told.rows.xi), Y = unpack(told.rows.y), weight = unpack(told.rows.weight);
  const std = unpack(told.rows.std);
  const atoms = m.mu && {
    n: m.n_atoms, d, mu: unpack(m.mu), point: m.atoms === "point", reaches: m.reaches,
  };
  if (atoms) atoms.sigma = typeof m.sigma === "number" ? atoms.mu.map(() => m.sigma) : unpack(m.sigma);
  const fitted = { gate: told.chart.gates, factor: 1, w: unpack(m.w), trend: unpack(m.trend) };
  const copy = () => ({ ...fitted, gate: [...fitted.gate], w: fitted.w && Float64Array.from(fitted.w), probe: null, height: 0 });
  let now = copy(), kernel, Phi, u = unpack(told.rows.u), base;
  let version = 0, changes = 0, weighed = 0; // of u, but by the point source and all; of strengths
  let heard = () => {}; // is told when something that took longer is there

  // A frame has time for some millions of multiplications; a worker does what is longer.
  const LONG = 4e6;
  const products = (cost) => kernel.members.reduce((s, part) => s + part.K * atoms.n * cost(part), 0);
  const beside = (units) => Beside.able && units > LONG;
  const operator = () => ({ kernel: { members: m.members, gamma: m.gamma, factors: m.factors }, atoms, gate: [...now.gate], factor: now.factor });

  // The kernel and Φ on the rows; after a gate or the scale has changed.
  function rekernel() {
    if (!live) return;
    kernel = Green.kernel(m, atoms, now.gate, now.factor);
    version++;
    if (Phi && beside(products(({ axes }) => n * (axes.length + 4))))
      return Beside.ask("rows", { ...operator(), xi }, (found) => {
        Phi = found || Green.columns(kernel, xi);
        respond();
        heard();
      });
    Beside.drop("rows");
    Phi = Green.columns(kernel, xi);
    respond();
  }

  // What was computed at points (n, d), and the columns beside the response; all outputs, or one.
  function completed(u, points, k = -1, { gate, factor, trend: all } = now) {
    const N = Green.beside(m.null, gate, factor, points);
    const trend = k < 0 ? all : column(all, k);
    const more = Solve.times(N, points.length / d, m.null.length, trend, k < 0 ? c : 1);
    return u.map((v, i) => v + more[i]);
  }

  // After strengths have changed.
  function reweigh() {
    weighed++;
    respond();
  }

  // u on the rows.
  function respond() {
    if (!live) return;
    base = completed(Solve.times(Phi, n, kernel.p, now.w, c), xi);
    version++;
    reprobe();
  }

  // u with the point source that was added; after that has moved.
  function reprobe() {
    if (!live) return;
    u = base;
    changes++;
    if (!now.height || !now.probe) return;
    const spread = probeAt(now.probe.at), added = total(spread, xi), unit = now.height / spread.unit;
    u = Float64Array.from(base);
    for (let i = 0; i < n; i++) u[i * c + now.probe.output] += unit * added[i];
  }

  // The operator's response to one source of the model's kind at a point; `unit` is its value there.
  function probeAt(at) {
    const place = Float64Array.from(at);
    const sigma = Float64Array.from(place, (_, j) => atoms.sigma[j]);
    const one = { ...atoms, n: 1, mu: place, sigma };
    const spread = Green.kernel(m, one, now.gate, now.factor, kernel);
    spread.unit = total(spread, place)[0];
    return spread;
  }
  function total(spread, points) {
    return Solve.times(Green.columns(spread, points), points.length / d, spread.p, new Float64Array(spread.p).fill(1), 1);
  }

  // u (n, c) at points (n, d), all as it stands.
  function at(points) {
    const P = Green.columns(kernel, Float64Array.from(points)), count = points.length / d;
    const out = completed(Solve.times(P, count, kernel.p, now.w, c), points);
    if (now.height && now.probe) {
      const spread = probeAt(now.probe.at), added = total(spread, Float64Array.from(points));
      for (let i = 0; i < count; i++) out[i * c + now.probe.output] += (now.height / spread.unit) * added[i];
    }
    return out;
  }

  const column = (values, k) => Float64Array.from({ length: values.length / c }, (_, i) => values[i * c + k]);

  // Values on a plane are kept: most stay as they are while something is dragged. Until those that take longer are
  // there, the ones before them on the same plane stand in; null without any.
  const planes = { plane: { key: "", view: "" }, source: { key: "", view: "" } };
  function kept(slot, state, view, units, task, finish) {
    const key = `${state} ${view}`, found = planes[slot];
    if (found.key === key) return found.values;
    const keep = (values) => { planes[slot] = { key, view, values: finish(values) }; };
    if (!beside(units)) keep(slot === "plane" ? Green.plane(kernel, ...task) : Green.source(...task));
    else {
      if (found.asked !== key) Beside.ask(slot, { ...operator(), plane: task }, (values) => { if (values) keep(values); else found.asked = ""; heard(); });
      found.asked = key;
    }
    return planes[slot].view === view ? planes[slot].values : null;
  }

  // u of one output on a plane, without the point source.
  function field(a, b, xs, ys, slice, k) {
    const view = [a, b, xs.length, xs[0], xs[xs.length - 1], ys[0], ys[ys.length - 1], ...slice, k].join();
    const then = { ...now, gate: [...now.gate] }, units = products(({ separable }) => xs.length * ys.length * (separable ? 1 : 8));
    return kept("plane", version, view, units, [column(now.w, k), a, b, xs, ys, slice], (values) => {
      const points = new Float64Array(xs.length * ys.length * d);
      for (let i = 0; i < points.length; i++) {
        const j = i % d, place = Math.floor(i / d);
        points[i] = j === a ? xs[place % xs.length] : j === b ? ys[Math.floor(place / xs.length)] : slice[j];
      }
      return completed(values, points, k, then);
    });
  }

  // The same with it, and its own response there, 1 at its place.
  function fields(a, b, xs, ys, slice, k) {
    let values = field(a, b, xs, ys, slice, k), green = null;
    if (now.probe) {
      const spread = probeAt(now.probe.at), ones = new Float64Array(spread.p).fill(1 / spread.unit);
      green = Green.plane(spread, ones, a, b, xs, ys, slice);
      if (values && now.height && now.probe.output === k) values = values.map((v, i) => v + now.height * green[i]);
    }
    return { u: values, green };
  }

  // The source on a plane, in the units of y; the scale of the operator changes its unit alone.
  function source(a, b, xs, ys, slice, k, blur) {
    const view = [a, b, xs.length, xs[0], ys[0], ...slice, k, blur].join(), units = 2 * xs.length * ys.length * atoms.n;
    const task = [atoms, strengths(k), [...now.gate], a, b, xs, ys, slice, blur], here = unit() * told.outputs.scale[k];
    const values = kept("source", [weighed, ...now.gate].join(), view, units, task, (v) => v);
    return values && values.map((v) => v * here);
  }

  // What strengths are shown in: a point's by the response at its own place, in the units of y.
  const unit = () => (live && atoms.point ? probeAt(atoms.mu.subarray(0, d)).unit : 1);

  // Strengths (n_atoms,) of one output; with a weight for every term, their sum over terms.
  function strengths(k) {
    const w = column(now.w, k);
    if (w.length === atoms.n) return w; // else terms have strengths of their own
    return Float64Array.from({ length: atoms.n }, (_, r) => {
      let s = 0;
      for (let i = r; i < w.length; i += atoms.n) s += w[i];
      return s;
    });
  }

  // Strengths for the gates and the scale of now, from the rows fitted to, whatever rows are shown; null if
  // it was stopped.
  async function solved(progress) {
    const { gate, factor } = now, { members, gamma, factors, energy, loss, rho } = m, { share } = told.fitted;
    const on = { xi: unpack(told.fitted.xi) || xi, Y: unpack(told.fitted.y) || Y, weight: unpack(told.fitted.weight) || weight };
    const found = await Beside.solve({ ...on, kernel: { members, gamma, factors }, atoms, gate, factor, c, beside: m.null, energy, loss, rho, alpha: m.alpha * share }, progress);
    if (found) await Beside.settled(); // Φ is there, too
    return found;
  }

  // A promise: true when the strengths are in place, false if it was stopped.
  async function resolve(progress = () => {}) {
    const found = await solved(progress);
    if (!found) return false;
    now.w = found.w;
    now.trend = found.trend;
    reweigh();
    return true;
  }

  // The score that solving again would have, with the strengths left as they are; null if it was stopped.
  async function tried() {
    const found = await solved(() => {});
    if (!found) return null;
    const { w, trend } = now;
    [now.w, now.trend] = [found.w, found.trend];
    reweigh();
    const s = score();
    [now.w, now.trend] = [w, trend];
    reweigh();
    return s;
  }

  // Roughly how many multiplications that takes.
  const effort = () => (told.fitted ? (told.fitted.n + kernel.p / 3) * kernel.p ** 2 * (m.loss === "cross_entropy" ? 8 * c : 1) : Infinity);

  const logits = () => u.map((v) => v / told.outputs.temperature);

  // R² as scikit-learn has it, averaged over outputs; accuracy for classes. null without targets.
  function score() {
    if (!Y) return null;
    const total = weight.reduce((s, w) => s + w, 0);
    if (task === "classification") {
      const best = (v, i) => [...v.subarray(i * c, (i + 1) * c)].reduce((top, x, k, row) => (x > row[top] ? k : top), 0);
      let right = 0;
      for (let i = 0; i < n; i++) right += weight[i] * (best(u, i) === best(Y, i));
      return right / total;
    }
    let sum = 0, sums = [0, 0];
    for (let k = 0; k < c; k++) {
      let mean = 0, error = 0, spread = 0;
      for (let i = 0; i < n; i++) mean += (weight[i] * Y[i * c + k]) / total;
      for (let i = 0; i < n; i++) {
        error += weight[i] * (Y[i * c + k] - u[i * c + k]) ** 2;
        spread += weight[i] * (Y[i * c + k] - mean) ** 2;
      }
      const units = told.outputs.scale[k] ** 2;
      sums = [sums[0] + units * error, sums[1] + units * spread];
      sum += spread > 0 ? 1 - error / spread : 1;
    }
    return task === "reconstruction" ? 1 - sums[0] / sums[1] : sum / c; // over all columns together
  }

  // Mean log-loss of the classes.
  function logLoss() {
    const { P } = Solve.softmax(logits(), n, c), total = weight.reduce((s, w) => s + w, 0);
    let loss = 0;
    for (let i = 0; i < n; i++)
      for (let k = 0; k < c; k++) if (Y[i * c + k] > 0) loss -= weight[i] * Y[i * c + k] * Math.log(P[i * c + k]);
    return loss / total;
  }

  // To the units of y.
  const outside = (v, k) => told.outputs.shift[k] + told.outputs.scale[k] * v;

  rekernel();
  const fitScore = score();
  return {
    live, d, n, c, task, xi, Y, weight, std, atoms, fitScore, fitted,
    get now() { return now; },
    get u() { return u; },
    get version() { return version; },
    get changes() { return changes; },
    hear(told) { heard = told; },
    settled: () => Beside.settled(),
    reset() { now = { ...copy(), probe: now.probe }; rekernel(); },
    rekernel, reweigh, reprobe, resolve, tried, effort, at, fields, source, strengths, unit, logits, score, logLoss, outside, column,
  };
})();
