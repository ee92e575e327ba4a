"""Exp. 7: autoencoders with an IGL head, on digits, MNIST or Fashion-MNIST.

Every method has the same encoder, decoder, rows, epochs and reconstruction loss, and the same number of
settings to be tuned: they are compared after a short training by the product of MSE, probe error and
1 − silhouette on validation rows, with a seed of its own. The test rows are scored once, at the end.
"""

from dataclasses import asdict, dataclass, field, replace
from statistics import median
from typing import Any

from joblib import Parallel, delayed
from matplotlib.figure import Figure
from tqdm.auto import tqdm

from greenfold.experiments.claims import Claim
from greenfold.experiments.exp7 import judged, pictures
from greenfold.experiments.exp7.data import DATASETS, load
from greenfold.experiments.exp7.measures import codes, measure
from greenfold.experiments.exp7.networks import METHODS, has_head
from greenfold.experiments.exp7.training import Checkpoint, Setting, Task, train
from greenfold.experiments.runner import undisturbed

TITLE = "Exp. 7: latent spaces of autoencoders"
TUNING_SEED = 69_999

# As many for each method.
TRIALS: dict[str, tuple[Setting, ...]] = {
    "AE": tuple(Setting(rate=r) for r in (2.5e-3, 5e-3, 1e-2, 2e-2, 4e-2, 8e-2)),
    "AE+KL": tuple(Setting(w) for w in (1e-7, 1e-6, 1e-5, 1e-4, 5e-4, 2e-3)),
    "AE+contrastive": tuple(
        Setting(w, temperature=t)
        for w, t in ((0.01, 0.3), (0.05, 0.1), (0.05, 0.3), (0.05, 1.0), (0.2, 0.3), (0.2, 1.0))
    ),
    "IGL": tuple(Setting(w, p) for w in (0.1, 0.2, 0.4) for p in (0.01, 0.03)),
    "IGL, gated decoder": tuple(Setting(w, p) for w in (0.02, 0.05, 0.2) for p in (0.01, 0.03)),
}


@dataclass(frozen=True)
class Config:
    seeds: int = 3
    dataset: str = "digits"
    n_train: int = 1000
    n_validation: int = 297
    epochs: int = 60
    tuning_epochs: int = 20
    batch: int = 32
    n_dims: int = 64
    n_atoms: int = 128
    few_classes: int = 5
    n_shown: int = 2000  # test rows in the figure
    chosen: dict[str, dict[str, float]] = field(default_factory=dict)  # by `prepare`
    folder: str = ""  # for checkpoints


FULL = Config()
QUICK = Config(seeds=2, epochs=30, tuning_epochs=10)
TINY = Config(
    seeds=1,
    n_train=100,
    n_validation=80,
    epochs=2,
    tuning_epochs=1,
    n_dims=8,
    n_atoms=12,
    n_shown=60,
)


def on(config: Config, dataset: str) -> Config:
    """The same size of run for another data set; epochs of MNIST have five times the steps."""
    if dataset not in DATASETS:
        raise ValueError(f"`dataset` must be one of {DATASETS}, got {dataset!r}.")
    if dataset == "digits":
        return config
    full = config == FULL
    config = replace(
        config, dataset=dataset, epochs=15 if full else 5, tuning_epochs=5 if full else 1
    )
    rows = (20_000, 5000) if full else (4000, 1000)
    return replace(config, n_train=rows[0], n_validation=rows[1], batch=128)


def settings(method: str) -> tuple[Setting, ...]:
    """Those to choose from; a decoder that sees gated codes needs them less pressed."""
    if has_head(method):
        return TRIALS["IGL, gated decoder" if "gated" in method else "IGL"]
    return TRIALS[method]


def prepare(config: Config, n_jobs: int = 1, progress: bool = False) -> Config:
    """Choose the setting of every method."""
    load(config.dataset, config.n_train, config.n_validation, 0, 10)  # what is missing is said here
    trials = [(method, setting) for method in METHODS for setting in settings(method)]
    scores = Parallel(n_jobs=n_jobs, return_as="generator")(
        delayed(_trial)(config, method, setting) for method, setting in trials
    )
    bar = tqdm(scores, desc="tuning", total=len(trials), unit="trial", disable=not progress)
    best: dict[str, tuple[float, Setting]] = {}
    for (method, setting), score in zip(trials, bar, strict=True):
        if method not in best or score < best[method][0]:
            best[method] = score, setting
    return replace(
        config, chosen={method: asdict(setting) for method, (_, setting) in best.items()}
    )


