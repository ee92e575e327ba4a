"""Tables of odd shapes end in the right answer, or in an error that says what is wrong."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from sklearn.exceptions import NotFittedError

from greenfold import IGLClassifier, IGLRegressor, IGLStack, Source, Training
from tests.nested import nested


def subjects(n, seed, m=42):
    """Rows of m persons: who, age, sex, time and three useless columns; y is exact, a line for each."""
    rng = np.random.default_rng(seed)
    age, sex = rng.uniform(40, 80, m).round(), rng.integers(0, 2, m)
    level, slope = 10 * rng.normal(size=m) + 30, 0.02 * rng.normal(size=m)
    who, time = rng.integers(0, m, n), rng.uniform(0, 200, n)
    X = np.column_stack([who, age[who], sex[who], time, rng.lognormal(size=(n, 3))])
    return X, level[who] + slope[who] * time


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    "estimator", [IGLStack, pytest.param(IGLRegressor, marks=pytest.mark.slow)]
)
def test_noise_free_columns_that_tell_rows_apart_are_fitted(estimator):
    """Scales grow until the kernel's rounding errors exceed the noise: then the noise is raised."""
    X, y = subjects(400, seed=1)
    model = estimator(random_state=0).fit(X[:200], y[:200])
    assert model.score(X[:200], y[:200]) > 0.99
    assert model.score(X[200:], y[200:]) > 0.5


@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_a_stack_of_few_rows_passes_near_them(n):
    rng = np.random.default_rng(n)
    X, y = rng.normal(size=(n, 3)), rng.normal(size=n)
    model = IGLStack(effort="fast", random_state=0).fit(X, y)
    assert np.isfinite([standing.score for standing in model.standings_]).all()
    assert np.abs(model.predict(X) - y.mean()).max() <= 2 * np.ptp(y)
    assert np.abs(model.predict(100 + X) - y.mean()).max() <= 2 * np.ptp(y)


def clusters(n, c, seed=0, D=8):
    """n rows around c centers, every class with a row as long as there are rows for it."""
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(c, D))
    y = np.concatenate([np.arange(c), rng.integers(0, c, n - c)])
    return centers[y] + 0.3 * rng.normal(size=(n, D)), y


@pytest.mark.filterwarnings("ignore:The number of unique classes:UserWarning")
@pytest.mark.parametrize(("n", "c"), [(60, 60), (180, 60)])
def test_many_classes_are_told_apart(n, c):
    """With one row for each class nothing tells how sure to be, but near a row its class is likeliest."""
    X, y = clusters(n, c)
    model = IGLClassifier(effort="fast", random_state=0).fit(X, y)
    assert model.score(X, y) > 0.95
    P = model.predict_proba(X)
    assert P.shape == (n, c)
    assert np.allclose(P.sum(1), 1)
    if n > c:
        X_new, y_new = clusters(600, c)
        assert model.score(X_new[n:], y_new[n:]) > 0.8


def test_a_given_chart_with_many_classes():
    X, y = clusters(200, 50)
    model = IGLClassifier(
        chart="linear", n_dims=6, random_state=0, training=Training(max_iter=5)
    ).fit(X, y)
    assert model.score(X, y) > 0.8


@pytest.mark.parametrize(
    "weights", [{0: -1}, {0: np.nan}, {0: 0.0}, {0: np.inf}, {0: "much"}, {5: 1.0}], ids=repr
)
def test_weights_of_classes_that_are_no_weights_are_refused(weights):
    X, y = clusters(20, 2)
    with pytest.raises(ValueError, match="class_weight"):
        IGLClassifier(class_weight=weights).fit(X, y)


@pytest.mark.parametrize("estimator", [IGLRegressor, IGLStack])
def test_intervals_need_a_fit(estimator):
    with pytest.raises(NotFittedError):
        estimator().predict_interval(np.zeros((3, 2)))


@pytest.mark.parametrize(("n_atoms", "d"), [(10, 2), (60, 2), (150, 3), (256, 8)])
def test_a_grid_has_no_more_atoms_than_asked_for(n_atoms, d):
    X = np.random.default_rng(0).normal(size=(40, d))
    options = {"chart": "linear", "n_dims": d, "anchors": "grid", "max_iter": 1}
    model = IGLRegressor(**nested(n_atoms=n_atoms, **options)).fit(X, X[:, 0])
    assert 2**d <= len(model.source_) <= n_atoms


def test_a_grid_of_too_few_atoms_for_its_axes_is_refused():
    X = np.random.default_rng(0).normal(size=(40, 16))
    with pytest.raises(ValueError, match=r"n_atoms.*anchors='tied'"):
        IGLRegressor(chart="axis", source=Source(anchors="grid")).fit(X, X[:, 0])


