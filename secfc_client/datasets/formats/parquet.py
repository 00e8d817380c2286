"""Parquet."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from secfc.errors import DataError
from secfc_client.datasets.formats.base import UNREADABLE, Format


def _read(path: Path, suffix: str, file: BinaryIO) -> pa.Table:
    import pyarrow.parquet as pq  # a site whose rows are in another format need not wait for it

    try:
        rows = pq.ParquetFile(file).read()
        rows.validate(full=True)
        _ = rows.column_names  # decoding them may fail too
    except UNREADABLE:
        raise DataError(f"{path}: is not a Parquet file, or is damaged or cut short") from None
    return rows


def _write(rows: pa.Table, suffix: str, file: BinaryIO) -> None:
    import pyarrow.parquet as pq

    pq.write_table(rows, file)


FORMAT = Format("Parquet", (".parquet", ".pq"), (b"PAR1",), True, _read, _write)
