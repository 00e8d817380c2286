"""What a page shows: plain values, drawn from a snapshot of the job. Metrics are drawn from the same.

Never rows of others, keys, digests of secrets, or paths.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from secfc import __version__
from secfc.agreement.federation import Federation
from secfc.agreement.uploads import SEES

MOST_REQUESTS = 400  # of a job's history are shown, the latest
MOST_JOBS = 100  # that are over are shown, the latest
IDLE = "idle"  # the phase of a party that stays, before its first job


@dataclass(frozen=True)
class PartyView:
    """Another party, or one's own, as this party sees it."""

    name: str
    state: str  # one or two words
    ok: bool
    rows: int | None = None
    uploaded_bytes: int = 0


@dataclass(frozen=True)
class RequestView:
    """One answered request; what this party does not know is None."""

    number: int
    step: str
    changed: int
    inertia: float | None = None
    attempts: int = 1
    seconds: float | None = None
    compute: float | None = None
    transport: float | None = None
    waiting: float | None = None
    decode: float | None = None
    upload_bytes: int = 0


@dataclass(frozen=True)
class RunView:
    """One clustering among those of the job."""

    k: int
    start: int
    rounds: int
    done: bool
    inertia: float | None
    chosen: bool


@dataclass(frozen=True)
class GivenView:
    """How much of something is given away, and how much may be. `most` is the largest number there is, `limit` what this
    site's policy allows; None: it sets no limit."""

    what: str
    count: int
    most: int | None = None
    limit: int | None = None


@dataclass(frozen=True)
class ProfileView:
    """Means of a site's own rows by cluster."""

    features: tuple[str, ...]
    clusters: tuple[int, ...]
    sizes: tuple[int, ...]
    means: tuple[tuple[float, ...], ...]
    of_rows: int  # of how many rows, if not of all


@dataclass(frozen=True)
class JobView:
    """A submitted job, as this party knows it. Times are seconds since 1970; 0: not yet. `question`: what a person at this
    site should know, who has to decide about it; empty if nobody here has to."""

    id: str
    digest: str
    state: str
    reason: str
    submitter: str
    dataset: str
    k: tuple[int, ...]
    submitted: int
    began: int
    ended: int
    over: bool
    waits_for: tuple[str, ...] = ()
    approvals_of: tuple[str, ...] = ()  # sites where a person has to decide
    question: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class View:
    """See the module's docstring."""

    role: str
    name: str
    federation: str
    phase: str
    over: bool
    reason: str
    waits_for: tuple[str, ...]
    rows: int
    k: tuple[int, ...]
    uploads: str
    sees: str  # what the server sees, in one line
    parties: tuple[PartyView, ...]
    broken_links: tuple[str, ...]
    phase_seconds: Mapping[str, float]
    requests: tuple[RequestView, ...]  # all of them; the page gets the latest
    runs: tuple[RunView, ...]
    sizes: tuple[int, ...]
    sizes_of: str
    given: tuple[GivenView, ...]
    given_note: str
    committee: tuple[str, ...] = ()
    profile: ProfileView | None = None
    stays: bool = False  # for many jobs; what else is told here is of the one that runs, or ran last
    job: str = ""  # which one that is
    jobs: tuple[JobView, ...] = ()  # the newest first
    decides: bool = False  # whether the page takes decisions
    version: str = field(default=__version__)

    def to_json(self) -> bytes:
        """For the page. Metrics count all requests: a counter must not fall."""
        shown = vars(self) | {"requests": self.requests[-MOST_REQUESTS:], "jobs": latest(self.jobs)}
        return json.dumps(shown, default=vars, separators=(",", ":")).encode()


def idle(role: str, name: str, federation: Federation) -> View:
    """Of a party that stays, while there was no job yet."""
    return View(
        role=role,
        name=name,
        federation=federation.name,
        phase=IDLE,
        over=False,
        reason="",
        waits_for=(),
        rows=0,
        k=(),
        uploads=federation.uploads,
        sees=SEES[federation.uploads],
        parties=(),
        broken_links=(),
        phase_seconds={},
        requests=(),
        runs=(),
        sizes=(),
        sizes_of="",
        given=(),
        given_note="",
        stays=True,
    )


def latest(jobs: Sequence[JobView]) -> tuple[JobView, ...]:
    """All that are not over, and the newest of those that are."""
    ended = [one for one in jobs if one.over][MOST_JOBS:]
    gone = {one.digest for one in ended}
    return tuple(one for one in jobs if one.digest not in gone)
