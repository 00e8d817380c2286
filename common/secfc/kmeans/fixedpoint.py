"""Appendix A: real numbers to integers and back, with public bounds.

x becomes floor(λx) with λ = 2^precision; a negative number becomes Q + floor(λx) in the field, which `Field.from_ints`
does. The bound on |x| is agreed beforehand and never taken from the data, so that it tells nothing about them.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import ceil, frexp, inf, isfinite

import numpy as np
import numpy.typing as npt

from secfc.errors import DataError, InvalidInput

PRECISION_RANGE = (-1000, 1000)
_LARGEST = 1 << 53  # float64 holds every integer up to here, so floor(λx) is exact


def scaled_bound(bound: float, precision: int) -> int:
    """η = ⌈λ·bound⌉: every quantised value lies in [−η, η]."""
    low, high = PRECISION_RANGE
    try:
        positive = isfinite(bound) and bound > 0
    except (TypeError, OverflowError):
        positive = False
    if not positive:
        raise InvalidInput(f"bound must be a positive number, not {bound!r:.40}")
    if isinstance(precision, bool) or not isinstance(precision, int | np.integer) or not low <= precision <= high:
        raise InvalidInput(f"precision must be a whole number of bits from {low} to {high}, not {precision!r}")
    eta = ceil(Fraction(float(bound)) * Fraction(2) ** int(precision))
    if eta > _LARGEST:
        raise InvalidInput(f"bound {bound:g} with precision {precision} exceeds 2^53 steps; lower the precision")
    return eta


def precision_for(bound: float, bits: int) -> int:
    """The most fractional bits with bound · 2^precision ≤ 2^bits."""
    mantissa, exponent = frexp(bound)
    low, high = PRECISION_RANGE
    return min(max(bits - (exponent - 1 if mantissa == 0.5 else exponent), low), high)


def quantise(
    rows: npt.ArrayLike, bound: float, precision: int, names: Sequence[str] | None = None
) -> npt.NDArray[np.int64]:
    """floor(λx) of a matrix of rows. Raises DataError naming row (from 1) and column of the first value that does not fit."""
    scaled_bound(bound, precision)
    try:
        values = np.asarray(rows, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError("rows must be a matrix of numbers") from None
    if values.ndim != 2:
        raise DataError(f"rows must be a matrix (rows × features), not an array of {values.ndim} dimension(s)")
    good = np.abs(values) <= bound  # false for NaN and inf as well
    if not good.all():
        raise DataError(_first_fault(values, good, bound, names))
    scaled = np.floor(np.ldexp(values, int(precision)))
    scaled[(scaled == 0.0) & (values < 0.0)] = -1.0  # what was too small for float64 after scaling
    return scaled.astype(np.int64)


def _first_fault(
    values: npt.NDArray[np.float64], good: npt.NDArray[np.bool_], bound: float, names: Sequence[str] | None
) -> str:
    row, column = (int(index) for index in np.argwhere(~good)[0])
    where = f"row {row + 1}, column {names[column] if names else column + 1}"
    if np.isnan(values[row, column]):
        return f"{where} is not a number (NaN); remove or fill in missing values before clustering"
    if np.isinf(values[row, column]):
        return f"{where} is infinite; remove or replace it before clustering"
    return f"{where} is outside the agreed bound |x| <= {bound:g}; rescale the column or agree on a larger bound"


def dequantise(values: npt.ArrayLike, precision: int) -> npt.NDArray[np.float64]:
    """Integers (or exact means of them) back to real numbers: divide by λ."""
    return np.ldexp(np.asarray(values, dtype=np.float64), -int(precision))


def in_data_units(quantised: Fraction, precision: int) -> float:
    """A squared distance of quantised rows, in the squared units of the data: divided by λ²."""
    try:
        return float(quantised / Fraction(2) ** (2 * precision))
    except OverflowError:
        return inf
