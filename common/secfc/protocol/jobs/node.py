"""A site's view of submitted jobs as a machine: which it has seen, what it says of each, and what it is running.

The server offers jobs; nothing it says is believed but the submitter's signature, which is checked here. What the site says
is decided by its own rules (`judge`) or by a person at the site, kept before the server hears of it, and never changed by the
server. A job begins here only if the site itself has allowed that very job, and only once: what has ended is remembered, with
the token, for as long as the signature is good. Time is that of the calendar, in seconds.

The server is told by comparing: every offer says which decision of ours it knows, and if that is not what we have decided, it
is told again (`Send`). So nothing has to be queued, and whoever restarts is told.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from secfc.agreement.allowing import PENDING_HOURS
from secfc.agreement.federation import SERVER, Federation
from secfc.agreement.submission import Submission
from secfc.errors import ConfigError, Malformed, OutOfTurn, PeerError, Unavailable
from secfc.protocol.effects import Drop, Effects, Send, Tick
from secfc.protocol.jobs import record
from secfc.protocol.jobs.record import Decision, Record, State, Verdict, asked

KEEP_JOBS = 100
MOST_KNOWN = 10_000
MOST_STRANGE = (
    100  # jobs that are not taken, and that the audit file of one process names: a server may make up any number
)
_PERSON = "approved by "
_DAMAGED = "what is kept there about jobs is damaged; restore the state folder, or begin with another --state"


@dataclass(frozen=True)
class Offer:
    """A job as the server offers it: whether it is to run now, and which decision of ours the server knows."""

    job: Submission
    running: bool
    known: Decision | None


@dataclass(frozen=True)
class Offered:
    """All the jobs that the server has for us now."""

    offers: Sequence[Offer]


@dataclass(frozen=True)
class Approved:
    """A person at this site allows a job."""

    digest: bytes
    who: str


@dataclass(frozen=True)
class Refused:
    """A person at this site, or the site's own data, refuses a job."""

    digest: bytes
    why: str


@dataclass(frozen=True)
class Ended:
    """The job that ran here is over for us."""

    digest: bytes
    state: State
    reason: str = ""


Input = Offered | Approved | Refused | Ended | Tick


@dataclass(frozen=True)
class Decide:
    """What the server is to be told."""

    digest: bytes
    decision: Decision


