"""Counts, quantiles, outliers and times: each likelihood against its closed form, and what users run."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy import optimize, stats
from sklearn.metrics import d2_pinball_score, d2_tweedie_score
from typer.testing import CliRunner

import greenfold
from greenfold import IGLClassifier, IGLRegressor, IGLStack, cli
from greenfold.design import Design
from greenfold.learn.data import Rows
from greenfold.learn.skewed import losses
from greenfold.learn.units import Scaling
from greenfold.likelihoods import LogNormal, NegativeBinomial, Poisson, Quantile, StudentT
from greenfold.likelihoods.classes import Corners, Softmax
from greenfold.likelihoods.located import concordance
from greenfold.likelihoods.ordinal import Ordinal
from greenfold.solve import Likely
from greenfold.solve.likely import working
from greenfold.solve.shared import Dense, likeliest

LAWS = {
    "softmax": Softmax(3),
    "corners": Corners(3, sharpness=2.5),
    "poisson": Poisson(),
    "negative_binomial": NegativeBinomial(known=2.5),
    "student_t": StudentT(spread=0.3),
    "lognormal": LogNormal(spread=0.4),
    "quantile": Quantile([0.1, 0.5, 0.8], width=0.2),
    "ordinal": Ordinal(4, (-1.0, 0.3, 2.0)),
}


def targets(law, n=40, seed=0):
    """Targets Y (n, k) as a solver sees them."""
    rng = np.random.default_rng(seed)
    if isinstance(law, Softmax):
        return np.eye(law.classes)[rng.integers(law.classes, size=n)]
    if isinstance(law, Ordinal):
        return rng.integers(law.classes, size=(n, 1)).astype(float)
    if isinstance(law, Poisson | NegativeBinomial):
        return law.columns(rng.poisson(2.0, n).astype(float), rng.uniform(0.5, 2, n))
    if isinstance(law, LogNormal):
        return law.columns(np.exp(rng.normal(size=n)), (rng.random(n) < 0.4).astype(float))
    return law.columns(rng.normal(size=n), None)


@pytest.mark.parametrize("name", LAWS)
def test_slopes_are_those_of_the_values(name):
    law = LAWS[name]
    Y, f = targets(law), np.random.default_rng(1).normal(size=(40, law.outputs))
    at = law.at(f, Y)
    for k in range(law.outputs):
        step = np.zeros(law.outputs)
        step[k] = 1e-5
        ahead, back = law.at(f + step, Y), law.at(f - step, Y)
        assert_allclose((ahead.value - back.value) / 2e-5, at.slope[:, k], rtol=1e-5, atol=1e-7)
        if law.outputs == 1 and name in (
            "poisson",
            "lognormal",
            "ordinal",
        ):  # others have a bound, or a mean
            second = (ahead.slope - back.slope)[:, 0] / 2e-5
            assert_allclose(second, at.curvature, rtol=1e-4, atol=1e-7)
    assert (at.curvature > 0).all()


def test_values_are_logarithms_of_probabilities():
    f = np.random.default_rng(1).normal(size=(40, 1))
    Y = targets(LAWS["poisson"])
    y, mu = Y[:, 0], np.exp(f[:, 0] + Y[:, 1])
    assert_allclose(Poisson().at(f, Y).value, -stats.poisson.logpmf(y, mu))
    nb = LAWS["negative_binomial"].at(f, Y).value
    assert_allclose(nb, -stats.nbinom.logpmf(y, 2.5, 2.5 / (2.5 + mu)))
    many = NegativeBinomial(r=1e7).at(f, Y).value  # the limit of no excess
    assert_allclose(many, Poisson().at(f, Y).value, atol=1e-5)
    Y = targets(LAWS["student_t"])
    t = -stats.t.logpdf(Y[:, 0], 4, f[:, 0], 0.3)
    value = StudentT(spread=0.3).at(f, Y).value
    assert_allclose(value - value[0], t - t[0], atol=1e-9)  # up to a constant
    Y = targets(LAWS["lognormal"])
    around = stats.norm(f[:, 0], 0.4)
    known = np.where(Y[:, 1] == 1, -around.logsf(Y[:, 0]), -around.logpdf(Y[:, 0]))
    assert_allclose(LAWS["lognormal"].at(f, Y).value, known)


@pytest.mark.parametrize("name", LAWS)
def test_the_solver_finds_the_optimum(name):
    """Against a general-purpose minimizer of the same J, whatever the likelihood."""
    law, rng = LAWS[name], np.random.default_rng(2)
    Y, Phi, weight = targets(law), rng.normal(size=(40, 5)), rng.uniform(0.5, 2, 40)
    c, alpha = law.outputs, 0.7
    end = likeliest(Dense(Phi @ Phi.T), law, Y, weight, alpha, tol=1e-15)

    def J(flat):
        w = flat.reshape(6, c)
        terms = law.at(Phi @ w[:5] + w[5], Y)
        g = weight[:, None] * terms.slope
        slope = np.vstack([Phi.T @ g + alpha * w[:5], g.sum(0)])
        return weight @ terms.value + 0.5 * alpha * (w[:5] ** 2).sum(), slope.ravel()

    best = optimize.minimize(J, np.zeros(6 * c), jac=True, options={"gtol": 1e-9})
    w = np.vstack([Phi.T @ end.a, end.b])
    assert J(w.ravel())[0] == pytest.approx(best.fun, rel=1e-9)
    assert_allclose(end.f, Phi @ w[:5] + w[5], atol=1e-8)
    design = Design(
        torch.from_numpy(np.hstack([Phi, np.ones((40, 1))])), torch.tensor([1.0] * 5 + [0.0])
    )
    solution = Likely(law, alpha, tol=1e-7).solve(
        design, torch.from_numpy(Y), torch.from_numpy(weight)
    )
    assert J(solution.w.numpy().ravel())[0] == pytest.approx(best.fun, rel=1e-9)
    # and least squares on working targets stays there
    if c == 1:
        z, s = working(law, end.f, Y, weight)
        A = design.Phi.numpy()
        left = A.T @ (s[:, None] * (A @ w - z)) + alpha * np.vstack([w[:5], [[0.0]]])
        assert_allclose(left, 0, atol=1e-5)


def test_own_numbers_are_where_rows_are_likeliest():
    rng = np.random.default_rng(3)
    f = rng.normal(size=(4000, 1))
    y = rng.negative_binomial(3.0, 3 / (3 + np.exp(f[:, 0])))
    law, one = NegativeBinomial(), np.ones(4000)
    Y = law.columns(y.astype(float), None)
    assert 2.3 < law.fitted(f, Y, one).size < 4.0
    assert NegativeBinomial(r=7.0).fitted(f, Y, one).size == 7.0
    e = 0.2 * rng.standard_t(4, size=4000)
    assert StudentT().fitted(f, f + e[:, None], one).spread == pytest.approx(0.2, rel=0.05)
    T = f[:, 0] + 0.3 * rng.normal(size=4000)
    limit = rng.normal(size=4000)
    Y = np.column_stack([np.minimum(T, limit), limit < T])
    assert LogNormal().fitted(f, Y, one).spread == pytest.approx(0.3, rel=0.05)
    ignoring = np.column_stack([Y[:, 0], 0 * T])  # the negative control
    assert LogNormal().fitted(f, ignoring, one).spread > 0.5
    k = np.digitize(2 * f[:, 0] + rng.logistic(size=4000), [-1, 0.3, 2.0])[:, None].astype(float)
    found = Ordinal(4).fitted(2 * f, k, one).thresholds
    assert_allclose(found, [-1, 0.3, 2.0], atol=0.15)
    law = Quantile([0.2, 0.9]).fitted(np.zeros((4000, 2)), e[:, None], one)
    assert_allclose(law.moved, np.quantile(e, [0.2, 0.9]), atol=2e-3)


def test_scores_are_those_that_people_know():
    rng = np.random.default_rng(4)
    y, mu, w = rng.poisson(3.0, 50), rng.uniform(1, 5, 50), rng.uniform(0.5, 2, 50)
    law = Poisson()
    got = law.score(np.log(mu)[:, None], law.columns(y.astype(float), None), w)
    assert got == pytest.approx(d2_tweedie_score(y, mu, sample_weight=w, power=1), abs=1e-9)
    law, y, q = Quantile([0.8]), rng.normal(size=50), rng.normal(size=(50, 1))
    known = d2_pinball_score(y, q[:, 0], alpha=0.8)
    assert law.score(q, y[:, None], np.ones(50)) == pytest.approx(known, abs=5e-3)
    eta, y = np.array([1.0, 2, 3, 4]), np.array([1.0, 2, 4, 3])
    assert concordance(eta, y, np.array([True] * 4)) == pytest.approx(5 / 6)
    assert concordance(eta, y, np.array([True, True, True, False])) == pytest.approx(1.0)


def simulated(name, n=80, seed=0):
    """Rows, targets and what else `fit` is told, with η known."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    eta = np.sin(X[:, 0]) + 0.5 * X[:, 1]
    if name == "poisson":
        hours = rng.uniform(0.5, 3, n)
        return X, rng.poisson(np.exp(eta) * hours), {"exposure": hours}
    if name == "negative_binomial":
        return X, rng.poisson(np.exp(eta) * rng.gamma(2.0, 0.5, n)), {}
    if name == "lognormal":
        times, limit = np.exp(eta + 0.3 * rng.normal(size=n)), rng.exponential(5.0, n)
        return X, np.minimum(times, limit), {"censored": limit < times}
    return X, eta + 0.2 * rng.standard_t(3, n), {}


