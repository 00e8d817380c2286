"""What a client's machine is told, beside `effects`' own inputs."""

from __future__ import annotations

from dataclasses import dataclass

from secfc.errors import SecfcError
from secfc.protocol import messages
from secfc.protocol.effects import Arrived, Send, Started, Tick, Worked


@dataclass(frozen=True)
class Linked:
    """The server has let us in, and we follow the job."""


@dataclass(frozen=True)
class Lost:
    """The server cannot be reached, refuses us, or has ended the stream."""

    error: SecfcError


@dataclass(frozen=True)
class Told:
    """The server says something."""

    event: messages.Event


@dataclass(frozen=True)
class Sent:
    """A message was taken by its receiver. `carried`: how many bytes of it went this time; None: all."""

    send: Send
    carried: int | None = None


@dataclass(frozen=True)
class Unsent:
    """A try at a message has failed. `progressed`: some of it has arrived."""

    send: Send
    error: SecfcError
    progressed: bool = False


@dataclass(frozen=True)
class Stop:
    """Our operator ends this process; the same command goes on with the job."""

    reason: str


Input = Started | Tick | Arrived | Worked | Linked | Lost | Told | Sent | Unsent | Stop
