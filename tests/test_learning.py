"""The path x → ξ → Φ → w → u, the loops around it, and the estimators that wrap them."""

import pickle
import warnings

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import RBF
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from greenfold import (
    IGL,
    IGLAutoencoder,
    IGLClassifier,
    IGLRegressor,
    ResIGL,
    Source,
    Tied,
    Training,
)
from greenfold.chart import MLP, AxisScales, Conv, Gates, Linear, PCAResidual, Warp
from greenfold.chart.start import farthest_points, grid, isomap, pca, pivots
from greenfold.green import Gaussian, Heat, Point, Polynomial, ProductScreened, ScreenedPoisson
from greenfold.learn.trainer import descend, walk
from greenfold.solve import OBJECTIVES, Ridge, SolveError
from tests.nested import nested

f64 = torch.float64


def plane(n, seed, D=20, noise=0.0):
    """A hidden plane in R^D, the target of the IGL paper's second experiment, and 500 test rows."""
    rng = np.random.default_rng(seed)
    Q = np.linalg.qr(rng.normal(size=(D, 2)))[0]
    z = rng.uniform(-2, 2, (n + 500, 2))
    u = np.sin(2 * z[:, 0]) * np.cos(1.5 * z[:, 1]) + 0.5 * np.sin(z.sum(1))
    y = u + noise * rng.normal(size=len(u))
    return (z @ Q.T)[:n], y[:n], (z @ Q.T)[n:], u[n:]


def rows(n, d, seed=0):
    return torch.randn(n, d, dtype=f64, generator=torch.Generator().manual_seed(seed))


# --- charts and starts


@pytest.mark.parametrize(
    ("encoder", "width"),
    [
        (AxisScales(6), 6),
        (Linear(6, 2), 2),
        (Warp(6), 6),
        (MLP(6, 3), 3),
        (PCAResidual(torch.eye(2, 6, dtype=f64)), 2),
        (Conv((1, 2, 3), 2), 2),
    ],
    ids=lambda e: type(e).__name__,
)
def test_encoders_are_differentiable_charts(encoder, width):
    x = rows(7, 6)
    z = encoder(x)
    assert z.shape == (7, width)
    z.square().sum().backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in encoder.parameters())


def test_charts_with_a_residual_start_as_their_linear_part():
    x, P = rows(9, 5), rows(2, 5, seed=1)
    torch.testing.assert_close(PCAResidual(P)(x), x @ P.T)
    torch.testing.assert_close(Warp(5, scale=0.7)(x), 0.7 * x)


def test_principal_coordinates_have_unit_variance_and_no_correlation():
    X = rows(200, 6) @ rows(6, 6, seed=1) + 3
    z = (X - X.mean(0)) @ pca(X, 3).T
    torch.testing.assert_close(z.T @ z / 200, torch.eye(3, dtype=f64))
    with pytest.raises(ValueError, match="Lower `n_dims`"):
        pca(X, 7)


def test_isomap_unrolls_an_arc():
    t = torch.linspace(0, 3, 120, dtype=f64)
    z = isomap(torch.stack([t.cos(), t.sin()], 1), 1)[:, 0]
    assert abs(float(torch.corrcoef(torch.stack([z, t]))[0, 1])) > 0.999


def test_farthest_points_cover():
    z = rows(400, 2)
    chosen = z[farthest_points(z, 40)]
    assert float(torch.cdist(z, chosen).min(1).values.max()) < 0.8
    assert len(farthest_points(torch.zeros(5, 2), 3)) == 1  # duplicates bring nothing new
    assert grid(25, 2).shape == (25, 2)


def test_pivots_carry_a_smooth_kernel():
    z = rows(300, 2)
    L = Heat(0.5)
    G = L.response(z, Point(z))
    index = pivots(G, 1e-8 * float(G[0, 0]))
    assert len(index) < 200
    columns = G[:, index]
    rebuilt = columns @ torch.linalg.lstsq(G[index][:, index], columns.T).solution
    assert float((rebuilt - G).abs().max() / G[0, 0]) < 1e-6


