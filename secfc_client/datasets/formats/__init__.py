"""Files of rows to Arrow tables and back. Every module here that has a `FORMAT` is a format; adding one touches nothing else.

A file's first bytes decide what it is, whatever its name; the name decides where they say nothing, and what is written.
"""

from __future__ import annotations

import gzip
import pkgutil
import stat
from importlib import import_module
from pathlib import Path
from typing import BinaryIO, cast

import pyarrow as pa

from secfc.errors import DataError
from secfc_client.datasets.formats import base
from secfc_client.datasets.formats.base import UNREADABLE, Format, reason

_GZIP = b"\x1f\x8b"
_PIECE = 1 << 20
_modules = [import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__)]
FORMATS: tuple[Format, ...] = tuple(module.FORMAT for module in _modules if hasattr(module, "FORMAT"))
SUFFIXES = tuple(suffix for one in FORMATS for suffix in one.suffixes)


def suffix_of(path: Path) -> str:
    """The suffix by which a file's format is known, in lower case; the longest that fits."""
    found = [known for known in SUFFIXES if path.name.lower().endswith(known)]
    if not found:
        raise DataError(f"{path}: unknown file type; supported are {', '.join(SUFFIXES)}")
    return max(found, key=len)


def named(path: Path) -> Format:
    """The format that a file's name says."""
    suffix = suffix_of(path)
    return next(one for one in FORMATS if suffix in one.suffixes)


def read(path: Path) -> pa.Table:
    """Every column as it stands in the file: text where the format has no types."""
    named(path)
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise IsADirectoryError(0, "a folder or a device, not a file")
        file = path.open("rb")
    except OSError as error:
        raise DataError(f"{path}: cannot be opened ({reason(error)})") from None
    try:
        with file:
            return _read(path, file)
    except MemoryError:
        raise DataError(
            f"{path}: does not fit into this machine's memory, or is damaged; free memory, or restore the file"
        ) from None


def _read(path: Path, file: BinaryIO) -> pa.Table:
    first = file.read(16)
    file.seek(0)
    if not first.startswith(_GZIP):
        return _recognised(path, first).read(path, suffix_of(path), file)
    data = _unpacked(path, file)
    unpacked = cast(BinaryIO, pa.BufferReader(data))
    return _recognised(path, data[:16].to_pybytes()).read(path, suffix_of(path), unpacked)


def _unpacked(path: Path, file: BinaryIO) -> pa.Buffer:
    """What a gzip file holds, unless that is absurdly much."""
    most = base.most_unpacked(file)
    parts = pa.BufferOutputStream()
    try:
        packed = pa.input_stream(file, compression="gzip")
        while piece := packed.read(_PIECE):
            parts.write(piece)
            if parts.tell() > most:
                raise base.too_large(path, "run gunzip first, if it is meant so")
    except UNREADABLE:
        raise DataError(f"{path}: cannot be unpacked; is it a complete gzip file?") from None
    return parts.getvalue()


def _recognised(path: Path, first: bytes) -> Format:
    """By its first bytes, else by its name."""
    by_magic = (one for one in FORMATS if any(first.startswith(magic) for magic in one.magic))
    return next(by_magic, None) or named(path)


def write(rows: pa.Table, suffix: str, file: BinaryIO) -> None:
    """A table in the format of a suffix."""
    chosen = next(one for one in FORMATS if suffix in one.suffixes)
    if not suffix.endswith(".gz"):
        chosen.write(rows, suffix, file)
        return
    with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as packed:
        chosen.write(rows, suffix, cast(BinaryIO, packed))
