"""Streams of small values (mod 127) and of residues, each a function of (key, position) alone (docs/sealed.md, Section 2).

A small value is the low seven bits of a byte of AES-256-CTR; 127, and 0 where a factor is wanted, is replaced by the first
good byte of the AES block that carries its position, in the half of the counter space the stream never reaches, as in `prg`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from secfc.coding import kernels, prg
from secfc.coding.field import Field, Layout
from secfc.errors import InvalidInput

Bytes = npt.NDArray[np.uint8]
Residues32 = npt.NDArray[np.uint32]
_ZEROS = memoryview(bytes(1 << 20))
SLACK = 16  # update_into asks for a little more room than it writes
_WIDE = 96  # rows; a multiple of three, so that they end with a word
_BLOCK = 6 << 12  # rows of residues read together


class Keystream:
    """The bytes of one key, read in order, and the replacement block of any position."""

    __slots__ = ("_blocks", "_encryptor", "_key", "position")
    _blocks: Any

    def __init__(self, key: bytes) -> None:
        if len(key) != prg.KEY_BYTES:
            raise InvalidInput("a stream needs a 32-byte key")
        self._encryptor = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
        self._key, self._blocks = key, None
        self.position = 0

    def read(self, count: int, out: Bytes | None = None) -> Bytes:
        """The next bytes, into `out` if that is given: SLACK bytes more than are wanted."""
        buffer = np.empty(count + SLACK, dtype=np.uint8) if out is None else out
        view = memoryview(buffer)  # type: ignore[arg-type]
        for done in range(0, count, len(_ZEROS)):
            self._encryptor.update_into(_ZEROS[: min(len(_ZEROS), count - done)], view[done:])
        self.position += count
        return buffer[:count]

    def replacements(self, positions: npt.NDArray[np.int64], start: int = 0) -> Bytes:
        """(n, 16): the replacement blocks of these positions after `start`, counters 2¹²⁷ + position·2³²."""
        fast: Any = kernels.sealed()
        if self._blocks is None:
            self._blocks = Cipher(algorithms.AES(self._key), modes.ECB()).encryptor()  # noqa: S305 - a block at a time is CTR
        counters = np.empty((len(positions), 16), dtype=np.uint8)
        fast.counters(positions, start, counters)
        out = np.empty(counters.nbytes + SLACK, dtype=np.uint8)
        self._blocks.update_into(counters.reshape(-1).data, out.data)
        return out[: counters.nbytes].reshape(-1, 16)

    def __repr__(self) -> str:
        return "Keystream(secret)"


class SmallStream:
    """Uniform values mod 127, or without 0, read in order."""

    __slots__ = ("_buffer", "_found", "_nonzero", "_stream")

    def __init__(self, key: bytes, *, nonzero: bool = False) -> None:
        self._stream, self._nonzero = Keystream(key), nonzero
        self._buffer: Bytes = np.empty(0, dtype=np.uint8)
        self._found = np.empty(0, dtype=np.int64)

    def read(self, count: int, out: Bytes | None = None) -> Bytes:
        """The next values, into `out` (SLACK bytes longer) or where the next call overwrites them: fresh memory would cost
        more than the stream itself."""
        fast: Any = kernels.sealed()
        start = self._stream.position
        if out is None and len(self._buffer) < count + SLACK:
            self._buffer = np.empty(count + SLACK, dtype=np.uint8)
        if len(self._found) < count // 32 + 256:
            self._found = np.empty(count // 32 + 256, dtype=np.int64)
        found = self._found
        values = self._stream.read(count, self._buffer if out is None else out)
        hits = fast.clip(values, self._nonzero, found)
        if hits > len(found):  # far from anything likely
            found = np.empty(hits, dtype=np.int64)
            fast.clip(values, self._nonzero, found)
        if hits:
            blocks = self._stream.replacements(found[:hits], start)
            if fast.replace(values, self._nonzero, found[:hits], blocks):
                raise InvalidInput("no replacement among sixteen; this has a chance below 2^-90")
        return values

    def __repr__(self) -> str:
        return "SmallStream(secret)"


def coins(key: bytes, count: int) -> Bytes:
    """Fair bits, one a byte."""
    return np.asarray(Keystream(key).read(count) & np.uint8(1))


def below(key: bytes, bound: int, count: int) -> Bytes:
    """Uniform numbers in [0, bound), bound ≤ 128, from 16-bit candidates."""
    stream = Keystream(key)
    limit = (1 << 16) // bound * bound
    values = stream.read(2 * count).view("<u2").copy()
    rejected = np.flatnonzero(values >= limit) if limit < 1 << 16 else np.empty(0, dtype=np.int64)
    for at, block in zip(rejected.tolist(), stream.replacements(2 * rejected).view("<u2"), strict=True):
        values[at] = block[block < limit][0]  # eight candidates, each bad with a chance below 2^-9
    return (values % bound).astype(np.uint8)


def add_residues(values: Residues32, signed_keys: Sequence[tuple[bytes, int]], field: Field) -> Residues32:
    """values (n, l) plus the signed sum of streams, mod p lane by lane, in place; returns them."""
    layout = Layout.uniform(field, len(values), 1)
    if not signed_keys or not len(values):
        return values
    reader = prg.SumReader(signed_keys, layout, 0, min(_BLOCK, len(values)))
    scratch = np.empty(min(_BLOCK, len(values)) * layout.row_residues, dtype=np.int32)
    for first in range(0, len(values), _BLOCK):
        part = values[first : first + _BLOCK]
        _add(reader.next(len(part)), part, layout.prime_floats, scratch)
    return values


def _add(sums: prg.Sums, part: Residues32, primes: npt.NDArray[np.float64], scratch: npt.NDArray[np.int32]) -> None:
    """part + sums mod p. Rows of a few lanes are taken _WIDE at a time, so that the kernel's inner loop is a long one."""
    lanes, whole = part.shape[1], len(part) // _WIDE * _WIDE
    if whole:
        wide = part[:whole].reshape(-1, _WIDE * lanes)
        kernels.add_masks(sums, wide, np.tile(primes, _WIDE), scratch)
    if whole < len(part):
        rest = np.ascontiguousarray(sums[:, whole * lanes // 3 :])
        kernels.add_masks(rest, part[whole:], primes, scratch)


def residues(key: bytes, field: Field, count: int) -> Residues32:
    """Uniform residues (count, l)."""
    return add_residues(np.zeros((count, field.lanes), dtype=np.uint32), [(key, 1)], field)
