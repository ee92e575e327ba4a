"""What users would pick instead to predict numbers, each with settings to tune; `classes.py` has classes.

Every peer is tuned the same way: `tuned` tries settings by cross-validation until the budget is spent, on
at most 2000 rows, and the best are fitted to all rows. Inputs and target have mean 0 and variance 1.
RealMLP, TabM and EBM come with defaults that are meant to need no tuning, and are used so.
A package that is not installed makes its peer 'not installed', and nothing else.
"""

import contextlib
import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize
from scores import log_loss, probabilities
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.neural_network import MLPRegressor

MOST_ROWS = 2000  # that settings are compared on
MOST_TRIALS = 30
GP_ROWS = 10_000  # up to which the Gaussian process sees every row
HOPELESS = 2.25  # settings are dropped whose loss on the first fold exceeds the best by this factor


class Clock:
    """What is left of the budget, in CPU-seconds of this process: wall-clock on a quiet core."""

    def __init__(self, budget: float):
        self.budget, self.begin = budget, time.process_time()

    def left(self) -> float:
        return self.budget - (time.process_time() - self.begin)


def loss(model: Any, X: np.ndarray, y: np.ndarray, n_classes: int) -> float:
    """What settings are chosen by: log-loss of classes, or squared error."""
    if n_classes:
        value = log_loss(probabilities(model, X, n_classes), y)
    else:
        value = float(np.mean((model.predict(X) - y) ** 2))
    return float(np.nan_to_num(value, nan=np.inf))


class Trials(NamedTuple):
    settings: dict[str, Any]  # the best
    count: int  # of settings tried


def compare(
    make: Callable[..., Any],
    grid: dict[str, list],
    first: dict[str, Any],
    X: np.ndarray,
    y: np.ndarray,
    clock: Clock,
    seed: int,
    most: int = MOST_ROWS,
) -> Trials:
    """The best of `grid` by cross-validation on at most so many rows, from `first` on, within the time.

    Values are in order: eight settings at random are followed by, in turn, a neighbor of the best and
    another at random. `first` is always finished.
    """
    rng = np.random.default_rng(seed)
    rows = rng.permutation(len(X))[:most]
    X, y = X[rows], y[rows]
    n_classes = int(y.max()) + 1 if y.dtype.kind == "i" else 0
    folds = list((StratifiedKFold(3) if n_classes else KFold(3)).split(X, y))
    names, sizes = list(grid), [len(values) for values in grid.values()]
    best = tuple(grid[name].index(first[name]) for name in names)
    seen: dict[tuple[int, ...], list[float]] = {}

    def errors(point: tuple[int, ...]) -> list[float] | None:
        """Loss of each fold; none if the settings are hopeless or time is up."""
        found: list[float] = []
        for train, test in folds:
            if seen and (clock.left() <= 0 or (found and found[0] > HOPELESS * seen[best][0])):
                return None
            model = make(**{name: grid[name][i] for name, i in zip(names, point)})
            model.fit(X[train], y[train])
            found.append(loss(model, X[test], y[test], n_classes))
        return found

    tried, point = {best}, best
    while len(tried) <= min(MOST_TRIALS, np.prod(sizes)):
        found = errors(point)
        if found is not None:
            seen[point] = found
            best = min(seen, key=lambda p: np.mean(seen[p]))
        if clock.left() <= 0:
            break
        near = [
            tuple(i + step if k == axis else i for k, i in enumerate(best))
            for axis in range(len(names))
            for step in (-1, 1)
        ]
        near = [p for p in near if p not in tried and all(0 <= i < s for i, s in zip(p, sizes))]
        if near and len(tried) > 8 and len(tried) % 2:
            point = near[rng.integers(len(near))]
        else:
            while point in tried and len(tried) < np.prod(sizes):
                point = tuple(int(rng.integers(s)) for s in sizes)
        if point in tried:
            break
        tried.add(point)
    return Trials({name: grid[name][i] for name, i in zip(names, best)}, len(tried))


class Fit(NamedTuple):
    model: Any  # with `predict`, or `predict_proba` and `classes_`
    notes: dict[str, Any]


def as_it_comes(make: Callable[[int], Any]):
    """Without settings; `make` gets the seed."""

    def fit(X: np.ndarray, y: np.ndarray, clock: Clock, seed: int) -> Fit:
        return Fit(make(seed).fit(X, y), {"settings": "its defaults"})

    return fit


