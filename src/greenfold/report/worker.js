"use strict";
// Solving for the source beside the page: in a worker made of the page's own mathematics, so that the page
// stays awake, sees how far it is and can stop it.

const Beside = (() => {
  // What the worker runs. It knows green.js and solve.js, and what it is sent.
  function work() {
    onmessage = ({ data: task }) => {
      const { kernel: told, atoms, gate, factor, xi, c, energy, loss } = task, n = xi.length / atoms.d;
      const kernel = Green.kernel(told, atoms, gate, factor), { p } = kernel, terms = kernel.members.reduce((s, m) => s + m.K, 0);
      // how long each part takes, roughly, in multiplications
      const steps = loss === "cross_entropy" ? 8 * c : 1, square = (n * p * p) / 2;
      const parts = { matrix: 5 * n * p * terms * (atoms.d + 10), energy: energy ? square + 5 * p * p * terms * (atoms.d + 10) : 0, solve: steps * (square + p ** 3 / 6) };
      const names = Object.keys(parts), total = names.reduce((s, name) => s + parts[name], 0);
      let last = 0;
      const tick = (part, share) => {
        if (performance.now() - last < 50) return;
        last = performance.now();
        const before = names.slice(0, names.indexOf(part)).reduce((s, name) => s + parts[name], 0);
        postMessage({ done: (before + share * parts[part]) / total });
      };
      try {
        const Phi = Green.columns(kernel, xi, (share) => tick("matrix", share));
        const G = energy ? Green.columns(kernel, atoms.mu, (share) => tick("energy", share / 2)) : null;
        const N = Green.beside(task.beside, gate, factor, xi);
        postMessage({ found: Solve.strengths({ ...task, Phi, n, p, N, G }, tick) });
      } catch (error) {
        postMessage({ failed: error.message });
      }
    };
  }

  let stop = null; // ends what runs

  // Strengths for `task`; `progress` hears a number from 0 to 1. null if it was stopped.
  function solve(task, progress) {
    cancel();
    const mathematics = document.getElementById("mathematics").textContent;
    const url = URL.createObjectURL(new Blob([mathematics, `(${work})();`], { type: "text/javascript" }));
    return new Promise((resolve, reject) => {
      const worker = new Worker(url);
      const end = () => { worker.terminate(); stop = null; };
      stop = () => { end(); resolve(null); };
      worker.onerror = (event) => { end(); reject(new Error(event.message || "this browser starts no worker")); };
      worker.onmessage = ({ data }) => {
        if ("done" in data) return progress(data.done);
        end();
        if (data.found) resolve(data.found); else reject(new Error(data.failed));
      };
      worker.postMessage(task);
    }).finally(() => URL.revokeObjectURL(url));
  }

  function cancel() {
    if (stop) stop();
  }

  return { solve, cancel, get busy() { return stop !== null; } };
})();
