"""What a sender has said about a question of a sealed round and nobody has read yet: bounded, whoever sends it.

An honest sender is only so far ahead of its receiver (`privacy.sealed.cost.Limit`). One that is further is no honest one, and
its messages are refused before they take memory.
"""

from __future__ import annotations

from secfc.errors import Malformed
from secfc.privacy.sealed.cost import Limit
from secfc.protocol.parcels import Data
from secfc.protocol.transfer import Gathered

_HEAD = 16  # bytes before a message that travels with others


class Unread:
    """One sender's messages about one question. What comes is counted by the machine, what is read perhaps on a thread: each
    counter is written in one place."""

    def __init__(self, limit: Limit, who: str) -> None:
        self._limit, self._who = limit, who
        self._sinks: dict[bytes, _Counted] = {}
        self._names = self._came = self._moved = self._read = 0

    def sink(self, name: bytes, again: bool = False) -> Gathered:
        """Where a message goes; `again`: its name was counted before."""
        if name not in self._sinks:
            self.count(0 if again else 1)
            self._sinks[name] = _Counted(self, self._most)
        return self._sinks[name]

    @property
    def _most(self) -> int:
        return self._limit.size + _HEAD * self._limit.names

    def count(self, names: int) -> None:
        """Take note of so many messages. Raises Malformed if that is more than a question has."""
        if self._names + names > self._limit.names:
            raise Malformed(f"{self._who} sends more messages about a question than there are")
        self._names += names

    def check_chunk(self, chunk: int) -> None:
        if chunk >= self._limit.chunks:
            raise Malformed(f"{self._who} sends a message for chunk {chunk + 1} of {self._limit.chunks}")

    def came(self, size: int) -> None:
        """So many bytes are about to be taken. Raises Malformed if nobody has read as much of those before as must be."""
        if self._came - self._read + size > self._most:
            raise Malformed(f"{self._who} sends more than {self._most} bytes ahead of what was read")
        self._came += size

    def pop(self, name: bytes) -> bytearray | None:
        """A message that is here whole, to be read; None if there is none."""
        found = self._sinks.pop(name, None)
        if found is None:
            return None
        self._moved += found.received
        return found.taken()

    def settle(self, waiting: int) -> None:
        """So many of the bytes that were popped still wait to be read; all others have been."""
        self._read = self._moved - waiting


class _Counted(Gathered):
    """Bytes that count as unread as they come."""

    def __init__(self, box: Unread, most: int) -> None:
        super().__init__(most)
        self._box = box

    def write(self, data: Data) -> None:
        self._box.came(len(data))
        super().write(data)
