"use strict";
// Strengths from rows, as `greenfold.solve` finds them:
//
//   squares         min ‖Φ w + 1 b − Y‖² + α wᵀ G w        G the energy matrix of the anchors, or I
//   cross-entropy   min Σ ℓ(Φ w + 1 b, Y) + α/2 wᵀ G w     Newton's method
//
// Both in coordinates in which the penalty is wᵀw: Φ F⁻ᵀ with G = F Fᵀ. Matrices are Float64Arrays by rows.

const Solve = (() => {
  // Σ x_{i+k} y_{j+k}, in four sums that do not wait for each other
  function dot(x, y, n, i = 0, j = 0) {
    let a = 0, b = 0, c = 0, d = 0, k = 0;
    for (; k + 3 < n; k += 4) {
      a += x[i + k] * y[j + k];
      b += x[i + k + 1] * y[j + k + 1];
      c += x[i + k + 2] * y[j + k + 2];
      d += x[i + k + 3] * y[j + k + 3];
    }
    for (; k < n; k++) a += x[i + k] * y[j + k];
    return a + b + c + d;
  }

  const silent = () => {}; // or a function that hears what share is done

  // L (p, p) lower with L Lᵀ = A + jitter · mean diagonal, the least jitter that does, from `start` up.
  function cholesky(A, p, start = 0, tick = silent) {
    let unit = 0;
    for (let i = 0; i < p; i++) unit += A[i * p + i] / p;
    for (let jitter = start; jitter < 1; jitter = Math.max(10 * jitter, 1e-15)) {
      const L = new Float64Array(p * p);
      let good = true;
      for (let i = 0; i < p && good; i++) {
        tick((i / p) ** 3);
        for (let j = 0; j <= i; j++) {
          let s = A[i * p + j] - dot(L, L, j, i * p, j * p);
          if (i === j) {
            s += jitter * unit;
            good = s > 0;
            L[i * p + i] = Math.sqrt(s);
          } else L[i * p + j] = s / L[j * p + j];
        }
      }
      if (good) return L;
    }
    throw new Error("the matrix is not positive definite");
  }

  // L x = b, in place at b[o…]
  function forward(L, p, b, o = 0) {
    for (let i = 0; i < p; i++) b[o + i] = (b[o + i] - dot(L, b, i, i * p, o)) / L[i * p + i];
  }

  // Lᵀ x = b, in place
  function backward(L, p, b) {
    for (let i = p - 1; i >= 0; i--) {
      b[i] /= L[i * p + i];
      for (let j = 0; j < i; j++) b[j] -= L[i * p + j] * b[i];
    }
  }

  // ΦᵀWΦ (p, p) of Φ (n, p)
  function gram(Phi, n, p, weight, tick = silent) {
    const T = new Float64Array(p * n), A = new Float64Array(p * p);
    for (let i = 0; i < n; i++) {
      const root = Math.sqrt(weight[i]);
      for (let a = 0; a < p; a++) T[a * n + i] = root * Phi[i * p + a];
    }
    for (let a = 0; a < p; a++) {
      tick((a / p) ** 2);
      for (let b = 0; b <= a; b++) A[a * p + b] = A[b * p + a] = dot(T, T, n, a * n, b * n);
    }
    return A;
  }

  // Φ v (n, c) and Φᵀ v (p, c)
  function times(Phi, n, p, v, c) {
    const out = new Float64Array(n * c);
    for (let i = 0; i < n; i++)
      for (let a = 0; a < p; a++) {
        const f = Phi[i * p + a];
        for (let k = 0; k < c; k++) out[i * c + k] += f * v[a * c + k];
      }
    return out;
  }
  function transposed(Phi, n, p, v, c) {
    const out = new Float64Array(p * c);
    for (let i = 0; i < n; i++)
      for (let a = 0; a < p; a++) {
        const f = Phi[i * p + a];
        for (let k = 0; k < c; k++) out[a * c + k] += f * v[i * c + k];
      }
    return out;
  }

  // A x = b by conjugate gradients, preconditioned; all vectors (m,). x and the steps it took.
  function conjugate(product, precondition, b, tol, most) {
    const x = new Float64Array(b.length), r = Float64Array.from(b);
    let z = precondition(r), d = Float64Array.from(z), rz = dot(r, z, r.length);
    const stop = tol * tol * rz;
    let step = 0;
    for (; step < most && rz > stop && rz > 0; step++) {
      const Ad = product(d), t = rz / dot(d, Ad, d.length);
      for (let i = 0; i < x.length; i++) {
        x[i] += t * d[i];
        r[i] -= t * Ad[i];
      }
      z = precondition(r);
      const next = dot(r, z, r.length), beta = next / rz;
      rz = next;
      for (let i = 0; i < d.length; i++) d[i] = z[i] + beta * d[i];
    }
    return { x, step };
  }

  // L Lᵀ x = b column by column, b (p, c), with a factor L for each.
  function solveColumns(factors, p, b, c) {
    const out = new Float64Array(p * c), column = new Float64Array(p);
    for (let k = 0; k < c; k++) {
      for (let i = 0; i < p; i++) column[i] = b[i * c + k];
      forward(factors[k], p, column);
      backward(factors[k], p, column);
      for (let i = 0; i < p; i++) out[i * c + k] = column[i];
    }
    return out;
  }

  // Orthonormal Q (n, q) and R (q, q) with N = Q R on weighted rows; a column that depends on those before
  // it is left out, as zeros.
  function orthonormal(N, n, q, weight) {
    const Q = new Float64Array(n * q), R = new Float64Array(q * q);
    const inner = (a, b) => {
      let s = 0;
      for (let i = 0; i < n; i++) s += weight[i] * Q[i * q + a] * Q[i * q + b];
      return s;
    };
    for (let k = 0; k < q; k++) {
      for (let i = 0; i < n; i++) Q[i * q + k] = N[i * q + k];
      const whole = Math.sqrt(inner(k, k));
      for (let again = 0; again < 2; again++)
        for (let j = 0; j < k; j++) {
          const s = inner(j, k);
          R[j * q + k] += s;
          for (let i = 0; i < n; i++) Q[i * q + k] -= s * Q[i * q + j];
        }
      const left = Math.sqrt(inner(k, k)), kept = left > 1e-12 * whole;
      R[k * q + k] = kept ? left : 0;
      for (let i = 0; i < n; i++) Q[i * q + k] = kept ? Q[i * q + k] / left : 0;
    }
    return { Q, R };
  }

  function ridge(Phi, n, p, N, q, Y, c, weight, alpha, tick) {
    const { Q, R } = orthonormal(N, n, q, weight);
    const within = (M, m) => transposed(Q, n, q, M.map((v, i) => v * weight[Math.floor(i / m)]), m); // (q, m)
    const beyond = (M, m) => {
      const part = times(Q, n, q, within(M, m), m);
      return M.map((v, i) => v - part[i]);
    };
    const P = beyond(Phi, p), Z = beyond(Y, c);
    const A = gram(P, n, p, weight, (share) => tick(0.7 * share));
    for (let i = 0; i < p; i++) A[i * p + i] += alpha;
    const factors = Array(c).fill(cholesky(A, p, 0, (share) => tick(0.7 + 0.3 * share)));
    const weigh = (v) => v.map((x, i) => x * weight[Math.floor(i / c)]);
    const product = (v) => {
      const out = transposed(P, n, p, weigh(times(P, n, p, v, c)), c);
      return out.map((x, i) => x + alpha * v[i]);
    };
    const b = transposed(P, n, p, weigh(Z), c);
    // one factor, then conjugate gradients for what rounding and jitter left
    const { x: w } = conjugate(product, (v) => solveColumns(factors, p, v, c), b, 1e-12, 30);
    const fit = times(Phi, n, p, w, c), trend = within(Y.map((v, i) => v - fit[i]), c); // (q, c)
    for (let a = q - 1; a >= 0; a--)
      for (let k = 0; k < c; k++) {
        for (let b = a + 1; b < q; b++) trend[a * c + k] -= R[a * q + b] * trend[b * c + k];
        trend[a * c + k] = R[a * q + a] > 0 ? trend[a * c + k] / R[a * q + a] : 0;
      }
    return { w, trend };
  }

  function softmax(u, n, c) {
    const P = new Float64Array(n * c), logZ = new Float64Array(n);
    for (let i = 0; i < n; i++) {
      let top = -Infinity, z = 0;
      for (let k = 0; k < c; k++) top = Math.max(top, u[i * c + k]);
      for (let k = 0; k < c; k++) z += P[i * c + k] = Math.exp(u[i * c + k] - top);
      for (let k = 0; k < c; k++) P[i * c + k] /= z;
      logZ[i] = top + Math.log(z);
    }
    return { P, logZ };
  }

  const SAFEGUARD = 1e-8; // on columns beside atoms, as in Python: separable classes cannot run to infinity

  function logistic(Phi0, n, p0, N, q, Y, c, weight, alpha, tick) {
    const p = p0 + q, Phi = new Float64Array(n * p), rho = new Float64Array(p).fill(alpha, 0, p0);
    for (let i = 0; i < n; i++) {
      Phi.set(Phi0.subarray(i * p0, (i + 1) * p0), i * p);
      Phi.set(N.subarray(i * q, (i + 1) * q), i * p + p0);
      for (let a = 0; a < q; a++) rho[p0 + a] += SAFEGUARD * weight[i] * N[i * q + a] ** 2;
    }
    for (let a = p0; a < p; a++) rho[a] = rho[a] || 1; // a column of zeros
    // Newton's equations are preconditioned by the Hessians of single classes
    const classes = (P, tick) => Array.from({ length: c }, (_, k) => {
      tick(k / c);
      const A = gram(Phi, n, p, weight.map((w, i) => w * P[i * c + k] * (1 - P[i * c + k])));
      for (let i = 0; i < p; i++) A[i * p + i] += rho[i];
      return cholesky(A, p);
    });
    const center = (v) => {
      const out = Float64Array.from(v);
      for (let a = 0; a < v.length; a += c) {
        let m = 0;
        for (let k = 0; k < c; k++) m += v[a + k] / c;
        for (let k = 0; k < c; k++) out[a + k] -= m;
      }
      return out;
    };
    const value = (w) => {
      const u = times(Phi, n, p, w, c), { logZ } = softmax(u, n, c);
      let J = 0;
      for (let i = 0; i < n; i++) J += weight[i] * (logZ[i] - dot(Y, u, c, i * c, i * c));
      for (let a = 0; a < p; a++) J += 0.5 * rho[a] * dot(w, w, c, a * c, a * c);
      return J;
    };
    const MOST = 60, USUAL = 10; // steps
    let w = new Float64Array(p * c), J = value(w), first = 0, factors = null;
    for (let step = 0; step < MOST; step++) {
      const { P } = softmax(times(Phi, n, p, w, c), n, c);
      const error = P.map((v, i) => weight[Math.floor(i / c)] * (v - Y[i]));
      const g = center(transposed(Phi, n, p, error, c).map((v, i) => v + rho[Math.floor(i / c)] * w[i]));
      const size = Math.sqrt(dot(g, g, g.length));
      first = first || size;
      if (size < 1e-8 * first) break;
      const product = (v) => {
        const u = times(Phi, n, p, v, c);
        for (let i = 0; i < n; i++) {
          const m = dot(P, u, c, i * c, i * c);
          for (let k = 0; k < c; k++) u[i * c + k] = weight[i] * P[i * c + k] * (u[i * c + k] - m);
        }
        return center(transposed(Phi, n, p, u, c).map((x, i) => x + rho[Math.floor(i / c)] * v[i]));
      };
      factors = factors || classes(P, (share) => tick(Math.min((step + share) / USUAL, 0.95)));
      const tol = Math.min(0.01, Math.sqrt(size / first));
      const { x: move, step: taken } = conjugate(product, (v) => center(solveColumns(factors, p, v, c)), g, tol, 400);
      if (taken > 15) factors = null; // made anew where they no longer fit
      const slope = dot(g, move, g.length);
      let t = 1, next, there;
      do {
        there = w.map((v, i) => v - t * move[i]);
        next = value(there);
        t /= 2;
      } while (next > J - 2e-4 * t * slope + 1e-13 * Math.abs(J) && t > 1e-12);
      w = there;
      J = next;
    }
    return { w: w.subarray(0, p0 * c), trend: w.slice(p0 * c) };
  }

  // Strengths (p, c) in source units, and of the columns beside them `trend` (q, c), from Φ (n, p), N (n, q),
  // targets (n, c) and weights (n,).
  // `G` (p, p) is the energy matrix, `rho` (p,) the importance of each column; null where not in use.
  // `tick` hears which part it is at, energy or solve, and what share of it is done.
  function strengths({ loss, Phi, n, p, N, Y, c, weight, alpha, G, rho }, tick = silent) {
    let used = Phi;
    if (rho) used = Phi.map((v, i) => v * rho[i % p]);
    let F = null;
    if (G) {
      const H = G.map((v, i) => (v + G[(i % p) * p + Math.floor(i / p)]) / 2);
      F = cholesky(H, p, 1e-12);
      used = Float64Array.from(Phi);
      for (let i = 0; i < n; i++) {
        tick("energy", 0.5 + (0.5 * i) / n);
        forward(F, p, used, i * p);
      }
    }
    const fit = loss === "cross_entropy" ? logistic : ridge;
    const { w, trend } = fit(used, n, p, N, N.length / n, Y, c, weight, alpha, (share) => tick("solve", share));
    const out = Float64Array.from(w), column = new Float64Array(p);
    for (let k = 0; k < c && F; k++) {
      for (let a = 0; a < p; a++) column[a] = w[a * c + k];
      backward(F, p, column);
      for (let a = 0; a < p; a++) out[a * c + k] = column[a];
    }
    if (rho) out.forEach((v, i) => (out[i] = v * rho[Math.floor(i / c)]));
    return { w: out, trend };
  }

  return { strengths, times, softmax };
})();
