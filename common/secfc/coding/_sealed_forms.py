"""Kernels of sealed rounds on residues: which comparisons there are, and the forms E of split values in them.

A list of comparisons is a table (5, N) int32 of *columns* (row, a, b, up, down): clusters a and b of a row are compared, and
the bit [b beats a] counts in test `up`, its opposite in test `down`; -1 is no test (docs/sealed.md, Section 3, ZERO).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from secfc.coding._compiling import compiled, flattened, inlined, room

TILE = 256


# --- lists of comparisons --------------------------------------------------------------------------------------------


@compiled("int64(boolean[:, ::1], int32[::1], int32[:, ::1])")
def list_rivals(rivals: Any, labels: Any, out: Any) -> Any:
    """List every row's own cluster against each of its rivals (n, k), counting rivals that win; returns how many tests."""
    at, test = 0, np.int32(0)
    for i in range(rivals.shape[0]):
        own, before = labels[i], at
        for h in range(rivals.shape[1]):
            if rivals[i, h]:
                higher = h > own
                out[0, at] = i
                out[1, at] = own if higher else h
                out[2, at] = h if higher else own
                out[3, at] = test if higher else -1
                out[4, at] = -1 if higher else test
                at += 1
        test += np.int32(at > before)
    return int(test)


@compiled("void(int32[::1], int32[:, ::1], int32[:, ::1], int32[:, ::1], int64, int32[:, ::1])")
def list_pairs(rows: Any, candidates: Any, tests: Any, pairs: Any, at: int, out: Any) -> None:
    """From column `at` on, list the pairs (places x and y of a row's candidates), counting in the candidates' tests."""
    for n in range(rows.shape[0]):
        for q in range(pairs.shape[0]):
            x, y = pairs[q, 0], pairs[q, 1]
            out[0, at] = rows[n]
            out[1, at], out[2, at] = candidates[n, x], candidates[n, y]
            out[3, at], out[4, at] = tests[n, x], tests[n, y]
            at += 1


@compiled("void(int32[:, ::1], int64[:, ::1], int64[::1])")
def count_lanes(table: Any, lanes: Any, counts: Any) -> None:
    """counts[l] <- how many comparisons of a table take l lanes."""
    counts[:] = 0
    for c in range(table.shape[1]):
        counts[lanes[table[1, c], table[2, c]]] += 1


@compiled("void(int32[:, ::1], int64[:, ::1], int64[::1], int32[:, ::1])")
def sort_by_lanes(table: Any, lanes: Any, starts: Any, out: Any) -> None:
    """Put comparisons of l lanes from column starts[l] on, in the order they had; `starts` is used up."""
    for c in range(table.shape[1]):
        kind = lanes[table[1, c], table[2, c]]
        to = starts[kind]
        starts[kind] = to + 1
        for field in range(5):
            out[field, to] = table[field, c]


# --- digits ----------------------------------------------------------------------------------------------------------


@inlined
def _positive(x: Any, p: Any, inverse: Any) -> Any:
    """x mod p in [0, p) for an exact float64 of magnitude below 2^52."""
    r = x - np.floor(x * inverse) * p
    r = r + p if r < 0.0 else r
    return r - p if r >= p else r


@inlined
def _digits(work: Any, lane: Any, n: Any, p: Any, inverses: Any, target: Any, odd: Any) -> None:
    """Turn v in a lane of `work` into the mixed-radix digits of 2v, given those of the lanes before it (Garner); write them
    and add their parity."""
    mine, inverse = work[lane, :n], 1.0 / p
    for c in range(n):
        mine[c] = _positive(2.0 * mine[c], p, inverse)
    for b in range(lane):
        other, factor = work[b, :n], inverses[b, lane]
        for c in range(n):
            mine[c] = _positive((mine[c] - other[c]) * factor, p, inverse)
    for c in range(n):
        target[c] = np.uint32(np.int32(mine[c]))
    for c in range(n):
        odd[c] ^= np.uint8(target[c] & np.uint32(1))


