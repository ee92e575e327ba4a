"""Every option of every estimator changes the fit, has the effect it promises, or is refused.

Options are enumerated from the signatures: a new one fails here until it has a value to try.
"""

import warnings
from inspect import signature
from threading import get_ident

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import KFold
from torch import nn

from greenfold import (
    IGLAutoencoder,
    IGLClassifier,
    IGLHead,
    IGLRegressor,
    IGLStack,
    IGLStackClassifier,
    Source,
    Training,
    stream,
    tune,
)
from greenfold.estimators.options import OPTIONS, STREAM_ARGUMENTS, defaults_on_one_level
from greenfold.estimators.streaming import Streaming
from greenfold.learn import race
from tests.nested import nested

rng = np.random.default_rng(0)
X = rng.uniform(-2, 2, (60, 3))
y = np.abs(X[:, 0]) + np.sign(X[:, 1]) + 0.3 * rng.normal(size=60)
labels = np.where(y + 0.5 * rng.normal(size=60) > 1.0, "high", "low")


def ignore(epoch):
    """A callback."""


ESTIMATORS = [IGLRegressor, IGLClassifier, IGLAutoencoder, IGLStack, IGLStackClassifier]

# Valid values other than the default. Where two are given, either may be refused alone.
OTHER = {
    "alpha": [0.5, "loo"],
    "anchors": ["free"],
    "atoms": ["gabor", "hat"],
    "callbacks": [[ignore]],
    "channels": [True, [7.0, 1.0, 4.0]],
    "chart": ["axis", "mlp"],
    "class_weight": ["balanced"],
    "cv": [3, KFold(4)],
    "effort": ["fast", "normal"],
    "gamma": ["learned"],
    "gates": ["learned"],
    "hidden": [(5,)],
    "image_shape": [(1, 3)],
    "likelihood": ["student_t"],
    "loss": ["ordinal", "least_squares"],
    "max_iter": [1],
    "mode": ["joint"],
    "n_atoms": [7],
    "n_dims": [1],
    "n_jobs": [2],
    "n_restarts": [3],
    "objective": ["gcv", "log_mse"],
    "operator": ["cauchy"],
    "optimizer": ["adam"],
    "pull": [10.0],
    "random_state": [1],
    "shape": [(1, 1, 3)],
    "sparsity": [0.3, "importance"],
    "start": ["pca", "isomap"],
    "verbose": [1],
}

# Values that nothing takes.
WRONG = {
    "alpha": ["nonsense", -1.0, np.nan, np.inf, None, True],
    "anchors": ["nonsense", None],
    "atoms": ["nonsense", None, nn.Identity, "gauss_hermite"],
    "callbacks": [5, [5], (ignore for _ in range(1))],
    "channels": [3, "yes", [1.0, 2.0, np.nan], [1.0, 1.0, 2.0], [1.0, 2.0]],
    "chart": ["nonsense", None, 3],
    "class_weight": ["nonsense", 3],
    "cv": [1, 2.5, "many", True],
    "effort": ["bogus", None, 3],
    "gamma": ["nonsense", 1.0],
    "gates": ["nonsense", True],
    "hidden": [0, (0,), "wide", (2.5,)],
    "image_shape": [3, (3,), (1, 0), True, (2, 2)],
    "likelihood": ["normal", None, 3],
    "loss": ["hinge", None],
    "max_iter": [-3, 2.5, np.nan],
    "mode": ["nonsense", None],
    "n_atoms": [0, -4, 2.5, "many"],
    "n_dims": [-7, 0, 1.5, "many", True],
    "n_jobs": [0, 1.5],
    "n_restarts": [0, -1, 1.5],
    "objective": ["nonsense", None],
    "operator": ["nonsense", None, nn.Identity()],
    "optimizer": ["x", None],
    "pull": [-1.0, np.nan, "hard"],
    "random_state": ["seed", -1],
    "shape": [3, (3, 3), (1, 0, 3)],
    "sparsity": [-0.1, 1.0, np.nan, "lasso", None],
    "start": ["tsne", 3],
    "verbose": [-1, "loud"],
}

