"""Columns of a table as numbers and as ids, checked cell by cell but whole columns at a time.

Errors name the file, the column and the data row (row 1 follows the header), never a value or an id.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from secfc.errors import DataError
from secfc.wording import few
from secfc_client.datasets.formats.base import shown

HINT = "if it is not a feature, name it with --id or list the features with --features"
MARKERS = ("", "na", "n/a", "nan", "null", "none", "?", ".", "-")  # written for missing values, in any case
_NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
_COMMA_NUMBER = r"^[+-]?([0-9]+,?[0-9]*|,[0-9]+)([eE][+-]?[0-9]+)?$"
_THOUSANDS = r"^[+-]?[0-9]+([ .,'][0-9]+)+$"
_DATE = r"^([0-9]{4}[-/.][0-9]{1,2}[-/.][0-9]{1,2}|[0-9]{1,2}[-/.][0-9]{1,2}[-/.][0-9]{2,4})([ T].*)?$"
_YES = r"^(?i)(yes|no|y|n|true|false|t|f)$"
_DECIMAL = pa.decimal256(76, 0)


def cells_error(path: Path, rows: tuple[list[int], int], name: str, what: str) -> DataError:
    """`rows`: the first of them, and how many there are."""
    first, count = rows
    if count == 1:
        return cell_error(path, first[0], name, what)
    places = ", ".join(str(row + 1) for row in first)
    rest = f" ({count} in all)" if count > len(first) else ""
    return DataError(f"{path}: data rows {places}{rest}, column {shown(name)}: {what}")


def cell_error(path: Path, row: int, name: str, what: str) -> DataError:
    return DataError(f"{path}: data row {row + 1}, column {shown(name)}: {what}")


def numbers(path: Path, name: str, column: pa.ChunkedArray, comma: bool = False) -> NDArray[np.float64]:
    """A feature column as float64: finite, integers exact, NaN where a value is missing. `comma`: decimal commas."""
    column = plain(column)
    if not _may_be_numeric(column.type):
        raise DataError(
            f"{path}: column {shown(name)} is of type {shown(column.type)}, not numeric; {_cure_of(column)}"
        )
    if pa.types.is_decimal(column.type):
        column = pc.cast(column, pa.string())  # parsing rounds correctly, a cast from decimal may not
    gone = missing(column)
    if is_text(column.type):
        column = _parsable(path, name, pc.if_else(gone, pa.scalar(None, column.type), column), comma)
    values = np.array(pc.cast(column, pa.float64(), safe=False).to_numpy(), dtype=np.float64)
    nothing = np.asarray(gone)
    if (bad := np.flatnonzero(~np.isfinite(values) & ~nothing)).size:
        raise cell_error(path, int(bad[0]), name, "not a finite number; fill it in or leave out the row")
    if (bad := _inexact(column, np.where(nothing, 0.0, values))).size:
        raise cell_error(path, int(bad[0]), name, "float64 cannot hold this integer exactly; rescale it")
    values[nothing] = np.nan
    return values


def codes(path: Path, name: str, column: pa.ChunkedArray, levels: Sequence[str]) -> NDArray[np.int64]:
    """A category column as places among its levels, −1 where the value is missing."""
    text = plain(column)
    try:
        text = text if is_text(text.type) else pc.cast(text, pa.large_string())
    except pa.ArrowException:
        raise DataError(
            f"{path}: column {shown(name)} is of type {shown(text.type)}, which has no levels; {HINT}"
        ) from None
    found = pc.fill_null(pc.index_in(text, pa.array(levels, text.type)), -1)
    unknown = pc.and_(pc.equal(found, -1), pc.invert(missing(text)))
    if rows := _rows(unknown):
        what = f"no level that the job knows ({few(levels)}); correct it, or agree on another list of levels"
        raise cells_error(path, rows, name, what)
    return np.asarray(found.to_numpy(), dtype=np.int64)


def missing(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Where there is no value: null, NaN, an empty cell, or what people write for it."""
    if is_text(column.type):
        marked = pc.is_in(pc.ascii_lower(column), pa.array(MARKERS, column.type))  # false where there is nothing at all
        return pc.or_(marked, pc.is_null(column))
    gone = pc.is_null(column)
    return pc.or_(gone, pc.fill_null(pc.is_nan(column), False)) if pa.types.is_floating(column.type) else gone


def plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Without what only says how a column is stored; text without spaces around it."""
    if pa.types.is_dictionary(column.type):
        column = pc.cast(column, column.type.value_type)
    if pa.types.is_float16(column.type):
        column = pc.cast(column, pa.float32())
    return pc.utf8_trim_whitespace(column) if is_text(column.type) else column


def is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _may_be_numeric(kind: pa.DataType) -> bool:
    of = pa.types
    number = of.is_integer(kind) or of.is_floating(kind) or of.is_boolean(kind) or of.is_decimal(kind)
    return bool(number or of.is_null(kind) or is_text(kind))


def is_numeric(column: pa.ChunkedArray) -> bool:
    """Whether a column can be a feature, as far as can be told."""
    column = plain(column)
    if not is_text(column.type):
        return _may_be_numeric(column.type)
    text = column.filter(pc.invert(missing(column)))
    return _parses(text) or _is_boolean(text) or decimal_commas(text)


def decimal_commas(column: pa.ChunkedArray) -> bool:
    """Whether all values are numbers as written with decimal commas, and one has such a comma."""
    text = plain(column)
    if not is_text(text.type):
        return False
    text = text.filter(pc.invert(missing(text)))
    comma = pc.any(pc.match_substring(text, ",")).as_py()
    return bool(comma and pc.all(pc.match_substring_regex(text, _COMMA_NUMBER)).as_py())


def is_date(column: pa.ChunkedArray) -> bool:
    """Whether all values are dates or times, typed or written."""
    text = plain(column)
    if not is_text(text.type):
        return bool(pa.types.is_temporal(text.type))
    return _all_match(text.filter(pc.invert(missing(text))), _DATE)


def decimal_points(column: pa.ChunkedArray) -> bool:
    """Whether a text has a point among its digits."""
    text = plain(column)
    return is_text(text.type) and bool(pc.any(pc.match_substring_regex(text, r"[0-9]\.[0-9]")).as_py())


def _parsable(path: Path, name: str, text: pa.ChunkedArray, comma: bool) -> pa.ChunkedArray:
    """Text that Arrow reads as numbers, or the numbers; raises DataError that names the first cells that are none."""
    if comma and decimal_commas(text):
        return pc.replace_substring(text, ",", ".")
    if _parses(text):
        return text
    if _is_boolean(text):
        return pc.cast(pc.equal(pc.ascii_lower(text), "true"), pa.float64())
    bad = pc.invert(pc.fill_null(pc.match_substring_regex(text, _NUMBER), True))
    rows = _rows(bad) or ([_first_unparsed(text)], 1)
    raise cells_error(path, rows, name, f"not a number; {_cure_of(text.filter(bad))}")


def _cure_of(column: pa.ChunkedArray) -> str:
    """What to do about values that are no numbers, which are all alike in something."""
    kind = column.type
    if pa.types.is_temporal(kind) or (is_text(kind) and _all_match(column, _DATE)):
        return "dates and times are no numbers; add a column that counts, e.g. days since a day that all sites agree on"
    if is_text(kind) and _all_match(column, _THOUSANDS):
        return (
            "write numbers without separators of thousands, and decimal points (decimal commas need ; between fields)"
        )
    if is_text(kind) and _all_match(column, _YES):
        return (
            'make it a category, NAME = { levels = ["no", "yes"] } under features in federation.toml, or write 0 and 1'
        )
    return f"{HINT}; a category needs levels in federation.toml"


def _all_match(text: pa.ChunkedArray, pattern: str) -> bool:
    return len(text) > 0 and bool(pc.all(pc.match_substring_regex(text, pattern)).as_py())


def _parses(text: pa.ChunkedArray) -> bool:
    try:
        pc.cast(text, pa.float64())
    except pa.ArrowInvalid:
        return False
    return True


def _is_boolean(text: pa.ChunkedArray) -> bool:
    values = pc.ascii_lower(text.drop_null())
    return bool(len(values) and pc.all(pc.is_in(values, pa.array(["true", "false"], values.type))).as_py())


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


def _rows(mask: pa.ChunkedArray) -> tuple[list[int], int] | None:
    """The first rows where it is true, and how many there are; None if there is none."""
    found = np.flatnonzero(np.asarray(pc.fill_null(mask, False)))
    return (found[:3].tolist(), len(found)) if len(found) else None


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
        raise DataError(f"{path}: the same id in column {shown(name)} occurs in data rows {which}")
    return ids