@pytest.mark.parametrize("start", ["pca", "isomap"])
@pytest.mark.parametrize("anchors", ["tied", "free"])
def test_importance_of_atoms_on_rows_that_coincide_on_the_chart(start, anchors):
    """The start leaves fewer places for anchors than rows: there are as many factors as atoms."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.integers(0, 3, 40) * 10.0, 1e-9 * rng.normal(size=(40, 3))])
    options = {"chart": "mlp", "n_dims": 1, "start": start, "anchors": anchors, "max_iter": 3}
    model = IGLRegressor(**nested(sparsity="importance", random_state=0, **options)).fit(X, X[:, 0])
    assert model.model_.rho.shape == (len(model.source_),)
    assert np.isfinite(model.predict(X)).all()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The number of unique classes:UserWarning")
@pytest.mark.parametrize(("n", "c"), [(60, 60), (1000, 200)])
def test_many_classes_by_default(n, c):
    X, y = clusters(n, c)
    assert IGLClassifier(random_state=0).fit(X, y).score(X, y) > 0.95


@pytest.mark.parametrize("anchors", ["tied", "free"])
@pytest.mark.parametrize("objective", ["evidence", "penalized"])
def test_terms_with_weights_of_their_own_are_pruned_by_atoms(objective, anchors):
    """A term and an atom make a column; the lasso takes an atom with all its terms, or leaves it."""
    X = np.random.default_rng(0).normal(size=(60, 3))
    options = {"chart": "linear", "operator": "screened_poisson", "n_atoms": 15, "max_iter": 3}
    model = IGLRegressor(
        **nested(
            gamma="free",
            sparsity=0.3,
            objective=objective,
            anchors=anchors,
            random_state=0,
            **options,
        )
    ).fit(X, np.sin(2 * X[:, 0]))
    n_atoms, n_terms = len(model.model_.raw_rho), len(model.model_.factors)
    assert 1 <= n_atoms < 15
    assert model.source_.shape == (n_terms * n_atoms, 1)
    assert model.effective_rank_ == n_atoms
    assert model.score(X, np.sin(2 * X[:, 0])) > 0


@pytest.mark.parametrize("shape", [(5, 0), (5, 1), (0, 0)])
def test_a_matrix_on_disk_without_columns_is_refused(shape, tmp_path):
    np.save(tmp_path / "rows.npy", np.zeros(shape))
    with pytest.raises(ValueError, match=r"rows\.npy must have two columns or more"):
        IGLRegressor().fit_stream(tmp_path / "rows.npy")


def shards(folder, targets):
    """Parquet files of 40 rows, one for each kind of target; and their columns x."""
    rng, all_x = np.random.default_rng(0), []
    for i, target in enumerate(targets):
        x = rng.normal(size=(40, 2))
        frame = pa.table({"a": x[:, 0], "b": x[:, 1], "y": target(x)})
        pa.parquet.write_table(frame, folder / f"{i}.parquet")
        all_x.append(x)
    return all_x


def named(x):
    """Rows with the columns of the shards."""
    return pa.table({"a": x[:, 0], "b": x[:, 1]})


NO_NUMBERS = {"nan": lambda x: np.full(40, np.nan), "null": lambda x: pa.nulls(40, pa.float64())}
UNTYPED = {"untyped": lambda x: pa.nulls(40)}


@pytest.mark.parametrize(
    ("missing", "chart"),
    [
        *((missing, "linear") for missing in NO_NUMBERS | UNTYPED),
        ("untyped", "auto"),
        *(pytest.param(missing, "auto", marks=pytest.mark.slow) for missing in NO_NUMBERS),
    ],
)
def test_a_shard_without_targets_is_as_good_as_absent(missing, chart, tmp_path):
    sums = lambda x: x.sum(1)  # noqa: E731
    first, _, last = shards(tmp_path, [sums, (NO_NUMBERS | UNTYPED)[missing], sums])
    settings = {"chart": chart, "effort": "fast"} if chart == "auto" else {"chart": chart}
    model = IGLRegressor(**nested(n_atoms=20, random_state=0, **settings)).fit_stream(tmp_path)
    assert model.fitted_to_[0] == 80
    X = np.concatenate([first, last])
    assert model.score(named(X), X.sum(1)) > 0.9


@pytest.mark.filterwarnings("ignore:The number of unique classes:UserWarning")
def test_a_shard_without_classes_is_as_good_as_absent(tmp_path):
    sides = lambda x: np.where(x[:, 0] > 0, "right", "left").tolist()  # noqa: E731
    first, *_ = shards(tmp_path, [sides, UNTYPED["untyped"], sides])
    model = IGLClassifier(
        chart="linear", loss="least_squares", random_state=0, source=Source(n_atoms=20)
    )
    model.fit_stream(tmp_path, target="y")
    assert list(model.classes_) == ["left", "right"]
    assert model.score(named(first), sides(first)) > 0.8


@pytest.mark.parametrize("missing", NO_NUMBERS | UNTYPED)
def test_a_target_that_is_missing_everywhere_is_said_to_be(missing, tmp_path):
    shards(tmp_path, 2 * [(NO_NUMBERS | UNTYPED)[missing]])
    with pytest.raises(ValueError, match="the target 'y' is missing in all 80 rows"):
        IGLRegressor().fit_stream(tmp_path, target="y")


def test_shards_of_other_types_are_named(tmp_path):
    shards(tmp_path, [lambda x: x.sum(1), lambda x: ["text"] * 40])
    with pytest.raises(ValueError, match=r"1.parquet has columns of other types than .*0.parquet"):
        IGLRegressor().fit_stream(tmp_path, target="y")
