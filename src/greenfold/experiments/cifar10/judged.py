"""What is asked of the head on CIFAR-10, and the table, from the scores of all seeds."""

from statistics import median
from typing import Any

from greenfold.experiments.cifar10.networks import METHODS
from greenfold.experiments.claims import Claim

OURS, PLAIN, JOINT = "two-stage", "cross-entropy", "joint"
NEWTON = "two-stage, cross-entropy"
COLUMNS = {
    "accuracy": "accuracy",
    "probe": "probe",
    "ece": "ECE",
    "ece_scaled": "ECE, scaled",
    "log_loss": "log-loss",
    "silhouette": "silhouette",
    "silhouette_gated": "silhouette, gated",
    "dims": "dims",
    "mse": "MSE",
    "cpu_seconds": "CPU-s",
}
COLUMNS_MEAN = """\
Pictures are a fifth of CIFAR-10, 1000 of each class to learn from (of which some are held out to tune
by) and 200 to be judged by, recompressed as JPEG: **lossy**, so that numbers are not those of the
original pictures. Medians over the seeds, on test rows. *Accuracy*: of the method's own logits.
*Probe*: of logistic regression on the codes. *ECE*: expected calibration error in 15 bins; *scaled*:
with the temperature that suits the rows held out best. A squared residual has no scale of its own, so
that both are one for a head solved or learned by it. *Silhouette*: of the true classes in the codes;
*gated*: in √g·h, as the head sees them, which without a head are the codes. *Dims*: gates that are not
exactly zero.
"""


def table(runs: list[dict[str, Any]]) -> str:
    lines = [f"| | {' | '.join(COLUMNS.values())} |", f"|---{'|---' * len(COLUMNS)}|"]
    for method in METHODS:
        cells = []
        for name in COLUMNS:
            values = [run[method][name] for run in runs if name in run[method]]
            places = {"dims": 0, "cpu_seconds": 0, "mse": 4}.get(name, 3)
            cells.append(f"{median(values):.{places}f}" if values else "")
        lines.append(f"| {method} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def claims(runs: list[dict[str, Any]]) -> list[Claim]:
    """The paper names CIFAR-10 as future work and has no numbers: the values asked for are ours."""

    def of(method: str, score: str) -> list[float]:
        return [run[method][score] for run in runs]

    def less(score: str, a: str, b: str) -> list[float]:
        return [x - y for x, y in zip(of(a, score), of(b, score), strict=True)]

    def over(a: list[float], b: list[float]) -> list[float]:
        return [x / max(y, 1e-12) for x, y in zip(a, b, strict=True)]

    where, none = "Future work: larger images", "no number"
    right, beside = less("accuracy", OURS, PLAIN), less("accuracy", OURS, JOINT)
    apart = [
        a - b for a, b in zip(of(OURS, "silhouette_gated"), of(PLAIN, "silhouette"), strict=True)
    ]
    sure = over(of(OURS, "ece"), of(PLAIN, "ece"))
    sure_scaled = over(of(OURS, "ece_scaled"), of(PLAIN, "ece_scaled"))
    cost = [c - 1 for c in over(of(OURS, "cpu_seconds"), of(PLAIN, "cpu_seconds"))]
    drawn = over(of("AE + two-stage", "mse"), of("AE", "mse"))
    known = less("probe", "AE + two-stage", "AE")
    return [
        Claim(
            where, "accuracy of the two-stage head less that of a linear head with cross-entropy", none,
            right, median(right) >= 0,
            f"{median(of(OURS, 'accuracy')):.3f} against {median(of(PLAIN, 'accuracy')):.3f}; two-stage "
            f"with cross-entropy by Newton steps has {median(of(NEWTON, 'accuracy')):.3f}.",
            mark=0.0, small=False,
        ),
        Claim(
            where, "the same less that of joint training", "better", beside, median(beside) > 0,
            "Same columns and same loss; only how w is found differs.", small=False,
        ),
        Claim(
            where, "ECE of the two-stage head over that of the linear head as trained", none, sure,
            median(sure) <= 0.5,
            "The two-stage head has its temperature from the rows held out, the linear head none.",
            mark=0.5,
        ),
        Claim(
            where, "the same when both have a temperature from the rows held out", none, sure_scaled,
            median(sure_scaled) <= 0.5,
            f"ECE {median(of(OURS, 'ece_scaled')):.3f} against {median(of(PLAIN, 'ece_scaled')):.3f}.",
        ),
        Claim(
            where, "silhouette of the classes in gated codes less that in the codes of the linear head",
            none, apart, median(apart) >= 0.15,
            f"{median(of(OURS, 'silhouette_gated')):.3f} in {median(of(OURS, 'dims')):g} coordinates "
            f"against {median(of(PLAIN, 'silhouette')):.3f}.", mark=0.15, small=False,
        ),
        Claim(
            where, "CPU time of training with the two-stage head over that with the linear one, less 1",
            none, cost, max(map(abs, cost)) <= 0.1, "Same encoder, rows and epochs.", mark=0.1,
        ),
        Claim(
            where, "autoencoder: accuracy of a probe with the head less without", none, known,
            median(known) > 0, "The head pulls classes apart in codes that also draw the picture.",
            small=False,
        ),
        Claim(
            where, "autoencoder: MSE of the pictures with the head over that without", none, drawn,
            median(drawn) <= 1.1, "What it costs the drawing.",
        ),
    ]  # fmt: skip
