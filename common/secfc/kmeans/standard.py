"""Standard scaling in exact arithmetic: a site's count, Σx and Σx² of each column, and the mean and deviation over all sites.

A value counts as the whole number ⌊2⁸⁰·x⌋, which is exact for every float64 of at least 2⁻²⁸ (4·10⁻⁹) in magnitude; |x|
must be below 2⁶⁴ (1.8·10¹⁹). Sums of these numbers are exact, so the totals, and the mean and deviation that follow from
them, are the same bytes everywhere, however the rows are dealt and ordered.

The deviation is that of these very rows (it divides by their number), as scikit-learn's StandardScaler has it. A column
that is constant over all sites is shifted only. Missing values (NaN) do not count, and become 0, the mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import isqrt

import numpy as np
import numpy.typing as npt

from secfc.errors import DataError, JobFailed
from secfc.kmeans import fixedpoint

Values = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]
Spread = tuple[tuple[float, float], ...]  # (shift, unit) of every column: x is clustered as (x − shift) / unit

GRID_BITS = 80  # of a value, after the point
LARGEST = 2.0**64  # every |x| is below
_EXACT = 2.0 ** (52 - GRID_BITS)  # from here on, every float64 lies on the grid
_LIMB_BITS = 18  # products of two limbs, of a block of values, add up below 2⁶³
_BLOCK = 1 << 16
_ROOT_BITS = 128  # of a deviation before it is rounded to float64


@dataclass(frozen=True)
class Moments:
    """Of one column: how many values there are, and the sums of them and of their squares, on the grid."""

    count: int
    total: int
    squares: int

    def __add__(self, other: Moments) -> Moments:
        return Moments(self.count + other.count, self.total + other.total, self.squares + other.squares)


def moments(values: Values) -> Moments:
    """Of one column, exactly; NaN does not count. Pre-condition: every |x| is below LARGEST."""
    found = Moments(0, 0, 0)
    for a in range(0, len(values), _BLOCK):
        part = values[a : a + _BLOCK]
        found += _of_block(part[~np.isnan(part)])
    return found


def _of_block(values: Values) -> Moments:
    """Values of one size, 2^(e−1) ≤ |v| < 2^e, are whole numbers of 53 bits times 2^(e−53), which are added up by limbs."""
    if not len(values):
        return Moments(0, 0, 0)
    scaled = np.ldexp(values, GRID_BITS)
    scaled = np.where(np.abs(values) < _EXACT, np.floor(scaled), scaled)
    fractions, exponents = np.frexp(scaled)
    order = np.argsort(exponents, kind="stable")
    sizes, first = np.unique(exponents[order], return_index=True)
    whole, mask = np.ldexp(fractions[order], 53).astype(np.int64), (1 << _LIMB_BITS) - 1
    limbs = [whole & mask, whole >> _LIMB_BITS & mask, whole >> 2 * _LIMB_BITS]
    shifts = sizes.astype(int) - 53
    total = sum(_summed(limb, first, shifts + i * _LIMB_BITS) for i, limb in enumerate(limbs))
    squares = sum(
        _summed(one * other, first, 2 * shifts + (i + j) * _LIMB_BITS)
        for i, one in enumerate(limbs)
        for j, other in enumerate(limbs)
    )
    return Moments(len(values), int(total), int(squares))


def _summed(terms: Rows, first: npt.NDArray[np.intp], shifts: npt.NDArray[np.int64]) -> Fraction:
    """The sum of all terms, each times 2 to the power that belongs to its size."""
    sums = np.add.reduceat(terms, first).tolist()
    return sum((found * Fraction(2) ** shift for found, shift in zip(sums, shifts.tolist(), strict=True)), Fraction(0))


def spread_of(total: Moments, name: str) -> tuple[float, float]:
    """The mean and the deviation, each rounded to float64 once; the unit of a constant column is 1. Raises JobFailed if no
    values have such sums."""
    if total.count < 1:
        raise JobFailed(f"no site has a value of {name}, so it cannot be scaled; leave this feature out")
    centred = total.count * total.squares - total.total**2
    if centred < 0 or abs(total.total) > total.count * int(LARGEST) << GRID_BITS:
        raise JobFailed(
            f"the sites' sums of {name} are those of no values: somebody gave wrong ones; start the job again"
        )
    mean = Fraction(total.total, total.count << GRID_BITS)
    deviation = Fraction(isqrt(centred << 2 * _ROOT_BITS), total.count << GRID_BITS + _ROOT_BITS)
    return float(mean), float(deviation) or 1.0


def own_spread(values: Values, numeric: Sequence[bool]) -> Spread:
    """As it would be if these rows were all there are; a column without values stays as it is."""
    found = (moments(column) if scale else Moments(0, 0, 0) for column, scale in zip(values.T, numeric, strict=True))
    return tuple(spread_of(one, "") if one.count else (0.0, 1.0) for one in found)


def scaled(values: Values, spread: Spread, clip: float | None) -> Values:
    """What is clustered: in deviations from the mean, at most `clip` of them if it is given, and 0 for a missing value."""
    shift, unit = np.array(spread).T
    found: Values = (values - shift) / unit
    np.nan_to_num(found, copy=False)
    return found if clip is None else np.clip(found, -clip, clip, out=found)


@dataclass(frozen=True, eq=False)
class Unscaled:
    """A site's rows before the scale is known. `values` are NaN where one is missing; `numeric` says which columns are
    scaled, the others are the zeros and ones of categories; `numbers` are those of the rows in the site's file, from 1."""

    values: Values = field(repr=False)
    numeric: npt.NDArray[np.bool_]
    numbers: npt.NDArray[np.intp] | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.values)

    def moments(self) -> tuple[Moments, ...]:
        """Of every column that is scaled (heavy)."""
        return tuple(moments(column) for column in self.values.T[self.numeric])

    def spread(self, totals: Sequence[Moments], names: Sequence[str]) -> Spread:
        """Of every column, from the totals of those that are scaled."""
        due = iter(totals)
        pairs = zip(names, self.numeric.tolist(), strict=True)
        return tuple(spread_of(next(due), name) if numeric else (0.0, 1.0) for name, numeric in pairs)

    def quantised(self, spread: Spread, names: Sequence[str], terms: tuple[float | None, float, int]) -> Rows:
        """What is shared (heavy), by clip, bound and precision. Raises DataError for a value beyond the bound."""
        clip, bound, precision = terms
        found = scaled(self.values, spread, clip)
        if (outside := np.abs(found) > bound).any():
            row, column = (int(index) for index in np.argwhere(outside)[0])
            number = row + 1 if self.numbers is None else int(self.numbers[row])
            raise DataError(
                f"data row {number}, column {names[column]}: the value is more than {bound:g} deviations from the mean over"
                f" all sites ({int(outside.sum())} such values in all); correct it, or agree on clip or a larger bound"
            )
        return fixedpoint.quantise(found, bound, precision)
