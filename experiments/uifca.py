"""UIFCA (Chung, Lee, Ramchandran: Federated Unsupervised Clustering with Generative Models, 2022), which the paper names.

The server holds a generative model per cluster. In every round it sends all of them to the clients; a client gives each of
its rows to the model under which the row is most likely, fits the models to the rows they were given, and sends them back;
the server merges the clients' models of a cluster, weighted by their numbers of rows. No privacy beyond that: the server, and
every client, see the models.

A model here is a Gaussian with a low-rank covariance: mean, `RANK` principal axes with their variances, and one variance for
all other directions (probabilistic PCA), which has its fit of greatest likelihood in closed form. Its authors take neural
models, and steps of gradient descent; so this is their iteration and merging, not their models. Merging is that of the
mixture of the clients' Gaussians, cut to `RANK` axes again, and loses nothing else.

It starts from an assignment that it is given: the one that central Lloyd has after its first round, so that a difference is
one of methods and not of starts. In the field nobody could compute that start without seeing all rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
RANK, MOST_ROUNDS = 10, 100
_LEAST = (
    1e-6  # of the mean variance of all features: what is left for directions in which a cluster's rows do not differ
)


@dataclass(frozen=True)
class Model:
    """A Gaussian: of how many rows, their mean, orthonormal axes (d, r), the variances along them, and that of the rest."""

    rows: int
    mean: Floats
    axes: Floats
    variances: Floats
    rest: float

    @property
    def nbytes(self) -> int:
        """What it takes to send it."""
        return 8 * (2 + self.mean.size + self.axes.size + self.variances.size)

    def unlikelihood(self, rows: Floats) -> Floats:
        """−2 log of the density at every row, but for a constant."""
        away = rows - self.mean
        along = (away @ self.axes) ** 2
        beyond = np.maximum((away * away).sum(axis=1) - along.sum(axis=1), 0.0)
        volume = np.log(self.variances).sum() + (self.mean.size - self.variances.size) * np.log(self.rest)
        return np.asarray((along / self.variances).sum(axis=1) + beyond / self.rest + volume)


@dataclass(frozen=True)
class Clustered:
    """Labels of every client's rows, after how many rounds, and the bytes that all clients sent and received."""

    labels: list[Ints]
    rounds: int
    bytes_sent: int


def cluster(parts: Sequence[Floats], start: Sequence[Ints], k: int, *, rank: int = RANK, threads: int = 1) -> Clustered:
    """Cluster the clients' rows into k; `start` holds a first label of every row."""
    with threadpool_limits(threads):
        return _cluster(parts, [np.asarray(own, dtype=np.int64) for own in start], k, rank)


def _cluster(parts: Sequence[Floats], labels: list[Ints], k: int, rank: int) -> Clustered:
    least = _LEAST * float(np.concatenate(parts).var(axis=0).mean()) or _LEAST
    models: list[Model | None] = [None] * k
    sent = rounds = 0
    same = False
    while not same and rounds < MOST_ROUNDS:
        local = [[fit(rows[own == h], rank) for h in range(k)] for rows, own in zip(parts, labels, strict=True)]
        sent += sum(one.nbytes for client in local for one in client if one is not None)
        models = [merged([client[h] for client in local], rank, least) or models[h] for h in range(k)]
        sent += len(parts) * sum(one.nbytes for one in models if one is not None)
        following = [assigned(rows, models) for rows in parts]
        same = all(np.array_equal(one, other) for one, other in zip(labels, following, strict=True))
        labels, rounds = following, rounds + 1
    return Clustered(labels, rounds, sent)


def assigned(rows: Floats, models: Sequence[Model | None]) -> Ints:
    """The most likely model of every row, ties to the first; a cluster that has never had a row has none."""
    columns = [np.full(len(rows), np.inf) if one is None else one.unlikelihood(rows) for one in models]
    return np.asarray(np.stack(columns, axis=1).argmin(axis=1))


def fit(rows: Floats, rank: int) -> Model | None:
    """The Gaussian of greatest likelihood with so many axes, of a client's rows in a cluster; None without rows."""
    if not len(rows):
        return None
    mean = rows.mean(axis=0)
    away = (rows - mean) / np.sqrt(len(rows))
    return _low_rank(len(rows), mean, away.T, 0.0, rank)


def merged(models: Sequence[Model | None], rank: int, least: float) -> Model | None:
    """The Gaussian with mean and covariance of the clients' models together, cut to so many axes; None if none has rows."""
    given = [one for one in models if one is not None]
    if not given:
        return None
    total = sum(one.rows for one in given)
    shares = [one.rows / total for one in given]
    mean = np.asarray(sum(share * one.mean for share, one in zip(shares, given, strict=True)))
    even = sum(share * one.rest for share, one in zip(shares, given, strict=True))
    spread = [one.axes * np.sqrt(share * (one.variances - one.rest)) for share, one in zip(shares, given, strict=True)]
    apart = [np.sqrt(share) * (one.mean - mean)[:, None] for share, one in zip(shares, given, strict=True)]
    return _low_rank(total, mean, np.hstack(spread + apart), max(even, least), rank)


def _low_rank(rows: int, mean: Floats, factor: Floats, even: float, rank: int) -> Model:
    """Of the covariance F·Fᵀ + even·I the axes of greatest variance; what is left is spread over all other directions."""
    kept = min(rank, len(mean) - 1, factor.shape[1])
    axes, values = _greatest(factor, kept)
    left = max(float((factor * factor).sum()) - float(values.sum()), 0.0)
    rest = even + left / (len(mean) - kept)
    return Model(rows, mean, axes, np.maximum(values + even, rest), rest)


def _greatest(factor: Floats, count: int) -> tuple[Floats, Floats]:
    """The first left singular vectors of F and its squared singular values, from the smaller of FᵀF and F·Fᵀ."""
    from scipy.linalg import eigh

    wide = factor.shape[1] > factor.shape[0]
    gram = factor @ factor.T if wide else factor.T @ factor
    size = len(gram)
    values, vectors = eigh(gram, subset_by_index=(size - count, size - 1))
    values = np.maximum(values[::-1], 0.0)
    if wide:
        return np.asarray(vectors[:, ::-1]), values
    lengths = np.sqrt(np.maximum(values, np.finfo(float).tiny))
    axes = factor @ vectors[:, ::-1] / lengths
    return np.asarray(np.where(values > 1e-12 * max(values.sum(), 1e-300), axes, 0.0)), values
