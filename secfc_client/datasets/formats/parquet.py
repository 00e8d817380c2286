"""Parquet."""

from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from secfc.errors import DataError
from secfc_client.datasets.formats import base
from secfc_client.datasets.formats.base import UNREADABLE, Format

_VALUE_BYTES = 8  # that a value takes in memory, however few bits in the file


def _read(path: Path, suffix: str, file: BinaryIO) -> pa.Table:
    import pyarrow.parquet as pq  # a site whose rows are in another format need not wait for it

    try:
        opened, most = pq.ParquetFile(file), base.most_unpacked(file)
        if max(claimed(opened.metadata), _VALUE_BYTES * opened.metadata.num_rows * opened.metadata.num_columns) > most:
            raise base.too_large(path, "write it again as CSV, if it is meant so")
        rows = opened.read()
        rows.validate(full=True)
        _ = rows.column_names  # decoding them may fail too
    except UNREADABLE:
        raise DataError(f"{path}: is not a Parquet file, or is damaged or cut short") from None
    return rows


def claimed(metadata: Any) -> int:
    """Bytes of all pages, unpacked, as the file's end says."""
    return sum(metadata.row_group(group).total_byte_size for group in range(metadata.num_row_groups))


def _write(rows: pa.Table, suffix: str, file: BinaryIO) -> None:
    import pyarrow.parquet as pq

    pq.write_table(rows, file)


FORMAT = Format("Parquet", (".parquet", ".pq"), (b"PAR1",), True, _read, _write)
