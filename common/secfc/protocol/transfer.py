"""Parcels in pieces: cut on one side and put together on the other, in one place for all of them.

Pieces come in order from byte 0. What is here already is passed over when it comes again; a gap, a byte beyond the total or
another total is refused and changes nothing. What the bytes mean is checked by the sink they go to, as they come.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np

from secfc.coding.blocks import Spool
from secfc.coding.field import Layout
from secfc.errors import Malformed
from secfc.protocol.effects import Arrived
from secfc.protocol.parcels import Body, Data, to_words

PIECE_BYTES = 1 << 20
FIRST_BYTES = 1 << 15  # of a stream's first pieces


def pieces(body: Body, first: int = 0, size: int = FIRST_BYTES) -> Iterator[tuple[int, Data]]:
    """A body's bytes from `first` on, cut to size; one empty piece if there are none, so that the total is told.

    Where nothing is known of a connection, pieces begin small and double after every second one, up to PIECE_BYTES: what
    has arrived whole is kept when a stream breaks, so at least half of what a connection carries counts, however soon it
    breaks; and small pieces cost time only at the beginning."""
    size, second = min(size, PIECE_BYTES), False
    if first >= body.total:
        yield body.total, b""
    for place, data in body.pieces(first):
        at = 0
        while at < len(data):
            yield place + at, data[at : at + size]
            at, size, second = at + size, min(2 * size, PIECE_BYTES) if second else size, not second


class Sink(Protocol):
    """Where a parcel's bytes go, in order. `write` checks what it is given and raises without taking any of it."""

    @property
    def received(self) -> int: ...

    def begin(self, total: int) -> None:
        """Raise Malformed unless a parcel of that many bytes is due."""
        ...

    def write(self, data: Data) -> None: ...


def take(sink: Sink, piece: Arrived) -> bool:
    """Put a piece where it belongs; True if nothing of the parcel is missing then."""
    if piece.offset + len(piece.data) > piece.total:
        raise Malformed("a piece reaches beyond its total")
    if piece.offset > sink.received:
        raise Malformed(f"bytes from offset {sink.received} are due, not from {piece.offset}")
    sink.begin(piece.total)
    new = memoryview(piece.data)[sink.received - piece.offset :]
    if new:
        sink.write(new)
    return sink.received == piece.total


class Here:
    """Stands for a parcel that is here already: what comes again is passed over."""

    def __init__(self, received: int = 1 << 62) -> None:
        self.received = received

    def begin(self, total: int) -> None:
        pass

    def write(self, data: Data) -> None:
        pass


class Gathered:
    """Bytes as they are, up to `most` of them."""

    def __init__(self, most: int) -> None:
        self._most, self._total = most, 0  # the total binds the sender once bytes of it were taken
        self._data = bytearray()

    @property
    def received(self) -> int:
        return len(self._data)

    def begin(self, total: int) -> None:
        if (self._data and total != self._total) or total > self._most:
            raise Malformed(f"at most {self._most} bytes are due, and of one total; not {total}")
        self._total = total

    def write(self, data: Data) -> None:
        self._data += data

    @property
    def data(self) -> bytes:
        return bytes(self._data)

    def taken(self) -> bytearray:
        """The bytes themselves, for whoever takes them over: they are large in some parcels."""
        return self._data


class GatheredWords:
    """Words of residues, each checked against its prime."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self.words = np.empty(layout.words, dtype=np.uint64)
        self.received = 0

    def begin(self, total: int) -> None:
        if total != 8 * self._layout.words:
            raise Malformed(f"{8 * self._layout.words} bytes are due, not {total}")

    def write(self, data: Data) -> None:
        words, first = to_words(data), self.received // 8
        self._layout.check(words, first)
        self.words[first : first + len(words)] = words
        self.received += len(data)

    @property
    def complete(self) -> bool:
        return self.received == 8 * self._layout.words


class SpooledWords:
    """The same, gathered elsewhere than in memory."""

    def __init__(self, layout: Layout, spool: Spool) -> None:
        self._layout, self.words = layout, spool

    @property
    def received(self) -> int:
        return len(self.words)

    def begin(self, total: int) -> None:
        if total != 8 * self._layout.words:
            raise Malformed(f"{8 * self._layout.words} bytes are due, not {total}")

    def write(self, data: Data) -> None:
        self._layout.check(to_words(data), self.received // 8)
        self.words.write(data)
