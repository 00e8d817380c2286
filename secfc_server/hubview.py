"""The page of a server that stays: the job that runs, or ran last, and all jobs that it remembers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from secfc.agreement.federation import SERVER, Federation
from secfc.protocol.jobs.hub import Hub
from secfc.protocol.jobs.record import Record, State
from secfc.web import jobviews
from secfc.web import view as views
from secfc.web.view import JobView, PartyView, View
from secfc_server.current import CurrentCoordinator
from secfc_server.view import view


class HubView:
    """Draws views. `attending()`: sites whose nodes are connected."""

    def __init__(
        self, federation: Federation, hub: Hub, current: CurrentCoordinator, attending: Callable[[], frozenset[str]]
    ) -> None:
        self._federation, self._hub, self._current, self._attending = federation, hub, current, attending
        self._drawn: dict[bytes, tuple[Record, JobView]] = {}

    def view(self) -> View:
        """What anybody who may look at the server's page sees."""
        run = self._current.now or self._current.last
        base = views.idle("server", SERVER, self._federation) if run is None else view(run.seen())
        return replace(
            base,
            stays=True,
            over=False,
            parties=self._parties(base if self._current.now is not None else None),
            jobs=self._jobs(),
        )

    def _parties(self, running: View | None) -> tuple[PartyView, ...]:
        """Those of the job that runs as it sees them; others are asked for nothing."""
        busy = {} if running is None else {party.name: party for party in running.parties}
        here = self._attending()
        return tuple(
            busy.get(name) or PartyView(name, "connected" if name in here else "lost: no connection", name in here)
            for name in self._federation.roster
        )

    def _jobs(self) -> tuple[JobView, ...]:
        self._drawn = {digest: self._job(digest, one) for digest, one in self._hub.records.items()}
        return tuple(shown for _, shown in sorted(self._drawn.values(), key=lambda drawn: -drawn[0].number))

    def _job(self, digest: bytes, one: Record) -> tuple[Record, JobView]:
        known = self._drawn.get(digest)
        if known is not None and known[0] is one:
            return known
        open_ = one.state is State.SUBMITTED
        silent, pending = (self._hub.silent(one), self._hub.pending(one)) if open_ else ((), ())
        return one, jobviews.of(one, self._hub.state(one), silent=silent, pending=pending)
