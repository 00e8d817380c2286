"""One contribution of every client to a sum over all, as it arrives at the server. Clients are numbers here."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from secfc import events
from secfc.errors import Malformed
from secfc.field import Layout, Words


@dataclass
class _Incoming:
    words: Words
    received: int = 0


class Contributions:
    """Words of n clients, each in order from word 0, checked residue by residue."""

    def __init__(self, layout: Layout, clients: int) -> None:
        self._layout, self._clients = layout, clients
        self._incoming: dict[int, _Incoming] = {}

    def take(self, client: int, chunk: events.Chunk) -> int:
        """A piece of a client's contribution; returns how many words have arrived. What is complete stays as it is."""
        layout, known = self._layout, self._incoming.get(client)
        if chunk.total != layout.words:
            raise Malformed(f"a share of {layout.words} words is due, not of {chunk.total}")
        received = known.received if known else 0
        if known and received == layout.words:  # sent again after a lost connection
            return received
        if chunk.offset == 0:
            known, received = None, 0
        if chunk.offset != received:
            raise Malformed(f"words from offset {received} are due, not from {chunk.offset}")
        layout.check(chunk.words, chunk.offset)
        if known is None:
            known = self._incoming[client] = _Incoming(np.empty(layout.words, np.uint64))
        known.words[received : received + len(chunk.words)] = chunk.words
        known.received += len(chunk.words)
        return known.received

    def missing(self) -> list[int]:
        """Whose contribution is not complete."""
        due, everybody = self._layout.words, range(self._clients)
        return [j for j in everybody if j not in self._incoming or self._incoming[j].received < due]

    def words(self) -> dict[int, Words]:
        """What has arrived. Pre-condition: nobody is missing."""
        return {j: self._incoming[j].words for j in range(self._clients)}
