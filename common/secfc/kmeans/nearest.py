"""The nearest centre of every row, and a row for every empty cluster, compared exactly; the rules are in `lloyd`."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from secfc.coding import kernels, parallel
from secfc.errors import DataError, InvalidInput
from secfc.kmeans.decoding import Distances
from secfc.kmeans.distances import Labels

Sizes = npt.NDArray[np.int64]


def nearest(distances: Distances, sizes: Sizes) -> Labels:
    """Every row's nearest centre, exactly; ties to the lowest index."""
    if not (sizes > 0).any():
        raise InvalidInput("no row has a nearest centre: every cluster is empty")
    digits, primes, size = distances.digits, distances.field.prime_floats, distances.limbs(sizes)
    labels = np.empty(digits.shape[1], dtype=np.int32)
    block = parallel.block_rows(4 * len(sizes) * distances.field.lanes)
    parallel.for_row_ranges(len(labels), block, lambda a, b: kernels.nearest(digits, primes, sizes, size, a, b, labels))
    return labels


def fill_empty(distances: Distances, sizes: Sizes, labels: Labels) -> Labels:
    """Give every empty cluster a row, by the rule above. `sizes` are those of the centres the distances belong to."""
    clusters = len(sizes)
    counts = np.bincount(labels, minlength=clusters)
    if (counts > 0).all():
        return labels
    size = distances.limbs(sizes)
    nearest_labels, labels = labels, labels.copy()
    unmoved = np.ones(len(labels), dtype=np.bool_)
    for h in np.flatnonzero(counts == 0):
        movable = unmoved & (counts[labels] >= 2)
        row = kernels.furthest(distances.digits, distances.field.prime_floats, sizes, size, nearest_labels, movable)
        if row < 0:
            raise DataError(f"{len(labels)} rows cannot fill {clusters} clusters; lower k")
        counts[labels[row]] -= 1
        counts[h] += 1
        labels[row] = h
        unmoved[row] = False
    return labels
