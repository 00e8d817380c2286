"""Kernels that turn bytes of AES into small values (docs/sealed.md, Section 2)."""

from __future__ import annotations

from typing import Any

import numpy as np

from secfc.coding._compiling import compiled, inlined, room

WORDS = 256  # looked at together, in the first-level cache
_U8, _U16 = np.uint8, np.uint16
_LOW7 = np.uint64(0x7F7F7F7F7F7F7F7F)
_ONES = np.uint64(0x0101010101010101)
_HIGH = np.uint64(0x8080808080808080)
_ZERO, _ONE, _BYTE, _S7 = np.uint64(0), np.uint64(1), np.uint64(127), np.uint64(7)


@inlined
def _next_spare(spare: Any, at: Any, least: Any) -> Any:
    """Where the next good spare value is; the end if there is none."""
    while at < spare.shape[0] and _U8((spare[at] & _U8(127)) - least) >= _U8(127) - least:
        at += 1
    return at


@compiled("int64(uint8[::1], int64, boolean, uint8[::1], int64[::1])")
def clean(values: Any, begin: int, nonzero: bool, spare: Any, used: Any) -> Any:
    """Keep the low seven bits in place from `begin` on, and put the next good spare value where that is 127 (or 0, if
    `nonzero`).

    `used[0]` counts the spare bytes taken or passed over. Returns where it stopped: at the end, or at the word (eight values)
    or value for which no spare is left. `marks` has the high bit of each value that must be replaced. Which words have one
    nobody can predict, so they are listed without a branch first.
    """
    at, zeros, least = used[0], _HIGH if nonzero else _ZERO, _U8(1) if nonzero else _U8(0)
    marks, where = room((WORDS,), np.uint64), room((WORDS,), np.uint16)
    start, end = begin // 8 * 8, values.shape[0] // 8 * 8
    for first in range(start, end, 8 * WORDS):
        words = values[first : min(first + 8 * WORDS, end)].view(np.uint64)
        for i in range(words.shape[0]):
            v = words[i] & _LOW7
            words[i] = v
            marks[i] = ((v + _ONES) & _HIGH) | (~(v + _LOW7) & zeros)
        count = np.uint64(0)
        for i in range(words.shape[0]):
            where[count] = _U16(i)
            count += np.uint64(marks[i] != _ZERO)
        for j in range(np.int64(count)):
            at_word = np.uint64(where[j])
            v, bad = words[at_word], marks[at_word]
            while bad:
                at = _next_spare(spare, at, least)
                if at == spare.shape[0]:
                    words[at_word], used[0] = v, at
                    return first + 8 * np.int64(at_word)
                one = (bad & (~bad + _ONE)) >> _S7  # 1 in the lowest bad byte
                v = (v & ~(one * _BYTE)) | (one * np.uint64(spare[at] & _U8(127)))
                at += 1
                bad &= bad - _ONE
            words[at_word] = v
    for b in range(max(begin, end), values.shape[0]):
        values[b] &= _U8(127)
        if values[b] == 127 or values[b] < least:
            at = _next_spare(spare, at, least)
            if at == spare.shape[0]:
                used[0] = at
                return b
            values[b] = spare[at] & _U8(127)
            at += 1
    used[0] = at
    return values.shape[0]


@compiled("void(uint16[::1], uint16, uint8[::1])")
def remainders(values: Any, bound: Any, out: Any) -> None:
    """out <- values mod bound, by floats: those below 2^16 divided by whole numbers are never off by a whole number."""
    inverse = np.float32(1.0) / np.float32(bound)
    for i in range(values.shape[0]):
        v = np.int32(values[i])
        r = np.int32(v - np.int32(np.float32(v) * inverse) * np.int32(bound))
        r = np.int32(r + bound) if r < 0 else r
        out[i] = _U8(r - bound if r >= bound else r)
