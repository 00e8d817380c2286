"""The server's side of a job as a machine: no sockets, threads, files or clocks; time comes in as a number.

Phases and what moves them (`phases`):

    JOINING   every client of the roster has introduced itself                              → AGREEING
    AGREEING  every client has signed the session that follows from all introductions       → SHARING, or with standard
              scaling SCALING, or with private membership UNION
    SCALING   every client has the same means and deviations, which we do not see           → SHARING, or UNION
    UNION     sums over all clients were opened until every row has its slot                → SHARING
    SHARING   every client holds every other's shares, of the very share sets introduced,
              and has revealed its coin                                                     → CHECKING
    CHECKING  every client's part of the check that all shares fit together is added up     → ROUNDS
    ROUNDS    questions are asked and answered until the assignment repeats                 → FINISHED
    any       a deadline passes, or nothing can go on                                       → FAILED

Invariants: a message from a wrong sender, for another attempt or with a wrong length changes nothing; FINISHED and FAILED
are final; a client whose upload was found wrong is never asked again. What a client needs to know is not queued but derived:
`news` compares what a follower has been told with where the job stands, so a client that reconnects, or was no responder,
catches up by the same code. What `handle` wants kept must be on disk before `news` is asked again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from secfc.agreement.federation import Federation
from secfc.agreement.plan import Plan
from secfc.errors import (
    AlreadyJoined,
    JobFailed,
    Malformed,
    NoSuchJob,
    OutOfTurn,
    SecfcError,
    Unavailable,
    WrongSender,
    told,
)
from secfc.protocol import messages, transfer
from secfc.protocol.effects import Arrived, Effects, Started, Tick, Worked
from secfc.protocol.messages import Phase, line
from secfc.protocol.parcels import Parcel
from secfc.protocol.server import records, resuming
from secfc.protocol.server.attempt import Attempt
from secfc.protocol.server.inputs import CalledOff, Followed, Input, Joined, Reported, Unfollowed
from secfc.protocol.server.job import Deadlines, Member, ServerJob
from secfc.protocol.server.news import Cursor, news, waiting
from secfc.protocol.server.phases.base import Failed, JobPhase
from secfc.protocol.server.phases.finished import Finished
from secfc.protocol.server.phases.opening import Joining
from secfc.protocol.server.snapshot import Snapshot, snapshot
from secfc.protocol.transfer import Here, Sink


class Coordinator:
    """See the module's docstring."""

    def __init__(
        self,
        federation: Federation,
        plan: Plan,
        verify: Callable[[messages.Signed], None],
        *,
        kept: Mapping[str, bytes] | None = None,
        deadlines: Deadlines | None = None,
        now: float = 0.0,
    ) -> None:
        """`kept`: what an earlier process of this server was told to keep. `verify` raises unless a statement is signed by
        the certificate of the client it names."""
        members = {name: Member() for name in federation.roster}
        self.job = ServerJob(federation, plan, verify, deadlines or Deadlines(), members)
        self._kept = dict(kept or {})
        self._phase: JobPhase = Joining(self.job, now)
        self.phase_seconds: dict[str, float] = {}

    @property
    def phase(self) -> Phase:
        """Where the job stands."""
        return self._phase.phase

    @property
    def failure(self) -> SecfcError | None:
        """Why the job has failed, if it has."""
        return self._phase.error if isinstance(self._phase, Failed) else None

    @property
    def ending(self) -> Finished | None:
        """What there is at the end of a job with a result."""
        return self._phase if isinstance(self._phase, Finished) else None

    @property
    def attempt(self) -> Attempt | None:
        """What is asked now."""
        return self._phase.asking.attempt if self._phase.asking is not None else None

    @property
    def changes(self) -> tuple[int, int]:
        """Two numbers: one grows with everything all followers may want to know, one with what only some are told."""
        return self.job.changes, self.job.steps

    def steps(self, sender: str) -> int:
        """How much this client was to be told by now in the current attempt, beside the request."""
        return len(self.attempt.exchange.told(self.job.index(sender))) if self.attempt is not None else 0

    def snapshot(self, now: float) -> Snapshot:
        """All there is to be said about the job."""
        return snapshot(self._phase, self.phase_seconds, now)

    def news(self, sender: str, cursor: Cursor, now: float) -> list[messages.Event]:
        """What this client has not been told yet; moves the cursor."""
        return news(self._phase, sender, cursor, now)

    def waiting(self, sender: str) -> messages.Waiting:
        """Where the job stands, for one client."""
        return waiting(self._phase, sender)

    def progress(self, sender: str, parcel: Parcel) -> int:
        """How many bytes of a client's parcel have arrived; raises OutOfTurn if it is not due."""
        return self._sink(sender, parcel).received

    # --- inputs --------------------------------------------------------------------------------------------------------

    def handle(self, given: Input, now: float) -> Effects:
        """Take in an input, and say what is to be done. What is refused raises and changes nothing."""
        out = Effects()
        following = self._take(given, now, out)
        while following is not None and following is not self._phase:
            self.phase_seconds[self._phase.phase.value] = now - self._phase.since
            self._phase = following
            self.job.touch()
            following = following.begin(now, out)
        return out

    def _take(self, given: Input, now: float, out: Effects) -> JobPhase | None:
        match given:
            case Tick():
                return self._phase.tick(now, out)
            case Arrived():
                return self._arrived(given, now, out)
            case Started():
                kept, self._kept = self._kept, {}
                return resuming.started(self.job, self._phase, kept, now, out)
            case CalledOff():
                return self._phase.fail(given.error, now)
            case Worked() if self._phase.quiet:
                return self._worked(given, now, out)
            case _:
                following = self._told(given, now, out)
                self.job.touch()
                return following

    def _told(
        self, given: Joined | Followed | Unfollowed | Reported | Worked, now: float, out: Effects
    ) -> JobPhase | None:
        match given:
            case Joined():
                return self._joined(given.sender, given.join, now, out)
            case Followed():
                if not self.job.member(given.sender).instance:  # it may have joined a process of ours that is gone
                    raise Unavailable("the server knows of no process of yours; join once more")
                member = self.job.process(given.sender, given.instance)
                member.connected, member.seen = True, now
                return self._phase.connected(now, out)
            case Unfollowed():
                member = self.job.member(given.sender)
                if member.instance == given.instance:
                    member.connected, member.seen = False, now
            case Reported():
                self.job.process(given.sender, given.instance)
                if isinstance(given.report, messages.Unreachable) and given.report.peer not in self.job.members:
                    raise Malformed("the unreachable client is not in the roster")
                return self._phase.reported(given.sender, given.report, now, out)
            case Worked():
                return self._worked(given, now, out)
        return None

    def _worked(self, given: Worked, now: float, out: Effects) -> JobPhase | None:
        if given.error is not None:
            return self._phase.fail(given.error, now)
        try:
            return self._phase.worked(given, now, out)
        except SecfcError as error:  # what was found cannot be
            return self._phase.fail(error, now)

    def _joined(self, sender: str, join: messages.Join, now: float, out: Effects) -> JobPhase | None:
        member, introduction = self.job.member(sender), join.introduction
        if introduction.name != sender:
            raise WrongSender(f"the certificate says {sender}, the introduction {line(introduction.name)}")
        if join.agreed != self.job.federation.agreed():
            raise OutOfTurn("your federation.toml differs from the server's; give every party the same file")
        if member.introduction and member.instance != join.instance and member.connected:
            raise AlreadyJoined(f"another process has joined as {sender} and is alive; stop it first")
        self.job.verify(introduction)
        if self.failure is not None:  # whoever comes too late keeps trying if the server, started again, will go on
            again = isinstance(self.failure, Unavailable)
            raise (Unavailable if again else JobFailed)(told(self.failure))
        if isinstance(self._phase, Joining):
            if join.begun:
                raise NoSuchJob("a new job begins here, and your secrets belong to an earlier one")
            self._phase.joined(sender, introduction)
        elif member.introduction is None or not self._same(member.introduction, introduction):
            if member.done:
                raise OutOfTurn(f"this job is finished and {sender} has its labels; a new one needs secfc-server --new")
            raise OutOfTurn(f"the job has begun with other shares of {sender}; a new job needs secfc-server --new")
        if self.job.accepting(sender, join.committee) and not isinstance(self._phase, Joining):
            out.put(f"committee/{sender}", records.names_to(member.committee))
        again = member.instance not in (b"", join.instance)
        if member.instance != join.instance:
            member.held, member.scaled = None, b""  # a new process tells by itself what it holds
        member.introduction, member.instance, member.seen, member.stopped = introduction, join.instance, now, ""
        if again:
            return self._phase.rejoined(sender, now, out)
        return self._phase.connected(now, out) if isinstance(self._phase, Joining) else None

    def _same(self, one: messages.Introduction, other: messages.Introduction) -> bool:
        digest = self.job.federation.agreed()
        return one.statement(digest) == other.statement(digest)

    def _arrived(self, given: Arrived, now: float, out: Effects) -> JobPhase | None:
        sink, member = self._sink(given.sender, given.parcel), self.job.member(given.sender)
        if isinstance(sink, Here):
            return None
        before = sink.received
        try:
            whole = transfer.take(sink, given)
        except Malformed as error:
            return self._phase.refused(given, error, now, out)
        member.seen = now
        if given.total and sink.received == before:
            return None
        if not whole:
            self._phase.passed(out)
            return None
        if not self._phase.quiet:
            self.job.touch()
        return self._phase.arrived(given, sink, now, out)

    def _sink(self, sender: str, parcel: Parcel) -> Sink:
        self.job.member(sender)
        if self._phase.met is not None and parcel.session != self._phase.met.session:
            raise OutOfTurn("this belongs to another job; follow this one for what is due")
        sink = self._phase.sink(sender, parcel)
        if sink is None:
            raise OutOfTurn("this is not due; follow the job for what is")
        return sink
