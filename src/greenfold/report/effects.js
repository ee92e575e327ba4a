"use strict";
// What columns do, and pairs beyond them. From the fit: it does not follow what is changed in the page.

const Effects = (() => {
  const $ = (id) => document.getElementById(id);
  const read = (v) => ({ ...v, values: unpack(v.values), band: unpack(v.band), at: unpack(v.at), rows: unpack(v.rows) });
  const all = (told.effects || []).map((one) => ({ ...one, effects: one.effects.map(read) }));
  const percent = (v) => `${(100 * v).toFixed(1)}%`;
  let shown = null;

  function note(one) {
    const bands = one.effects.some((v) => v.band) ? " Bands hold a curve with probability 90%." : "";
    const part = one.covered < 1 ? ` They are those of charts with ${percent(one.covered)} of the weight; the others mix columns.` : "";
    const what = told.task === "classification" ? "A logit" : "The prediction";
    return `${what} is ${Draw.text(one.mean)} plus these effects: of single columns, and of pairs beyond what each does. Shares are of its variance over columns that are spread as in the rows fitted to, but do not depend on each other.${bands} Gray: where the rows are.${part}`;
  }

  function figures(one) {
    $("effects-note").textContent = note(one);
    const top = Math.max(...one.shares.map(([, v]) => v), 1e-300);
    $("shares").replaceChildren(...one.shares.map(([name, share], i) => {
      const row = document.createElement("li"), bar = document.createElement("i");
      row.append(name, Object.assign(document.createElement("output"), { textContent: percent(share) }), bar);
      row.className = i === one.shares.length - 1 ? "rest" : "used";
      bar.style.width = `${(100 * share) / top}%`;
      return row;
    }));
    $("effect-figures").replaceChildren(...one.effects.map(({ columns, share }, i) => {
      const figure = document.createElement("figure"), caption = document.createElement("figcaption");
      const title = document.createElement("b"), canvas = document.createElement("canvas");
      title.textContent = columns.join(" × ");
      caption.append(title, ` ${percent(share)}`);
      canvas.id = `effect-${i}`;
      canvas.setAttribute("role", "img");
      canvas.setAttribute("aria-label", `Effect of ${columns.join(" and ")}: ${percent(share)} of the variance`);
      figure.append(caption, canvas);
      return figure;
    }));
  }

  function draw() {
    const one = all.length === 1 ? all[0] : all[View.output];
    $("effects").hidden = !one;
    if (!one) return;
    if (one !== shown) figures(one);
    shown = one;
    const curves = one.effects.filter((v) => v.columns.length === 1), maps = one.effects.filter((v) => v.columns.length === 2);
    const ends = curves.flatMap(({ values, band }) => [...values].flatMap((v, i) => (band ? [v - band[i], v + band[i]] : [v])));
    const [low, high] = Draw.range([0, ...ends]), range = [low - 0.16 * (high - low), high];
    const colors = Draw.scale(maps.flatMap((v) => [...v.values]), "diverging");
    one.effects.forEach((v, i) => {
      const canvas = $(`effect-${i}`);
      if (!Draw.stale(canvas)) return;
      if (v.columns.length === 1) curve(canvas, v, range); else map(canvas, v, colors);
    });
  }

  function curve(canvas, { columns, axes: [{ ends, names }], at, values, band, rows }, y) {
    const p = Draw.panel(canvas, { x: ends, y, xLabel: columns[0], yLabel: "effect", xNames: names });
    const { ctx, box } = p, accent = Draw.css("--accent"), width = (box.right - box.left) / rows.length;
    ctx.fillStyle = Draw.css("--line");
    rows.forEach((v, i) => ctx.fillRect(box.left + i * width + (names ? 0.25 * width : 0), box.bottom, width * (names ? 0.5 : 1) + (names ? 0 : 0.5), -0.13 * (box.bottom - box.top) * v));
    Draw.line(p, ends, [0, 0], Draw.css("--axis"), 1, [4, 4]);
    const line = Array.from(values), up = line.map((v, i) => v + (band ? band[i] : 0)), down = line.map((v, i) => v - (band ? band[i] : 0));
    if (names) {
      at.forEach((x, i) => Draw.line(p, [x, x], [down[i], up[i]], accent, 2));
      Draw.dots(p, at, line, accent, 4, 1);
    } else {
      ctx.fillStyle = accent;
      ctx.globalAlpha = 0.22;
      ctx.beginPath();
      at.forEach((x, i) => ctx.lineTo(p.X(x), p.Y(up[i])));
      for (let i = at.length - 1; i >= 0; i--) ctx.lineTo(p.X(at[i]), p.Y(down[i]));
      ctx.fill();
      ctx.globalAlpha = 1;
      Draw.line(p, at, line, accent, 2);
    }
    p.frame();
  }

  function map(canvas, { columns, axes: [a, b], shape: [nx, ny], values }, colors) {
    const p = Draw.panel(canvas, { x: a.ends, y: b.ends, xLabel: columns[0], yLabel: columns[1], bar: colors, xNames: a.names, yNames: b.names });
    Draw.field(p, values, nx, ny, colors);
    p.frame();
  }

  return { draw };
})();