# --- the model


def test_energy_penalty_with_all_anchors_is_a_gaussian_process():
    """u = K(K + λI)⁻¹y, with the kernel of e^{−r²/2} and the constant fitted freely."""
    x, y = rows(40, 3), rows(40, 1, seed=1)
    model = IGL(AxisScales(3), Heat(0.5), Tied(x), n_dims=3, null_space=Polynomial(-1), energy=True)
    unit, noise = float(model.unit()), 0.1
    model.eval().solve(x, y, Ridge(noise * unit, relative=False))
    new = rows(10, 3, seed=2)
    K, k = RBF(1.0)(x.numpy()), RBF(1.0)(new.numpy(), x.numpy())
    exact = k @ np.linalg.solve(K + noise * np.eye(40), y.numpy())
    np.testing.assert_allclose(model(new).detach().numpy(), exact, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("energy", [False, True])
def test_the_source_in_its_own_units_gives_back_the_solution(energy):
    """u = Σ_r w_r (L⁻¹φ_r) + c, whatever norm was penalized."""
    x, y = rows(60, 2), rows(60, 2, seed=1)
    model = IGL(
        Linear(2, 2), ScreenedPoisson(1.5), Tied(x[:15], Gaussian, 0.3), n_dims=2, energy=energy
    )
    model.eval().solve(x, y, Ridge(1e-3))
    new = rows(8, 2, seed=2)
    with torch.no_grad():
        response = model.operator.response(model.chart(new), model.atoms(), model.gates())
        direct = response @ model.source_weights() + model.w[-1]
        torch.testing.assert_close(model(new), direct, rtol=1e-6, atol=1e-8)


def weighed(gamma, x):
    atoms = Gaussian(x[:12], 0.4)
    return IGL(AxisScales(2), ScreenedPoisson(1.5, n_terms=8), atoms, n_dims=2, gamma=gamma).eval()


def test_terms_add_up_to_the_response():
    x, atoms = rows(9, 2), Gaussian(rows(4, 2, seed=1), 0.5)
    for L in (ScreenedPoisson(1.5), Heat(0.3)):
        torch.testing.assert_close(L.terms(x, atoms).sum(0), L.response(x, atoms))


def test_weights_of_the_terms_fixed_learned_free_and_alternating():
    """Learned starts as fixed; more freedom fits at least as well; alternating only ever improves."""
    x = rows(150, 2)
    y = torch.sin(2 * x[:, :1]) * torch.cos(x[:, 1:])
    residual = {}
    for gamma in ("fixed", "learned", "free", "alternating"):
        model = weighed(gamma, x)
        residual[gamma] = float(model.solve(x, y, Ridge(1e-9)).residual.detach())
        assert model(x).shape == (150, 1)
    assert residual["learned"] == pytest.approx(residual["fixed"], rel=1e-6)
    assert residual["free"] < residual["fixed"]
    assert residual["alternating"] < residual["fixed"]
    learned = weighed("learned", x)
    (g,) = torch.autograd.grad(learned.design(x).Phi.square().sum(), learned.factors)
    assert g.abs().min() > 0
    assert len(weighed("free", x).design(x).penalty) == 8 * 12 + 1
    one = IGL(AxisScales(2), Heat(0.5), Gaussian(x[:5]), n_dims=2, gamma="learned")
    assert one.factors.shape == (1,)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"gamma": "als"}, "`gamma` must be"),
        ({"gamma": "free", "energy": True}, "no energy norm"),
        ({"gamma": "free", "operator": ProductScreened(1.0)}, "no terms to weigh"),
    ],
)
def test_weights_that_make_no_sense_are_refused(options, words):
    options = {"operator": Heat(0.5), **options}
    with pytest.raises(ValueError, match=words):
        IGL(AxisScales(2), sources=Tied(rows(5, 2)), n_dims=2, **options)


