"""Opening the centres, the mathematics (docs/protocol.md, Section 4): ℓ+t values give the exact sums, fewer give nothing."""

from __future__ import annotations

import csv
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from secfc.agreement import plan
from secfc.coding.field import Words
from secfc.errors import InvalidInput, Malformed
from secfc.privacy import centers
from secfc.privacy.centers import Centers
from tests import holders

calm = settings(deadline=None, max_examples=30, suppress_health_check=list(HealthCheck))


def made(**changes: Any) -> plan.Plan:
    wishes = {"clients": 5, "privacy": 1, "clusters": 3, "features": 5, "max_rows": 40, "bound": 8.0, "precision": 4}
    return plan.make(plan.Wishes(**(wishes | changes)))


def job(
    agreed: plan.Plan, labels: np.ndarray, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, tuple[int, ...], dict[int, Words]]:
    """Rows, sizes, clusters that have rows, and every client's values for them."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(-agreed.eta, agreed.eta + 1, size=(len(labels), agreed.wishes.features))
    parts = np.array_split(rows, agreed.wishes.clients)
    members = holders.share(agreed, parts)
    sizes = np.bincount(labels[labels >= 0], minlength=agreed.wishes.clusters)
    clusters = centers.large_enough(sizes, 1)
    return rows, sizes, clusters, {m.index: m.centers(labels, clusters) for m in members}


def sums(rows: np.ndarray, labels: np.ndarray, clusters: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(rows[labels == h].sum(axis=0).tolist()) for h in clusters)


@calm
@given(
    n=st.integers(3, 8),
    t=st.integers(0, 2),
    d=st.integers(1, 7),
    seed=st.integers(0, 1000),
    precision=st.integers(0, 30),
    data=st.data(),
)
def test_any_l_plus_t_clients_give_the_exact_sums(
    n: int, t: int, d: int, seed: int, precision: int, data: st.DataObject
) -> None:
    t = min(t, (n - 1) // 2)
    agreed = made(clients=n, privacy=t, features=d, uploads="open", precision=precision)
    labels = np.random.default_rng(seed).integers(-1, 3, 20).astype(np.int32)
    rows, sizes, clusters, values = job(agreed, labels, seed)
    least = centers.needed(agreed.code)
    assert least == agreed.segments + t
    count = data.draw(st.integers(least, n))
    chosen = data.draw(st.permutations(range(n)))[:count]
    assert centers.decode(agreed, clusters, sizes, {j: values[j] for j in chosen}) == sums(rows, labels, clusters)


def test_a_client_short_is_an_error() -> None:
    agreed = made(segments=2)
    labels = np.zeros(10, dtype=np.int32)
    _, sizes, clusters, values = job(agreed, labels)
    with pytest.raises(InvalidInput, match="values of 3 clients are needed, not of 2"):
        centers.decode(agreed, clusters, sizes, {j: values[j] for j in (0, 3)})


@pytest.mark.slow
def test_t_values_are_uniform_whatever_the_rows() -> None:
    """The values of t clients say nothing: with fresh noise each residue takes all values alike (chi-square, 16 bins)."""
    agreed = made(clients=3, privacy=1, features=1, segments=1)
    labels = np.zeros(3, dtype=np.int32)
    p = agreed.field.primes[0]
    seen = np.zeros(16)
    for trial in range(400):
        _, _, clusters, values = job(agreed, labels, seed=1)
        residue = int(agreed.field.unpack(values[trial % 3], len(clusters), 1)[0, 0, 0]) % p
        seen[16 * residue // p] += 1
    assert ((seen - 25) ** 2 / 25).sum() < 60  # 15 degrees of freedom: missed once in 10^6


@pytest.mark.parametrize("liar", range(5))
def test_a_wrong_value_is_noticed_when_more_than_l_plus_t_are_given(liar: int) -> None:
    agreed = made(segments=1)
    labels = np.array([0, 1, 2] * 4, dtype=np.int32)
    _, sizes, clusters, values = job(agreed, labels)
    wrong = agreed.field.unpack(values[liar], len(clusters), agreed.length)
    wrong[0, 1, 2] += 1.0 if wrong[0, 1, 2] < 0 else -1.0
    values[liar] = agreed.field.pack(wrong)
    with pytest.raises(Malformed, match="do not fit together"):
        centers.decode(agreed, clusters, sizes, values)


def test_with_exactly_l_plus_t_an_impossible_sum_is_noticed() -> None:
    agreed = made(segments=1)
    labels = np.array([0, 1, 2] * 4, dtype=np.int32)
    _, sizes, clusters, values = job(agreed, labels)
    values[0] = values[1]
    with pytest.raises(Malformed, match="do not make centres"):
        centers.decode(agreed, clusters, sizes, {j: values[j] for j in (0, 1)})


@calm
@given(
    st.lists(st.tuples(st.integers(1, 1 << 31), st.integers(-(1 << 84), 1 << 84)), min_size=1, max_size=5),
    st.integers(-60, 60),
)
def test_means_are_the_nearest_float64(pairs: list[tuple[int, int]], precision: int) -> None:
    opened = Centers(tuple(range(len(pairs))), tuple(s for s, _ in pairs), tuple((x,) for _, x in pairs), precision)
    for (size, x), mean in zip(pairs, opened.means()[:, 0].tolist(), strict=True):
        exact = Fraction(x, size) / Fraction(2) ** precision
        error = abs(Fraction(mean) - exact)
        for neighbour in (np.nextafter(mean, np.inf), np.nextafter(mean, -np.inf)):
            assert error <= abs(Fraction(float(neighbour)) - exact)


def test_a_mean_beyond_float64_is_infinite() -> None:
    assert Centers((0,), (1,), ((-(1 << 1100),),), 0).means().tolist() == [[-np.inf]]


def test_the_table_reads_back_as_the_same_numbers() -> None:
    opened = Centers((0, 3), (3, 7), ((1, -5), (2, 10**9)), 4)
    lines = list(csv.reader(opened.table(["age, years", "x"]).splitlines()))
    assert lines[0] == ["cluster", "size", "age, years", "x"]
    assert opened.table(["size", "x"]).startswith("cluster,secfc_size,size,x\n")
    assert [line[:2] for line in lines[1:]] == [["0", "3"], ["3", "7"]]
    assert [[float(x) for x in line[2:]] for line in lines[1:]] == opened.means().tolist()


def test_clusters_above_a_floor() -> None:
    sizes = np.array([0, 1, 5, 4, 9])
    assert centers.large_enough(sizes, 0) == centers.large_enough(sizes, 1) == (1, 2, 3, 4)
    assert centers.large_enough(sizes, 5) == (2, 4)
    assert centers.large_enough(sizes, 10) == ()
