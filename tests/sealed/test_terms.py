"""The guards of docs/sealed.md, Section 1, and the public tables."""

from __future__ import annotations

from dataclasses import replace
from math import gcd

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secfc.coding.field import Field
from secfc.errors import PlanError
from secfc.privacy.sealed.inertia import fraction_bits, weights
from secfc.privacy.sealed.nearest import duels, groups
from secfc.privacy.sealed.terms import Pairs, Terms, Wanted, check, draw_bits, required

WANTED = Wanted(1000, 5, 3 * 4000**2, 2, 5, "k-means++")


def test_a_plan_that_fits() -> None:
    lanes = Field.of(11).lanes_for(required(WANTED))
    check(Field.of(lanes), WANTED)
    with pytest.raises(PlanError, match=f"< Q, but it is .* and L = {lanes - 1} lanes have"):
        check(Field.of(lanes - 1), WANTED)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"clusters": 128}, "k ≤ 127, not k = 128"),
        ({"privacy": 0}, "need t ≥ 1"),
        ({"live": 2}, r"t \+ 1 = 3 live clients, not 2"),
        ({"rows": 1 << 20}, "m < 2²⁰ rows"),
        ({"unit": 1 << 80}, r"2·⌊m²/4⌋²·d·\(2η\)² < Q"),
        ({"unit": 1 << 200}, r"2·⌊m²/4⌋²·d·\(2η\)² < Q, but it is 2\^"),
        ({"seeding": "separation", "unit": 1 << 80}, r"18·⌊m²/4⌋²"),
        ({"rows": 20, "unit": 1 << 62, "inertia": False}, r"2³³·m·d·\(2η\)² < Q"),
        ({"rows": 40, "unit": 1 << 60, "seeding": "random"}, r"2²⁴·m²·d·\(2η\)² < Q"),
    ],
)
def test_what_fails_is_named(change: dict[str, object], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        check(Field.of(4), replace(WANTED, **change))  # type: ignore[arg-type]


def test_twelve_lanes_are_refused_and_127_clusters_are_not() -> None:
    with pytest.raises(PlanError, match=r"11L \+ 1 ≤ 126, so at most 11 lanes, not L = 12"):
        check(Field.of(12), WANTED)
    check(Field.of(11), replace(WANTED, clusters=127))


def test_draw_bits() -> None:
    q = Field.of(5).modulus
    bits = draw_bits(q, 1000, WANTED.unit)
    assert (2 << bits) * 1000 * WANTED.unit < q
    assert bits == 64 or (4 << bits) * 1000 * WANTED.unit >= q


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(1, 5000), min_size=2, max_size=6), st.integers(1, 1 << 40), st.sampled_from([1, 9]))
def test_tables_of_pairs(sizes: list[int], unit: int, factor: int) -> None:
    """The lanes of a pair are the fewest with 2·factor·(s_a·s_b/g)²·unit < Q_l, and no column is narrower."""
    terms = Terms(Field.of(11), sum(sizes), len(sizes), unit, 2, separation=factor == 9)
    pairs = Pairs(terms, np.array(sizes), factor)
    for a, s in enumerate(sizes):
        for b, r in enumerate(sizes):
            g = gcd(s, r)
            assert pairs.lanes[a, b] == terms.field.lanes_for(2 * factor * (s * r // g) ** 2 * unit)
            if a != b:
                assert pairs.lanes[a, b] <= terms.column_lanes(s)
            p = terms.field.primes[0]
            assert pairs.left[a, b, 0] == (s // g) ** 2 % p
            assert pairs.right[a, b, 0] == factor * (r // g) ** 2 % p


def test_groups() -> None:
    assert groups(8) == (0, 8)
    assert duels(8) == 28
    assert duels(15) == 25
    for candidates in range(9, 128):
        edges = groups(candidates)
        widths = np.diff(edges)
        assert edges[-1] == candidates
        assert widths.max() - widths.min() <= 1
        assert duels(candidates) < candidates * (candidates - 1) // 2


def test_weights_of_an_inertia() -> None:
    field = Field.of(4)
    bits = fraction_bits(field, 100, 1 << 20)
    assert 4 * (1 << bits) * 100 * (1 << 20) <= field.modulus
    assert weights(np.array([3, 0, 8]), 4) == [5, 0, 2]
    with pytest.raises(PlanError, match="no inertia can be opened"):
        fraction_bits(Field.of(1), 100, 1 << 20)
