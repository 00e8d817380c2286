"""The rule `largest` for empty clusters: labels and public coins suffice, so it reveals nothing (docs/sealed.md, Section 5).

Empty clusters, in index order, each take from the largest cluster (ties: the lowest) the row of least rank that this rule has
not moved yet. Ranks are one fixed order of the rows, the same in every round: with fresh ones duplicates would never settle.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from secfc.errors import DataError
from secfc.kmeans.coins import Coins

Labels = npt.NDArray[np.int32]
Ranks = npt.NDArray[np.int64]
RULES = ("furthest", "largest")


def ranks(coins: Coins, rows: int) -> Ranks:
    """Every row's place in an order drawn from the coins."""
    drawn = coins.integers("ranks of rows", (1 << 31) - 1, rows)
    order = np.argsort(drawn, kind="stable")
    out = np.empty(rows, dtype=np.int64)
    out[order] = np.arange(rows)
    return out


def fill_from_largest(labels: Labels, clusters: int, ranks: Ranks) -> Labels:
    """Give every empty cluster a row by the rule `largest`. Pre-condition: every row has a label."""
    counts = np.bincount(labels, minlength=clusters)
    if (counts > 0).all():
        return labels
    if len(labels) < clusters:
        raise DataError(f"{len(labels)} rows cannot fill {clusters} clusters; lower k")
    out, moved = labels.copy(), np.zeros(len(labels), dtype=np.bool_)
    for h in np.flatnonzero(counts == 0):
        donor = int(counts.argmax())
        rows = np.flatnonzero((out == donor) & ~moved)
        row = rows[ranks[rows].argmin()]
        counts[donor] -= 1
        counts[h] += 1
        out[row], moved[row] = h, True
    return out
