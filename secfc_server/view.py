"""The server's page: the snapshot as a view."""

from __future__ import annotations

from functools import lru_cache

from secfc.agreement.federation import SERVER
from secfc.agreement.submission import ID_DIGITS
from secfc.agreement.uploads import SEES
from secfc.errors import told
from secfc.protocol.messages import Phase
from secfc.protocol.server.asking import RequestRecord
from secfc.protocol.server.snapshot import Client, Outcome, Snapshot
from secfc.web.view import GivenView, PartyView, RequestView, RunView, View

_NOTE = "What all clients together have given away in this job: directions to the server, the rest to every party."


def view(now: Snapshot) -> View:
    """What anybody who may look at the server's page sees."""
    outcome, federation = now.outcome, now.federation
    return View(
        role="server",
        name=SERVER,
        federation=federation.name,
        phase=now.phase.value,
        over=now.over,
        reason=told(now.failure) if now.failure else "",
        waits_for=now.missing,
        rows=now.rows,
        k=federation.job.ks,
        uploads=federation.uploads,
        sees=SEES[federation.uploads],
        parties=tuple(_party(client, now) for client in now.clients),
        broken_links=now.broken_links,
        phase_seconds=now.phase_seconds,
        requests=tuple(map(_request, now.records)),
        runs=_runs(outcome) if outcome else (),
        sizes=tuple(outcome.sizes) if outcome and (outcome.labels >= 0).all() else (),  # not while seeding
        sizes_of=_sizes_of(outcome, now.over) if outcome else "",
        given=_given(outcome) if outcome else (),
        given_note=_NOTE,
        committee=outcome.committee if outcome else (),
        job=federation.submission.hex()[:ID_DIGITS],
    )


def _party(client: Client, now: Snapshot) -> PartyView:
    state, ok = _state(client, now)
    return PartyView(client.name, state, ok, client.rows, client.uploaded_bytes)


def _state(client: Client, now: Snapshot) -> tuple[str, bool]:  # noqa: PLR0911 - one line per state
    if client.liar:
        return "sent wrong distances; not asked again", False
    if client.done:
        return "has its labels", True
    if not client.joined:
        return "not here yet", False
    if not client.connected and now.phase is not Phase.FAILED:
        return "lost: no connection", False
    if client.name in now.missing:
        return "waited for", True
    if client.held is None:
        return "here", True
    return "shares checked" if client.checked else "holds shares", True


@lru_cache(maxsize=1 << 16)
def _request(record: RequestRecord) -> RequestView:
    return RequestView(
        number=record.number,
        step=record.step,
        changed=record.changed,
        inertia=record.inertia,
        attempts=record.attempts,
        seconds=round(record.seconds, 4),
        compute=round(record.compute_seconds, 4),
        transport=round(record.transport_seconds, 4),
        waiting=round(record.waiting_seconds, 4),
        decode=round(record.decode_seconds, 4),
        upload_bytes=record.upload_bytes,
    )


def _runs(outcome: Outcome) -> tuple[RunView, ...]:
    return tuple(
        RunView(run.k, run.start, run.rounds, run.done, run.inertia, number in outcome.best)
        for number, run in enumerate(outcome.runs)
    )


def _sizes_of(outcome: Outcome, over: bool) -> str:
    return f"Rows of all parties in the run with k = {outcome.clusters} that is {'taken' if over else 'best so far'}."


def _given(outcome: Outcome) -> tuple[GivenView, ...]:
    return (
        GivenView("directions of distances", outcome.directions, outcome.of_directions),
        GivenView("assignments of all rows", outcome.given.assignments),
        GivenView("inertias opened", outcome.given.inertias),
    )
