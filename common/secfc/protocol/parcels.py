"""Messages too large for one piece, and how each kind's bytes are made: what names a parcel, and what is in it.

A parcel is named by session, kind and a name of its own that follows from what it is about, so that the same name always
means the same bytes: a sender that starts again goes on where the receiver stands, and what comes twice is taken once.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

import numpy as np

from secfc.coding.field import Words
from secfc.errors import Malformed

Data = bytes | memoryview


class Kind(Enum):
    """What a parcel is. Client to client, client to server, server to client."""

    SHARES = 1  # named by the share set: the sender's shares for the receiver
    WANTED = 2  # named by a share set of the receiver: its shares for the sender, which has lost them, once more
    COMMITMENT = 3  # to what the sender will confirm of the union of IDs
    CONFIRMATION = 4  # of the union of IDs
    CENTERS = 5  # named by the final assignment: whether the sender consents to opening the centres, and its values
    UPLOAD = 6  # named by request and attempt: coded distances
    SUM = 7  # named by the sum: the sender's part of a sum over all clients
    IDS = 8  # the sender's own IDs, published of its own free will
    ASSIGNMENT = 9  # named by version and base
    OPENED = 10  # named by step and rows left: what a sum over all clients shows
    STEP = 11  # a further message of a round kind, named by request, attempt and the kind's own words
    PLEDGE = 12  # a commitment to what the sender will add to the sums for the scale
    MOMENTS = 13  # what it adds, masked


@dataclass(frozen=True)
class Parcel:
    """What names a message that travels in pieces."""

    session: bytes
    kind: Kind
    name: bytes = b""


class Body(Protocol):
    """The bytes of a parcel, made as they are sent."""

    @property
    def total(self) -> int: ...

    def pieces(self, first: int) -> Iterator[tuple[int, Data]]:
        """All bytes from `first` on, with the place of each piece (a step may be heavy)."""
        ...


@dataclass(frozen=True)
class Whole:
    """Bytes that are there already. `seconds`: how long they took to compute."""

    data: Data = field(repr=False)
    seconds: float = 0.0

    @property
    def total(self) -> int:
        return len(self.data)

    def pieces(self, first: int) -> Iterator[tuple[int, Data]]:
        if first < len(self.data):
            yield first, memoryview(self.data)[first:]


def of_words(words: Words, seconds: float = 0.0) -> Whole:
    """Little-endian 64-bit words, three 21-bit residues each."""
    whole = np.ascontiguousarray(words.astype("<u8", copy=False))
    return Whole(memoryview(whole.view(np.uint8)), seconds)  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class Made:
    """Words that are made while they are sent, the same whenever they are asked for: what nobody reads is not made."""

    words: int
    source: Callable[[int], Iterator[tuple[int, Words]]] = field(repr=False)  # all from a word on, with their places

    @property
    def total(self) -> int:
        return 8 * self.words

    def pieces(self, first: int) -> Iterator[tuple[int, Data]]:
        return in_bytes(self.source(first // 8))


@dataclass(frozen=True, eq=False)
class Chained:
    """Bodies one after the other."""

    parts: tuple[Body, ...]

    @property
    def total(self) -> int:
        return sum(part.total for part in self.parts)

    def pieces(self, first: int) -> Iterator[tuple[int, Data]]:
        at = 0
        for part in self.parts:
            if first < at + part.total:
                for place, data in part.pieces(max(first - at, 0)):
                    yield at + place, data
            at += part.total


class Watched:
    """A body whose failure is remembered: who sends it may hear of it only as of a connection that broke."""

    def __init__(self, body: Body) -> None:
        self._body = body
        self.failure: Exception | None = None  # what ended the making of it, if anything has

    @property
    def total(self) -> int:
        return self._body.total

    def pieces(self, first: int) -> Iterator[tuple[int, Data]]:
        if self.failure is not None:
            raise self.failure
        try:
            yield from self._body.pieces(first)
        except Exception as error:
            self.failure = error
            raise


def joined(parts: Sequence[Body]) -> Body:
    """Bodies one after the other: whole if all of them are."""
    whole = [part.data for part in parts if isinstance(part, Whole)]
    return Whole(b"".join(whole)) if len(whole) == len(parts) else Chained(tuple(parts))


def in_bytes(pieces: Iterator[tuple[int, Words]]) -> Iterator[tuple[int, Data]]:
    """Pieces of words, with their places, as bytes."""
    for place, words in pieces:
        yield 8 * place, of_words(words).data


def to_words(data: Data) -> Words:
    """The inverse; raises Malformed for a part of a word."""
    if len(data) % 8:
        raise Malformed("64-bit words are due, and a piece ends within one")
    return np.frombuffer(data, dtype="<u8").astype(np.uint64, copy=False)


# --- names -------------------------------------------------------------------------------------------------------------

_ATTEMPT = struct.Struct(">QI")
_PAIR = struct.Struct(">QQ")


def attempt_name(number: int, attempt: int) -> bytes:
    return _ATTEMPT.pack(number, attempt)


def attempt_of(name: bytes) -> tuple[int, int]:
    """(request, attempt) of an UPLOAD or STEP; what follows is the round kind's."""
    if len(name) < _ATTEMPT.size:
        raise Malformed("a name of request and attempt is too short")
    number, attempt = _ATTEMPT.unpack_from(name)
    return number, attempt


def pair_name(first: int, second: int) -> bytes:
    return _PAIR.pack(first, second)


def pair_of(name: bytes) -> tuple[int, int]:
    """(version, base) of an ASSIGNMENT, (step, left) of OPENED."""
    if len(name) != _PAIR.size:
        raise Malformed("a name of two numbers has 16 bytes")
    first, second = _PAIR.unpack(name)
    return first, second
