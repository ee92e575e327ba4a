"""CIFAR-10: pictures from an archive, calibration, training that can be interrupted."""

import io
import json
import tarfile

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from PIL import Image

from greenfold.experiments import cifar10
from greenfold.experiments.cifar10.measures import calibration_error
from greenfold.experiments.cifar10.networks import METHODS
from greenfold.experiments.cifar10.training import Setting, Task, moved, train
from greenfold.experiments.runner import reproduce
from greenfold.images import CIFAR10, CIFAR10_CLASSES, load_cifar10_jpeg


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """Thirty noisy pictures of each class to train on, ten to test, in no order."""
    folder = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    names = [
        f"{part}/{name}/{i:04d}.jpg"
        for part, n in (("train", 30), ("test", 10))
        for name in CIFAR10_CLASSES
        for i in range(n)
    ]
    (folder / "images").mkdir()
    with tarfile.open(folder / "images" / CIFAR10, "w:gz") as target:
        for name in rng.permutation(names):
            shade = 20 * CIFAR10_CLASSES.index(name.split("/")[1]) + 20
            picture = rng.integers(shade, shade + 20, (32, 32, 3)).astype(np.uint8)
            content = io.BytesIO()
            Image.fromarray(picture).save(content, "jpeg")
            entry = tarfile.TarInfo(str(name))
            entry.size = content.tell()
            content.seek(0)
            target.addfile(entry, content)
    return folder


def test_pictures_of_an_archive(archive, tmp_path):
    images, labels = load_cifar10_jpeg("test", archive)
    assert images.shape == (100, 32, 32, 3)
    assert labels.tolist() == np.repeat(np.arange(10), 10).tolist()
    means = images.reshape(100, -1).mean(1)  # the shade tells the class
    assert np.abs(means - (20.0 * labels + 30)).max() < 8
    with pytest.raises(ValueError, match="'train' or 'test'"):
        load_cifar10_jpeg("all", archive)
    with pytest.raises(FileNotFoundError, match="GREENFOLD_DATA"):
        load_cifar10_jpeg("test", tmp_path)


@pytest.mark.slow
def test_the_experiment_runs_on_any_such_archive(archive, tmp_path, monkeypatch):
    monkeypatch.setenv("GREENFOLD_DATA", str(archive))
    cifar10._pictures.cache_clear()
    results = reproduce("cifar10", "tiny", out=tmp_path, progress=False, n_jobs=1)
    cifar10._pictures.cache_clear()
    plt.close("all")
    written = json.loads((tmp_path / "cifar10" / "results.json").read_text())
    assert written["claims"] == json.loads(json.dumps(results["claims"]))
    assert all(method in (tmp_path / "cifar10" / "summary.md").read_text() for method in METHODS)
    assert "lossy" in written["tables"]


def test_calibration_error():
    """Right 7 times in 10 at a confidence of 0.7 is an error of 0, at 0.9 one of 0.2."""
    y = torch.tensor([0] * 7 + [1] * 3)
    for sure, error in ((0.7, 0.0), (0.9, 0.2)):
        p = torch.tensor([[sure, 1 - sure]], dtype=torch.float64).repeat(10, 1)
        assert calibration_error(p, y) == pytest.approx(error, abs=1e-12)


def test_moved_pictures_are_pieces_of_the_padded_ones():
    torch.manual_seed(0)
    x = torch.rand(3, 3, 8, 8)
    padded = torch.nn.functional.pad(x, (2,) * 4, mode="reflect")
    for one, whole in zip(moved(x, 2), padded):
        pieces = [
            piece
            for i in range(5)
            for j in range(5)
            for piece in (whole[:, i : i + 8, j : j + 8], whole[:, i : i + 8, j : j + 8].flip(2))
        ]
        assert any(torch.equal(one, piece) for piece in pieces)


@pytest.mark.parametrize("method", ["cross-entropy", "two-stage", "AE + two-stage"])
def test_an_interrupted_training_ends_with_the_same_bits(method, tmp_path, monkeypatch):
    generator = torch.Generator().manual_seed(0)
    x, y = torch.rand(60, 3, 32, 32, generator=generator), torch.arange(60) % 10
    task = Task(method, Setting(1e-2, 0.01, 0.1), 0, 60, 2, 10, 4, 8, 12)
    whole, _ = train(task, x, y)
    monkeypatch.setattr("greenfold.experiments.cifar10.training.moved", _fails_at(7))
    with pytest.raises(KeyboardInterrupt):
        train(task, x, y, str(tmp_path))
    monkeypatch.undo()
    assert list(tmp_path.iterdir())  # an epoch is kept
    again, history = train(task, x, y, str(tmp_path))
    assert len(history["gates"]) == 2
    for a, b in zip(whole.state_dict().values(), again.state_dict().values(), strict=True):
        assert torch.equal(a, b)


def _fails_at(step):
    """`moved`, interrupted at that call."""
    counted = iter(range(1, step + 1))

    def interrupted(x):
        if next(counted) == step:
            raise KeyboardInterrupt
        return moved(x)

    return interrupted
