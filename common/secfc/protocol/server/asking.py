"""The rounds of a job as a machine of their own, seen from the server: who is asked, what has arrived, what comes next.

The questions of all `Runs` that move are asked together, as *attempt* 1, 2, … of exactly R responders each (more if liars are
planned for: `Plan.asked`). How the answers come about is the round kind's business (`protocol.rounds`). An attempt's
responders never change, and messages of two attempts are never mixed: each attempt is an exchange of its own.
Clients are numbers here, their positions in the roster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

from secfc.agreement.job import Job
from secfc.agreement.plan import Plan
from secfc.agreement.policy import assignments_given
from secfc.errors import OutOfTurn
from secfc.kmeans import assignments
from secfc.kmeans.assignments import Assignments
from secfc.kmeans.fixedpoint import in_data_units
from secfc.kmeans.lloyd import Answer, Progress, Question, Step
from secfc.kmeans.runs import Runs
from secfc.privacy.leakage import Leakage, Tally
from secfc.protocol import messages, parcels
from secfc.protocol.parcels import Kind, Parcel
from secfc.protocol.rounds import kind_of
from secfc.protocol.rounds.kinds import Lies, Void
from secfc.protocol.rounds.several_server import ServerRounds
from secfc.protocol.server.attempt import Attempt, digests, told_parcel
from secfc.protocol.transfer import Here, Sink


@dataclass(frozen=True)
class RequestRecord:
    """What `result.json` says of a finished request. With several runs, `columns` and `changed` are sums over those that
    moved, `step` is that of the run that is least far, and `inertia` the least that the request brought for the first k.

    Its time is compute + transport (both of the responder that was done first) + waiting (for the other responders)
    + decode.
    """

    number: int
    step: str
    attempts: int
    responders: tuple[int, ...]
    columns: int
    changed: int
    inertia: float | None
    seconds: float
    compute_seconds: float
    transport_seconds: float
    waiting_seconds: float
    decode_seconds: float
    upload_bytes: int
    directions: int = 0  # given away to the server by now (`privacy.leakage`)
    runs: int = 1  # that moved
    pairs_asked: int = 0  # distances of a row to a cluster, by each responder
    pairs: int = 0  # the same, had nothing been left out because it cannot matter


@dataclass(frozen=True)
class Solved:
    """What the work of a request brings, by run: the answer, or who lies; and the meter after it."""

    result: Mapping[int, Any]
    leakage: Leakage


class Asking:
    """See the module's docstring."""

    def __init__(
        self,
        plan: Plan,
        runs: Runs,
        *,
        session: bytes = b"",
        attempts_before: int = 0,
        leakage: Leakage | None = None,
        frozen: bytes = b"",
    ) -> None:
        """`attempts_before`: attempts are numbered above it, so that a restarted server repeats no number. `leakage`: what
        these rows' shares have told before. `frozen` names the clusters that rows are assigned to, if they are an earlier
        job's."""
        kind = kind_of(plan)
        self.plan, self.runs = plan, runs
        self.attempt: Attempt | None = None
        self.records: list[RequestRecord] = []
        self.leakage = leakage or Leakage(runs.rows, plan.wishes.features, plan.segments if kind.shows_segments else 1)
        clusters = [one.clusters for one in runs.all]
        self._slots = {run: plan.of_run(k).slots for run, k in enumerate(clusters)}
        self._half = ServerRounds(kind, plan, clusters, runs.rows, session, attempts_before)
        self._shows, self._frozen = kind.shows_distances, frozen
        self._before, self._tried = attempts_before, 0
        self._working = self._void = False
        self._answered: tuple[int, int] | None = None  # the attempt that brought the last answer
        self._previous: tuple[int, Assignments] | None = None
        self._current = self._published()
        self._encoded: dict[int, tuple[bytes, bool]] = {}

    @property
    def done(self) -> bool:
        """Whether every run has ended."""
        return self.runs.done

    def given(self, job: Job) -> Tally:
        """What everybody has learnt besides distances, by the requests that are answered."""
        total = Tally()
        for one in self.runs.all:
            opened = int(one.step is Step.DONE and not self._shows and one.inertia is not None)
            requests = one.number - 1 - (opened or int(one.measured and self._shows))
            total += Tally(0, assignments_given(job, one.clusters, requests), opened)
        return total

    @property
    def tries(self) -> int:
        """How often this process has asked the current question; 0 if no answer is awaited."""
        return self._tried if self.attempt is not None else 0

    @property
    def version(self) -> int:
        """The number of the question that the published assignment belongs to."""
        return self._current[0]

    # --- asking ----------------------------------------------------------------------------------------------------------

    def ask(self, live: Sequence[int], now: float, found: int = 0) -> bool:
        """Start the next attempt with the first of `live`; False, and no attempt, if they are too few. `found` liars are
        left out, and not among the live."""
        least, most = self.plan.asked(found)
        if len(live) < least:
            self.attempt = None
            return False
        responders = tuple(sorted(live[:most]))
        questions = self.runs.questions
        self._tried += 1
        number = self._before + self._tried
        self._void = False
        exchange = self._half.ask(questions, responders, self.plan.wishes.liars - found, number, live[:most])
        self.attempt = Attempt(questions, number, responders, digests(questions), exchange, now, now)
        return True

    def lost(self, client: int) -> None:
        """A client has lost what it knew, or is not to be relied on; that may make the attempt `void`."""
        self._void = self._half.lost(client) or self._void

    @property
    def void(self) -> bool:
        """Whether nothing can come of what is asked now: it is to be asked again, once nothing is computed."""
        return self._void and self.attempt is not None

    @property
    def committee(self) -> tuple[int, ...]:
        """Clients that the round kind would rather ask again."""
        return self._half.committee

    @property
    def working(self) -> bool:
        """Whether something of an attempt is being computed: nobody else is asked meanwhile."""
        return self._working

    def sink(self, client: int, parcel: Parcel) -> Sink | None:
        """Where a message of the current attempt goes."""
        if parcel.kind not in (Kind.UPLOAD, Kind.STEP):
            return None
        name, rest = parcels.attempt_of(parcel.name), parcel.name[len(parcels.attempt_name(0, 0)) :]
        if parcel.kind is Kind.STEP and name == self._answered:
            return Here()  # a member's last words about a request that was answered without them
        if self.attempt is None:
            return None
        if name != self.attempt.name or (parcel.kind is Kind.UPLOAD and rest):
            raise OutOfTurn(f"request {name[0]}, attempt {name[1]} is over; follow the job for the current one")
        return self.attempt.exchange.sink(client, rest)

    def arrived(self, client: int, parcel: Parcel, seconds: float, now: float) -> float | None:
        """A message is here whole. `seconds`: how long its sender says that it has computed. Returns how long the client took
        if it was the last one due from it."""
        attempt = self._attempt()
        if isfinite(seconds) and seconds > 0:
            attempt.compute.setdefault(client, min(seconds, 86400.0))
        attempt.exchange.arrived(client, parcel.name[len(parcels.attempt_name(0, 0)) :])
        if client in attempt.exchange.missing() or client in attempt.arrived:
            return None
        attempt.arrived[client] = now
        return now - attempt.started

    def due(self) -> tuple[tuple[Any, ...], Callable[[], Any]] | None:
        """Heavy computing that can begin now, and its name; handed out once."""
        attempt = self.attempt
        work_of_kind = attempt.exchange.due() if attempt is not None and not self._working else None
        if work_of_kind is None or attempt is None:
            return None
        self._working = True
        leakage, questions, asked = self.leakage, attempt.questions, attempt.exchange.columns_of

        def work() -> Solved:
            found, meter = work_of_kind(), leakage
            if self._shows and all(isinstance(result, Answer) for result in found.values()):
                for run, columns in asked.items():
                    meter = self._counted(meter, questions[run], columns)
            return Solved(found, meter)

        return ("round", *attempt.name), work

    def _counted(self, meter: Leakage, asked: Question, columns: Sequence[int]) -> Leakage:
        """Some rows of a column count as all of them."""
        if asked.step is Step.ASSIGN:
            return meter.after_frozen(self._frozen, columns)
        return meter.after(asked.labels, columns)

    def worked(self, found: Solved, seconds: float, now: float) -> RequestRecord | Lies | Void | None:
        """Take over what the work found, and publish the assignment that follows from an answer. If somebody lied, or members
        do not agree, the attempt counts for nothing, and the same question is to be asked again; None: more is to come."""
        self._working = False
        self._attempt().went_on = now
        result = self._attempt().exchange.worked(found.result)
        if isinstance(result, dict):
            return self._complete(result, found, seconds, now)
        if result is not None:
            self.attempt = None
        return result

    def _complete(
        self, answers: Mapping[int, Answer], found: Solved, decode_seconds: float, now: float
    ) -> RequestRecord:
        attempt = self._attempt()
        progress = self.runs.absorb(answers)
        self.leakage = found.leakage
        record = self._record(attempt, progress, decode_seconds, now)
        self.records.append(record)
        self._answered = attempt.name
        self.attempt, self._tried = None, 0
        self._void = False
        self._previous, self._current = self._current, self._published()
        self._encoded = {}
        return record

    def _attempt(self) -> Attempt:
        if self.attempt is None:
            raise OutOfTurn("nothing is asked now")
        return self.attempt

    def _record(
        self, attempt: Attempt, progress: Mapping[int, Progress], decode_seconds: float, now: float
    ) -> RequestRecord:
        of_first_k = [one for run, one in progress.items() if self.runs.all[run].clusters == self.runs.all[0].clusters]
        loss = min((one.inertia for one in of_first_k if one.inertia is not None), default=None)
        first = min(attempt.arrived, key=lambda j: attempt.arrived[j])
        compute = attempt.compute.get(first, 0.0)
        return RequestRecord(
            number=attempt.question.number,
            step=min((one.step for one in progress.values()), key=list(Step).index).value,
            attempts=attempt.number - self._before,
            responders=attempt.responders,
            columns=attempt.exchange.columns,
            changed=sum(one.changed for one in progress.values()),
            inertia=None if loss is None else in_data_units(loss, self.plan.wishes.precision),
            seconds=now - attempt.started,
            compute_seconds=compute,
            transport_seconds=max(attempt.arrived[first] - attempt.started - compute, 0.0),
            waiting_seconds=max(attempt.arrived.values()) - attempt.arrived[first],
            decode_seconds=decode_seconds,
            upload_bytes=attempt.exchange.upload_bytes,
            directions=self.leakage.count,
            runs=len(progress),
            pairs_asked=attempt.exchange.pairs,
            pairs=sum(len(one.labels) * len(one.columns) for one in attempt.questions.values()),
        )

    # --- what a follower should know -------------------------------------------------------------------------------------

    def _published(self) -> tuple[int, Assignments]:
        return self.runs.number, {run: labels.copy() for run, labels in self.runs.published.items()}

    def assignment(self, session: bytes, known: int) -> Iterator[messages.Piece]:
        """The published assignments for somebody who has version `known` (0: none)."""
        version, labels = self._current
        base = self._previous if self._previous is not None and self._previous[0] == known else None
        key = base[0] if base else 0
        if key not in self._encoded:
            self._encoded[key] = assignments.encode_all(labels, self._slots, base[1] if base else {})
        data, changes = self._encoded[key]
        return told_parcel(session, Kind.ASSIGNMENT, (version, key if changes else 0), data)

    def request(self, seconds_left: float) -> messages.RoundRequest | None:
        """What clients are asked now."""
        attempt = self.attempt
        if attempt is None or not attempt.exchange.missing():
            return None
        first, *more = attempt.exchange.requests(attempt.digests)
        return messages.RoundRequest(
            number=attempt.question.number,
            attempt=attempt.number,
            responders=attempt.responders,
            deadline_seconds=max(seconds_left, 1.0),
            more=tuple(more),
            **vars(first),
        )
