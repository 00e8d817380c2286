"""The rounds of a job as a machine of their own, seen from the server: who is asked, what has arrived, what comes next.

A *request* of `lloyd.Clustering` is asked as *attempt* 1, 2, … of exactly R responders each (more if liars are planned for:
`Plan.asked`). When all uploads of one attempt are complete, `take_work` hands out the decoding, and `complete` takes the
result back and moves to the next request; if the work finds liars instead, `discard` makes room for the next attempt.
An attempt's responders never change, and uploads of two attempts are never mixed: each attempt has its own decoder.
Clients are numbers here, their positions in the roster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import isfinite

from secfc import assignments, events, masks
from secfc.decoding import Decoder, Distances
from secfc.distances import Labels
from secfc.errors import Malformed, OutOfTurn
from secfc.federation import decoder, in_data_units
from secfc.leakage import Leakage
from secfc.lloyd import Clustering, Phase, Progress, Request
from secfc.plan import Plan


@dataclass
class Attempt:
    """One question to its responders."""

    request: Request
    number: int
    responders: tuple[int, ...]
    digest: bytes
    decoder: Decoder
    started: float
    compute: dict[int, float] = field(default_factory=dict)  # seconds, as each responder reports
    arrived: dict[int, float] = field(default_factory=dict)  # when each upload was complete

    @property
    def name(self) -> tuple[int, int]:
        return self.request.number, self.number


@dataclass(frozen=True)
class RoundRecord:
    """What `result.json` says of a finished round.

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
    directions: int = 0  # given away to the server by now (`secfc.leakage`)


@dataclass(frozen=True)
class Lies:
    """What work finds instead of progress: these clients' uploads are wrong."""

    clients: tuple[int, ...]


@dataclass
class Work:
    """Decoding and the next assignment: the heavy part of a round, to be run on a thread while the machine waits."""

    decoder: Decoder
    distances: Distances
    clustering: Clustering
    request: Request
    leakage: Leakage  # before `run`, and after it
    liars_left: int = 0

    def run(self) -> Progress | Lies:
        """Raises JobFailed if the uploads contradict each other and no `liars_left` of them explain it."""
        liars = self.decoder.check.liars(self.liars_left) if self.decoder.check else ()
        if liars:
            return Lies(liars)
        self.decoder.finish(self.distances)
        self.leakage = self.leakage.after(self.request.labels, self.request.columns)
        return self.clustering.absorb(self.distances)


