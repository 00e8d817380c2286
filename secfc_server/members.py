"""What the coordinator keeps: where a job stands, what it knows of each client, what each follower has been told."""

from __future__ import annotations

from dataclasses import dataclass, field

from secfc import events
from secfc.events import Phase
from secfc.identifiers import Ids

__all__ = ["Cursor", "Deadlines", "Member", "Phase"]


@dataclass(frozen=True)
class Deadlines:
    """Seconds the server waits before it gives up or asks others."""

    join: float = 600.0
    share: float = 3600.0
    round: float = 300.0
    lost: float = 5.0  # a responder that has been gone for so long is replaced, if others can take its place
    finish: float = 120.0


@dataclass
class Member:
    """What the server knows of one client."""

    introduction: events.Introduction | None = None
    instance: bytes = b""
    connected: bool = False
    seen: float = 0.0  # when it last came, went or sent something
    agreed: events.Agreed | None = None
    held: events.Held | None = None
    coin: bytes = b""
    done: bool = False
    published: Ids | None = None  # which rows are its own, if it says so
    pace: float = 0.0  # smoothed seconds from question to complete upload; the quick are asked first
    uploaded_bytes: int = 0
    broken: dict[str, str] = field(default_factory=dict)
    stopped: str = ""  # why its process went away, if it said so

    @property
    def ready(self) -> bool:
        """Whether it can answer a request."""
        return self.connected and self.held is not None


@dataclass
class Cursor:
    """What one follower has been told."""

    roster: bool = False
    agreements: bool = False
    opened: int = 0
    reveals: bool = False
    version: int = 0
    began: bool = False  # whether it was told the first request
    asked: tuple[int, int] = (0, 0)
    waiting: events.Waiting | None = None
    ended: bool = False
