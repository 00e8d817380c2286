"""What the server tells people while it runs: a log line for every step, and a moving line on a terminal."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from secfc.logs import say
from secfc.outlook import line_of, rounds_left
from secfc.protocol.messages import Phase
from secfc.protocol.server.asking import RequestRecord
from secfc.protocol.server.snapshot import Outcome, Snapshot
from secfc.wording import few

log = logging.getLogger("secfc.server")
REMIND_SECONDS = 15.0


class Monitor:
    """Compares the job with what was said before, and says what is new. Call `look` often."""

    def __init__(self, now: Snapshot) -> None:
        self._phase: Phase | None = None
        self._passed = set(now.phase_seconds)  # phases that are over and need not be told of
        self._joined: set[str] = set()
        self._connected: set[str] = set()
        self._records = 0
        self._liars: set[str] = set()
        self._reminded = 0.0
        self._short = False
        self._committee: tuple[str, ...] = ()

    def look(self, seen: Snapshot, now: float) -> None:
        for client in seen.clients:
            if client.joined and client.name not in self._joined:
                self._joined.add(client.name)
                rows = {} if client.rows is None else {"rows": client.rows}
                say(log, "joined", client=client.name, **rows, missing=seen.missing)
        self._links(seen)
        self._short_phases(seen)
        self._new_liars(seen)
        self._new_committee(seen)
        self._new_records(seen, now)
        if seen.phase is not self._phase:
            self._enter(seen, now)
        elif not seen.over and (now - self._reminded > REMIND_SECONDS or (seen.short and not self._short)):
            self._reminded = now
            say(log, "waiting", phase=seen.phase.value, missing=seen.missing, broken=seen.broken_links)
        self._short = seen.short

    def _enter(self, seen: Snapshot, now: float) -> None:
        self._phase, self._reminded = seen.phase, now
        self._passed.add(seen.phase.value)
        say(log, seen.phase.value, rows=seen.rows, missing=seen.missing)
        if seen.over and seen.outcome is not None:
            say(log, seen.outcome.leakage_text)
        if seen.phase is Phase.FINISHED and seen.outcome is not None:
            self._best_runs(seen.outcome)
        if seen.phase is Phase.FINISHED and seen.outcome is not None and not seen.outcome.converged:
            text = f"stopped after max_rounds = {seen.federation.job.max_rounds}; not converged"
            say(log, text, level=logging.WARNING, changed=seen.records[-1].changed if seen.records else 0)

    def _best_runs(self, found: Outcome) -> None:
        """One line for every k, if there were several runs."""
        for number in found.best if len(found.runs) > 1 else ():
            run = found.runs[number]
            starts = sum(other.k == run.k for other in found.runs)
            fields: dict[str, Any] = {
                "inertia": run.inertia,
                "rounds": run.rounds,
                "start": f"{run.start + 1} of {starts}",
            }
            fields |= {name: value for name, value in asdict(run.indices).items() if value is not None}
            say(log, f"k = {run.k}", **fields, chosen=number == found.chosen)

    def _new_committee(self, seen: Snapshot) -> None:
        committee = seen.outcome.committee if seen.outcome is not None else ()
        if committee and committee != self._committee:
            self._committee = committee
            say(log, "committee", members=committee)

    def _short_phases(self, seen: Snapshot) -> None:
        """Phases that began and ended since the last look."""
        for name in seen.phase_seconds:
            if name not in self._passed:
                self._passed.add(name)
                say(log, name, rows=seen.rows)

    def _links(self, seen: Snapshot) -> None:
        connected = {client.name for client in seen.clients if client.connected}
        if seen.phase in (Phase.UNION, Phase.SHARING, Phase.CHECKING, Phase.ROUNDS):
            for name in self._connected - connected:
                say(log, "connection lost", level=logging.WARNING, client=name)
        self._connected = connected

    def _new_liars(self, seen: Snapshot) -> None:
        for name in sorted(set(seen.liars) - self._liars):
            text = "wrong distances; not asked again"
            say(log, "liar", level=logging.WARNING, client=name, reason=text, planned=seen.plan.wishes.liars)
        self._liars = set(seen.liars)

    def _new_records(self, seen: Snapshot, now: float) -> None:
        for record in seen.records[self._records :]:
            self._reminded = now
            fields: dict[str, Any] = {"step": record.step, "changed": record.changed}
            if record.inertia is not None:
                fields["inertia"] = record.inertia
            if record.attempts > 1:
                fields["attempts"] = record.attempts
            if seen.outcome is not None and len(seen.outcome.runs) > 1:
                fields["runs"] = record.runs
            fields["directions"] = record.directions
            say(log, f"round {record.number}", **fields, seconds=round(record.seconds, 3))
        self._records = len(seen.records)


def line(seen: Snapshot, width: int = 78) -> str:
    """One line for a terminal: what matters most first, and no more than fits."""
    waiting = f"waiting for {few(seen.missing)}" if seen.missing else ""
    if seen.phase is not Phase.ROUNDS or seen.outcome is None:
        return f"{seen.phase.value}: {waiting}" if waiting else seen.phase.value
    parts = [*_parts(seen.outcome, seen.records, max(seen.federation.job.ks)), waiting, seen.outcome.leakage_text]
    return line_of(f"round {seen.outcome.version}", parts, waiting, width)


def _parts(outcome: Outcome, records: Sequence[RequestRecord], k: int) -> Iterator[str]:
    moving, runs = sum(not run.done for run in outcome.runs), len(outcome.runs)
    if runs > 1:
        yield f"{moving} of {runs} runs move"
    if not records:
        return
    last = records[-1]
    if last.step == "seed":
        yield f"seeding {last.number} of {k}, about {(k - last.number) * last.seconds:.0f} s left"
        return
    yield f"{last.changed} rows changed cluster"
    left = rounds_left([one.changed for one in records if one.step != "seed"])
    yield f"{last.seconds:.2g} s each" + (f", about {left * last.seconds:.0f} s left" if left is not None else "")
    if last.inertia is not None:
        yield f"inertia {last.inertia:.6g}"
