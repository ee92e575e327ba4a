"""Which option applies where: one table for all estimators, and what streams and tasks change in it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from torch import nn

from greenfold.channels import are_channels
from greenfold.estimators.likely import is_law
from greenfold.green.atoms import Point
from greenfold.green.base import Operator
from greenfold.green.operators import OPERATORS
from greenfold.learn.given import CHARTS, SOURCES, kind_of_atoms
from greenfold.learn.race import EFFORTS
from greenfold.likelihoods import NAMED
from greenfold.options import (
    Need,
    Option,
    Table,
    defaults_of,
    flag,
    integer,
    is_integer,
    number,
    one_of,
    refuse,
)
from greenfold.solve import OBJECTIVES
from greenfold.solve.criteria import STREAMED
from greenfold.solve.strength import CHOOSING
from greenfold.spec import SPECS, Settings, settings_of


def _is_chart(value: Any) -> bool:
    return isinstance(value, nn.Module) or (isinstance(value, str) and value in ("auto", *CHARTS))


def _is_operator(value: Any) -> bool:
    return isinstance(value, Operator) or (isinstance(value, str) and value in ("auto", *OPERATORS))


KINDS = {kind.name: kind for kind in SOURCES}  # of atoms


def _are_atoms(value: Any) -> bool:
    return any(value is kind for kind in SOURCES) or (
        isinstance(value, str) and value in ("auto", *KINDS)
    )


def _are_callbacks(value: Any) -> bool:
    """Not an iterator, which would be empty for the second start of a chart."""
    if value is None:
        return True
    if not isinstance(value, Iterable) or isinstance(value, Iterator):
        return False
    return all(callable(call) for call in value)


def _are_widths(value: Any) -> bool:
    return value is None or (
        isinstance(value, Sequence)
        and not isinstance(value, str)
        and all(is_integer(v, 1) for v in value)
    )


def _is_shape(value: Any) -> bool:
    return value is None or (_are_widths(value) and len(value) == 3)


def _is_image_shape(value: Any) -> bool:
    return value is None or value is False or (_are_widths(value) and len(value) in (2, 3))


def _are_splits(value: Any) -> bool:
    if isinstance(value, str | Iterator):
        return False
    return isinstance(value, Iterable) or hasattr(value, "split")


def _is_class_weight(value: Any) -> bool:
    return (
        value is None or isinstance(value, dict) or (isinstance(value, str) and value == "balanced")
    )


# --- what options need in order to act

OWN_AXES = ("axis", "warp")  # charts that keep the axes of the inputs
SCALED = (*OWN_AXES, "eigenmap")  # charts that learn scales and nothing else


def joint(settings: Settings) -> bool:
    return bool(settings.mode == "joint")


GIVEN = Need(lambda s: s.given, "a given chart, such as chart='linear': chart='auto' finds its own")
SEARCHED = Need(lambda s: not s.given, "chart='auto': a given chart is not searched for")
NORMAL = Need(
    lambda s: s.likelihood == "gaussian",
    "likelihood='gaussian': under others rows left out choose the penalty, and Newton's method solves",
)
NUMBERS = Need(
    lambda s: not s.classifies,
    "numbers to predict: charts for classes learn by their evidence, and rows left out choose penalties",
)
COUNTED = Need(
    lambda s: s.given or s.n_dims != "auto",
    "a given chart, such as chart='linear': chart='auto' finds its own; or a number",
)
FREE_DIMS = Need(
    lambda s: isinstance(s.chart, str) and s.chart not in OWN_AXES and not s.as_given,
    "a chart that does not imply its dimension, such as chart='linear', 'mlp', 'pca' or 'conv'",
)
NO_SCALES = Need(
    lambda s: not isinstance(s.chart, str) or s.chart not in SCALED,
    "a chart that does not scale every axis, where a gate would be undone by its scale (the scales are "
    "the gates): chart='linear', 'mlp' or 'pca'",
)
TWO_STAGE = Need(lambda s: not joint(s), "mode='two-stage': joint training solves for nothing")
STARTED = Need(
    lambda s: s.start is not None and (s.start != "auto" or (s.rebuilds and s.chart not in SCALED)),
    "a `start` to pull to",
)
TURNED = Need(
    lambda s: s.start in (None, "auto") or s.chart not in SCALED,
    "a chart whose axes turn, such as 'linear', 'mlp' or 'pca': this one keeps those of the inputs, "
    "and its scales would vanish",
)
ELSEWHERE = Need(
    lambda s: s.start != "pca" or s.chart not in ("linear", "pca") or s.pull > 0 or s.rebuilds,
    "a chart that begins elsewhere: this one begins there by itself; or `pull`, to stay near",
)
RESTARTED = Need(
    lambda s: not s.given or s.n_restarts > 1,
    "n_restarts above 1: the starts of a given chart are what it trains side by side",
)
HIDDEN = Need(lambda s: s.chart in ("mlp", "pca"), "a chart with hidden layers: 'mlp' or 'pca'")
IMAGES = Need(lambda s: s.chart == "conv", "chart='conv'")
ANY_KERNEL = Need(
    lambda s: s.operator == "auto",
    "operator='auto': charts of channels and of pictures have kernels of their own",
)
CONVOLVED = Need(
    lambda s: s.effort != "fast" and s.n_dims is None and s.loss != "ordinal",
    "effort='normal' or 'full', no `n_dims`, and classes without an order: there convolutions compete, "
    "with ten coordinates",
)
NOT_REBUILT = Need(lambda s: not s.rebuilds, "a target")
LEARNED = Need(
    lambda s: s.chart != "auto",
    "a chart that is learned: a Product takes columns as they are unless `chart` is given",
)
A_TARGET = Need(
    lambda s: (s.given and s.chart != "auto") or not s.rebuilds,
    f"a target; to rebuild the data choose one of {sorted(CHARTS)}",
)
JOINT_OBJECTIVE = Need(
    lambda s: not joint(s) or s.objective == "log_mse",
    "mode='two-stage': joint training descends the mean squared residual, or its logarithm with "
    "objective='log_mse'",
)
JOINT_SPARSITY = Need(
    lambda s: not joint(s) or s.sparsity == "importance",
    "mode='two-stage': joint training solves for nothing that could be pruned",
)
JOINT_GAMMA = Need(
    lambda s: not joint(s) or s.gamma != "alternating",
    "mode='two-stage': it is solved for in turn with the source, and joint training solves for neither",
)
CLASS_GAMMA = Need(
    lambda s: not s.classifies or s.gamma != "alternating",
    "numbers to predict: it is solved for in turn with the source by least squares",
)
UNTIED = Need(
    lambda s: kind_of_atoms(s) is Point or s.anchors != "tied",
    "anchors='free' or 'grid': tied ones are points, since rows have no width that moves with the chart",
)
IMPORTANCE = Need(lambda s: s.sparsity != "importance" or s.given, GIVEN.words)

# --- all options of all estimators

OPTIONS: dict[str, Option] = {
    "alpha": number(0.0, *CHOOSING).needing(NUMBERS, NORMAL, TWO_STAGE),
    "anchors": one_of("tied", "free", "grid").needing(GIVEN),
    "atoms": Option(
        _are_atoms, f"'auto', one of {sorted(KINDS)}, or such a class of atoms", (GIVEN, UNTIED)
    ),
    "callbacks": Option(_are_callbacks, "a list of callables, or None", (GIVEN,)),
    "channels": Option(
        are_channels,
        "True, False, None, or a number for each column, all different, such as its wavelength",
        (SEARCHED, ANY_KERNEL),
    ),
    "chart": Option(
        _is_chart,
        f"'auto', one of {sorted(CHARTS)}, or an nn.Module from (n, D) to (n, d)",
        (A_TARGET,),
    ),
    "class_weight": Option(_is_class_weight, "None, 'balanced', or a dict from classes to weights"),
    "cv": Option(
        lambda v: v is None or is_integer(v, 2) or _are_splits(v),
        "a whole number of at least 2, a splitter of scikit-learn, pairs of rows, or None",
    ),
    "effort": one_of(*EFFORTS).needing(SEARCHED),
    "gamma": one_of("fixed", "learned", "free", "alternating").needing(
        GIVEN, JOINT_GAMMA, CLASS_GAMMA
    ),
    "gates": one_of("open", "learned").needing(GIVEN, NO_SCALES),
    "hidden": Option(
        _are_widths, "whole numbers of at least 1, such as (64, 64), or None", (HIDDEN,)
    ),
    "image_shape": Option(
        _is_image_shape,
        "(height, width) or (channels, height, width), False, or None",
        (SEARCHED, ANY_KERNEL, CONVOLVED),
    ),
    "likelihood": Option(
        is_law, f"one of {sorted(NAMED)}, or a likelihood of `greenfold.likelihoods`", ()
    ),
    "loss": one_of("auto", "cross_entropy", "ordinal", "least_squares"),
    "max_iter": integer(0, None).needing(GIVEN),
    "mode": one_of("two-stage", "joint").needing(GIVEN, NUMBERS, NORMAL, NOT_REBUILT),
    "n_atoms": integer(1, None),
    "n_dims": integer(1, "auto", None).needing(COUNTED, FREE_DIMS),
    "n_jobs": Option(
        lambda v: v is None or (is_integer(v, -(2**31)) and v != 0),
        "a whole number other than 0, or None",
        (RESTARTED,),
    ),
    "n_restarts": integer(1).needing(GIVEN, LEARNED),
    "objective": one_of(*sorted(OBJECTIVES)).needing(GIVEN, NUMBERS, JOINT_OBJECTIVE),
    "operator": Option(_is_operator, f"'auto', one of {sorted(OPERATORS)}, or an Operator"),
    "optimizer": one_of("auto", "lbfgs", "adam").needing(GIVEN, NUMBERS),
    "pull": number(0.0).needing(GIVEN, STARTED, TWO_STAGE),
    "random_state": Option(lambda value: True, "a seed"),  # scikit-learn checks it
    "shape": Option(
        _is_shape, "three whole numbers, (channels, height, width), or None", (IMAGES,)
    ),
    "sparsity": number(0.0, "importance", below=1.0).needing(
        NUMBERS, NORMAL, IMPORTANCE, JOINT_SPARSITY
    ),
    "start": one_of(None, "pca", "isomap", "auto").needing(GIVEN, LEARNED, TURNED, ELSEWHERE),
    "verbose": Option(
        lambda v: isinstance(v, bool) or is_integer(v, 0), "a whole number of at least 0"
    ),
}

# --- what changes when rows come as a stream, or as several tasks

Needs = Mapping[str, tuple[Need, ...]]

IN_MEMORY = Need(lambda s: False, "all rows in memory, which a stream does not have")
STREAM: Needs = {
    "alpha": (Need(lambda s: s.alpha != "loo", "all rows in memory; choose 'evidence' or 'gcv'"),),
    "cv": (IN_MEMORY,),
    "gamma": (GIVEN, Need(lambda s: s.gamma != "alternating", IN_MEMORY.words)),
    "likelihood": (IN_MEMORY,),
    "loss": (Need(lambda s: s.loss != "ordinal", IN_MEMORY.words),),
    "max_iter": (
        GIVEN,
        Need(
            lambda s: s.start not in (None, "auto"),
            "a `start`: streams are trained for `epochs`",
        ),
    ),
    "mode": (IN_MEMORY,),
    "n_jobs": (SEARCHED,),
    "n_restarts": (IN_MEMORY,),
    "objective": (
        GIVEN,
        Need(lambda s: s.objective in STREAMED, f"all rows at once; streams have {STREAMED}"),
    ),
    "optimizer": (
        GIVEN,
        Need(lambda s: s.optimizer == "adam", "all rows in memory; streams are fitted by Adam"),
    ),
    "pull": (IN_MEMORY,),
    "sparsity": (IN_MEMORY,),
}

ALONE = Need(lambda s: False, "a single task: use `fit`")
TASKS: Needs = {
    "callbacks": (),  # without a given chart tasks share a linear one, which is trained
    "channels": (ALONE,),
    "cv": (ALONE,),
    "likelihood": (NORMAL,),
    "max_iter": (),
    "mode": (ALONE,),
    "n_dims": (
        GIVEN,
        FREE_DIMS,
        Need(lambda s: s.n_dims != "auto", "a single task to count for: give it a number"),
    ),
    "n_jobs": (ALONE,),
    "operator": (GIVEN,),
    "n_restarts": (ALONE,),
    "objective": (),
    "optimizer": (ALONE,),
    "pull": (ALONE,),
    "sparsity": (Need(lambda s: s.sparsity == "importance", ALONE.words), GIVEN),
    "start": (ALONE,),
}


def defaults_on_one_level(kind: type) -> dict[str, Any]:
    """Of all options of a kind of estimator."""
    defaults = defaults_of(kind)
    for name in [name for name in SPECS if name in defaults]:
        chart = defaults.pop(name)
        defaults |= {k: v for k, v in defaults_of(SPECS[name]).items() if k != "kind"}
        if name == "chart":
            defaults[name] = chart
    return defaults


def check(estimator: Any, instead: Needs | None = None) -> None:
    """Refuse options that are wrong or would do nothing; `instead` has other needs of some of them."""
    settings, defaults = settings_of(estimator), defaults_on_one_level(type(estimator))
    table = {name: OPTIONS[name] for name in defaults}
    for name in set(instead or {}) & set(table):
        table[name] = table[name].needing(*(instead or {})[name])
    values = {name: getattr(settings, name) for name in defaults}
    refuse(table, values, defaults, settings)


# --- arguments of fit_stream

TRAINED = Need(
    lambda s: settings_of(s.estimator).given, "a given chart: one that was found is not trained"
)
EPOCHS = Need(lambda s: s.epochs > 0, "epochs above 0")
KEPT = Need(lambda s: s.checkpoint is not None, "a `checkpoint` folder")
SETTLED = Need(
    lambda s: not settings_of(s.estimator).given or s.epochs == 0,
    "a chart that is not trained: chart='auto', or epochs=0",
)
LEAST_SQUARES = Need(
    lambda s: (
        not settings_of(s.estimator).classifies or settings_of(s.estimator).loss == "least_squares"
    ),
    "least squares: cross-entropy is solved for in passes as it is",
)
STREAM_ARGUMENTS: Table = {
    "epochs": integer(0).needing(TRAINED),
    "steps": integer(1, None).needing(TRAINED, EPOCHS),
    "batch_size": integer(1).needing(TRAINED, EPOCHS),
    "sample": integer(2),
    "blocks": integer(1),
    "checkpoint": Option(lambda value: True, "a path"),
    "every": integer(1).needing(KEPT, TRAINED, EPOCHS),
    "deterministic": flag(),
    "first_decides": flag(),
    "route": one_of("auto", "sums", "passes").needing(SETTLED, LEAST_SQUARES),
    "timeout": number(0.0, zero=False),
}
