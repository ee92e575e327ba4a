"use strict";
// Beside the page, in workers made of its own mathematics, so that it stays awake: solving for the source, which
// it sees the progress of and can stop, and fields that take longer than a frame.

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

  const made = (work) => {
    const mathematics = document.getElementById("mathematics").textContent;
    return URL.createObjectURL(new Blob([mathematics, `(${work})();`], { type: "text/javascript" }));
  };

  let stop = null; // ends what runs

  // Strengths for `task`; `progress` hears a number from 0 to 1. null if it was stopped.
  function solve(task, progress) {
    cancel();
    const url = made(work);
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

  // --- Φ at rows, u or the source on a plane

  function serve() {
    onmessage = ({ data: { slot, kernel: told, atoms, gate, factor, xi, plane } }) => {
      const kernel = slot !== "source" && Green.kernel(told, atoms, gate, factor);
      const found = slot === "rows" ? Green.columns(kernel, xi) : slot === "plane" ? Green.plane(kernel, ...plane) : Green.source(...plane);
      postMessage({ slot, found }, [found.buffer]);
    };
  }

  let server = null, able = true, waiters = [];
  const slots = {}; // what is computed in each, and what comes next: only the last that was asked for

  // `done` hears what was found, or null where no worker can be started.
  function ask(slot, task, done) {
    const asked = { task: { slot, ...task }, done };
    if (slots[slot]) return void (slots[slot].next = asked);
    begin(slot, asked);
  }
  function begin(slot, { task, done }) {
    slots[slot] = { done, next: null };
    document.documentElement.dataset.waiting = "";
    try {
      server ||= started();
      server.postMessage(task);
    } catch {
      failed();
    }
  }
  function started() {
    const worker = new Worker(made(serve));
    worker.onmessage = ({ data }) => ended(data.slot, data.found);
    worker.onerror = failed;
    return worker;
  }
  function failed() {
    able = false;
    for (const slot of Object.keys(slots)) { slots[slot].next = null; ended(slot, null); }
  }
  function ended(slot, found) {
    const { done, next } = slots[slot];
    delete slots[slot];
    if (done && (found || !able)) done(found);
    if (next) begin(slot, next);
    if (Object.keys(slots).length) return;
    delete document.documentElement.dataset.waiting;
    for (const heard of waiters.splice(0)) heard();
  }
  // What is under way in a slot no longer counts.
  function drop(slot) {
    if (slots[slot]) slots[slot] = { done: null, next: null };
  }
  // A promise: nothing is under way any more.
  const settled = () => (Object.keys(slots).length ? new Promise((done) => waiters.push(done)) : Promise.resolve());

  return { solve, cancel, ask, drop, settled, get able() { return able; }, get busy() { return stop !== null; } };
})();
