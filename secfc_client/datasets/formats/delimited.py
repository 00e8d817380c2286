"""Text files: CSV and the like, separated by commas, semicolons, tabs or bars; all columns as text, as they stand."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from secfc.errors import DataError
from secfc_client.datasets.formats.base import SEPARATOR, TEXT, UNREADABLE, Format, as_text

BATCH_ROWS = 1 << 16  # rows turned into CSV at a time
_USUAL = {".csv": ",", ".csv.gz": ",", ".tsv": "\t", ".tsv.gz": "\t"}  # separator by suffix
_NAMES = {",": "a comma", ";": "a semicolon", "\t": "a tab", "|": "a bar"}
_MARKS = "".join(_NAMES)
_BLOCK_BYTES = 1 << 24  # the longest CSV row
_LOOK_BYTES, _LOOK_LINES = 1 << 16, 20  # of a file's beginning, to find its separator
_FIELD = re.compile(r'"(?:[^"]|"")*+"?')


def _read(path: Path, suffix: str, file: BinaryIO) -> pa.Table:
    data: bytes = file.read()
    if not data.endswith(b"\n"):  # Arrow wants one, even after a lone header
        data += b"\n"
    return _read_csv(path, data, separator(data[:_LOOK_BYTES].decode(errors="replace"), _USUAL.get(suffix, ",")))


def separator(text: str, usual: str) -> str:
    """What separates the fields of a text that begins like this: the mark that the header has most of, among those that
    stand equally often in the rows below it, if there are such."""
    lines = list(_lines(text))
    if not lines:
        return usual
    found = {mark: [line.count(mark) for line in lines] for mark in _MARKS}
    there = [mark for mark in sorted(_MARKS, key=lambda mark: mark != usual) if found[mark][0]]
    steady = [mark for mark in there if len(set(found[mark])) == 1]
    return max(steady or there, key=lambda mark: found[mark][0], default=usual)


def _lines(text: str) -> Iterator[str]:
    """The first lines, with what is quoted left out; a last line that may be cut is none, unless it is the only one."""
    lines = [line for line in _FIELD.sub("", text.removeprefix("\ufeff")).splitlines() if line.strip()]
    whole = lines if text.endswith("\n") else lines[: max(len(lines) - 1, 1)]
    yield from whole[:_LOOK_LINES]


def _read_csv(path: Path, data: bytes, delimiter: str) -> pa.Table:
    """Every column as text; rows of the wrong length and a quote left open are errors."""
    _check_utf8(path, data)
    ragged: list[Any] = []
    try:
        names = _parser(data, delimiter, [], []).schema.names
        rows = _parser(data, delimiter, names, ragged).read_all()
    except UNREADABLE:
        why = "is a quote left open, or a row very long?" if data.strip() else "it is empty, without a header"
        raise DataError(f"{path}: cannot be read as CSV; {why}") from None
    if ragged:  # their numbers count the header
        what = f"has {ragged[0].actual_columns} fields, the header {ragged[0].expected_columns}"
        raise DataError(
            f"{path}: data row {ragged[0].number - 1} {what} ({len(ragged)} such rows in all); {_cure(delimiter)}"
        )
    if rows.column_names != names:
        raise DataError(f"{path}: the header must be the first line")
    if rows.num_rows and data.count(b'"') % 2 and rows[names[-1]][-1].as_py().endswith("\n"):
        raise DataError(f"{path}: a quoted field is still open at the end of the file; is it cut short?")
    return rows.replace_schema_metadata({SEPARATOR: delimiter})


def _cure(delimiter: str) -> str:
    return f"put a field that holds {_NAMES[delimiter]} between double quotes"


def _parser(data: bytes, delimiter: str, names: list[str], ragged: list[Any]) -> pacsv.CSVStreamingReader:
    """Reads the columns called `names` as text; rows of the wrong length go to `ragged`."""

    def skip(row: Any) -> str:
        ragged.append(row)
        return "skip"

    return pacsv.open_csv(
        pa.BufferReader(data),
        pacsv.ReadOptions(use_threads=False, block_size=_BLOCK_BYTES),  # threads would lose the row numbers
        pacsv.ParseOptions(
            delimiter=delimiter,
            newlines_in_values=True,
            invalid_row_handler=skip,
            ignore_empty_lines=len(names) != 1,  # in a lone column an empty line is a missing value
        ),
        pacsv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()), check_utf8=False),
    )


def _check_utf8(path: Path, data: bytes) -> None:
    """All at once and without a copy: the parser would print what it could not decode."""
    offsets = pa.py_buffer(np.array([0, len(data)], dtype=np.int64))
    try:
        pa.Array.from_buffers(TEXT, 1, [None, offsets, pa.py_buffer(data)]).validate(full=True)
    except pa.ArrowInvalid:
        raise DataError(f"{path}: is not UTF-8 text; {_guess(data)}") from None


def _guess(data: bytes) -> str:
    """What to do about text in another encoding."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "it is UTF-16: save it as UTF-8, or run: iconv -f UTF-16 -t UTF-8"
    if b"\0" in data[: 1 << 16]:
        return "it is no text at all: is it another kind of file?"
    return "it may be Latin-1 (Windows-1252): save it as UTF-8, or run: iconv -f WINDOWS-1252 -t UTF-8"


def _write(rows: pa.Table, suffix: str, file: BinaryIO) -> None:
    """RFC 4180 with LF, quotes only where they are needed (Arrow's own writer quotes all text or none)."""
    delimiter = _USUAL[suffix]
    header = _quoted(pa.chunked_array([rows.column_names], TEXT), delimiter)
    file.write(delimiter.join(header.to_pylist()).encode() + b"\n")
    for start in range(0, rows.num_rows, BATCH_ROWS):
        part = rows.slice(start, BATCH_ROWS)
        fields = [_quoted(as_text(name, part[name]), delimiter) for name in part.column_names]
        lines = pc.binary_join_element_wise(*fields, pa.scalar(delimiter, TEXT), null_handling="replace")
        whole = pa.LargeListArray.from_arrays(pa.array([0, len(lines)], pa.int64()), lines.combine_chunks())
        file.write(pc.binary_join(whole, pa.scalar("\n", TEXT))[0].as_buffer())
        file.write(b"\n")


def _quoted(text: pa.ChunkedArray, delimiter: str) -> pa.ChunkedArray:
    quote = pa.scalar('"', TEXT)
    doubled = pc.replace_substring(text, '"', '""')
    quoted = pc.binary_join_element_wise(quote, doubled, quote, pa.scalar("", TEXT))
    return pc.if_else(pc.match_substring_regex(text, f'["\r\n{delimiter}]'), quoted, text)


FORMAT = Format("CSV", tuple(_USUAL), (), False, _read, _write)