def tuned(
    make: Callable[..., Any], grid: dict[str, list], first: dict[str, Any], most: int = MOST_ROWS
):
    def fit(X: np.ndarray, y: np.ndarray, clock: Clock, seed: int) -> Fit:
        found = compare(make, grid, first, X, y, clock, seed, most)
        model = make(**found.settings)
        if hasattr(model, "final"):
            model.final = True
        notes = {"settings": {k: str(v) for k, v in found.settings.items()}, "trials": found.count}
        return Fit(model.fit(X, y), notes)

    return fit


# --- scikit-learn


def kernel_ridge(kernel: str):
    def fit(X: np.ndarray, y: np.ndarray, clock: Clock, seed: int) -> Fit:
        gammas = [float(g) for g in np.logspace(-2.5, 1, 15) / X.shape[1]]
        grid = {"gamma": gammas, "alpha": [10.0**k for k in range(-7, 2)]}
        first = {"gamma": gammas[8], "alpha": 1e-2}
        return tuned(lambda **s: KernelRidge(kernel=kernel, **s), grid, first)(X, y, clock, seed)

    return fit


def gaussian_process(X: np.ndarray, y: np.ndarray, clock: Clock, seed: int) -> Fit:
    """ARD scales by evidence: three starts on 400 rows, the best of them on 1000; then all rows."""
    if len(X) > GP_ROWS:
        raise MemoryError(f"a Gaussian process of {len(X)} rows; the limit is {GP_ROWS}")
    rng = np.random.default_rng(seed)
    rows, D = rng.permutation(len(X)), X.shape[1]

    def optimized(kernel: Any, n: int, left: float) -> GaussianProcessRegressor:
        until = clock.left() - left

        def search(objective: Any, start: np.ndarray, bounds: np.ndarray) -> tuple:
            best = [np.inf, start]

            def step(theta: np.ndarray) -> tuple:
                value, slope = objective(theta)
                if value < best[0]:
                    best[:] = [value, theta.copy()]
                if clock.left() <= until:
                    raise TimeoutError
                return value, slope

            with contextlib.suppress(TimeoutError):
                minimize(step, start, jac=True, bounds=bounds, method="L-BFGS-B")
            return best[1], best[0]

        return GaussianProcessRegressor(kernel, optimizer=search).fit(X[rows[:n]], y[rows[:n]])

    tried = []
    for length in (1.0, 0.3, 3.0):
        scales = RBF(np.full(D, length * np.sqrt(D)), (1e-2, 1e4))
        start = ConstantKernel(1.0, (1e-3, 1e3)) * scales + WhiteKernel(0.1, (1e-7, 1e1))
        tried.append(optimized(start, 400, clock.budget / 6))
    best = max(tried, key=lambda gp: gp.log_marginal_likelihood_value_).kernel_
    if len(X) > 400:
        best = optimized(best, 1000, clock.left()).kernel_
    model = GaussianProcessRegressor(best, optimizer=None).fit(X, y)
    return Fit(model, {"settings": {"kernel": str(best)}, "trials": len(tried)})


TREES = {"max_features": [0.35, 0.7, 1.0], "min_samples_leaf": [1, 2, 3, 5]}
TREES_FIRST = {"max_features": 1.0, "min_samples_leaf": 1}
BOOSTING = {
    "learning_rate": [0.02, 0.05, 0.1, 0.2],
    "max_leaf_nodes": [4, 7, 15, 31],
    "min_samples_leaf": [3, 10, 20],
    "l2_regularization": [0.0, 1.0, 10.0],
    "max_iter": [50, 100, 200, 400],
}
BOOSTING_FIRST = {
    "learning_rate": 0.1,
    "max_leaf_nodes": 31,
    "min_samples_leaf": 20,
    "l2_regularization": 0.0,
    "max_iter": 100,
}
NETWORK = {
    "hidden_layer_sizes": [(16,), (32,), (64,), (32, 32), (64, 64), (128, 128)],
    "solver": ["lbfgs", "adam"],
    "alpha": [10.0**k for k in range(-5, 3)],
    "learning_rate_init": [1e-3, 3e-3, 1e-2],
    "max_iter": [100, 300],
}
NETWORK_FIRST = {
    "hidden_layer_sizes": (64, 64),
    "solver": "adam",
    "alpha": 1e-3,
    "learning_rate_init": 1e-3,
    "max_iter": 300,
}


# --- other packages, imported where they are used


# with LightGBM's `subsample` below 1, rows are drawn in every iteration
LIGHTGBM_FIXED = {"n_jobs": 1, "verbose": -1, "subsample_freq": 1, "random_state": 0}


