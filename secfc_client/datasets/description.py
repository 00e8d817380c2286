"""What a file's columns look like, for the people of its site: before anything leaves it, and as a draft to agree on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from secfc.agreement.features import Feature
from secfc.errors import DataError
from secfc_client.datasets import columns
from secfc_client.datasets.formats.base import check_names, commas_are_decimal

DATE = "date or time"
SKEWED = 2.0
FEW = 16  # distinct values of a column that is likely a category


@dataclass(frozen=True)
class Column:
    """One column of a file; `least` and `most` only of numbers."""

    name: str
    kind: str
    rows: int
    missing: int
    distinct: int
    least: float | None = None
    most: float | None = None
    skewed: bool = False  # all above 0, and few are large

    @property
    def remark(self) -> str:
        """What is worth knowing before it becomes a feature."""
        there = self.rows - self.missing
        if self.distinct <= 1:
            return "constant" if there else "empty"
        if self.distinct > 0.9 * there and there > FEW and self.kind != "number":
            return "nearly unique: an ID?"
        return "whole numbers, all different: an ID?" if self._numbered(there) else ""

    @property
    def few(self) -> bool:
        """Whether there are so few values that distances soon tell them."""
        return 2 <= self.distinct <= FEW and 2 * self.distinct <= self.rows - self.missing

    def _numbered(self, there: int) -> bool:
        ends = (self.least, self.most)
        whole = all(end is not None and end == math.floor(end) for end in ends)
        return whole and there > FEW and self.distinct == there and (self.most or 0) - (self.least or 0) < 2 * there


def described(path: Path, rows: pa.Table) -> list[Column]:
    """Every column of a file."""
    comma = commas_are_decimal(rows)
    return [_column(path, name, column, comma) for name, column in zip(rows.column_names, rows.columns, strict=True)]


def _column(path: Path, name: str, column: pa.ChunkedArray, comma: bool) -> Column:
    gone = int(pc.sum(columns.missing(columns.plain(column))).as_py() or 0)
    try:
        values = columns.numbers(path, name, column, comma and columns.decimal_commas(column))
    except DataError:
        return Column(name, _kind(column), len(column), gone, _distinct(column))
    there = values[~np.isnan(values)]
    if not len(there):
        return Column(name, "empty", len(column), gone, 0)
    distinct = len(np.unique(there))
    least, most = float(there.min()), float(there.max())
    return Column(name, "number", len(column), gone, distinct, least, most, least > 0 and _skewness(there) > SKEWED)


def _skewness(values: NDArray[np.float64]) -> float:
    """Third standardised moment; 2 is that of an exponential distribution."""
    scaled = values / np.abs(values).max()  # cubes of what any float can hold must not overflow
    centred = scaled - scaled.mean()
    deviation = float(centred.std())
    return float(np.mean(centred**3)) / deviation**3 if deviation > 0 else 0.0


def _kind(column: pa.ChunkedArray) -> str:
    if columns.is_date(column):
        return DATE
    return "text" if columns.is_text(columns.plain(column).type) else str(column.type)[:20]


def _distinct(column: pa.ChunkedArray) -> int:
    text = columns.plain(column)
    try:
        return len(pc.unique(text.filter(pc.invert(columns.missing(text)))))
    except pa.ArrowNotImplementedError:
        return len(column)


def suggested(path: Path, rows: pa.Table) -> list[tuple[Feature | None, Column]]:
    """A first agreement about every column: a range that is a little wider than what is here, or levels; None: no feature.
    Raises DataError if columns cannot be told apart."""
    check_names(path, rows.column_names)
    return [(_feature(rows, one), one) for one in described(path, rows)]


def _feature(rows: pa.Table, one: Column) -> Feature | None:
    if one.remark or one.distinct < 2:
        return None
    if one.least is not None and one.most is not None:
        return Feature(one.name, range=rounded(one.least, one.most))
    if one.kind != "text" or one.distinct > FEW:
        return None
    text = columns.plain(rows[one.name])
    return Feature(one.name, levels=tuple(sorted(pc.unique(text.filter(pc.invert(columns.missing(text)))).to_pylist())))


def rounded(least: float, most: float) -> tuple[float, float]:
    """Round ends that leave room, so that a range does not tell this site's own least and largest value."""
    step = 10.0 ** math.floor(math.log10(most - least or 1.0))
    low, high = (math.floor(least / step) - 1) * step, (math.ceil(most / step) + 1) * step
    return (0.0 if least >= 0 > low else low), high
