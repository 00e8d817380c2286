"""The clusters of a finished job, to which further rows are assigned: the nearest centre in exact arithmetic.

With Σ_h the sum of a cluster's quantised rows and c_h their number, the squared distance of a row x is ‖Σ_h − c_h·x‖² / c_h².
Floating point decides the rows for which it is certain, which are nearly all; the others are compared in whole numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from secfc.kmeans.distances import Labels
from secfc.kmeans.nearest import Sizes

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class FrozenClusters:
    """Sums (k, d) of the quantised rows of every cluster, as Python integers, and the clusters' sizes."""

    sums: npt.NDArray[np.object_]
    sizes: Sizes

    @classmethod
    def of(cls, rows: Rows, labels: Labels, clusters: int) -> FrozenClusters:
        sums = [rows[labels == h].astype(object).sum(axis=0) for h in range(clusters)]
        return cls(np.stack(sums), np.bincount(labels, minlength=clusters))

    def nearest(self, rows: Rows) -> Labels:
        """Every row's cluster; ties go to the lowest index, and an empty cluster is never the nearest."""
        there = np.flatnonzero(self.sizes)
        distances, error = self._estimates(rows, there)
        best = distances.argmin(axis=1)
        least = distances[np.arange(len(rows)), best]
        doubtful = np.flatnonzero((distances <= (least + 2 * error)[:, None]).sum(axis=1) > 1)
        for i in doubtful:
            close = np.flatnonzero(distances[i] <= least[i] + 2 * error[i])
            best[i] = min(close, key=lambda c: (self._squared(rows[i], int(there[c])), c))
        labels: Labels = there[best].astype(np.int32)
        return labels

    def inertia(self, rows: Rows, labels: Labels) -> Fraction:
        """Σ of the squared distances of rows to the centres of their clusters, exactly, in quantised units."""
        total = Fraction(0)
        for h in np.unique(labels):
            own = rows[labels == h].astype(object)
            norm = (own * own).sum() - Fraction(2 * (own.sum(axis=0) * self.sums[h]).sum(), int(self.sizes[h]))
            total += norm + len(own) * Fraction((self.sums[h] * self.sums[h]).sum(), int(self.sizes[h]) ** 2)
        return total

    def _squared(self, row: npt.NDArray[np.int64], cluster: int) -> Fraction:
        difference: Any = self.sums[cluster] - int(self.sizes[cluster]) * row.astype(object)
        return Fraction((difference * difference).sum(), int(self.sizes[cluster]) ** 2)

    def _estimates(
        self, rows: Rows, there: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Squared distances to the centres, and for every row what they may be off by.

        A coordinate of a difference is off by at most 2⁻⁵¹·(|x| + |μ|): x and μ are rounded once each, and so is their
        difference. With |x| + |μ| ≤ s, a square is off by less than 2⁻⁴⁹·s², and the sum of d of them by d times that and d
        roundings of it.
        """
        features = rows.shape[1]
        centres = np.array([[float(Fraction(one, int(self.sizes[h]))) for one in self.sums[h]] for h in there])
        points = rows.astype(np.float64)
        distances = np.stack([((points - centre) ** 2).sum(axis=1) for centre in centres], axis=1)
        reach = np.abs(points).max(axis=1, initial=0.0) + np.abs(centres).max(initial=0.0)
        return distances, 2.0**-48 * features * (features + 1) * reach**2
