"""Inner loops of decoding: weighted sums of uploads, and residues to mixed-radix digits. Conventions as in `_kernels`."""

from __future__ import annotations

from typing import Any

import numpy as np

from secfc.coding._compiling import compiled, inlined, room


@compiled("void(uint32[::1], float64[::1], int64, float64[::1])")
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


@inlined
def _rebalance(sums: Any, primes: Any, inverses: Any) -> None:
    for c in range(sums.shape[0]):
        row = sums[c]
        for j in range(row.shape[0]):
            row[j] = row[j] - np.rint(row[j] * inverses[j]) * primes[j]


@compiled("void(uint32[::1], int64, float64[:, ::1], float64[::1], float64[:, ::1])")
def combine(flat: Any, start: int, factors: Any, primes: Any, sums: Any) -> None:
    """sums[c, column of q] += factors[row of q, c] · flat[q] for c = 0, 1, 2; balanced mod the columns' primes.

    A product is below 2^41, so 2^11 rows can be added before the sums are balanced. Four whole rows at a time: the sums
    are then read and written once for them.
    """
    width = primes.shape[0]
    inverses = room((width,), np.float64)
    for j in range(width):
        inverses[j] = 1.0 / primes[j]
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


@compiled("void(uint32[::1], uint32[::1], uint32[::1], float64[::1])")
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


@inlined
def _digit(value: Any, p: Any, inverse: Any) -> Any:
    r = value - np.rint(value * inverse) * p
    return r + p if r < 0.0 else r


@compiled("void(float64[:, ::1], float64[::1], float64[:, ::1], int64, uint32[:, :, ::1], int64)")
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


@compiled("void(float64[:, ::1], int64[::1], float64[::1], float64[:, ::1], int64[::1], uint32[:, :, ::1], int64)")
def mixed_radix(flat: Any, widths: Any, primes: Any, inverses: Any, columns: Any, digits: Any, row: int) -> None:
    """Garner's algorithm: residue sums of a block of rows, from `row`, to digits c with v = c0 + p0·(c1 + p1·(c2 + …)).

    Lane a holds the first widths[a] of `columns`; digits of lanes a column does not have are zero. A few rows at a time,
    lane by lane, so that every loop runs over many values in the first-level cache.
    """
    lanes = primes.shape[0]
    most = columns.shape[0]
    tile = max(1024 // max(most * lanes, 1), 1)
    work = room((lanes, tile * most), np.float64)
    work[:] = 0.0
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
