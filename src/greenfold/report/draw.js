"use strict";
// Pictures on a canvas: frames with ticks, dots, fields, lines. Colors follow the theme.

const Draw = (() => {
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const isDark = () => document.documentElement.dataset.theme === "dark";

  const STOPS = {
    diverging: {
      light: [[24, 78, 140], [72, 138, 196], [176, 207, 228], [247, 247, 244], [243, 199, 168], [214, 112, 77], [150, 28, 44]],
      dark: [[140, 200, 255], [62, 134, 206], [32, 68, 108], [24, 30, 29], [112, 52, 38], [214, 104, 66], [255, 190, 140]],
    },
    sequential: {
      light: [[48, 24, 92], [52, 74, 142], [30, 124, 138], [62, 168, 118], [160, 206, 84], [246, 224, 70]],
      dark: [[66, 42, 120], [64, 92, 168], [38, 142, 156], [76, 184, 134], [172, 216, 100], [250, 232, 96]],
    },
  };
  const CLASSES = ["#0c7a5e", "#d1622b", "#3b6fc4", "#b0418f", "#c79a16", "#5b4fb3", "#4aa3b5", "#8c5a3c", "#7c8b1f", "#d2486a"];

  // t in [0, 1] to [r, g, b]
  function shade(map, t) {
    const stops = STOPS[map][isDark() ? "dark" : "light"];
    const x = Math.min(Math.max(t, 0), 1) * (stops.length - 1), i = Math.min(Math.floor(x), stops.length - 2);
    return stops[i].map((v, k) => Math.round(v + (x - i) * (stops[i + 1][k] - v)));
  }
  const paint = (map, t) => `rgb(${shade(map, t).join(",")})`;

  // A map of colors with its range; `centered` ranges are symmetric around 0.
  function scale(values, map) {
    let low = Infinity, high = -Infinity;
    for (const v of values) if (Number.isFinite(v)) { low = Math.min(low, v); high = Math.max(high, v); }
    if (!(high >= low)) [low, high] = [0, 1];
    if (map === "diverging") { high = Math.max(Math.abs(low), Math.abs(high)) || 1; low = -high; }
    if (high === low) high = low + 1;
    return { map, low, high, at: (v) => (v - low) / (high - low), color: (v) => paint(map, (v - low) / (high - low)) };
  }

  function ticks(low, high, most) {
    if (!(high - low > 1e-12 * Math.max(Math.abs(low), Math.abs(high)))) return [low];  // all but constant
    const raw = (high - low) / most, ten = 10 ** Math.floor(Math.log10(raw));
    const step = ten * ([1, 2, 5].find((m) => m * ten >= raw) || 10), out = [];
    for (let t = Math.ceil(low / step); t * step <= high + 1e-9 * step; t++) out.push(t * step);
    return out;
  }
  // 1, 2 and 5 times powers of ten, for a range of logarithms.
  function logTicks(low, high) {
    const out = [];
    for (let e = Math.floor(low); e <= high; e++)
      for (const m of high - low > 2.5 ? [1] : [1, 2, 5]) {
        const t = e + Math.log10(m);
        if (t >= low - 1e-9 && t <= high + 1e-9) out.push(t);
      }
    return out;
  }
  // A number for people, with three digits; ticks have as many as they need.
  const text = (v, digits = 3) => {
    if (v === 0 || Math.abs(v) < 1e-12) return "0";
    const a = Math.abs(v);
    if (a >= 1e5 || a < 1e-3) return v.toExponential(Math.min(2, digits - 1)).replace("e+", "e");
    return a >= 100 && digits === 3 ? String(Math.round(v)) : String(+v.toPrecision(digits));
  };
  const tick = (v) => (Math.abs(v) >= 1e5 || Math.abs(v) < 1e-3 ? text(+v.toPrecision(2), 2) : text(v, 6));

  // A canvas ready to draw on, with a frame in the data's coordinates. Names stand at 0, 1, 2, … in place of numbers.
  function panel(canvas, { x, y, xLabel = "", yLabel = "", bar = null, logY = false, logX = false, xNames = null, yNames = null }) {
    const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    const ctx = canvas.getContext("2d");
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    ctx.clearRect(0, 0, width, height);
    const box = { left: yLabel === null ? 8 : yNames ? 88 : 50, right: width - (bar ? 58 : 10), top: 8, bottom: height - 38 };
    const warpX = logX ? Math.log10 : (v) => v, warpY = logY ? Math.log10 : (v) => v;
    const [x0, x1] = x.map(warpX), [y0, y1] = y.map(warpY);
    const X = (v) => box.left + ((warpX(v) - x0) / (x1 - x0)) * (box.right - box.left);
    const Y = (v) => box.bottom - ((warpY(v) - y0) / (y1 - y0)) * (box.bottom - box.top);
    const p = { ctx, box, X, Y, x, y,
      fromX: (px) => x0 + ((px - box.left) / (box.right - box.left)) * (x1 - x0),
      fromY: (py) => y0 + ((box.bottom - py) / (box.bottom - box.top)) * (y1 - y0),
      frame: () => frame(p, { x0, x1, y0, y1, xLabel, yLabel, logX, logY, bar, xNames, yNames }) };
    return p;
  }

  // Whether a canvas has to be drawn again: its size, the theme, or what `key` lists has changed.
  const drawn = new Map();
  function stale(canvas, ...key) {
    const now = [canvas.clientWidth, canvas.clientHeight, window.devicePixelRatio, isDark(), ...key].join();
    if (drawn.get(canvas) === now) return false;
    drawn.set(canvas, now);
    return true;
  }

  // Places of names that have room, and what is written there.
  function named(names, length, room) {
    const step = Math.ceil((names.length * 14) / length), letters = Math.max(2, Math.floor(room(step) / 6));
    return names.map((s, i) => [i, s.length > letters ? `${s.slice(0, letters - 1)}…` : s]).filter(([i]) => i % step === 0);
  }

  function frame(p, { x0, x1, y0, y1, xLabel, yLabel, logX, logY, bar, xNames, yNames }) {
    const { ctx, box } = p, w = box.right - box.left, h = box.bottom - box.top;
    ctx.strokeStyle = css("--line");
    ctx.lineWidth = 1;
    ctx.strokeRect(box.left + 0.5, box.top + 0.5, w - 1, h - 1);
    ctx.fillStyle = css("--muted");
    ctx.font = "11px system-ui, sans-serif";
    ctx.textAlign = "center";
    ctx.textBaseline = "top";
    const shown = (values, log) => values.map((t) => [t, tick(log ? 10 ** t : t)]);
    const across = xNames ? named(xNames, w, (step) => (step * w) / xNames.length) : shown(logX ? logTicks(x0, x1) : ticks(x0, x1, Math.max(5, w / 60)), logX);
    for (const [t, label] of across) {
      const px = box.left + ((t - x0) / (x1 - x0)) * w;
      ctx.fillRect(px, box.bottom, 1, 4);
      ctx.fillText(label, px, box.bottom + 6);
    }
    ctx.textBaseline = "middle";
    ctx.textAlign = "right";
    const upward = yNames ? named(yNames, h, () => 66) : shown(logY ? logTicks(y0, y1) : ticks(y0, y1, Math.max(5, h / 50)), logY);
    if (yLabel !== null) for (const [t, label] of upward) {
      const py = box.bottom - ((t - y0) / (y1 - y0)) * h;
      ctx.fillRect(box.left - 4, py, 4, 1);
      ctx.fillText(label, box.left - 6, py);
    }
    ctx.fillStyle = css("--ink");
    ctx.font = "12px system-ui, sans-serif";
    ctx.textAlign = "center";
    ctx.textBaseline = "bottom";
    ctx.fillText(xLabel, box.left + w / 2, box.bottom + 36);
    if (yLabel) {
      ctx.save();
      ctx.translate(12, box.top + h / 2);
      ctx.rotate(-Math.PI / 2);
      ctx.fillText(yLabel, 0, 4);
      ctx.restore();
    }
    if (bar) colorBar(p, bar);
  }

  function colorBar({ ctx, box }, bar) {
    const left = box.right + 10, h = box.bottom - box.top;
    const colors = ctx.createLinearGradient(0, box.bottom, 0, box.top), last = STOPS[bar.map].light.length - 1;
    for (let i = 0; i <= last; i++) colors.addColorStop(i / last, paint(bar.map, i / last));
    ctx.fillStyle = colors;
    ctx.fillRect(left, box.top, 9, h);
    ctx.fillStyle = css("--muted");
    ctx.font = "10.5px system-ui, sans-serif";
    ctx.textAlign = "left";
    ctx.textBaseline = "middle";
    for (const t of ticks(bar.low, bar.high, Math.max(4, h / 45)))
      ctx.fillText(tick(t), left + 12, box.bottom - bar.at(t) * h);
  }

  // A field (ny, nx), first row at the bottom, over the whole frame.
  function field(p, values, nx, ny, colors) {
    const image = new ImageData(nx, ny), pixels = new Uint32Array(image.data.buffer), { low, high } = colors;
    const shades = Uint32Array.from({ length: 257 }, (_, i) => {
      const [r, g, b] = shade(colors.map, i / 256);
      return (255 << 24) | (b << 16) | (g << 8) | r;
    });
    for (let row = 0; row < ny; row++)
      for (let i = 0; i < nx; i++) {
        const t = Math.round((256 * (values[row * nx + i] - low)) / (high - low)) || 0;
        pixels[(ny - 1 - row) * nx + i] = shades[t < 0 ? 0 : t > 256 ? 256 : t];
      }
    const hidden = new OffscreenCanvas(nx, ny);
    hidden.getContext("2d").putImageData(image, 0, 0);
    p.ctx.imageSmoothingEnabled = true;
    p.ctx.imageSmoothingQuality = "high";
    p.ctx.drawImage(hidden, p.box.left, p.box.top, p.box.right - p.box.left, p.box.bottom - p.box.top);
  }

  // Lines of equal value of a field, cell by cell.
  function contours(p, values, nx, ny, levels) {
    const { ctx, box } = p, sx = (box.right - box.left) / (nx - 1), sy = (box.bottom - box.top) / (ny - 1);
    ctx.strokeStyle = isDark() ? "#ffffff30" : "#00000028";
    ctx.lineWidth = 1;
    ctx.beginPath();
    let cuts = 0; // of one level with the edges of one cell: a line starts at the first and ends at the second
    const cut = (x, y) => { ctx[cuts++ % 2 ? "lineTo" : "moveTo"](box.left + x * sx, box.bottom - y * sy); };
    for (let row = 0; row + 1 < ny; row++)
      for (let i = 0; i + 1 < nx; i++) {
        const at = row * nx + i, v = values[at], right = values[at + 1], across = values[at + nx + 1], up = values[at + nx];
        const low = Math.min(v, right, across, up), high = Math.max(v, right, across, up);
        for (const level of levels) {
          if (level <= low || level > high) continue; // as nearly everywhere
          cuts = 0;
          if (v < level !== right < level) cut(i + (level - v) / (right - v), row);
          if (right < level !== across < level) cut(i + 1, row + (level - right) / (across - right));
          if (across < level !== up < level) cut(i + (level - up) / (across - up), row + 1);
          if (up < level !== v < level) cut(i, row + (level - v) / (up - v));
        }
      }
    ctx.stroke();
  }

  function dots(p, xs, ys, color, size = 3.2, alpha = 0.9) {
    const { ctx } = p;
    ctx.save();
    ctx.beginPath();
    ctx.rect(p.box.left, p.box.top, p.box.right - p.box.left, p.box.bottom - p.box.top);
    ctx.clip();
    ctx.globalAlpha = alpha;
    ctx.lineWidth = 0.5;
    ctx.strokeStyle = isDark() ? "#0008" : "#fff9";
    for (let i = 0; i < xs.length; i++) {
      ctx.fillStyle = typeof color === "function" ? color(i) : color;
      ctx.beginPath();
      ctx.arc(p.X(xs[i]), p.Y(ys[i]), typeof size === "function" ? size(i) : size, 0, 2 * Math.PI);
      ctx.fill();
      ctx.stroke();
    }
    ctx.restore();
  }

  function ring(p, x, y, label = "") {
    const { ctx } = p, px = p.X(x), py = p.Y(y);
    for (const [width, color] of [[4, isDark() ? "#000a" : "#fffc"], [2, css("--ink")]]) {
      ctx.strokeStyle = color;
      ctx.lineWidth = width;
      ctx.beginPath();
      ctx.arc(px, py, 8, 0, 2 * Math.PI);
      ctx.moveTo(px - 3, py);
      ctx.lineTo(px + 3, py);
      ctx.moveTo(px, py - 3);
      ctx.lineTo(px, py + 3);
      ctx.stroke();
    }
    if (label) ctx.fillText(label, px + 12, py);
  }

  function line(p, xs, ys, color, width = 2, dash = []) {
    const { ctx } = p;
    ctx.strokeStyle = color;
    ctx.lineWidth = width;
    ctx.setLineDash(dash);
    ctx.beginPath();
    for (let i = 0; i < xs.length; i++) ctx[i ? "lineTo" : "moveTo"](p.X(xs[i]), p.Y(ys[i]));
    ctx.stroke();
    ctx.setLineDash([]);
  }

  const ofClass = (k) => CLASSES[k % CLASSES.length];
  const range = (values, margin = 0.05) => {
    const s = scale(values, "sequential"), m = margin * (s.high - s.low);
    return [s.low - m, s.high + m];
  };
  return { css, stale, panel, field, contours, dots, ring, line, scale, range, text, ticks, ofClass, isDark };
})();
