"""The inner loops, compiled by numba, cached on disk, and free of the GIL.

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

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np

from secfc.coding import kernels

_F = TypeVar("_F", bound=Callable[..., Any])

_MASK = np.uint64((1 << 21) - 1)
_S1, _S2, _S63 = np.uint64(21), np.uint64(42), np.uint64(63)
_ONES = np.uint64(1 | 1 << 21 | 1 << 42)  # the lowest bit of every field
_CARRIES = np.uint64(1 << 21 | 1 << 42 | 1 << 63)  # where a field that overflows carries to
_TOP = np.uint64(1 << 63)
_ZERO, _FULL, _S32 = np.uint64(0), np.uint64(0xFFFFFFFF), np.uint64(32)
TILE = 1024  # words checked, then added while they are in the first-level cache
SCAN = 256  # words looked at together when searching for the rare candidate that must be rejected
# Two quotients closer than this, relatively, are compared in integers: far above the rounding of at most
# 2·lanes + 4 float64 operations, far below anything frequent.
_NEAR = 2.0**-40
_NEAR_STEPS = 1 << 13  # at least as far, counted in neighbouring float64 values


# What only reads words also takes those of a received message, which Python holds read-only.
_NAMES = {"words": numba.types.Array(numba.uint64, 1, "C", readonly=True)} | vars(numba.types)


def _compiled(*signatures: str) -> Callable[[_F], _F]:
    """Compiled for these types; of several that fit, the one for contiguous arrays is taken."""
    names: dict[str, Any] = {"__builtins__": {}}
    typed = [eval(text, names, _NAMES) for text in signatures]  # noqa: S307 - literals of this file, in numba's own notation
    return cast("Callable[[_F], _F]", numba.njit(typed, nogil=True, cache=kernels.kept, boundscheck=False))


_inlined = cast("Callable[[_F], _F]", numba.njit(nogil=True, cache=kernels.kept, inline="always"))


# --- residues ---------------------------------------------------------------------------------------------------


@_compiled("void(float64[:, ::1], float64)", "void(float64[:, :], float64)")
def balance(values: Any, p: float) -> None:
    """Reduce exact integers in place to balanced residues, |r| <= (p-1)/2 + 2 <= 2^20."""
    inverse = 1.0 / p
    for i in range(values.shape[0]):
        for j in range(values.shape[1]):
            v = values[i, j]
            values[i, j] = v - np.rint(v * inverse) * p


@_compiled("void(float64[:, ::1], float64, uint32[:, ::1], int64)", "void(float64[:, :], float64, uint32[:, :], int64)")
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


@_compiled("void(uint32[:, :], int64, float64, float64[:, :], boolean)")
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


@_compiled("void(uint32[::1], uint64[::1])")
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


@_compiled("void(words, uint32[::1])")
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


@_inlined
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


@_inlined
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


@_compiled("int64(words, int64, uint32[::1], uint32)")
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


@_compiled("int64(uint64[:, ::1], int64[::1], uint32, int32[:, ::1], int64[::1])")
def sum_streams(words: Any, signs: Any, ceiling: int, out: Any, flagged: Any) -> int:
    """The signed sums of the three fields of the first random words of every stream (a row each, sign 1 or -1).

    Notes stream · words.shape[1] + first word of the SCAN-blocks with a field >= ceiling, and returns how many. The top
    bit of a random word is random and is no part of a field. 1024 streams fit.
    """
    step = (_MASK + np.uint64(1) - np.uint64(ceiling)) * _ONES
    found = 0
    count = out.shape[1]
    sums = np.empty((3, SCAN), np.int64)
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


@_compiled("int64(uint64[:, ::1], int64, int64[::1], int64, uint32[::1], int64[:, ::1])")
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


@_compiled("void(int32[:, ::1], uint32[:, ::1], float64[::1], int32[::1])")
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
    inverses = 1.0 / primes
    for i in range(rows):
        mask, row = scratch[i * width : (i + 1) * width], flat[i]
        for j in range(width):
            v = np.float64(mask[j]) + np.float64(np.int32(row[j]))
            r = v - np.rint(v * inverses[j]) * primes[j]
            r = r + primes[j] if r < 0.0 else r
            row[j] = np.uint32(np.int32(r))


# --- decoding -----------------------------------------------------------------------------------------------------


@_compiled("int64(words, int64, uint32[::1], uint32, uint32[::1], uint32[::1], uint32[::1])")
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


@_compiled("void(uint32[::1], float64[::1], int64, float64[::1])")
def add_weighted(flat: Any, weights: Any, start: int, sums: Any) -> None:
    """sums[q] += weight of q's column · flat[q]."""
    width = weights.shape[0]
    q, column = 0, start % width
    while q < flat.shape[0]:
        run = min(width - column, flat.shape[0] - q)
        part, factor, total = flat[q : q + run], weights[column : column + run], sums[q : q + run]
        for j in range(run):
            total[j] += factor[j] * np.float64(np.int32(part[j]))
        q += run
        column = 0


