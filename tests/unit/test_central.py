"""Lloyd in the clear, in exact integers, against the naive Lloyd in Fractions of `tests.reference`."""

from __future__ import annotations

from math import isqrt

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from secfc.errors import DataError, InvalidInput
from secfc.kmeans import central
from secfc.kmeans.coins import Coins
from tests import reference

STARTS = ("k-means++", "random", "separation")
calm = settings(deadline=None, max_examples=80)
# around the bound where int64 is left for Python integers, and at the largest values that quantising makes
SCALES = (1, 2, 10, 1 << 20, (1 << 29) - 1, 1 << 29, 1 << 30, 1 << 53)


@st.composite
def matrices(draw: st.DrawFn) -> np.ndarray:  # type: ignore[type-arg]
    rows, features = draw(st.integers(1, 12)), draw(st.integers(1, 3))
    scale = draw(st.sampled_from(SCALES))
    palette = draw(st.lists(st.integers(-scale, scale), min_size=1, max_size=6))
    values = st.sampled_from([*palette, scale, -scale])
    return np.array(draw(st.lists(values, min_size=rows * features, max_size=rows * features))).reshape(rows, features)


def check(rows: np.ndarray, k: int, **keywords: object) -> central.Central:  # type: ignore[type-arg]
    found = central.run(rows, k, **keywords)  # type: ignore[arg-type]
    steps = reference.run(reference.as_rows(rows), k, **keywords)  # type: ignore[arg-type]
    lloyd = [step for step in steps if step.phase == "lloyd"]
    assert [labels.tolist() for labels in found.history] == [step.labels for step in lloyd]
    assert found.labels.tolist() == lloyd[-1].labels
    assert found.labels.dtype == np.int32
    assert (found.inertia, found.rounds) == (lloyd[-1].inertia, len(lloyd))
    again = list(reference.lloyd(reference.as_rows(rows), found.labels.tolist(), k, 1))
    if found.converged:
        assert again[0].labels == found.labels.tolist()
    return found


@calm
@given(matrices(), st.integers(1, 5), st.sampled_from(STARTS), st.integers(0, 1 << 20))
def test_every_round_is_the_references(rows: np.ndarray, k: int, start: str, seed: int) -> None:  # type: ignore[type-arg]
    assert check(rows, min(k, len(rows)), start=start, coins=Coins(b"%d" % seed)).converged


@calm
@given(
    matrices(),
    st.integers(1, 5),
    st.sampled_from(STARTS),
    st.integers(1, 4),
    st.integers(32, 64),
    st.integers(0, 1 << 20),
)
def test_other_rules(rows: np.ndarray, k: int, start: str, tries: int, bits: int, seed: int) -> None:  # type: ignore[type-arg]
    """Empty clusters filled from the largest, greedy k-means++, and draws of fewer bits."""
    coins, k = Coins(b"%d" % seed), min(k, len(rows))
    found = central.run(
        rows, k, start=start, coins=coins, empties="largest", draw_bits=bits, candidates=tries, max_rounds=30
    )
    steps = reference.run(reference.as_rows(rows), k, start, coins, None, 30, "largest", bits, tries)
    assert [labels.tolist() for labels in found.history] == [step.labels for step in steps if step.phase == "lloyd"]


def test_an_unknown_rule() -> None:
    with pytest.raises(InvalidInput, match="empties must be one of furthest, largest"):
        central.run(np.zeros((3, 1), dtype=np.int64), 2, empties="nearest")


@calm
@given(matrices(), st.integers(1, 5), st.data())
def test_from_any_labels(rows: np.ndarray, k: int, data: st.DataObject) -> None:  # type: ignore[type-arg]
    """Empty clusters and rows in no cluster included."""
    k = min(k, len(rows))
    labels = st.lists(st.integers(-1, k - 1), min_size=len(rows), max_size=len(rows))
    check(rows, k, initial=data.draw(labels.filter(lambda found: max(found) >= 0)))


@calm
@given(matrices(), st.sampled_from(STARTS), st.integers(1, 3))
@example(np.array([[0], [1], [10], [11], [100]]), "random", 1)
def test_max_rounds(rows: np.ndarray, start: str, most: int) -> None:  # type: ignore[type-arg]
    found = check(rows, min(2, len(rows)), start=start, coins=Coins(b"m"), max_rounds=most)
    assert found.rounds <= most


def test_huge_values_need_python_integers() -> None:
    """d′ up to m²·d·(2η)² ≈ 2¹¹⁴: int64 would wrap around, and float64 would not see what decides the fifth row."""
    big = 1 << 53
    rows = np.array([[big, big], [big - 1, big], [-big, -big], [-big, 1 - big], [0, 0], [0, 1]])
    assert central._wide_enough(rows).dtype == object
    found = check(rows, 2, initial=[0, 0, 1, 1, -1, -1])
    assert found.history[0].tolist() == [0, 0, 1, 1, 0, 0], (
        "the fifth row is an exact tie, which goes to the lowest index"
    )


def test_int64_is_kept_as_long_as_it_is_exact() -> None:
    """m²·d·(2η)² < 2⁶³, at both sides of the bound."""
    largest = isqrt((2**63 - 1) // 16)
    for eta, kind in ((largest, np.int64), (largest + 1, object)):
        rows = np.array([[eta], [-eta]])
        assert central._wide_enough(rows).dtype == kind, eta
        check(rows, 2, start="random", coins=Coins(b"edge"))
        check(rows, 1, start="random", coins=Coins(b"edge"))


def test_what_cannot_be_clustered_is_refused() -> None:
    with pytest.raises(DataError, match="1 rows cannot make 2 clusters; lower k or bring more rows"):
        central.run(np.zeros((1, 2), dtype=np.int64), 2)
    with pytest.raises(InvalidInput, match=r"seeding must be .* not 'magic'"):
        central.run(np.zeros((3, 2), dtype=np.int64), 2, start="magic")


def test_what_is_given_is_not_written_to() -> None:
    rows, initial = np.array([[1], [2], [30], [40]]), np.array([0, 1, 0, 1], dtype=np.int32)
    central.run(rows, 2, initial=initial)
    assert initial.tolist() == [0, 1, 0, 1]
    assert rows.tolist() == [[1], [2], [30], [40]]