@compiled(
    "void(uint32[:, :, ::1], int32[::1], int32[::1], int32[::1], float64[:, :, ::1], float64[:, :, ::1],"
    " float64[:, :, ::1], float64[::1], float64[:, ::1], uint32[:, ::1], uint8[::1])"
)
def pair_digits(
    values: Any,
    rows: Any,
    one: Any,
    two: Any,
    left: Any,
    right: Any,
    less: Any,
    primes: Any,
    inverses: Any,
    out: Any,
    parity: Any,
) -> None:
    """Mixed-radix digits and parity of 2·(left[a, b]·v_b − right[a, b]·v_a − less[a, b]) for rows i, a = one, b = two.

    values (rows, k, L) are residues in [0, p); the coefficients of pair (a, b) likewise; inverses balanced (Field.garner).
    Where a comparison's values lie is computed once for all lanes, and unsigned, so that no index may be negative.
    """
    lanes, clusters, width = out.shape[0], values.shape[1], values.shape[2]
    flat, lefts, rights, lesses = flattened(values), flattened(left), flattened(right), flattened(less)
    work = room((lanes, TILE), np.float64)
    at_a, at_b, at_pair = room((TILE,), np.uint32), room((TILE,), np.uint32), room((TILE,), np.uint32)
    for first in range(0, rows.shape[0], TILE):
        n = min(TILE, rows.shape[0] - first)
        i, a, b = rows[first : first + n], one[first : first + n], two[first : first + n]
        for c in range(n):
            at_a[c] = np.uint32((i[c] * clusters + a[c]) * width)
            at_b[c] = np.uint32((i[c] * clusters + b[c]) * width)
            at_pair[c] = np.uint32((a[c] * clusters + b[c]) * width)
        odd = parity[first : first + n]
        odd[:] = np.uint8(0)
        for lane in range(lanes):
            mine, offset = work[lane, :n], np.uint64(lane)
            for c in range(n):
                q = np.uint64(at_pair[c]) + offset
                x = np.float64(np.int32(flat[np.uint64(at_b[c]) + offset])) * lefts[q] - lesses[q]
                mine[c] = x - np.float64(np.int32(flat[np.uint64(at_a[c]) + offset])) * rights[q]
            _digits(work, lane, n, primes[lane], inverses, out[lane, first : first + n], odd)


@compiled("void(uint32[:, ::1], float64[::1], float64[:, ::1], uint32[:, ::1], uint8[::1])")
def value_digits(values: Any, primes: Any, inverses: Any, out: Any, parity: Any) -> None:
    """Mixed-radix digits and parity of 2·v mod Q for residues values (N, l) in [0, p)."""
    lanes = out.shape[0]
    work = room((lanes, TILE), np.float64)
    for first in range(0, values.shape[0], TILE):
        n = min(TILE, values.shape[0] - first)
        odd = parity[first : first + n]
        odd[:] = np.uint8(0)
        for lane in range(lanes):
            mine = work[lane, :n]
            for c in range(n):
                mine[c] = np.float64(values[first + c, lane])
            _digits(work, lane, n, primes[lane], inverses, out[lane, first : first + n], odd)


# --- residues --------------------------------------------------------------------------------------------------------


@compiled("void(float64[:, ::1], int64[::1], int64[::1], float64[::1], int64, uint32[:, :, ::1])")
def keep_negated(sums: Any, columns: Any, lanes: Any, primes: Any, row: int, out: Any) -> None:
    """out[row + i, columns[q], lanes[q]] <- −sums[i, q] mod p: what the server keeps of the uploads' sum."""
    for i in range(sums.shape[0]):
        for q in range(sums.shape[1]):
            out[row + i, columns[q], lanes[q]] = np.uint32(np.int32(_positive(-sums[i, q], primes[q], 1.0 / primes[q])))


@compiled("void(uint32[:, ::1], int64[::1], int64[::1], int64[::1], uint32[:, :, ::1])")
def place(flat: Any, source: Any, columns: Any, lanes: Any, out: Any) -> None:
    """out[i, columns[q], lanes[q]] <- flat[i, source[q]]."""
    for i in range(flat.shape[0]):
        for q in range(source.shape[0]):
            out[i, columns[q], lanes[q]] = flat[i, source[q]]


@compiled("void(uint32[:, ::1], uint8[::1], uint32[:, :, ::1], uint32[:, ::1], uint32[:, ::1], uint64[::1], boolean)")
def select_shares(values: Any, blinds: Any, dealt: Any, pad: Any, out: Any, primes: Any, first: bool) -> None:
    """A member's share of b·x − Y′ (SELECT): out holds its zero-share before and its message after.

    dealt (N, 3, l): shares of g, gρ, (1 − g)ρ; values (N, l): Y_x; `first` is the member that adds constants.
    """
    for i in range(values.shape[0]):
        blind = blinds[i] != 0
        for lane in range(values.shape[1]):
            p = primes[lane]
            y = np.uint64(values[i, lane])
            product = y * np.uint64(dealt[i, 0, lane]) % p
            if blind:
                x = p - product + p - np.uint64(dealt[i, 2, lane])
            else:
                x = product + p - np.uint64(dealt[i, 1, lane])
            if first:
                x += p - np.uint64(pad[i, lane]) + (y if blind else np.uint64(0))
            out[i, lane] = np.uint32((x + np.uint64(out[i, lane])) % p)


