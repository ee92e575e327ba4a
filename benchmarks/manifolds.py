"""Point sets on manifolds whose dimensions are known: `NAME: (make(n, rng) -> X, intrinsic, chart)`."""

import numpy as np
from sklearn.datasets import make_s_curve, make_swiss_roll


def state(rng):
    """What scikit-learn wants for a seed."""
    return int(rng.integers(2**31 - 1))


def roll(n, rng, **options):
    return make_swiss_roll(n, random_state=state(rng), **options)[0]


def sphere(n, rng):
    X = rng.normal(size=(n, 3))
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def circle(n, rng):
    t = rng.uniform(0, 2 * np.pi, n)
    return np.stack([np.cos(t), np.sin(t)], 1)


def torus(n, rng):
    a, b = rng.uniform(0, 2 * np.pi, (2, n))
    r = 2 + np.cos(b)
    return np.stack([r * np.cos(a), r * np.sin(a), np.sin(b)], 1)


def moebius(n, rng):
    t, w = rng.uniform(0, 2 * np.pi, n), rng.uniform(-0.5, 0.5, n)
    r = 1 + w * np.cos(t / 2)
    return np.stack([r * np.cos(t), r * np.sin(t), w * np.sin(t / 2)], 1)


def spiral(n, rng):
    t = np.sqrt(rng.uniform(0.05, 1, n)) * 6 * np.pi
    return np.stack([t * np.cos(t), t * np.sin(t)], 1)


def moons(n, rng):
    t, upper = rng.uniform(0, np.pi, n), np.arange(n) % 2 == 0
    above = np.stack([np.cos(t), np.sin(t)], 1)
    return np.where(upper[:, None], above, [1, 0.5] - above)


def cylinder(n, rng):
    t = rng.uniform(0, 2 * np.pi, n)
    return np.stack([np.cos(t), np.sin(t), rng.uniform(-1, 1, n)], 1)


def helix(n, rng):
    t = rng.uniform(0, 6 * np.pi, n)
    return np.stack([np.cos(t), np.sin(t), t / 3], 1)


def curved(Z, D, rng, bend=1.0):
    """Z in R^D: a random rotation plus sines of random combinations."""
    Q, _ = np.linalg.qr(rng.normal(size=(D, Z.shape[1])))
    waves = np.sin(Z @ rng.normal(size=(Z.shape[1], D)) + rng.uniform(0, 2 * np.pi, D))
    return Z @ Q.T + bend / np.sqrt(D) * waves


def sheet(d, D):
    return lambda n, rng: curved(rng.uniform(-1, 1, (n, d)), D, rng)


def lifted(make):
    return lambda n, rng: curved(make(n, rng), 20, rng, bend=0.3)


SETS = {
    "swiss roll": (roll, 2, 2),
    "s-curve": (lambda n, rng: make_s_curve(n, random_state=state(rng))[0], 2, 2),
    "sphere": (sphere, 2, 3),
    "torus": (torus, 2, 3),
    "moons": (moons, 1, 1),
    "spiral": (spiral, 1, 1),
    "circle": (circle, 1, 2),
    "moebius": (moebius, 2, 3),
    "swiss roll, noise .3": (lambda n, rng: roll(n, rng, noise=0.3), 2, 2),
    "3-dim in R20": (sheet(3, 20), 3, 3),
    "5-dim in R50": (sheet(5, 50), 5, 5),
}
ONCE = {
    "cylinder": (cylinder, 2, 2),
    "helix": (helix, 1, 1),
    "swiss roll with a hole": (lambda n, rng: roll(n, rng, hole=True), 2, 2),
    "circle in R20": (lifted(circle), 1, 2),
    "sphere in R20": (lifted(sphere), 2, 3),
    "torus in R20": (lifted(torus), 2, 3),
}
