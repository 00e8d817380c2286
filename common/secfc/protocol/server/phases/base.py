"""What every phase of a job has: whom it waits for, what it takes, and what it hands over to."""

from __future__ import annotations

from typing import ClassVar

from secfc.errors import JobFailed, Malformed, OutOfTurn, SecfcError, Unavailable
from secfc.kmeans.coins import Coins
from secfc.privacy.confirming import DISPUTED
from secfc.protocol import messages, start
from secfc.protocol.effects import Arrived, Effects, Worked
from secfc.protocol.messages import Phase
from secfc.protocol.parcels import Parcel
from secfc.protocol.server.asking import Asking
from secfc.protocol.server.job import Met, ServerJob
from secfc.protocol.server.unionsums import UnionSums
from secfc.protocol.transfer import Sink


class JobPhase:
    """A phase. Methods that take an input return the phase that follows, or None to stay; effects go into `out`.

    What a phase knows it has from the phase before; later phases know more: `met` from AGREEING on, `union` from UNION on
    with private membership, `tossed` from CHECKING on, `asking` from ROUNDS on.
    """

    phase: ClassVar[Phase]
    quiet: ClassVar[bool] = False  # whether followers hear of what arrives and is computed only when the phase says so
    met: Met | None = None
    union: UnionSums | None = None
    tossed: Coins | None = None
    asking: Asking | None = None

    def __init__(self, job: ServerJob, now: float, before: JobPhase | None = None) -> None:
        """`before`: the phase that this one takes over from."""
        self.job, self.since = job, now
        if before is not None:
            self.met, self.union, self.tossed, self.asking = before.met, before.union, before.tossed, before.asking

    @property
    def rows(self) -> int:
        """Rows of all clients that have joined; with private membership, once they are counted."""
        if self.job.plan.private:
            return self.union.rows if self.union is not None else 0
        return sum(one.rows for one in self.job.introductions())

    # --- inputs --------------------------------------------------------------------------------------------------------

    def begin(self, now: float, out: Effects) -> JobPhase | None:
        """The phase is entered."""
        return None

    def sink(self, sender: str, parcel: Parcel) -> Sink | None:
        """Where a parcel of this client goes; None if it is not due."""
        return None

    def arrived(self, given: Arrived, sink: Sink, now: float, out: Effects) -> JobPhase | None:
        """A parcel is here whole, maybe once more."""
        return None

    def passed(self, out: Effects) -> None:
        """A piece of a parcel is here, not the last."""

    def refused(self, given: Arrived, error: SecfcError, now: float, out: Effects) -> JobPhase | None:
        """A piece that was due is malformed."""
        raise error

    def worked(self, given: Worked, now: float, out: Effects) -> JobPhase | None:
        """Heavy computing is done."""
        return None

    def connected(self, now: float, out: Effects) -> JobPhase | None:
        """Somebody has come, or is ready now."""
        return None

    def rejoined(self, sender: str, now: float, out: Effects) -> JobPhase | None:
        """Another process of a client has joined: what the last one knew in memory is gone."""
        return None

    def tick(self, now: float, out: Effects) -> JobPhase | None:
        """Time has passed."""
        return None

    def reported(self, sender: str, report: messages.Report, now: float, out: Effects) -> JobPhase | None:
        """A client tells something that means the same in every phase; the rest is refused."""
        match report:
            case messages.Unreachable():
                self._unreachable(sender, report, out)
            case messages.Stopped():
                self._stopped(sender, report, now)
                out.say("a client stopped", level=30, client=sender, reason=report.reason)
            case messages.Refused():
                alike = report.reason == DISPUTED  # all say the same, and who was first says nothing
                return self.fail(JobFailed(report.reason if alike else f"{sender} refuses: {report.reason}"), now)
            case _:
                raise OutOfTurn(f"it is too early or too late for this: the job is in phase {self.phase.value}")
        return None

    def _stopped(self, sender: str, report: messages.Stopped, now: float) -> None:
        member = self.job.members[sender]
        member.connected, member.seen, member.stopped = False, now, report.reason

    def _unreachable(self, sender: str, report: messages.Unreachable, out: Effects) -> None:
        broken = self.job.members[sender].broken
        if report.reason:
            broken[report.peer] = report.reason
            out.say("broken link", level=30, client=sender, peer=report.peer, reason=report.reason)
        elif broken.pop(report.peer, None) is not None:
            out.say("link is back", client=sender, peer=report.peer)

    def _check_agreement(self, sender: str, agreed: messages.Agreed) -> None:
        """Raise unless the client has signed this very session, with a proof for every other client."""
        job, introduction = self.job, self.job.member(sender).introduction
        if introduction is None or self.met is None:
            raise OutOfTurn("there is no session to agree to before everybody has joined")
        job.verify(messages.Agreement(sender, self.met.session, introduction.certificate, agreed.signature))
        if [bool(proof) for proof in agreed.proofs] != [name != sender for name in job.members]:
            raise Malformed("one proof for every other client is due, in roster order")

    # --- reading -------------------------------------------------------------------------------------------------------

    def missing(self) -> tuple[str, ...]:
        """Whom the job waits for now."""
        return ()

    @property
    def short(self) -> bool:
        """Whether a round cannot be asked, because fewer than R clients are ready."""
        return False

    # --- ends ------------------------------------------------------------------------------------------------------------

    def _overdue(self, seconds: float, what: str, now: float) -> JobPhase | None:
        """The end if the phase has taken longer, and somebody is still missing."""
        waited = now - self.since
        if waited <= seconds or not self.missing():  # then it is we who compute
            return None
        late = f"after {waited:.0f} s these {what}: {self.job.named(self.missing())}"
        return self._give_up("; ".join([late, *self.job.broken_links()]), now)

    def _give_up(self, reason: str, now: float) -> JobPhase:
        """A deadline has passed. What was done is kept, by the clients too."""
        return self.fail(Unavailable(f"{reason}; start the server and the clients again to go on"), now)

    def fail(self, error: SecfcError, now: float) -> JobPhase:
        return Failed(self.job, now, self, error)


