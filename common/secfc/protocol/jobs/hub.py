"""The server's list of submitted jobs as a machine: what each site says of them, which one runs, and how each has ended.

    submitted ─ every site has answered ─▶ waiting, if a person has to approve ─ all allow ─▶ queued ─▶ running ─▶ finished
        └───────────── refused by a site, cancelled by its submitter, expired ◀─────────────┘             └─▶ failed, …

Jobs run one at a time, in the order of their coming; one that waits for a person holds up nobody. Everything is kept before
anybody hears of it, so a server that is killed forgets no job, and a job that has begun goes on and is never begun twice.
A token submits once. The server cannot forge or alter a job (nodes check the signature); what it can do is not to run it.
Time is that of the calendar, in seconds: jobs expire by it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from secfc.agreement.federation import Federation
from secfc.agreement.submission import Submission
from secfc.errors import ConfigError, OutOfTurn, WrongSender
from secfc.protocol.effects import Drop, Effects, Tick
from secfc.protocol.jobs import record
from secfc.protocol.jobs.record import Decision, Record, State, Verdict
from secfc.protocol.messages import line

MOST_OPEN = 64
KEEP_JOBS = 100
_DAMAGED = "the list of jobs is damaged; restore the state folder, or begin with another --state"


@dataclass(frozen=True)
class Submitted:
    """Somebody submits a job."""

    sender: str
    job: Submission


@dataclass(frozen=True)
class Decided:
    """A site says what it thinks of a job."""

    site: str
    digest: bytes
    decision: Decision


@dataclass(frozen=True)
class Cancelled:
    """Its submitter calls a job off, or whoever runs the server."""

    sender: str
    digest: bytes


@dataclass(frozen=True)
class Ended:
    """The job that was running has ended; `result` is what there is to show."""

    digest: bytes
    state: State
    reason: str = ""
    result: bytes = b""


Input = Submitted | Decided | Cancelled | Ended | Tick


class Hub:
    """See the module's docstring."""

    def __init__(
        self,
        federation: Federation,
        verify: Callable[[Submission, float], None],
        *,
        kept: Mapping[str, bytes] | None = None,
        keep_jobs: int = KEEP_JOBS,
    ) -> None:
        """`verify(job, clock)` raises unless the job may be taken; `kept`: what an earlier process was told to keep."""
        self._federation, self._verify, self._keep_jobs = federation, verify, keep_jobs
        try:
            found = [record.parse(value) for key, value in (kept or {}).items() if key.startswith("job/")]
        except (ValueError, KeyError, TypeError):
            raise ConfigError(_DAMAGED) from None
        self.records = {one.digest: one for one in sorted(found, key=lambda one: one.number)}
        self.changes = 0  # grows with everything that somebody may want to know

    # --- looking ---------------------------------------------------------------------------------------------------------

    @property
    def running(self) -> Record | None:
        """The job that runs now."""
        return next((one for one in self.records.values() if one.state is State.RUNNING), None)

    def state(self, one: Record) -> State:
        """Where a job stands, for people."""
        if one.state is not State.SUBMITTED:
            return one.state
        if self.silent(one):
            return State.SUBMITTED
        return State.WAITING if self.pending(one) else State.QUEUED

    def silent(self, one: Record) -> tuple[str, ...]:
        """Sites that have not said anything about a job."""
        return tuple(site for site in one.job.sites(self._federation) if site not in one.decisions)

    def pending(self, one: Record) -> tuple[str, ...]:
        """Sites where a person has to decide."""
        return tuple(site for site, said in one.decisions.items() if said.verdict is Verdict.PENDING)

    def offers(self, site: str) -> list[Record]:
        """The jobs that a site has to know about: those of its own that are not over."""
        return [one for one in self.records.values() if not one.state.over and site in one.job.sites(self._federation)]

    def of_token(self, submitter: str, token: str) -> Record | None:
        """The job that was submitted with a token."""
        mine = (one for one in self.records.values() if (one.job.submitter, one.job.token) == (submitter, token))
        return next(mine, None)

    # --- inputs ----------------------------------------------------------------------------------------------------------

    def handle(self, given: Input, now: float) -> Effects:
        """Take in an input, and say what is to be done. What is refused raises and changes nothing."""
        out = Effects()
        match given:
            case Submitted():
                self._submitted(given, now, out)
            case Decided():
                self._decided(given, now, out)
            case Cancelled():
                self._cancelled(given, now, out)
            case Ended():
                self._ended(given, now, out)
            case Tick():
                for one in list(self.records.values()):
                    if one.state is State.SUBMITTED and one.job.expires <= now:
                        whom = ", ".join((*self.silent(one), *self.pending(one))) or "another job that was running"
                        self._over(one, State.EXPIRED, f"it expired while it waited for {whom}", now, out)
        self._begin_next(now, out)
        return out

    def _submitted(self, given: Submitted, now: float, out: Effects) -> None:
        job = given.job
        if given.sender != job.submitter:
            raise WrongSender(f"the certificate says {given.sender}, the job {line(job.submitter)}")
        self._verify(job, now)
        before = self.of_token(job.submitter, job.token)
        if before is not None:
            if before.job.wanted.digest() != job.wanted.digest():
                raise OutOfTurn(f"this token has submitted another job ({before.job.id}); choose another token")
            return
        if any(one.job.id == job.id for one in self.records.values()):
            raise OutOfTurn("another job has the same first digits; submit it again")
        if sum(not one.state.over for one in self.records.values()) >= MOST_OPEN:
            raise OutOfTurn(f"{MOST_OPEN} jobs are open, which is the most there can be; wait for one, or cancel some")
        number = 1 + max((one.number for one in self.records.values()), default=0)
        self._put(Record(job, number), out)
        out.say("a job was submitted", job=job.id, submitter=job.submitter, dataset=job.wanted.dataset)
        out.record("job submitted", **record.asked(job))

    def _decided(self, given: Decided, now: float, out: Effects) -> None:
        one, said = self._record(given.digest), given.decision
        if given.site not in one.job.sites(self._federation):
            raise WrongSender(f"{given.site} takes no part in this job")
        if one.state.over or one.decisions.get(given.site) == said:
            return
        one = one.decided(given.site, said)
        told: dict[str, Any] = {"site": given.site, "verdict": said.verdict.value, "why": said.why}
        out.say("a site has decided", job=one.job.id, **told)
        out.record("site decided", job=one.digest.hex(), **told)
        if said.verdict is Verdict.REFUSED:
            self._over(one, State.REFUSED, f"{given.site} refuses: {said.why}", now, out)
        else:
            self._put(one, out)

    def _cancelled(self, given: Cancelled, now: float, out: Effects) -> None:
        one = self._record(given.digest)
        if given.sender not in (one.job.submitter, self._federation.server.name):
            raise WrongSender(f"{one.job.submitter} submitted this job; nobody else can cancel it")
        if one.state is State.CANCELLED:
            return
        if one.state.over:
            raise OutOfTurn(f"this job is over already: it is {one.state.value}")
        self._over(one, State.CANCELLED, f"cancelled by {given.sender}", now, out)

    def _ended(self, given: Ended, now: float, out: Effects) -> None:
        one = self._record(given.digest)
        if given.result:
            out.put(f"result/{given.digest.hex()}", given.result)
        if one.state is State.RUNNING:
            self._over(one, given.state, given.reason, now, out)

    def _begin_next(self, now: float, out: Effects) -> None:
        if self.running is None:
            queued = (one for one in self.records.values() if self.state(one) is State.QUEUED)
            if (one := next(queued, None)) is not None:
                self._put(replace(one, state=State.RUNNING, began=int(now)), out)
                out.say("a job begins", job=one.job.id)
                out.record("job begins", job=one.digest.hex())

    # --- records ---------------------------------------------------------------------------------------------------------

    def _record(self, digest: bytes) -> Record:
        return record.find(self.records.values(), digest.hex())

    def _over(self, one: Record, state: State, reason: str, now: float, out: Effects) -> None:
        self._put(one.over(state, line(reason), now), out)
        out.say("a job is over", job=one.job.id, state=state.value, reason=line(reason))
        out.record("job over", job=one.digest.hex(), state=state.value, why=line(reason))
        ended = [known for known in self.records.values() if known.state.over]
        # a token that may still be used stays known: until its job has expired, the same submission would be taken again
        for known in sorted(ended, key=lambda known: known.ended)[: max(len(ended) - self._keep_jobs, 0)]:
            if known.job.expires <= now or len(ended) > 10 * self._keep_jobs:
                del self.records[known.digest]
                out.keep += [Drop(f"job/{known.digest.hex()}"), Drop(f"result/{known.digest.hex()}")]
            else:
                out.keep.append(Drop(f"result/{known.digest.hex()}"))

    def _put(self, one: Record, out: Effects) -> None:
        self.records[one.digest] = one
        self.changes += 1
        out.put(f"job/{one.digest.hex()}", one.dump())
