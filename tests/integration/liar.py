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

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from secfc.coding.field import Layout, Words
from secfc.kmeans.distances import Labels
from secfc.local import Local
from secfc.protocol import messages, parcels
from secfc.protocol.parcels import Body
from secfc.protocol.rounds.uploads import UploadsClient
from tests.integration import helpers

LIES = ("random", "one", "offset", "malformed")
OFFSET = 7
ROOT = Path(__file__).parents[2]


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
    """`UploadsClient._made`, falsified from request `first` on."""

    def made(self: UploadsClient, request: messages.RoundRequest, labels: Labels) -> Body:
        body: Body = honest(self, request, labels)
        if request.number < first:
            return body
        plan = self._holding.plan
        sizes = np.bincount(labels[labels >= 0], minlength=plan.wishes.clusters)
        words = parcels.to_words(b"".join(bytes(data) for _, data in body.pieces(0)))
        return parcels.of_words(falsified(kind, plan.shape(len(labels), sizes, request.columns).layout, words))

    return made


def start(site: Local, client: str, kind: str, first: int = 1) -> None:
    """A client of a local federation that lies; its process is the site's to end."""
    call = helpers.client_call(site.kit(client), site.folder / f"{client}.parquet", site.labels_file(client))
    at = call.index("secfc_client")
    call[at : at + 1] = ["tests.integration.liar", "--lie", kind, "--from", str(first)]
    with open(site.log(client), "ab") as log:
        site.processes[client] = subprocess.Popen(
            call,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=os.environ | site.environment,
            cwd=ROOT,
            start_new_session=True,
        )


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
    UploadsClient._made = lying(kind, first, UploadsClient._made)  # type: ignore[method-assign]
    from secfc_client.__main__ import main as client

    client()


if __name__ == "__main__":
    main()
