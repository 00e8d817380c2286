"""Bytes as an enemy or a bad disk makes them."""

from __future__ import annotations

from hypothesis import strategies as st

# Varints of 2⁶³ and 2⁶⁴−1, and lengths that reach far beyond any message.
LONG = [
    b"\x80" * 9 + b"\x01",
    b"\xff" * 9 + b"\x01",
    b"\xff\xff\xff\xff\x7f",
    b"\xff" * 8 + b"\x7f",
    bytes(8),
    b"\x7f" * 8,
]


@st.composite
def damaged(draw: st.DrawFn, whole: bytes, most: int = 4) -> bytes:
    """`whole` with a few bytes changed, left out, put in, repeated, or cut off at the end."""
    data = bytearray(whole)
    for _ in range(draw(st.integers(1, most))):
        at = draw(st.integers(0, len(data)))
        match draw(st.sampled_from(["flip", "set", "leave out", "put in", "length", "repeat", "cut"])):
            case "flip" if at < len(data):
                data[at] ^= 1 << draw(st.integers(0, 7))
            case "set" if at < len(data):
                data[at] = draw(st.integers(0, 255))
            case "leave out":
                del data[at : at + draw(st.integers(1, 40))]
            case "put in":
                data[at:at] = draw(st.binary(min_size=1, max_size=40))
            case "length":
                data[at : at + draw(st.integers(0, 10))] = draw(st.sampled_from(LONG))
            case "repeat":
                data[at:at] = data[at : at + draw(st.integers(1, 40))]
            case "cut":
                del data[at:]
    return bytes(data)
