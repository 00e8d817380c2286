"""Kernels of sealed rounds on *small values*: the digit tests of COMPARE and the counts of ZERO (docs/sealed.md, Section 3).

* Small values are uint8 below U, an odd prime of at most 127 (smaller in exhaustive tests). A sum or difference of two is
  reduced by one `min`, so that loops take 32 values in one vector; a loop with a single wider type would take half as many.
* *Tiles*: comparisons go through in tiles of TILE; what belongs to a tile of n comparisons and r values each lies together as
  a matrix (r, n), so every loop runs over neighbouring comparisons, and nothing is filled up. Tile b starts at b·TILE·r.
* *Digits*: (lanes, N) uint32, mixed-radix digits of 2E(Y) or 2E(ρ); `bits` is the width of the widest prime. A digit is cut
  into ⌈bits/2⌉ base-4 digits, highest first; the top one is a single bit if `bits` is odd, and then has one threshold.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from secfc.coding._compiling import alone, compiled, inlined, room

TILE = 256
_U8, _U16 = np.uint8, np.uint16


@inlined
def _add(x: Any, y: Any, u: Any) -> Any:
    """x + y mod u: a sum below u wraps around to something greater when u is subtracted."""
    s = _U8(x + y)
    return min(s, _U8(s - u))


@inlined
def _sub(x: Any, y: Any, u: Any) -> Any:
    """x − y mod u, likewise."""
    d = _U8(x - y)
    return min(d, _U8(d + u))


# --- COMPARE ---------------------------------------------------------------------------------------------------------


@alone
def _cut(digits: Any, octets: Any, out: Any) -> None:
    """out[q] <- base-4 digit q. Every shift is a constant: by a variable, numba's would be one of 64 bits."""
    for c in range(digits.shape[0]):
        octets[0, c] = _U8(digits[c])
        octets[1, c] = _U8(digits[c] >> np.uint32(8))
        octets[2, c] = _U8(digits[c] >> np.uint32(16))
    for j in range(3):
        source, q0, q1, q2, q3 = octets[j], out[4 * j], out[4 * j + 1], out[4 * j + 2], out[4 * j + 3]
        for c in range(digits.shape[0]):
            v = source[c]
            q0[c] = _U8(v & _U8(3))
            q1[c] = _U8(_U8(v >> _U8(2)) & _U8(3))
            q2[c] = _U8(_U8(v >> _U8(4)) & _U8(3))
            q3[c] = _U8(v >> _U8(6))


@compiled("void(uint32[:, ::1], uint8[:, ::1], int64, uint8, uint8[::1])")
def deal_digits(digits: Any, streams: Any, bits: int, u: Any, out: Any) -> None:
    """out <- [ρ_q ≥ θ] − Σ streams mod u, for every base-4 digit q of ρ and its thresholds θ, tile by tile."""
    lanes, total = digits.shape
    half = (bits + 1) // 2
    thresholds = lanes * (3 * half - 2 * (bits & 1))
    octets, base_4 = room((3, TILE), np.uint8), room((12, TILE), np.uint8)
    for first in range(0, total, TILE):
        n = min(TILE, total - first)
        at = first * thresholds
        for lane in range(lanes - 1, -1, -1):
            _cut(digits[lane, first : first + n], octets, base_4)
            for q in range(half - 1, -1, -1):
                source = base_4[q]
                for threshold in range(1, 2 if (q == half - 1 and bits & 1) else 4):
                    target, theta = out[at : at + n], _U8(threshold)
                    for c in range(n):
                        target[c] = _U8(1) if source[c] >= theta else _U8(0)
                    for s in range(streams.shape[0]):
                        stream = streams[s, at : at + n]
                        for c in range(n):
                            target[c] = _sub(target[c], stream[c], u)
                    at += n


@alone
def _position(y: Any, t1: Any, t2: Any, t3: Any, acc: Any, down: Any, one: Any, u: Any, out: Any) -> None:
    """out <- c_q = acc + (1 − T_{y+1}) or acc + T_y, and acc += 1 − T_y + T_{y+1}, with three thresholds."""
    for c in range(out.shape[0]):
        r, a, b, d = y[c], t1[c], t2[c], t3[c]
        odd, small = (r & _U8(1)) != _U8(0), r < _U8(2)
        x0 = a if odd else one
        x1 = d if odd else b
        here = x0 if small else x1
        w0 = b if odd else a
        w1 = _U8(0) if odd else d
        above = w0 if small else w1
        below = _sub(one, above, u)
        out[c] = _add(acc[c], here if down[c] != _U8(0) else below, u)
        acc[c] = _add(acc[c], _sub(one, _sub(here, above, u), u), u)


