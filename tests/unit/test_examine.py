"""A site's own columns: too coarse a precision and few distinct values are told with numbers, other columns are not."""

from __future__ import annotations

import numpy as np
import pytest

from secfc_client import examine


def column(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float64)[:, None]


def test_a_deviation_near_one_step_is_too_coarse() -> None:
    """Deviation 0.1 at precision 4 (steps of 1/16) is 1.6 steps; 2^-7 makes it 12.8."""
    rows = column(*([0.0, 0.2] * 50))
    (found,) = examine.coarse(rows, ["x"], 4)
    assert (found.name, found.enough) == ("x", 7)
    assert found.steps == pytest.approx(1.6)
    text = examine.coarse_text([found], 4)
    assert "precision = 4 is too coarse for x (1.6)" in text
    assert "agree on precision = 7" in text
    assert examine.coarse(rows, ["x"], found.enough) == []
    assert examine.coarse(rows, ["x"], found.enough - 1) != []


@pytest.mark.parametrize(
    ("values", "precision"),
    [
        ([0.0, 1.0, 1.0, 0.0], 0),  # yes/no: few steps, but nothing is lost
        ([0.1, 0.1, 0.1], 2),  # does not vary
        ([17.0, 90.0, 34.0, 51.0], 0),  # whole numbers
        ([1024.0, -2048.0, 512.0], -9),
        ([0.1, 5.3, 9.9], 8),
        ([], 8),
    ],
)
def test_columns_that_keep_what_they_hold(values: list[float], precision: int) -> None:
    assert examine.coarse(column(*values), ["x"], precision) == []


def test_few_distinct_values_are_counted() -> None:
    pick = np.random.default_rng(0)
    rows = np.stack(
        [pick.integers(0, 2, 100), pick.integers(0, 16, 100), pick.integers(0, 17, 100), pick.random(100)], 1
    )
    rows = np.concatenate([rows, np.arange(17.0)[:, None].repeat(4, 1) * [0, 0, 1, 1]])
    assert examine.few_values(rows, ["sex", "stage", "visits", "bmi"]) == {"sex": 2, "stage": 16}
    assert examine.few_values(rows[:0], ["a", "b", "c", "d"]) == {}
    assert examine.few_values(np.zeros((9, 1)), ["constant"]) == {}
    assert examine.few_values(np.arange(9.0)[:, None], ["all different"]) == {}


def test_warnings_have_numbers_and_name_who_can_compute_what() -> None:
    rows = np.tile([[0.0, 0.0], [1.0, 0.2]], (20, 1))
    rough, few, alone = examine.warnings(rows, ["smoker", "dose"], 4, "masked")
    assert alone.startswith("smoker carries 96.2 % of the variance")
    assert "dose (1.6)" in rough
    assert "smoker (2), dose (2); with masked uploads the server can compute such values of every row" in few
    assert "the server, alone or with one client, can" in examine.warnings(rows, ["a", "b"], 8, "open")[0]
    assert len(examine.warnings(np.tile(rows, (1, 4)), list("abcdefgh"), 8, "masked")[0].split(" and 3 more")) == 2


def test_columns_in_order_give_no_warning() -> None:
    rows = np.random.default_rng(1).normal(size=(50, 3))
    assert examine.warnings(rows, ["a", "b", "c"], 12, "masked") == []


def test_a_column_that_carries_nearly_all_of_the_variance() -> None:
    values = np.random.default_rng(1).normal(size=(100, 3)) * [1, 300, 2]
    assert examine.dominant(values, "abc")[0] == "b"
    assert examine.dominant(values / [1, 300, 2], "abc") is None
    assert examine.dominant(values[:9], "abc") is None
    [told] = examine.warnings(values, "abc", 20, "masked")
    assert told.startswith("b carries 100.0 % of the variance of these rows")
