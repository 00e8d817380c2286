"""Columns of a table as numbers and as ids, checked cell by cell but whole columns at a time.

Errors name the file, the column and the data row (row 1 follows the header), never a value or an id.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from secfc.errors import DataError
from secfc_client.tablefile import DELIMITERS, shown, suffix_of

HINT = "if it is not a feature, name it with --id or list the features with --features"
_DECIMAL = pa.decimal256(76, 0)


def cell_error(path: Path, row: int, name: str, what: str) -> DataError:
    return DataError(f"{path}: data row {row + 1}, column {shown(name)}: {what}")


def floats(path: Path, name: str, column: pa.ChunkedArray) -> NDArray[np.float64]:
    """A feature column as float64: nothing missing, all finite, integers exact."""
    if not _has_numbers(path, column.type):
        raise DataError(f"{path}: column {shown(name)} is of type {shown(column.type)}, not numeric; {HINT}")
    if pa.types.is_string(column.type):
        column = pc.utf8_trim_whitespace(column)
    elif pa.types.is_decimal(column.type):
        column = pc.cast(column, pa.string())  # parsing rounds correctly, a cast from decimal may not
    if (row := _first(_blank(column))) is not None:
        raise cell_error(path, row, name, "the value is missing; fill it in or leave out the row")
    if pa.types.is_string(column.type) and not _parses(column):
        if not _is_boolean(column):
            raise cell_error(path, _first_unparsed(column), name, f"not a number; {HINT}")
        column = pc.equal(pc.ascii_lower(column), "true")
    values: NDArray[np.float64] = pc.cast(column, pa.float64(), safe=False).to_numpy()
    if (bad := np.flatnonzero(~np.isfinite(values))).size:
        raise cell_error(path, int(bad[0]), name, "not a finite number; fill it in or leave out the row")
    if (bad := _inexact(column, values)).size:
        raise cell_error(path, int(bad[0]), name, "float64 cannot hold this integer exactly; rescale it")
    return values


def _has_numbers(path: Path, kind: pa.DataType) -> bool:
    """Whether a column of this type may be a feature; in CSV all are text, and the cells decide."""
    of = pa.types
    number = of.is_integer(kind) or of.is_floating(kind) or of.is_boolean(kind) or of.is_decimal(kind)
    return bool(number or DELIMITERS[suffix_of(path)])


def is_numeric(path: Path, column: pa.ChunkedArray) -> bool:
    if not _has_numbers(path, column.type) or not pa.types.is_string(column.type):
        return _has_numbers(path, column.type)
    text = pc.utf8_trim_whitespace(column)
    text = text.filter(pc.not_equal(text, ""))
    return _parses(text) or _is_boolean(text)


def _parses(text: pa.ChunkedArray) -> bool:
    try:
        pc.cast(text, pa.float64())
    except pa.ArrowInvalid:
        return False
    return True


def _is_boolean(text: pa.ChunkedArray) -> bool:
    return bool(pc.all(pc.is_in(pc.ascii_lower(text), pa.array(["true", "false"]))).as_py())


def _first_unparsed(text: pa.ChunkedArray) -> int:
    """The first row that is not a number, by bisection; there must be one."""
    low, high = 0, len(text)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _parses(text[low:middle]) else (low, middle)
    return low


def _inexact(column: pa.ChunkedArray, values: NDArray[np.float64]) -> NDArray[np.intp]:
    """Rows that hold an integer which differs from its float64 (beyond 75 digits, all count as different)."""
    rows = np.flatnonzero(np.abs(values) >= 2.0**53)  # all below are exact
    text = pc.cast(column.take(pa.array(rows)), pa.string())
    integer = pc.match_substring_regex(text, r"^[+-]?[0-9]+$").to_numpy()
    rows, text = rows[integer], pc.utf8_ltrim(text.filter(pa.array(integer)), characters="+-0")
    short = np.abs(values[rows]) < 1e75
    written = pc.cast(text.filter(pa.array(short)), _DECIMAL)
    held = pc.cast(pa.array(np.abs(values[rows[short]])), _DECIMAL)
    wrong = ~short
    wrong[short] = pc.not_equal(written, held).to_numpy()
    return np.asarray(rows[wrong])


def _blank(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return pc.fill_null(pc.equal(column, ""), True)
    return pc.is_null(column)


def _first(mask: pa.ChunkedArray) -> int | None:
    row = int(pc.index(mask, True).as_py())
    return None if row < 0 else row


def checked_ids(path: Path, name: str, ids: pa.ChunkedArray) -> pa.ChunkedArray:
    if (row := _first(_blank(ids))) is not None:
        raise cell_error(path, row, name, "the id is missing")
    try:
        numbered = pa.table({"id": ids, "row": np.arange(1, len(ids) + 1)})
        groups = numbered.group_by("id").aggregate([("row", "min"), ("row", "max"), ("row", "count")])
    except pa.ArrowNotImplementedError:
        raise DataError(f"{path}: column {shown(name)} of type {shown(ids.type)} cannot be the id") from None
    twice = groups.filter(pc.greater(groups["row_count"], 1)).sort_by("row_min")
    if twice.num_rows:
        which = f"{twice['row_min'][0]} and {twice['row_max'][0]} ({twice.num_rows} ids occur more than once)"
        raise DataError(f"{path}: the same id in column {shown(name)} stands in data rows {which}")
    return ids