QUICK = {"n_atoms": 12, "max_iter": 4}


def module():
    torch.manual_seed(0)
    return nn.Linear(3, 2, dtype=torch.float64)


REGRESSORS = {
    "auto": {},
    "linear": {"chart": "linear", **QUICK},
    "mlp": {"chart": "mlp", **QUICK},
    "axis": {"chart": "axis", **QUICK},
    "module": {"chart": module, **QUICK},
    "joint": {"chart": "linear", "mode": "joint", **QUICK},
    "started": {"chart": "mlp", "start": "pca", **QUICK},
    "restarted": {"chart": "mlp", "n_restarts": 2, **QUICK},
    "adam": {"chart": "linear", "optimizer": "adam", **QUICK},
    "free": {"chart": "linear", "anchors": "free", **QUICK},
}
CLASSIFIERS = {
    "auto": {},
    "linear": {"chart": "linear", **QUICK},
    "axis": {"chart": "axis", **QUICK},
    "free": {"chart": "linear", "anchors": "free", **QUICK},
    "squares": {"chart": "mlp", "loss": "least_squares", **QUICK},
}
AUTOENCODERS = {
    "mlp": QUICK,
    "plain": {"start": None, **QUICK},
    "axis": {"chart": "axis", "n_dims": 2, **QUICK},
}
CASES = {
    (estimator, name): settings
    for estimator, group in (
        (IGLRegressor, REGRESSORS),
        (IGLClassifier, CLASSIFIERS),
        (IGLAutoencoder, AUTOENCODERS),
        (IGLStack, {"default": {}}),
        (IGLStackClassifier, {"default": {}}),
    )
    for name, settings in group.items()
}


def fit(estimator, settings):
    settings = {k: v() if v is module else v for k, v in settings.items()}
    settings = {"chart": "mlp", **settings} if estimator is IGLAutoencoder else settings
    model = estimator(**nested(**{"random_state": 0, **settings}))
    target = labels if hasattr(estimator, "predict_proba") else y
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(X, target)


def predicted(model):
    return model.predict_proba(X) if hasattr(model, "classes_") else model.predict(X)


@pytest.fixture(scope="module")
def base():
    made = {}

    def make(case):
        if case not in made:
            made[case] = fit(case[0], CASES[case])
        return made[case]

    return make


# --- what options do that predictions do not show: (case, value, base, tools) → did it?


def calls(case, **options):
    seen = []
    fit(case[0], {**CASES[case], **options, "callbacks": [lambda epoch: seen.append(get_ident())]})
    return seen


def speaks(case, value, base, capsys, monkeypatch):
    capsys.readouterr()
    fit(case[0], {**CASES[case], "verbose": value})
    return bool(capsys.readouterr().err)


def shares_work(case, value, base, capsys, monkeypatch):
    if CASES[case].get("chart", "auto") != "auto":
        return len(set(calls(case, n_jobs=value))) > 1
    asked, threads = [], race.Parallel
    monkeypatch.setattr(
        race, "Parallel", lambda n_jobs, **k: asked.append(n_jobs) or threads(n_jobs, **k)
    )
    fit(case[0], {**CASES[case], "n_jobs": value})
    return set(asked) == {value}


def judges_another_way(case, value, base, *_):
    """What is known of rows left out is another, whatever is predicted."""
    one, other = base(case), fit(case[0], {**CASES[case], "cv": value})
    known = [[s.score for s in m.standings_] for m in (one, other)]
    if hasattr(one, "predict_interval"):
        known = [[*scores, *m.predict_interval(X)[0]] for scores, m in zip(known, (one, other))]
    return len(known[0]) != len(known[1]) or not np.allclose(*known, rtol=1e-9, equal_nan=True)