def test_a_closed_gate_hides_an_input():
    x = rows(30, 3)
    model = IGL(AxisScales(3), Heat(0.5), Tied(x[:10]), n_dims=3, gates=Gates(3)).eval()
    model.gates.value.data[1] = 0
    model.solve(x, x[:, :1], Ridge(1e-3))
    moved = x.clone()
    moved[:, 1] += 5
    torch.testing.assert_close(model(moved), model(x))


def test_standardization_is_stored():
    x = 50 + 7 * rows(80, 4)
    model = IGL(MLP(4, 2), Heat(0.5), Tied(x[:10]), n_dims=2, standardize=True).train()
    model.settle(x)
    xi = model.chart(x).detach()
    torch.testing.assert_close(xi.mean(0), torch.zeros(2, dtype=f64), rtol=0, atol=1e-10)
    torch.testing.assert_close(xi.std(0, correction=0), torch.ones(2, dtype=f64))
    torch.testing.assert_close(
        model.chart(x[:3]).detach(), xi[:3]
    )  # a part of the rows changes nothing


@pytest.mark.parametrize("objective", sorted(OBJECTIVES))
def test_gradient_of_the_reduced_objective(objective):
    """Through chart, anchors, whitening and solve, against central differences."""
    x, y = rows(25, 3), rows(25, 1, seed=1)
    model = IGL(
        Linear(3, 2), Heat(0.5), Tied(x[:8]), n_dims=2, energy=True, standardize=True
    ).train()
    log_alpha = torch.tensor(-3.0, dtype=f64)

    def loss():
        return OBJECTIVES[objective](model.design(x), y, log_alpha)

    weight = model.encoder.weight
    (gradient,) = torch.autograd.grad(loss(), weight)
    for i, j in ((0, 0), (1, 2)):
        values = []
        for step in (1e-5, -1e-5):
            with torch.no_grad():
                weight[i, j] += step
                values.append(float(loss()))
                weight[i, j] -= step
        assert float(gradient[i, j]) == pytest.approx(
            (values[0] - values[1]) / 2e-5, rel=1e-5, abs=1e-8
        )


# --- optimizers


def test_descend_keeps_the_best_and_steps_back_from_infinity():
    theta = torch.tensor([3.0, -2.0], dtype=f64, requires_grad=True)

    def loss():
        value = ((theta - 1) ** 2).sum()
        return value / 0 if float(theta.detach()[0]) < 0 else value

    seen = []
    history = descend(torch.nn.Module(), loss, [theta], callbacks=[lambda e: seen.append(e.loss)])
    torch.testing.assert_close(theta.detach(), torch.ones(2, dtype=f64), rtol=0, atol=1e-5)
    assert seen == history.loss
    assert np.all(np.diff(history.loss) <= 0)


def test_a_callback_can_stop_training():
    theta = torch.full((5,), 9.0, dtype=f64, requires_grad=True)
    history = descend(
        torch.nn.Module(), lambda: theta.pow(4).sum(), [theta], callbacks=[lambda e: e.step >= 2]
    )
    assert len(history.loss) == 2
    assert history.stopped == "a callback"


def test_a_loss_that_starts_infinite_is_an_error():
    theta = torch.zeros(1, dtype=f64, requires_grad=True)
    with pytest.raises(SolveError, match="not finite at the start"):
        descend(torch.nn.Module(), lambda: theta.log().sum(), [theta])


def test_walk_learns_on_minibatches():
    x, w = rows(500, 3), torch.tensor([1.0, -2.0, 0.5], dtype=f64)
    layer = torch.nn.Linear(3, 1, bias=False, dtype=f64)

    def loss(index):
        return (layer(x[index])[:, 0] - x[index] @ w).square().mean()

    generator = torch.Generator().manual_seed(0)
    walk(layer, loss, list(layer.parameters()), 500, lr=0.05, batch_size=50, generator=generator)
    torch.testing.assert_close(layer.weight[0].detach(), w, rtol=0, atol=1e-2)


# --- estimators


