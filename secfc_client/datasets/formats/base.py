"""What a file format is, and what all of them share. Arrow's own messages quote cells, so they are not passed on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from secfc.errors import DataError

TEXT = pa.large_string()
UNREADABLE = (pa.ArrowException, OSError, UnicodeError)


class Reader(Protocol):
    def __call__(self, path: Path, suffix: str, file: BinaryIO) -> pa.Table: ...


class Writer(Protocol):
    def __call__(self, rows: pa.Table, suffix: str, file: BinaryIO) -> None: ...


@dataclass(frozen=True)
class Format:
    """A file format: `suffixes` that it is written under, `magic` bytes that any file of it begins with (none: text).

    `read` gives every column as it stands; `typed`: whether columns have types of their own or are all text."""

    name: str
    suffixes: tuple[str, ...]
    magic: tuple[bytes, ...]
    typed: bool
    read: Reader
    write: Writer


def as_text(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column as text files hold it."""
    try:
        return pc.cast(column, TEXT)
    except pa.ArrowException:
        what = f"CSV cannot hold column {shown(name)} of type {shown(column.type)}"
        raise DataError(f"{what}; write to a .parquet file instead") from None


def reason(error: BaseException) -> str:
    """Why something failed, without what was in the file."""
    return getattr(error, "strerror", None) or "unsupported"


def shown(name: object) -> str:
    """A name from a file, for an error message."""
    text = str(name)
    return repr(text if len(text) <= 60 else text[:57] + "...")
