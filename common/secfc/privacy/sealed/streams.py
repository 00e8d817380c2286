"""Streams of small values (mod 127) and of residues, each a function of its key alone (docs/sealed.md, Section 2).

A small value is the low seven bits of a byte of AES-256-CTR. One that is 127, or 0 where a factor is wanted, is replaced by
the next good one of the *spares*: the bytes of the same key in the half of the counter space that the stream never reaches.
Streams are always read from their beginning, so both ends replace alike.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from secfc.coding import kernels, prg
from secfc.coding.field import Field, Layout
from secfc.errors import InvalidInput

Bytes = npt.NDArray[np.uint8]
Residues32 = npt.NDArray[np.uint32]
_ZEROS = memoryview(bytes(1 << 16))  # a long one would drive what the streams are for out of the cache
_SPARES = 1 << 127
SLACK = 16  # update_into asks for a little more room than it writes
_WIDE = 96  # rows; a multiple of three, so that they end with a word
_BLOCK = 6 << 12  # rows of residues read together
_FEW = 512  # values, of which none may need a spare
_NOTHING: Bytes = np.empty(0, dtype=np.uint8)


class Keystream:
    """The bytes of one key, read in order from an AES block on."""

    __slots__ = ("_encryptor",)

    def __init__(self, key: bytes, block: int = 0) -> None:
        if len(key) != prg.KEY_BYTES:
            raise InvalidInput("a stream needs a 32-byte key")
        self._encryptor = Cipher(algorithms.AES(key), modes.CTR(block.to_bytes(16, "big"))).encryptor()

    def read(self, count: int, out: Bytes | None = None) -> Bytes:
        """The next bytes, into `out` if that is given: SLACK bytes more than are wanted."""
        buffer = np.empty(count + SLACK, dtype=np.uint8) if out is None else out
        view = memoryview(buffer)  # type: ignore[arg-type]
        for done in range(0, count, len(_ZEROS)):
            self._encryptor.update_into(_ZEROS[: min(len(_ZEROS), count - done)], view[done:])
        return buffer[:count]

    def __repr__(self) -> str:
        return "Keystream(secret)"


class SmallStream:
    """Uniform values mod 127, or without 0, read in order."""

    __slots__ = ("_buffer", "_clean", "_key", "_nonzero", "_spare", "_spares", "_stream", "_used")

    def __init__(self, key: bytes, *, nonzero: bool = False) -> None:
        self._clean, self._key, self._nonzero = kernels.clean, key, nonzero
        self._stream = Keystream(key)
        self._spares: Keystream | None = None
        self._buffer, self._spare = _NOTHING, _NOTHING
        self._used = np.zeros(1, dtype=np.int64)

    def read(self, count: int, out: Bytes | None = None) -> Bytes:
        """The next values, into `out` (SLACK bytes longer) or where the next call overwrites them: fresh memory would cost
        more than the stream itself."""
        if out is None and len(self._buffer) < count + SLACK:
            self._buffer = np.empty(count + SLACK, dtype=np.uint8)
        values = self._stream.read(count, self._buffer if out is None else out)
        if self._spares is None and count > _FEW:
            self._fetch_spares(count)  # some will be needed; a call that finds none is a call too many
        done = self._clean(values, 0, self._nonzero, self._spare, self._used)
        while done < count:
            self._fetch_spares(count - done)
            done = self._clean(values, done, self._nonzero, self._spare, self._used)
        return values

    def _fetch_spares(self, left: int) -> None:
        """Read on in the half of the counter space that the stream itself never reaches; one in 64 values at
        most needs one."""
        if self._spares is None:
            self._spares = Keystream(self._key, _SPARES)
        self._spare, self._used[0] = self._spares.read(left // 16 + 256), 0

    def __repr__(self) -> str:
        return "SmallStream(secret)"


def coins(key: bytes, count: int) -> Bytes:
    """Fair bits, one a byte."""
    bits = Keystream(key).read(count)
    bits &= np.uint8(1)
    return bits


def below(key: bytes, bound: int, count: int) -> Bytes:
    """Uniform numbers in [0, bound), bound ≤ 128, from 16-bit candidates; the next good spare replaces a rejected one."""
    limit = (1 << 16) // bound * bound
    values = Keystream(key).read(2 * count).view("<u2")
    rejected = np.flatnonzero(values >= limit) if limit < 1 << 16 else np.empty(0, dtype=np.int64)
    if len(rejected):  # fewer than one in 2^9, so twice as many candidates are always enough
        spares = Keystream(key, _SPARES).read(4 * len(rejected) + 32).view("<u2")
        values[rejected] = spares[spares < limit][: len(rejected)]
    out = np.empty(count, dtype=np.uint8)
    kernels.remainders(values, np.uint16(bound), out)
    return out


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
