"""Arrow IPC files, which are also Feather files of version 2."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from secfc.errors import DataError
from secfc_client.datasets.formats import base
from secfc_client.datasets.formats.base import UNREADABLE, Format


def _read(path: Path, suffix: str, file: BinaryIO) -> pa.Table:
    try:
        rows = _all(path, pa.ipc.open_file(file), base.most_unpacked(file))
        rows.validate(full=True)
        _ = rows.column_names  # decoding them may fail too
    except UNREADABLE:
        raise DataError(
            f"{path}: is not an Arrow file (Feather version 2), or is damaged or cut short; write it again"
        ) from None
    return rows


def _all(path: Path, opened: pa.ipc.RecordBatchFileReader, most: int) -> pa.Table:
    """Batch by batch: they may be compressed."""
    batches, size = [], 0
    for number in range(opened.num_record_batches):
        batches.append(opened.get_batch(number))
        size += batches[-1].nbytes
        if size > most:
            raise base.too_large(path, "write it again without compression, if it is meant so")
    return pa.Table.from_batches(batches, opened.schema)


def _write(rows: pa.Table, suffix: str, file: BinaryIO) -> None:
    with pa.ipc.new_file(file, rows.schema) as writer:
        writer.write_table(rows)


FORMAT = Format("Arrow", (".arrow", ".feather"), (b"ARROW1\x00\x00",), True, _read, _write)