@compiled(
    "void(uint32[:, :, ::1], int32[::1], int32[:, ::1], int32[:, ::1], float64[:, :, ::1], float64[:, :, ::1],"
    " float64[:, :, ::1], float64[::1], uint32[:, :, ::1])"
)
def cross_forms(
    values: Any, rows: Any, one: Any, two: Any, left: Any, right: Any, less: Any, primes: Any, out: Any
) -> None:
    """out[n, (x, y), lane] <- left·v_b − right·v_a − less in [0, p) for a = one[n, x], b = two[n, y]; -1 is no cluster: 0."""
    width, lanes = one.shape[1], out.shape[2]
    for n in range(rows.shape[0]):
        i = rows[n]
        for x in range(width):
            a = one[n, x]
            for y in range(width):
                b = two[n, y]
                target = out[n, x * width + y]
                for lane in range(lanes):
                    if a < 0 or b < 0:
                        target[lane] = np.uint32(0)
                        continue
                    p = primes[lane]
                    e = np.float64(values[i, b, lane]) * left[a, b, lane]
                    e -= np.float64(values[i, a, lane]) * right[a, b, lane] + less[a, b, lane]
                    target[lane] = np.uint32(np.int32(_positive(e, p, 1.0 / p)))


@inlined
def _back(place: Any, turn: Any, size: Any) -> Any:
    return place - turn if place >= turn else place - turn + size


@compiled("void(uint32[:, :, ::1], int32[:, ::1], int32[:, ::1], uint32[:, :, :, ::1])")
def turned_masks(forms: Any, places: Any, sizes: Any, out: Any) -> None:
    """out (N, 2, w², l) <- what the server deals to pick E of two groups' winners: the one-hot at its places (j_A, j_B), and
    the matrix of ρ_E(j_A − x, j_B − y) over all turns (x, y). forms (N, w², l); sizes (N, 2) of the groups."""
    width = np.int64(np.sqrt(np.float64(forms.shape[1])) + 0.5)
    for n in range(forms.shape[0]):
        ja, jb, qa, qb = places[n, 0], places[n, 1], sizes[n, 0], sizes[n, 1]
        hot, turned = out[n, 0], out[n, 1]
        for x in range(width):
            for y in range(width):
                at = x * width + y
                for lane in range(forms.shape[2]):
                    hot[at, lane] = np.uint32(1) if x == ja and y == jb else np.uint32(0)
                    turned[at, lane] = np.uint32(0)
                if x < qa and y < qb:
                    source = forms[n, _back(ja, x, qa) * width + _back(jb, y, qb)]
                    for lane in range(forms.shape[2]):
                        turned[at, lane] = source[lane]


@compiled(
    "void(uint32[:, :, ::1], int32[:, ::1], int32[:, ::1], uint32[:, :, :, ::1], uint32[:, ::1], uint64[::1], boolean,"
    " uint32[:, ::1])"
)
def pick_shares(forms: Any, turns: Any, sizes: Any, dealt: Any, pad: Any, primes: Any, first: bool, out: Any) -> None:
    """A member's share of E(a*, b*) − Y′: the inner product of the one-hot's share with its turned Y_E, less the component
    (r_A, r_B) of the dealt matrix. out holds its zero-share before and its message after."""
    width = np.int64(np.sqrt(np.float64(forms.shape[1])) + 0.5)
    for n in range(forms.shape[0]):
        ra, rb, qa, qb = turns[n, 0], turns[n, 1], sizes[n, 0], sizes[n, 1]
        hot, turned = dealt[n, 0], dealt[n, 1]
        for lane in range(forms.shape[2]):
            p = primes[lane]
            x = np.uint64(out[n, lane]) + p - np.uint64(turned[ra * width + rb, lane])
            if first:
                x += p - np.uint64(pad[n, lane])
            for i in range(qa):
                for j in range(qb):
                    y = forms[n, _back(i, ra, qa) * width + _back(j, rb, qb), lane]
                    x += np.uint64(hot[i * width + j, lane]) * np.uint64(y)
            out[n, lane] = np.uint32(x % p)
