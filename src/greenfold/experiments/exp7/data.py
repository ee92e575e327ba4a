"""Pictures in [0, 1] (n, 1, s, s) and classes (n,): to train on, to tune on, and to be judged by once."""

from typing import NamedTuple

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor

from greenfold.images import load_fashion_mnist, load_mnist

DATASETS = ("digits", "mnist", "fashion")
N_DIGITS_TEST = 500  # the last ones, by other writers than the first


class Data(NamedTuple):
    train: tuple[Tensor, Tensor]
    validation: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]


def load(dataset: str, n_train: int, n_validation: int, seed: int, n_classes: int) -> Data:
    """Training and validation rows drawn by `seed`; the test rows are always the same."""
    if dataset == "digits":
        digits = load_digits()
        images, labels = digits.images / 16, digits.target
        pool = images[:-N_DIGITS_TEST], labels[:-N_DIGITS_TEST]
        new = images[-N_DIGITS_TEST:], labels[-N_DIGITS_TEST:]
    elif dataset in DATASETS:
        read = load_mnist if dataset == "mnist" else load_fashion_mnist
        pool, new = (_unit(read(part)) for part in ("train", "test"))
    else:
        raise ValueError(f"`dataset` must be one of {DATASETS}, got {dataset!r}.")
    pool, new = _classes(pool, n_classes), _classes(new, n_classes)
    rows = np.random.default_rng(seed).permutation(len(pool[1]))
    if len(rows) < n_train + n_validation:
        raise ValueError(
            f"{dataset} has {len(rows)} rows of {n_classes} classes to train on, which is fewer than "
            f"{n_train} + {n_validation}: lower `n_train` or `n_validation`."
        )
    parts = rows[:n_train], rows[n_train : n_train + n_validation]
    train, validation = (_tensors(pool[0][part], pool[1][part]) for part in parts)
    return Data(train, validation, _tensors(*new))


Pair = tuple[np.ndarray, np.ndarray]


def _unit(pair: Pair) -> Pair:
    return pair[0].astype(np.float32) / 255, pair[1]


def _classes(pair: Pair, n_classes: int) -> Pair:
    keep = pair[1] < n_classes
    return pair[0][keep], pair[1][keep]


def _tensors(images: np.ndarray, labels: np.ndarray) -> tuple[Tensor, Tensor]:
    return torch.from_numpy(images.astype(np.float32))[:, None], torch.from_numpy(
        labels.astype(np.int64)
    )
