"""One exchange of shares among all clients, as one of them sees it: what it gives, what is due from whom, what has arrived.

A job has one such stage for its rows; with private membership, others before it. Words of an owner arrive in order, are
checked residue by residue, and are used once they are complete and, by the caller's care, on disk. Clients are numbers here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from secfc import events
from secfc.errors import Malformed
from secfc.field import Layout, Words
from secfc.sharing import Shares


@dataclass
class _Incoming:
    """Words of one owner's shares that have arrived."""

    words: Words
    received: int = 0


class Stage:
    """`names[j]` is client j, `ids[j]` names what it shares, `layouts[j]` says how its shares lie; `put` takes an owner's
    whole shares."""

    def __init__(
        self,
        me: int,
        names: Sequence[str],
        ids: Sequence[bytes],
        layouts: Sequence[Layout],
        shares: Shares,
        put: Callable[[int, Words], None],
    ) -> None:
        self._me, self._names, self.ids, self._layouts = me, names, tuple(ids), layouts
        self._shares, self._put = shares, put
        self._incoming: dict[int, _Incoming] = {}
        self._held: set[int] = set()

    @property
    def id(self) -> bytes:
        """Names what we share."""
        return self.ids[self._me]

    def outgoing(self, receiver: int) -> Words:
        """Our shares for a client (heavy)."""
        return self._shares.shares([receiver])[0]

    def keep_own(self) -> None:
        """Our own share of our own (heavy)."""
        if self._me not in self._held:
            self._use(self._me, self.outgoing(self._me))

    def due(self, owner: int) -> int:
        """How many words an owner's shares for us have."""
        return self._layouts[owner].words

    def progress(self, owner: int) -> int:
        """How many of them have arrived."""
        if owner in self._held:
            return self.due(owner)
        return self._incoming[owner].received if owner in self._incoming else 0

    def receive(self, owner: int, chunk: events.Chunk) -> int:
        """The next piece of an owner's shares; returns how many words have arrived."""
        layout = self._layouts[owner]
        if chunk.total != layout.words:
            raise Malformed(f"{layout.words} words of shares are due from {self._names[owner]}, not {chunk.total}")
        if owner in self._held:
            return layout.words
        if chunk.offset != self.progress(owner):
            raise Malformed(f"words from offset {self.progress(owner)} are due, not from {chunk.offset}")
        layout.check(chunk.words, chunk.offset)
        if owner not in self._incoming:
            self._incoming[owner] = _Incoming(np.empty(layout.words, np.uint64))
        incoming = self._incoming[owner]
        incoming.words[chunk.offset : chunk.offset + len(chunk.words)] = chunk.words
        incoming.received += len(chunk.words)
        return incoming.received

    def complete(self, owner: int) -> Words | None:
        """An owner's shares that are complete and not settled yet."""
        if owner in self._held or self.progress(owner) < self.due(owner):
            return None
        return self._incoming[owner].words if owner in self._incoming else np.empty(0, dtype=np.uint64)

    def settle(self, owner: int, words: Words) -> None:
        """Use an owner's whole shares (heavy); safe to call again. Checks every residue."""
        if owner not in self._held:
            self._use(owner, words)

    def _use(self, owner: int, words: Words) -> None:
        self._put(owner, words)
        self._held.add(owner)
        self._incoming.pop(owner, None)

    def missing(self) -> list[int]:
        """Whose shares we lack."""
        return [j for j in range(len(self.ids)) if j not in self._held]