class Begun(JobPhase):
    """A phase after everybody has signed: a client that comes back signs once more, and says again what it holds."""

    takes_held: ClassVar[bool] = True

    def reported(self, sender: str, report: messages.Report, now: float, out: Effects) -> JobPhase | None:
        match report:
            case messages.Agreed():
                self._check_agreement(sender, report)
                return None
            case messages.Scaled() if report.digest == self.job.scale:  # again, after a lost connection
                self.job.members[sender].scaled = report.digest
                self.job.touch()
                return None
            case messages.Held() if self.takes_held:
                self._take_held(sender, report, out)
                return self.connected(now, out)
            case _:
                return super().reported(sender, report, now, out)

    def _take_held(self, sender: str, report: messages.Held, out: Effects) -> None:
        """A client holds a share of every row. Raises unless they are those of this job and the coin is the promised one."""
        met, member = self.job.meet(), self.job.members[sender]
        names = [one.share_set for one in met.introductions]
        if self.job.scale:
            names = messages.scaled_sets(names, self.job.scale)
        if self.union is not None:
            names = self.union.held(names)
        if report.share_sets_digest != messages.holdings(met.session, names):
            raise Malformed("the share sets you hold are not those of this job; start the client again")
        if member.introduction is None:
            raise OutOfTurn("join first")
        start.check_coin(member.introduction, report.coin)
        if not member.coin:
            out.put(f"coin/{sender}", report.coin)
        member.held, member.coin = report, report.coin


class Failed(JobPhase):
    """The end without a result."""

    phase = Phase.FAILED

    def __init__(self, job: ServerJob, now: float, before: JobPhase, error: SecfcError) -> None:
        super().__init__(job, now, before)
        self.error = error

    def reported(self, sender: str, report: messages.Report, now: float, out: Effects) -> JobPhase | None:
        if isinstance(report, messages.Stopped):  # it stops because we have failed
            self._stopped(sender, report, now)
        return None

    def missing(self) -> tuple[str, ...]:
        return tuple(name for name, member in self.job.members.items() if not member.done)

    def fail(self, error: SecfcError, now: float) -> JobPhase:
        return self