@pytest.mark.parametrize(
    "likelihood",
    ["poisson", "negative_binomial", "lognormal", "student_t", Quantile([0.05, 0.5, 0.95])],
    ids=lambda law: law if isinstance(law, str) else "quantile",
)
def test_everything_that_users_run(likelihood, tmp_path):
    X, y, told = simulated(likelihood)
    model = IGLRegressor(likelihood=likelihood, random_state=0).fit(X, y, **told)
    u = model.predict(X)
    low, high = model.predict_interval(X, alpha=0.1)
    assert (low <= high).all()
    assert model.score(X, y, **told) > 0.3
    file = tmp_path / "model.greenfold"
    greenfold.save(model, file)
    again = greenfold.load(file)
    assert_allclose(again.predict(X), u, rtol=0, atol=0)
    assert_allclose(again.predict_interval(X, alpha=0.1), (low, high), rtol=0, atol=0)
    greenfold.export(model, tmp_path / "model.pt2")  # checks itself against the model
    assert "working" not in model.report(tmp_path / "page.html").read_text()[:100]
    assert model.applicability(X).outside.shape == (80,)
    if isinstance(likelihood, Quantile):
        assert (np.diff(u, axis=1) >= 0).all()
        with pytest.raises(ValueError, match=r"those learned are \[0.05, 0.5, 0.95\]"):
            model.predict_interval(X, alpha=0.5)
        with pytest.raises(ValueError, match="without standard deviations"):
            model.predict(X, return_std=True)
    else:
        assert (model.predict(X, return_std=True)[1] > 0).all()
    with pytest.raises(ValueError, match="partial_fit needs likelihood='gaussian'"):
        model.partial_fit(X, y)


