"""How well a clustering separates its rows, from the distances that a server has anyway: to help to choose k.

With n_h rows in cluster h, d(i, s) the squared distance of row i to centre μ_s, and means over the rows of h:

* ‖μ_h − μ_s‖² = mean d(i, s) − mean d(i, h), since the mean squared distance of some rows to a point is their variance plus
  the squared distance of their mean to it;
* Calinski–Harabasz: (B / (k − 1)) / (W / (m − k)), with the inertia W and B = Σ_{h<s} n_h·n_s·‖μ_h − μ_s‖² / m. Larger is
  better;
* Davies–Bouldin: the mean over h of max_s (σ_h + σ_s) / ‖μ_h − μ_s‖, with σ_h the mean of √d(i, h). Smaller is better;
* simplified silhouette: the mean over all rows of (b − a) / max(a, b), with a = √d to a row's own centre and b to the nearest
  other one; 0 for a row alone in its cluster. Between -1 and 1, larger is better.

The first two are scikit-learn's `calinski_harabasz_score` and `davies_bouldin_score`; the third is the silhouette with
distances to centres in place of all pairs of rows. Sums over rows are exact; roots and the last divisions are float64.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from secfc.coding import parallel
from secfc.kmeans.decoding import Distances
from secfc.kmeans.distances import Labels

CHOICES = ("first", "silhouette", "calinski-harabasz", "davies-bouldin")  # how one of several k is chosen
Floats = npt.NDArray[np.float64]
Sizes = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Indices:
    """None where an index is not defined: with one cluster, or with a cluster for every row."""

    calinski_harabasz: float | None = None
    davies_bouldin: float | None = None
    silhouette: float | None = None

    def merit(self, choice: str) -> float | None:
        """The index that a choice goes by, so that larger is better; None if there is none."""
        if choice == "davies-bouldin":
            return None if self.davies_bouldin is None else -self.davies_bouldin
        return self.silhouette if choice == "silhouette" else self.calinski_harabasz


def indices(distances: Distances, sizes: Sizes, labels: Labels) -> Indices:
    """Of a partition and the distances to its own means. Pre-condition: no cluster is empty."""
    rows, clusters = len(labels), len(sizes)
    if not 2 <= clusters < rows:
        return Indices()
    means = _means(distances, sizes, labels)
    apart = np.array([[float(means[h][s] - means[h][h]) for s in range(clusters)] for h in range(clusters)])
    spread, silhouette = _rooted(distances, sizes, labels)
    return Indices(_calinski_harabasz(means, sizes), _davies_bouldin(spread, apart), silhouette)


def _means(distances: Distances, sizes: Sizes, labels: Labels) -> list[list[Fraction]]:
    """The mean of d(i, s) over the rows of h, exactly."""
    field, clusters = distances.field, len(sizes)
    out = []
    for h in range(clusters):
        sums = distances.digits[:, labels == h, :clusters].sum(axis=1, dtype=np.int64)
        totals = [0] * clusters
        for lane in reversed(range(field.lanes)):
            totals = [t * field.primes[lane] + v for t, v in zip(totals, sums[lane].tolist(), strict=True)]
        out.append([Fraction(t, int(sizes[h]) * int(sizes[s]) ** 2) for s, t in enumerate(totals)])
    return out


def _calinski_harabasz(means: list[list[Fraction]], sizes: Sizes) -> float:
    counts, clusters = [int(size) for size in sizes], len(sizes)
    rows = sum(counts)
    pairs = [(h, s) for h in range(clusters) for s in range(h)]
    between = sum((counts[h] * counts[s] * (means[h][s] - means[h][h]) for h, s in pairs), Fraction(0)) / rows
    within = sum((counts[h] * means[h][h] for h in range(clusters)), Fraction(0))
    return float(between * (rows - clusters) / (within * (clusters - 1))) if within else 1.0  # as scikit-learn has it


def _davies_bouldin(spread: Floats, apart: Floats) -> float:
    if not apart.any() or not spread.any():
        return 0.0
    between = np.sqrt(np.where(apart > 0, apart, np.inf))  # centres in one place are not compared
    return float(((spread[:, None] + spread) / between).max(axis=1).mean())


def _rooted(distances: Distances, sizes: Sizes, labels: Labels) -> tuple[Floats, float]:
    """The mean distance of every cluster's rows to its centre, and the mean silhouette of all rows; in blocks of rows."""
    rows, clusters = len(labels), len(sizes)
    sums, total = np.zeros(clusters), 0.0
    block = parallel.block_rows(8 * clusters)
    for first in range(0, rows, block):
        own, near = labels[first : first + block], np.arange(min(block, rows - first))
        roots = _roots(distances, sizes, first, first + len(own))
        a = roots[near, own]
        sums += np.bincount(own, weights=a, minlength=clusters)
        roots[near, own] = np.inf
        b = roots.min(axis=1)
        larger = np.maximum(a, b)
        width = np.divide(b - a, larger, out=np.zeros(len(a)), where=larger > 0)
        total += float(width[sizes[own] > 1].sum())
    return sums / sizes, total / rows


def _roots(distances: Distances, sizes: Sizes, first: int, end: int) -> Floats:
    """√d(i, h). Digits are not negative, so nothing cancels."""
    total = np.zeros((end - first, len(sizes)))
    for lane in reversed(range(distances.field.lanes)):
        total = total * distances.field.primes[lane] + distances.digits[lane, first:end, : len(sizes)]
    return np.asarray(np.sqrt(total) / sizes)
