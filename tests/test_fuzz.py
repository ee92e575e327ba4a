"""Random calls and files end in finite numbers and models, or in an error that says what is wrong."""

import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from greenfold import IGLAutoencoder, IGLClassifier, IGLRegressor
from tests.nested import nested

from . import hostile, random_fits

QUIET = {"deadline": None, "suppress_health_check": list(HealthCheck), "database": None}
KINDS = ["float64"] * 12 + ["float32", "int", "bool", "object", "text", "list"]
RARE = 60  # regressors given a chart for each that searches for one, which takes a second


@st.composite
def tables(draw, n_rows, n_columns):
    """(n, D) numbers of many types and sizes, some of them repeated, constant or not numbers."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    X = rng.normal(size=(n_rows, n_columns))
    sizes = st.sampled_from([0] * 10 + [-320, -300, -150, -8, 8, 150, 300, 308])
    powers = [draw(sizes)] * n_columns
    if draw(st.integers(0, 3)) == 0:
        powers = [draw(sizes) for _ in range(n_columns)]
    X = X * 10.0 ** np.array(powers)
    spoil = draw(
        st.sampled_from([""] * 14 + ["nan", "inf", "column", "rows", "all", "offset", "cell"])
    )
    cell = (draw(st.integers(0, n_rows - 1)), draw(st.integers(0, n_columns - 1)))
    if spoil in ("nan", "inf"):
        X[cell] = float(spoil)
    elif spoil == "cell":
        X[cell] = draw(st.sampled_from([1e150, -1e300, 1e-150, 1.7e308]))
    elif spoil == "column":
        X[:, cell[1]] = X[cell]
    elif spoil == "rows":
        X = X[rng.integers(0, max(1, n_rows // 3), n_rows)]
    elif spoil == "all":
        X[:] = X[cell]
    elif spoil == "offset":
        X += draw(st.sampled_from([1e8, 1e16, -1e150]))
    kind = draw(st.sampled_from(KINDS))
    if kind in ("float32", "object"):
        return X.astype(kind)
    if kind == "int":
        return np.clip(np.nan_to_num(X), -9, 9).astype(int)
    if kind == "bool":
        return X > 0
    if kind == "text":
        return X.astype(str) if draw(st.booleans()) else np.full(X.shape, "a")
    return X.tolist() if kind == "list" else X


@st.composite
def targets(draw, n_rows, labels):
    """Numbers as in `tables`, flat or not, or labels; seldom too few or too many."""
    n = max(1, n_rows + draw(st.sampled_from([0] * 30 + [-1, 1])))
    usual = ["label", "name"] if labels else ["table", "flat", "flat"]
    kind = draw(st.sampled_from(usual * 6 + ["table", "label", "name", "none"]))
    if kind == "none":
        return None
    if kind == "table":
        return draw(tables(n, draw(st.integers(1, 3))))
    if kind == "flat":
        y = draw(tables(n, 1))
        return [row[0] for row in y] if isinstance(y, list) else y[:, 0]
    most = draw(st.sampled_from([0, 1, 1, 2, 3]))
    labels = np.array([draw(st.integers(0, most)) for _ in range(n)])
    return np.array(list("abcd"))[labels] if kind == "name" else labels


@st.composite
def weights(draw, n_rows):
    kind = draw(
        st.sampled_from(["none"] * 12 + ["some"] * 6 + ["zeros", "one", "bad", "huge", "long"])
    )
    if kind == "none":
        return None
    w = np.array([draw(st.sampled_from([0.0, 0.5, 1.0, 3.0])) for _ in range(n_rows)])
    if kind == "zeros":
        w[:] = 0.0
    elif kind == "one":
        w[1:] = 0.0
    elif kind == "bad":
        w[-1] = draw(st.sampled_from([-1.0, np.nan, np.inf]))
    elif kind == "huge":
        w[-1] = draw(st.sampled_from([1e300, 1e-300, 1e150, 1e-150]))
    elif kind == "long":
        w = np.append(w, 1.0)
    return w.tolist() if draw(st.booleans()) else w


@st.composite
def estimators(draw):
    kind = draw(st.sampled_from([IGLRegressor, IGLRegressor, IGLClassifier, IGLAutoencoder]))
    common = {
        "n_dims": draw(
            st.sampled_from([None, 1, 2, 3, 7] if kind is not IGLAutoencoder else [1, 2, 7])
        ),
        "n_atoms": draw(st.sampled_from([1, 2, 15])),
        "random_state": 0,
    }
    given = ["linear", "axis", "warp", "mlp", "pca"]
    if kind is IGLClassifier:
        chart = draw(st.sampled_from(["linear", "axis"]))
        loss = draw(st.sampled_from(["cross_entropy", "cross_entropy", "least_squares"]))
        return kind(**nested(chart=chart, loss=loss, max_iter=draw(st.integers(0, 2)), **common))
    common["max_iter"] = draw(st.integers(0, 3))
    common["objective"] = draw(
        st.sampled_from(["evidence"] * 5 + ["loo", "gcv", "penalized", "log_mse"])
    )
    chart = draw(st.sampled_from(given))
    if kind is IGLAutoencoder:
        start = draw(st.sampled_from(["isomap", "pca", None]))
        pull = draw(st.sampled_from([0.0, 1.0]))
        return kind(**nested(chart=chart, start=start, pull=pull, **common))
    if draw(st.integers(0, RARE)) == RARE:
        chart = "auto"
    alpha = draw(st.sampled_from(["evidence"] * 5 + ["gcv", "loo", 0.0, 1e-3, 1e300, -1.0]))
    return kind(**nested(chart=chart, alpha=alpha, **common))


def numbers(answer):
    """Every array of numbers in an answer."""
    if isinstance(answer, tuple):
        return [array for part in answer for array in numbers(part)]
    array = np.asarray(answer)
    return [array] if array.dtype.kind in "fiub" else []


def call(estimator, name, X, y, weight):
    if name == "return_std":
        return estimator.predict(X, return_std=True)
    if name == "score":
        score = estimator.score(X, y)  # scikit-learn's own may overflow, or be undefined on one row
        return score if isinstance(estimator, IGLAutoencoder) else 0.0
    if name == "refit_source":
        return estimator.refit_source(X, y, weight).predict(X, return_std=True)
    return getattr(estimator, name)(X)


def calls(estimator):
    names = ["predict", "transform", "score"]
    if isinstance(estimator, IGLRegressor):
        return [*names, "return_std", "predict_interval", "refit_source"]
    if isinstance(estimator, IGLClassifier):
        return [*names, "predict_proba", "predict_log_proba", "decision_function"]
    return [*names, "inverse_transform"]


def ends_well(data):
    """The law: finite numbers, or a ValueError or TypeError."""
    n, D = data.draw(st.integers(1, 30)), data.draw(st.integers(1, 6))
    estimator = data.draw(estimators())
    labels = isinstance(estimator, IGLClassifier)
    X, y, weight = data.draw(tables(n, D)), data.draw(targets(n, labels)), data.draw(weights(n))
    try:
        if isinstance(estimator, IGLAutoencoder):
            estimator.fit(X)
        else:
            estimator.fit(X, y, weight)
    except (ValueError, TypeError):
        return
    for array in numbers((estimator.source_, estimator.alpha_)):
        assert np.isfinite(array).all()
    others = data.draw(st.lists(st.sampled_from(calls(estimator)), max_size=3))
    for name in ["predict", *others]:
        if name == "inverse_transform":
            m, width = data.draw(st.integers(1, 9)), len(estimator.gates_)
        elif data.draw(st.integers(0, 2)) == 0:
            m, width = n, 0  # the rows it was fitted to
        else:
            m = data.draw(st.integers(1, 9))
            width = max(1, D + data.draw(st.sampled_from([0, 0, 0, 0, 0, 0, -1, 1])))
        where = data.draw(tables(m, width)) if width else X
        target = data.draw(targets(m, labels)) if width else y
        try:
            answer = call(estimator, name, where, target, data.draw(weights(m)))
        except (ValueError, TypeError):
            continue
        for array in numbers(answer):
            assert np.isfinite(array).all(), f"{name} answered {answer}"


@pytest.mark.filterwarnings("ignore")
@given(st.data())
@settings(max_examples=120, derandomize=True, **QUIET)
def test_random_calls_end_well(data):
    ends_well(data)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@given(st.data())
@settings(max_examples=10_000, **QUIET)
def test_many_random_calls_end_well(data):
    ends_well(data)


# --- any options on any table


def test_random_options_on_few_rows_fit_or_are_refused():
    """A share of what is below, by which it is held to what it says."""
    fitted, refused, others = random_fits.outcomes(range(10_000, 10_015), random_fits.FEW)
    assert not others
    assert fitted + refused == 15
    assert fitted >= 8


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 2000, 100))
def test_two_thousand_random_options_fit_or_are_refused(first):
    """None takes 30 CPU-s. Predictions stay within 100 times the range of y: at the rows fitted, between
    them, and at new rows of the kind, moved into the range of each column."""
    fitted, refused, others = random_fits.outcomes(range(first, first + 100))
    print(f"{fitted} fitted, {refused} refused")
    assert not others
    assert fitted + refused == 100
    assert fitted >= 50


def test_random_fits_see_what_is_wrong():
    y, w = np.array([0.0, 1.0, 500.0]), np.array([1.0, 1.0, 0.0])
    wrong = random_fits.wrong
    assert not wrong(IGLRegressor, np.array([[99.0], [-99.0]]), y, w)
    assert wrong(IGLRegressor, np.array([[102.0], [0.0]]), y, w)  # the third row has no weight
    assert wrong(IGLRegressor, np.array([[np.nan]]), y, w)
    assert wrong(IGLClassifier, np.array([[0.7, 0.4]]), y, w)
    with pytest.raises(random_fits.Slow), random_fits.at_most(0.05):
        sum(i for i in range(10**12))


# --- model files

HOSTILE = """
import json
from tests import hostile
print(json.dumps(hostile.main(seed={seed}, count=1000)))
"""


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 12))
def test_ten_thousand_hostile_files_end_in_a_model_or_a_value_error(seed):
    """Each in a second of CPU and in 200 MB, in a process that is given no more; a thousand a seed."""
    code = HOSTILE.format(seed=seed)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    table = json.loads(done.stdout)
    for kind, row in sorted(table.items()):
        print(f"{kind:16} {row}")
    assert sum(row["refused"] + row["loaded"] for row in table.values()) == 1000
    assert min(row["refused"] for row in table.values()) > 10
    assert max(row["seconds"] for row in table.values()) <= hostile.SECONDS