def test_stacks_have_likelihoods(tmp_path):
    X, y, told = simulated("poisson")
    stack = IGLStack(likelihood="poisson", random_state=0).fit(X, y, **told)
    assert stack.score(X, y, **told) > 0.5
    low, high = stack.predict_interval(X, alpha=0.1)
    assert (low <= stack.predict(X)).mean() > 0.9
    assert (stack.predict(X) <= high).all()
    file = tmp_path / "stack.greenfold"
    greenfold.save(stack, file)
    assert_allclose(greenfold.load(file).predict_interval(X, 0.1), (low, high), rtol=0, atol=0)


def test_noise_and_what_is_not_known_are_together_what_rows_left_out_show():
    """η off by `extra` times the noise's variance, and noise, have the spread of rows left out."""
    for law in (LogNormal(spread=0.7), StudentT(spread=0.7)):
        for extra in (0.0, 0.3, 50.0):
            assert law.sure(extra).noise * (1 + extra) == pytest.approx(law.noise)


def test_intervals_of_times_are_neither_endless_nor_too_short():
    rng = np.random.default_rng(3)
    X, e = rng.normal(size=(1100, 5)), np.random.default_rng(12).normal(size=1100)
    y = np.exp(1 + X[:, 0] + 0.4 * X[:, 1] + 0.5 * e)
    model = IGLRegressor(likelihood="lognormal", random_state=0).fit(X[:100], y[:100])
    low, high = model.predict_interval(X[100:], alpha=0.1)
    assert 0.8 < ((low <= y[100:]) & (y[100:] <= high)).mean() < 0.96
    assert np.median(np.log(high / low)) / (2 * 1.645) == pytest.approx(0.5, rel=0.25)


