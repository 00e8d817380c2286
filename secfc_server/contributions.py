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

    def received(self, client: int) -> int:
        """How many words of a client's contribution have arrived."""
        known = self._incoming.get(client)
        return known.received if known else 0

    def take(self, client: int, chunk: events.Chunk) -> int:
        """A piece of a client's contribution; returns how many words have arrived. What is here already stays as it is."""
        layout, received = self._layout, self.received(client)
        if chunk.total != layout.words:
            raise Malformed(f"a share of {layout.words} words is due, not of {chunk.total}")
        if chunk.offset > received:
            raise Malformed(f"words from offset {received} are due, not from {chunk.offset}")
        words = chunk.words[received - chunk.offset :]  # what is here already is sent again after a lost connection
        layout.check(words, received)
        known = self._incoming.setdefault(client, _Incoming(np.empty(layout.words, np.uint64)))
        known.words[received : received + len(words)] = words
        known.received += len(words)
        return known.received

    def missing(self) -> list[int]:
        """Whose contribution is not complete."""
        due, everybody = self._layout.words, range(self._clients)
        return [j for j in everybody if j not in self._incoming or self._incoming[j].received < due]

    def words(self) -> dict[int, Words]:
        """What has arrived. Pre-condition: nobody is missing."""
        return {j: self._incoming[j].words for j in range(self._clients)}
