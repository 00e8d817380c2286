"""Arrow IPC files, which are also Feather files of version 2."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from secfc.errors import DataError
from secfc_client.datasets.formats.base import UNREADABLE, Format


def _read(path: Path, suffix: str, file: BinaryIO) -> pa.Table:
    try:
        rows = pa.ipc.open_file(file).read_all()
        rows.validate(full=True)
        _ = rows.column_names  # decoding them may fail too
    except UNREADABLE:
        raise DataError(
            f"{path}: is not an Arrow file (Feather version 2), or is damaged or cut short; write it again"
        ) from None
    return rows


def _write(rows: pa.Table, suffix: str, file: BinaryIO) -> None:
    with pa.ipc.new_file(file, rows.schema) as writer:
        writer.write_table(rows)


FORMAT = Format("Arrow", (".arrow", ".feather"), (b"ARROW1\x00\x00",), True, _read, _write)
