"""A site's page: what its own machine knows of the job, and what its own rows are like by cluster."""

from __future__ import annotations

from math import isnan

import numpy as np

from secfc.agreement.federation import SERVER
from secfc.agreement.policy import seeding_requests
from secfc.agreement.submission import ID_DIGITS
from secfc.agreement.uploads import SEES
from secfc.errors import told
from secfc.kmeans.distances import Labels
from secfc.protocol.client.participant import Participant
from secfc.protocol.client.snapshot import Snapshot
from secfc.protocol.messages import Phase
from secfc.web.view import GivenView, PartyView, ProfileView, RequestView, RunView, View
from secfc_client.data import Table
from secfc_client.profile import means_by_cluster

PROFILED_ROWS = 20_000  # of a large table the page takes evenly spread ones, so that it costs next to nothing
_NOTE = (
    "What this site’s rows have given away, over all jobs, as far as this client can know: directions to the server, the rest"
    " to every party. policy.toml sets limits; secfc budget shows the same."
)


class SiteView:
    """Draws views of one site's table; the profile only where labels have changed."""

    def __init__(self, table: Table) -> None:
        self._table, self._features = table, table.filled
        self._step = max(1, -(-len(table) // PROFILED_ROWS))
        self._profiled: tuple[Labels, ProfileView] | None = None

    def of_machine(self, participant: Participant) -> View:
        return self.of(participant.snapshot())

    def of(self, now: Snapshot) -> View:
        site, job = now.site, now.site.federation.job
        seeding = max(seeding_requests(job, k) for k in job.ks)
        later = "assign" if site.plan.frozen else "lloyd"
        course = [RequestView(n, "seed" if n <= seeding else later, moved) for n, moved in now.course.items()]
        clusters = job.runs[now.run]
        labels = now.labels[now.taken] if now.labels is not None and now.taken is not None else None
        assigned = labels is not None and bool((labels >= 0).all())  # not while seeding
        sizes = np.bincount(labels, minlength=clusters) if labels is not None and assigned else ()
        which = "that was chosen" if now.found is not None else f"number {now.run + 1}"
        return View(
            role="client",
            name=site.name,
            federation=site.federation.name,
            phase=now.phase.value,
            over=now.phase in (Phase.FINISHED, Phase.FAILED),
            reason=told(now.failure) if now.failure else "",
            waits_for=now.missing if now.linked or now.failure else (SERVER,),
            rows=now.rows or len(site.rows),
            k=job.ks,
            uploads=site.federation.uploads,
            sees=SEES[site.federation.uploads],
            parties=_parties(now),
            broken_links=tuple(f"{name} cannot reach this client" for name in now.unreachable_by),
            phase_seconds={},
            requests=tuple(course),
            runs=_runs(now),
            sizes=tuple(int(size) for size in sizes),
            sizes_of=f"This site’s own rows, in the run {which} (k = {clusters}).",
            given=_given(now),
            given_note=_NOTE,
            profile=self._profile(now) if assigned and len(self._table) else None,
            job=site.federation.submission.hex()[:ID_DIGITS],
        )

    def _profile(self, now: Snapshot) -> ProfileView | None:
        labels = now.labels
        if labels is None or now.taken is None:
            return None
        if self._profiled is None or not np.array_equal(self._profiled[0], labels):
            chosen = np.flatnonzero(now.taken)[:: self._step]
            clusters, sizes, means = means_by_cluster(self._features[chosen], labels[chosen])
            rounded = tuple(tuple(float(f"{value:.5g}") for value in row) for row in means)
            count = len(chosen)
            names = self._table.feature_names
            self._profiled = labels, ProfileView(names, tuple(clusters.tolist()), tuple(sizes.tolist()), rounded, count)
        return self._profiled[1]


def _parties(now: Snapshot) -> tuple[PartyView, ...]:
    ended = now.phase in (Phase.FINISHED, Phase.FAILED)
    server = PartyView(
        SERVER, "connected" if now.linked else "ended" if ended else "lost: no connection", now.linked or ended
    )
    own = PartyView(now.site.name, "this site", True, len(now.site.rows))
    others = [name for name in now.site.federation.roster if name != now.site.name]
    return server, own, *(PartyView(name, *_other(name, now)) for name in others)


def _other(name: str, now: Snapshot) -> tuple[str, bool]:
    if name in now.unreachable_by:
        return "cannot reach us", False
    return ("waited for", True) if name in now.missing else ("takes part", True)


def _runs(now: Snapshot) -> tuple[RunView, ...]:
    if now.found is None:
        return ()
    k = now.site.federation.job.runs[now.run]
    loss = None if isnan(now.found.inertia) else now.found.inertia  # sealed uploads tell none of new rows
    return (RunView(k, now.run % now.site.federation.job.starts, now.found.rounds, True, loss, True),)


def _given(now: Snapshot) -> tuple[GivenView, ...]:
    guard = now.site.guard
    rules, leakage, given = guard.policy, guard.leakage, guard.given
    directions = leakage.count if leakage is not None else 0
    most = leakage.total if leakage is not None else now.site.federation.job.features
    return (
        GivenView("directions of distances", directions, most, rules.max_directions),
        GivenView("assignments of all rows", given.assignments, None, rules.max_assignments),
        GivenView("inertias opened", given.inertias),
    )
