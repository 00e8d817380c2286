"""What every phase of a client has."""

from __future__ import annotations

from typing import ClassVar

from secfc.errors import JobFailed, OutOfTurn, SecfcError, Unavailable, WrongSender
from secfc.protocol import messages
from secfc.protocol.client.site import Desk, Met
from secfc.protocol.effects import Effects, Send, Worked
from secfc.protocol.messages import Phase
from secfc.protocol.parcels import Parcel
from secfc.protocol.transfer import Sink


class ClientPhase:
    """A phase. Methods that take an input return the phase that follows, or None to stay; what no honest party says
    is raised, and ends the client if the server said it."""

    phase: ClassVar[Phase]

    def __init__(self, desk: Desk, now: float) -> None:
        self.desk, self.since = desk, now

    @property
    def session(self) -> bytes:
        """Of the job; empty before the roster is known."""
        return b""

    @property
    def parting(self) -> bool:
        """Whether it is decided how we end, so that our connection to the server does not matter any more."""
        return False

    def begin(self, now: float, out: Effects) -> ClientPhase | None:
        """The phase is entered."""
        return None

    def told(self, event: messages.Event, now: float, out: Effects) -> ClientPhase | None:
        """The server says something."""
        match event:
            case messages.Waiting():
                return None
            case messages.Failed():
                error = Unavailable if event.again else JobFailed
                what = "the job has stopped" if event.again else "the job has failed"
                return Ended(self.desk, now, error(f"{what}: {event.reason}"), Phase.FAILED)
            case _:
                raise OutOfTurn(f"the server says {type(event).__name__} while the job is in phase {self.phase.value}")

    def sink(self, sender: str, parcel: Parcel) -> Sink | None:
        """Where a parcel goes, of another client or of the server; None if it is not due."""
        return None

    def arrived(self, sender: str, parcel: Parcel, sink: Sink, now: float, out: Effects) -> ClientPhase | None:
        """A parcel is here whole."""
        return None

    def worked(self, given: Worked, now: float, out: Effects) -> ClientPhase | None:
        """Heavy computing is done."""
        if given.error is not None:
            raise given.error
        return None

    def sent(self, send: Send, now: float, out: Effects) -> ClientPhase | None:
        """A message of ours was taken."""
        return None

    def unsent(self, send: Send, error: SecfcError, now: float, out: Effects) -> ClientPhase | None:
        """A message of ours was refused for good."""
        if isinstance(error, OutOfTurn):  # it is not wanted any more
            return None
        raise error

    def tick(self, now: float, out: Effects) -> ClientPhase | None:
        """Time has passed."""
        return None

    def missing(self) -> tuple[str, ...]:
        """Whom we wait for."""
        return ()


class Seated(ClientPhase):
    """A phase after the roster is known."""

    def __init__(self, desk: Desk, now: float, met: Met) -> None:
        super().__init__(desk, now)
        self.met = met

    @property
    def session(self) -> bytes:
        return self.met.session

    def told(self, event: messages.Event, now: float, out: Effects) -> ClientPhase | None:
        match event:
            case messages.Roster():
                if messages.session(self.desk.site.federation.agreed(), event.members) != self.session:
                    raise WrongSender("the server shows another roster than before; it has restarted or is not honest")
                if self.met.scaled is not None:
                    self.desk.report(messages.Scaled(self.met.scaled.digest), now)
                self.again(now, out)
                return None
            case messages.Agreements():
                return None  # told again after a lost connection
            case messages.Scale() if self.met.scaled is not None and self.met.scaled.digest == event.digest:
                return None  # likewise
            case _:
                return super().told(event, now, out)

    def again(self, now: float, out: Effects) -> None:
        """The connection is new: the server may have restarted, and is told once more what it must know."""

    def names(self, numbers: list[int]) -> tuple[str, ...]:
        return tuple(self.desk.site.federation.roster[j] for j in numbers)


class Ended(ClientPhase):
    """The end. `error`: why there is no result; `untold`: the server does not know that we are done."""

    def __init__(self, desk: Desk, now: float, error: SecfcError | None, phase: Phase, *, untold: bool = False) -> None:
        super().__init__(desk, now)
        self.error, self.untold = error, untold
        self.phase = phase  # type: ignore[misc]

    @property
    def parting(self) -> bool:
        return True

    def told(self, event: messages.Event, now: float, out: Effects) -> ClientPhase | None:
        return None

    def worked(self, given: Worked, now: float, out: Effects) -> ClientPhase | None:
        return None

    def unsent(self, send: Send, error: SecfcError, now: float, out: Effects) -> ClientPhase | None:
        return None
