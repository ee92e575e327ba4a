"""The paper's sentences on Exp. 7 and its table, from the scores of all seeds."""

from statistics import median
from typing import Any

from greenfold.experiments.claims import Claim
from greenfold.experiments.exp7.networks import METHODS, has_head

OURS, JOINT, MATCHED = "AE+IGL two-stage", "AE+IGL joint", "joint, same setting"
COLUMNS = {  # name of a score: heading
    "mse": "MSE",
    "mse_active": "MSE, active",
    "probe": "probe",
    "probe_gated": "probe, gated",
    "silhouette": "silhouette",
    "silhouette_gated": "silhouette, gated",
    "smoothness": "smoothness",
    "dims": "dims",
    "mse_train": "MSE, train",
    "probe_train": "probe, train",
    "silhouette_train": "silhouette, train",
    "silhouette_gated_train": "silhouette, gated, train",
    "cpu_seconds": "CPU-s",
}

COLUMNS_MEAN = """\
Medians over the seeds, on test rows unless said otherwise. *MSE*: the decoder sees all codes (gated
ones in the last two rows); *active*: a new decoder sees only the codes whose gates are not exactly
zero. *Probe*: accuracy of logistic regression on the codes, its strength chosen on a fifth of the
training rows. *Silhouette*: of the true classes in the codes h; *gated*: in √g·h, as the head sees
them. *Smoothness*: mean ‖p(t + 0.1) − p(t)‖₂ of the probe's probabilities along straight segments
between codes of random pairs; the paper has numbers and no definition. *Dims*: gates that are not
exactly zero, after those below 0.15 of the largest were cut at 70% of the training. Pictures are
moved by at most a pixel in training, for all methods.
"""


def table(runs: list[dict[str, Any]]) -> str:
    """A row per method, medians over the seeds, on the test rows unless said otherwise."""
    lines = [f"| | {' | '.join(COLUMNS.values())} |", f"|---{'|---' * len(COLUMNS)}|"]
    for method in METHODS:
        cells = []
        for name in COLUMNS:
            values = [run[method][name] for run in runs if name in run[method]]
            cells.append(_digits(name, median(values)) if values else "")
        lines.append(f"| {method} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _digits(name: str, value: float) -> str:
    places = {"dims": 0, "cpu_seconds": 0}.get(name, 4 if name.startswith(("mse", "probe")) else 3)
    return f"{value:.{places}f}"


def claims(dataset: str, few: int, runs: list[dict[str, Any]]) -> list[Claim]:
    """Of the table and the text around it. Its numbers are of MNIST and judged there; on other data only
    what it says of one method beside another is.
    """
    mnist = dataset == "mnist"

    def of(method: str, score: str) -> list[float]:
        return [run[method][score] for run in runs]

    def less(a: list[float], b: list[float]) -> list[float]:
        return [x - y for x, y in zip(a, b, strict=True)]

    def paper(text: str) -> str:
        return text if mnist else f"{text} (on MNIST)"

    probe, mse, dims = of(OURS, "probe"), of(OURS, "mse"), of(OURS, "dims")
    gated, ungated = of(OURS, "silhouette_gated"), of(OURS, "silhouette")
    active = of(OURS, "mse_active")
    rivals = [m for m in METHODS if not has_head(m)]
    smoother = [min(run[m]["smoothness"] for m in rivals) / run[OURS]["smoothness"] for run in runs]
    over_joint = less(gated, of(MATCHED, "silhouette_gated"))
    over_joint_plain = less(ungated, of(MATCHED, "silhouette"))
    over_tuned = less(gated, of(JOINT, "silhouette_gated"))
    matched = [a / b for a, b in zip(of(OURS, "residual"), of(MATCHED, "residual"), strict=True)]
    over_contrast = less(gated, of("AE+contrastive", "silhouette"))
    moved = [abs(d) for d in less(of("3× penalty", "dims"), dims)]
    fewer = of("fewer classes", "dims")
    both = of(f"{OURS}, gated decoder", "mse")
    text, where = "Exp. 7, text", "Exp. 7, table"
    numbers = [
        Claim(
            where,
            "two-stage: accuracy of a linear probe on the codes",
            "0.991",
            probe,
            median(probe) >= 0.991,
            "The squared residual of an optimal source sends classes to the corners of a simplex. "
            f"In the gated codes alone it is {median(of(OURS, 'probe_gated')):.4f}.",
            mark=0.991,
            small=False,
        ),
        Claim(
            where,
            "two-stage: silhouette of the classes in the gated codes",
            "0.630",
            gated,
            median(gated) >= 0.63,
            f"Gates leave the directions that tell classes apart; in all {len(runs[0][OURS]['gates'])} "
            f"codes it is {median(ungated):.3f}.",
            mark=0.76,
            small=False,
        ),
        Claim(
            where,
            "two-stage: MSE of the reconstruction",
            "0.0036",
            mse,
            median(mse) <= 0.0036,
            "The gates close coordinates to the head only, the decoder sees all of them; with the gated "
            f"code given to both it is {median(both):.4f}.",
            mark=0.0036,
        ),
        Claim(
            where,
            "the same when a new decoder sees only the coordinates with open gates",
            "0.0036, at 12 dims",
            active,
            median(active) <= 0.0036,
            "What tells classes apart does not suffice to draw a digit: soft gates are not a reduction "
            "of dimension for the decoder.",
        ),
        Claim(
            where,
            "two-stage: gates that are not exactly zero",
            "12 of 64",
            dims,
            min(dims) >= 9 and max(dims) <= 15,
            "Gates below 0.15 of the largest are cut at 70% of the training.",
            mark=15,
        ),
    ]
    beside = [
        Claim(
            where,
            "two-stage: change in the number of open gates under 3 times the gate penalty",
            "not given",
            moved,
            max(moved) <= 3,
            f"From {median(dims):g} to {median(of('3× penalty', 'dims')):g} in the median.",
        ),
        Claim(
            text,
            f"two-stage with {few} classes: open gates",
            "the data's dimension, 10–15, whatever the task",
            fewer,
            max(abs(d) for d in less(fewer, dims)) <= 2,
            f"With 10 classes {median(dims):g}; simplices of {few} and 10 corners have {few - 1} and 9 "
            "dimensions.",
        ),
        Claim(
            text,
            "silhouette of two-stage less that of joint training at the same setting, gated codes",
            paper("+0.160"),
            over_joint,
            min(over_joint) > 0,
            f"Same loss in both; the residual of two-stage is {median(matched):.2f} of joint's, the "
            "source solved for again at the end. With joint training tuned for itself the difference is "
            f"{median(over_tuned):+.3f} (worst {min(over_tuned):+.3f}).",
            small=False,
        ),
        Claim(
            text,
            "the same, all codes",
            paper("+0.160"),
            over_joint_plain,
            min(over_joint_plain) > 0,
            "Coordinates the head does not see are shaped by the reconstruction alone.",
            small=False,
        ),
        Claim(
            text,
            "silhouette of two-stage (gated) less that of contrastive training",
            paper("−0.114"),
            over_contrast,
            max(over_contrast) < 0,
            "The contrastive loss had the same number of settings to be tuned and the same "
            "reconstruction loss.",
            small=False,
        ),
        Claim(
            text,
            "two-stage is the smoothest: least smoothness of the others over its own",
            paper("1.14"),
            smoother,
            min(smoother) >= 1,
            "As defined here; the paper does not define it.",
            small=False,
        ),
    ]
    return [*numbers, *beside] if mnist else beside