def test_a_hidden_plane_is_found_without_settings():
    X, y, X_new, u = plane(100, seed=0, D=50)
    model = IGLRegressor(random_state=0).fit(X, y)
    assert 1 - model.score(X_new, u) < 1e-4
    assert model.transform(X_new).shape[1] == len(model.gates_)


@pytest.mark.parametrize("chart", ["axis", "linear", "warp", "mlp", "pca"])
def test_every_kind_of_chart_learns(chart):
    X, y, X_new, u = plane(150, seed=1, D=6, noise=0.05)
    model = IGLRegressor(chart=chart, random_state=0, training=Training(max_iter=40)).fit(X, y)
    assert model.score(X_new, u) > 0.8
    assert np.all(np.diff(model.history_.loss) <= 1e-12)


def test_any_module_is_a_chart():
    X, y, X_new, u = plane(150, seed=1, D=6)
    encoder = torch.nn.Sequential(torch.nn.Linear(6, 2, dtype=f64))
    model = IGLRegressor(
        chart=encoder, operator=ProductScreened(1.0), training=Training(max_iter=30)
    ).fit(X, y)
    assert model.chart_ is encoder
    assert model.score(X_new, u) > 0.5


@pytest.mark.parametrize("objective", sorted(OBJECTIVES))
def test_every_objective_trains(objective):
    X, y, X_new, u = plane(120, seed=2, D=4, noise=0.05)
    model = IGLRegressor(
        chart="linear",
        source=Source(n_atoms=40),
        training=Training(objective=objective, max_iter=15),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert model.fit(X, y).score(X_new, u) > 0.5


def test_two_stage_training_needs_fewer_steps_than_joint():
    """Same chart, same optimizer, same start: solving for the source at every step pays."""
    X, y, X_new, u = plane(200, seed=2, D=10)
    joint = IGLRegressor(
        chart="linear",
        random_state=0,
        source=Source(n_atoms=80),
        training=Training(mode="joint", max_iter=150),
    )
    joint.fit(X, y)
    short = IGLRegressor(
        chart="linear", random_state=0, source=Source(n_atoms=80), training=Training(max_iter=10)
    ).fit(X, y)
    assert short.score(X_new, u) > 0.99
    assert short.score(X_new, u) > joint.score(X_new, u)
    assert 5 * short.history_.evaluations < joint.history_.evaluations


def test_same_seed_same_bits_and_the_global_generators_are_left_alone():
    X, y, X_new, _ = plane(60, seed=3)
    torch.manual_seed(5)
    np.random.seed(5)  # noqa: NPY002
    before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    first = IGLRegressor(random_state=1).fit(X, y).predict(X_new)
    again = IGLRegressor(random_state=1).fit(X, y).predict(X_new)
    assert (first == again).all()
    assert torch.equal(before[0], torch.get_rng_state())
    assert (before[1] == np.random.get_state()[1]).all()  # noqa: NPY002


@pytest.mark.parametrize("k", [-40, 3, 60])
def test_units_do_not_matter(k):
    X, y, X_new, _ = plane(60, seed=4, noise=0.1)
    plain = IGLRegressor(random_state=0).fit(X, y).predict(X_new)
    scaled = IGLRegressor(random_state=0).fit(X * 2.0**k, y * 2.0**-k).predict(X_new * 2.0**k)
    np.testing.assert_allclose(scaled * 2.0**k, plain, rtol=1e-9)


def test_rows_may_come_in_any_order_and_be_counted_or_repeated():
    X, y, X_new, _ = plane(80, seed=5, noise=0.02)
    count = np.random.default_rng(0).integers(0, 4, 80)
    weighted = IGLRegressor(random_state=0).fit(X, y, sample_weight=count).predict(X_new)
    order = np.random.default_rng(1).permutation(np.repeat(np.arange(80), count))
    repeated = IGLRegressor(random_state=0).fit(X[order], y[order]).predict(X_new)
    np.testing.assert_allclose(repeated, weighted, rtol=1e-9, atol=1e-12)


def test_several_targets_share_a_chart():
    X, y, X_new, _ = plane(120, seed=6)
    both = IGLRegressor(random_state=0).fit(X, np.stack([y, 3 * y + 1], 1)).predict(X_new)
    assert both.shape == (500, 2)
    np.testing.assert_allclose(both[:, 1], 3 * both[:, 0] + 1, rtol=0, atol=1e-6)


def test_intervals_of_a_fit_through_its_rows_are_not_empty():
    """Residuals and 1 − h are rounding errors there, and their quotient is no error of a row left out."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (300, 4))
    y = np.abs(X[:, 0]) + np.sign(X[:, 1]) * X[:, 2]
    model = IGLRegressor(
        chart="axis",
        random_state=0,
        source=Source(n_atoms=80, alpha=1e-13),
        training=Training(max_iter=0),
    )
    model.fit(X[:80], y[:80])
    assert np.abs(model.predict(X[:80]) - y[:80]).max() < 1e-6
    low, high = model.predict_interval(X[80:])
    assert 0.85 < np.mean((low <= y[80:]) & (y[80:] <= high)) < 1


@pytest.mark.slow
def test_intervals_cover_noisy_observations():
    """Nominal 95% for both kinds, pooled over four seeds."""
    inside = {"std": [], "conformal": []}
    for seed in range(4):
        X, y, X_new, u = plane(150, seed=seed, noise=0.1)
        observed = u + 0.1 * np.random.default_rng(seed + 100).normal(size=len(u))
        model = IGLRegressor(random_state=0).fit(X, y)
        mean, std = model.predict(X_new, return_std=True)
        inside["std"].append(np.abs(observed - mean) < 1.96 * std)
        low, high = model.predict_interval(X_new)
        inside["conformal"].append((low < observed) & (observed < high))
    for kind, hits in inside.items():
        assert 0.90 < np.mean(hits) < 0.985, kind


@pytest.mark.slow
def test_a_new_target_on_the_same_chart_needs_few_rows():
    """Two directions of ten matter to both targets: twenty rows are enough once they are known."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (720, 10))
    directions = np.linalg.qr(rng.normal(size=(10, 2)))[0]
    a, b = (X @ directions).T
    first, second = np.sin(2 * a) * np.cos(1.5 * b), np.cos(a) + 0.5 * b
    model = IGLRegressor(random_state=0).fit(X[:200], first[:200])
    adapted = model.refit_source(X[200:220], second[200:220])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        scratch = IGLRegressor(random_state=0).fit(X[200:220], second[200:220])
    assert adapted.score(X[220:], second[220:]) > 0.95
    assert adapted.score(X[220:], second[220:]) > scratch.score(X[220:], second[220:])
    assert model.score(X[220:], first[220:]) > 0.99  # the first task is untouched


def test_failure_is_announced():
    rng = np.random.default_rng(0)
    with pytest.warns(ConvergenceWarning, match="better than their mean"):
        IGLRegressor(random_state=0).fit(rng.normal(size=(60, 5)), rng.normal(size=60))


def test_classes_on_a_rotated_checkerboard():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (900, 2))
    z = X @ np.array([[0.88, 0.48], [-0.48, 0.88]])
    y = np.array(["red", "blue"])[((np.floor(2 * z[:, 0]) + np.floor(2 * z[:, 1])) % 2).astype(int)]
    model = IGLClassifier(random_state=0).fit(X[:400], y[:400])
    assert model.score(X[400:], y[400:]) > 0.88
    p = model.predict_proba(X[400:])
    np.testing.assert_allclose(p.sum(1), 1)
    assert set(model.predict(X)) == {"red", "blue"}


