"""What coordinates explain, the order that gives them, and rows that are unlike those learned from."""

import warnings

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

import greenfold
from greenfold import IGL, IGLClassifier, IGLRegressor, Source, Tied, Training
from greenfold.chart import Linear
from greenfold.green import Affine, Heat, ProductScreened, Superposition
from greenfold.learn.applicability import FOLDS, Axes, Cloud, Domain
from greenfold.learn.explained import STRENGTHS, explained, settled
from greenfold.solve import Ridge

f64 = torch.float64


def problem(n=18, D=5, seed=0):
    rng = np.random.default_rng(seed)
    x = torch.from_numpy(rng.normal(size=(n, D)))
    y = torch.sin(2 * x[:, :1]) - 0.3 * x[:, 1:2] + 0.05 * torch.from_numpy(rng.normal(size=(n, 1)))
    return x, y


def model_of(operator, W, x):
    return IGL(Linear(W.shape[1], len(W), W), operator, Tied(x), n_dims=len(W), energy=True).eval()


# --- what they explain


@pytest.mark.parametrize("weighted", [False, True])
def test_explained_is_what_refits_without_a_row_lose(weighted):
    x, Y = problem()
    W = 0.7 * torch.eye(2, 5, dtype=f64)
    weight = torch.linspace(0.5, 1.5, len(x), dtype=f64) if weighted else torch.ones(len(x))

    def r2(columns):
        xi = x @ W[columns].T
        K = torch.exp(-torch.cdist(xi, xi).square() / 2).double() + 1e-12 * torch.eye(len(x))
        w, errors = weight.double(), []
        unit = (w @ K.diagonal()) / len(x)
        for alpha in unit * torch.tensor(STRENGTHS, dtype=f64):
            total = 0.0
            for i in range(len(x)):
                rest = torch.arange(len(x)) != i
                A = K[rest][:, rest] + torch.diag(alpha / w[rest])
                one = torch.linalg.solve(A, torch.ones(len(A), 1, dtype=f64))
                known = torch.linalg.solve(A, Y[rest])
                b = known.sum() / one.sum()
                u = K[i, rest] @ (known - b * one) + b
                total += float(w[i] * (Y[i] - u) ** 2)
            errors.append(total)
        mean = w @ Y / w.sum()
        return 1 - min(errors) / float(w @ (Y - mean).square())

    found = explained(model_of(Heat(0.5), W, x), x, Y, weight.double() if weighted else None)
    want = [r2([0, 1]) - r2([1]), r2([0, 1]) - r2([0])]
    assert_allclose(found, want, rtol=1e-4, atol=1e-6)
    assert found[0] > 0.5 > found[1] > 0.02


def test_the_only_coordinate_explains_all_there_is():
    x, Y = problem()
    found = explained(model_of(Heat(0.5), torch.eye(1, 5, dtype=f64), x), x, x[:, :1].sin(), None)
    assert found == pytest.approx(1.0, abs=0.2)
    assert explained(model_of(Heat(0.5), torch.eye(1, 5, dtype=f64), x), x, 0 * Y, None) == 0


OPERATORS = {
    "turned": Heat(0.5),
    "ordered": ProductScreened(1.0),
    "in groups": Superposition([Heat(0.5), Affine(1.0, level=0.0)], axes=[[0, 1], [2]]),
    "apart": Superposition([Heat(0.5), Affine(torch.tensor([0.5, 1.0, 2.0]), level=0.0)]),
}


@pytest.mark.parametrize("kind", OPERATORS)
def test_coordinates_move_only_where_predictions_stay(kind):
    x, Y = problem(40)
    W = torch.tensor([[0.1, 1, 0, 0, 0.2], [-1, 0.2, 0, 0, 0], [0, 0.5, -0.5, 0.1, 0]], dtype=f64)
    before, after = (model_of(OPERATORS[kind], W.clone(), x) for _ in range(2))
    found = settled(after, x, Y, None)
    for model in (before, after):
        model.solve(x, Y, Ridge(0.1, relative=False))
    new, _ = problem(30, seed=1)
    with torch.no_grad():
        assert_allclose(after(new), before(new), rtol=1e-8, atol=1e-9)
    assert_allclose(found, explained(after, x, Y, None), rtol=1e-6, atol=1e-9)
    V = after.encoder.weight.detach()
    if kind == "apart":
        assert_array_equal(V.abs(), W.abs())
    elif kind == "in groups":
        assert found[0] > found[1]
        assert_allclose(V[2].abs(), W[2].abs())
    else:
        assert (np.diff(found) < 0).all()
        assert_allclose(V.T @ V, W.T @ W, atol=1e-12)  # the metric of the chart
        assert (kind == "ordered") is (not (V.abs() - W[[1, 0, 2]].abs()).abs().max() > 1e-9)
    if kind != "apart":
        along = (x @ V.T).T @ (Y - Y.mean())
        assert (along > 0).all()


