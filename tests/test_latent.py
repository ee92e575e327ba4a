"""Exp. 7's parts: laws of the losses, splits that do not leak, training that can be interrupted."""

import numpy as np
import pytest
import torch

from greenfold.experiments.exp7 import QUICK, TRIALS, Config, on, settings
from greenfold.experiments.exp7.data import load
from greenfold.experiments.exp7.measures import fit_probe, measure, roughness
from greenfold.experiments.exp7.networks import METHODS, Autoencoder, contrast, rebuilt_loss
from greenfold.experiments.exp7.training import Checkpoint, Setting, Task, moved, train


def task(method="AE+IGL two-stage", **changes):
    options = {"dataset": "digits", "seed": 3, "n_train": 300, "n_classes": 10, "n_dims": 8}
    options |= {"n_atoms": 16, "epochs": 3, "batch": 50, "setting": Setting(0.2, 0.1), **changes}
    return Task(method, **options)


@pytest.fixture(scope="module")
def data():
    return load("digits", 300, 100, 3, 10)


@pytest.mark.parametrize("method", METHODS)
def test_an_interrupted_training_ends_with_the_same_bits(method, data, tmp_path):
    undisturbed, history = train(task(method), *data.train)

    def stop(_):
        stop.left -= 1
        if not stop.left:
            raise KeyboardInterrupt

    for stop.left in (1, 2):  # killed after its first epoch, and again after the second
        with pytest.raises(KeyboardInterrupt):
            train(task(method), *data.train, str(tmp_path), stop)
    resumed, again = train(task(method), *data.train, str(tmp_path))
    state = undisturbed.state_dict()
    assert all(torch.equal(v, state[k]) for k, v in resumed.state_dict().items())
    assert history["gates"] == again["gates"]
    assert len(list(tmp_path.iterdir())) == 1


def test_a_half_written_checkpoint_is_not_taken_for_one(tmp_path, monkeypatch):
    kept = Checkpoint(str(tmp_path), "a")
    kept.save({"epoch": 1})
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("no space")))
    with pytest.raises(OSError, match="no space"):
        kept.save({"epoch": 2})
    assert kept.load() == {"epoch": 1}


def test_keys_tell_settings_apart():
    keys = {task(setting=s).key for s in TRIALS["IGL"]} | {task(seed=4).key, task(epochs=5).key}
    assert len(keys) == len(TRIALS["IGL"]) + 2


def test_every_method_has_the_same_number_of_settings():
    assert {len(set(settings(method))) for method in METHODS} == {6}


def test_parts_of_the_data_are_apart():
    data = load("digits", 400, 200, 0, 10)
    rows = [part[0].flatten(1).numpy() for part in data]
    everything = np.concatenate(rows)
    assert len(np.unique(everything, axis=0)) == len(everything)
    other = load("digits", 400, 200, 1, 10)
    assert torch.equal(other.test[0], data.test[0])
    assert not torch.equal(other.train[0], data.train[0])
    assert load("digits", 300, 0, 0, 5).test[1].max() == 4


def test_bad_data():
    with pytest.raises(ValueError, match="lower `n_train`"):
        load("digits", 5000, 0, 0, 10)
    with pytest.raises(ValueError, match="digits"):
        load("letters", 10, 0, 0, 10)
    with pytest.raises(ValueError, match="mnist"):
        on(Config(), "letters")
    assert on(QUICK, "mnist").n_train == 4000


def test_contrast_of_perfect_clusters():
    """Classes at orthogonal corners: every friend has probability 1/(m + …), known in closed form."""
    y = torch.arange(4).repeat_interleave(5)
    z = torch.eye(4)[y]
    t = 0.5
    friends, others = 4 * np.exp(1 / t), 15 * np.exp(0.0)
    expected = np.log(friends + others) - 1 / t
    assert float(contrast(z, y, t)) == pytest.approx(expected, rel=1e-6)
    shuffled = contrast(z, y[torch.randperm(20, generator=torch.Generator().manual_seed(0))], t)
    assert shuffled > expected
    assert contrast(torch.randn(3, 2), torch.tensor([0, 0, 1]), t).isfinite()  # one without friends


def test_edges_count_in_the_reconstruction():
    x = torch.zeros(1, 1, 4, 4)
    flat, striped = x + 0.5, x.clone()
    striped[..., ::2] = 0.5**0.5  # same mean square
    assert rebuilt_loss(flat, x) == pytest.approx(0.25)
    assert rebuilt_loss(striped, x) == pytest.approx(0.25 + 0.1 * 0.5)


def test_pictures_move_by_a_pixel_at_most():
    x = torch.zeros(2, 1, 8, 8)
    x[..., 4, 4] = 1
    seen = set()
    for seed in range(60):
        torch.manual_seed(seed)
        _, _, i, j = moved(x).nonzero()[0].tolist()
        seen.add((i - 4, j - 4))
    assert seen == {(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1)}


def test_the_probe_and_its_smoothness():
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=400)
    h = (rng.normal(size=(400, 3)) * 0.1 + y[:, None]).astype(np.float32)
    probe = fit_probe(h, y)
    assert probe.score(h, y) == 1
    assert 0 < roughness(probe, h) <= 0.1 * np.sqrt(2)  # at most one change of class in ten steps
    assert roughness(probe, h[y == 0]) < 0.5 * roughness(probe, h)  # pairs of one class only


def test_measures_of_a_trained_head(data):
    model, history = train(task(epochs=15), *data.train)
    assert len(history["gates"]) == 15
    with torch.no_grad():
        model.head.raw_gates[:3] = -1.0
    assert model.head.prune() == 5
    scores = measure(model, data.train, data.test, 0, refit_epochs=5, batch=50)
    assert scores["dims"] == 5 == (np.array(scores["gates"]) > 0).sum()
    assert scores["head"] > 0.5
    assert scores["mse_active"] < scores["mse_zeroed"]  # its decoder has never seen zeros there
    assert np.isfinite([v for k, v in scores.items() if k != "gates"]).all()


def test_the_decoder_sees_gated_codes_only_where_it_is_said():
    for method in METHODS:
        model = Autoencoder(method, 8, 4, 10, 5).eval()
        if model.head is not None:
            with torch.no_grad():
                model.head.open[2] = 0
        seen = model.seen(torch.ones(1, 4))
        assert (seen[0, 2] == 0) == ("gated" in method)


def test_unknown_method():
    with pytest.raises(ValueError, match="two-stage"):
        Autoencoder("PCA", 8, 4, 10, 5)