@pytest.mark.parametrize("kind", [IGLRegressor, IGLStack])
def test_deviations_have_one_unit_at_rows_left_out_and_at_new_ones(kind):
    """Otherwise far outliers make intervals as narrow as their noise is larger than most."""
    rng = np.random.default_rng(1)
    X, far = rng.normal(size=(200, 2)), rng.random(200) < 0.08
    y = X[:, 0] + 0.3 * rng.normal(size=200) + 20 * far * rng.normal(size=200)
    model = kind(likelihood="student_t", effort="fast", random_state=0).fit(X, y)
    for member in model.predictor_.members:
        with torch.no_grad():
            std = member.posterior.std(member.model, model.predictor_.inside(X))
        assert 1 <= np.median(member.posterior.loo_std) / np.median(std) < 1.05


@pytest.mark.parametrize("kind", [IGLRegressor, IGLStack])
def test_times_without_noise_are_learned(kind):
    X = np.random.default_rng(0).normal(size=(40, 2))
    model = kind(likelihood="lognormal", effort="fast", random_state=0).fit(X, np.exp(X[:, 0]))
    assert_allclose(model.predict(X), np.exp(X[:, 0]), rtol=1e-2)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", ["poisson", "negative_binomial", "lognormal", "student_t"])
def test_targets_that_are_all_the_same_are_predicted(name):
    X = np.random.default_rng(0).normal(size=(40, 2))
    model = IGLRegressor(likelihood=name, effort="fast", random_state=0).fit(X, np.ones(40))
    low, high = model.predict_interval(X, alpha=0.2)
    assert_allclose(model.predict(X), 1, rtol=1e-6)
    assert ((low <= 1) & (high >= 1)).all()


def test_classes_in_an_order(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 2))
    y = np.digitize(2 * np.sin(X[:, 0]) + 0.5 * rng.logistic(size=90), [-1.0, 1.0])
    names = np.array(["high", "low", "middle"])[[1, 2, 0]][y]  # their own order is not that
    model = IGLClassifier(loss="ordinal", random_state=0).fit(X, y)
    P = model.predict_proba(X)
    assert_allclose(P.sum(1), 1)
    assert model.score(X, y) > 0.7
    rises = P @ np.arange(3)
    assert np.corrcoef(np.argsort(np.argsort(rises)), model.decision_function(X))[0, 1] > 0.9
    assert (P > 0).all()
    file = tmp_path / "ordinal.greenfold"
    greenfold.save(model, file)
    assert_allclose(greenfold.load(file).predict_proba(X), P, rtol=0, atol=0)
    greenfold.export(model, tmp_path / "ordinal.pt2")
    model.report(tmp_path / "page.html", X, y)
    wrong = IGLClassifier(loss="ordinal", random_state=0).fit(X, names)  # the negative control
    assert wrong.standings_[0].score > model.standings_[0].score + 0.1


def test_skewed_targets_are_learned_by_their_logarithm_or_root():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 3))
    y = np.exp(2 * np.sin(X[:, 0]) + 0.2 * rng.normal(size=150))
    model = IGLRegressor(random_state=0).fit(X, y)
    assert model.units_.y.power < 1
    low, high = model.predict_interval(X, alpha=0.1)
    assert (low >= 0).all()
    assert ((low < model.predict(X)) & (model.predict(X) < high)).all()
    assert ((low <= y) & (y <= high)).mean() > 0.8
    scaled = IGLRegressor(random_state=0).fit(X, 1024 * y)
    assert_allclose(scaled.predict(X), 1024 * model.predict(X), rtol=1e-9)
    std = model.predict(X, return_std=True)[1]
    assert np.corrcoef(std, model.predict(X))[0, 1] > 0.9  # noise grows with y
    with pytest.raises(ValueError, match="must be positive"):
        model.partial_fit(X[:5], -y[:5])
    even = IGLRegressor(random_state=0).fit(X, 10 + X[:, 0] + 0.1 * rng.normal(size=150))
    assert even.units_.y.power == 1


