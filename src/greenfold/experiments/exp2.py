"""Exp. 2: how many rows does a plane hidden in R^100 take?

Three Green's kernels on a linear chart of two coordinates that starts at the principal directions, each
trained two-stage (evidence as the outer loss) and jointly (squared residual), beside an MLP, ridge
regression, kernel ridge with scikit-learn's defaults and tuned, a Gaussian process, and xRFM where it is
installed. "default" is `IGLRegressor()`, which searches its chart by itself. The same on a plane with
noise, on a curved one, and on one with eight directions more that do not matter.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import GridSearchCV
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from greenfold.datasets import hidden_plane
from greenfold.estimators import IGLRegressor
from greenfold.experiments.claims import Claim
from greenfold.experiments.peers import HAS_XRFM, tuned_xrfm
from greenfold.experiments.scores import mse, r2
from greenfold.green import Cosine, Heat, ScreenedPoisson, Spectral
from greenfold.spec import Source, Training

TITLE = "Exp. 2: sample efficiency on a plane in R^100"
N_TEST = 1000
KERNELS = ("spatial", "helmholtz", "spectral")
VARIANTS: dict[str, dict[str, Any]] = {
    "noisy": {"noise": 0.1, "blur": 0.05},
    "curved": {"bend": 1.0},
    "nuisance": {"n_hidden": 10},
}

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Config:
    seeds: int = 3
    sizes: tuple[int, ...] = (50, 100, 200, 500, 2000)
    variants: tuple[str, ...] = tuple(VARIANTS)
    variant_sizes: tuple[int, ...] = (200, 500)
    max_iter: int = 60
    joint_iter: int = 300
    mlp_iter: int = 600
    cubic_rows: int = 500  # more of them are too many for the tuned peers here


FULL = Config()
QUICK = Config(seeds=1, sizes=(50, 100, 200, 500), variant_sizes=(200,), joint_iter=200)
TINY = Config(
    seeds=1,
    sizes=(30,),
    variants=("noisy",),
    variant_sizes=(30,),
    max_iter=3,
    joint_iter=3,
    mlp_iter=10,
)


def _igl(config: Config, kernel: str, mode: str, X: Array, y: Array, seed: int) -> Any:
    operators: dict[str, Any] = {
        "spatial": {"operator": Heat(0.5)},
        "helmholtz": {"operator": ScreenedPoisson(1.0)},
        "spectral": {
            "operator": Spectral([Cosine(12, -1, 1), Cosine(12, -1, 1)]),
            "source": Source("free", n_atoms=64),
        },
    }
    steps = config.joint_iter if mode == "joint" else config.max_iter
    return IGLRegressor(
        "linear",
        n_dims=2,
        training=Training(mode=mode, max_iter=steps),
        random_state=seed,
        **operators[kernel],
    ).fit(X, y)


def _mlp(config: Config, X: Array, y: Array, seed: int) -> Any:
    network = MLPRegressor(
        hidden_layer_sizes=(64, 64),
        activation="tanh",
        learning_rate_init=3e-3,
        max_iter=config.mlp_iter,
        random_state=seed,
    )
    grid = {"mlpregressor__alpha": [1e-4, 1e-1]}
    return GridSearchCV(make_pipeline(StandardScaler(), network), grid, cv=3).fit(X, y)


def _gp(X: Array, y: Array, seed: int) -> Any:
    kernel = ConstantKernel(1.0) * RBF(1.0, (1e-2, 1e3)) + WhiteKernel(1e-4, (1e-12, 1e1))
    model = GaussianProcessRegressor(
        kernel, normalize_y=True, n_restarts_optimizer=2, random_state=seed
    )
    return model.fit(X, y)


def _krr(X: Array, y: Array, seed: int) -> Any:
    grid = {"gamma": np.logspace(-3, 1, 9), "alpha": np.logspace(-9, 0, 7)}
    return GridSearchCV(KernelRidge(kernel="rbf"), grid, cv=4).fit(X, y)


class _XRFM:
    """Bandwidth and ridge by a fifth of the rows."""

    def fit(self, X: Array, y: Array) -> "_XRFM":
        held = np.arange(len(X)) % 5 == 0
        grid = [{"bandwidth": b, "reg": r} for b, r in product((1.0, 3.0, 10.0), (1e-6, 1e-3))]
        self.predict = tuned_xrfm(X, y, ~held, held, grid, mse)
        return self


def _methods(config: Config) -> dict[str, Callable[[Array, Array, int], Any]]:
    methods: dict[str, Callable[[Array, Array, int], Any]] = {
        f"{kernel} {mode}": partial(_igl, config, kernel, mode)
        for kernel, mode in product(KERNELS, ("two-stage", "joint"))
    }
    methods["default"] = lambda X, y, seed: IGLRegressor(random_state=seed).fit(X, y)
    methods["MLP"] = partial(_mlp, config)
    methods["ridge"] = lambda X, y, seed: RidgeCV(np.logspace(-6, 3, 10)).fit(X, y)
    methods["KRR untuned"] = lambda X, y, seed: KernelRidge(kernel="rbf").fit(X, y)
    methods["KRR"] = _krr
    methods["GP"] = _gp
    if HAS_XRFM:
        methods["xRFM"] = lambda X, y, seed: _XRFM().fit(X, y)
    return methods


def run(config: Config, seed: int) -> dict[str, Any]:
    scores: dict[str, dict[str, dict[str, float]]] = {}
    cases = [("plane", n) for n in config.sizes]
    cases += [(variant, n) for variant in config.variants for n in config.variant_sizes]
    for variant, n in cases:
        options = dict(VARIANTS.get(variant, {}))
        noise, blur = options.pop("noise", 0.0), options.pop("blur", 0.0)
        X, u, _ = hidden_plane(n + N_TEST, seed=seed, **options)
        rng = np.random.default_rng(seed)
        X, y = X + blur * rng.normal(size=X.shape), u + noise * rng.normal(size=len(u))
        X, mean = X - X[:n].mean(0), y[:n].mean()
        for name, fit in _methods(config).items():
            if n > config.cubic_rows and name in ("KRR", "GP", "xRFM"):
                continue
            model = fit(X[:n], y[:n] - mean, seed)
            value = r2(model.predict(X[n:]) + mean, u[n:])
            scores.setdefault(variant, {}).setdefault(name, {})[str(n)] = value
    return {"r2": scores}


def claims(config: Config, runs: list[dict[str, Any]]) -> list[Claim]:
    def each(mode: str, n: int, pick: Callable[..., float]) -> list[float]:
        return [
            pick(run["r2"]["plane"][f"{kernel} {mode}"][str(n)] for kernel in KERNELS)
            for run in runs
        ]

    def mean(values: Any) -> float:
        return float(np.mean(list(values)))

    small, last = config.sizes[0], config.sizes[-1]
    middle = 200 if 200 in config.sizes else last
    later = 500 if 500 in config.sizes else last
    caption, text = "Exp. 2, figure", "Exp. 2, text"
    weakest, joint = each("two-stage", later, min), each("joint", last, max)
    graceful = [
        a - b
        for a, b in zip(each("joint", small, mean), each("two-stage", small, mean), strict=True)
    ]
    early, at_middle = each("two-stage", small, min), each("two-stage", middle, min)
    spectral = [run["r2"]["plane"]["spectral two-stage"][str(last)] for run in runs]

    def over_peers(variant: str) -> list[float]:
        n, ratios = str(config.variant_sizes[-1]), []
        for run in runs:
            table = run["r2"][variant]
            peers = [table[name][n] for name in ("KRR", "GP", "xRFM", "MLP") if name in table]
            ratios.append((1 - table["default"][n]) / (1 - max(peers)))
        return ratios

    why = {
        "noisy": "Averaging the noise in x over the chart's directions is worth most here.",
        "curved": "A bent plane is still nearly isometric, so tuned kernels need no chart.",
        "nuisance": "Kernels on raw x spread over ten directions of which two matter.",
    }
    return [
        Claim(
            caption,
            f"two-stage training exceeds R² 0.9 with every kernel at N={later} (the weakest of three)",
            "> 0.9",
            weakest,
            min(weakest) > 0.9,
            "It does so long before.",
            small=False,
        ),
        Claim(
            caption,
            f"two-stage training, the weakest of three kernels at N={middle}",
            "< 0.9",
            at_middle,
            min(at_middle) >= 0.9,
            "Better than the paper's: evidence as the outer loss holds the chart back when rows are few.",
            mark=0.99,
            small=False,
        ),
        Claim(
            caption,
            f"there is a phase transition: two-stage is poor at N={small} (the weakest of three)",
            "poor",
            early,
            max(early) < 0.9,
            "The transition is that of the training residual as outer loss; evidence moves it to fewer "
            "rows.",
        ),
        Claim(
            caption,
            f"spectral two-stage training at N={last}",
            "0.998",
            spectral,
            min(spectral) >= 0.998,
            "Cosines on a box a fifth longer than the data converge fast.",
            mark=0.999,
            small=False,
        ),
        Claim(
            text,
            f"joint training plateaus (the best of three kernels at N={last})",
            "0.53–0.77",
            joint,
            max(joint) < 0.8,
            "Given enough iterations joint training arrives too, only later and less far.",
        ),
        Claim(
            caption,
            f"joint training degrades more gracefully at N={small} (mean R² over kernels, less that of "
            "two-stage)",
            "> 0",
            graceful,
            min(graceful) > 0,
            "With evidence as the outer loss two-stage training is the one that holds at few rows.",
            small=False,
        ),
        Claim(
            caption,
            f"kernel ridge as a baseline: R² of it untuned, less that of it tuned, at N={middle}",
            "weak",
            [
                run["r2"]["plane"]["KRR untuned"][str(middle)]
                - run["r2"]["plane"]["KRR"][str(middle)]
                for run in runs
            ],
            all(run["r2"]["plane"]["KRR"][str(middle)] < 0.9 for run in runs),
            "The plane is embedded isometrically, so an isotropic kernel of the right width does well.",
        ),
        *(
            Claim(
                "beyond the paper",
                f"{variant} plane, N={config.variant_sizes[-1]}: 1−R² of `IGLRegressor()` over that of "
                "the best of MLP, tuned kernel ridge, GP and xRFM",
                "–",
                values,
                float(np.median(values)) < 1,
                why[variant],
            )
            for variant in config.variants
            for values in [over_peers(variant)]
        ),
    ]


def draw(config: Config, runs: list[dict[str, Any]]) -> Figure:
    figure, axes = plt.subplots(
        1, 4, figsize=(15, 4.2), layout="constrained", width_ratios=[2, 1, 1, 1]
    )
    colors = dict(zip(KERNELS, ("tab:blue", "tab:green", "tab:purple"), strict=True))
    colors |= {"default": "black", "MLP": "tab:orange", "ridge": "tab:gray", "KRR": "tab:red"}
    colors |= {"KRR untuned": "tab:pink", "GP": "tab:olive", "xRFM": "tab:brown"}
    for ax, variant in zip(axes, ("plane", *config.variants), strict=False):
        for name in runs[0]["r2"][variant]:
            sizes = [int(n) for n in runs[0]["r2"][variant][name]]
            values = np.array([list(run["r2"][variant][name].values()) for run in runs])
            kernel, _, mode = name.partition(" ")
            color = colors[kernel] if kernel in KERNELS else colors[name]
            style: dict[str, Any] = {"color": color, "lw": 1.3, "label": name}
            style |= {"marker": "o", "ms": 3, "ls": "--" if mode == "joint" else "-"}
            if kernel not in KERNELS:
                style["ls"] = "-" if name == "default" else ":"
            ax.loglog(sizes, np.maximum(1 - np.median(values, 0), 1e-14), **style)
        ax.set(title=variant, xlabel="rows", ylabel="1 − R² on new rows, median")
        sizes = list(config.sizes if variant == "plane" else config.variant_sizes)
        ax.set_xticks(sizes, labels=[str(n) for n in sizes], minor=False)
        ax.minorticks_off()
        ax.invert_yaxis()
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", fontsize=8)
    return figure
