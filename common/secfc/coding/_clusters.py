"""Inner loops over rows and their clusters: quotients compared exactly, shares added up. Conventions as in `_kernels`."""

from __future__ import annotations

from typing import Any

import numpy as np

from secfc.coding._compiling import compiled, flattened, inlined, room

_ZERO, _FULL, _S32 = np.uint64(0), np.uint64(0xFFFFFFFF), np.uint64(32)
# Two quotients closer than this, relatively, are compared in integers: far above the rounding of at most
# 2·lanes + 4 float64 operations, far below anything frequent.
_NEAR = 2.0**-40
_NEAR_STEPS = 1 << 13  # at least as far, counted in neighbouring float64 values


# --- exact comparison of quotients d'/|S|² ------------------------------------------------------------------------


@inlined
def _approximate(digits: Any, i: int, h: int, primes: Any) -> Any:
    lanes = primes.shape[0]
    value = np.float64(digits[lanes - 1, i, h])
    for a in range(lanes - 2, -1, -1):
        value = value * primes[a] + np.float64(digits[a, i, h])
    return value


@compiled("void(uint32[:, :, ::1], int64, int64, float64[::1], int64, int64, uint64[::1])")
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


@inlined
def _compare(a: Any, b: Any) -> Any:
    for j in range(a.shape[0] - 1, -1, -1):
        if a[j] != b[j]:
            return -1 if a[j] < b[j] else 1
    return 0


@inlined
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


@compiled("void(uint32[:, :, ::1], float64[::1], int64[::1], int64, int64, int64, int32[::1])")
def nearest(digits: Any, primes: Any, sizes: Any, limbs: int, first: int, end: int, labels: Any) -> None:
    """labels[i] <- the non-empty cluster with the least d'/|S|², exactly, for rows first..end; ties to the lowest index."""
    k = sizes.shape[0]
    lanes = primes.shape[0]
    tile = max(512 // k, 1)
    one = room((limbs,), np.uint64)
    two = room((limbs,), np.uint64)
    scale = room((tile, k), np.float64)
    bias = room((tile, k), np.float64)  # no row is near to an empty cluster
    for h in range(k):
        scale[:, h] = 1.0 / (np.float64(sizes[h]) * np.float64(sizes[h])) if sizes[h] > 0 else 0.0
        bias[:, h] = 0.0 if sizes[h] > 0 else np.inf
    scale, bias = flattened(scale), flattened(bias)
    ratios = room((tile * k,), np.float64)
    orders = ratios.view(np.int64)  # the bits of non-negative numbers are ordered like them, and integers vectorise
    for row in range(first, end, tile):
        rows = min(tile, end - row)
        for a in range(lanes - 1, -1, -1):
            digit = flattened(digits[a, row : row + rows])
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


@compiled("int64(uint32[:, :, ::1], float64[::1], int64[::1], int64, int32[::1], boolean[::1])")
def furthest(digits: Any, primes: Any, sizes: Any, limbs: int, labels: Any, movable: Any) -> int:
    """The movable row with the largest d'/|S|² to its cluster, exactly; ties go to the lowest row; -1 if none may move."""
    one = room((limbs,), np.uint64)
    two = room((limbs,), np.uint64)
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


@compiled("void(uint32[:, :, ::1], float64[::1], int64[::1], int64, int32[::1], boolean[::1])")
def separated(digits: Any, primes: Any, sizes: Any, limbs: int, labels: Any, out: Any) -> None:
    """out[i] <- whether 9·d(i, labels[i]) <= d(i, s) for every other non-empty cluster s, exactly (d squared)."""
    one = room((limbs,), np.uint64)
    two = room((limbs,), np.uint64)
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


@compiled("void(uint32[:, :, ::1], int32[::1], int64, int64, int64[:, ::1])")
def sum_digits(digits: Any, labels: Any, first: int, end: int, totals: Any) -> None:
    """totals[a, h] += the sum of digit a of d'(i, h) over the rows in first..end with label h; below 2^52."""
    for a in range(digits.shape[0]):
        for i in range(first, end):
            totals[a, labels[i]] += np.int64(digits[a, i, labels[i]])


# --- shares ---------------------------------------------------------------------------------------------------------


@compiled("void(float64[:, ::1], int64[::1], int64[::1], int64, int64, float64[:, ::1])")
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


@compiled("void(float64[:, ::1], int64[::1], int64[::1], int64[::1], float64[:, ::1])")
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
