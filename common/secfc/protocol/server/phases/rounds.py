"""ROUNDS: questions are asked, gathered and answered until the assignment repeats."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from secfc.errors import JobFailed, SecfcError
from secfc.kmeans.lloyd import State
from secfc.privacy.leakage import Leakage
from secfc.protocol import messages
from secfc.protocol.effects import Arrived, Effects, Work, Worked
from secfc.protocol.messages import Phase
from secfc.protocol.parcels import Parcel
from secfc.protocol.rounds.kinds import Lies, Void
from secfc.protocol.server import records
from secfc.protocol.server.asking import Asking, RequestRecord, Solved
from secfc.protocol.server.job import ServerJob
from secfc.protocol.server.phases.base import Begun, JobPhase
from secfc.protocol.server.phases.finished import Finished
from secfc.protocol.transfer import Sink

SLOWER = 5.0  # a responder so many times slower than the others is replaced, if others can take its place
REPLACED = 2  # times that a client is replaced in one request; after that it takes nobody's place, and is waited for
DISAGREEMENTS = 5  # committees in a row that do not get one key, until the job fails
ATTEMPTS_PER_START = 1 << 16  # attempts of one process of the server are numbered in a range of their own


class RoundsPhase(Begun):
    """Asking until the clustering is done."""

    phase = Phase.ROUNDS
    quiet = True

    def __init__(self, job: ServerJob, now: float, before: JobPhase, states: Mapping[int, State] | None = None) -> None:
        """`states`: where the runs of an earlier process of the server stood."""
        super().__init__(job, now, before)
        met = job.meet()
        if self.tossed is None:
            self.tossed = job.tossed(met)
        runs = job.runs(self.rows, job.coins(self.tossed))
        self._first = runs.questions
        if states is not None:
            runs.resume(states)
        share_sets, leakage = job.carried or (b"", None)
        told = leakage if share_sets == met.share_sets else None
        before_us = (job.starts - 1) * ATTEMPTS_PER_START
        self._session = met.session
        self._asking = self.asking = Asking(
            job.plan,
            runs,
            session=met.session,
            attempts_before=before_us,
            leakage=told,
            frozen=job.federation.job.source.encode(),
        )
        self._replaced = Counter[str]()  # how often others have taken a client's place, for the current question
        self._blamed: set[str] = set()  # members that others have replaced on the committee, for the current question
        self._disagreed = 0  # committees in a row that did not get one key
        self._short_since: float | None = None  # when too few clients were ready, for the first time in this round

    def begin(self, now: float, out: Effects) -> JobPhase | None:
        if self._asking.done:
            return Finished(self.job, now, self)
        return self._ask(now)

    def connected(self, now: float, out: Effects) -> JobPhase | None:
        return self._ask(now) if self.short else None

    def rejoined(self, sender: str, now: float, out: Effects) -> JobPhase | None:
        unwanted = {name for name in self._comparing() if name not in self.job.accepted}  # its policy may be a new one
        for name in {sender, *unwanted}:
            self._asking.lost(self.job.index(name))
        return self._ask(now) if self._asking.void and not self._asking.working else None

    # --- asking ----------------------------------------------------------------------------------------------------------

    def _ask(self, now: float) -> JobPhase | None:
        job = self.job
        names, comparing = self._ready(), self._comparing()
        names.sort(key=lambda name: (name not in comparing, self._replaced[name], job.members[name].pace))
        compare = [name for name in names if name in job.accepted][: job.comparing]
        enough = len(compare) == job.comparing
        job.touch()
        live = [*compare, *(name for name in names if name not in compare)] if enough else []
        if self._asking.ask([job.index(name) for name in live], now, len(job.liars)):
            return None
        return self._too_few(now, f"{job.plan.asked(len(job.liars))[0]} clients" if enough else self._whom_all_accept())

    def _ready(self) -> list[str]:
        job = self.job
        return [name for name, member in job.members.items() if member.ready and name not in job.liars]

    def _comparing(self) -> set[str]:
        return {self.job.names[j] for j in self._asking.committee}

    def _whom_all_accept(self) -> str:
        return (
            f"{self.job.comparing} of those whom every site accepts on the committee ({', '.join(self.job.accepted)})"
        )

    def _too_few(self, now: float, need: str) -> JobPhase | None:
        """A deadline for the whole round, so that a client that comes and goes cannot make it last for ever."""
        if self._short_since is None:
            self._short_since = now
        short = now - self._short_since
        if short <= self.job.deadlines.round:
            return None
        return self._give_up(
            f"after {short:.0f} s fewer than {need} are ready; missing: {self.job.named(self.missing())}", now
        )

    @property
    def short(self) -> bool:
        return self._asking.attempt is None and not self._asking.working

    def missing(self) -> tuple[str, ...]:
        names, attempt = self.job.names, self._asking.attempt
        if attempt is not None:
            return tuple(names[j] for j in attempt.exchange.missing())
        return tuple(name for name in names if not self.job.members[name].ready and name not in self.job.liars)

    def tick(self, now: float, out: Effects) -> JobPhase | None:
        attempt = self._asking.attempt
        if self._asking.working:
            return None
        if attempt is None:
            return self._ask(now)
        names, members, limits = self.job.names, self.job.members, self.job.deadlines
        late = [names[j] for j in attempt.exchange.missing()]
        ready, least = self._ready(), self.job.plan.asked(len(self.job.liars))[0]
        gone = [n for n in late if not members[n].connected and now - members[n].seen > limits.lost]
        gone = [n for n in gone if self._replaced[n] < REPLACED or len(ready) < least]
        comparing = set(late) <= self._comparing()
        waited = now - (attempt.went_on if comparing else attempt.started)  # what nobody can use buys no time
        quick = [n for n in ready if n not in late and self._replaced[n] < REPLACED]
        accepted = len(set(quick) & set(self.job.accepted)) >= self.job.comparing
        replaceable = accepted and len(quick) >= least
        if waited > limits.round and not replaceable:
            return self._unanswered(attempt.question.number, late, now)
        patience = self._members_patience(quick) if comparing else self._patience(quick)
        if gone or (waited > patience and (replaceable or (comparing and self._other_committee(late)))):
            self._replaced.update(late)
            self._put_last(late, waited)
            return self._ask(now)
        return None

    def _unanswered(self, number: int, late: Sequence[str], now: float) -> JobPhase:
        before = [name for name in self.job.names if self._replaced[name] and name not in late]
        earlier = f" (nor, when they were asked, from: {', '.join(before)})" if before else ""
        return self._give_up(f"no answer to request {number} from: {', '.join(late)}{earlier}", now)

    def _patience(self, quick: Sequence[str]) -> float:
        """How long a round may hang on a client that is connected but silent (frozen, swapping, cut off without a word)."""
        limits, paces = self.job.deadlines, [self.job.members[name].pace for name in quick]
        return min(max(limits.lost, SLOWER * max(paces, default=0.0)), limits.round)

    def _members_patience(self, quick: Sequence[str]) -> float:
        """The same while only members are waited for. What they are dealt may take long on a slow line, which cannot be seen
        from here, and another committee begins from the start: so patience grows with every attempt."""
        most = self.job.deadlines.round
        return min(max(self._patience(quick), most / 10) * 2.0 ** (self._asking.tries - 1), most)

    def _put_last(self, names: Sequence[str], waited: float) -> None:
        """Whoever kept us waiting is asked last from now on, and is on no committee if others can be."""
        for name in names:
            member = self.job.members[name]
            member.pace = max(member.pace, waited)
            self._asking.lost(self.job.index(name))

    def _other_committee(self, late: Sequence[str]) -> bool:
        """Whether others can compare in place of members that do not get on, e.g. because they cannot reach each other: they
        may still be able to respond. Each is replaced once per question, so that this comes to an end."""
        slow = (self._comparing() & set(late)) - self._blamed
        others = set(self._ready()) & set(self.job.accepted) - self._blamed - slow
        if not slow or len(others) < self.job.comparing:
            return False
        self._blamed |= slow
        return True

    # --- answers -----------------------------------------------------------------------------------------------------------

    def sink(self, sender: str, parcel: Parcel) -> Sink | None:
        return self._asking.sink(self.job.index(sender), parcel)

    def arrived(self, given: Arrived, sink: Sink, now: float, out: Effects) -> JobPhase | None:
        member, client = self.job.members[given.sender], self.job.index(given.sender)
        member.uploaded_bytes += given.total
        if (taken := self._asking.arrived(client, given.parcel, given.seconds, now)) is not None:
            member.pace = (member.pace + taken) / 2 if member.pace else taken
        self._work(out)
        return None

    def passed(self, out: Effects) -> None:
        self._work(out)

    def _work(self, out: Effects) -> None:
        """What can be computed with what is here."""
        if (due := self._asking.due()) is not None:
            out.work.append(Work(*due))

    def refused(self, given: Arrived, error: SecfcError, now: float, out: Effects) -> JobPhase | None:
        """One that sends what cannot be an upload is a liar, if the plan allows for one more; else it counts as lost. What
        does not come in its turn may be an accident: a stream that was cut goes on at the wrong place."""
        sink = self.sink(given.sender, given.parcel)
        in_turn = sink is not None and sink.received == given.offset
        if not in_turn or self.job.suspects([given.sender]) == self.job.liars:
            raise error
        out.refusal = error
        return self._leave_out([given.sender], now, out)

    def worked(self, given: Worked, now: float, out: Effects) -> JobPhase | None:
        attempt, found = self._asking.attempt, given.result
        moved = tuple(attempt.questions) if attempt is not None else ()
        if attempt is None or given.name != ("round", *attempt.name) or not isinstance(found, Solved):
            return None
        before = self._asking.leakage
        match self._asking.worked(found, given.seconds, now):
            case None if self._asking.void:
                return self._ask(now)
            case None:
                self.job.steps += 1
                self._work(out)
            case Void(clients, reason):
                return self._disagree([self.job.names[j] for j in clients], reason, now, out)
            case Lies(clients):
                return self._lied([self.job.names[j] for j in clients], now, out)
            case record:
                return self._advance(record, moved, now, out, None if found.leakage is before else found.leakage)
        return None

    def _advance(
        self, record: RequestRecord, moved: Sequence[int], now: float, out: Effects, leakage: Leakage | None
    ) -> JobPhase | None:
        for run in moved:
            out.put(f"state/{run:05d}", records.state_to(self._asking.runs.all[run].state()))
        out.put(f"record/{record.number:09d}", records.record_to(record))
        if leakage is not None:
            out.put("leakage", self.job.meet().share_sets + leakage.to_bytes())
        given = self._asking.given(self.job.federation.job)
        fields = {"request": record.number, "step": record.step, "attempts": record.attempts}
        fields |= {"responders": [self.job.names[j] for j in record.responders], "directions": record.directions}
        out.record("request answered", **fields, assignments=given.assignments, inertias=given.inertias)
        self._short_since, self._disagreed = None, 0
        self._replaced.clear()
        self._blamed.clear()
        self.job.touch()
        return Finished(self.job, now, self) if self._asking.done else self._ask(now)

    def _disagree(self, names: Sequence[str], reason: str, now: float, out: Effects) -> JobPhase | None:
        """Another committee; but not for ever, since somebody may see to it that none gets on."""
        self._disagreed += 1
        text = f"{', '.join(names)}: {reason}"
        if self._disagreed >= DISAGREEMENTS:
            return self.fail(JobFailed(f"{text}, {self._disagreed} times in a row; start a new job without them"), now)
        out.say("another committee is needed", level=30, reason=text)
        self._put_last(names, self.job.deadlines.lost)
        return self._ask(now)

    def _lied(self, liars: Sequence[str], now: float, out: Effects) -> JobPhase | None:
        if not set(liars) <= set(self.job.suspects(liars)):  # others were left out while the work was done
            return self.fail(
                JobFailed(f"more clients send wrong distances than liars = {self.job.plan.wishes.liars}"), now
            )
        return self._leave_out(liars, now, out)

    def _leave_out(self, clients: Sequence[str], now: float, out: Effects) -> JobPhase | None:
        """These have sent what no honest client sends: ask again without them, and never ask them again."""
        self.job.liars = self.job.suspects(clients)
        out.put("liars", records.names_to(self.job.liars))
        self.job.touch()
        return None if self._asking.working else self._ask(now)

    # --- what a follower should know -----------------------------------------------------------------------------------

    def beginning(self) -> list[messages.Event]:
        """The first request once more, for a follower that may have missed it: clients answer none before they have seen that
        the job began where the coins say."""
        slots = {run: self.job.plan.of_run(k).slots for run, k in enumerate(self.job.federation.job.runs)}
        return records.beginning(self._session, self._first, slots, self._asking.records[0].responders)