def races_another_way(name):
    """The model in use may be the same; what competed, or how it did, is not."""

    def did(case, value, base, *_):
        one, other = base(case), fit(case[0], {**CASES[case], name: value})
        raced = [[(s.name, s.score) for s in m.standings_] for m in (one, other)]
        return raced[0] != raced[1] or not np.allclose(predicted(one), predicted(other), rtol=1e-9)

    return did


EFFECTS = {
    "channels": races_another_way("channels"),
    "effort": races_another_way("effort"),
    "image_shape": races_another_way("image_shape"),
    "random_state": races_another_way("random_state"),
    "callbacks": lambda case, *_: len(calls(case)) > 0,
    "n_jobs": shares_work,
    "cv": judges_another_way,
    "n_restarts": lambda case, value, *_: len(calls(case, n_restarts=value)) > len(calls(case)),
    "verbose": speaks,
}
# Charts that begin at principal components or equal scales have nothing random about them.
MEANS = {"auto": "isomap"}  # what the start of an autoencoder is
NOT_RANDOM = {"linear", "axis", "joint", "module", "adam", "free"}


# as long as the others, and of other options than theirs only in a few
RACES = {  # many of them
    (IGLClassifier, "auto"),
    (IGLRegressor, "auto"),
    (IGLStack, "default"),
    (IGLStackClassifier, "default"),
}
LONG = {"restarted", "started", "module", "adam", "squares", "plain", "axis", "free", "joint"}


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=pytest.mark.slow) if case[1] in LONG or case in RACES else case
        for case in CASES
    ],
    ids=lambda case: f"{case[0].__name__}-{case[1]}",
)
def test_every_option_changes_the_fit_or_is_refused(case, base, capsys, monkeypatch):
    estimator, context = case
    idle = []
    for name, default in defaults_on_one_level(estimator).items():
        if name == "random_state" and context in NOT_RANDOM:
            continue
        for value in OTHER[name]:
            usual = CASES[case].get(name, default)
            if value == (MEANS if estimator is IGLAutoencoder else {}).get(usual, usual):
                continue
            try:
                if name in EFFECTS:
                    did = EFFECTS[name](case, value, base, capsys, monkeypatch)
                else:
                    other = predicted(fit(estimator, {**CASES[case], name: value}))
                    did = not np.allclose(other, predicted(base(case)), rtol=1e-9, atol=1e-12)
            except ValueError as error:
                did = name in str(error)  # as it was typed
            if not did:
                idle.append(f"{name}={value!r}")
    assert not idle


@pytest.mark.parametrize(
    "estimator", [IGLRegressor, IGLClassifier, IGLAutoencoder, IGLStack, IGLStackClassifier]
)
@pytest.mark.parametrize("context", [{}, {"chart": "linear"}], ids=["default", "given"])
def test_values_that_nothing_takes_are_refused(estimator, context):
    names = defaults_on_one_level(estimator)
    context = {k: v for k, v in {"chart": names.get("chart"), **context}.items() if k in names}
    target = labels if hasattr(estimator, "predict_proba") else y
    for name in names:
        for value in WRONG[name]:
            with pytest.raises(
                (ValueError, TypeError), match=r"must be|needs|cannot be used to seed|Seed"
            ):
                estimator(**nested(**{**context, name: value})).fit(X, target)


def test_the_table_has_every_option_and_no_other():
    assert set(OPTIONS) == {name for e in ESTIMATORS for name in defaults_on_one_level(e)}
    arguments = set(signature(Streaming.fit_stream).parameters) - {"self", "source", "target"}
    assert set(STREAM_ARGUMENTS) == arguments