@alone
def _top(y: Any, t1: Any, acc: Any, down: Any, one: Any, u: Any, out: Any) -> None:
    """The same for a digit of one bit."""
    for c in range(out.shape[0]):
        odd, a = y[c] != _U8(0), t1[c]
        here = a if odd else one
        above = _U8(0) if odd else a
        below = _sub(one, above, u)
        out[c] = _add(acc[c], here if down[c] != _U8(0) else below, u)
        acc[c] = _add(acc[c], _sub(one, _sub(here, above, u), u), u)


@alone
def _blind(c_q: Any, factor: Any, plus: Any, minus: Any, u: Any, out: Any) -> None:
    """out <- s·c_q + plus − minus mod u. A product mod 127 is folded, as 2^7 = 1; only tests have another u."""
    if u == _U8(127):
        for c in range(out.shape[0]):
            x = _U16(_U16(c_q[c]) * _U16(factor[c]))
            s = _U8(_U8(_U8(x) & _U8(127)) + _U8(x >> _U16(7)))
            s = _add(min(s, _U8(s - _U8(127))), plus[c], _U8(127))
            out[c] = _sub(s, minus[c], _U8(127))
    else:
        for c in range(out.shape[0]):
            s = _U8(_U16(_U16(c_q[c]) * _U16(factor[c])) % _U16(u))
            out[c] = _sub(_add(s, plus[c], u), minus[c], u)


@alone
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


@compiled(
    "void(uint32[:, ::1], uint8[::1], uint8[::1], uint8[::1], uint8[::1], uint8[::1], uint8[::1],"
    " int64, uint8, uint8, uint8[::1])"
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

    `one` is 1 for the member that adds constants and 0 for the others.
    """
    lanes, total = digits.shape
    half = (bits + 1) // 2
    thresholds, places = lanes * (3 * half - 2 * (bits & 1)), half * lanes + 1
    octets, base_4 = room((3, TILE), np.uint8), room((12, TILE), np.uint8)
    acc, value = room((TILE,), np.uint8), room((TILE,), np.uint8)
    nothing, masks = room((TILE,), np.uint8), room((TILE,), np.uint8)
    nothing[:] = _U8(0)
    answers, spare = room((places, TILE), np.uint8), room((places, TILE), np.uint8)
    for first in range(0, total, TILE):
        n = min(TILE, total - first)
        acc[:] = _U8(0)
        down = direction[first : first + n]
        t, at, place = first * thresholds, first * places, 0
        for lane in range(lanes - 1, -1, -1):
            _cut(digits[lane, first : first + n], octets, base_4)
            for q in range(half - 1, -1, -1):
                if q == half - 1 and bits & 1:
                    _top(base_4[q], shares[t : t + n], acc, down, one, u, value[:n])
                    t += n
                else:
                    t1, t2, t3 = shares[t : t + n], shares[t + n : t + 2 * n], shares[t + 2 * n : t + 3 * n]
                    _position(base_4[q], t1, t2, t3, acc, down, one, u, value[:n])
                    t += 3 * n
                more = plus[at : at + n] if plus.shape[0] else nothing[:n]
                less = minus[at : at + n] if minus.shape[0] else nothing[:n]
                _blind(value[:n], factors[at : at + n], more, less, u, answers[place, :n])
                at += n
                place += 1
        for c in range(n):
            value[c] = _add(acc[c], _U8(0) if down[c] != _U8(0) else one, u)
        more = plus[at : at + n] if plus.shape[0] else nothing[:n]
        less = minus[at : at + n] if minus.shape[0] else nothing[:n]
        _blind(value[:n], factors[at : at + n], more, less, u, answers[place, :n])
        turned = _turned(answers, spare, turn[first : first + n], n, masks)
        at = first * places
        for j in range(places):
            target, source = out[at + j * n : at + (j + 1) * n], turned[j, :n]
            for c in range(n):
                target[c] = source[c]


@compiled("int64(uint8[:, ::1], int64, uint8, uint8[::1])")
def find_zeros(messages: Any, places: int, u: Any, out: Any) -> Any:
    """out[c] <- whether the messages' sum is 0 at a position of comparison c; returns the most zeros of one comparison."""
    total = out.shape[0]
    zeros, sums = room((TILE,), np.uint8), room((TILE,), np.uint8)
    most = _U8(0)
    for first in range(0, total, TILE):
        n = min(TILE, total - first)
        zeros[:] = _U8(0)
        for j in range(places):
            at = first * places + j * n
            sums[:] = _U8(0)
            for s in range(messages.shape[0]):
                message = messages[s, at : at + n]
                for c in range(n):
                    sums[c] = _add(sums[c], message[c], u)
            for c in range(n):
                zeros[c] = _U8(zeros[c] + (_U8(1) if sums[c] == _U8(0) else _U8(0)))
        target = out[first : first + n]
        for c in range(n):
            target[c] = min(zeros[c], _U8(1))
            most = max(most, zeros[c])
    return int(most)


# --- ZERO ------------------------------------------------------------------------------------------------------------


@compiled("void(uint8[::1], uint8[::1], int32[::1], int32[::1], int64, int64, int64[::1])")
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
