"""What the server tells people while it runs: a log line for every step, and a moving line on a terminal."""

from __future__ import annotations

import logging
from typing import Any

from secfc.logs import say
from secfc_server.coordinator import Coordinator, Phase

log = logging.getLogger("secfc.server")
REMIND_SECONDS = 15.0


class Monitor:
    """Compares the machine with what was said before, and says what is new. Call `look` often."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._phase: Phase | None = None
        self._passed = set(coordinator.phase_seconds)  # phases that are over and need not be told of
        self._joined: set[str] = set()
        self._connected: set[str] = set()
        self._rounds = 0
        self._liars: set[str] = set()
        self._reminded = 0.0
        self._short = False

    def look(self, now: float) -> None:
        c = self._coordinator
        for name, member in c.members.items():
            if member.introduction and name not in self._joined:
                self._joined.add(name)
                rows = {} if c.plan.private else {"rows": member.introduction.rows}
                say(log, "joined", client=name, **rows, missing=c.missing())
        self._links()
        self._short_phases()
        self._new_liars()
        self._new_rounds(now)
        if c.phase is not self._phase:
            self._phase, self._reminded = c.phase, now
            self._passed.add(c.phase.value)
            say(log, c.phase.value, rows=c.rows, missing=c.missing())
            if self._over() and c.rounds is not None:
                say(log, c.rounds.leakage.text())
            if c.phase is Phase.FINISHED and c.rounds is not None and not c.rounds.clustering.converged:
                text = f"stopped after max_rounds = {c.federation.max_rounds}; not converged"
                say(log, text, level=logging.WARNING, changed=c.rounds.records[-1].changed if c.rounds.records else 0)
        elif not self._over() and (now - self._reminded > REMIND_SECONDS or (c.short and not self._short)):
            self._reminded = now
            say(log, "waiting", phase=c.phase.value, missing=c.missing(), broken=c.broken_links())
        self._short = c.short

    def _short_phases(self) -> None:
        """Phases that began and ended since the last look."""
        for name in self._coordinator.phase_seconds:
            if name not in self._passed:
                self._passed.add(name)
                say(log, name, rows=self._coordinator.rows)

    def _over(self) -> bool:
        return self._coordinator.phase in (Phase.FINISHED, Phase.FAILED)

    def _links(self) -> None:
        connected = {name for name, member in self._coordinator.members.items() if member.connected}
        if self._coordinator.phase in (Phase.UNION, Phase.SHARING, Phase.CHECKING, Phase.ROUNDS):
            for name in self._connected - connected:
                say(log, "connection lost", level=logging.WARNING, client=name)
        self._connected = connected

    def _new_liars(self) -> None:
        c = self._coordinator
        for name in sorted(set(c.liars) - self._liars):
            text = "wrong distances; asked for nothing from now on"
            say(log, "liar", level=logging.WARNING, client=name, reason=text, planned=c.plan.wishes.liars)
        self._liars = set(c.liars)

    def _new_rounds(self, now: float) -> None:
        rounds = self._coordinator.rounds
        records = rounds.records if rounds else []
        for record in records[self._rounds :]:
            self._reminded = now
            fields: dict[str, Any] = {"step": record.step, "changed": record.changed}
            if record.inertia is not None:
                fields["inertia"] = record.inertia
            if record.attempts > 1:
                fields["attempts"] = record.attempts
            fields["directions"] = record.directions
            say(log, f"round {record.number}", **fields, seconds=round(record.seconds, 3))
        self._rounds = len(records)

    def line(self) -> str:
        """One line for a terminal."""
        c = self._coordinator
        waiting = f"waiting for {', '.join(c.missing())}" if c.missing() else ""
        if c.phase is not Phase.ROUNDS or c.rounds is None:
            return f"{c.phase.value}: {waiting}" if waiting else c.phase.value
        last = c.rounds.records[-1] if c.rounds.records else None
        text = f"round {c.rounds.version}"
        if last is not None and last.step == "seed":
            left = (c.federation.k - last.number) * last.seconds
            text += f", seeding {last.number} of {c.federation.k}, about {left:.0f} s left"
        elif last is not None and last.inertia is not None:
            text += f", inertia {last.inertia:.6g}, {last.changed} points changed"
        text += f", {c.rounds.leakage.text()}"
        return f"{text}, {waiting}" if waiting else text