REFUSED = [
    ({"n_dims": "auto"}, "n_dims='auto' needs a given chart"),
    ({"operator": "poisson"}, "operator=Poisson needs a given chart"),
    ({"chart": "linear", "effort": "full"}, "effort='full' needs chart='auto'"),
    ({"chart": "linear", "pull": 1.0}, "pull=1.0 needs a `start`"),
    ({"chart": "linear", "mode": "joint", "alpha": 0.1}, "alpha=0.1 needs mode='two-stage'"),
    ({"chart": "linear", "mode": "joint", "sparsity": 0.1}, "sparsity=0.1 needs mode='two-stage'"),
    ({"chart": "linear", "mode": "joint", "objective": "loo"}, "'loo' needs mode='two-stage'"),
    ({"chart": "axis", "n_dims": 2}, "does not imply its dimension"),
    ({"chart": "linear", "atoms": "gabor"}, "atoms='gabor' needs anchors='free' or 'grid'"),
    (
        {"chart": "linear", "anchors": "free", "operator": "anova"},
        "anchors='free' needs another operator than Anova: sources must be Point",
    ),
    (
        {"chart": "linear", "anchors": "grid", "atoms": "gabor", "operator": "product_screened"},
        "atoms='gabor' needs another operator than ProductScreened: no closed form for Gabor",
    ),
    ({"chart": "linear", "n_jobs": 2}, "n_jobs=2 needs n_restarts above 1"),
]


@pytest.mark.parametrize(("options", "words"), REFUSED, ids=lambda v: repr(v))
def test_what_would_do_nothing_is_refused_with_a_reason(options, words):
    with pytest.raises(ValueError, match=words):
        IGLRegressor(**nested(**options)).fit(X, y)


def test_nothing_is_checked_before_fit():
    IGLRegressor(chart="nonsense", training=Training(max_iter=-3)).set_params(effort="bogus")


# --- streams, tasks, heads, tune

STREAM_OTHER = {
    "target": 0,
    "epochs": 1,
    "steps": 1,
    "batch_size": 8,
    "sample": 30,
    "blocks": 3,
    "checkpoint": None,  # see `test_streams.py`
    "every": 1,
    "deterministic": True,
    "first_decides": True,
    "timeout": 5.0,
    "route": "passes",
}
# what processes share work by, and how the same source is found: rows are summed in another order
SAME = {"checkpoint", "deterministic", "first_decides", "timeout", "blocks", "route"}


@pytest.mark.parametrize("chart", ["auto", "linear"])
def test_every_argument_of_fit_stream_changes_the_fit_or_is_refused(chart):
    settings = {"chart": chart, "n_atoms": 12, "random_state": 0}

    def streamed(**arguments):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return IGLRegressor(**nested(**settings)).fit_stream((X, y), **arguments).predict(X)

    # several steps in an epoch, where there are epochs
    few = {} if chart == "auto" else {"batch_size": 16, "blocks": 2}
    usual = streamed(**few)
    for name in list(signature(Streaming.fit_stream).parameters)[2:]:
        try:
            other = streamed(**few | {name: STREAM_OTHER[name]})
            did = name in SAME or not np.allclose(other, usual, rtol=1e-9)
        except ValueError as error:
            did = name in str(error)
        assert did, name


@pytest.mark.parametrize(
    ("settings", "arguments", "words"),
    [
        ({}, {"epochs": 2}, "epochs=2 needs a given chart"),
        ({"chart": "linear"}, {"every": 3}, "every=3 needs a `checkpoint`"),
        ({"chart": "linear"}, {"epochs": 0, "steps": 3}, "steps=3 needs epochs above 0"),
        ({"chart": "linear", "max_iter": 5}, {}, "max_iter=5 needs a `start`"),
        (
            {"chart": "linear", "cv": 3, "loss": "least_squares"},
            {},
            "cv=3 needs all rows in memory",
        ),
        ({}, {"timeout": 0}, "`timeout` must be a number above 0"),
        ({}, {"target": "y"}, "`target` and `columns` name columns of files"),
    ],
    ids=repr,
)
def test_streams_refuse_what_they_would_ignore(settings, arguments, words):
    kind = IGLClassifier if "loss" in settings else IGLRegressor
    with pytest.raises(ValueError, match=words):
        kind(**nested(**settings)).fit_stream((X, labels if "loss" in settings else y), **arguments)


def test_streams_of_arrays_have_no_columns_to_name():
    with pytest.raises(ValueError, match="name columns of files"):
        stream((X, y), columns=["a"])