def test_three_classes_and_least_squares():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    y = np.digitize(X[:, 0] + X[:, 1], [-0.7, 0.7])
    for loss in ("cross_entropy", "least_squares"):
        model = IGLClassifier(loss=loss, random_state=0, source=Source(n_atoms=30)).fit(
            X[:120], y[:120]
        )
        assert model.score(X[120:], y[120:]) > 0.8
        assert model.decision_function(X).shape == (200, 3)


def test_an_autoencoder_unrolls_a_swiss_roll():
    """Two coordinates rebuild three, on rows it has not seen, and tell where a row was on the roll."""
    rng = np.random.default_rng(0)
    t, h = 1.5 * np.pi * (1 + 2 * rng.uniform(size=700)), 10 * rng.uniform(size=700)
    X = np.stack([t * np.cos(t), h, t * np.sin(t)], 1)
    model = IGLAutoencoder(2, random_state=0, training=Training(max_iter=40)).fit(X[:500])
    assert model.score(X[500:]) > 0.99
    xi = model.transform(X)
    neighbors = KNeighborsRegressor(5).fit(xi[:500], t[:500])
    assert neighbors.score(xi[500:], t[500:]) > 0.98
    np.testing.assert_allclose(model.inverse_transform(xi[500:]), model.predict(X[500:]))
    with pytest.raises(ValueError, match="pass what `transform` returns"):
        model.inverse_transform(xi[:, :1])


