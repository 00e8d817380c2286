"""Whole numbers of a few bits each as bytes, filled from the lowest bit."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from secfc.errors import Malformed

_STEP = 1 << 17  # numbers at a time, in whole bytes: while they are spread, one takes a hundred


def pack(values: npt.NDArray[np.integer], bits: int) -> bytes:
    """So many bits of each."""
    if not bits:
        return b""
    parts = (values[a : a + _STEP].astype(np.uint32)[:, None] for a in range(0, len(values), _STEP))
    places = np.arange(bits, dtype=np.uint32)
    spread = ((part >> places & np.uint32(1)).astype(np.uint8).reshape(-1) for part in parts)
    return b"".join(np.packbits(part, bitorder="little").tobytes() for part in spread)


def unpack(data: bytes, count: int, bits: int, what: str = "an assignment") -> npt.NDArray[np.uint32]:
    """The inverse. Raises Malformed, which says what is wrong, for what `pack` does not make."""
    if len(data) != -(-count * bits // 8):
        raise Malformed(f"{what} has the wrong length")
    raw = np.frombuffer(data, dtype=np.uint8)
    if count * bits % 8 and raw[-1] >> count * bits % 8:
        raise Malformed(f"{what} has set bits after its end")
    values, places = np.empty(count, dtype=np.uint32), np.arange(bits, dtype=np.uint32)
    for a in range(0, count, _STEP):
        part = values[a : a + _STEP]
        flat = np.unpackbits(
            raw[a * bits // 8 : -(-(a + len(part)) * bits // 8)], count=len(part) * bits, bitorder="little"
        )
        part[:] = (flat.reshape(len(part), bits).astype(np.uint32) << places).sum(axis=1, dtype=np.uint32)
    return values