class Node:
    """See the module's docstring."""

    def __init__(
        self,
        name: str,
        federation: Federation,
        verify: Callable[[Submission, float], None],
        judge: Callable[[Submission], Decision],
        *,
        kept: Mapping[str, bytes] | None = None,
        pending_hours: float = PENDING_HOURS,
        keep_jobs: int = KEEP_JOBS,
    ) -> None:
        """`verify(job, clock)` raises unless the job is authentic and for us, now; `judge(job)` is what the site's rules say:
        it must not look at rows."""
        self._name, self._federation, self._verify, self._judge = name, federation, verify, judge
        self._pending_seconds, self._keep_jobs = pending_hours * 3600, keep_jobs
        try:
            found = [record.parse(value) for key, value in (kept or {}).items() if key.startswith("job/")]
        except (ValueError, KeyError, TypeError):
            raise ConfigError(_DAMAGED) from None
        self.records = {one.digest: one for one in sorted(found, key=lambda one: one.number)}
        self.due: bytes | None = None  # the job that the server wants to run now, and that we have allowed
        self._strange: set[bytes] = set()
        self._unclear: dict[bytes, str] = {}  # jobs of the last offer that cannot be judged yet, and why

    # --- looking ---------------------------------------------------------------------------------------------------------

    def decision(self, one: Record) -> Decision:
        """What this site says of a job."""
        return one.decisions[self._name]

    @property
    def forgettable(self) -> list[Record]:
        """Jobs that are over, whose files go: all but the last few."""
        ended = sorted((one for one in self.records.values() if one.state.over), key=lambda one: one.ended)
        return ended[: max(len(ended) - self._keep_jobs, 0)]

    # --- inputs ----------------------------------------------------------------------------------------------------------

    def handle(self, given: Input, now: float) -> Effects:
        """Take in an input, and say what is to be done. What is refused raises and changes nothing."""
        out = Effects()
        match given:
            case Offered():
                self._offered(given.offers, now, out)
            case Approved():
                one = self._waiting(given.digest)
                self._decide(one, Decision(Verdict.ALLOWED, _PERSON + given.who), out)
                out.record("job approved", job=one.digest.hex(), by=given.who)
            case Refused():
                one = self._open(given.digest)
                self._refuse(one, given.why, State.REFUSED, now, out)
            case Ended():
                one = self._record(given.digest)
                if not one.state.over:
                    self._put(self._over(one, given.state, given.reason, now, out), out)
                    out.say("the job is over", job=one.job.id, state=given.state.value, reason=given.reason)
                if self.due == given.digest:
                    self.due = None
            case Tick():
                self._time_passes(now, out)
        return out

    def _offered(self, offers: Sequence[Offer], now: float, out: Effects) -> None:
        self.due = None
        before, self._unclear = self._unclear, {}
        for offer in offers:
            try:
                self._look(offer, now, out)
            except PeerError as error:  # forged, altered, replayed or expired: never begun, and the server hears why
                said = Decision(Verdict.REFUSED, str(error))
                if offer.known != said:
                    out.say("a job is not taken", job=offer.job.id, reason=str(error))
                    self._note_strange(offer.job.digest, str(error), out)
                    out.send.append(Send(SERVER, Decide(offer.job.digest, said)))
            except Unavailable as error:  # a newer roster may put it right: it is looked at again with the next offer
                self._unclear[offer.job.digest] = str(error)
                if before.get(offer.job.digest) != str(error):
                    out.say("a job waits here", level=logging.WARNING, job=offer.job.id, reason=str(error))
        there = {offer.job.digest for offer in offers}
        for one in list(self.records.values()):
            if not one.state.over and one.digest not in there and one.state is not State.RUNNING:
                self._put(self._over(one, State.CANCELLED, "the server offers it no more", now, out), out)

    def _note_strange(self, digest: bytes, why: str, out: Effects) -> None:
        if digest not in self.records and digest not in self._strange and len(self._strange) < MOST_STRANGE:
            self._strange.add(digest)
            out.record("job not taken", job=digest.hex(), why=why)

    def _look(self, offer: Offer, now: float, out: Effects) -> None:
        one = self.records.get(offer.job.digest)
        if one is None:
            one = self._meet(offer.job, now, out)
        if one.state.over and one.state in (State.FINISHED, State.FAILED):
            return  # others may still be busy with it
        if one.state.over:
            raise OutOfTurn(one.reason)
        said = self.decision(one)
        if said != offer.known:
            out.send.append(Send(SERVER, Decide(one.digest, said)))
        if offer.running and said.verdict is Verdict.ALLOWED:
            self._begin(one, now, out)

    def _meet(self, job: Submission, now: float, out: Effects) -> Record:
        """A job that we have not seen before."""
        self._verify(job, now)
        if self._name not in job.sites(self._federation):
            raise Malformed("this site takes no part in the job")
        for other in self.records.values():
            if (other.job.submitter, other.job.token) == (job.submitter, job.token):
                raise OutOfTurn(f"this token has submitted a job before ({other.job.id})")
            if other.job.id == job.id:
                raise OutOfTurn("another job has the same first digits; submit it again")
        if len(self.records) >= MOST_KNOWN:
            raise OutOfTurn("this site remembers as many jobs as it can; wait until some have expired")
        number = 1 + max((one.number for one in self.records.values()), default=0)
        said = self._judge(job)
        one = Record(job, number, decisions={self._name: said}, began=int(now))
        out.say("a job was offered", job=job.id, submitter=job.submitter, verdict=said.verdict.value, why=said.why)
        out.record("job offered", **asked(job), verdict=said.verdict.value, why=said.why)
        if said.verdict is Verdict.REFUSED:
            one = self._over(one, State.REFUSED, said.why, now, out)
        return self._put(one, out)

    def _begin(self, one: Record, now: float, out: Effects) -> None:
        """The server says that all sites allow it, and it runs: so does ours, if it may still. What has begun goes on."""
        if one.state is not State.RUNNING:
            if one.job.expires <= now:
                raise OutOfTurn("the job has expired; submit it again")
            again = self._judge(one.job)  # rules and what was given away may have changed since
            person = self.decision(one).why.startswith(
                _PERSON
            )  # who decides instead of rules, never of the site's limits
            if again.verdict is Verdict.REFUSED or (again.verdict is Verdict.PENDING and not person):
                self._refuse(one, f"it is no longer allowed: {again.why}", State.REFUSED, now, out)
                return
            one = self._put(replace(one, state=State.RUNNING), out)
            out.record("job begins", job=one.digest.hex())
        self.due = one.digest

    def _time_passes(self, now: float, out: Effects) -> None:
        for one in list(self.records.values()):
            pending = one.state is State.SUBMITTED and self.decision(one).verdict is Verdict.PENDING
            if pending and one.began + self._pending_seconds <= now:
                hours = f"{self._pending_seconds / 3600:g}"
                self._refuse(one, f"nobody there decided within {hours} hours", State.EXPIRED, now, out)
            if one in self.forgettable and one.job.expires <= now:
                del self.records[one.digest]
                out.keep.append(Drop(f"job/{one.digest.hex()}"))

    # --- records ---------------------------------------------------------------------------------------------------------

    def _record(self, digest: bytes) -> Record:
        return record.find(self.records.values(), digest.hex())

    def _open(self, digest: bytes) -> Record:
        one = self._record(digest)
        if one.state.over:
            raise OutOfTurn(f"job {one.job.id} is over already: it is {one.state.value}")
        return one

    def _waiting(self, digest: bytes) -> Record:
        one = self._open(digest)
        if self.decision(one).verdict is not Verdict.PENDING:
            raise OutOfTurn(f"job {one.job.id} does not wait for a decision: {self.decision(one).why}")
        return one

    def _decide(self, one: Record, said: Decision, out: Effects) -> None:
        self._put(one.decided(self._name, said), out)
        out.send.append(Send(SERVER, Decide(one.digest, said)))
        out.say("decided", job=one.job.id, verdict=said.verdict.value, why=said.why)

    def _refuse(self, one: Record, why: str, state: State, now: float, out: Effects) -> None:
        self._decide(self._over(one, state, why, now, out), Decision(Verdict.REFUSED, why), out)
        if self.due == one.digest:
            self.due = None

    def _over(self, one: Record, state: State, reason: str, now: float, out: Effects) -> Record:
        out.record("job over", job=one.digest.hex(), state=state.value, why=reason)
        return one.over(state, reason, now)

    def _put(self, one: Record, out: Effects) -> Record:
        self.records[one.digest] = one
        out.put(f"job/{one.digest.hex()}", one.dump())
        return one
