"""What both halves of a request have in common: conversations by chunk, and the messages they wait for.

A half takes messages and returns messages. It begins conversations in order, at most WINDOW at a time, so that it holds a few
chunks whatever the number of rows; who drives it calls `work` whenever it has room to send more.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from secfc.errors import Malformed, OutOfTurn
from secfc.privacy.sealed.context import Context
from secfc.privacy.sealed.messages import SERVER, Kind, Message, Said, Talk, Wait
from secfc.privacy.sealed.questions import Asked, Lloyd
from secfc.privacy.sealed.sides import Side
from secfc.privacy.sealed.streams import Bytes
from secfc.privacy.sealed.terms import Terms

WINDOW = 4
Name = tuple[int, int, int, Kind]


@dataclass
class _Conversation:
    side: Side
    talk: Talk[object]
    wait: Wait | None = None
    name: Name | None = None
    mail: dict[Name, dict[int, Bytes]] = field(default_factory=dict, repr=False)

    def awaited(self) -> list[int]:
        """Whose messages are not here."""
        if self.wait is None or self.name is None:
            return []
        there = self.mail.get(self.name, {})
        return [sender for sender in self.wait.senders if sender not in there]


class Half(ABC):
    """One party's part in one attempt at one question."""

    _senders: frozenset[Kind]  # kinds of messages that this half takes

    def __init__(self, terms: Terms, question: Asked, context: Context) -> None:
        if context.leader is None:
            raise OutOfTurn("no responder is a member of the committee, so nobody adds the pad")
        if len(context.committee) != terms.members:
            raise OutOfTurn(f"a committee of {terms.members} is needed, not {len(context.committee)}")
        self.terms, self.question, self.context = terms, question, context
        self._round = question.round(terms) if isinstance(question, Lloyd) else None
        self.chunks = self._round.chunks() if self._round else [(0, terms.rows)]
        self._running: dict[int, _Conversation] = {}
        self._early: dict[int, dict[Name, dict[int, Bytes]]] = {}
        self._begun = 0
        self._over = 0

    @property
    def room(self) -> bool:
        """Whether `work` can begin the next conversation."""
        pending = self._begun < len(self.chunks) and len(self._running) < WINDOW
        return pending and self._ready(self.chunks[self._begun][1])

    @property
    def done(self) -> bool:
        """Whether everything has been said."""
        return self._over == len(self.chunks)

    def goes_on(self, mail: Sequence[tuple[int, Message]]) -> bool:
        """Whether a conversation has all it waits for once these senders' messages are taken."""
        found: dict[Name, set[int]] = {}
        for sender, message in mail:
            found.setdefault(message.name, set()).add(sender)
        waits = [(one.name, one.wait, one.mail) for one in self._running.values()]
        return any(
            name in found and found[name] | set(there.get(name, ())) >= set(wait.senders)
            for name, wait, there in waits
            if name is not None and wait is not None
        )

    def unread(self, sender: int) -> int:
        """Bytes of a sender's messages that no conversation has taken yet."""
        boxes = [*(one.mail for one in self._running.values()), *self._early.values()]
        return sum(len(there[sender]) for box in boxes for there in box.values() if sender in there)

    def awaited(self) -> set[int]:
        """Whose messages conversations wait for."""
        return {sender for one in self._running.values() for sender in one.awaited()}

    def begin(self) -> list[Said]:
        """Begin as many conversations as may run together."""
        out = []
        for _ in range(WINDOW):
            out += self.work()
        return out

    def work(self) -> list[Said]:
        """Begin the next conversation, if one can begin now."""
        if not self.room:
            return []
        chunk = self._begun
        self._begun += 1
        side, talk = self._start(chunk)
        conversation = _Conversation(side, talk, mail=self._early.pop(chunk, {}))
        self._running[chunk] = conversation
        return self._advance(chunk, conversation, None)

    def _take(self, sender: int, message: Message) -> list[Said]:
        """Put a message where it belongs, and go on."""
        if message.kind not in self._senders or not 0 <= message.chunk < len(self.chunks):
            raise OutOfTurn(f"no message of kind {message.kind.value} for chunk {message.chunk} is due")
        conversation = self._running.get(message.chunk)
        if conversation is None:
            if message.chunk < self._begun:
                return []  # of a conversation that is over: said again
            self._early.setdefault(message.chunk, {}).setdefault(message.name, {})[sender] = _writable(message.data)
            return []
        conversation.mail.setdefault(message.name, {})[sender] = _writable(message.data)
        out = self._resume(message.chunk, conversation)
        return out + self.work()

    def _resume(self, chunk: int, conversation: _Conversation) -> list[Said]:
        data = self._collected(conversation)
        return [] if data is None else self._advance(chunk, conversation, data)

    def _advance(self, chunk: int, conversation: _Conversation, data: list[Bytes] | None) -> list[Said]:
        while True:
            try:
                conversation.wait = next(conversation.talk) if data is None else conversation.talk.send(data)
            except StopIteration as end:
                del self._running[chunk]
                self._over += 1
                self._finish(chunk, end.value)
                return self._said(conversation)
            line = conversation.side.line
            conversation.name = (chunk, line.stage, line.step, conversation.wait.kind)
            data = self._collected(conversation)
            if data is None:
                return self._said(conversation)

    @staticmethod
    def _said(conversation: _Conversation) -> list[Said]:
        said, conversation.side.out = conversation.side.out, []
        return said

    @staticmethod
    def _collected(conversation: _Conversation) -> list[Bytes] | None:
        """What is waited for, checked, once all of it is here."""
        wait, name = conversation.wait, conversation.name
        if wait is None or name is None or conversation.awaited():
            return None
        there = conversation.mail.get(name, {})
        for sender in wait.senders:
            _check(wait, sender, there)
        del conversation.mail[name]
        return [there[sender] for sender in wait.senders]

    @abstractmethod
    def _ready(self, rows: int) -> bool:
        """Whether a conversation about the first so many rows can begin."""

    @abstractmethod
    def _start(self, chunk: int) -> tuple[Side, Talk[object]]:
        """This party's side and script of a chunk."""

    @abstractmethod
    def _finish(self, chunk: int, result: object) -> None:
        """A script has ended."""

    def __repr__(self) -> str:
        kind = type(self.question).__name__
        return (
            f"{type(self).__name__}({kind}, request {self.context.request}, {self._over} of {len(self.chunks)} chunks)"
        )


def _check(wait: Wait, sender: int, there: dict[int, Bytes]) -> None:
    """Raise Malformed, and forget the message, unless it has the length and range that are due."""
    part, who = there[sender], "the server" if sender == SERVER else f"member {sender + 1}"
    if len(part) != wait.size:
        del there[sender]
        raise Malformed(f"{wait.size} bytes of {wait.kind.value} are due from {who}, not {len(part)}")
    if wait.below < 256 and len(part) and int(part.max()) >= wait.below:
        del there[sender]
        raise Malformed(f"a value of {wait.kind.value} from {who} is not below {wait.below}")


def _writable(data: Bytes) -> Bytes:
    """What kernels take: contiguous bytes of our own if those of a received message are read-only."""
    array = np.ascontiguousarray(data, dtype=np.uint8).reshape(-1)
    return array if array.flags.writeable else array.copy()