def test_axes_keep_the_order_of_the_columns():
    x, Y = problem()
    W = torch.diag(torch.tensor([0.1, 0.2, 0.3, 0.4, 0.5], dtype=f64))
    model = model_of(Heat(0.5), W.clone(), x)
    settled(model, x, Y, None)
    assert_array_equal(model.encoder.weight.detach(), W)


# --- rows unlike those learned from


def curved(n, seed):
    """A plane in 30 columns with noise, and y on it."""
    rng = np.random.default_rng(seed)
    axes = np.random.default_rng(9).choice([-1.0, 1.0], size=(2, 30)) / np.sqrt(30)
    t = rng.normal(size=(n, 2))
    X = 5 + t @ axes + 0.02 * rng.normal(size=(n, 30))
    return X, np.sin(t[:, 0]) + t[:, 1], t, axes


@pytest.fixture(scope="module")
def plane():
    X, y, _, _ = curved(120, 0)
    return IGLRegressor("linear", source=Source(n_atoms=30), training=Training(max_iter=5)).fit(
        X, y
    )


def test_rows_like_the_others_are_inside_and_others_are_not(plane):
    X, _, _, axes = curved(2000, 1)
    found = plane.applicability(X, alpha=0.1)
    assert plane.domain_.axes.V.shape == (30, 2)
    for distance, limit in ((found.t2, found.t2_limit), (found.q, found.q_limit)):
        assert 0.05 < (distance > limit).mean() < 0.17
    assert_array_equal(found.outside, (found.t2 > found.t2_limit) | (found.q > found.q_limit))
    along = plane.applicability(5 + np.array([[6.0, 0], [0, -6.0]]) @ axes)
    assert (along.t2 > along.t2_limit).all()
    assert not (along.q > along.q_limit).any()
    across = np.linalg.svd(axes)[2][5] * 0.5
    off = plane.applicability(5 + across[None])
    assert off.q[0] > 5 * off.q_limit
    assert not off.t2[0] > off.t2_limit
    assert plane.applicability(5 + 0 * across[None]).outside.sum() == 0
    with pytest.raises(ValueError, match="`alpha` must be between 0 and 1"):
        plane.applicability(X, alpha=0)


def test_distances_are_those_of_their_formulas(plane):
    X, _, _, _ = curved(50, 2)
    x = plane._inside(X)
    found, domain = plane.applicability(X), plane.domain_
    rows = plane._inside(curved(120, 0)[0])
    xi, seen = (plane.model_.chart(part).detach().numpy() for part in (x, rows))
    assert_allclose(domain.cloud.mean, seen.mean(0), atol=1e-9)
    S = np.cov(seen.T)
    g = 2 / (len(seen) + 2)
    S[0, 1], S[1, 0] = (1 - g) * S[0, 1], (1 - g) * S[1, 0]
    delta = xi - seen.mean(0)
    assert_allclose(found.t2, np.einsum("ni,ij,nj->n", delta, np.linalg.inv(S), delta), rtol=1e-8)
    z = (x.numpy() - rows.numpy().mean(0)) / rows.numpy().std(0)
    s = (rows.numpy() - rows.numpy().mean(0)) / rows.numpy().std(0)
    V = np.linalg.svd(s, full_matrices=False)[2][:2]
    assert_allclose(found.q, np.square(z - z @ V.T @ V).mean(1), rtol=1e-8)


def test_limits_are_of_rows_left_out():
    """By a loop over folds that knows neither their distances nor their axes."""
    X, _, _, _ = curved(40, 3)
    x = torch.from_numpy(X - X.mean(0))
    model = model_of(Heat(0.5), torch.eye(2, 30, dtype=f64), x)
    domain = Domain.of(model, x)
    q, t2, fold = [], [], np.arange(40) % FOLDS
    for k in range(FOLDS):
        rest, own = x[fold != k].numpy(), x[fold == k].numpy()
        axes = Axes.of(rest / x.numpy().std(0)).first(domain.axes.V.shape[1])
        q += [*axes.q(own / x.numpy().std(0))]
        t2 += [*Cloud.of(rest[:, :2]).t2(own[:, :2])]
    assert_allclose(domain.q, np.sort(q))
    assert_allclose(domain.t2, np.sort(t2))


def test_the_density_of_principal_axes_is_that_of_a_normal_law():
    from scipy.stats import multivariate_normal

    X, _, _, _ = curved(60, 4)
    axes = Axes.of(X)
    rows = curved(5, 5)[0]
    for k in (0, 2, 7):
        V, values = axes.V[:, :k], axes.values[:k]
        noise = (axes.rest - values.sum()) / (30 - k)
        C = V * values @ V.T + noise * (np.eye(30) - V @ V.T)
        want = -multivariate_normal(axes.mean, C).logpdf(rows)
        assert_allclose(axes.nats(rows)[:, k] + 15 * np.log(2 * np.pi), want, rtol=1e-9)


