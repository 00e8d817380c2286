"""The server's part of the relay: envelopes that wait to be carried, so many bytes from one client to another and no more.

Nothing of it is kept on disk, and what waits for a client whose connection ends is dropped: both ends of a pair notice, begin
again, and a parcel goes on where its receiver stands. A client's senders take turns, so that none of them waits for another's
large parcel; and where one receiver is slow, only what is meant for it waits.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Generic, TypeVar

from secfc.errors import Malformed, OutOfTurn
from secfc.protocol.transfer import PIECE_BYTES

PAIR_BYTES = 8 * PIECE_BYTES  # that may wait, from one client to another

E = TypeVar("E")


class Line(Generic[E]):
    """One connection of a client to the relay: what waits to be handed to it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.away: deque[str] = deque()  # clients of which it is to hear that they are not connected
        self._queues: OrderedDict[str, deque[tuple[E, int]]] = OrderedDict()  # by sender, the next to be served first
        self._bytes: dict[str, int] = {}

    def room(self, sender: str, size: int) -> bool:
        waiting = self._bytes.get(sender, 0)
        return not waiting or waiting + size <= PAIR_BYTES

    def put(self, sender: str, envelope: E, size: int) -> None:
        self._queues.setdefault(sender, deque()).append((envelope, size))
        self._bytes[sender] = self._bytes.get(sender, 0) + size

    def next(self) -> E | None:
        """The next envelope: from every sender that has something, one after the other."""
        if not self._queues:
            return None
        sender, queue = self._queues.popitem(last=False)
        envelope, size = queue.popleft()
        self._bytes[sender] -= size
        if queue:
            self._queues[sender] = queue
        return envelope


class Switchboard(Generic[E]):
    """Who is connected to the relay. A client that connects again takes its own place."""

    def __init__(self, roster: tuple[str, ...]) -> None:
        self._roster = roster
        self._lines: dict[str, Line[E]] = {}

    def connect(self, name: str) -> Line[E]:
        if name not in self._roster:
            raise Malformed("only clients of the roster are relayed")
        if name in self._lines:
            self.disconnect(self._lines[name])
        line = self._lines[name] = Line[E](name)
        return line

    def connected(self, line: Line[E]) -> bool:
        return self._lines.get(line.name) is line

    def disconnect(self, line: Line[E]) -> list[Line[E]]:
        """The connection has ended; whoever is to hear of it."""
        if not self.connected(line):
            return []
        del self._lines[line.name]
        others = list(self._lines.values())
        for other in others:
            if line.name not in other.away:
                other.away.append(line.name)
        return others

    def post(self, sender: Line[E], to: str, envelope: E, size: int) -> Line[E] | None:
        """Put an envelope where it waits: on whose line it is now. None: there is no room, try again later."""
        if to not in self._roster or to == sender.name:
            raise Malformed("an envelope is for another client of the roster")
        if not self.connected(sender):
            raise OutOfTurn("a newer connection of yours has taken over")
        line = self._lines.get(to)
        if line is None:
            if to not in sender.away:
                sender.away.append(to)
            return sender
        if not line.room(sender.name, size):
            return None
        line.put(sender.name, envelope, size)
        return line
