"""One exchange of shares among all clients, as one of them sees it: what it gives, what is due from whom, what has arrived.

A job has one such stage for its rows; with private membership, others before it. Words of an owner arrive in order, are
checked residue by residue, and are used once they are complete and, by the caller's care, on disk. Clients are numbers here.

An owner's shares may be added to a sum, so they must be used exactly once. The calls that use them are heavy and run on
threads, which go on when their caller is cancelled: a lock sees to it that the second of two finds the work done.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
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
        self._using = threading.Lock()

    @property
    def id(self) -> bytes:
        """Names what we share."""
        return self.ids[self._me]

    def outgoing(self, receiver: int) -> Words:
        """Our shares for a client (heavy)."""
        return self._shares.shares([receiver])[0]

    def pieces(self, receiver: int, first: int) -> Iterator[tuple[int, Words]]:
        """The same from word `first` on, a piece at a time, each with its place (every step is heavy)."""
        return self._shares.pieces(receiver, first)

    @property
    def size(self) -> int:
        """How many words our shares for a client have."""
        return self._layouts[self._me].words

    def keep_own(self) -> None:
        """Our own share of our own (heavy); safe to call again, from any thread."""
        if self._me not in self._held:
            self._use(self._me, self.outgoing(self._me))

    def due(self, owner: int) -> int:
        """How many words an owner's shares for us have."""
        return self._layouts[owner].words

    def progress(self, owner: int) -> int:
        """How many of them have arrived."""
        incoming = self._incoming.get(owner)  # before the next line: a thread may put it to use meanwhile
        if owner in self._held:
            return self.due(owner)
        return incoming.received if incoming else 0

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
        incoming = self._incoming.get(owner)
        if owner in self._held or (incoming.received if incoming else 0) < self.due(owner):
            return None
        return incoming.words if incoming else np.empty(0, dtype=np.uint64)

    def settle(self, owner: int, words: Words) -> None:
        """Use an owner's whole shares (heavy); safe to call again, from any thread. Checks every residue."""
        if owner not in self._held:
            self._use(owner, words)

    def _use(self, owner: int, words: Words) -> None:
        with self._using:
            if owner in self._held:
                return
            self._put(owner, words)
            self._held.add(owner)
            self._incoming.pop(owner, None)

    def missing(self) -> list[int]:
        """Whose shares we lack."""
        return [j for j in range(len(self.ids)) if j not in self._held]