@_inlined
def _rebalance(sums: Any, primes: Any, inverses: Any) -> None:
    for c in range(sums.shape[0]):
        row = sums[c]
        for j in range(row.shape[0]):
            row[j] = row[j] - np.rint(row[j] * inverses[j]) * primes[j]


@_compiled("void(uint32[::1], int64, float64[:, ::1], float64[::1], float64[:, ::1])")
def combine(flat: Any, start: int, factors: Any, primes: Any, sums: Any) -> None:
    """sums[c, column of q] += factors[row of q, c] · flat[q] for c = 0, 1, 2; balanced mod the columns' primes.

    A product is below 2^41, so 2^11 rows can be added before the sums are balanced. Four whole rows at a time: the sums
    are then read and written once for them.
    """
    width = primes.shape[0]
    inverses = 1.0 / primes
    a, b, c = sums[0], sums[1], sums[2]
    q, row, column, added = 0, start // width, start % width, 0
    while q < flat.shape[0]:
        if column == 0 and flat.shape[0] - q >= 4 * width:
            one, two = flat[q : q + width], flat[q + width : q + 2 * width]
            three, four = flat[q + 2 * width : q + 3 * width], flat[q + 3 * width : q + 4 * width]
            f, g, h, i = factors[row], factors[row + 1], factors[row + 2], factors[row + 3]
            f0, f1, f2, g0, g1, g2 = f[0], f[1], f[2], g[0], g[1], g[2]
            h0, h1, h2, i0, i1, i2 = h[0], h[1], h[2], i[0], i[1], i[2]
            for j in range(width):
                u, v = np.float64(np.int32(one[j])), np.float64(np.int32(two[j]))
                w, x = np.float64(np.int32(three[j])), np.float64(np.int32(four[j]))
                a[j] += f0 * u + g0 * v + h0 * w + i0 * x
                b[j] += f1 * u + g1 * v + h1 * w + i1 * x
                c[j] += f2 * u + g2 * v + h2 * w + i2 * x
            q, row, added = q + 4 * width, row + 4, added + 4
        else:
            run = min(width - column, flat.shape[0] - q)
            part, f0, f1, f2 = flat[q : q + run], factors[row, 0], factors[row, 1], factors[row, 2]
            x0, x1, x2 = a[column : column + run], b[column : column + run], c[column : column + run]
            for j in range(run):
                u = np.float64(np.int32(part[j]))
                x0[j] += f0 * u
                x1[j] += f1 * u
                x2[j] += f2 * u
            q, row, column, added = q + run, row + 1, 0, added + 1
        if added >= 1 << 11:
            _rebalance(sums, primes, inverses)
            added = 0
    _rebalance(sums, primes, inverses)


@_compiled("void(uint32[::1], uint32[::1], uint32[::1], float64[::1])")
def interleave(sums0: Any, sums1: Any, sums2: Any, flat: Any) -> None:
    """Lane sums to flat order."""
    whole = flat.shape[0] // 3
    for i in range(whole):
        flat[3 * i] = np.float64(sums0[i])
        flat[3 * i + 1] = np.float64(sums1[i])
        flat[3 * i + 2] = np.float64(sums2[i])
    if flat.shape[0] > 3 * whole:
        flat[3 * whole] = np.float64(sums0[whole])
    if flat.shape[0] > 3 * whole + 1:
        flat[3 * whole + 1] = np.float64(sums1[whole])


@_inlined
def _digit(value: Any, p: Any, inverse: Any) -> Any:
    r = value - np.rint(value * inverse) * p
    return r + p if r < 0.0 else r


