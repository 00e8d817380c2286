"""Inner loops over single pairs of a row and a column, where not all of them are wanted. Conventions as in `_kernels`."""

from __future__ import annotations

from typing import Any

import numpy as np

from secfc.coding._compiling import compiled, reordered, room


@reordered
def _dot(x: Any, f: Any) -> Any:
    """Exact in any order: every partial sum is an integer of magnitude at most 2^53."""
    total = 0.0
    for j in range(f.shape[0]):
        total += x[j] * f[j]
    return total


@compiled(
    "void(float64[:, ::1], int32[::1], int32[::1], int64, int64, float64[:, ::1], float64, uint32[:, ::1], int64)"
)
def product_of_pairs(
    x: Any, rows: Any, places: Any, first: int, end: int, f: Any, p: float, out: Any, lane: int
) -> None:
    """out[q − first, lane] <- x[rows[q]] · f[places[q]] mod p, in [0, p), for pairs first..end.

    Pre-condition: x has 1 to 8192 columns, as f has.
    """
    inverse = 1.0 / p
    for q in range(end - first):
        v = _dot(x[rows[first + q]], f[places[first + q]])
        r = v - np.rint(v * inverse) * p
        r = r + p if r < 0.0 else r
        out[q, lane] = np.uint32(np.int32(r))


@compiled("void(float64[:, ::1], float64[::1], float64[:, ::1], int32[::1], int32[::1], uint32[:, :, ::1])")
def mixed_radix_pairs(flat: Any, primes: Any, inverses: Any, rows: Any, columns: Any, digits: Any) -> None:
    """`mixed_radix` for pairs: their residue sums, a pair in a row of flat, to their digits; digits of lanes that they do not
    have are zero."""
    have, lanes = flat.shape[1], primes.shape[0]
    work = room((16,), np.float64)
    for q in range(flat.shape[0]):
        row, column = rows[q], columns[q]
        for a in range(have):
            p = primes[a]
            inverse = 1.0 / p
            v = flat[q, a]
            v = v - np.rint(v * inverse) * p
            for b in range(a):
                v = (v - work[b]) * inverses[b, a]
                v = v - np.rint(v * inverse) * p
            v = v + p if v < 0.0 else v
            work[a] = v
            digits[a, row, column] = np.uint32(np.int32(v))
        for a in range(have, lanes):
            digits[a, row, column] = np.uint32(0)
