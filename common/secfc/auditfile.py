"""A party's audit file, STATE/audit.jsonl: it only grows, and its lines are chained (`protocol.audit`).

A line is on disk before what it tells of is kept, shown or sent. After a kill in between, a line may be there twice, or tell
of something that did not happen after all; none is lacking. What a process that was killed has left of a line is removed
when the next one opens the file: nothing had come of it yet.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from secfc import atomicfile, limits
from secfc.errors import ConfigError, Refused, SecfcError
from secfc.logs import say
from secfc.protocol import audit
from secfc.protocol.audit import Found, Head
from secfc.protocol.effects import Fact
from secfc.protocol.jobs.record import State

FILE = "audit.jsonl"
_ROOM = "make room there or choose another --state"
_MOVE = (
    "move it to where it can be looked at (secfc audit says what is wrong), or put the right one back; then start again"
)


class AuditFile:
    """One party's file, open for its process alone (`lock.Lock`)."""

    def __init__(self, folder: Path, party: str, federation: bytes, clock: Callable[[], float] = time.time) -> None:
        """`federation`: its digest. A new file begins with a line that says whose it is."""
        self.path, self._clock = folder / FILE, clock
        self._lock = threading.Lock()  # a node writes for itself and for the job that it runs
        with limits.telling(f"{self.path}: cannot be used", _ROOM):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.head, self._size = self._opened()
        if not self.head.number:
            self.append([Fact("the audit begins", {"party": party, "federation": federation.hex()})])

    def append(self, facts: Sequence[Fact]) -> None:
        """Add lines; they are on disk when this returns."""
        with self._lock:
            head, lines = self.head, b""
            for fact in facts:
                line, head = audit.written(head, fact.event, fact.fields, self._clock())
                lines += line
            try:
                with limits.telling(f"{self.path}: cannot be written", _ROOM):
                    atomicfile.append(self.path, lines, self._size)
            except ConfigError:
                if self._as_left():
                    raise
                raise ConfigError(f"{self.path}: was changed or removed by somebody else; {_MOVE}") from None
            self.head, self._size = head, self._size + len(lines)

    def about(self, **fields: Any) -> Extract:
        """The same file for facts about one job."""
        return Extract(self, fields)

    def _as_left(self) -> bool:
        try:
            return self.path.stat().st_size == self._size
        except OSError:
            return not self._size

    def _opened(self) -> tuple[Head, int]:
        """Where an earlier process stood."""
        try:
            with open(self.path, "rb") as file:
                size = file.seek(0, os.SEEK_END)
                last, whole = _last_line(file, size)
        except FileNotFoundError:
            return Head(), 0
        head = audit.head_of(last) if whole else Head()
        if head is None:
            raise ConfigError(f"{self.path}: its last line is damaged; {_MOVE}")
        if whole < size:
            atomicfile.cut(self.path, whole)
        return head, whole


class Extract:
    """An audit file for facts that have some fields in common."""

    def __init__(self, file: AuditFile, fields: dict[str, Any]) -> None:
        self._file, self._fields = file, fields

    def append(self, facts: Sequence[Fact]) -> None:
        self._file.append([Fact(fact.event, self._fields | fact.fields) for fact in facts])

    def begins(self, parameters: str) -> None:
        """A job that was not submitted is begun, or gone on with, by this process."""
        self.append([Fact("job begins", {"parameters": parameters})])

    def over(self, error: SecfcError | None) -> None:
        """It has ended."""
        state = State.FINISHED if error is None else State.REFUSED if isinstance(error, Refused) else State.FAILED
        self.append([Fact("job over", {"state": state.value, "why": str(error or "")})])
        say(logging.getLogger("secfc"), "the audit file stands", head=self._file.head)


def lines(path: Path) -> Iterator[bytes]:
    """Of a file, each with its end; one that is too long, in parts. Raises OSError."""
    with open(path, "rb") as file:
        while line := file.readline(audit.MOST_BYTES + 1):
            yield line


def verified(path: Path, expected: Head | None = None) -> Found:
    """Check a file from its first line to its last. `expected`: a head that somebody has noted."""
    with limits.telling(f"{path}: cannot be read", "check the path"):
        return audit.verified(lines(path), expected)


def _last_line(file: BinaryIO, size: int) -> tuple[bytes, int]:
    """The last line that has an end, and where it ends; what follows is the beginning of one."""
    begin = max(size - 2 * audit.MOST_BYTES, 0)
    file.seek(begin)
    tail = file.read()
    end = tail.rfind(b"\n") + 1
    return tail[tail.rfind(b"\n", 0, max(end - 1, 0)) + 1 : end], begin + end
