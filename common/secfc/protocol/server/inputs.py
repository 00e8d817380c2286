"""What the server's machine is told, beside `effects`' own inputs."""

from __future__ import annotations

from dataclasses import dataclass

from secfc.errors import SecfcError
from secfc.protocol import messages
from secfc.protocol.effects import Arrived, Started, Tick, Worked


@dataclass(frozen=True)
class Joined:
    """A client introduces itself."""

    sender: str
    join: messages.Join


@dataclass(frozen=True)
class Followed:
    """A client's process follows the job."""

    sender: str
    instance: bytes


@dataclass(frozen=True)
class Unfollowed:
    """Its stream has ended."""

    sender: str
    instance: bytes


@dataclass(frozen=True)
class Reported:
    """A client tells something in one piece."""

    sender: str
    instance: bytes
    report: messages.Report


@dataclass(frozen=True)
class CalledOff:
    """Somebody calls the job off, or this machine cannot go on with it."""

    error: SecfcError


Input = Started | Tick | Arrived | Worked | Joined | Followed | Unfollowed | Reported | CalledOff
