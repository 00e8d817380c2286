"""What the phases from SHARING on have in common: rows that have their places, published assignments, requests to answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from secfc.agreement.federation import SERVER
from secfc.coding.blocks import Blocks
from secfc.errors import InvalidInput, Malformed, OutOfTurn, SecfcError, WrongSender
from secfc.kmeans import assignments
from secfc.kmeans.assignments import Assignments
from secfc.kmeans.coins import Coins
from secfc.kmeans.distances import UNASSIGNED, Labels
from secfc.kmeans.indices import CHOICES
from secfc.privacy import masks
from secfc.protocol import messages, parcels, start
from secfc.protocol.client.phases.base import ClientPhase, Seated
from secfc.protocol.client.site import Desk, Met, Site
from secfc.protocol.client.stages import Stage
from secfc.protocol.client.unionstages import UnionStages
from secfc.protocol.effects import Effects, Send, Work, Worked
from secfc.protocol.messages import RoundRequest
from secfc.protocol.parcels import Kind, Parcel
from secfc.protocol.rounds.kinds import Outgoing
from secfc.protocol.transfer import Gathered, Here, Sink


class Confirmed(Protocol):
    """What is left of confirming the union of IDs: a client that restarts asks once more."""

    @property
    def union(self) -> UnionStages: ...

    def tell_again(self, name: str, now: float) -> None: ...


@dataclass
class JobTable:
    """All rows of the job as they are known here."""

    coded: Blocks = field(repr=False)
    own: npt.NDArray[np.int64] = field(repr=False)  # where our rows stand among all; -1: nowhere, if a holder lacks it
    stage: Stage
    confirmed: Confirmed | None = None
    held: bool = False

    def labels(self, everybody: Labels) -> Labels:
        """Those of our rows; -1 for one that takes no part."""
        return np.where(self.own >= 0, everybody[self.own], -1).astype(everybody.dtype)


class Published:
    """The assignments that the server publishes, each checked against the start that the coins decide."""

    def __init__(self, site: Site, rows: int) -> None:
        self._job, self._rows, self._any_start = site.federation.job, rows, site.any_start
        self._slots = {run: site.plan.of_run(k).slots for run, k in enumerate(self._job.runs)}
        self._frozen = bool(site.plan.frozen)
        self.tossed: Coins | None = None  # what everybody's coins make together, once they are shown
        self._versions: dict[int, Assignments] = {}
        self.course: dict[int, int] = {}  # by request: how many rows, of all runs and parties, its answer has moved
        self._arriving: tuple[bytes, Gathered] | None = None

    def coins(self) -> Coins | None:
        """What decides the start and all draws; None before the coins are shown, or if the job may begin anywhere."""
        if self._any_start or self._job.seed is None:
            return None if self._any_start else self.tossed
        return start.agreed(self._job.seed)

    def sink(self, name: bytes) -> Gathered:
        if self._arriving is None or self._arriving[0] != name:
            self._arriving = name, Gathered(assignments.largest_of_all(self._rows, self._slots))
        return self._arriving[1]

    def arrived(self, name: bytes) -> None:
        data, self._arriving = self.sink(name).data, None
        version, base = parcels.pair_of(name)
        told = assignments.decode_all(data, self._rows, self._slots, self._versions.get(base, {}))
        if self.tossed is None:
            raise WrongSender("the server skips the start's coins: it must show everybody's before it assigns rows")
        if self._frozen:
            _check_unassigned(version, told)
        elif (coins := self.coins()) is not None:
            for run, labels in told.items():
                start.check_assignment(self._job.seeding, coins.of_run(run), self._job.runs[run], version, labels)
        self._count(version, told)
        self._versions = {version: told}

    def _count(self, version: int, told: Assignments) -> None:
        before = self._versions.get(version - 1)
        if before is not None:
            self.course[version - 1] = sum(int((told[r] != before[r]).sum()) for r in told.keys() & before.keys())

    @property
    def newest(self) -> Assignments:
        """What every run that still moves has now; nothing before the first."""
        return next(iter(self._versions.values()), {})

    def labels(self, version: int, runs: Iterable[int]) -> Assignments:
        """What these runs have in a version."""
        told = self._versions.get(version, {})
        if not set(runs) <= set(told):
            raise OutOfTurn("the server refers to an assignment it did not send")
        return {run: told[run] for run in runs}

    def final(self, version: int, chosen: int) -> Assignments:
        """What the job ends with, the chosen run first: one run of every k. Raises if that cannot be."""
        told, clusters = self._versions.get(version, {}), self._job.runs
        found = self.labels(version, [chosen, *(run for run in told if run != chosen)])
        if sorted(clusters[run] for run in found) != sorted(self._job.ks):
            raise Malformed("the job must end with one run of every k")
        if self._job.choose == CHOICES[0] and clusters[chosen] != self._job.k:
            raise Malformed("the job must end with the first k")
        for run, labels in found.items():
            if not ((labels >= 0) & (labels < clusters[run])).all():
                raise Malformed("the final assignment leaves rows without a cluster")
        return found


def _check_unassigned(version: int, told: Assignments) -> None:
    """Raise if rows that are assigned to an earlier job's clusters are said to be in some before anybody was asked."""
    if version == 1 and any((labels != UNASSIGNED).any() for labels in told.values()):
        raise WrongSender("the server begins with rows in clusters that no request has found")


