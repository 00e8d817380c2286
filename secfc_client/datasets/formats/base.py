"""What a file format is, and what all of them share. Arrow's own messages quote cells, so they are not passed on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from os import SEEK_END
from pathlib import Path
from typing import BinaryIO, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from secfc.errors import DataError

TEXT = pa.large_string()
SEPARATOR = b"secfc.separator"  # of the fields of a text file, noted in its table
UNREADABLE = (pa.ArrowException, OSError, UnicodeError)


MOST_TIMES = 250  # its size on disk is what a file may unpack to, if that is more than
ALWAYS_FITS = 256 << 20  # bytes, which any file may


def most_unpacked(file: BinaryIO) -> int:
    """The most that a compressed file may become: rows of people are never packed that densely, a bomb is."""
    size = file.seek(0, SEEK_END)
    file.seek(0)
    return max(ALWAYS_FITS, MOST_TIMES * size)


def too_large(path: Path, cure: str) -> DataError:
    return DataError(
        f"{path}: unpacks to more than {MOST_TIMES} times its size, so it is damaged or made to fill the memory; {cure}"
    )


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


def commas_are_decimal(rows: pa.Table) -> bool:
    """Whether a comma among digits can only be a decimal comma: where fields are separated by commas, or cells are texts of a
    file with types, it may as well separate thousands."""
    return bool((rows.schema.metadata or {}).get(SEPARATOR, b",") != b",")


def check_names(path: Path, names: Sequence[str]) -> None:
    """Raises DataError if a name occurs twice."""
    if len(set(names)) < len(names):
        twice = next(name for name, count in Counter(names).items() if count > 1)
        raise DataError(f"{path}: two columns are called {shown(twice)}; column names must differ")


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