def lightgbm(**settings: Any) -> Any:
    from lightgbm import LGBMRegressor

    return LGBMRegressor(**LIGHTGBM_FIXED, **settings)


def hist_boosting(**settings: Any) -> Any:
    return HistGradientBoostingRegressor(early_stopping=False, random_state=0, **settings)


LIGHTGBM = {
    "learning_rate": [0.02, 0.05, 0.1, 0.2],
    "num_leaves": [4, 7, 15, 31],
    "min_child_samples": [3, 10, 20],
    "subsample": [0.6, 0.8, 1.0],
    "colsample_bytree": [0.5, 0.75, 1.0],
    "reg_lambda": [0.0, 1.0, 10.0],
    "n_estimators": [50, 100, 200, 400, 800],
}
LIGHTGBM_FIRST = {
    "learning_rate": 0.1,
    "num_leaves": 31,
    "min_child_samples": 20,
    "subsample": 1.0,
    "colsample_bytree": 1.0,
    "reg_lambda": 0.0,
    "n_estimators": 100,
}


CATBOOST_FIXED = {
    "thread_count": 1,
    "verbose": False,
    "random_seed": 0,
    "allow_writing_files": False,
}


def catboost(**settings: Any) -> Any:
    from catboost import CatBoostRegressor

    return CatBoostRegressor(**CATBOOST_FIXED, **settings)


CATBOOST = {
    "learning_rate": [0.03, 0.06, 0.1, 0.2],
    "depth": [3, 4, 6],
    "l2_leaf_reg": [1.0, 3.0, 10.0],
    "iterations": [60, 125, 250, 500, 1000],
}
CATBOOST_FIRST = {"learning_rate": 0.06, "depth": 4, "l2_leaf_reg": 3.0, "iterations": 500}


def ebm(seed: int) -> Any:
    from interpret.glassbox import ExplainableBoostingRegressor

    return ExplainableBoostingRegressor(n_jobs=1, random_state=seed)


def realmlp(seed: int) -> Any:
    from pytabkit import RealMLP_TD_Regressor

    return RealMLP_TD_Regressor(device="cpu", n_threads=1, random_state=seed)


def tabm(seed: int) -> Any:
    from pytabkit import TabM_D_Regressor

    return TabM_D_Regressor(device="cpu", n_threads=1, random_state=seed)


class Recursive:
    """xRFM. It wants rows to choose its iteration by: a fifth is held out; for the final fit to at most
    2000 rows five models, each without another fifth, are averaged.
    """

    final, metric = False, "mse"

    def __init__(self, kernel: str, bandwidth: float, exponent: float, reg: float, diag: bool):
        self.model = {
            "kernel": kernel,
            "bandwidth": bandwidth,
            "exponent": exponent,
            "diag": diag,
            "bandwidth_mode": "constant",
        }
        self.reg = reg

    def fit(self, X: np.ndarray, y: np.ndarray) -> "Recursive":
        from xrfm import xRFM

        X = X.astype(np.float32)
        y = y if y.dtype.kind == "i" else y.astype(np.float32)[:, None]
        folds = list(KFold(5).split(X))
        self.models = []
        for train, held in folds if self.final and len(X) <= MOST_ROWS else folds[:1]:
            settings = {
                "model": dict(self.model),
                "fit": {"reg": self.reg, "iters": 4, "return_best_params": True, "verbose": False},
            }
            model = xRFM(
                settings, device="cpu", tuning_metric=self.metric, verbose=False, random_state=0
            )
            model.fit(X[train], y[train], X[held], y[held])
            self.models.append(model)
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        X = X.astype(np.float32)
        return np.mean([np.asarray(m.predict(X)).reshape(len(X)) for m in self.models], 0)


RECURSIVE = {
    "kernel": ["l2", "l1"],
    "bandwidth": [1.0, 2.0, 5.0, 10.0, 20.0, 40.0],
    "exponent": [0.7, 1.0, 1.4],
    "reg": [1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1],
    "diag": [False, True],
}
RECURSIVE_FIRST = {
    "kernel": "l2", "bandwidth": 10.0, "exponent": 1.0, "reg": 1e-3, "diag": False
}  # fmt: skip