@_compiled("void(float64[:, ::1], float64[::1], float64[:, ::1], int64, uint32[:, :, ::1], int64)")
def mixed_radix3(flat: Any, primes: Any, inverses: Any, column: int, digits: Any, row: int) -> None:
    """mixed_radix for three lanes of the same consecutive columns, the usual case: all in registers."""
    width = flat.shape[1] // 3
    p0, p1, p2 = primes[0], primes[1], primes[2]
    i0, i1, i2 = 1.0 / p0, 1.0 / p1, 1.0 / p2
    f01, f02, f12 = inverses[0, 1], inverses[0, 2], inverses[1, 2]
    for i in range(flat.shape[0]):
        v0, v1, v2 = flat[i, :width], flat[i, width : 2 * width], flat[i, 2 * width :]
        d0 = digits[0, row + i, column : column + width]
        d1 = digits[1, row + i, column : column + width]
        d2 = digits[2, row + i, column : column + width]
        for c in range(width):
            a = _digit(v0[c], p0, i0)
            b = (v1[c] - np.rint(v1[c] * i1) * p1 - a) * f01
            b = _digit(b, p1, i1)
            e = (v2[c] - np.rint(v2[c] * i2) * p2 - a) * f02
            e = (e - np.rint(e * i2) * p2 - b) * f12
            e = _digit(e, p2, i2)
            d0[c] = np.uint32(np.int32(a))
            d1[c] = np.uint32(np.int32(b))
            d2[c] = np.uint32(np.int32(e))


