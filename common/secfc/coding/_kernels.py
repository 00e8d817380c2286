"""The inner loops on residues and masks, free of the GIL; `_decoding` and `_clusters`
hold those of the server's decoder and of comparing and adding up rows.

Everything here works on plain arrays and trusts its caller: shapes and ranges are checked in the modules that call.
Conventions:

* *packed words*: uint64, three 21-bit residues each, lowest bits first; the top bit is zero.
* *flat residues*: the residues of a block of rows one after the other; position q of the stream belongs to column
  q mod W of its row, where W is the number of residues in a row, so per-column constants come as arrays of length W.
* *lane sums*: shape (3, words), field f of every word, so that adding up many streams is three plain vector sums.
* float64 values are exact integers of magnitude at most 2^53 - 2^20, so that the multiple of p next to one is exact too.
* loops count from 0 over slices: an index like a[first + i] may be negative for all numba knows, and the test for that
  keeps LLVM from vectorising.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from secfc.coding._compiling import compiled, inlined, room
from secfc.coding.kernels import SCAN

_MASK = np.uint64((1 << 21) - 1)
_S1, _S2 = np.uint64(21), np.uint64(42)
_ONES = np.uint64(1 | 1 << 21 | 1 << 42)  # the lowest bit of every field
_CARRIES = np.uint64(1 << 21 | 1 << 42 | 1 << 63)  # where a field that overflows carries to
_TOP = np.uint64(1 << 63)
_ZERO = np.uint64(0)
TILE = 1024  # words checked, then added while they are in the first-level cache


# --- residues ---------------------------------------------------------------------------------------------------


@compiled("void(float64[:, ::1], float64)", "void(float64[:, :], float64)")
def balance(values: Any, p: float) -> None:
    """Reduce exact integers in place to balanced residues, |r| <= (p-1)/2 + 2 <= 2^20."""
    inverse = 1.0 / p
    for i in range(values.shape[0]):
        for j in range(values.shape[1]):
            v = values[i, j]
            values[i, j] = v - np.rint(v * inverse) * p


@compiled("void(float64[:, ::1], float64, uint32[:, ::1], int64)", "void(float64[:, :], float64, uint32[:, :], int64)")
def canonical(values: Any, p: float, out: Any, offset: int) -> None:
    """Write exact integers as residues in [0, p) to columns offset.. of out."""
    inverse = 1.0 / p
    for i in range(values.shape[0]):
        row, target = values[i], out[i, offset : offset + values.shape[1]]
        for j in range(row.shape[0]):
            v = row[j]
            r = v - np.rint(v * inverse) * p
            r = r + p if r < 0.0 else r
            target[j] = np.uint32(np.int32(r))


@compiled("void(uint32[:, :], int64, float64, float64[:, :], boolean)")
def spread(flat: Any, offset: int, p: float, out: Any, add: bool) -> None:
    """Balanced residues of columns offset.. of flat into a float64 matrix, or added to what is there."""
    half = p * 0.5
    inverse = 1.0 / p
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            v = np.float64(np.int32(flat[i, offset + j]))
            v = v - p if v > half else v
            if add:
                v += out[i, j]
                v -= np.rint(v * inverse) * p
            out[i, j] = v


@compiled("void(uint32[::1], uint64[::1])")
def pack(flat: Any, words: Any) -> None:
    """Three residues per word; the last word is filled up with zeros."""
    whole = flat.shape[0] // 3
    for i in range(whole):
        words[i] = np.uint64(flat[3 * i]) | (np.uint64(flat[3 * i + 1]) << _S1) | (np.uint64(flat[3 * i + 2]) << _S2)
    rest = flat.shape[0] - 3 * whole
    if rest > 0:
        word = np.uint64(flat[3 * whole])
        if rest > 1:
            word |= np.uint64(flat[3 * whole + 1]) << _S1
        words[whole] = word


@compiled("void(words, uint32[::1])")
def unpack(words: Any, flat: Any) -> None:
    """The inverse of pack; flat says how many residues there are."""
    whole = flat.shape[0] // 3
    for i in range(whole):
        w = words[i]
        flat[3 * i] = np.uint32(w & _MASK)
        flat[3 * i + 1] = np.uint32((w >> _S1) & _MASK)
        flat[3 * i + 2] = np.uint32((w >> _S2) & _MASK)
    for q in range(3 * whole, flat.shape[0]):
        flat[q] = np.uint32((words[whole] >> np.uint64(21 * (q - 3 * whole))) & _MASK)


@inlined
def _suspicious(words: Any, step: Any) -> Any:
    """Non-zero bits at _CARRIES if some field may be >= 2^21 - δ, where step = δ·_ONES; the top bit also if it is set.

    Adding δ to every field at once makes such a field carry into the next; carries are what a sum has besides the XOR.
    """
    carried = _ZERO
    top = _ZERO
    for i in range(words.shape[0]):
        w = words[i]
        carried |= (w + step) ^ w ^ step
        top |= w
    return (carried & _CARRIES) | (top & _TOP)


@inlined
def _invalid(words: Any, first: int, end: int, start: int, primes: Any) -> Any:
    """Position of the first field in words first..end that is not below its prime (or top bit set), or -1."""
    width = primes.shape[0]
    for i in range(first, end):
        w = words[i]
        column = (start + 3 * i) % width
        for f in range(3):
            field = (w >> _S2) if f == 2 else (w >> np.uint64(21 * f)) & _MASK
            if field >= np.uint64(primes[column]):
                return 3 * i + f
            column = column + 1 if column + 1 < width else 0
    return -1


@compiled("int64(words, int64, uint32[::1], uint32)")
def first_invalid(words: Any, start: int, primes: Any, ceiling: int) -> Any:
    """Position, counted from the words' first field, of a residue >= its prime or of a set top bit; or -1.

    `ceiling`, the least prime, sorts out nearly all blocks of words at the speed of memory.
    """
    step = (_MASK + np.uint64(1) - np.uint64(ceiling)) * _ONES
    n = words.shape[0]
    for first in range(0, n, SCAN):
        end = min(first + SCAN, n)
        if _suspicious(words[first:end], step):
            found = _invalid(words, first, end, start, primes)
            if found >= 0:
                return found
    return -1


# --- random residues and masks ------------------------------------------------------------------------------------


@compiled("int64(uint64[:, ::1], int64[::1], uint32, int32[:, ::1], int64[::1])")
def sum_streams(words: Any, signs: Any, ceiling: int, out: Any, flagged: Any) -> int:
    """The signed sums of the three fields of the first random words of every stream (a row each, sign 1 or -1).

    Notes stream · words.shape[1] + first word of the SCAN-blocks with a field >= ceiling, and returns how many. The top
    bit of a random word is random and is no part of a field. 1024 streams fit.
    """
    step = (_MASK + np.uint64(1) - np.uint64(ceiling)) * _ONES
    found = 0
    count = out.shape[1]
    sums = room((3, SCAN), np.int64)
    for first in range(0, count, SCAN):
        n = min(SCAN, count - first)
        sums[:] = 0
        a, b, c = sums[0], sums[1], sums[2]
        for stream in range(words.shape[0]):
            part = words[stream, first : first + n]
            carried = _ZERO
            if signs[stream] > 0:
                for i in range(n):
                    w = part[i]
                    carried |= (w + step) ^ w ^ step
                    a[i] += np.int64(w & _MASK)
                    b[i] += np.int64((w >> _S1) & _MASK)
                    c[i] += np.int64((w >> _S2) & _MASK)
            else:
                for i in range(n):
                    w = part[i]
                    carried |= (w + step) ^ w ^ step
                    a[i] -= np.int64(w & _MASK)
                    b[i] -= np.int64((w >> _S1) & _MASK)
                    c[i] -= np.int64((w >> _S2) & _MASK)
            if carried & _CARRIES:
                flagged[found] = stream * words.shape[1] + first
                found += 1
        x, y, z = out[0, first : first + n], out[1, first : first + n], out[2, first : first + n]
        for i in range(n):
            x[i] = np.int32(a[i])
            y[i] = np.int32(b[i])
            z[i] = np.int32(c[i])
    return found


@compiled("int64(uint64[:, ::1], int64, int64[::1], int64, uint32[::1], int64[:, ::1])")
def rejected(words: Any, count: int, flagged: Any, start: int, primes: Any, out: Any) -> Any:
    """(stream, position) of the candidates within the flagged SCAN-blocks that are not below their prime."""
    width = primes.shape[0]
    found = 0
    for b in range(flagged.shape[0]):
        stream, first = divmod(flagged[b], words.shape[1])
        for i in range(first, min(first + SCAN, count)):
            for f in range(3):
                q = 3 * i + f
                if ((words[stream, i] >> np.uint64(21 * f)) & _MASK) >= np.uint64(primes[(start + q) % width]):
                    out[found, 0] = stream
                    out[found, 1] = q
                    found += 1
    return found


@compiled("void(int32[:, ::1], uint32[:, ::1], float64[::1], int32[::1])")
def add_masks(sums: Any, flat: Any, primes: Any, scratch: Any) -> None:
    """flat[q] <- (flat[q] + sums[q mod 3, q div 3]) mod its prime, in place, for whole rows; primes of the columns."""
    rows, width = flat.shape
    n = rows * width
    sums0, sums1, sums2 = sums[0], sums[1], sums[2]
    for i in range(n // 3):
        scratch[3 * i] = sums0[i]
        scratch[3 * i + 1] = sums1[i]
        scratch[3 * i + 2] = sums2[i]
    if n % 3 > 0:
        scratch[n // 3 * 3] = sums0[n // 3]
    if n % 3 > 1:
        scratch[n // 3 * 3 + 1] = sums1[n // 3]
    inverses = room((width,), np.float64)
    for j in range(width):
        inverses[j] = 1.0 / primes[j]
    for i in range(rows):
        mask, row = scratch[i * width : (i + 1) * width], flat[i]
        for j in range(width):
            v = np.float64(mask[j]) + np.float64(np.int32(row[j]))
            r = v - np.rint(v * inverses[j]) * primes[j]
            r = r + primes[j] if r < 0.0 else r
            row[j] = np.uint32(np.int32(r))


@compiled("int64(words, int64, uint32[::1], uint32, uint32[::1], uint32[::1], uint32[::1])")
def add_words(words: Any, start: int, primes: Any, ceiling: int, sums0: Any, sums1: Any, sums2: Any) -> Any:
    """Add the fields of packed words to lane sums; 2047 uploads fit. Or, like first_invalid, name a residue that is not
    below its prime and leave the sums as they were: what was added is taken off again."""
    step = (_MASK + np.uint64(1) - np.uint64(ceiling)) * _ONES
    n = words.shape[0]
    for first in range(0, n, TILE):
        end = min(first + TILE, n)
        if _suspicious(words[first:end], step):
            found = _invalid(words, first, end, start, primes)
            if found >= 0:
                for i in range(first):
                    w = words[i]
                    sums0[i] -= np.uint32(w & _MASK)
                    sums1[i] -= np.uint32((w >> _S1) & _MASK)
                    sums2[i] -= np.uint32(w >> _S2)
                return found
        part, a, b, c = words[first:end], sums0[first:end], sums1[first:end], sums2[first:end]
        for i in range(part.shape[0]):
            w = part[i]
            a[i] += np.uint32(w & _MASK)
            b[i] += np.uint32((w >> _S1) & _MASK)
            c[i] += np.uint32(w >> _S2)
    return -1
