"use strict";
// What does not change with a click: training, dimension, provenance. And predicted against true, which does.

const Story = (() => {
  const $ = (id) => document.getElementById(id);
  const { n, c, d, Y, task } = Model, history = told.history;
  const unit = told.intervals && unpack(told.intervals.unit); // (n, c) in the model's units

  function truth() {
    $("truth-section").hidden = !Y;
    if (!Y) return;
    if (task === "classification") return confusion();
    const k = View.output, out = (v) => Array.from({ length: n }, (_, i) => Model.outside(v[i * c + k], k));
    const y = out(Y), u = out(Model.u), bounds = Draw.range([...y, ...u]);
    const p = Draw.panel($("truth"), { x: bounds, y: bounds, xLabel: `true ${told.outputs.names[k]}`, yLabel: "predicted" });
    const level = Number($("level").value);
    const half = unit && y.map((_, i) => told.intervals.quantile[level][k] * unit[i * c + k] * told.outputs.scale[k]);
    if (half) {
      const { ctx, box } = p;
      ctx.save();
      ctx.beginPath();
      ctx.rect(box.left, box.top, box.right - box.left, box.bottom - box.top);
      ctx.clip();
      ctx.strokeStyle = Draw.css("--soft");
      ctx.lineWidth = 3;
      ctx.beginPath();
      y.forEach((v, i) => {
        ctx.moveTo(p.X(v), p.Y(u[i] - half[i]));
        ctx.lineTo(p.X(v), p.Y(u[i] + half[i]));
      });
      ctx.stroke();
      ctx.restore();
    }
    Draw.line(p, bounds, bounds, Draw.css("--axis"), 1, [4, 4]);
    Draw.dots(p, y, u, Draw.css("--accent"), 2.6, 0.6);
    p.frame();
    $("truth-text").textContent = `Every dot is a row: what the model says for ${told.outputs.names[k]} as it stands now, against the truth.`;
    $("level-row").hidden = !half;
    if (!half) return;
    const inside = y.filter((v, i) => Math.abs(v - u[i]) <= half[i]).length / n;
    const [low, high] = [Math.min(...half), Math.max(...half)];
    const widths = high > 1.001 * low ? `± ${Draw.text(low)} to ${Draw.text(high)}` : `± ${Draw.text(high)}`;
    $("coverage").textContent = `${(100 * inside).toFixed(1)}% inside ${widths}`;
    $("coverage-note").textContent = told.rows.kind === "given"
      ? "of the rows given to this report; the bars are conformal, from errors of rows that the fit left out."
      : "of the rows fitted to, on which errors are smaller than on new ones; the bars are conformal, from errors of rows left out.";
  }

  // How often each class is taken for each other one.
  function confusion() {
    const { P } = Solve.softmax(Model.logits(), n, c), count = new Float64Array(c * c);
    const best = (v, i) => { let t = 0; for (let k = 1; k < c; k++) if (v[i * c + k] > v[i * c + t]) t = k; return t; };
    for (let i = 0; i < n; i++) count[best(Y, i) * c + best(P, i)]++;
    const p = Draw.panel($("truth"), { x: [-0.5, c - 0.5], y: [c - 0.5, -0.5], xLabel: "predicted", yLabel: null });
    const { ctx, box } = p, w = (box.right - box.left) / c, h = (box.bottom - box.top) / c;
    const rows = Array.from({ length: c }, (_, t) => count.subarray(t * c, t * c + c).reduce((s, v) => s + v, 0) || 1);
    const step = Math.ceil(16 / w), room = Math.max(2, Math.floor((step * w) / 6.5)); // of many classes not every name has room
    const names = told.outputs.names.map((s) => (s.length > room ? `${s.slice(0, room - 1)}…` : s));
    ctx.font = `${Math.min(13, h * 0.5)}px system-ui, sans-serif`;
    ctx.textAlign = "center";
    ctx.textBaseline = "middle";
    for (let t = 0; t < c; t++)
      for (let k = 0; k < c; k++) {
        const v = count[t * c + k];
        ctx.globalAlpha = 0.08 + 0.92 * (v / rows[t]);
        ctx.fillStyle = t === k ? Draw.css("--accent") : Draw.ofClass(1);
        ctx.fillRect(box.left + k * w + 1, box.top + t * h + 1, w - 2, h - 2);
        ctx.globalAlpha = 1;
        ctx.fillStyle = v / rows[t] > 0.5 ? Draw.css("--accent-ink") : Draw.css("--ink");
        if (v) ctx.fillText(v, box.left + (k + 0.5) * w, box.top + (t + 0.5) * h);
      }
    ctx.fillStyle = Draw.css("--muted");
    ctx.font = "11px system-ui, sans-serif";
    names.forEach((s, k) => { if (k % step === 0) ctx.fillText(s, box.left + (k + 0.5) * w, box.bottom + 12, step * w - 3); });
    ctx.fillText("predicted", (box.left + box.right) / 2, box.bottom + 30);
    const listed = told.outputs.names.slice(0, 12).join(", ") + (c > 12 ? `, … ${c} in all` : "");
    $("truth-text").textContent = `Rows are true classes from top to bottom (${listed}), columns predicted ones. As the model stands now.`;
    $("level-row").hidden = true;
    $("coverage").textContent = `log-loss ${Model.logLoss().toFixed(3)}`;
    $("coverage-note").textContent = told.rows.kind === "given" ? "on the rows given to this report." : "on the rows fitted to, which flatters.";
  }

  // --- coordinates

  const coordinates = (told.coordinates || []).map((v) => ({ ...v, values: unpack(v.values), at: v.at && unpack(v.at) }));
  const WORDS = {
    curve: "Drawn over the channels: how far a coordinate moves with the value in each, in its unit.",
    image: "Pixels that move a coordinate, each by its own standard deviation: up where red, down where blue.",
    bars: "Columns that move a coordinate most, each by its own standard deviation.",
  };

  function loadingFigures() {
    $("coordinates").hidden = !coordinates.length;
    if (!coordinates.length) return;
    const some = coordinates.length < d ? ` The ${coordinates.length} of ${d} coordinates that explain most.` : "";
    const drop = coordinates[0].explained === null ? "" : " What a coordinate explains is what R² at rows left out loses when its gate closes and the source is solved for again.";
    $("coordinates-note").textContent = `${WORDS[coordinates[0].kind]}${drop}${some}`;
    $("loadings").replaceChildren(...coordinates.map(({ axis, explained, kind, values, names }) => {
      const figure = document.createElement("figure"), caption = document.createElement("figcaption");
      const title = document.createElement("b"), share = explained === null ? "" : `explains ${explained.toFixed(3)} of R²`;
      title.textContent = Panels.name(axis);
      caption.append(title, ` ${share}`);
      figure.append(caption);
      if (kind === "bars") {
        const list = document.createElement("ol"), top = Math.max(...values.map(Math.abs), 1e-300);
        list.className = "bars signed";
        list.append(...names.map((name, i) => {
          const row = document.createElement("li"), bar = document.createElement("i");
          row.append(name, Object.assign(document.createElement("output"), { textContent: Draw.text(values[i]) }), bar);
          row.className = values[i] < 0 ? "down" : "used";
          const width = (50 * Math.abs(values[i])) / top; // from a zero in the middle, down to the left
          bar.style.width = `${width}%`;
          bar.style.marginLeft = `${values[i] < 0 ? 50 - width : 50}%`;
          return row;
        }));
        figure.append(list);
      } else {
        const canvas = document.createElement("canvas");
        canvas.id = `loading-${axis}`;
        if (kind === "image") canvas.className = "pixels";
        canvas.setAttribute("role", "img");
        canvas.setAttribute("aria-label", `What ${Panels.name(axis)} is made of. ${share}`);
        figure.append(canvas);
      }
      return figure;
    }));
  }

  function loadings() {
    for (const { axis, kind, values, at, shape } of coordinates) {
      const canvas = $(`loading-${axis}`);
      if (kind === "bars" || !Draw.stale(canvas)) continue;
      if (kind === "curve") {
        const x = [at[0], at[at.length - 1]];
        const p = Draw.panel(canvas, { x, y: Draw.range([0, ...values]), xLabel: "channel", yLabel: "" });
        Draw.line(p, x, [0, 0], Draw.css("--axis"), 1, [4, 4]);
        Draw.line(p, at, values, Draw.css("--accent"));
        p.frame();
        continue;
      }
      const [height, width] = shape, colors = Draw.scale(values, "diverging"), ctx = canvas.getContext("2d");
      [canvas.width, canvas.height] = [width, height];
      values.forEach((v, i) => {
        ctx.fillStyle = colors.color(v);
        ctx.fillRect(i % width, Math.floor(i / width), 1, 1);
      });
    }
  }

  // --- training

  const film = history.film && { ...history.film, charts: unpack(history.film.charts) };
  const morph = unpack(history.morph);
  const moment = () => Number($("scrub").value);

  function loss() {
    const step = film ? film.steps[moment()] : null;
    if ((history.candidates && history.candidates.length) || !Draw.stale($("loss"), step)) return;
    if (!history.loss || history.loss.length < 2) {
      $("loss-cap").textContent = "No steps were recorded.";
      $("loss").hidden = true;
      return;
    }
    const steps = history.loss.map((_, i) => i + 1), gates = film && film.gates.some((g) => g.some((v) => v !== film.gates[0][0]));
    const p = Draw.panel($("loss"), { x: [1, steps.length], y: Draw.range(history.loss), xLabel: "step", yLabel: "" });
    Draw.line(p, steps, history.loss, Draw.css("--accent"));
    if (gates) // on the height of the frame: closed at the bottom, open at the top
      for (let j = 0; j < d; j++) {
        const [low, high] = p.y;
        Draw.line(p, film.steps, film.gates.map((g) => low + g[j] * (high - low)), Draw.ofClass(j + 1), 1.2, [3, 3]);
      }
    if (step) Draw.line(p, [step, step], p.y, Draw.css("--axis"), 1);
    p.frame();
    const seconds = history.seconds[history.seconds.length - 1];
    $("loss-cap").textContent = `${history.label}, best so far: ${steps.length} steps in ${seconds.toFixed(1)} s${gates ? "; dashed: gates, closed below, open above" : ""}`;
  }

  // The charts that competed, what is in use first: errors as bars from 0.
  function candidates() {
    const all = history.candidates, worst = Math.max(...all.map((v) => v.value)), used = all.filter((v) => v.weight > 0);
    $("candidates").replaceChildren(...all.map(({ name, d, value, weight }) => {
      const row = document.createElement("li"), bar = document.createElement("i");
      const share = weight > 0 && weight < 1 ? `, weighs ${Math.round(100 * weight)}%` : "";
      row.append(`${name}, d = ${d}${share}`, Object.assign(document.createElement("output"), { textContent: Draw.text(value) }), bar);
      row.className = weight > 0 ? "used" : "";
      bar.style.width = `${worst > 0 ? (100 * value) / worst : 0}%`;
      return row;
    }));
    $("loss").hidden = true;
    const first = ["the one in use was not judged so", "the one in use comes first"][used.length] || "those in use come first";
    $("loss-cap").textContent = `Charts that competed, by ${history.label} on rows left out of the solve (lower is better); ${first}`;
  }

  function frames() {
    if (!Draw.stale($("morph"), moment(), ...Panels.colored())) return;
    const t = moment(), rows = film ? film.rows : Array.from({ length: n }, (_, i) => i);
    const last = (r, j) => Model.xi[r * d + j];
    const at = film
      ? (i, j) => (t >= film.steps.length ? last(rows[i], j) : film.charts[(t * rows.length + i) * d + j])
      : (i, j) => morph[i * d + j] + (t / 100) * (last(i, j) - morph[i * d + j]);
    const across = rows.map((_, i) => at(i, View.a)), { values, map, classes } = Panels.coloring();
    const up = View.b < 0 ? rows.map((r) => Panels.upward()[r]) : rows.map((_, i) => at(i, View.b));
    const p = Draw.panel($("morph"), { x: Draw.range(across), y: Draw.range(up), xLabel: Panels.name(View.a), yLabel: View.b < 0 ? told.outputs.names[View.output] : Panels.name(View.b) });
    const bar = classes ? null : Draw.scale(values, map);
    Draw.dots(p, across, up, (i) => (classes ? Draw.ofClass(values[rows[i]]) : bar.color(values[rows[i]])), 3);
    p.frame();
    $("scrub-value").textContent = film ? (t >= film.steps.length ? "as fitted" : `${film.steps[t]}`) : `${t}%`;
  }

  function training() {
    loss();
    frames();
  }

  function begin() {
    const scrub = $("scrub");
    loadingFigures();
    if (history.candidates && history.candidates.length) candidates();
    if (film) { scrub.max = film.steps.length; scrub.value = scrub.max; }
    $("scrub-name").textContent = film ? "Step" : "From principal components to the chart";
    $("morph-cap").textContent = film
      ? `${film.rows.length} rows while the chart was trained`
      : "Not a record of training: rows drawn between their principal components and the chart that was found";
    scrub.addEventListener("input", training);
    (told.intervals ? told.intervals.levels : []).forEach((v, i) => $("level").add(new Option(`${Math.round(100 * v)}%`, i, v === 0.9, v === 0.9)));
    $("level").addEventListener("change", truth);
    for (const [key, value] of Object.entries(told.provenance)) {
      const dt = document.createElement("dt"), dd = document.createElement("dd");
      dt.textContent = key;
      dd.textContent = value;
      $("provenance").append(dt, dd);
    }
    if (!told.dimension) return;
    $("dimension").hidden = false;
    for (const answer of told.dimension) {
      const figure = document.createElement("figure"), caption = document.createElement("figcaption"), canvas = document.createElement("canvas");
      caption.innerHTML = "<b></b> <span></span>";
      caption.firstChild.textContent = `${answer.name}: ${answer.value === null ? "cannot tell" : answer.value}`;
      caption.lastChild.textContent = `${answer.question}. ${answer.text}`;
      canvas.id = `curve-${answer.name}`;
      canvas.setAttribute("role", "img");
      canvas.setAttribute("aria-label", `${answer.name} dimension: ${answer.text}`);
      figure.append(canvas, caption);
      $("answers").append(figure);
    }
  }

  // The curve each dimension was read from, its interval shaded.
  function dimension() {
    for (const answer of told.dimension || []) {
      const curve = answer.curve.filter(([x, y]) => !answer.log[1] || y > 0);
      if (!curve.length || !Draw.stale($(`curve-${answer.name}`))) continue;
      const xs = curve.map((v) => v[0]), ys = curve.map((v) => v[1]);
      const grow = ([low, high], log) => (log ? [low / 1.2, high * 1.2] : Draw.range([low, high]));
      const ends = (v) => [Math.min(...v), Math.max(...v)];
      const p = Draw.panel($(`curve-${answer.name}`), { x: grow(ends(xs), answer.log[0]), y: grow(ends(ys), answer.log[1]), logX: answer.log[0], logY: answer.log[1], xLabel: answer.labels[0], yLabel: answer.labels[1] });
      const mark = answer.name === "intrinsic" ? answer.estimate : answer.value;
      if (answer.name !== "intrinsic" && answer.low !== null) {
        p.ctx.fillStyle = Draw.css("--soft");
        const left = p.X(answer.low - 0.1), right = p.X(answer.high + 0.1);
        p.ctx.fillRect(left, p.box.top, right - left, p.box.bottom - p.box.top);
      }
      if (mark !== null && answer.name === "intrinsic") Draw.line(p, p.x, [mark, mark], Draw.css("--axis"), 1);
      else if (mark !== null) Draw.line(p, [mark, mark], p.y, Draw.css("--axis"), 1);
      Draw.line(p, xs, ys, Draw.css("--accent"));
      Draw.dots(p, xs, ys, Draw.css("--accent"), 3);
      p.frame();
    }
  }

  return { begin, loadings, truth, training, dimension };
})();
