"""Public coins, and what importing secfc loads."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secfc.errors import InvalidInput
from secfc.kmeans.coins import Coins

COINS = Coins(b"seed")


@settings(deadline=None)
@given(st.integers(1, 1 << 300), st.text(max_size=5))
def test_draws_are_below_their_bound_and_repeatable(bound: int, label: str) -> None:
    value = COINS.below(label, bound)
    assert 0 <= value < bound
    assert value == Coins(b"seed").below(label, bound)


def test_draws_depend_on_seed_and_label_only() -> None:
    first = COINS.below("a", 1 << 200)
    COINS.below("b", 7)
    assert COINS.below("a", 1 << 200) == first
    others = {COINS.below("b", 1 << 200), Coins(b"other").below("a", 1 << 200), Coins(b"seed ").below("a", 1 << 200)}
    assert len(others | {first}) == 4


def test_seed_and_label_are_kept_apart() -> None:
    assert Coins(b"ab").below("c", 1 << 99) != Coins(b"a").below("bc", 1 << 99)


@pytest.mark.parametrize("bound", [2, 3, 10, 17])
def test_draws_are_even(bound: int) -> None:
    """Chi-square with a fixed seed, both ways of drawing."""
    limit = bound + 6 * (2 * bound) ** 0.5
    one_by_one = np.bincount([COINS.below(f"draw {i}", bound) for i in range(400 * bound)], minlength=bound)
    together = np.bincount(COINS.integers("many", bound, 400 * bound), minlength=bound)
    for counts in (one_by_one, together):
        assert len(counts) == bound
        assert ((counts - 400) ** 2 / 400).sum() < limit


def test_a_bound_just_above_a_power_of_two_is_drawn_by_rejection() -> None:
    """Taking bits modulo 2¹⁶+1 would give the lowest residues twice as often."""
    bound = (1 << 16) + 1
    values = [COINS.below(f"r {i}", bound) for i in range(4000)]
    assert 1850 < sum(v < bound // 2 for v in values) < 2150


def test_integers_by_rejection() -> None:
    bound = 3 << 29  # 2³² holds it twice and two thirds: a third of the words is rejected
    values = COINS.integers("x", bound, 3000)
    assert values.dtype == np.int32
    assert len(values) == 3000
    assert 0 <= values.min() <= values.max() < bound
    assert 1380 < (values < bound // 2).sum() < 1620
    assert (COINS.integers("x", bound, 3000) == values).all()
    assert (COINS.integers("y", bound, 3000) != values).mean() > 0.9
    assert COINS.integers("x", 1, 4).tolist() == [0] * 4
    assert len(COINS.integers("x", 5, 0)) == 0


def test_fresh_coins_differ() -> None:
    assert Coins().seed != Coins().seed
    assert COINS.below("only", 1) == 0


@pytest.mark.parametrize("bound", [0, -3])
def test_nothing_is_below_zero(bound: int) -> None:
    with pytest.raises(InvalidInput, match="positive bound"):
        COINS.below("x", bound)


@pytest.mark.parametrize(
    "statement",
    [
        "import secfc",
        "from secfc.agreement import costs, plan; costs.of(plan.make(plan.Wishes(5, 1, 3, 4, 100, 1.0, 10)))",
    ],
)
def test_importing_and_planning_load_nothing_heavy(statement: str) -> None:
    """numba, galois and scikit-learn are loaded when first needed."""
    code = (
        f"import sys\n{statement}\nprint(sorted({{'numba', 'galois', 'sklearn', 'scipy', 'grpc'}} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
