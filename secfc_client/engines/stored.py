"""Shares as blocks of rows in a file of the state folder, for a job larger than memory.

The file holds them packed as they travel, and is memory-mapped a block at a time: what is mapped longer counts as this
process's memory. It has no name, so whenever the process ends, it is gone; a restarted client fills it again from the sealed
files of the state folder.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from secfc import limits
from secfc.coding.blocks import Ask, Packed, Spool, T
from secfc.coding.field import Field, Layout, Residues, Words
from secfc.coding.parallel import ROW_GROUP
from secfc.coding.sharing import add_norms
from secfc.errors import InvalidInput
from secfc_client.statefiles import CURE


class StoredRows:
    """A client's share of every row, on disk; see `blocks.Blocks`."""

    def __init__(
        self, folder: Path, field: Field, rows: int, length: int, block_bytes: int, spool: Callable[[str], Spool]
    ) -> None:
        """`block_bytes`: what a block takes in memory while it is worked on, at the most."""
        self.field, self.rows, self.length, self.spool = field, rows, length, spool
        row_bytes = 8 * field.lanes * (length + 2)
        self._step = max(block_bytes // row_bytes // ROW_GROUP, 1) * ROW_GROUP
        most = 8 * Layout.uniform(field, self._step, length).words
        self._stride = -(-most // mmap.ALLOCATIONGRANULARITY) * mmap.ALLOCATIONGRANULARITY
        self.blocks = -(-rows // self._step)
        self._file = _nameless(folder, max(self.blocks, 1) * self._stride)
        weakref.finalize(self, os.close, self._file)

    def put(self, rows: slice | npt.NDArray[np.int64], words: Words | Packed, *, add: bool = False) -> None:
        """See `blocks.Blocks`."""
        if not isinstance(rows, slice) or isinstance(words, np.ndarray):
            raise InvalidInput("shares on disk are put there piece by piece and in the order of their rows")
        first, end, _ = rows.indices(self.rows)
        done = first
        for place, piece in words.pieces(self.field.lanes * self.length):
            done = self._put(first + place, end, piece, add)
        if done != end:
            raise InvalidInput(f"shares of {end - first} rows are needed, not of {done - first}")

    def _put(self, first: int, most: int, piece: Words, add: bool) -> int:
        """Take in a piece; returns the row after it."""
        count = min(3 * len(piece) // (self.field.lanes * self.length), most - first)
        values = self.field.unpack(piece, count, self.length)
        for index in range(first // self._step, -(-(first + count) // self._step)):
            begin = index * self._step
            a, b = max(first, begin), min(first + count, begin + self._step)
            self._change(index, a - begin, values[:, a - first : b - first], add)
        return first + count

    def _change(self, index: int, at: int, values: Residues, add: bool) -> None:
        (words, layout), rows = self.packed(index), slice(at, at + values.shape[1])
        if add or values.shape[1] < layout.rows:
            before = self.field.unpack(words, layout.rows, self.length)
            before[:, rows] = before[:, rows] + values if add else values
            values = before
        words[:] = self.field.pack(values)

    def finish(self) -> None:
        """Norms are computed whenever a block is read: quicker than to read them."""

    def each(self, ask: Ask[T]) -> Iterator[T]:
        """See `blocks.Blocks`."""
        for index in range(self.blocks):
            first, end = self.edges(index)
            operation = ask(first, end)
            if operation is not None:
                matrix = unpacked(*self.packed(index))
                self._read_ahead(index + 1)
                found = operation(first, matrix)
                del matrix  # not held while nobody asks for more
                yield found

    def edges(self, index: int) -> tuple[int, int]:
        """The first row of a block, and the row after its last."""
        first = index * self._step
        return first, min(first + self._step, self.rows)

    def packed(self, index: int) -> tuple[Words, Layout]:
        """A block as it is on disk, and how it lies."""
        layout = self._layout(index)
        return _mapped(self._file, index * self._stride, layout.words), layout

    def _layout(self, index: int) -> Layout:
        first, end = self.edges(index)
        return Layout.uniform(self.field, end - first, self.length)

    def _read_ahead(self, index: int) -> None:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._file, index * self._stride, self._stride, os.POSIX_FADV_WILLNEED)

    def __repr__(self) -> str:
        return f"StoredRows({self.rows} rows × {self.length}, {self.field.lanes} lanes, {self._step} a block)"


def unpacked(words: Words, layout: Layout) -> Residues:
    """The matrix of a block, as in `CodedRows`."""
    field, length = layout.field, layout.widths[0]
    matrix = np.empty((field.lanes, layout.rows, length + 2))
    matrix[:, :, length + 1] = 1.0
    layout.unpack(words, [one[:, :length] for one in matrix])
    add_norms(field, matrix)
    return matrix


def _mapped(file: int, offset: int, words: int) -> Words:
    """Some words of a file, mapped for as long as the array is there."""
    return np.frombuffer(mmap.mmap(file, 8 * words, offset=offset), dtype=np.uint64)


def _nameless(folder: Path, size: int) -> int:
    """A file that only this process has, with room for all of it: a map of a file that cannot grow would kill us."""
    with limits.telling(f"{folder}: no room for the shares of this job", CURE):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        file, name = tempfile.mkstemp(prefix=".", suffix=".new", dir=folder)
        os.unlink(name)
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file, 0, size)
            else:
                os.ftruncate(file, size)
        except OSError:
            os.close(file)
            raise
        return file