@pytest.mark.parametrize(
    "options",
    [
        {"n_dims": 3},
        {"chart": "linear", "n_dims": "auto"},
        {"chart": "linear", "start": "pca"},
        {"chart": "linear", "n_restarts": 2},
        {"optimizer": "adam"},
        {"sparsity": 0.2},
    ],
    ids=repr,
)
def test_tasks_refuse_what_they_would_ignore(options):
    with pytest.raises(ValueError, match=f"{list(options)[-1]}=.* needs"):
        IGLRegressor(**nested(**options)).fit_tasks([(X, y)])


def test_a_given_strength_holds_for_a_new_target():
    weak, strong = (
        IGLRegressor(**nested(chart="linear", alpha=alpha, **QUICK)).fit(X, y).refit_source(X, y**2)
        for alpha in (1e-3, 10.0)
    )
    assert weak.alpha_ == pytest.approx(1e-3)
    assert strong.alpha_ == pytest.approx(10.0)


def test_adam_takes_no_more_epochs_than_it_is_given():
    model = IGLRegressor(
        chart="linear", source=Source(n_atoms=10), training=Training(optimizer="adam", max_iter=2)
    ).fit(X, y)
    assert len(model.history_.loss) == 2


HEAD = {
    "n_dims": (5, [0, 1.5, None]),
    "n_outputs": (3, [0, "two"]),
    "operator": ("cauchy", ["bogus", 1.0]),
    "atoms": (6, [0, -1, "many"]),
    "gates": (False, ["learned", None]),
    "task": ("regression", ["ranking"]),
    "loss": ("cross-entropy", ["hinge"]),
    "n_steps": (2, [0, 3]),
    "mode": ("joint", ["alternating"]),
    "alpha": (0.5, [0.0, -1.0, np.nan]),
    "decay": (0.5, [1.0, -0.1, np.nan]),
}


@pytest.mark.parametrize("mode", ["two-stage", "joint"])
def test_every_option_of_a_head_changes_it_or_is_refused(mode):
    z, codes = torch.randn(40, 5, generator=torch.Generator().manual_seed(0)), torch.arange(40) % 2

    def trained(**options):
        settings = {"n_dims": 4, "n_outputs": 2, "mode": mode, **options}
        torch.manual_seed(0)
        head = IGLHead(**settings)
        part = z[:, : settings["n_dims"]]
        goal = (
            codes if settings.get("task") != "regression" else nn.functional.one_hot(codes).float()
        )
        goal = goal if settings["n_outputs"] == 2 else torch.arange(40) % 3
        optimizer = torch.optim.Adam(head.parameters(), lr=1e-2)
        for _ in range(3):
            optimizer.zero_grad()
            (head.loss(part, goal) + 1e-2 * head.gate_norm()).backward()
            optimizer.step()
        if mode == "joint" and "alpha" in options:  # it is for the solve at the end
            head.solve([(part, goal)])
        return head.eval()(part).detach()

    usual = trained()
    for name in signature(IGLHead).parameters:
        value, wrong = HEAD[name]
        for bad in wrong:
            with pytest.raises(ValueError, match=f"`{name}` must be"):
                IGLHead(**{"n_dims": 4, "n_outputs": 2, name: bad})
        if name == "mode" and value == mode:
            continue
        try:
            other = trained(**{name: value})
            did = other.shape != usual.shape or not torch.equal(other, usual)
        except ValueError as error:
            did = any(f"{option} needs" in str(error) for option in ("decay=0.5", "n_steps=2"))
        assert did, name


@pytest.mark.parametrize(
    "arguments",
    [
        {"budget": "soon"},
        {"budget": -1},
        {"task": "bogus"},
        {"verbose": -1},
        {"random_state": "seed"},
    ],
    ids=repr,
)
def test_tune_refuses_what_it_does_not_know(arguments):
    assert set(arguments) < set(signature(tune).parameters)
    with pytest.raises(ValueError, match=r"|".join([*arguments, "seed"])):
        tune(X, y, **arguments)
