"""Further rows and the clusters of a finished job: the nearest centre, compared with fractions, also where rows tie."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from secfc.kmeans.frozen import FrozenClusters


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32),
    clusters=st.integers(1, 6),
    features=st.integers(1, 4),
    reach=st.sampled_from([1, 3, 2**20, 2**52]),
    near=st.integers(0, 2),
)
def test_nearest_and_inertia_are_those_of_fractions(
    seed: int, clusters: int, features: int, reach: int, near: int
) -> None:
    """Small reaches make many ties; with large ones, rows beside the middle of two centres are decided by the last bit."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(-reach, reach + 1, (12, features))
    labels = rng.integers(0, clusters, 12).astype(np.int32)
    frozen = FrozenClusters.of(rows, labels, clusters)
    there = [h for h in range(clusters) if frozen.sizes[h]]
    means = {h: [Fraction(int(one), int(frozen.sizes[h])) for one in frozen.sums[h]] for h in there}
    middle = [[int((a + b) // 2) for a, b in zip(means[there[0]], means[there[-1]], strict=True)]]
    others = np.concatenate([rows, np.array(middle, dtype=np.int64) + rng.integers(-near, near + 1, (3, features))])
    squares = [
        [
            sum((int(x) - m) ** 2 for x, m in zip(row, means[h], strict=True)) if h in means else None
            for h in range(clusters)
        ]
        for row in others
    ]
    expected = [min(there, key=lambda h: (line[h], h)) for line in squares]
    found = frozen.nearest(others)
    assert found.tolist() == expected
    assert frozen.inertia(others, found) == sum(line[h] for line, h in zip(squares, expected, strict=True))
