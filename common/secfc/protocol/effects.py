"""What a machine is given and what it wants done: plain values, carried out by a driver in one order.

A machine has `handle(input, now) -> Effects`. It reads no clock, socket, file or random source of its own and never calls
back. A driver carries effects out in this order, input by input:

    audit  lines of the audit file, on disk before what they tell of is kept or leaves
    keep   on disk, all of it at once, before anything that follows leaves or is shown to anybody
    send   messages to other parties; the link tries until they are taken
    work   heavy computing, on a thread; its result comes back as the input `Worked`
    note   facts for logs and progress

An input that a machine refuses raises and changes nothing, unless the refusal itself has effects: then it is `refusal`, and
the driver raises it to the sender once the rest is carried out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from secfc.coding.blocks import Spool
from secfc.errors import SecfcError
from secfc.protocol.parcels import Body, Parcel

Value = bytes | memoryview


@dataclass(frozen=True)
class Put:
    """Keep this under a key, in place of what is there."""

    key: str
    value: Value = field(repr=False)


@dataclass(frozen=True)
class PutSpool(Put):
    """The same with what a spool has gathered; after that the spool reads from there. Only of who gives spools."""

    value: Value = field(default=b"", repr=False)
    spool: Spool = field(kw_only=True, repr=False)


@dataclass(frozen=True)
class Drop:
    """Forget what is kept under a key."""

    key: str


@dataclass(frozen=True)
class Send:
    """A message to another party. A parcel travels in pieces; anything else is small. `patient`: a receiver that says it is
    too early is asked again; else its word is final."""

    to: str
    message: Any
    body: Body | None = field(default=None, repr=False)
    patient: bool = True


@dataclass(frozen=True)
class Work:
    """Heavy computing. `name` says which in `Worked`."""

    name: tuple[Any, ...]
    run: Callable[[], Any] = field(repr=False)


@dataclass(frozen=True)
class Load:
    """Read what is kept under a key; comes back as `Worked` with the value, or None if there is none. What was a spool may be
    `Packed`."""

    name: tuple[Any, ...]
    key: str


@dataclass(frozen=True)
class Note:
    """A fact for people: one log line."""

    text: str
    level: int = logging.INFO
    fields: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Fact:
    """A line of the audit file: what was asked, decided or given away. Fields are plain values, for JSON."""

    event: str
    fields: dict[str, Any] = field(default_factory=dict)


@dataclass
class Effects:
    """What is to be done after one input."""

    keep: list[Put | Drop] = field(default_factory=list)
    send: list[Send] = field(default_factory=list)
    work: list[Work | Load] = field(default_factory=list)
    note: list[Note] = field(default_factory=list)
    audit: list[Fact] = field(default_factory=list)
    refusal: SecfcError | None = None

    def put(self, key: str, value: Value = b"") -> None:
        self.keep.append(Put(key, value))

    def say(self, text: str, *, level: int = logging.INFO, **fields: Any) -> None:
        self.note.append(Note(text, level, fields))

    def record(self, event: str, **fields: Any) -> None:
        self.audit.append(Fact(event, fields))


# --- inputs that both sides know -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Started:
    """The machine begins, or goes on with what is kept; always the first input."""


@dataclass(frozen=True)
class Tick:
    """Time has passed. Comes about ten times a second."""


@dataclass(frozen=True)
class Arrived:
    """A piece of a parcel from another party. `seconds`: how long it was computed, as its sender says."""

    sender: str
    parcel: Parcel
    offset: int
    total: int
    data: Value = field(repr=False)
    seconds: float = 0.0


@dataclass(frozen=True)
class Worked:
    """Heavy computing is done, or has failed."""

    name: tuple[Any, ...]
    result: Any = None
    error: SecfcError | None = None
    seconds: float = 0.0
