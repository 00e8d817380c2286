"""Uniform residues from a key: AES-256-CTR, three 21-bit candidates a 64-bit word, rejected if not below the prime.

Both the noise of the shares and the masks of the uploads come from here. Residue q of a stream is a function of (key, q)
alone, so any block of rows can be made by any thread: a rejected candidate is replaced from AES blocks that carry its
position, in the half of the counter space that the stream itself never reaches. Nothing here comes from numpy's generators.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from secfc.coding import kernels, parallel
from secfc.coding.field import Field, Layout, Residues
from secfc.errors import InvalidInput

Sums = npt.NDArray[np.int32]

KEY_BYTES = 32
_MASK = (1 << 21) - 1
_REPLACEMENTS = 1 << 127
_ZEROS = memoryview(bytes(1 << 20))


def fresh_key() -> bytes:
    """A new key from the operating system's generator."""
    return os.urandom(KEY_BYTES)


class _Keystream:
    """One key's stream, read from a position onwards."""

    __slots__ = ("_blocks", "_encryptor", "sign")

    def __init__(self, key: bytes, sign: int, first_word: int) -> None:
        if len(key) != KEY_BYTES or first_word % 2:
            raise InvalidInput("a keystream needs a 32-byte key and starts at a whole AES block")
        counter = (first_word // 2).to_bytes(16, "big")
        self._blocks = Cipher(algorithms.AES(key), modes.ECB()).encryptor()  # noqa: S305 - one block at a time is CTR
        self._encryptor = Cipher(algorithms.AES(key), modes.CTR(counter)).encryptor()
        self.sign = sign

    def read_into(self, buffer: memoryview, size: int) -> None:
        done = 0
        while done < size:
            step = min(len(_ZEROS), size - done)
            self._encryptor.update_into(_ZEROS[:step], buffer[done:])
            done += step

    def replacement(self, position: int, p: int) -> int:
        """For a rejected position the first good candidate of its own replacement blocks."""
        value, counter = p, _REPLACEMENTS + (position << 32)
        while value >= p:
            bits = int.from_bytes(self._blocks.update(counter.to_bytes(16, "big")), "big")
            candidates = ((bits >> 21 * c) & _MASK for c in range(6))
            value = next((candidate for candidate in candidates if candidate < p), p)
            counter += 1
        return value

    def __repr__(self) -> str:
        return "_Keystream(secret)"


class SumReader:
    """Reads the signed sum of several keystreams, block of rows by block of rows, in the order of a layout."""

    def __init__(
        self, signed_keys: Sequence[tuple[bytes, int]], layout: Layout, first_row: int, most_rows: int
    ) -> None:
        self._layout = layout
        self._word = first_row * layout.row_residues // 3
        self._streams = [_Keystream(key, sign, self._word) for key, sign in signed_keys]
        most = -(-most_rows * layout.row_residues // 3)
        buffer = bytearray(len(self._streams) * 8 * most + 16)  # update_into asks for a little more than it writes
        self._buffer = memoryview(buffer)
        self._words = np.frombuffer(buffer, dtype="<u8", count=len(self._streams) * most).reshape(-1, most)
        self._signs = np.array([stream.sign for stream in self._streams], dtype=np.int64)
        self._sums = np.empty(3 * most, dtype=np.int32)
        blocks = len(self._streams) * (most // kernels.SCAN + 1)
        self._flagged = np.empty(blocks, dtype=np.int64)

    def next(self, rows: int) -> Sums:
        """Lane sums (3, words) of the next rows; overwritten by the next call. Sums are not reduced."""
        count = -(-rows * self._layout.row_residues // 3)
        sums = self._sums[: 3 * count].reshape(3, count)
        for index, stream in enumerate(self._streams):
            stream.read_into(self._buffer[8 * index * self._words.shape[1] :], 8 * count)
        ceiling = np.uint32(self._layout.ceiling)
        flagged = kernels.sum_streams(self._words, self._signs, ceiling, sums, self._flagged)
        if flagged:
            self._replace(self._flagged[:flagged], count, sums)
        self._word += count
        return sums

    def _replace(self, flagged: npt.NDArray[np.int64], count: int, sums: Sums) -> None:
        start = 3 * self._word
        primes = self._layout.primes
        found = np.empty((3 * kernels.SCAN * len(flagged), 2), dtype=np.int64)
        for index, at in found[: kernels.rejected(self._words, count, flagged, start, primes, found)].tolist():
            word, field = divmod(at, 3)  # a handful in a million
            stream = self._streams[index]
            value = stream.replacement(start + at, int(primes[(start + at) % len(primes)]))
            sums[field, word] += stream.sign * (value - (int(self._words[index, word]) >> 21 * field & _MASK))

    def __repr__(self) -> str:
        return f"SumReader({len(self._streams)} streams)"


def block_rows(layout: Layout) -> int:
    """Rows to read at a time: the threads' even shares, in blocks of up to 384 KiB a stream.

    Such long calls of AES, because threads meet at the GIL between two calls: with 64 KiB two are slower than one.
    """
    most = (384 << 10) * 3 // (8 * max(layout.row_residues, 1))
    share = -(-layout.rows // parallel.threads())
    rows = -(-share // -(-share // max(most, 1)))
    return -(-rows // parallel.ROW_GROUP) * parallel.ROW_GROUP


def uniform(field: Field, rows: int, columns: int, key: bytes | None = None) -> Residues:
    """Uniform balanced residues (L, rows, columns), from a fresh key or, repeatably, from the one given."""
    key = fresh_key() if key is None else key
    layout = Layout.uniform(field, rows, columns)
    out = np.empty((field.lanes, rows, columns))
    block = parallel.block_rows(8 * layout.row_residues)

    def work(first: int, end: int) -> None:
        reader = SumReader([(key, 1)], layout, first, block)
        flat = np.empty((block, layout.row_residues), dtype=np.uint32)
        scratch = np.empty(flat.size, dtype=np.int32)
        for a in range(first, end, block):
            part = flat[: min(block, end - a)]
            part.fill(0)
            kernels.add_masks(reader.next(len(part)), part, layout.prime_floats, scratch)
            for lane, p in enumerate(field.primes):
                kernels.spread(part, layout.offsets[lane], float(p), out[lane, a : a + len(part)], False)

    if layout.residues:
        parallel.for_row_ranges(rows, block, work)
    return out
