"""A client that lies: the real secfc-client, whose uploads are falsified just before they leave.

    python -m tests.integration.liar --lie random|one|offset|malformed [--from ROUND] <arguments of secfc-client>

    random     other valid residues everywhere
    one        one entry of the first column, in one lane, is one too large
    offset     a constant is added to every entry, in every lane
    malformed  a residue that is not below its prime

Everything else it does is honest: it joins, shares, follows, and writes its labels. `--from` lets it be honest in the
requests before.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from secfc import events
from secfc.field import Layout, Words
from secfc_client.participant import Participant

LIES = ("random", "one", "offset", "malformed")
OFFSET = 7


def falsified(kind: str, layout: Layout, words: Words) -> Words:
    """An upload that differs from `words` as the kind says."""
    if not layout.residues:
        return words
    if kind == "malformed":
        out = words.copy()
        out[0] |= np.uint64((1 << 21) - 1)
        return out
    lanes = [np.empty((layout.rows, width)) for width in layout.widths]
    layout.unpack(words, lanes)
    rng = np.random.default_rng(len(words))
    for lane, p in enumerate(layout.field.primes):
        if kind == "random":
            lanes[lane] = rng.integers(0, p, lanes[lane].shape).astype(np.float64)
        elif kind == "offset":
            lanes[lane] += OFFSET
    if kind == "one":
        lanes[0][layout.rows // 2, 0] += 1
    return layout.pack(lanes)


def lying(kind: str, first: int, honest: Any) -> Any:
    """`Participant.answer`, falsified from request `first` on."""

    def answer(self: Participant, request: events.RoundRequest) -> npt.NDArray[np.uint64]:
        words: Words = honest(self, request)
        if request.number < first:
            return words
        labels = self._labels(request.number)
        sizes = np.bincount(labels[labels >= 0], minlength=self.federation.k)
        return falsified(kind, self.plan.shape(len(labels), sizes, request.columns).layout, words)

    return answer


def option(name: str, default: str) -> str:
    """Take an option of ours out of the command line."""
    if name not in sys.argv:
        return default
    at = sys.argv.index(name)
    value = sys.argv[at + 1]
    del sys.argv[at : at + 2]
    return value


def main() -> None:
    """Lie as told, and otherwise be the client."""
    kind, first = option("--lie", "random"), int(option("--from", "1"))
    if kind not in LIES:
        sys.exit(f"--lie is one of {', '.join(LIES)}")
    Participant.answer = lying(kind, first, Participant.answer)  # type: ignore[method-assign]
    from secfc_client.__main__ import main as client

    client()


if __name__ == "__main__":
    main()