def test_an_autoencoder_with_free_anchors_suits_a_singular_kernel():
    """The response of ScreenedPoisson to points is singular; atoms of their own have widths."""
    X = rows(200, 3).numpy()
    options = {"operator": ScreenedPoisson(), "chart": "linear", "start": None}
    model = IGLAutoencoder(
        3, **nested(**options, anchors="free", n_atoms=30, max_iter=40, random_state=0)
    )
    assert model.fit(X[:150]).score(X[150:]) > 0.99
    assert isinstance(model.model_.sources, Gaussian)


def test_scikit_learn_tools_work():
    X, y = load_breast_cancer(return_X_y=True)
    pipeline = make_pipeline(
        StandardScaler(), IGLClassifier(random_state=0, source=Source(n_atoms=30))
    )
    assert cross_val_score(pipeline, X[:120], y[:120], cv=2, scoring="roc_auc").mean() > 0.9
    X, y, X_new, _ = plane(60, seed=8, D=4)
    base = IGLRegressor(chart="linear", training=Training(max_iter=5))
    search = GridSearchCV(base, {"n_dims": [1, 2]}, cv=2).fit(X, y)
    again = pickle.loads(pickle.dumps(search.best_estimator_))
    assert (again.predict(X_new) == search.predict(X_new)).all()
    assert repr(clone(base)) == repr(base)
    nested = GridSearchCV(base, {"training__max_iter": [1, 2], "source__n_atoms": [9]}, cv=2)
    assert nested.fit(X, y).best_estimator_.model_.source_weights().shape[0] == 9


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda X, y: IGLRegressor(chart="spline").fit(X, y), "`chart` must be .* got 'spline'"),
        (
            lambda X, y: IGLRegressor(chart="axis", training=Training(objective="mse")).fit(X, y),
            "`objective` must be one of",
        ),
        (
            lambda X, y: IGLRegressor(chart="axis", operator="laplace").fit(X, y),
            "`operator` must be .* got 'laplace'",
        ),
        (
            lambda X, y: IGLRegressor(source=Source(alpha="aic")).fit(X, y),
            "`alpha` must be .* got 'aic'",
        ),
        (
            lambda X, y: IGLRegressor(source=Source(alpha=-1.0)).fit(X, y),
            "`alpha` must be a number .* got -1.0",
        ),
        (
            lambda X, y: IGLRegressor(training=Training(mode="joint")).fit(X, y),
            "needs a given chart",
        ),
        (lambda X, y: IGLRegressor(training=Training(mode="alternating")).fit(X, y), "`mode`"),
        (lambda X, y: IGLRegressor(effort="max").fit(X, y), "`effort` must be one of"),
        (lambda X, y: IGLRegressor().fit(X[:1], y[:1]), "minimum of 2"),
        (lambda X, y: IGLRegressor().fit(X[[0, 0]], y[[0, 0]]), "2 different rows"),
        (lambda X, y: IGLRegressor().fit(X * np.nan, y), "NaN"),
        (lambda X, y: IGLClassifier().fit(X, y > 99), "one class"),
        (lambda X, y: IGLClassifier(loss="hinge").fit(X, y > 0), "`loss`"),
        (lambda X, y: IGLRegressor(chart="axis").fit(X, y).predict_interval(X, alpha=2), "`alpha`"),
    ],
)
def test_bad_requests_are_explained(call, words):
    X, y, *_ = plane(20, seed=9, D=3)
    with pytest.raises(ValueError, match=words):
        call(X, y)


