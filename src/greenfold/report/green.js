"use strict";
// The mathematics of the page:  u(ξ) = Σ_r w_r (L⁻¹φ_r)(ξ) + null space, for a gate and a scale of L.
//
//   L⁻ˢ φ_r ≈ Σ_k γ_k Π_j [e^{−a_k L_j} φ_rj](ξ_j)      products of one-dimensional integrals
//
// A member of the operator is a kernel in one of two forms, both sums over axes under one function:
//   separable   Σ_k m_k exp(base_kr + Σ_j axis_k(r, j, ξ_j))
//   radial      m f(Σ_j axis(r, j, ξ_j)), f(s) = (1 + s/2β)^{−β} or e^{−√s}; s itself for lines
// A gate g_j multiplies everything of axis j inside: 1 leaves it, 0 takes the axis out.

const Green = (() => {
  const LOG_2PI = Math.log(2 * Math.PI);

  // Axes that take part; with all closed, where only constants remain, all.
  function openAxes(gate) {
    const open = gate.map((g) => g > 0);
    return open.some(Boolean) ? open : gate.map(() => true);
  }

  // Σ γ e^{−ax} ≈ x^{−power} on [low, high]: the best sum of the next range 2^{i/2} in the table.
  function sum(part, low, high) {
    const { first, rows } = part.sums;
    const i = Math.max(1, Math.ceil(2 * Math.log2(high / low) - 1e-9));
    if (i - first >= rows.length) throw new RangeError("no exponential sum for so wide a range");
    const row = rows[Math.max(0, i - first)], K = row.length / 2;
    return {
      a: row.slice(0, K).map((a) => a / low),
      logGamma: row.slice(K).map((g) => Math.log(g) - part.power * Math.log(low)),
    };
  }

  // k² of atom r on axis j above which it has no content.
  function band(atoms, r, j, nOpen) {
    const s = atoms.sigma[r * atoms.d + j];
    return (atoms.point ? 1 : atoms.reaches[nOpen]) / (s * s);
  }

  function highest(atoms, D, open) {
    const n = open.filter(Boolean).length;
    let most = 0;
    for (let r = 0; r < atoms.n; r++)
      for (let j = 0; j < atoms.d; j++)
        if (open[j]) most = Math.max(most, band(atoms, r, j, n) * D[j]);
    return most;
  }

  // Squared diameter of the region of interest, enlarged to hold all atoms.
  function extent2(part, atoms, open) {
    let total = 0;
    for (let j = 0; j < atoms.d; j++) {
      if (!open[j]) continue;
      let low = Infinity, high = -Infinity;
      for (let r = 0; r < atoms.n; r++) {
        low = Math.min(low, atoms.mu[r * atoms.d + j]);
        high = Math.max(high, atoms.mu[r * atoms.d + j]);
      }
      total += (high - low) ** 2;
    }
    return Math.max(part.extent ** 2, total);
  }

  // Gaussian kernels of one axis each: exp(c_kj − ½ P_kj x²) N(z; S_kj x, V_kj), with log γ_k.
  function mixture(part, atoms, gate, factor) {
    const { d } = atoms, open = openAxes(gate), least = (v) => Math.min(...v.filter((_, j) => open[j]));
    const value = part.value.map((v) => v * factor);
    let D = part.diffusivity, times;
    const plain = (a, V) => ({ S: 1, V, P: 0, c: 0 });
    if (part.kind === "heat") times = { a: [value[0]], logGamma: [0] };
    else if (part.kind === "fractional") {
      D = value;
      const low = least(D) / (25 * extent2(part, atoms, open));
      times = sum(part, low, low + highest(atoms, D, open));
    } else if (part.kind === "screened" || part.kind === "matern") {
      const low = value[0] ** 2;
      times = sum(part, low, low + highest(atoms, D, open));
      const norm = part.kind === "matern" ? part.log_norm + 2 * part.nu * Math.log(value[0]) : 0;
      times.logGamma = times.logGamma.map((g, k) => g - times.a[k] * low + norm);
    } else if (part.kind === "cauchy") {
      const farthest = extent2(part, atoms, open) / least(D) / value[0] ** 2;
      times = sum(part, 1, 1 + farthest / (2 * part.power));
      times.logGamma = times.logGamma.map((g, k) => g - times.a[k]);
    } else times = oscillatorTimes(part, atoms, gate, open, value, D);
    const axes = times.a.map((a) => Array.from({ length: d }, (_, j) => {
      if (part.kind === "cauchy") {
        const V = (part.power * value[0] ** 2 * D[j]) / a;
        return { S: 1, V, P: 0, c: 0.5 * (LOG_2PI + Math.log(V)) };
      }
      if (part.kind === "oscillator") {
        const t = 2 * value[j] * D[j] * a, tanh = Math.tanh(t);
        const logCosh = t - Math.LN2 + Math.log1p(Math.exp(-2 * t));
        return { S: Math.exp(-logCosh), V: tanh / value[j], P: value[j] * tanh, c: -logCosh / 2 };
      }
      const axis = plain(a, 2 * a * D[j]);
      if (part.kind === "matern") axis.c = 0.5 * Math.log(4 * Math.PI * D[j]);
      return axis;
    }));
    return { logGamma: times.logGamma, axes };
  }

  // Mehler: the spectrum starts at Σ D ω; the atoms reach as far as their place and width in phase space.
  function oscillatorTimes(part, atoms, gate, open, omega, D) {
    const n = open.filter(Boolean).length, weight = gate.some((g) => g > 0) ? gate : gate.map(() => 1);
    const low = omega.reduce((total, w, j) => total + D[j] * w * weight[j], 0);
    let wave = 0, place = 0;
    for (let r = 0; r < atoms.n; r++) {
      let center = 0, spread = 0;
      for (let j = 0; j < atoms.d; j++) {
        if (!open[j]) continue;
        const b = band(atoms, r, j, n), i = r * atoms.d + j, stiff = Math.sqrt(D[j]) * omega[j];
        wave = Math.max(wave, D[j] * b);
        center += (stiff * atoms.mu[i]) ** 2;
        spread = Math.max(spread, stiff * Math.sqrt(b) * atoms.sigma[i] ** 2);
      }
      place = Math.max(place, (Math.sqrt(center) + spread) ** 2);
    }
    return sum(part, low, low + wave + place);
  }

  // A member for these atoms: K terms, base (K·n), axis(k, r, j, x), how to finish.
  // `settled` is a mixture to use in place of the atoms' own: a probe is spread as the model's sources.
  function member(part, atoms, gate, factor, settled) {
    const { n, d, mu } = atoms, axes = [...Array(d).keys()].filter((j) => gate[j] > 0);
    const scale = part.value.map((v) => v * factor);
    if (part.radial) {
      const inverse = gate.map((g, j) => g / (part.diffusivity[j] * scale[0] ** 2));
      const beta = part.power;
      return {
        K: 1, axes, separable: false, base: new Float64Array(n), settled: null,
        axis: (k, r, j, x) => inverse[j] * (x - mu[r * d + j]) ** 2,
        finish: beta === 1 ? (s) => 1 / (1 + s / 2) : (s) => (1 + s / (2 * beta)) ** -beta,
      };
    }
    if (part.kind === "product") {
      const height = axes.reduce((total, j) => total - gate[j] * Math.log(2 * scale[j]), 0);
      const rate = gate.map((g, j) => g * scale[j]);
      return {
        K: 1, axes, separable: true, base: new Float64Array(n).fill(height), settled: null,
        axis: (k, r, j, x) => -rate[j] * Math.abs(x - mu[r * d + j]),
        finish: Math.exp,
      };
    }
    if (part.kind === "exponential") {
      const weight = gate.map((g, j) => g * scale[j] ** 2);
      return {
        K: 1, axes, separable: false, base: new Float64Array(n), settled: null,
        axis: (k, r, j, x) => weight[j] * (x - mu[r * d + j]) ** 2,
        finish: (s) => Math.exp(-Math.sqrt(s)),
      };
    }
    if (part.kind === "affine") {
      const square = gate.map((g, j) => g * scale[j] ** 2);
      return {
        K: 1, axes, separable: false, base: new Float64Array(n).fill(part.level ** 2), settled: null,
        axis: (k, r, j, x) => square[j] * x * mu[r * d + j],
        finish: (s) => s,
      };
    }
    if (part.kind === "anova") {
      const share = gate.map((g, j) => g * part.share[j]);
      const green = part.order === 1 ? (t) => Math.exp(-t) : (t) => (1 + t) * Math.exp(-t);
      return {
        K: 1, axes, separable: true, base: new Float64Array(n), settled: null,
        axis: (k, r, j, x) => Math.log1p(share[j] * (green(scale[j] * Math.abs(x - mu[r * d + j])) - 1)),
        finish: Math.exp,
      };
    }
    const mix = settled || mixture(part, atoms, gate, factor), K = mix.logGamma.length;
    const base = new Float64Array(K * n), half = new Float64Array(K * n * d);
    for (let k = 0; k < K; k++)
      for (let r = 0; r < n; r++) {
        let total = mix.logGamma[k];
        for (const j of axes) {
          const { V, c } = mix.axes[k][j], sigma = atoms.sigma[r * d + j];
          const s2 = atoms.point ? V : sigma * sigma + V;
          const height = atoms.point ? -0.5 * (LOG_2PI + Math.log(s2)) : Math.log(sigma) - 0.5 * Math.log(s2);
          total += gate[j] * (c + height);
          half[(k * n + r) * d + j] = (0.5 * gate[j]) / s2;
        }
        base[k * n + r] = total;
      }
    const S = mix.axes.map((row) => row.map((a) => a.S));
    const P = mix.axes.map((row) => row.map((a, j) => 0.5 * gate[j] * a.P));
    return {
      K, axes, separable: true, base, settled: mix, finish: Math.exp,
      axis: (k, r, j, x) => {
        const delta = S[k][j] * x - mu[r * d + j];
        return -P[k][j] * x * x - half[(k * n + r) * d + j] * delta * delta;
      },
    };
  }

  // All of an operator for these atoms. Columns are atoms, or (term, atom) pairs when terms are free.
  function kernel(model, atoms, gate, factor = 1, like = null) {
    const members = model.members.map((part, m) => {
      const own = gate.map((g, j) => g * part.axes[j]);  // what is open to this member
      const made = member(part, atoms, own, factor, like && like.members[m].settled);
      const times = (k) => (model.factors ? model.factors[k] : 1);
      made.weight = Array.from({ length: made.K }, (_, k) => part.weight * times(k));
      return made;
    });
    const free = model.gamma === "free";
    return { members, free, n: atoms.n, d: atoms.d, p: free ? members[0].K * atoms.n : atoms.n };
  }

  // Φ (n, p) at points (n, d), row by row; `tick` hears what share is done.
  function columns(kernel, points, tick = () => {}) {
    const { n, d, p, free } = kernel, count = points.length / d;
    const Phi = new Float64Array(count * p);
    kernel.members.forEach(({ K, axes, base, axis, finish, weight }, m) => {
      for (let i = 0; i < count; i++) {
        tick((m + i / count) / kernel.members.length);
        for (let k = 0; k < K; k++)
          for (let r = 0; r < n; r++) {
            let s = base[k * n + r];
            for (const j of axes) s += axis(k, r, j, points[i * d + j]);
            Phi[i * p + (free ? k * n + r : r)] += weight[k] * finish(s);
          }
      }
    });
    return Phi;
  }

  // Σ_p Φ_p w_p on a plane: axis a along xs, axis b along ys (b < 0: there is none), other axes at `at`.
  // Separable kernels take exponentials along the two axes only, not at every point of the plane.
  function plane(kernel, w, a, b, xs, ys, at) {
    const { n, free } = kernel, nx = xs.length, ny = ys.length, out = new Float64Array(nx * ny);
    const ex = new Float64Array(nx), ey = new Float64Array(ny);
    for (const { K, axes, base, axis, finish, weight, separable } of kernel.members)
      for (let k = 0; k < K; k++)
        for (let r = 0; r < n; r++) {
          const strength = weight[k] * w[free ? k * n + r : r];
          if (strength === 0) continue;
          let s = base[k * n + r];
          for (const j of axes) if (j !== a && j !== b) s += axis(k, r, j, at[j]);
          ex.fill(0);
          ey.fill(0);
          if (axes.includes(a)) for (let i = 0; i < nx; i++) ex[i] = axis(k, r, a, xs[i]);
          if (axes.includes(b)) for (let i = 0; i < ny; i++) ey[i] = axis(k, r, b, ys[i]);
          if (separable) for (let i = 0; i < nx; i++) ex[i] = Math.exp(ex[i]);
          for (let row = 0; row < ny; row++) {
            const start = row * nx;
            if (separable) {
              const t = strength * Math.exp(s + ey[row]);
              for (let i = 0; i < nx; i++) out[start + i] += t * ex[i];
            } else {
              const t = s + ey[row];
              for (let i = 0; i < nx; i++) out[start + i] += strength * finish(t + ex[i]);
            }
          }
        }
    return out;
  }

  // Columns (n, q) beside the response at points (n, d): 1, ξ_j or Σ_j s_j ξ_j², on open axes; the scale
  // of an operator that has squares is its diffusivity, which they are divided by.
  function beside(told, gate, factor, points) {
    const d = gate.length, q = told.length, out = new Float64Array((points.length / d) * q);
    const open = (i, j) => gate[j] * points[i * d + j];
    const value = ({ one, axis, square }, i) =>
      one ? 1 : square ? square.reduce((s, v, j) => s + v * open(i, j) ** 2, 0) / factor : open(i, axis);
    for (let k = 0; k < out.length; k++) out[k] = value(told[k % q], Math.floor(k / q));
    return out;
  }

  // f̂ = Σ_r w_r φ_r on a plane. Points have no values: they are drawn as bumps of width `blur` (2,).
  function source(atoms, w, gate, a, b, xs, ys, at, blur) {
    const { d, n, mu, sigma } = atoms, out = new Float64Array(xs.length * ys.length);
    const bump = (r, j, x, width) => Math.exp(-0.5 * gate[j] * ((x - mu[r * d + j]) / width) ** 2);
    for (let r = 0; r < n; r++) {
      let strength = w[r];
      if (!atoms.point)
        for (let j = 0; j < d; j++) if (j !== a && j !== b) strength *= bump(r, j, at[j], sigma[r * d + j]);
      if (strength === 0) continue;
      const width = (j, i) => (atoms.point ? blur[i] : sigma[r * d + j]);
      const ex = Array.from(xs, (x) => bump(r, a, x, width(a, 0)));
      const ey = Array.from(ys, (y) => (b < 0 ? 1 : bump(r, b, y, width(b, 1))));
      for (let row = 0; row < ys.length; row++)
        for (let i = 0; i < xs.length; i++) out[row * xs.length + i] += strength * ey[row] * ex[i];
    }
    return out;
  }

  return { kernel, columns, plane, beside, source };
})();