@_compiled("void(float64[:, ::1], int64[::1], float64[::1], float64[:, ::1], int64[::1], uint32[:, :, ::1], int64)")
def mixed_radix(flat: Any, widths: Any, primes: Any, inverses: Any, columns: Any, digits: Any, row: int) -> None:
    """Garner's algorithm: residue sums of a block of rows, from `row`, to digits c with v = c0 + p0·(c1 + p1·(c2 + …)).

    Lane a holds the first widths[a] of `columns`; digits of lanes a column does not have are zero. A few rows at a time,
    lane by lane, so that every loop runs over many values in the first-level cache.
    """
    lanes = primes.shape[0]
    most = columns.shape[0]
    tile = max(1024 // max(most * lanes, 1), 1)
    work = np.zeros((lanes, tile * most))
    together = True
    for c in range(1, most):
        together &= columns[c] == columns[0] + c
    if together and lanes == 3 and widths[2] == most:
        mixed_radix3(flat, primes, inverses, columns[0], digits, row)
        return
    for first in range(0, flat.shape[0], tile):
        rows = min(tile, flat.shape[0] - first)
        n = rows * most
        offset = 0
        for a in range(lanes):
            p = primes[a]
            inverse = 1.0 / p
            mine = work[a]
            for i in range(rows):
                source, target = flat[first + i, offset : offset + widths[a]], mine[i * most : (i + 1) * most]
                for c in range(source.shape[0]):
                    target[c] = source[c] - np.rint(source[c] * inverse) * p
            for b in range(a):
                factor = inverses[b, a]
                other = work[b]
                for j in range(n):
                    v = (mine[j] - other[j]) * factor
                    mine[j] = v - np.rint(v * inverse) * p
            for j in range(n):
                mine[j] = mine[j] + p if mine[j] < 0.0 else mine[j]
            offset += widths[a]
        for a in range(lanes):
            mine = work[a]
            for i in range(rows):
                source, target = mine[i * most : i * most + widths[a]], digits[a, row + first + i]
                if together:
                    target = target[columns[0] : columns[0] + most]
                    for c in range(source.shape[0]):
                        target[c] = np.uint32(np.int32(source[c]))
                    for c in range(source.shape[0], most):
                        target[c] = np.uint32(0)
                else:
                    for c in range(source.shape[0]):
                        target[columns[c]] = np.uint32(np.int32(source[c]))
                    for c in range(source.shape[0], most):
                        target[columns[c]] = np.uint32(0)


# --- exact comparison of quotients d'/|S|² ------------------------------------------------------------------------


@_inlined
def _approximate(digits: Any, i: int, h: int, primes: Any) -> Any:
    lanes = primes.shape[0]
    value = np.float64(digits[lanes - 1, i, h])
    for a in range(lanes - 2, -1, -1):
        value = value * primes[a] + np.float64(digits[a, i, h])
    return value


@_compiled("void(uint32[:, :, ::1], int64, int64, float64[::1], int64, int64, uint64[::1])")
def _scaled(digits: Any, i: int, h: int, primes: Any, size: int, factor: int, limbs: Any) -> None:
    """limbs <- factor · size² · d'(i, h), base 2^32, least first."""
    lanes = primes.shape[0]
    limbs[:] = _ZERO
    for step in range(lanes + 3):
        carry = _ZERO
        times = np.uint64(1)
        if step < lanes:
            a = lanes - 1 - step
            times = np.uint64(primes[a])
            carry = np.uint64(digits[a, i, h])
        elif step < lanes + 2:
            times = np.uint64(size)
        else:
            times = np.uint64(factor)
        for j in range(limbs.shape[0]):
            product = limbs[j] * times + carry
            limbs[j] = product & _FULL
            carry = product >> _S32


@_inlined
def _compare(a: Any, b: Any) -> Any:
    for j in range(a.shape[0] - 1, -1, -1):
        if a[j] != b[j]:
            return -1 if a[j] < b[j] else 1
    return 0


@_inlined
def _exactly_nearest(digits: Any, i: int, primes: Any, sizes: Any, ratio: Any, one: Any, two: Any) -> Any:
    """The least of the clusters whose approximate ratios are nearly the least, in integers."""
    best = 0
    for h in range(sizes.shape[0]):
        if ratio[h] < ratio[best]:
            best = h
    least = ratio[best]
    edge = least + least * _NEAR
    for h in range(sizes.shape[0]):
        if h != best and ratio[h] <= edge:
            if least == 0.0:  # digits are exact: zero is zero
                best = min(best, h)
                continue
            _scaled(digits, i, h, primes, sizes[best], 1, one)
            _scaled(digits, i, best, primes, sizes[h], 1, two)
            order = _compare(one, two)
            if order < 0 or (order == 0 and h < best):
                best = h
    return best


@_compiled("void(uint32[:, :, ::1], float64[::1], int64[::1], int64, int64, int64, int32[::1])")
def nearest(digits: Any, primes: Any, sizes: Any, limbs: int, first: int, end: int, labels: Any) -> None:
    """labels[i] <- the non-empty cluster with the least d'/|S|², exactly, for rows first..end; ties to the lowest index."""
    k = sizes.shape[0]
    lanes = primes.shape[0]
    tile = max(512 // k, 1)
    one = np.empty(limbs, np.uint64)
    two = np.empty(limbs, np.uint64)
    scale = np.empty((tile, k))
    bias = np.empty((tile, k))  # no row is near to an empty cluster
    for h in range(k):
        scale[:, h] = 1.0 / (np.float64(sizes[h]) * np.float64(sizes[h])) if sizes[h] > 0 else 0.0
        bias[:, h] = 0.0 if sizes[h] > 0 else np.inf
    scale, bias = scale.reshape(-1), bias.reshape(-1)
    ratios = np.empty(tile * k)
    orders = ratios.view(np.int64)  # the bits of non-negative numbers are ordered like them, and integers vectorise
    for row in range(first, end, tile):
        rows = min(tile, end - row)
        for a in range(lanes - 1, -1, -1):
            digit = digits[a, row : row + rows].reshape(-1)
            p = primes[a]
            if a == lanes - 1:
                for j in range(rows * k):
                    ratios[j] = np.float64(np.int32(digit[j]))
            else:
                for j in range(rows * k):
                    ratios[j] = ratios[j] * p + np.float64(np.int32(digit[j]))
        for j in range(rows * k):
            ratios[j] = ratios[j] * scale[j] + bias[j]
        for i in range(rows):
            order = orders[i * k : (i + 1) * k]
            least = order[0]
            for h in range(k):
                least = min(least, order[h])
            near, best = 0, 0
            for h in range(k):
                hit = order[h] <= least + _NEAR_STEPS
                near += hit
                best += h * hit
            if near > 1:  # so best is a sum of several
                best = _exactly_nearest(digits, row + i, primes, sizes, ratios[i * k : (i + 1) * k], one, two)
            labels[row + i] = best


@_compiled("int64(uint32[:, :, ::1], float64[::1], int64[::1], int64, int32[::1], boolean[::1])")
def furthest(digits: Any, primes: Any, sizes: Any, limbs: int, labels: Any, movable: Any) -> int:
    """The movable row with the largest d'/|S|² to its cluster, exactly; ties go to the lowest row; -1 if none may move."""
    one = np.empty(limbs, np.uint64)
    two = np.empty(limbs, np.uint64)
    best, most = -1, -1.0
    for i in range(labels.shape[0]):
        if not movable[i]:
            continue
        h = labels[i]
        size = np.float64(sizes[h])
        value = _approximate(digits, i, h, primes) / (size * size)
        if best >= 0 and value < most - most * _NEAR:
            continue
        if best >= 0 and value <= most + most * _NEAR:
            g = labels[best]
            _scaled(digits, i, h, primes, sizes[g], 1, one)
            _scaled(digits, best, g, primes, sizes[h], 1, two)
            if _compare(one, two) <= 0:
                continue
        best, most = i, value
    return best


@_compiled("void(uint32[:, :, ::1], float64[::1], int64[::1], int64, int32[::1], boolean[::1])")
def separated(digits: Any, primes: Any, sizes: Any, limbs: int, labels: Any, out: Any) -> None:
    """out[i] <- whether 9·d(i, labels[i]) <= d(i, s) for every other non-empty cluster s, exactly (d squared)."""
    one = np.empty(limbs, np.uint64)
    two = np.empty(limbs, np.uint64)
    for i in range(labels.shape[0]):
        h = labels[i]
        mine = 9.0 * _approximate(digits, i, h, primes) / (np.float64(sizes[h]) * np.float64(sizes[h]))
        fits = True
        for s in range(sizes.shape[0]):
            if s == h or sizes[s] == 0:
                continue
            other = _approximate(digits, i, s, primes) / (np.float64(sizes[s]) * np.float64(sizes[s]))
            if mine > other + other * _NEAR:
                fits = False
            elif mine > other - other * _NEAR:
                _scaled(digits, i, h, primes, sizes[s], 9, one)
                _scaled(digits, i, s, primes, sizes[h], 1, two)
                fits = _compare(one, two) <= 0
            if not fits:
                break
        out[i] = fits


@_compiled("void(uint32[:, :, ::1], int32[::1], int64, int64, int64[:, ::1])")
def sum_digits(digits: Any, labels: Any, first: int, end: int, totals: Any) -> None:
    """totals[a, h] += the sum of digit a of d'(i, h) over the rows in first..end with label h; below 2^52."""
    for a in range(digits.shape[0]):
        for i in range(first, end):
            totals[a, labels[i]] += np.int64(digits[a, i, labels[i]])


# --- shares ---------------------------------------------------------------------------------------------------------


@_compiled("void(float64[:, ::1], int64[::1], int64[::1], int64, int64, float64[:, ::1])")
def coefficients(sums: Any, sizes: Any, columns: Any, p: int, weight: int, out: Any) -> None:
    """out (s+2, ≥ columns) <- weight · (−2c·μ, c², ‖μ‖²) of each column, balanced mod p; the columns beyond are zero."""
    length = sums.shape[1]
    half = p // 2
    out[:] = 0.0
    for j in range(columns.shape[0]):
        size = sizes[columns[j]] % p
        factor = -2 * size * weight % p
        norm = 0
        for s in range(length):
            centre = np.int64(sums[columns[j], s]) % p
            norm = (norm + centre * centre) % p  # type: ignore[assignment] # numba has one kind of integer here
            value = centre * factor % p
            out[s, j] = value - p if value > half else value
        value = size * size % p * weight % p
        out[length, j] = value - p if value > half else value
        value = norm * weight % p
        out[length + 1, j] = value - p if value > half else value


@_compiled("void(float64[:, ::1], int64[::1], int64[::1], int64[::1], float64[:, ::1])")
def move_rows(shares: Any, rows: Any, source: Any, target: Any, sums: Any) -> None:
    """Take each row out of the sum of its old cluster and into that of its new one; -1 is no cluster."""
    width = sums.shape[1]
    for r in range(rows.shape[0]):
        i, old, new = rows[r], source[r], target[r]
        if old >= 0:
            for j in range(width):
                sums[old, j] -= shares[i, j]
        if new >= 0:
            for j in range(width):
                sums[new, j] += shares[i, j]
