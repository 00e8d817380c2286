"""Slow, independent oracles: galois fields, a lane's integers, and the residue streams from their description."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from secfc.coding.field import Field, Layout


@cache
def galois_field(p: int) -> Any:
    """galois' GF(p), computing in Python: no compilation, and nothing shared with the code under test."""
    import galois

    return galois.GF(p, compile="python-calculate")


def in_galois(p: int, values: npt.ArrayLike) -> Any:
    """Balanced (or any) integers as elements of galois' GF(p)."""
    residues = np.asarray(values).astype(np.int64) % p
    return galois_field(p)(residues)


def words_of(residues: Sequence[int]) -> list[int]:
    """Residues three to a 63-bit word, lowest bits first."""
    padded = [*residues, 0, 0][: -(-len(residues) // 3) * 3]
    return [padded[i] | padded[i + 1] << 21 | padded[i + 2] << 42 for i in range(0, len(padded), 3)]


def flat_order(layout: Layout, lanes: Sequence[npt.NDArray[Any]]) -> list[int]:
    """The residues in [0, p) of a layout: row by row, in a row lane by lane."""
    out = []
    for i in range(layout.rows):
        for p, width, lane in zip(layout.field.primes, layout.widths, lanes, strict=True):
            out += [int(lane[i][c]) % p for c in range(width)]
    return out


def stream(key: bytes, primes: Sequence[int], count: int, first: int = 0) -> tuple[list[int], int]:
    """Residues first … first+count−1 of a key's stream whose q-th residue is modulo primes[q mod W], one by one.

    Follows prg's description alone: AES-256-CTR, three 21-bit candidates a little-endian 64-bit word; a candidate not
    below its prime is replaced by the first that is, of the blocks of counters 2¹²⁷ + q·2³² + 0, 1, …, six candidates each.
    Returns how many were replaced, too.
    """
    blocks = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    out, replaced = [], 0
    for q in range(first, first + count):
        p = primes[q % len(primes)]
        word, place = divmod(q, 3)
        raw = blocks.update((word // 2).to_bytes(16, "big"))[8 * (word % 2) :][:8]
        value = int.from_bytes(raw, "little") >> 21 * place & 0x1FFFFF
        counter = (1 << 127) + (q << 32)
        replaced += value >= p
        while value >= p:
            bits = int.from_bytes(blocks.update(counter.to_bytes(16, "big")), "big")
            candidates = [bits >> 21 * c & 0x1FFFFF for c in range(6)]
            value = next((candidate for candidate in candidates if candidate < p), p)
            counter += 1
        out.append(value)
    return out, replaced


def small_field(*primes: int) -> Field:
    """A field of any primes, for exhaustive tests."""
    return Field(tuple(primes))
