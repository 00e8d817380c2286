"""What the parties agree on before parameters are chosen, and which of it can be meant at all."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from secfc.agreement.job import MEMBERSHIPS, PRUNE
from secfc.agreement.uploads import UPLOADS
from secfc.errors import PlanError
from secfc.kmeans import candidates, fixedpoint

_LARGEST_ROWS = (1 << 31) - 1
_LARGEST_CLIENTS = 2047
_LEAST = {"clients": 1, "clusters": 1, "features": 1, "max_rows": 1, "privacy": 0, "dropouts": 0, "liars": 0}


@dataclass(frozen=True)
class Wishes:
    """What the parties agree on; `segments=None` lets the plan choose the largest ℓ that fits, `candidates=None` takes
    as many for each seed of k-means++ as scikit-learn draws."""

    clients: int
    privacy: int
    clusters: int
    features: int
    max_rows: int
    bound: float
    precision: int
    dropouts: int = 0
    liars: int = 0
    uploads: str = "masked"
    segments: int | None = None
    membership: str = "public"
    seeding: str = "k-means++"
    candidates: int | None = None
    prune: bool = PRUNE


def checked(wishes: Wishes) -> Wishes:
    """The wishes as Python numbers: numpy's would overflow silently, and equal wishes must have equal digests. Raises
    PlanError for one that nobody can have."""
    _check_ranges(wishes)
    plain: dict[str, Any] = {name: int(getattr(wishes, name)) for name in (*_LEAST, "precision")}
    return replace(wishes, **plain, bound=float(wishes.bound))


def check_count(name: str, value: object, least: int) -> int:
    """A wish that is a whole number."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise PlanError(f"{name} must be a whole number of at least {least}, not {value!r}")
    return int(value)


def _check_ranges(w: Wishes) -> None:
    for name, least in _LEAST.items():
        check_count(name, getattr(w, name), least)
    if w.max_rows > _LARGEST_ROWS or w.clients > _LARGEST_CLIENTS:
        raise PlanError(f"at most {_LARGEST_ROWS} rows and {_LARGEST_CLIENTS} clients are supported")
    if w.clusters > w.max_rows:
        raise PlanError(f"k = {w.clusters} clusters need at least as many rows, not {w.max_rows}; lower k")
    fixedpoint.scaled_bound(w.bound, w.precision)
    candidates.candidates_per_seed(w.clusters, w.seeding, w.candidates)
    if w.uploads not in UPLOADS or w.membership not in MEMBERSHIPS:
        raise PlanError(f"uploads is one of {', '.join(UPLOADS)}; membership one of {', '.join(MEMBERSHIPS)}")
    if w.uploads != "open" and w.privacy < 1:
        raise PlanError(
            f"{w.uploads} uploads need privacy >= 1; use privacy = 1 or uploads = 'open', with which the server and any one"
            " client together can compute every row"
        )
    if w.membership == "private" and w.privacy < 1:
        raise PlanError("private membership needs privacy >= 1; use privacy = 1 or membership = 'public'")
    if w.prune and w.uploads == "sealed":
        raise PlanError(
            "prune = true needs uploads that show the server distances: sealed rounds choose by themselves what they compare;"
            " leave prune out"
        )
    if w.uploads != "open" and w.liars:
        raise PlanError(
            f"liars > 0 needs uploads = 'open': {w.uploads} uploads show the server only their sum, so a wrong one cannot be"
            " found; leave liars out, or let the server see every upload"
        )