def _trial(config: Config, method: str, setting: Setting) -> float:
    """Product of what should be small, on validation rows."""
    task = replace(_task(config, method, setting, TUNING_SEED), epochs=config.tuning_epochs)
    with undisturbed(TUNING_SEED):
        scores = _scores(config, task, "validation")
    silhouette = scores.get("silhouette_gated", scores["silhouette"])
    return float(scores["mse"] * (1 - scores["probe"] + 1e-3) * (1 - silhouette))


def _task(config: Config, method: str, setting: Setting, seed: int, n_classes: int = 10) -> Task:
    sizes = config.n_dims, config.n_atoms, config.epochs, config.batch
    return Task(method, setting, config.dataset, seed, config.n_train, n_classes, *sizes)


def _scores(config: Config, task: Task, part: str, tick: Any = None) -> dict[str, Any]:
    """Train, measure, and keep what was measured beside the checkpoint."""
    kept = Checkpoint(config.folder, f"{task.key}-{part}")
    scores = kept.load()
    if scores is not None:
        for _ in range(task.epochs if tick is not None else 0):
            tick(task.method)
        return scores
    n_validation = config.n_validation if part == "validation" else 0
    data = load(task.dataset, task.n_train, n_validation, task.seed, task.n_classes)
    model, history = train(task, *data.train, config.folder, tick)
    judged_by = data.validation if part == "validation" else data.test
    refit = max(1, task.epochs // 2) if part == "test" else 0
    scores = measure(model, data.train, judged_by, task.seed, refit, task.batch)
    scores["cpu_seconds"] = history["cpu_seconds"]
    if part == "test":
        x, y = data.test
        seen = codes(model, x[: config.n_shown]) * model.roots.detach()
        scores["picture"] = {
            "codes": seen,
            "classes": y[: config.n_shown],
            "gates": history["gates"],
        }
    kept.save(scores)
    return scores


def run(config: Config, seed: int) -> dict[str, Any]:
    """Every method at its setting; two-stage also at 3× the gate penalty and with fewer classes,
    joint training also at the setting of two-stage.
    """
    chosen = {
        m: Setting(**config.chosen[m]) if m in config.chosen else settings(m)[0] for m in METHODS
    }
    tasks = {m: _task(config, m, chosen[m], seed) for m in METHODS}
    ours = "AE+IGL two-stage"
    harder = replace(chosen[ours], penalty=3 * chosen[ours].penalty)
    tasks["3× penalty"] = _task(config, ours, harder, seed)
    tasks["joint, same setting"] = _task(config, "AE+IGL joint", chosen[ours], seed)
    fewer = _task(config, ours, chosen[ours], seed, config.few_classes)
    tasks["fewer classes"] = replace(fewer, n_train=min(config.n_train, int(0.45 * _rows(config))))
    bar = tqdm(
        total=sum(task.epochs for task in tasks.values()),
        desc=f"seed {seed}",
        unit="epoch",
        disable=None if config.folder else True,
    )

    def tick(method: str) -> None:
        bar.set_postfix_str(method, refresh=False)
        bar.update()

    scores = {name: _scores(config, task, "test", tick) for name, task in tasks.items()}
    bar.close()
    shown = {name: score.pop("picture") for name, score in scores.items()}
    cpu_seconds = sum(score["cpu_seconds"] for score in scores.values())  # of the trainings
    return {**scores, "cpu_seconds": cpu_seconds, "picture": shown}


def _rows(config: Config) -> int:
    return 1297 if config.dataset == "digits" else 60_000


def claims(config: Config, runs: list[dict[str, Any]]) -> list[Claim]:
    return judged.claims(config.dataset, config.few_classes, runs)


def tables(config: Config, runs: list[dict[str, Any]]) -> str:
    """Medians over the seeds, what the columns mean, and the settings chosen."""
    return "\n".join([judged.table(runs), judged.COLUMNS_MEAN, _chosen(config)])


def _chosen(config: Config) -> str:
    parts = []
    for method, setting in config.chosen.items():
        told = {k: v for k, v in setting.items() if v != getattr(Setting(), k)}
        parts.append(f"{method}: {', '.join(f'{k} {v:g}' for k, v in told.items()) or 'defaults'}")
    return f"Chosen on validation rows, among {len(TRIALS['IGL'])} settings each: {'; '.join(parts)}.\n"


def draw(config: Config, runs: list[dict[str, Any]]) -> Figure:
    cpu = {name: median(run[name]["cpu_seconds"] for run in runs) for name in METHODS}
    return pictures.draw(runs[0]["picture"], cpu)
