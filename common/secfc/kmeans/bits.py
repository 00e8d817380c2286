"""Whole numbers of a few bits each as bytes, filled from the lowest bit."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from secfc.errors import Malformed


def pack(values: npt.NDArray[np.integer], bits: int) -> bytes:
    """So many bits of each."""
    if not bits:
        return b""
    spread = (values.astype(np.uint32)[:, None] >> np.arange(bits, dtype=np.uint32)) & np.uint32(1)
    return np.packbits(spread.astype(np.uint8).reshape(-1), bitorder="little").tobytes()


def unpack(data: bytes, count: int, bits: int, what: str = "an assignment") -> npt.NDArray[np.uint32]:
    """The inverse. Raises Malformed, which says what is wrong, for what `pack` does not make."""
    if len(data) != -(-count * bits // 8):
        raise Malformed(f"{what} has the wrong length")
    raw = np.frombuffer(data, dtype=np.uint8)
    flat = np.unpackbits(raw, bitorder="little")
    if flat[count * bits :].any():
        raise Malformed(f"{what} has set bits after its end")
    spread = flat[: count * bits].reshape(count, bits).astype(np.uint32)
    values: npt.NDArray[np.uint32] = (spread << np.arange(bits, dtype=np.uint32)).sum(axis=1, dtype=np.uint32)
    return values