def test_they_are_told_of_classes_found_charts_and_files(tmp_path):
    X, y, _, _ = curved(60, 6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        models = [
            IGLRegressor(random_state=0, effort="fast").fit(X, y),
            IGLClassifier(random_state=0, effort="fast").fit(X, y > 0),
        ]
    far = X[:5] + np.linspace(3, 6, 5)[:, None]
    for model in models:
        assert model.explained_.shape == model.gates_.shape
        assert model.applicability(far).outside.all()
        greenfold.save(model, tmp_path / "m.greenfold")
        again = greenfold.load(tmp_path / "m.greenfold")
        for one, other in zip(again.applicability(X), model.applicability(X)):
            assert_array_equal(one, other)
        assert_array_equal(again.explained_, model.explained_)
    del again.domain_
    with pytest.raises(ValueError, match="fit it again"):
        again.applicability(X)
    assert models[0].explained_[0] == models[0].explained_.max() > 0.1
    other = models[0].refit_source(X, 2 * y**2)
    assert_array_equal(other.applicability(X).t2, models[0].applicability(X).t2)
    assert not np.allclose(other.explained_, models[0].explained_)


def test_streams_and_tasks_have_them():
    X, y, _, _ = curved(60, 8)
    given = {"n_dims": 2, "source": Source(n_atoms=10)}
    streamed = IGLRegressor("linear", **given).fit_stream((X, y), epochs=1)
    tasks = IGLRegressor("linear", training=Training(max_iter=2), **given).fit_tasks(
        [(X, y), (X, y**2)]
    )
    for model in (streamed, *tasks):
        assert model.explained_.shape == (2,)
        assert model.applicability(X[:3] + 20).outside.all()


def test_columns_that_never_varied_are_off_when_they_do():
    X, y, _, _ = curved(60, 7)
    X[:, 3] = 5.0
    model = IGLRegressor("linear", source=Source(n_atoms=10), training=Training(max_iter=1)).fit(
        X, y
    )
    new = X[:4].copy()
    assert not (model.applicability(new).q > model.applicability(new).q_limit).all()
    new[:, 3] += 1.0
    assert (model.applicability(new).q > model.applicability(new).q_limit).all()


def test_point_sources_are_what_responses_are_compared_at():
    """A negative control of the comparison: an operator with one length per axis."""
    from greenfold.learn.explained import alike, turns

    x, _ = problem()
    for kind, want in (("turned", [[0, 1, 2]]), ("in groups", [[0, 1], [2]]), ("apart", 3)):
        model = model_of(OPERATORS[kind], torch.eye(3, 5, dtype=f64), x)
        groups = alike(model, x[:, :3])
        assert (groups if isinstance(want, list) else len(groups)) == want
    product = model_of(OPERATORS["ordered"], torch.eye(3, 5, dtype=f64), x)
    assert not turns(product, x[:, :3], [0, 1])


# --- shown


def test_loadings_are_drawn_over_channels_as_pictures_or_as_bars(plane):
    import matplotlib

    matplotlib.use("Agg")
    from greenfold import plot
    from greenfold.report.content import content

    D = plane.n_features_in_
    at = np.linspace(900, 610, D)
    slopes = plane.loadings_[np.argsort(-plane.explained_)]

    def told(**options):
        return content(plane, None, None, options.get("names"), None, options.get("shape"), {})

    pages = {
        "curve": told(names=[f"{v:g} nm" for v in at])["coordinates"],
        "image": told(shape=(5, 6))["coordinates"],
        "bars": told()["coordinates"],
    }
    for kind, parts in pages.items():
        assert [part["kind"] for part in parts] == [kind] * 2
        assert_allclose([p["explained"] for p in parts], np.sort(plane.explained_)[::-1])
    figure = plot.loadings(plane, names=[f"{v:g} nm" for v in at])
    assert len(figure.axes) == 2
    for panel, slope in zip(figure.axes, slopes):
        assert_allclose(panel.lines[-1].get_xdata(), at[::-1])
        assert_allclose(panel.lines[-1].get_ydata(), slope[::-1])
        assert "of R²" in panel.get_title()
    picture = plot.loadings(plane, image_shape=(5, 6)).axes[0].images[0].get_array()
    sd = plane.units_.x.outside(plane.model_.sources.x.numpy()).std(0)
    assert_allclose(np.asarray(picture).ravel(), slopes[0] * sd, rtol=1e-9)
    assert len(plot.loadings(plane).axes[0].patches) <= 8
    with pytest.raises(ValueError, match="does not have 30 pixels"):
        plot.loadings(plane, image_shape=(5, 5))


def test_few_lines_tell_them(plane):
    from greenfold.report.coordinates import lines

    told = lines(plane, None)
    assert len(told) == 2
    first = int(np.argmax(plane.explained_))
    assert told[0].startswith(
        f"{first + 1}: explains {plane.explained_.max():.3g} of R2, moves with x"
    )