class Holds(Seated):
    """A phase in which the rows have their places: others may ask for shares they have lost."""

    def __init__(self, desk: Desk, now: float, met: Met, table: JobTable, published: Published) -> None:
        super().__init__(desk, now, met)
        self.table, self.published = table, published

    def sink(self, sender: str, parcel: Parcel) -> Sink | None:  # noqa: PLR0911 - one line per kind
        match parcel.kind:
            case Kind.ASSIGNMENT if sender == SERVER:
                return self.published.sink(parcel.name)
            case Kind.OPENED if sender == SERVER and self.table.confirmed is not None:
                return self.table.confirmed.union.sink(parcel.name)
            case _ if sender == SERVER:
                return None
            case Kind.SHARES:
                return self.table.stage.sink(self.desk.site.peer(sender), parcel.name)
            case Kind.COMMITMENT | Kind.CONFIRMATION if self.table.confirmed is not None:
                return Here()  # said again by a client that has restarted
            case Kind.WANTED if parcel.name in self._known():
                return Gathered(0)
        return None

    def _known(self) -> tuple[bytes, ...]:
        confirmed = self.table.confirmed
        return (self.table.stage.id, *((confirmed.union.digest,) if confirmed else ()))

    def arrived(self, sender: str, parcel: Parcel, sink: Sink, now: float, out: Effects) -> ClientPhase | None:
        match parcel.kind:
            case Kind.ASSIGNMENT:
                self.published.arrived(parcel.name)
            case Kind.OPENED if self.table.confirmed is not None:
                self.table.confirmed.union.arrived(parcel.name)  # told again after a lost connection
            case Kind.SHARES:
                self.table.stage.arrived(self.desk.site.peer(sender), out)
            case Kind.WANTED if parcel.name == self.table.stage.id:
                self.desk.outbox.post(self.table.stage.outgoing(self.desk.site.peer(sender)), now)
            case Kind.WANTED if self.table.confirmed is not None:
                self.table.confirmed.tell_again(sender, now)
        return None

    def worked(self, given: Worked, now: float, out: Effects) -> ClientPhase | None:
        if given.name[0] in ("kept", "used"):
            if (wanted := self.table.stage.worked(given, out)) is not None:
                self.desk.outbox.post(wanted, now)
            return None
        return super().worked(given, now, out)

    def unsent(self, send: Send, error: SecfcError, now: float, out: Effects) -> ClientPhase | None:
        """What others miss of ours does not keep the job waiting any more."""
        if not isinstance(error, OutOfTurn):
            out.say("a message was not accepted", level=30, by=send.to, reason=str(error))
        return None

    def told(self, event: messages.Event, now: float, out: Effects) -> ClientPhase | None:
        if not isinstance(event, messages.Reveals):
            return super().told(event, now, out)
        site = self.desk.site
        tossed = start.tossed(self.session, self.met.members, event.coins)
        if event.coins[site.index] != site.secrets.coin:
            raise WrongSender("the server shows a coin of ours that we did not toss")
        self.published.tossed = tossed
        return None

    def tick(self, now: float, out: Effects) -> ClientPhase | None:
        if self.published.tossed is None:  # as long as the job waits for everybody
            self.desk.check_deliveries(now)
        return None


