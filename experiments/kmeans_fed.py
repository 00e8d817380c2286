"""k-FED (Dennis, Li, Smith: Heterogeneity for the Win: One-Shot Federated Clustering, ICML 2021), the paper's baseline.

Every client clusters its own rows into the k′ clusters it is told (Awasthi and Sheffet's method), sends the k′ centres, and
the server clusters those centres into k. One message a client, no privacy. As its authors' own implementation does it:

* a client projects its rows on their first k′ singular vectors, starts there by k-means++, applies the centre separation
  (rows three times as near to one centre as to any other), and runs Lloyd's algorithm on the rows from those sets' means;
* the server starts from all centres of one client and adds, one by one, the centre furthest from those it has; then
  Lloyd's algorithm on the centres;
* a row belongs to the cluster of its local centre.

Where a separated set is empty (theirs then fails), the rows nearest to that centre stand in for it, as in SecFC.
`Settings` holds the choices that could be made otherwise; its defaults are the authors'.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
LOCAL = ("separation", "k-means++", "random rows", "random assignment")
SERVER = ("far apart", "k-means++", "random centres", "random assignment")
LABELS = ("local", "nearest centre")


@dataclass(frozen=True)
class Settings:
    """How clients start, how the server starts, and how rows are labelled."""

    local: str = "separation"
    server: str = "far apart"
    labels: str = "local"

    def __post_init__(self) -> None:
        for value, choices in ((self.local, LOCAL), (self.server, SERVER), (self.labels, LABELS)):
            if value not in choices:
                raise ValueError(f"{value!r} is none of {', '.join(choices)}")


@dataclass(frozen=True)
class Clustered:
    """Labels of every client's rows, the server's centres, and the bytes that travel: k′ centres of float64 a client."""

    labels: list[Ints]
    centres: Floats
    bytes_sent: int


def cluster(
    parts: Sequence[Floats], told: int, k: int, seed: int, settings: Settings | None = None, *, threads: int = 1
) -> Clustered:
    """Cluster the clients' rows into k, each client being told k′ = `told`."""
    with threadpool_limits(threads):
        return _cluster(parts, told, k, np.random.default_rng((3, seed)), settings or Settings())


def _cluster(parts: Sequence[Floats], told: int, k: int, random: np.random.Generator, chosen: Settings) -> Clustered:
    local = [client(rows, told, random, chosen.local) for rows in parts]
    sent = np.concatenate([centres for centres, _ in local])
    model = server(sent, len(local[0][0]), k, random, chosen.server)
    if chosen.labels == "nearest centre":
        labels = [_squared(rows, model.cluster_centers_).argmin(axis=1) for rows in parts]
        return Clustered(labels, model.cluster_centers_, sent.nbytes)
    edges = np.cumsum([0] + [len(centres) for centres, _ in local])
    groups = model.labels_.astype(np.int64)
    labels = [groups[first:][own] for first, (_, own) in zip(edges[:-1], local, strict=True)]
    return Clustered(labels, model.cluster_centers_, sent.nbytes)


def client(rows: Floats, told: int, random: np.random.Generator, start: str) -> tuple[Floats, Ints]:
    """A client's centres and the index of each row's centre; with no more rows than k′ every row is a centre."""
    if len(rows) <= told:
        return rows, np.arange(len(rows))
    model = _lloyd(rows, _local_start(rows, told, random, start))
    return model.cluster_centers_, model.labels_.astype(np.int64)


def _local_start(rows: Floats, told: int, random: np.random.Generator, start: str) -> Floats:
    if start == "separation":
        return _separated(rows, told, random)
    if start == "k-means++":
        return _plus_plus(rows, told, random)
    return _random_start(rows, told, random, start)


def _separated(rows: Floats, told: int, random: np.random.Generator) -> Floats:
    from sklearn.utils.extmath import randomized_svd

    _, _, directions = randomized_svd(rows, n_components=told, random_state=_state(random))
    flat = rows @ directions.T
    first = _plus_plus(flat, told, random)
    squared = _squared(flat, first)
    near = squared.argmin(axis=1)
    others = squared.copy()
    others[np.arange(len(rows)), near] = np.inf
    fits = 9.0 * squared.min(axis=1) <= others.min(axis=1)
    sets = [[fits & (near == h), near == h] for h in range(told)]
    means = [next((flat[one].mean(axis=0) for one in both if one.any()), first[h]) for h, both in enumerate(sets)]
    return np.asarray(np.stack(means) @ directions)


def server(sent: Floats, first: int, k: int, random: np.random.Generator, start: str) -> Any:
    """The server's clustering of the centres sent, of which the first client's are the first `first`."""
    return _lloyd(sent, _server_start(sent, first, k, random, start))


def _server_start(sent: Floats, first: int, k: int, random: np.random.Generator, start: str) -> Floats:
    if start == "far apart":
        return _far_apart(sent, first, k)
    if start == "k-means++":
        return _plus_plus(sent, k, random)
    return _random_start(sent, k, random, "random rows" if start == "random centres" else start)


def _far_apart(sent: Floats, first: int, k: int) -> Floats:
    """The first client's centres, then again and again the centre furthest from those chosen."""
    chosen = list(range(min(first, k)))
    closest = _squared(sent, sent[chosen]).min(axis=1)
    while len(chosen) < k:
        chosen.append(int(closest.argmax()))
        closest = np.minimum(closest, _squared(sent, sent[chosen[-1:]])[:, 0])
    return sent[chosen]


def _random_start(rows: Floats, k: int, random: np.random.Generator, start: str) -> Floats:
    """k rows by lot, or the means of k sets that rows are put in by lot."""
    if start == "random rows":
        return rows[random.choice(len(rows), k, replace=False)]
    labels = random.permutation(np.arange(len(rows)) % k)
    return np.stack([rows[labels == h].mean(axis=0) for h in range(k)])


def _plus_plus(rows: Floats, k: int, random: np.random.Generator) -> Floats:
    """Rows drawn one by one with probability proportional to D²; without k different rows, any."""
    chosen = [int(random.integers(len(rows)))]
    closest = _squared(rows, rows[chosen])[:, 0]
    while len(chosen) < k:
        total = closest.sum()
        chosen.append(int(random.choice(len(rows), p=closest / total if total > 0 else None)))
        closest = np.minimum(closest, _squared(rows, rows[chosen[-1:]])[:, 0])
    return rows[chosen]


def _lloyd(rows: Floats, start: Floats) -> Any:
    from sklearn.cluster import KMeans

    return KMeans(len(start), init=start, n_init=1, max_iter=300, tol=0).fit(rows)


def _squared(rows: Floats, centres: Floats) -> Floats:
    squared = (rows * rows).sum(axis=1)[:, None] - 2 * (rows @ centres.T) + (centres * centres).sum(axis=1)
    return np.asarray(np.maximum(squared, 0.0))


def _state(random: np.random.Generator) -> int:
    return int(random.integers(2**31))
