"""One party's end of the steps of a conversation: what scripts are written against.

A script is a generator that both ends run over the same public data, each on its own half of the split values (v = Y − ρ).
It yields a `Wait` where it needs messages and is sent their data; what it wants to say collects in `out`. Results that only
the server learns are None at a member until the server tells them.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from secfc.coding import kernels
from secfc.coding.field import Field, Layout
from secfc.errors import Malformed
from secfc.privacy.sealed.context import Line
from secfc.privacy.sealed.messages import Kind, Message, Said, Talk, octets
from secfc.privacy.sealed.steps import Counts, Crossings, Digits
from secfc.privacy.sealed.streams import Bytes, Residues32
from secfc.privacy.sealed.terms import Pairs, Terms

TILE = 256  # comparisons that lie together in messages and streams
_TOGETHER = 4 << 20  # bytes of streams that are made together: a call of a kernel costs more than a smaller cache saves
Values = npt.NDArray[np.uint32]


class Side(ABC):
    """What scripts ask of either party."""

    serves: bool  # whether this is the server's end

    def __init__(self, terms: Terms, line: Line, request: int) -> None:
        self.terms, self.line = terms, line
        self.last = (request + line.chunk) % terms.members  # the member that receives dealt data
        self.out: list[Said] = []

    def say(self, to: int, kind: Kind, data: Bytes) -> None:
        self.out.append(Said(to, Message(kind, self.line.stage, self.line.chunk, self.line.step, data)))

    @abstractmethod
    def compare(self, parts: Sequence[Digits]) -> Talk[Bytes]:
        """COMPARE: this party's g (server) or β (member), with [E < 0] = g ⊕ β."""

    @abstractmethod
    def zero(self, bits: Bytes, tests: Counts) -> Talk[npt.NDArray[np.bool_] | None]:
        """ZERO: which counts are 0, for the server only."""

    @abstractmethod
    def select(self, field: Field, bits: Bytes, values: Residues32) -> Talk[Residues32]:
        """SELECT: a fresh split of b·x."""

    @abstractmethod
    def again(self, field: Field, chosen: Residues32) -> Callable[[], Residues32]:
        """How to get later what the SELECT just done gave; a member holds no more than a key for that."""

    @abstractmethod
    def turns(self, size: int, count: int) -> Bytes | None:
        """Secret turns in [0, size), known to the members."""

    @abstractmethod
    def pick(self, field: Field, pairs: Pairs, crossings: Crossings, own: Values, at: Bytes) -> Talk[Residues32]:
        """A fresh split of E(a*, b*); `at` (N, 2) are the server's places or the members' turns of the two groups."""

    @abstractmethod
    def winning_turns(self, winners: Bytes | None, turns: Bytes | None, count: int) -> Talk[Bytes | None]:
        """The turn of each row's winning group, for the server; turns (N, groups) are the members'."""

    @abstractmethod
    def tell(self, told: Bytes | None, size: int, below: int = 256) -> Talk[Bytes]:
        """What the server has learnt, to everybody; it is bound into all that follows."""

    @abstractmethod
    def reveal(self, bits: Bytes) -> Talk[npt.NDArray[np.bool_] | None]:
        """REVEAL: the bits b, for the server only."""

    @abstractmethod
    def blur(self, bits: int) -> int:
        """A secret number below 2^bits that members add before opening; 0 at the server."""

    @abstractmethod
    def open(self, field: Field, values: Residues32) -> Talk[Residues32 | None]:
        """OPEN: v = Y − ρ, for the server only."""


def blocks(count: int, width: int) -> list[tuple[int, int]]:
    """Comparisons whose streams, `width` bytes each, are made together: whole tiles, so that no message shows the blocks."""
    step = max(_TOGETHER // width // TILE, 1) * TILE
    return [(first, min(first + step, count)) for first in range(0, count, step)]


def pack(field: Field, values: Values) -> Bytes:
    """Residues (…, l) three to a word, as bytes."""
    flat = np.ascontiguousarray(values).reshape(-1)
    words = np.empty(-(-len(flat) // 3), dtype=np.uint64)
    kernels.pack(flat, words)
    return octets(words.astype("<u8", copy=False))


def packed_size(field: Field, count: int) -> int:
    """Bytes of `count` values of all lanes."""
    return 8 * -(-count * field.lanes // 3)


def unpack(field: Field, data: Bytes, count: int) -> Residues32:
    """Residues (count, l). Raises Malformed for one that is not below its prime."""
    if len(data) != packed_size(field, count):
        raise Malformed(f"{packed_size(field, count)} bytes of residues are due, not {len(data)}")
    words = np.frombuffer(data.tobytes(), dtype="<u8")
    Layout.uniform(field, count, 1).check(words, 0)
    flat = np.empty(count * field.lanes, dtype=np.uint32)
    kernels.unpack(words, flat)
    return flat.reshape(count, field.lanes)


def pack_bits(bits: npt.NDArray[np.bool_] | Bytes) -> Bytes:
    """Eight bits a byte."""
    return np.packbits(np.asarray(bits, dtype=np.uint8), bitorder="little")


def unpack_bits(data: Bytes, count: int) -> npt.NDArray[np.bool_]:
    """The inverse of pack_bits. Raises Malformed if a bit after the last is set."""
    bits = np.unpackbits(data, bitorder="little")
    if bits[count:].any():
        raise Malformed("a bit after the last one is set")
    return bits[:count].astype(np.bool_)


def digest(data: Bytes) -> bytes:
    """Names a message's content."""
    return hashlib.sha256(np.ascontiguousarray(data).data).digest()