class DeepKernel:
    """GPyTorch: an exact GP with ARD scales on the outputs of a network, both learned by evidence.

    Steps of Adam on the evidence of all rows, or of 1000 drawn for each; predictions use every row.
    """

    def __init__(self, hidden: int, n_features: int, lr: float, steps: int, decay: float):
        self.hidden, self.n_features = hidden, n_features
        self.lr, self.steps, self.decay = lr, steps, decay

    def fit(self, X: np.ndarray, y: np.ndarray) -> "DeepKernel":
        import gpytorch
        import torch

        torch.manual_seed(0)
        x, target = torch.from_numpy(X).float(), torch.from_numpy(y).float()
        network = torch.nn.Sequential(
            torch.nn.Linear(X.shape[1], self.hidden),
            torch.nn.ReLU(),
            torch.nn.Linear(self.hidden, self.hidden),
            torch.nn.ReLU(),
            torch.nn.Linear(self.hidden, self.n_features),
        )

        class Model(gpytorch.models.ExactGP):
            def __init__(self, x: Any, y: Any, likelihood: Any, d: int):
                super().__init__(x, y, likelihood)
                self.network, self.mean = network, gpytorch.means.ConstantMean()
                rbf = gpytorch.kernels.RBFKernel(ard_num_dims=d)
                self.kernel = gpytorch.kernels.ScaleKernel(rbf)

            def forward(self, x: Any) -> Any:
                z = self.network(x)
                return gpytorch.distributions.MultivariateNormal(self.mean(z), self.kernel(z))

        likelihood = gpytorch.likelihoods.GaussianLikelihood()
        model = Model(x, target, likelihood, self.n_features)
        parts = [
            {"params": network.parameters(), "weight_decay": self.decay},
            {"params": [p for n, p in model.named_parameters() if not n.startswith("network")]},
        ]
        optimizer = torch.optim.Adam(parts, lr=self.lr)
        evidence = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
        model.train()
        with gpytorch.settings.fast_computations(False, False, False):
            for _ in range(self.steps):
                rows = torch.randperm(len(x))[:1000] if len(x) > 1000 else slice(None)
                model.set_train_data(x[rows], target[rows], strict=False)
                optimizer.zero_grad()
                loss = -evidence(model(x[rows]), target[rows])
                loss.backward()
                optimizer.step()
        model.set_train_data(x, target, strict=False)
        self.model, self.likelihood = model.eval(), likelihood.eval()
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        import gpytorch
        import torch

        fast = gpytorch.settings.fast_computations(False, False, False)
        skip = gpytorch.settings.skip_posterior_variances()
        with torch.no_grad(), fast, skip:
            return self.model(torch.from_numpy(X).float()).mean.double().numpy()


DEEP_KERNEL = {
    "hidden": [32, 64],
    "n_features": [2, 4, 8],
    "lr": [3e-3, 1e-2, 3e-2],
    "steps": [50, 100, 200],
    "decay": [0.0, 1e-4, 1e-2],
}


class Kolmogorov:
    """pykan: B-splines on the edges of a small network, trained by its own L-BFGS."""

    def __init__(self, hidden: int, intervals: int, steps: int, lamb: float):
        self.hidden, self.intervals, self.steps, self.lamb = hidden, intervals, steps, lamb

    def fit(self, X: np.ndarray, y: np.ndarray) -> "Kolmogorov":
        import torch
        from kan import KAN

        x, target = torch.from_numpy(X).float(), torch.from_numpy(y).float()[:, None]
        data = {"train_input": x, "train_label": target, "test_input": x, "test_label": target}
        self.model = KAN(
            [X.shape[1], self.hidden, 1], grid=self.intervals, k=3, seed=0, auto_save=False
        )
        # its progress bar goes to the error stream
        with open(os.devnull, "w") as nowhere:
            stream, sys.stderr = sys.stderr, nowhere
            try:
                self.model.fit(data, opt="LBFGS", steps=self.steps, lamb=self.lamb)
            finally:
                sys.stderr = stream
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        import torch

        with torch.no_grad():
            return self.model(torch.from_numpy(X).float())[:, 0].double().numpy()


KOLMOGOROV = {
    "hidden": [1, 2, 5],
    "intervals": [3, 5],
    "steps": [10, 20],
    "lamb": [0.0, 1e-3, 1e-2],
}


class Elsewhere:
    """Predictions that another interpreter makes; `cpu` are its CPU-seconds."""

    def __init__(self, interpreter: str, X: np.ndarray, y: np.ndarray, seed: int):
        self.interpreter, self.X, self.y, self.seed = interpreter, X, y, seed

    def predict(self, X: np.ndarray) -> np.ndarray:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "rows.npz"
            np.savez(path, X=self.X, y=self.y, X_test=X, seed=self.seed)
            script = Path(__file__).with_name("public_igl.py")
            done = subprocess.run(
                [self.interpreter, script, path], capture_output=True, text=True, check=False
            )
            if done.returncode:
                raise RuntimeError(done.stderr.strip().splitlines()[-1])
            self.cpu = float(done.stdout.split()[-1])
            return np.load(path.with_suffix(".npy"))