def test_nats_of_a_bent_target_are_those_of_y():
    """The density of y, whichever T(y) is normal: that of a change of variables."""
    rng = np.random.default_rng(1)
    x, y = torch.from_numpy(rng.normal(size=(60, 2))), rng.lognormal(size=60)
    scaling = Scaling.of_targets(y[:, None], 0.0)
    errors = scaling.inside(y[:, None])[:, 0]
    known = losses(Rows(x, torch.zeros(60, 1)), y, 0.0, Scaling.none(2), 0)[0]
    sd = np.sqrt(np.mean(errors**2)) * scaling.scale[0]  # nothing can be learned: around the mean
    density = stats.lognorm(sd, scale=np.exp(scaling.shift[0])).logpdf(y / scaling.unit)
    gap = known + density  # up to ½ log 2π + ½, and what was learned by chance
    assert gap.std() < 0.2
    assert gap.mean() == pytest.approx(-0.5 * np.log(2 * np.pi) - 0.5, abs=0.1)


def test_given_charts_have_likelihoods():
    X, y, told = simulated("poisson")
    model = IGLRegressor("linear", n_dims=1, likelihood="poisson", random_state=0)
    assert model.fit(X, y, **told).score(X, y, **told) > 0.3
    assert model.transform(X).shape == (80, 1)


def test_exposure_is_what_counts_are_counted_in():
    """Twice the exposure, twice the counts; and rates learned from hours are those of minutes / 60."""
    X, y, told = simulated("poisson")
    hours = told["exposure"]
    model = IGLRegressor(likelihood="poisson", random_state=0).fit(X, y, exposure=hours)
    assert_allclose(model.predict(X, exposure=2 * hours), 2 * hours * model.predict(X), rtol=1e-12)
    minutes = IGLRegressor(likelihood="poisson", random_state=0).fit(X, y, exposure=60 * hours)
    assert_allclose(60 * minutes.predict(X), model.predict(X), rtol=1e-4)
    low, high = model.predict_interval(X[:1], exposure=[1e4])
    assert 0 < low[0] < model.predict(X[:1], exposure=[1e4])[0] < high[0]


@pytest.mark.parametrize(
    ("likelihood", "y", "told", "words"),
    [
        ("poisson", [0, 1, -1, 2], {}, "whole numbers of at least 0, and 1 of 4 rows are not"),
        ("poisson", [0, 0, 0, 0], {}, "all counts are 0"),
        ("poisson", [0, 1, 1, 2], {"exposure": [1, 1, 0, 1]}, "`exposure` must be positive"),
        ("poisson", [0, 1, 1, 2], {"censored": [0, 1, 0, 0]}, "needs likelihood='lognormal'"),
        ("gaussian", [0, 1, 1, 2], {"exposure": [1, 1, 1, 1]}, "needs likelihood='poisson' or"),
        ("lognormal", [1, 2, 0, 3], {}, "times must be positive"),
        ("lognormal", [1, 2, 1, 3], {"censored": [1, 1, 1, 1]}, "every row is censored"),
        ("poison", [1, 2, 1, 3], {}, "likelihood"),
        ("student_t", np.ones((4, 2)), {}, "one target, and y has 2 columns"),
    ],
)
def test_what_cannot_be_is_refused(likelihood, y, told, words):
    with pytest.raises(ValueError, match=words):
        IGLRegressor(likelihood=likelihood).fit(np.arange(8.0).reshape(4, 2), y, **told)


def test_levels_of_quantiles_are_checked():
    for wrong in ([0.0, 0.5], [], [0.5, 0.5], 1.2):
        with pytest.raises(ValueError, match="levels"):
            Quantile(wrong)
    assert Quantile([0.9, 0.1]).levels == (0.1, 0.9)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", ["poisson", "negative_binomial", "lognormal", "student_t"])
