"""What a page shows: plain values, drawn from a snapshot of the job. Metrics are drawn from the same.

Never rows of others, keys, digests of secrets, or paths.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from secfc import __version__

MOST_REQUESTS = 400  # of a job's history are shown, the latest


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
    version: str = field(default=__version__)

    def to_json(self) -> bytes:
        """For the page. Metrics count all requests: a counter must not fall."""
        shown = vars(self) | {"requests": self.requests[-MOST_REQUESTS:]}
        return json.dumps(shown, default=vars, separators=(",", ":")).encode()
