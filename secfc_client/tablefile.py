"""Files of rows to Arrow tables and back: CSV (all text, as it stands), TSV, gzipped CSV and Parquet, by suffix.

Arrow's own messages quote cells, so they are not passed on.
"""

from __future__ import annotations

import gzip
import stat
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from secfc.errors import DataError

#: The field separator by file suffix; Parquet has none.
DELIMITERS = {".csv": ",", ".csv.gz": ",", ".tsv": "\t", ".parquet": None, ".pq": None}
TEXT = pa.large_string()
BATCH_ROWS = 1 << 16  # rows turned into CSV at a time
_UNREADABLE = (pa.ArrowException, OSError, UnicodeError)
_BLOCK_BYTES = 1 << 24  # the longest CSV row


def suffix_of(path: Path) -> str:
    suffix = next((known for known in DELIMITERS if path.name.lower().endswith(known)), None)
    if suffix is None:
        raise DataError(f"{path}: unknown file type; supported are {', '.join(DELIMITERS)}")
    return suffix


def reason(error: BaseException) -> str:
    return getattr(error, "strerror", None) or "unsupported"


def read(path: Path) -> pa.Table:
    suffix = suffix_of(path)
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise IsADirectoryError(0, "a folder or a device, not a file")
        file = path.open("rb")
    except OSError as error:
        raise DataError(f"{path}: cannot be opened ({reason(error)})") from None
    try:
        with file:
            if delimiter := DELIMITERS[suffix]:
                return _read_csv(path, _csv_bytes(path, file, suffix), delimiter)
            return _read_parquet(path, file)
    except MemoryError:
        raise DataError(f"{path}: does not fit into this machine's memory, or is damaged") from None


def _read_parquet(path: Path, file: BinaryIO) -> pa.Table:
    try:
        rows = pq.ParquetFile(file).read()
        rows.validate(full=True)
        _ = rows.column_names  # decoding them may fail too
    except _UNREADABLE:
        raise DataError(f"{path}: is not a Parquet file, or is damaged or cut short") from None
    return rows


def _csv_bytes(path: Path, file: BinaryIO, suffix: str) -> bytes:
    try:
        data: bytes = pa.input_stream(file, compression="gzip" if suffix.endswith(".gz") else None).read()
    except _UNREADABLE:
        raise DataError(f"{path}: cannot be read; is it a whole {suffix} file?") from None
    return data if data.endswith(b"\n") else data + b"\n"  # Arrow wants one, even after a lone header


def _read_csv(path: Path, data: bytes, delimiter: str) -> pa.Table:
    """Every column as text; rows of the wrong length and a quote left open are errors."""
    _check_utf8(path, data)
    ragged: list[Any] = []
    try:
        names = _parser(data, delimiter, [], []).schema.names
        rows = _parser(data, delimiter, names, ragged).read_all()
    except _UNREADABLE:
        why = "is a quote left open, or a row very long?" if data.strip() else "it is empty, without a header"
        raise DataError(f"{path}: cannot be read as CSV; {why}") from None
    if ragged:  # their numbers count the header
        what = f"has {ragged[0].actual_columns} fields, the header {ragged[0].expected_columns}"
        raise DataError(f"{path}: data row {ragged[0].number - 1} {what} ({len(ragged)} such rows in all)")
    if rows.column_names != names:
        raise DataError(f"{path}: the header must be the first line")
    if rows.num_rows and data.count(b'"') % 2 and rows[names[-1]][-1].as_py().endswith("\n"):
        raise DataError(f"{path}: a quoted field is still open at the end of the file; is it cut short?")
    return rows


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
        raise DataError(f"{path}: is not UTF-8 text") from None


def write_rows(rows: pa.Table, suffix: str, file: BinaryIO) -> None:
    """A table in the format of a suffix."""
    delimiter = DELIMITERS[suffix]
    if delimiter is None:
        pq.write_table(rows, file)
    elif suffix.endswith(".gz"):
        with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as packed:
            _write_csv(rows, delimiter, packed)
    else:
        _write_csv(rows, delimiter, file)


def _write_csv(rows: pa.Table, delimiter: str, file: BinaryIO | gzip.GzipFile) -> None:
    """RFC 4180 with LF, quotes only where they are needed (Arrow's own writer quotes all text or none)."""
    header = _quoted(pa.chunked_array([rows.column_names], TEXT), delimiter)
    file.write(delimiter.join(header.to_pylist()).encode() + b"\n")
    for start in range(0, rows.num_rows, BATCH_ROWS):
        part = rows.slice(start, BATCH_ROWS)
        fields = [_quoted(as_text(name, part[name]), delimiter) for name in part.column_names]
        lines = pc.binary_join_element_wise(*fields, pa.scalar(delimiter, TEXT), null_handling="replace")
        whole = pa.LargeListArray.from_arrays(pa.array([0, len(lines)], pa.int64()), lines.combine_chunks())
        file.write(pc.binary_join(whole, pa.scalar("\n", TEXT))[0].as_buffer())
        file.write(b"\n")


def as_text(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    try:
        return pc.cast(column, TEXT)
    except pa.ArrowException:
        what = f"CSV cannot hold column {shown(name)} of type {shown(column.type)}"
        raise DataError(f"{what}; write to a .parquet file instead") from None


def _quoted(text: pa.ChunkedArray, delimiter: str) -> pa.ChunkedArray:
    quote = pa.scalar('"', TEXT)
    doubled = pc.replace_substring(text, '"', '""')
    quoted = pc.binary_join_element_wise(quote, doubled, quote, pa.scalar("", TEXT))
    return pc.if_else(pc.match_substring_regex(text, f'["\r\n{delimiter}]'), quoted, text)


def shown(name: object) -> str:
    text = str(name)
    return repr(text if len(text) <= 60 else text[:57] + "...")
