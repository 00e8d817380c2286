"""A submitted job as people at a site see it before they decide: what exactly is done, and what it gives away."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from secfc.agreement import job as jobs
from secfc.agreement.federation import Federation
from secfc.agreement.job import ASSIGN, Job
from secfc.agreement.policy import Policy, assignments_given, seeding_requests
from secfc.agreement.uploads import SEES
from secfc.pki.provision import spoken
from secfc.privacy.leakage import Tally
from secfc.protocol.jobs.record import Record
from secfc_client import budget
from secfc_client.budget import Entry


def most_given(job: Job, uploads: str) -> Tally:
    """The most that a job can give away: of directions (as ranks), assignments of all rows, and opened inertias."""
    sealed = uploads == "sealed"
    if job.kind == ASSIGN:  # one request, for all centres: k distances tell k − 1 directions
        return Tally(0 if sealed else min(job.k, job.features + 1), 1, 0)
    assignments = sum(assignments_given(job, k, seeding_requests(job, k) + job.max_rounds) for k in job.runs)
    return Tally(0 if sealed else job.features + 1, assignments, len(job.runs) if sealed else 0)


def described(
    one: Record, said: str, why: str, federation: Federation, policy: Policy, entries: Mapping[str, Entry]
) -> dict[str, Any]:
    """Plain values, for JSON and for people. No row is read for it: what the dataset has given away is what was counted."""
    running, job = one.job.within(federation), one.job.wanted.job
    most, before = most_given(job, federation.uploads), entries.get(budget.dataset_key(one.job.wanted.dataset))
    counted = before.tally if before else Tally()
    directions = before.directions if before else 0
    return {
        "job": one.job.id,
        "digest": spoken(one.digest),
        "state": one.state.value,
        "verdict": said,
        "why": why,
        "reason": one.reason,
        "submitter": one.job.submitter,
        "dataset": one.job.wanted.dataset,
        "sites": list(running.roster),
        "submitted": one.job.submitted,
        "expires": one.job.expires,
        "parameters": jobs.dumps(job),
        "privacy": federation.privacy,
        "uploads": federation.uploads,
        "server_sees": SEES[federation.uploads],
        "centers": job.centers,
        "centers_consent": policy.open_centers,
        "given_before": {"directions": directions, "assignments": counted.assignments, "inertias": counted.inertias},
        "given_afterwards_at_most": {
            "directions": directions + max(most.ranks - (not counted.ranks), 0),
            "assignments": counted.assignments + most.assignments,
            "inertias": counted.inertias + most.inertias,
        },
    }


def origin(one: Record, why: str) -> list[tuple[str, str]]:
    """Who asked for a job, for what data, and why a site took part."""
    asked = f"{one.job.submitter}, {_moment(one.job.submitted)}"
    return [("submitted by", asked), ("dataset", one.job.wanted.dataset), ("this site took part", why)]


def facts(one: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What `described` gave, for people: all that somebody should know before deciding. A text may have several lines."""
    before, after = one["given_before"], one["given_afterwards_at_most"]
    yield "job", one["job"]
    yield "digest", one["digest"]
    yield "state", f"{one['state']}; here {one['verdict']}: {one['why']}"
    yield "submitter", f"{one['submitter']}, {_moment(one['submitted'])}; expires {_moment(one['expires'])}"
    yield "dataset", f"{one['dataset']}, with {', '.join(one['sites'])}"
    yield "uploads", f"{one['uploads']}, privacy {one['privacy']}: {one['server_sees']}"
    yield "centres", f"to {one['centers']}; this site's policy consents to {one['centers_consent']}"
    yield "parameters", one["parameters"].strip()
    counts = (f"{what}: {before[what]} so far, at most {after[what]} afterwards" for what in before)
    yield "given away by this dataset, over all jobs", "\n".join(counts)


def _moment(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"