class Rounds:
    """See the module's docstring."""

    def __init__(
        self, plan: Plan, clustering: Clustering, *, attempts_before: int = 0, leakage: Leakage | None = None
    ) -> None:
        """`attempts_before`: attempts are numbered above it, so that a restarted server repeats no number. `leakage`: what
        these rows' shares have told before."""
        self.plan, self.clustering = plan, clustering
        self.attempt: Attempt | None = None
        self.records: list[RoundRecord] = []
        self.leakage = leakage or leakage_meter(plan, clustering.rows)
        self._work: Work | None = None
        self._before = attempts_before
        self._distances = Distances(plan.field, clustering.rows, clustering.clusters)
        self._attempts = 0
        self._liars_left = plan.wishes.liars
        self._busy = False
        self._previous: tuple[int, Labels] | None = None
        self._current = (clustering.number, clustering.labels.copy())
        self._encoded: dict[int, bytes] = {}

    @property
    def done(self) -> bool:
        """Whether the clustering has ended; never while work is handed out."""
        return not self._busy and self.clustering.phase is Phase.DONE

    @property
    def busy(self) -> bool:
        """Whether decoding is under way."""
        return self._busy

    @property
    def tries(self) -> int:
        """How often this process has asked the current request; 0 if no answer is awaited."""
        return self._attempts if self.attempt is not None else 0

    def ask(self, live: Sequence[int], now: float, found: int = 0) -> bool:
        """Start the next attempt with the first of `live`; False, and no attempt, if they are too few. `found` liars are
        left out, and not among the live."""
        if self._busy or self.done:
            raise OutOfTurn("no question is due")
        least, most = self.plan.asked(found)
        self._liars_left = self.plan.wishes.liars - found
        if len(live) < least:
            self.attempt = None
            return False
        responders = tuple(sorted(live[:most]))
        request = self.clustering.request
        digest = masks.assignment_digest(request.labels.astype("<i4").tobytes())
        self._attempts += 1
        number = self._before + self._attempts
        self.attempt = Attempt(request, number, responders, digest, decoder(self.plan, request, responders), now)
        return True

    def upload(
        self, client: int, name: tuple[int, int], chunk: events.Chunk, compute_seconds: float, now: float
    ) -> bool:
        """A piece of a responder's upload for (request, attempt); True when that upload is complete."""
        if self.attempt is None or self._busy or name != self.attempt.name:
            raise OutOfTurn(f"round {name[0]}, attempt {name[1]} is over; follow the job for the current one")
        due = self.attempt.decoder.shape.layout.words
        if chunk.total != due:
            raise Malformed(f"an upload of {due} words is due, not of {chunk.total}")
        self.attempt.decoder.add(client, chunk.offset, chunk.words)
        self.attempt.decoder.advance(self._distances)
        if chunk.offset == 0 and isfinite(compute_seconds):
            self.attempt.compute[client] = min(max(compute_seconds, 0.0), 86400.0)
        complete = self.attempt.decoder.received(client) == due
        if complete:
            self.attempt.arrived.setdefault(client, now)
        return complete

    def take_work(self) -> Work | None:
        """The decoding of the current attempt, once all its uploads are complete; handed out once."""
        if self.attempt is None or self._busy or len(self.attempt.arrived) < len(self.attempt.responders):
            return None
        self._busy = True
        self._work = Work(
            self.attempt.decoder,
            self._distances,
            self.clustering,
            self.attempt.request,
            self.leakage,
            self._liars_left,
        )
        return self._work

    def discard(self) -> None:
        """The work found liars: the attempt counts for nothing, and the same request is to be asked again."""
        if self.attempt is None or not self._busy:
            raise OutOfTurn("no work was handed out")
        self.attempt, self._work, self._busy = None, None, False

    def record(self, progress: Progress, decode_seconds: float, now: float) -> RoundRecord:
        """What will be said of the round whose work is done; to be written down before `complete`."""
        if self.attempt is None or not self._busy:
            raise OutOfTurn("no work was handed out")
        return self._record(self.attempt, progress, decode_seconds, now)

    def complete(self, record: RoundRecord) -> None:
        """The work is done and written down: publish the assignment that follows."""
        if self.attempt is None or not self._busy:
            raise OutOfTurn("no work was handed out")
        self.records.append(record)
        self.leakage = self._work.leakage if self._work else self.leakage
        self.attempt, self._attempts, self._busy = None, 0, False
        self._previous, self._current = self._current, (self.clustering.number, self.clustering.labels.copy())
        self._encoded = {}

    def _record(self, attempt: Attempt, progress: Progress, decode_seconds: float, now: float) -> RoundRecord:
        loss = progress.inertia
        first = min(attempt.arrived, key=lambda j: attempt.arrived[j])
        compute = attempt.compute.get(first, 0.0)
        return RoundRecord(
            number=attempt.request.number,
            step=progress.phase.value,
            attempts=attempt.number - self._before,
            responders=attempt.responders,
            columns=len(attempt.request.columns),
            changed=progress.changed,
            inertia=None if loss is None else in_data_units(self.plan, loss),
            seconds=now - attempt.started,
            compute_seconds=compute,
            transport_seconds=max(attempt.arrived[first] - attempt.started - compute, 0.0),
            waiting_seconds=max(attempt.arrived.values()) - attempt.arrived[first],
            decode_seconds=decode_seconds,
            upload_bytes=8 * attempt.decoder.shape.layout.words * len(attempt.responders),
            directions=(self._work.leakage if self._work else self.leakage).count,
        )

    # --- what a follower should know -------------------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """The number of the request that the published assignment belongs to."""
        return self._current[0]

    def assignment(self, known: int, piece: int) -> list[events.Assignment]:
        """The published assignment for somebody who has version `known` (0: none), in pieces of so many bytes."""
        version, labels = self._current
        base = self._previous if self._previous is not None and self._previous[0] == known else None
        key = base[0] if base else 0
        if key not in self._encoded:
            self._encoded[key] = assignments.encode(labels, self.clustering.clusters, base[1] if base else None)
        data = self._encoded[key]
        start = key if assignments.is_change(data) else 0
        return [
            events.Assignment(version, start, first, len(data), data[first : first + piece])
            for first in range(0, len(data), piece)
        ]

    def question(self, client: int, seconds_left: float) -> events.RoundRequest | None:
        """What one client is asked now."""
        attempt = self.attempt
        if attempt is None or self._busy:
            return None
        return events.RoundRequest(
            number=attempt.request.number,
            attempt=attempt.number,
            responders=attempt.responders,
            columns=attempt.request.columns,
            assignment_digest=attempt.digest,
            received=attempt.decoder.received(client),
            deadline_seconds=max(seconds_left, 1.0),
        )


def leakage_meter(plan: Plan, rows: int) -> Leakage:
    """A meter at zero. Open uploads show the server every segment's distances."""
    return Leakage(rows, plan.wishes.features, 1 if plan.masked else plan.segments)