# --- an MLP beside the operator


def beside(x, hidden=(8,)):
    torch.manual_seed(0)
    igl = IGL(MLP(3, 2), Heat(), Tied(x[:20]), n_dims=2, standardize=True, energy=True)
    return ResIGL(igl, MLP(2, 1, hidden)).train()


def test_resigl_without_residual_is_igl():
    x, Y = rows(60, 3), rows(60, 1, seed=1)
    model = beside(x)
    torch.nn.init.zeros_(model.residual[-1].weight)
    torch.nn.init.zeros_(model.residual[-1].bias)
    model.settle(x).solve(x, Y, Ridge(1e-3))
    u = model(x)
    model.igl.solve(x, Y, Ridge(1e-3))
    torch.testing.assert_close(u, model.igl(x))


def test_resigl_solves_for_the_best_source_beside_the_mlp():
    x, Y = rows(60, 3), rows(60, 1, seed=1)
    model = beside(x).settle(x)
    solution = model.solve(x, Y, Ridge(0.1, relative=False))
    design, rest = model.split(x, Y)

    def cost(w):
        return (design.Phi @ w - rest).square().sum() + 0.1 * (design.penalty @ w.square()).sum()

    w = model.igl.w.clone().requires_grad_()
    (slope,) = torch.autograd.grad(cost(w), w)
    assert slope.abs().max() < 1e-9 * len(x)
    torch.testing.assert_close(model(x), design.Phi @ solution.w + Y - rest)


def test_resigl_learns_chart_and_residual_through_the_solve():
    x = rows(60, 3)
    Y, model = x[:, :1].sign(), beside(x)

    def loss():
        return OBJECTIVES["penalized"](*model.split(x, Y), -3.0)

    parameters = [*model.igl.encoder.parameters(), *model.residual.parameters()]
    gradients = torch.autograd.grad(loss(), parameters)
    assert all(g.isfinite().all() and g.any() for g in gradients[:-1])
    assert gradients[-1].abs().max() < 1e-9  # the constant is the null space's already
    before = float(loss().detach())
    descend(model, loss, parameters, max_iter=20)
    assert float(loss().detach()) < 0.5 * before


def test_a_step_to_where_nothing_can_be_computed_is_taken_back():
    """Such as atoms that become too narrow to project. At the start the error itself is raised."""
    p = torch.nn.Parameter(torch.tensor([3.0], dtype=torch.float64))

    def loss():
        if p < 0.5:
            raise ValueError("too narrow")
        return (p - 0.4).square().sum()

    history = descend(torch.nn.Identity(), loss, [p], max_iter=50)
    assert history.rollbacks
    assert 0.5 <= float(p.detach()) < 3
    with torch.no_grad():
        p.fill_(0.1)
    with pytest.raises(ValueError, match="too narrow"):
        descend(torch.nn.Identity(), loss, [p])


def test_predictions_are_the_columns_times_the_weights():
    """Whether the energy's factor goes to the rows or to the weights."""
    x = torch.randn(40, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    model = IGL(Linear(3, 2), Heat(0.5), Tied(x[:8]), n_dims=2, energy=True).eval()
    model.solve(x, torch.stack([x[:, 0].sin(), x.sum(1)], 1), Ridge(1e-3))
    with torch.no_grad():
        assert torch.allclose(model(x), model.design(x).Phi @ model.w, rtol=1e-9, atol=1e-12)