class Follows(Holds):
    """A phase in which requests may come: each is checked by the guard, whoever is asked, one after the other."""

    def __init__(self, desk: Desk, now: float, met: Met, table: JobTable, published: Published) -> None:
        super().__init__(desk, now, met, table, published)
        self._requests: list[tuple[RoundRequest, Assignments]] = []
        self._finished: messages.Finished | None = None
        self._due: set[str] = set()  # of the request that is being answered: to be counted, to be computed
        self._made: tuple[Sequence[Outgoing], float] | None = None  # our answer, its seconds, until it may leave

    def told(self, event: messages.Event, now: float, out: Effects) -> ClientPhase | None:
        match event:
            case RoundRequest():
                self._requests.append((event, self._checked(event)))
            case messages.Finished():
                self._finished = event
            case _:
                return super().told(event, now, out)
        return self.go_on(now, out)

    def _checked(self, request: RoundRequest) -> Assignments:
        """The labels that a request is about, by run; raises if no honest server makes it."""
        site, runs = self.desk.site, [request.run, *(one.run for one in request.more)]
        if runs != sorted(set(runs)) or runs[-1] >= len(site.federation.job.runs):
            raise Malformed("a request must be about runs of the job, each once, in order")
        labels = self.published.labels(request.number, runs)
        try:
            site.plan.check_responders(request.responders)
        except InvalidInput as error:
            raise WrongSender(f"the server names a wrong responder set: {error}") from None
        if tuple(sorted(request.responders)) != request.responders:
            raise Malformed("responders must be in roster order")
        for run, one in request.by_run.items():
            if masks.assignment_digest(labels[run].astype("<i4").tobytes()) != one.assignment_digest:
                raise Malformed("the assignment is not the one the request speaks of")
        if request.past and request.number != 1:
            raise Malformed("of requests that are over, only the first is shown")
        return labels

    def go_on(self, now: float, out: Effects) -> ClientPhase | None:
        """The next request, or the end."""
        while not self._due and self._requests:
            self._admit(*self._requests.pop(0), now, out)
        if self._due or self._finished is None:
            return None
        from secfc.protocol.client.phases.ending import Ending

        final = self.published.final(self._finished.version, self._finished.run)
        self.desk.site.guard.finish(self._finished.version)
        self._keep_given(out)
        return Ending(self.desk, now, self, self._finished, final)

    def _admit(self, request: RoundRequest, labels: Assignments, now: float, out: Effects) -> None:
        site = self.desk.site
        if request.past and site.guard.began:
            return
        asked = site.index in request.responders and not request.past
        if asked and not self.table.held:
            raise OutOfTurn("distances are requested before all shares have arrived")
        examined = site.guard.examine(request, labels)
        if examined is not None:
            self._due.add("count")
            out.work.append(Work(("count", request, examined), examined.count))
        if asked:
            if noted := self.noting(request):
                out.put("noted", noted)
            self._due.add("answer")
            out.work.append(Work(("answer", request), self.answering(request)))

    def noting(self, request: RoundRequest) -> bytes:
        """What the round kind must have on disk before it answers."""
        return b""

    def answering(self, request: RoundRequest) -> Callable[[], Sequence[Outgoing]]:
        """What makes our answer (heavy)."""
        raise OutOfTurn("distances are requested before all shares have arrived")

    def answered(self, request: RoundRequest, made: Sequence[Outgoing], seconds: float, now: float) -> None:
        """Our answer is made, and may leave."""

    def worked(self, given: Worked, now: float, out: Effects) -> ClientPhase | None:
        if given.name[0] not in ("count", "answer"):
            return super().worked(given, now, out)
        if given.error is not None:
            raise given.error
        self._due.discard(given.name[0])
        if given.name[0] == "count":
            self.desk.site.guard.admit(given.name[2], given.result)
            self._keep_given(out)
            self._record(given.name[1], out)
        else:
            self._made = given.result, given.seconds
        if not self._due and self._made is not None:
            made, self._made = self._made, None
            self.answered(given.name[1], *made, now)
        return self.go_on(now, out)

    def _record(self, request: RoundRequest, out: Effects) -> None:
        """For the audit file: what our rows have given away with this request, over all jobs, whoever answers it."""
        guard, leakage = self.desk.site.guard, self.desk.site.guard.leakage
        asked = self.desk.site.index in request.responders and not request.past
        fields = {"request": request.number, "attempt": request.attempt, "by_us": asked, **asdict(guard.given)}
        del fields["ranks"]
        out.record("request answered", **fields, directions=leakage.count if leakage is not None else 0)

    def _keep_given(self, out: Effects) -> None:
        """What our rows give away is on disk before an answer leaves."""
        guard = self.desk.site.guard
        out.put("tally", guard.tally.to_bytes())
        out.put("given", guard.kept())