def test_what_is_simulated_is_found(name, seed):
    """The loss of new rows is within 2% of that of the true parameters; intervals cover."""
    X, y, told = simulated(name, 4500, seed)
    part = {key: value[:1500] for key, value in told.items()}
    model = IGLRegressor(likelihood=name, random_state=0).fit(X[:1500], y[:1500], **part)
    law, new = model.units_.law, slice(1500, None)
    rest = {key: value[new] for key, value in told.items()}
    columns = law.columns(np.asarray(y[new], float), next(iter(rest.values()), None))
    Y, units = model.units_.target(np.asarray(columns, float)), model.units_.y
    eta = np.sin(X[new, 0]) + 0.5 * X[new, 1]
    truth = (
        ((eta / units.unit - units.shift) / units.scale)[:, None] if law.scaled else eta[:, None]
    )
    u = model.predictor_.u(torch.from_numpy(model.units_.x.inside(X[new])))
    own, best = (law.fitted(f, Y, np.ones(3000)).at(f, Y).value.mean() for f in (u, truth))
    scale = np.abs(best) if name != "student_t" else 1.0
    assert own - best < 0.02 * max(scale, 1.0)
    exposure = {k: v for k, v in rest.items() if k == "exposure"}
    low, high = model.predict_interval(X[new], alpha=0.1, **exposure)
    seen = (
        y[new]
        if name != "lognormal"
        else np.exp(eta + 0.3 * np.random.default_rng(9).normal(size=3000))
    )
    assert (
        0.87
        < ((low <= seen) & (seen <= high)).mean()
        < (0.98 if "exposure" in told or "neg" in name else 0.93)
    )


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_quantiles_where_the_noise_varies(seed):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(4500, 4))
    spread = 0.2 + 0.3 * (X[:, 3] + 1)
    eta = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2]
    y, levels = eta + spread * rng.normal(size=4500), [0.05, 0.5, 0.95]
    model = IGLRegressor(likelihood=Quantile(levels), random_state=0).fit(X[:1500], y[:1500])
    q, new = model.predict(X[1500:]), slice(1500, None)
    for k, level in enumerate(levels):
        truth = eta[new] + spread[new] * stats.norm.ppf(level)
        best, own = (
            np.maximum(level * (y[new] - f), (level - 1) * (y[new] - f)).mean()
            for f in (truth, q[:, k])
        )
        assert own < 1.05 * best
    assert 0.87 < ((q[:, 0] <= y[new]) & (y[new] <= q[:, 2])).mean() < 0.93


def test_the_command_line_has_likelihoods(tmp_path):
    X, y, told = simulated("poisson", 60)
    data, out = tmp_path / "d.csv", tmp_path / "m.greenfold"
    rows = np.column_stack([X, y, told["exposure"]])
    np.savetxt(data, rows, delimiter=",", header="a,b,c,calls,hours", comments="")

    def run(*words):
        result = CliRunner().invoke(cli.app, [str(word) for word in words])
        assert result.exit_code == 0, result.output
        return result.stdout

    words = ["fit", data, "--target", "calls", "--exposure", "hours", "--random-state", 0]
    assert "nats" in run(*words, "--likelihood", "poisson", "--effort", "fast", "--out", out)
    said = run("predict", out, data, "--exposure", "hours", "--interval", 0.9).splitlines()
    assert said[0].replace('"', "") == "calls,calls_low,calls_high"
    model = greenfold.load(out).estimator
    first = model.predict(X[:1], exposure=told["exposure"][:1])[0]
    assert float(said[1].split(",")[0]) == pytest.approx(first, rel=1e-9)
    words = ["fit", data, "--target", "hours", "--drop", "calls", "--quantiles", "0.1,0.9"]
    run(*words, "--effort", "fast", "--random-state", 0, "--out", out)
    assert run("predict", out, data).splitlines()[0].count(",") == 1
    both = [*words, "--likelihood", "poisson", "--out", out]
    result = CliRunner().invoke(cli.app, [str(word) for word in both])
    assert "two answers to one question" in result.output
