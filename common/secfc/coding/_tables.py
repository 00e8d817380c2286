"""The inner loops of invertible Bloom lookup tables, compiled like those of `_kernels`.

A table is uint32 of shape (cells, 4·L): for each lane (count, key, key, check), residues in [0, p). IDs are as in
`identifiers`: two words, the residue of lane a in bits 21a … 21a+20. `keys` are four words: three place an ID, one in each
third of the table, and one makes its check value.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from secfc.coding._compiling import compiled, inlined, room

_MASK = np.uint64((1 << 21) - 1)
_S21, _S29, _S32 = np.uint64(21), np.uint64(29), np.uint64(32)
_K1, _K2, _K3 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


@inlined
def _mix(first: Any, second: Any, key: Any) -> Any:
    """64 bits of an ID under a key: multiply and fold, as in splitmix64. IDs are uniform already; the key only sees to it
    that every table places them differently."""
    x = (first ^ key) * _K1
    x = ((x ^ (x >> _S32)) + second) * _K2
    x = (x ^ (x >> _S29)) * _K3
    return x ^ (x >> _S32)


@inlined
def _place(first: Any, second: Any, key: Any, part: Any) -> Any:
    return np.int64(((_mix(first, second, key) >> _S32) * np.uint64(part)) >> _S32)


@inlined
def _change(table: Any, cell: Any, first: Any, second: Any, check: Any, times: Any, primes: Any) -> None:
    """Add `times` copies of an ID to a cell."""
    for lane in range(primes.shape[0]):
        p, shift = primes[lane], np.uint64(lane) * _S21
        row = table[cell, 4 * lane : 4 * lane + 4]
        factor = times[lane]
        row[0] = np.uint32((row[0] + factor) % p)
        row[1] = np.uint32((row[1] + factor * ((first >> shift) & _MASK)) % p)
        row[2] = np.uint32((row[2] + factor * ((second >> shift) & _MASK)) % p)
        row[3] = np.uint32((row[3] + factor * (((check >> shift) & _MASK) % p)) % p)


@compiled("void(uint64[:, ::1], uint64[::1], int64, uint64[::1], uint32[:, ::1])")
def insert_ids(ids: Any, keys: Any, part: int, primes: Any, table: Any) -> None:
    """Add every ID to its three cells."""
    once = room((primes.shape[0],), np.uint64)
    once[:] = np.uint64(1)
    for i in range(ids.shape[0]):
        first, second = ids[i, 0], ids[i, 1]
        check = _mix(first, second, keys[3])
        for r in range(3):
            _change(table, r * part + _place(first, second, keys[r], part), first, second, check, once, primes)


@inlined
def _is_copies(table: Any, cell: Any, first: Any, second: Any, check: Any, count: Any, primes: Any) -> Any:
    """Whether a cell's counts and checks are those of `count` copies of this ID."""
    good = True
    for lane in range(primes.shape[0]):
        value = ((check >> (np.uint64(lane) * _S21)) & _MASK) % primes[lane]
        good &= table[cell, 4 * lane] == count
        good &= table[cell, 4 * lane + 3] == count * value % primes[lane]
    return good


@compiled(
    "int64(uint32[:, ::1], uint64[::1], int64, uint64[::1], uint64[:, ::1], uint64[:, ::1], int64[::1], int64[::1],"
    " uint8[::1])"
)
def peel_ids(
    table: Any, keys: Any, part: int, primes: Any, inverses: Any, ids: Any, copies: Any, stack: Any, waiting: Any
) -> int:
    """Take IDs out of a table as long as a cell holds copies of one only; returns how many different ones were found.

    `inverses[c]` are those of c in every lane: an ID is looked for with up to len(inverses) - 1 copies. Every cell is looked
    at once, and again whenever an ID was taken out of it, so the work is linear; it ends at len(ids) IDs whatever the table.
    """
    waiting[:] = np.uint8(1)
    minus = room((primes.shape[0],), np.uint64)
    for cell in range(3 * part):
        stack[cell] = cell
    top, found = 3 * part, 0
    while top > 0 and found < ids.shape[0]:
        top -= 1
        cell = stack[top]
        waiting[cell] = 0
        count = np.uint64(table[cell, 0])
        if count == np.uint64(0) or count >= np.uint64(inverses.shape[0]):
            continue
        first, second = np.uint64(0), np.uint64(0)
        for lane in range(primes.shape[0]):
            p, shift = primes[lane], np.uint64(lane) * _S21
            inverse = inverses[count, lane]
            first |= (np.uint64(table[cell, 4 * lane + 1]) * inverse % p) << shift
            second |= (np.uint64(table[cell, 4 * lane + 2]) * inverse % p) << shift
        r = cell // part
        if r * part + _place(first, second, keys[r], part) != cell:
            continue
        check = _mix(first, second, keys[3])
        if not _is_copies(table, cell, first, second, check, count, primes):
            continue
        ids[found, 0], ids[found, 1], copies[found] = first, second, np.int64(count)
        found += 1
        for lane in range(primes.shape[0]):
            minus[lane] = primes[lane] - count
        for q in range(3):
            other = q * part + _place(first, second, keys[q], part)
            _change(table, other, first, second, check, minus, primes)
            if waiting[other] == 0:
                waiting[other] = 1
                stack[top] = other
                top += 1
    return found
