"""The inner loops of sealed rounds (docs/sealed.md), compiled like those of `_kernels`.

Conventions:

* *small values*: uint8 below U, an odd prime of at most 127 (smaller in exhaustive tests). Sums stay below 2^16 and are
  reduced by Barrett's multiplication, which vectorises on sixteen lanes of uint16.
* *tiles*: comparisons go through in tiles of TILE; what belongs to a tile of n comparisons and r values each lies together as
  a matrix (r, n), so every loop runs over neighbouring comparisons, and nothing is filled up. Tile b starts at b·TILE·r.
* *digits*: (lanes, N) uint32, mixed-radix digits of 2E(Y) or 2E(ρ); `bits` is the width of the widest prime. A digit is cut
  into ⌈bits/2⌉ base-4 digits, highest first; the top one is a single bit if `bits` is odd, and then has one threshold.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from secfc.coding._kernels import _compiled, _inlined

TILE = 256
_U16 = np.uint16
_LOW7 = np.uint64(0x7F7F7F7F7F7F7F7F)
_ONES = np.uint64(0x0101010101010101)
_HIGH = np.uint64(0x8080808080808080)
_S16, _S5 = np.uint32(16), np.uint32(0xFFFF)
_MASK21 = np.uint64((1 << 21) - 1)


@_inlined
def _mod(x: Any, u: Any, magic: Any) -> Any:
    """x mod u for x < 2^16, where magic = ⌊2^16/u⌋: the quotient is at most one too small."""
    q = _U16((np.uint32(x) * np.uint32(magic)) >> _S16)
    r = _U16(x - _U16(q * u))
    s = _U16(r - u)
    return min(r, s)


# --- streams ---------------------------------------------------------------------------------------------------------


@_compiled("int64(uint8[::1], boolean, int64[::1])")
def clip(values: Any, nonzero: bool, found: Any) -> Any:
    """Keep the low seven bits in place; note where they are 127 (or 0, if that is no value), and return how often."""
    count = 0
    words = values[: values.shape[0] // 8 * 8].view(np.uint64)
    for i in range(words.shape[0]):
        v = words[i] & _LOW7
        words[i] = v
        hit = (v + _ONES) & _HIGH
        if nonzero:
            hit |= ~(v + _LOW7) & _HIGH
        if hit:
            for b in range(8 * i, 8 * i + 8):
                if values[b] == 127 or (nonzero and values[b] == 0):
                    if count < found.shape[0]:
                        found[count] = b
                    count += 1
    for b in range(words.shape[0] * 8, values.shape[0]):
        values[b] &= np.uint8(127)
        if values[b] == 127 or (nonzero and values[b] == 0):
            if count < found.shape[0]:
                found[count] = b
            count += 1
    return count


@_compiled("void(int64[::1], int64, uint8[:, ::1])")
def counters(found: Any, start: int, out: Any) -> None:
    """The counters 2^127 + (start + position)·2^32 of replacement blocks, big-endian."""
    for i in range(found.shape[0]):
        position = start + found[i]
        for b in range(16):
            out[i, b] = 0
        out[i, 0] = 128
        for b in range(8):
            out[i, 11 - b] = np.uint8((position >> (8 * b)) & 255)


@_compiled("int64(uint8[::1], boolean, int64[::1], uint8[:, ::1])")
def replace(values: Any, nonzero: bool, found: Any, blocks: Any) -> Any:
    """Give each noted place the first good candidate of its own block; returns how many had none."""
    missing = 0
    for i in range(found.shape[0]):
        good = False
        for b in range(blocks.shape[1]):
            v = blocks[i, b] & np.uint8(127)
            if v != 127 and not (nonzero and v == 0):
                values[found[i]] = v
                good = True
                break
        missing += not good
    return missing


# --- digits ----------------------------------------------------------------------------------------------------------


@_inlined
def _positive(x: Any, p: Any, inverse: Any) -> Any:
    """x mod p in [0, p) for an exact float64 of magnitude below 2^52."""
    r = x - np.floor(x * inverse) * p
    r = r + p if r < 0.0 else r
    return r - p if r >= p else r


@_inlined
def _garner(digits: Any, lane: Any, n: Any, p: Any, inverse: Any, inverses: Any) -> None:
    """Turn residues of a lane into its mixed-radix digits, given those of the lanes before it."""
    mine = digits[lane, :n]
    for b in range(lane):
        other, factor = digits[b, :n], inverses[b, lane]
        for c in range(n):
            mine[c] = _positive((mine[c] - other[c]) * factor, p, inverse)


@_compiled(
    "void(uint32[:, :, ::1], int32[::1], int32[::1], int32[::1], float64[:, :, ::1], float64[:, :, ::1],"
    " float64[::1], float64[:, ::1], uint32[:, ::1], uint8[::1])"
)
def pair_digits(
    values: Any, rows: Any, one: Any, two: Any, left: Any, right: Any, primes: Any, inverses: Any, out: Any, parity: Any
) -> None:
    """Mixed-radix digits and parity of 2·(left[a, b]·v_b − right[a, b]·v_a) for rows i, a = one, b = two.

    values (rows, k, L) are residues in [0, p); the coefficients of pair (a, b) likewise; inverses balanced (Field.garner).
    """
    lanes = out.shape[0]
    work = np.zeros((lanes, TILE))
    for first in range(0, rows.shape[0], TILE):
        n = min(TILE, rows.shape[0] - first)
        i, a, b = rows[first : first + n], one[first : first + n], two[first : first + n]
        odd = parity[first : first + n]
        for lane in range(lanes):
            p = primes[lane]
            inverse = 1.0 / p
            mine, target = work[lane, :n], out[lane, first : first + n]
            for c in range(n):
                x = np.float64(values[i[c], b[c], lane]) * left[a[c], b[c], lane]
                mine[c] = x - np.float64(values[i[c], a[c], lane]) * right[a[c], b[c], lane]
            for c in range(n):
                mine[c] = _positive(2.0 * mine[c], p, inverse)
            _garner(work, lane, n, p, inverse, inverses)
            if lane == 0:
                for c in range(n):
                    odd[c] = 0
            for c in range(n):
                d = np.int32(mine[c])
                target[c] = np.uint32(d)
                odd[c] ^= np.uint8(d & 1)


@_compiled("void(uint32[:, ::1], float64[::1], float64[:, ::1], uint32[:, ::1], uint8[::1])")
def value_digits(values: Any, primes: Any, inverses: Any, out: Any, parity: Any) -> None:
    """Mixed-radix digits and parity of 2·v mod Q for residues values (N, l) in [0, p)."""
    lanes = out.shape[0]
    work = np.zeros((lanes, TILE))
    for first in range(0, values.shape[0], TILE):
        n = min(TILE, values.shape[0] - first)
        odd = parity[first : first + n]
        for lane in range(lanes):
            p = primes[lane]
            inverse = 1.0 / p
            mine, target = work[lane, :n], out[lane, first : first + n]
            for c in range(n):
                mine[c] = _positive(2.0 * np.float64(values[first + c, lane]), p, inverse)
            _garner(work, lane, n, p, inverse, inverses)
            if lane == 0:
                for c in range(n):
                    odd[c] = 0
            for c in range(n):
                d = np.int32(mine[c])
                target[c] = np.uint32(d)
                odd[c] ^= np.uint8(d & 1)


# --- COMPARE ---------------------------------------------------------------------------------------------------------


@_inlined
def _halves(digit: Any, low: Any, high: Any) -> None:
    for c in range(digit.shape[0]):
        low[c] = _U16(digit[c] & _S5)
        high[c] = _U16(digit[c] >> _S16)


@_compiled("void(uint32[:, ::1], uint8[:, ::1], int64, uint16, uint8[::1])")
def deal_digits(digits: Any, streams: Any, bits: int, u: Any, out: Any) -> None:
    """out <- [ρ_q ≥ θ] − Σ streams mod u, for every base-4 digit q of ρ and its thresholds θ, tile by tile."""
    lanes, total = digits.shape
    half = (bits + 1) // 2
    magic = _U16(65536 // u)
    thresholds = lanes * (3 * half - 2 * (bits & 1))
    low, high = np.empty(TILE, np.uint16), np.empty(TILE, np.uint16)
    sums = np.empty(TILE, np.uint16)
    for first in range(0, total, TILE):
        n = min(TILE, total - first)
        at = first * thresholds
        for lane in range(lanes - 1, -1, -1):
            _halves(digits[lane, first : first + n], low, high)
            for q in range(half - 1, -1, -1):
                source = high if q >= 8 else low
                shift = _U16(2 * (q % 8))
                for threshold in range(1, 2 if (q == half - 1 and bits & 1) else 4):
                    sums[:] = _U16(0)
                    for s in range(streams.shape[0]):
                        stream = streams[s, at : at + n]
                        for c in range(n):
                            sums[c] = _U16(sums[c] + _U16(u - _U16(stream[c])))
                    target, theta = out[at : at + n], _U16(threshold)
                    for c in range(n):
                        bit = _U16(1) if _U16(_U16(source[c] >> shift) & _U16(3)) >= theta else _U16(0)
                        target[c] = np.uint8(_mod(_U16(sums[c] + bit), u, magic))
                    at += n


@_inlined
def _position(y: Any, shift: Any, t1: Any, t2: Any, t3: Any, acc: Any, down: Any, one: Any, u: Any, out: Any) -> None:
    """out <- c_q = acc + (1 − T_{y+1}) or acc + T_y, and acc += 1 − T_y + T_{y+1}, with three thresholds."""
    base = _U16(one + u)
    for c in range(out.shape[0]):
        r = _U16(_U16(y[c] >> shift) & _U16(3))
        a, b, d = _U16(t1[c]), _U16(t2[c]), _U16(t3[c])
        odd, small = (r & _U16(1)) != _U16(0), r < _U16(2)
        x0 = a if odd else one
        x1 = d if odd else b
        here = x0 if small else x1
        w0 = b if odd else a
        w1 = _U16(0) if odd else d
        above = w0 if small else w1
        out[c] = _U16(acc[c] + (here if down[c] else _U16(base - above)))
        acc[c] = _U16(acc[c] + _U16(_U16(base - here) + above))


@_inlined
def _top(y: Any, shift: Any, t1: Any, acc: Any, down: Any, one: Any, u: Any, out: Any) -> None:
    """The same for a digit of one bit."""
    base = _U16(one + u)
    for c in range(out.shape[0]):
        odd = (_U16(y[c] >> shift) & _U16(1)) != _U16(0)
        a = _U16(t1[c])
        here = a if odd else one
        above = _U16(0) if odd else a
        out[c] = _U16(acc[c] + (here if down[c] else _U16(base - above)))
        acc[c] = _U16(acc[c] + _U16(_U16(base - here) + above))


@_inlined
def _blind(c_q: Any, factor: Any, plus: Any, minus: Any, u: Any, magic: Any, out: Any) -> None:
    """out <- s·c_q + plus − minus mod u."""
    for c in range(out.shape[0]):
        x = _mod(c_q[c], u, magic)
        x = _U16(_U16(x * _U16(factor[c])) + _U16(_U16(_U16(plus[c]) + u) - _U16(minus[c])))
        out[c] = np.uint8(_mod(x, u, magic))


@_inlined
def _turned(positions: Any, spare: Any, turn: Any, n: Any, masks: Any) -> Any:
    """Turn every column cyclically by its own number of places, one binary digit of that number after the other."""
    count = positions.shape[0]
    source, target = positions, spare
    step = 1
    while step < count:
        for c in range(n):
            masks[c] = np.uint8(255) if turn[c] & step else np.uint8(0)
        for j in range(count):
            here, back = source[j, :n], source[j - step if j >= step else j - step + count, :n]
            to = target[j, :n]
            for c in range(n):
                to[c] = (back[c] & masks[c]) | (here[c] & ~masks[c])
        source, target = target, source
        step *= 2
    return source


@_compiled(
    "void(uint32[:, ::1], uint8[::1], uint8[::1], uint8[::1], uint8[::1], uint8[::1], uint8[::1],"
    " int64, uint16, uint16, uint8[::1])"
)
def answer_tests(
    digits: Any,
    shares: Any,
    factors: Any,
    plus: Any,
    minus: Any,
    direction: Any,
    turn: Any,
    bits: int,
    one: Any,
    u: Any,
    out: Any,
) -> None:
    """A member's message of COMPARE: s_q·c_q + plus − minus, turned; an empty `plus` or `minus` counts as zeros.

    `one` is 1 for the member that adds constants and 0 for the others. Sums stay below 2^16: 11 lanes are 121 positions of
    at most 2·127 + 1.
    """
    lanes, total = digits.shape
    half = (bits + 1) // 2
    thresholds, places = lanes * (3 * half - 2 * (bits & 1)), half * lanes + 1
    magic = _U16(65536 // u)
    low, high = np.empty(TILE, np.uint16), np.empty(TILE, np.uint16)
    acc, value = np.empty(TILE, np.uint16), np.empty(TILE, np.uint16)
    nothing, masks = np.zeros(TILE, np.uint8), np.empty(TILE, np.uint8)
    answers, spare = np.empty((places, TILE), np.uint8), np.empty((places, TILE), np.uint8)
    for first in range(0, total, TILE):
        n = min(TILE, total - first)
        acc[:] = _U16(0)
        down = direction[first : first + n]
        t, at, place = first * thresholds, first * places, 0
        for lane in range(lanes - 1, -1, -1):
            _halves(digits[lane, first : first + n], low, high)
            for q in range(half - 1, -1, -1):
                y = high if q >= 8 else low
                shift = _U16(2 * (q % 8))
                if q == half - 1 and bits & 1:
                    _top(y, shift, shares[t : t + n], acc, down, one, u, value[:n])
                    t += n
                else:
                    t1, t2, t3 = shares[t : t + n], shares[t + n : t + 2 * n], shares[t + 2 * n : t + 3 * n]
                    _position(y, shift, t1, t2, t3, acc, down, one, u, value[:n])
                    t += 3 * n
                more = plus[at : at + n] if plus.shape[0] else nothing[:n]
                less = minus[at : at + n] if minus.shape[0] else nothing[:n]
                _blind(value[:n], factors[at : at + n], more, less, u, magic, answers[place, :n])
                at += n
                place += 1
        for c in range(n):
            value[c] = _U16(acc[c] + (_U16(0) if down[c] else one))
        more = plus[at : at + n] if plus.shape[0] else nothing[:n]
        less = minus[at : at + n] if minus.shape[0] else nothing[:n]
        _blind(value[:n], factors[at : at + n], more, less, u, magic, answers[place, :n])
        turned = _turned(answers, spare, turn[first : first + n], n, masks)
        at = first * places
        for j in range(places):
            target, source = out[at + j * n : at + (j + 1) * n], turned[j, :n]
            for c in range(n):
                target[c] = source[c]


@_compiled("int64(uint8[:, ::1], int64, uint16, uint8[::1])")
def find_zeros(messages: Any, places: int, u: Any, out: Any) -> Any:
    """out[c] <- whether the messages' sum is 0 at a position of comparison c; returns the most zeros of one comparison."""
    total = out.shape[0]
    magic = _U16(65536 // u)
    zeros, sums = np.empty(TILE, np.uint8), np.empty(TILE, np.uint16)
    most = 0
    for first in range(0, total, TILE):
        n = min(TILE, total - first)
        zeros[:] = 0
        for j in range(places):
            at = first * places + j * n
            sums[:] = _U16(0)
            for s in range(messages.shape[0]):
                message = messages[s, at : at + n]
                for c in range(n):
                    sums[c] = _U16(sums[c] + _U16(message[c]))
            for c in range(n):
                zeros[c] += np.uint8(1) if _mod(sums[c], u, magic) == _U16(0) else np.uint8(0)
        target = out[first : first + n]
        for c in range(n):
            target[c] = min(zeros[c], np.uint8(1))
            most = max(most, int(zeros[c]))
    return most


# --- ZERO ------------------------------------------------------------------------------------------------------------


@_compiled("void(uint8[::1], uint8[::1], int32[::1], int32[::1], int64, int64, int64[::1])")
def count_shares(shares: Any, blinds: Any, up: Any, down: Any, one: int, u: int, totals: Any) -> None:
    """totals[up] += share of b, totals[down] += share of 1 − b, for bits b = g ⊕ β whose g is shared; -1 is no test."""
    for c in range(shares.shape[0]):
        b = np.int64(shares[c])
        if blinds[c]:
            b = one - b + u
        if up[c] >= 0:
            totals[up[c]] += b
        if down[c] >= 0:
            totals[down[c]] += one - b + 2 * u


# --- residues --------------------------------------------------------------------------------------------------------


@_compiled("void(float64[:, ::1], int64[::1], int64[::1], float64[::1], int64, uint32[:, :, ::1])")
def keep_negated(sums: Any, columns: Any, lanes: Any, primes: Any, row: int, out: Any) -> None:
    """out[row + i, columns[q], lanes[q]] <- −sums[i, q] mod p: what the server keeps of the uploads' sum."""
    for i in range(sums.shape[0]):
        for q in range(sums.shape[1]):
            out[row + i, columns[q], lanes[q]] = np.uint32(np.int32(_positive(-sums[i, q], primes[q], 1.0 / primes[q])))


@_compiled("void(uint32[:, ::1], int64[::1], int64[::1], int64[::1], uint32[:, :, ::1])")
def place(flat: Any, source: Any, columns: Any, lanes: Any, out: Any) -> None:
    """out[i, columns[q], lanes[q]] <- flat[i, source[q]]."""
    for i in range(flat.shape[0]):
        for q in range(source.shape[0]):
            out[i, columns[q], lanes[q]] = flat[i, source[q]]


@_compiled("void(uint32[:, ::1], uint8[::1], uint32[:, :, ::1], uint32[:, ::1], uint32[:, ::1], uint64[::1], boolean)")
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


@_compiled(
    "void(uint32[:, :, ::1], int32[::1], int32[:, ::1], int32[:, ::1], float64[:, :, ::1], float64[:, :, ::1],"
    " float64[::1], uint32[:, :, ::1])"
)
def cross_forms(values: Any, rows: Any, one: Any, two: Any, left: Any, right: Any, primes: Any, out: Any) -> None:
    """out[n, (x, y), lane] <- left·v_b − right·v_a in [0, p) for a = one[n, x], b = two[n, y]; -1 is no cluster: 0."""
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
                    e -= np.float64(values[i, a, lane]) * right[a, b, lane]
                    target[lane] = np.uint32(np.int32(_positive(e, p, 1.0 / p)))


@_inlined
def _back(place: Any, turn: Any, size: Any) -> Any:
    return place - turn if place >= turn else place - turn + size


@_compiled("void(uint32[:, :, ::1], int32[:, ::1], int32[:, ::1], uint32[:, :, :, ::1])")
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


@_compiled(
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
