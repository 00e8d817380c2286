"""One picture of a job, from which status, result, progress, log lines and metrics are all drawn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from secfc.agreement.federation import Federation
from secfc.agreement.plan import Plan
from secfc.errors import SecfcError
from secfc.kmeans.distances import Labels
from secfc.kmeans.fixedpoint import in_data_units
from secfc.kmeans.indices import Indices
from secfc.kmeans.lloyd import Step
from secfc.privacy.leakage import Tally
from secfc.protocol.messages import Held, Phase
from secfc.protocol.server.asking import Asking, RequestRecord
from secfc.protocol.server.job import Member
from secfc.protocol.server.phases.base import Failed, JobPhase


@dataclass(frozen=True)
class Client:
    """One client as the server sees it."""

    name: str
    rows: int | None  # None where membership is private, or it has not joined
    joined: bool
    connected: bool
    held: Held | None
    checked: bool  # its part of the check that all shares fit together is here, or the check is over
    done: bool
    liar: bool
    uploaded_bytes: int
    told_bytes: int


@dataclass(frozen=True)
class Run:
    """Where one run stands: its k, which start of it it is, its Lloyd rounds, and the inertia in the units of the data."""

    k: int
    start: int
    rounds: int
    converged: bool
    inertia: float | None
    done: bool
    indices: Indices  # of a final assignment, where the server sees distances


@dataclass(frozen=True)
class Outcome:
    """Where the clustering stands; `rounds`, `converged`, `inertia`, `clusters` and `labels` are of the run that is chosen.
    While runs move, that is the best of the first k so far, or of one that is done."""

    version: int
    tries: int  # how often the current question was asked; 0 if none is
    runs: tuple[Run, ...]
    best: tuple[int, ...]  # the best run of every k
    chosen: int
    rounds: int
    converged: bool
    inertia: float | None
    done: bool
    clusters: int
    labels: Labels = field(repr=False)
    directions: int  # given away to the server, of so many
    of_directions: int
    given: Tally  # assignments and inertias of this job
    leakage_text: str
    committee: tuple[str, ...] = ()  # who compares, in sealed rounds

    @property
    def sizes(self) -> list[int]:
        """Rows of every cluster; while seeding, candidates beyond the last cluster are left out."""
        counts: list[int] = np.bincount(self.labels[self.labels >= 0], minlength=self.clusters).tolist()
        return counts[: self.clusters]


@dataclass(frozen=True)
class Snapshot:
    """See the module's docstring. `missing` is whom the job waits for now; `waits_for` whom it cannot go on without."""

    federation: Federation
    plan: Plan
    phase: Phase
    phase_seconds: Mapping[str, float]
    missing: tuple[str, ...]
    waits_for: tuple[str, ...]
    short: bool
    failure: SecfcError | None
    rows: int
    clients: tuple[Client, ...]
    broken_links: tuple[str, ...]
    seed: bytes | None  # of the start: with it anybody can repeat the job centrally
    records: tuple[RequestRecord, ...]
    outcome: Outcome | None

    @property
    def liars(self) -> tuple[str, ...]:
        return tuple(client.name for client in self.clients if client.liar)

    @property
    def over(self) -> bool:
        return self.phase in (Phase.FINISHED, Phase.FAILED)


def snapshot(phase: JobPhase, phase_seconds: Mapping[str, float], now: float) -> Snapshot:
    """The picture of a job in this phase. `phase_seconds`: of the phases that are over."""
    job, missing = phase.job, phase.missing()
    free = phase.phase is Phase.ROUNDS and not phase.short  # a round that is asked can do without some
    return Snapshot(
        federation=job.federation,
        plan=job.plan,
        phase=phase.phase,
        phase_seconds=dict(phase_seconds),
        missing=missing,
        waits_for=() if free else missing,
        short=phase.short,
        failure=phase.error if isinstance(phase, Failed) else None,
        rows=phase.rows,
        clients=tuple(_client(phase, name, member, missing) for name, member in job.members.items()),
        broken_links=tuple(job.broken_links()),
        seed=job.coins(phase.tossed).seed if phase.tossed is not None else None,
        records=tuple(phase.asking.records) if phase.asking is not None else (),
        outcome=_outcome(phase),
    )


def _client(phase: JobPhase, name: str, member: Member, missing: tuple[str, ...]) -> Client:
    introduction = member.introduction
    known = introduction is not None and not phase.job.plan.private
    return Client(
        name=name,
        rows=introduction.rows if introduction is not None and known else None,
        joined=introduction is not None,
        connected=member.connected,
        held=member.held,
        checked=phase.asking is not None or (phase.phase is Phase.CHECKING and name not in missing),
        done=member.done,
        liar=name in phase.job.liars,
        uploaded_bytes=member.uploaded_bytes,
        told_bytes=member.told_bytes,
    )


def _outcome(phase: JobPhase) -> Outcome | None:
    machine = phase.asking
    if machine is None:
        return None
    leakage, given = machine.leakage, machine.given(phase.job.federation.job)
    runs, chosen = _runs(machine), machine.runs.chosen
    clustering = machine.runs.all[chosen]
    return Outcome(
        version=machine.version,
        tries=machine.tries,
        runs=runs,
        best=machine.runs.best,
        chosen=chosen,
        rounds=clustering.rounds,
        converged=clustering.converged,
        inertia=runs[chosen].inertia,
        done=machine.done,
        clusters=clustering.clusters,
        labels=clustering.labels,
        directions=leakage.count,
        of_directions=leakage.total,
        given=given,
        leakage_text=f"{leakage.text()}; {given.text()}",
        committee=tuple(phase.job.names[j] for j in machine.committee),
    )


def _runs(machine: Asking) -> tuple[Run, ...]:
    starts: dict[int, int] = {}
    out = []
    for one in machine.runs.all:
        loss = None if one.inertia is None else in_data_units(one.inertia, machine.plan.wishes.precision)
        start = starts[one.clusters] = starts.get(one.clusters, -1) + 1
        out.append(Run(one.clusters, start, one.rounds, one.converged, loss, one.step is Step.DONE, one.indices))
    return tuple(out)
