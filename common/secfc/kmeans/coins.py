"""Public coins: reproducible random choices from one seed, the same in memory and over the network.

A choice depends on the seed and on its label only, not on what was drawn before, so a restarted server draws the same.
These coins decide starts; they are not for secrets (see `prg`).
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from secfc.errors import InvalidInput
from secfc.framing import framed


@dataclass(frozen=True)
class Coins:
    """A seed of any length, and draws from it."""

    seed: bytes = field(default_factory=lambda: os.urandom(32))

    def below(self, label: str, bound: int) -> int:
        """One uniform integer in [0, bound), by rejection, for a bound of any size."""
        if bound < 1:
            raise InvalidInput("a draw needs a positive bound")
        bits = (bound - 1).bit_length()
        size = -(-bits // 8)
        for attempt in range(1 << 16):
            value = int.from_bytes(self._bytes(f"{label}|{attempt}", size), "big") >> (8 * size - bits)
            if value < bound:
                return value
        raise InvalidInput("no draw fell below its bound")  # has probability 2^-65536

    def integers(self, label: str, bound: int, count: int) -> npt.NDArray[np.int32]:
        """`count` uniform integers in [0, bound), bound < 2^31."""
        limit = (1 << 32) // bound * bound
        out = np.empty(0, dtype=np.int32)
        attempt = 0
        while len(out) < count:
            raw = np.frombuffer(self._bytes(f"{label}|{attempt}", 4 * (count - len(out)) + 64), dtype="<u4")
            good = raw[raw < limit] % bound if limit < 1 << 32 else raw % bound
            out = np.concatenate([out, good.astype(np.int32)])
            attempt += 1
        return out[:count]

    def of_run(self, run: int) -> Coins:
        """The coins of one run of several. The first has these themselves, so that it is what it would be alone."""
        if run == 0:
            return self
        return Coins(hashlib.sha256(framed(b"secfc/v1/coins of a run", self.seed, b"%d" % run)).digest())

    def _bytes(self, label: str, size: int) -> bytes:
        text = label.encode()
        named = len(self.seed).to_bytes(4, "big") + self.seed + text
        return hashlib.shake_256(b"secfc/v1/coins|" + named).digest(size)