def public_igl(X: np.ndarray, y: np.ndarray, clock: Clock, seed: int) -> Fit:
    """The package intrinsic-green-learning as it comes, in the interpreter that IGL_PYTHON names."""
    return Fit(Elsewhere(os.environ["IGL_PYTHON"], X, y, seed), {"settings": "its defaults"})


# --- this library


def igl(X: np.ndarray, y: np.ndarray, clock: Clock, seed: int) -> Fit:
    from greenfold import IGLRegressor

    return Fit(IGLRegressor(random_state=seed).fit(X, y), {})


def stack(effort: str):
    def fit(X: np.ndarray, y: np.ndarray, clock: Clock, seed: int) -> Fit:
        from greenfold import IGLStack

        model = IGLStack(effort=effort, random_state=seed).fit(X, y)
        return Fit(model, {"weights": {k: round(v, 3) for k, v in model.weights_.items()}})

    return fit


def igl_tuned(X: np.ndarray, y: np.ndarray, clock: Clock, seed: int) -> Fit:
    from greenfold import tune

    found = tune(X, y, budget=clock.budget, random_state=seed)
    return Fit(found.best, {"settings": str(found.settings), "trials": len(found.trials)})


class Method(NamedTuple):
    fit: Callable[[np.ndarray, np.ndarray, Clock, int], Fit]
    package: str = "sklearn"  # that must be installed
    ours: bool = False
    ranked: bool = True
    # Run without being asked for, with all training rows and with few of them.
    full: bool = True
    few: bool = True

    def usual(self, n: int | None) -> bool:
        return self.full if n is None else self.few


METHODS = {
    "IGLRegressor": Method(igl, "greenfold", ours=True),
    "IGLStack": Method(stack("normal"), "greenfold", ours=True),
    # Other efforts would compete with the default for the same places.
    "IGLStack fast": Method(
        stack("fast"), "greenfold", ours=True, ranked=False, full=False, few=False
    ),
    "IGLStack full": Method(
        stack("full"), "greenfold", ours=True, ranked=False, full=False, few=False
    ),
    "KRR rbf": Method(kernel_ridge("rbf")),
    "KRR laplacian": Method(kernel_ridge("laplacian")),
    "GP ard": Method(gaussian_process),
    "HistGB": Method(tuned(hist_boosting, BOOSTING, BOOSTING_FIRST)),
    "ExtraTrees": Method(
        tuned(
            lambda **s: ExtraTreesRegressor(n_estimators=200, random_state=0, **s),
            TREES,
            TREES_FIRST,
        )
    ),
    "MLP": Method(tuned(lambda **s: MLPRegressor(random_state=0, **s), NETWORK, NETWORK_FIRST)),
    "LightGBM": Method(tuned(lightgbm, LIGHTGBM, LIGHTGBM_FIRST), "lightgbm"),
    "CatBoost": Method(tuned(catboost, CATBOOST, CATBOOST_FIRST), "catboost"),
    "EBM": Method(as_it_comes(ebm), "interpret", few=False),
    "xRFM": Method(tuned(Recursive, RECURSIVE, RECURSIVE_FIRST), "xrfm"),
    "RealMLP": Method(as_it_comes(realmlp), "pytabkit"),
    # on one CPU, a minute or two with 200 rows and 5 seconds an epoch with 2000
    "TabM": Method(as_it_comes(tabm), "pytabkit", full=False, few=False),
    "deep kernel": Method(
        tuned(
            DeepKernel,
            DEEP_KERNEL,
            {"hidden": 64, "n_features": 4, "lr": 1e-2, "steps": 100, "decay": 1e-4},
        ),
        "gpytorch",
        full=False,
        few=False,
    ),
    "KAN": Method(
        tuned(Kolmogorov, KOLMOGOROV, {"hidden": 2, "intervals": 3, "steps": 10, "lamb": 1e-3}),
        "kan",
        full=False,
        few=False,
    ),
    "public IGL": Method(public_igl, "igl", full=False, few=False),
    "tune": Method(igl_tuned, "greenfold", ours=True, full=False, few=False),
}


def installed(method: Method) -> bool:
    if method.package == "igl":  # it needs an interpreter of its own
        return Path(os.environ.get("IGL_PYTHON", "")).is_file()
    return importlib.util.find_spec(method.package) is not None
