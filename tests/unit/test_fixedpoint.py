"""docs/protocol.md, Section 1: quantisation, and errors that name the row and the column."""

from __future__ import annotations

from fractions import Fraction
from math import floor, inf, nan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secfc.coding.field import Field
from secfc.errors import DataError, InvalidInput
from secfc.kmeans.fixedpoint import PRECISION_RANGE, dequantise, quantise, scaled_bound


@settings(deadline=None)
@given(st.lists(st.floats(-8, 8, allow_subnormal=False), min_size=1, max_size=8), st.integers(-8, 40))
def test_quantisation_is_equation_4(values: list[float], precision: int) -> None:
    """App. A, eq. 4: floor(λx) for x ≥ 0, floor(q + λx) for x < 0; every result within [−η, η]."""
    got = quantise([values], 8, precision)
    expected = [floor(Fraction(v) * Fraction(2) ** precision) for v in values]
    assert got.dtype == np.int64
    assert got[0].tolist() == expected
    eta = scaled_bound(8, precision)
    assert np.abs(got).max() <= eta
    field = Field.of(4)
    q = field.modulus
    in_field = field.to_ints(field.from_ints(got))[0].tolist()
    assert in_field == [floor(Fraction(2) ** precision * Fraction(v) + (q if v < 0 else 0)) % q for v in values]


def test_bounds_are_inclusive_and_rounded_up() -> None:
    assert quantise([[2.5, -2.5]], 2.5, 0).tolist() == [[2, -3]]
    assert scaled_bound(2.5, 0) == 3
    assert scaled_bound(1, -60) == 1
    assert scaled_bound(8, 50) == 1 << 53
    assert quantise([[8.0, -8.0]], 8, 50).tolist() == [[1 << 53, -(1 << 53)]]
    assert quantise([[-1e-300]], 1, -60).tolist() == [[-1]]
    assert quantise(np.zeros((0, 3)), 1, 0).shape == (0, 3)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (nan, r"row 2, column 3 is not a number \(NaN\); remove or fill in"),
        (inf, "row 2, column 3 is infinite; remove or replace"),
        (-inf, "row 2, column 3 is infinite"),
        (1.0000001, r"row 2, column 3 is outside the agreed bound \|x\| <= 1; rescale the column"),
        (-1.0000001, "row 2, column 3 is outside the agreed bound"),
        (1e300, "row 2, column 3 is outside"),
    ],
)
def test_faults_name_row_and_column(value: float, words: str) -> None:
    rows = np.zeros((3, 4))
    rows[1, 2] = value
    rows[2, 0] = nan  # a later one, which is not the first
    with pytest.raises(DataError, match=words) as caught:
        quantise(rows, 1, 4)
    assert "1.0000001" not in str(caught.value)
    assert "\n" not in str(caught.value)
    with pytest.raises(DataError, match=words.replace("column 3", "column weight")):
        quantise(rows, 1, 4, names=["a", "b", "weight", "d"])


@pytest.mark.parametrize("rows", [[1.0, 2.0], 3.0, [[[1.0]]]])
def test_rows_must_be_a_matrix(rows: object) -> None:
    with pytest.raises(DataError, match="must be a matrix"):
        quantise(rows, 4, 2)  # type: ignore[arg-type]


@pytest.mark.parametrize("rows", [[["a"]], [[1.0], [1.0, 2.0]], [[None]]])
def test_rows_must_be_numbers(rows: object) -> None:
    with pytest.raises(DataError):
        quantise(rows, 4, 2)  # type: ignore[arg-type]


@pytest.mark.parametrize("bound", [0, -1, nan, inf, -inf])
def test_bound_must_be_positive(bound: float) -> None:
    with pytest.raises(InvalidInput, match="bound must be a positive number"):
        scaled_bound(bound, 4)


@pytest.mark.parametrize("precision", [PRECISION_RANGE[1] + 1, PRECISION_RANGE[0] - 1, 1.5, "4", True, None])
def test_precision_is_a_whole_number_of_bits(precision: object) -> None:
    with pytest.raises(InvalidInput, match=r"precision must be a whole number of bits from -?[0-9]+ to [0-9]+"):
        scaled_bound(1, precision)  # type: ignore[arg-type]


def test_more_than_2_53_steps_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"exceeds 2\^53 steps; lower the precision"):
        scaled_bound(8.1, 50)


@pytest.mark.parametrize("bound", [1e308, 1.7e308, 10**400], ids=["1e308", "1.7e308", "10^400"])
def test_a_bound_beyond_float64_is_an_error_of_ours(bound: float) -> None:
    """λ·bound overflows float64: still an InvalidInput that says what to do."""
    with pytest.raises(InvalidInput):
        scaled_bound(bound, 60)
    with pytest.raises(InvalidInput):
        scaled_bound(float(min(bound, 1e300)), PRECISION_RANGE[1])


def test_eta_is_at_least_one() -> None:
    """η = ⌈λ·bound⌉ ≥ 1 for any positive bound, even where λ·bound underflows."""
    assert scaled_bound(5e-324, PRECISION_RANGE[0]) == 1
    assert quantise([[-5e-324]], 1, PRECISION_RANGE[0]).tolist() == [[-1]]


def test_back_again() -> None:
    assert dequantise(quantise([[1.25, -0.5]], 2, 2), 2).tolist() == [[1.25, -0.5]]
    assert dequantise([3], -1).tolist() == [6.0]
