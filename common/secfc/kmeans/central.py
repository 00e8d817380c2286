"""Lloyd's algorithm on pooled rows in exact integers, without any coding: what a federation must equal.

It shares nothing with the coded path but the rules of `lloyd` (ties to the lowest index, the empty-cluster rules) and the
draws from the coins, so that comparing the two means something. The demo and the experiments compare with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from secfc.errors import DataError, InvalidInput
from secfc.kmeans import empties as empty_clusters
from secfc.kmeans.candidates import candidates_per_seed, draw_labels
from secfc.kmeans.coins import Coins
from secfc.kmeans.seeding import DRAW_BITS, draw_point

Labels = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Central:
    """A clustering; `history` holds the assignment after every Lloyd round, `inertia` is in quantised units."""

    labels: Labels
    rounds: int
    converged: bool
    inertia: Fraction
    history: list[Labels]


def run(
    rows: npt.NDArray[np.int64],
    clusters: int,
    *,
    start: str = "k-means++",
    coins: Coins | None = None,
    initial: npt.ArrayLike | None = None,
    max_rounds: int = 300,
    empties: str = "furthest",
    draw_bits: int = DRAW_BITS,
    candidates: int = 1,
) -> Central:
    """Cluster quantised rows (m, d); pass the federation's coins or its initial labels to start where it started.

    `empties` is the rule for empty clusters: that of masked rounds or, of sealed ones, "largest". `draw_bits` is κ of a
    k-means++ draw; of several `candidates` a seed (greedy k-means++) the one that leaves the least ΣD² is taken.
    """
    if empties not in empty_clusters.RULES:
        raise InvalidInput(f"empties must be one of {', '.join(empty_clusters.RULES)}, not {empties!r}")
    if len(rows) < clusters:
        raise DataError(f"{len(rows)} rows cannot make {clusters} clusters; lower k or bring more rows")
    rows = _wide_enough(rows)
    coins = coins or Coins()
    ranks = empty_clusters.ranks(coins, len(rows)) if empties == "largest" else None
    draws = _Draws(coins, draw_bits, candidates)
    labels, loss = _start(rows, clusters, start, draws, initial, ranks), Fraction(0)
    history: list[Labels] = []
    converged = False
    while not converged and len(history) < max_rounds:
        sizes = np.bincount(labels[labels >= 0], minlength=clusters)
        scaled = _distances(rows, labels, sizes)
        nearest = _nearest(scaled, sizes)
        loss = _inertia(scaled, sizes, nearest)
        following = _filled(scaled, sizes, nearest, ranks)
        history.append(following)
        converged = bool((following == labels).all())
        labels = following
    return Central(labels, len(history), converged, loss, history)


def runs(
    rows: npt.NDArray[np.int64],
    clusters: Sequence[int],
    *,
    coins: Coins,
    start: str = "k-means++",
    candidates: int | None = None,
    **options: Any,
) -> list[Central]:
    """Every run of a job, by its number; `clusters` of each, and `candidates` as the job has them. See `run` for the rest."""
    return [
        run(
            rows,
            k,
            start=start,
            coins=coins.of_run(number),
            candidates=candidates_per_seed(k, start, candidates),
            **options,
        )
        for number, k in enumerate(clusters)
    ]


def best(made: Sequence[Central]) -> Central:
    """The run of one k that is taken: the least inertia, ties to the first."""
    return min(made, key=lambda one: one.inertia)


def _wide_enough(rows: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """int64 if the largest d′ fits, else Python integers."""
    eta = int(np.abs(rows).max(initial=0))
    return rows if len(rows) ** 2 * rows.shape[1] * (2 * eta) ** 2 < 2**63 else rows.astype(object)


def _distances(rows: Any, labels: Labels, sizes: Any) -> Any:
    """d′(i, h) = ‖Σ_{S_h} x − |S_h|·x_i‖² as exact integers."""
    sums = np.stack([rows[labels == h].sum(axis=0) for h in range(len(sizes))])
    sizes = sizes.astype(rows.dtype)
    norms = (rows * rows).sum(axis=1)
    return (sums * sums).sum(axis=1) - 2 * (rows @ sums.T) * sizes + norms[:, None] * (sizes * sizes)


def _less(scaled: Any, sizes: Any, one: Any, other: Any) -> Any:
    """Row by row whether d(i, one) < d(i, other), by cross-multiplication."""
    rows = np.arange(len(scaled))
    squares = sizes.astype(object) ** 2
    left = scaled[rows, one].astype(object) * squares[other]
    right = scaled[rows, other].astype(object) * squares[one]
    return (left < right).astype(bool)


def _nearest(scaled: Any, sizes: Any) -> Labels:
    present = np.flatnonzero(sizes)
    best = np.full(len(scaled), present[0])
    for h in present[1:]:
        best = np.where(_less(scaled, sizes, np.full(len(scaled), h), best), h, best)
    return best.astype(np.int32)


def _fill(scaled: Any, sizes: Any, nearest: Labels) -> Labels:
    """Every empty cluster, in index order, takes the row furthest from its nearest centre, if that can spare one."""
    labels, moved = nearest.copy(), np.zeros(len(nearest), dtype=bool)
    counts = np.bincount(labels, minlength=len(sizes))
    for h in np.flatnonzero(counts == 0):
        free = np.flatnonzero(~moved & (counts[labels] >= 2))
        row = max(free, key=lambda i: (Fraction(int(scaled[i, nearest[i]]), int(sizes[nearest[i]]) ** 2), -i))
        counts[labels[row]] -= 1
        counts[h] += 1
        labels[row], moved[row] = h, True
    return labels


def _filled(scaled: Any, sizes: Any, nearest: Labels, ranks: empty_clusters.Ranks | None) -> Labels:
    if ranks is None:
        return _fill(scaled, sizes, nearest)
    return empty_clusters.fill_from_largest(nearest, len(sizes), ranks)


def _inertia(scaled: Any, sizes: Any, nearest: Labels) -> Fraction:
    total = Fraction(0)
    for h in np.flatnonzero(sizes):
        total += Fraction(sum(scaled[nearest == h, h].tolist()), int(sizes[h]) ** 2)
    return total


@dataclass(frozen=True)
class _Draws:
    """How k-means++ draws: coins, κ, and the candidates of a seed."""

    coins: Coins
    bits: int
    candidates: int

    def rows(self, number: int, weights: list[int]) -> list[int]:
        """The candidates of a seed; none if ΣD² = 0."""
        total = sum(weights)
        names = draw_labels(number, self.candidates)
        return [_locate(weights, draw_point(self.coins, name, total, self.bits)) for name in names] if total else []


def _locate(weights: list[int], point: int) -> int:
    row = 0
    while point >= weights[row]:
        point -= weights[row]
        row += 1
    return row


def _start(
    rows: Any,
    clusters: int,
    start: str,
    draws: _Draws,
    initial: npt.ArrayLike | None,
    ranks: empty_clusters.Ranks | None,
) -> Labels:
    if initial is not None:
        return np.asarray(initial, dtype=np.int32)
    if start == "random":
        return draws.coins.integers("random start", clusters, len(rows))
    if start not in ("k-means++", "separation"):
        raise InvalidInput(f"seeding must be 'k-means++', 'random' or 'separation', not {start!r}")
    labels = _plus_plus(rows, clusters, draws, ranks)
    return _separate(rows, labels, clusters) if start == "separation" else labels


def _plus_plus(rows: Any, clusters: int, draws: _Draws, ranks: empty_clusters.Ranks | None) -> Labels:
    chosen = [draws.coins.below("k-means++ 0", len(rows))]
    squared = np.empty((len(rows), clusters), dtype=rows.dtype)
    squared[:, 0] = _squares(rows, chosen[0])
    while len(chosen) < clusters:
        weights = squared[:, : len(chosen)].min(axis=1)
        found = draws.rows(len(chosen), weights.tolist()) or [min(set(range(len(rows))) - set(chosen))]
        columns = [_squares(rows, row) for row in found]
        left = [sum(np.minimum(weights, column).tolist()) for column in columns]
        best = left.index(min(left))
        squared[:, len(chosen)] = columns[best]
        chosen.append(found[best])
    ones = np.ones(clusters, dtype=np.int64)
    return _filled(squared, ones, _nearest(squared, ones), ranks)


def _squares(rows: Any, row: int) -> Any:
    difference = rows - rows[row]
    return (difference * difference).sum(axis=1)


def _separate(rows: Any, labels: Labels, clusters: int) -> Labels:
    sizes = np.bincount(labels, minlength=clusters)
    scaled = _distances(rows, labels, sizes).astype(object)
    nearest = _nearest(scaled, sizes)
    at = np.arange(len(rows))
    fits = np.ones(len(rows), dtype=bool)
    for s in range(clusters):
        near = 9 * scaled[at, nearest] * int(sizes[s]) ** 2 <= scaled[:, s] * sizes.astype(object)[nearest] ** 2
        fits &= near.astype(bool) | (nearest == s)
    out = np.where(fits, nearest, -1).astype(np.int32)
    kept: set[int] = set()
    while empty := set(range(clusters)) - set(out.tolist()) - kept:
        kept |= empty
        for h in empty:
            out[labels == h] = h
    return out
