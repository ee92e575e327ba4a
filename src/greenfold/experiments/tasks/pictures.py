"""Few-shot pictures: an encoder learned on some classes, new classes from one or five pictures of each.

All methods have the same encoder and see the same episodes, as often. New classes are classes that no
encoder was learned from.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn
from torch.nn import functional as F

from greenfold.chart import Conv
from greenfold.estimators import IGLClassifier, Learner
from greenfold.experiments.tasks.numbers import lines_beside
from greenfold.images import load_fashion_mnist, load_mnist

Array = NDArray[Any]
WAY, QUERIES = 5, 5  # classes of an episode, and pictures of each that judge it
FEATURES = 32
RATE = 3e-3
STRENGTHS = (0.1, 1.0, 10.0)  # of logistic regression


class Pictures(NamedTuple):
    """Pictures (n, D), standardized, and classes (n,), of the classes to learn from and of new ones."""

    old: tuple[Array, Array]
    new: tuple[Array, Array]
    shape: tuple[int, int, int]


def load(images: str, n: int, seed: int) -> Pictures:
    """`n` pictures of each class; half of the classes, those of even number, are learned from."""
    rng = np.random.default_rng(seed)
    if images == "digits":
        X, y = load_digits(return_X_y=True)
        X, shape = X / 16, (1, 8, 8)
    else:
        (A, a), (B, b) = load_mnist("train"), load_fashion_mnist("train")
        X, y = np.concatenate([A, B]).reshape(-1, 784) / np.float32(255), np.append(a, b + 10)
        shape = (1, 28, 28)
    rows = np.concatenate([rng.permutation(np.flatnonzero(y == c))[:n] for c in np.unique(y)])
    X, y = X[rows], y[rows].astype(np.int64)
    old = y % 2 == 0
    mean, sd = X[old].mean(0), X[old].std(0)
    X = ((X - mean) / np.where(sd > 1e-3, sd, 1.0)).astype(np.float32)  # alike for all methods
    return Pictures((X[old], y[old]), (X[~old], y[~old]), shape)


class Episode(NamedTuple):
    support: Array  # numbers of pictures, class by class
    query: Array


def episodes(y: Array, shots: int, queries: int, many: int, seed: int) -> list[Episode]:
    """Of five classes each."""
    rng = np.random.default_rng(seed)
    classes, found = np.unique(y), []
    for _ in range(many):
        rows = [
            rng.permutation(np.flatnonzero(y == c))[: shots + queries]
            for c in rng.permutation(classes)[:WAY]
        ]
        found.append(
            Episode(
                np.concatenate([r[:shots] for r in rows]), np.concatenate([r[shots:] for r in rows])
            )
        )
    return found


class Single(nn.Module):
    """Convolutions in single precision, for rows in double."""

    def __init__(self, shape: tuple[int, int, int], seed: int):
        super().__init__()
        draws = torch.Generator().manual_seed(seed)
        self.conv = Conv(shape, FEATURES, pooled=True, generator=draws).float()

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x.float()).to(x.dtype)


# --- heads: scores (q, 5) at the query, from features of the support


def prototypes(z: Tensor, y: Tensor, q: Tensor, _: Tensor) -> Tensor:
    """Minus the squared distance to the mean of a class."""
    means = torch.stack([z[y == k].mean(0) for k in range(WAY)])
    return -torch.cdist(q, means).square()


def linear_ridge(z: Tensor, y: Tensor, q: Tensor, learned: Tensor) -> Tensor:
    """A ridge regression of indicators on features, with penalty, scale and shift learned (R2D2)."""
    K = z @ z.T + learned[0].exp() * torch.eye(len(z))
    return learned[1].exp() * (q @ z.T @ torch.linalg.solve(K, F.one_hot(y, WAY).to(z)))


Head = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
HEADS: dict[str, Head] = {"prototypes": prototypes, "ridge": linear_ridge}


def labels(rows: Array) -> Tensor:
    """Classes of an episode: its rows come class by class."""
    return torch.arange(WAY).repeat_interleave(len(rows) // WAY)


def trained(head: Head, data: Pictures, lesson: list[Episode], epochs: int, seed: int) -> Any:
    """Encoder and numbers of a head that learned by episodes."""
    encoder, images = Single(data.shape, seed), torch.from_numpy(data.old[0])
    learned = torch.tensor([0.0, 1.0], requires_grad=True)

    def loss(episode: Episode) -> Tensor:
        z, q = (encoder(images[part]) for part in episode)
        scores = head(z, labels(episode.support), q, learned)
        return F.cross_entropy(scores, labels(episode.query))

    _descend(loss, [*encoder.parameters(), learned], lesson, epochs, seed)
    return encoder.eval(), learned.detach()


def classified(data: Pictures, lesson: list[Episode], epochs: int, seed: int) -> nn.Module:
    """An encoder that learned to tell all old classes apart, from the pictures of the same episodes."""
    encoder, images = Single(data.shape, seed), torch.from_numpy(data.old[0])
    classes, y = np.unique(data.old[1], return_inverse=True)
    top, target = nn.Linear(FEATURES, len(classes)), torch.from_numpy(y)

    def loss(episode: Episode) -> Tensor:
        rows = np.concatenate(episode)
        return F.cross_entropy(top(encoder(images[rows])), target[rows])

    _descend(loss, [*encoder.parameters(), *top.parameters()], lesson, epochs, seed)
    return encoder.eval()


def _descend(
    loss: Callable[[Episode], Tensor],
    parameters: list[Tensor],
    lesson: list[Episode],
    epochs: int,
    seed: int,
) -> None:
    adam, draws = torch.optim.Adam(parameters, lr=RATE), torch.Generator().manual_seed(seed)
    steps = torch.optim.lr_scheduler.CosineAnnealingLR(adam, epochs)
    for _ in range(epochs):
        for i in torch.randperm(len(lesson), generator=draws).tolist():
            value = loss(lesson[i])
            adam.zero_grad()
            value.backward()
            adam.step()
        steps.step()


def igl(data: Pictures, lesson: list[Episode], shots: int, epochs: int, seed: int) -> Learner:
    X, y = data.old[0].astype(np.float64), data.old[1]
    model = IGLClassifier(Single(data.shape, seed), lines_beside(), loss="least_squares")
    # one task in five is left out of learning: as many more make up for it
    more = lesson + lesson[: len(lesson) // 4]
    tasks = (((X[s], y[s]), (X[q], y[q])) for s, q in more)
    learner = Learner(model, epochs=epochs, batch_size=1, learning_rate=RATE, random_state=seed)
    return learner.fit_tasks(tasks)


# --- how they do


@torch.no_grad()
def features(encoder: nn.Module, X: Array) -> Tensor:
    return torch.cat([encoder(part) for part in torch.from_numpy(X).split(500)])


def accuracy(scores: Tensor | Array, query: Array) -> float:
    return float((np.asarray(scores).argmax(1) == labels(query).numpy()).mean())


def head_accuracies(head: Head, found: Any, data: Pictures, tests: list[Episode]) -> list[float]:
    encoder, learned = found
    z = features(encoder, data.new[0])
    with torch.no_grad():
        return [accuracy(head(z[s], labels(s), z[q], learned), q) for s, q in tests]


def logistic_accuracies(
    encoder: nn.Module, data: Pictures, lesson: list[Episode], tests: list[Episode]
) -> list[float]:
    """At the strength that does best in some episodes of old classes."""

    def all_of(z: Array, some: list[Episode], C: float) -> list[float]:
        size = float(z.std())
        found = []
        for s, q in some:
            model = LogisticRegression(C=C, max_iter=300).fit(z[s] / size, labels(s).numpy())
            found.append(accuracy(model.decision_function(z[q] / size), q))
        return found

    old, new = (features(encoder, part[0]).numpy() for part in (data.old, data.new))
    best = max(STRENGTHS, key=lambda C: float(np.mean(all_of(old, lesson[:50], C))))
    return all_of(new, tests, best)


def igl_accuracies(learner: Learner, data: Pictures, tests: list[Episode]) -> list[float]:
    X = data.new[0].astype(np.float64)
    return [
        accuracy(learner.adapt(X[s], labels(s).numpy()).predict_proba(X[q]), q) for s, q in tests
    ]
