"""The indices that help to choose k, against scikit-learn and against their definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.metrics import calinski_harabasz_score, davies_bouldin_score

from secfc.coding.field import Field
from secfc.kmeans.decoding import Distances
from secfc.kmeans.indices import Indices, indices

calm = settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))


def coded(rows: np.ndarray, labels: np.ndarray, k: int) -> Distances:
    """What a server has at the end of a job: d′ = ‖Σ_S x − |S|·x_i‖² as digits."""
    sums = np.stack([rows[labels == h].sum(axis=0) for h in range(k)])
    sizes = np.bincount(labels, minlength=k)
    rest = ((sums[None] - sizes[None, :, None] * rows[:, None]) ** 2).sum(axis=2)
    out = Distances(Field.of(3), len(rows), k)
    for lane, prime in enumerate(out.field.primes):
        rest, out.digits[lane] = np.divmod(rest, prime)
    return out


def defined(rows: np.ndarray, labels: np.ndarray, k: int) -> float:
    """The simplified silhouette, from its definition."""
    centres = np.stack([rows[labels == h].mean(axis=0) for h in range(k)])
    apart = np.linalg.norm(rows[:, None] - centres[None], axis=2)
    total = 0.0
    for i, own in enumerate(labels):
        a, b = apart[i, own], min(apart[i, s] for s in range(k) if s != own)
        if (labels == own).sum() > 1 and max(a, b) > 0:
            total += (b - a) / max(a, b)
    return total / len(rows)


@st.composite
def partitions(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, int]:
    k = draw(st.integers(2, 5))
    m = draw(st.integers(k + 1, 14))
    values = st.integers(-40, 40) if draw(st.booleans()) else st.integers(0, 2)
    rows = np.array(draw(st.lists(st.lists(values, min_size=2, max_size=2), min_size=m, max_size=m)))
    labels = np.array(draw(st.permutations([*range(k), *(draw(st.integers(0, k - 1)) for _ in range(m - k))])))
    return rows, labels.astype(np.int32), k


@calm
@given(partitions())
def test_indices_are_those_of_the_rows(case: tuple[np.ndarray, np.ndarray, int]) -> None:
    rows, labels, k = case
    found = indices(coded(rows, labels, k), np.bincount(labels), labels)
    assert found.calinski_harabasz == pytest.approx(calinski_harabasz_score(rows, labels), rel=1e-9)
    assert found.davies_bouldin == pytest.approx(davies_bouldin_score(rows, labels), rel=1e-7, abs=1e-9)
    assert found.silhouette == pytest.approx(defined(rows, labels, k), abs=1e-9)


def test_more_rows_than_a_block() -> None:
    random = np.random.default_rng(1)
    rows, labels = random.integers(-99, 99, (4000, 3)), random.integers(0, 4, 4000).astype(np.int32)
    found = indices(coded(rows, labels, 4), np.bincount(labels), labels)
    assert found.davies_bouldin == pytest.approx(davies_bouldin_score(rows, labels), rel=1e-7)
    assert found.silhouette == pytest.approx(defined(rows, labels, 4), abs=1e-9)


@pytest.mark.parametrize(("rows", "k"), [(5, 1), (3, 3)])
def test_one_cluster_or_one_row_each_has_no_index(rows: int, k: int) -> None:
    labels = np.arange(rows, dtype=np.int32) % k
    assert indices(coded(np.arange(rows)[:, None], labels, k), np.bincount(labels), labels) == Indices()
