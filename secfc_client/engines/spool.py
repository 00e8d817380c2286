"""Shares on their way to a sealed file of the state folder, and read from it, piece by piece and never whole in memory."""

from __future__ import annotations

import hashlib
import os
import secrets
import weakref
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from secfc import atomicfile, limits
from secfc.coding.field import Words
from secfc.coding.parallel import ROW_GROUP
from secfc.errors import SecfcError
from secfc.framing import framed
from secfc_client.statefiles import CURE, SEAL_BYTES

_PIECE_BYTES = 2 << 20


class SealedWords:
    """A sealed file of words that is whole: the seal has been compared."""

    def __init__(self, path: Path, size: int) -> None:
        self._path, self._size = path, size

    def __len__(self) -> int:
        return self._size

    def pieces(self, row_residues: int) -> Iterator[tuple[int, Words]]:
        """See `blocks.Packed`."""
        group = 8 * ROW_GROUP * row_residues // 3
        step = max(_PIECE_BYTES // group, 1) * group
        with limits.telling(f"{self._path}: cannot be read", CURE), self._path.open("rb", buffering=0) as file:
            file.seek(SEAL_BYTES)
            for at in range(0, self._size, step):
                data = _read(file.fileno(), min(step, self._size - at))
                yield at // group * ROW_GROUP, np.frombuffer(data, dtype="<u8").astype(np.uint64, copy=False)


def opened(path: Path, *kind: bytes) -> SealedWords | None:
    """The words of a sealed file; None if there is none, or it is not whole and of that kind (heavy)."""
    digest = hashlib.sha256(framed(*kind))
    with limits.telling(f"{path}: cannot be read", "check the state folder"):
        try:
            file = atomicfile.patiently(lambda: path.open("rb", buffering=0))
        except FileNotFoundError:
            return None
        with file:
            seal, size = file.read(SEAL_BYTES), 0
            while data := file.read(_PIECE_BYTES):
                digest.update(data)
                size += len(data)
    return SealedWords(path, size) if seal == digest.digest() else None


class FileSpool:
    """Gathers words in a temporary file, which takes its place as a sealed file once they are whole."""

    def __init__(self, path: Path, *kind: bytes) -> None:
        """`path`: the place; `kind`: what the file then is."""
        self._path = path
        self._digest, self._size = hashlib.sha256(framed(*kind)), 0
        self._failure: SecfcError | None = None
        self._temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.new")
        try:
            self._open()
        except SecfcError as error:
            self._failure = error
        else:
            self._append(bytes(SEAL_BYTES))

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        with limits.telling(f"{self._path.parent}: cannot keep shares there", CURE):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._file = atomicfile.patiently(lambda: os.open(self._temporary, flags, 0o600))
        self._close = weakref.finalize(self, _close, self._file, self._temporary)

    def __len__(self) -> int:
        return self._size

    def write(self, data: bytes | memoryview) -> None:
        """What the disk does not take is told when the file is to be kept: nobody who sends us shares has to hear of it."""
        self._append(data)
        self._digest.update(data)
        self._size += len(data)

    def _append(self, data: bytes | memoryview) -> None:
        if self._failure is not None:
            return
        try:
            with limits.telling(f"{self._path.parent}: cannot keep shares there", CURE):
                view = memoryview(data)
                while view:
                    view = view[os.write(self._file, view) :]
        except SecfcError as error:
            self._failure = error

    def seal(self) -> None:
        """Put the file in its place; it is on disk then."""
        if self._failure is not None:
            raise self._failure
        with limits.telling(f"{self._path.parent}: cannot keep shares there", CURE):
            os.pwrite(self._file, self._digest.digest(), 0)
            os.fsync(self._file)
            self._temporary.replace(self._path)
            atomicfile.sync_folder(self._path.parent)
        self._close()

    def pieces(self, row_residues: int) -> Iterator[tuple[int, Words]]:
        """See `blocks.Packed`. Pre-condition: it is sealed."""
        return SealedWords(self._path, self._size).pieces(row_residues)


def _close(file: int, temporary: Path) -> None:
    os.close(file)
    temporary.unlink(missing_ok=True)


def _read(file: int, size: int) -> bytearray:
    data = bytearray(size)
    view = memoryview(data)
    while view:
        got = os.readv(file, [view])
        if not got:
            raise OSError("the file ends too early")
        view = view[got:]
    return data
