"""Who takes part in a job in one process, and whether what they bring fits together."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from secfc.agreement.features import Feature
from secfc.agreement.federation import SERVER, Federation
from secfc.agreement.job import Job
from secfc.agreement.parties import Party
from secfc.agreement.plan import Plan
from secfc.errors import DataError, InvalidInput
from secfc.kmeans.standard import Rows, Unscaled
from secfc.privacy.identifiers import Ids
from secfc.protocol.client.guard import Guard
from secfc.protocol.client.site import Secrets, Site

Positions = npt.NDArray[np.int64]


def _names(plan: Plan) -> list[str]:
    return [f"client-{j + 1}" for j in range(plan.wishes.clients)]


def job_of(
    plan: Plan, clusters: Sequence[int], starts: int, scale: str, clip: float | None, columns: Sequence[int] | None
) -> Job:
    wishes, names = plan.wishes, _names(plan)
    split = tuple(Feature(f"x{f + 1}", holder=names[j]) for f, j in enumerate(columns or ()))
    return Job(
        k=clusters[0],
        other_k=tuple(clusters[1:]),
        starts=starts,
        features=wishes.features,
        bound=wishes.bound,
        precision=wishes.precision,
        max_rows=wishes.max_rows,
        seeding="random",  # the start is the caller's
        segments=plan.segments,
        membership=wishes.membership,
        max_rounds=1 << 30,
        scale=scale,
        clip=clip,
        agreed=split,
        split="columns" if split else "rows",
        prune=wishes.prune,
    )


def federation_of(plan: Plan, job: Job) -> Federation:
    wishes, names = plan.wishes, _names(plan)
    server, *clients = (Party(name, "memory:1", "memory:1") for name in (SERVER, *names))
    return Federation(
        name="memory",
        privacy=wishes.privacy,
        dropouts=wishes.dropouts,
        liars=wishes.liars,
        uploads=wishes.uploads,
        server=server,
        clients=tuple(clients),
        job=job,
    )


def site_of(
    federation: Federation,
    plan: Plan,
    name: str,
    rows: Rows | Unscaled,
    secrets: Secrets,
    ids: Callable[[bytes], Ids] | None,
    places: Sequence[Positions] | None,
) -> Site:
    """A client that trusts the others: they are all in one process."""
    return Site(
        federation=federation,
        plan=plan,
        name=name,
        rows=rows,
        secrets=secrets,
        guard=Guard(federation, plan, any_start=True),
        verify=lambda _: None,
        sign=lambda _: b"",
        certificate=b"",
        instance=os.urandom(16),
        chance=random.Random(0),
        ids=ids,
        places=None if places is None else tuple(places),
        any_start=True,
    )


def checked(
    plan: Plan, rows: Sequence[Rows | Unscaled], positions: Sequence[Positions] | None, split: bool
) -> tuple[list[Rows | Unscaled], list[Positions]]:
    if len(rows) != plan.wishes.clients:
        raise InvalidInput(f"{plan.wishes.clients} clients were planned, rows of {len(rows)} were given")
    parts = [part if isinstance(part, Unscaled) else np.asarray(part) for part in rows]
    for j, part in enumerate(parts):
        if isinstance(part, Unscaled):
            continue
        if part.ndim != 2 or part.shape[1] != plan.wishes.features or part.dtype.kind != "i":
            raise DataError(f"client {j + 1} must bring whole-number rows of {plan.wishes.features} features")
        if part.size and (part.max() > plan.eta or part.min() < -plan.eta):
            raise DataError(f"client {j + 1} brings a value beyond the planned bound; quantise with the plan's bound")
    total = sum(len(part) for part in parts)
    if total == 0:
        raise DataError("no client brings a row; there is nothing to cluster")
    if (most := max(map(len, parts)) if split else total) > plan.wishes.max_rows:
        raise DataError(f"{most} rows exceed the planned max_rows = {plan.wishes.max_rows}; plan for more")
    if positions is None:
        edges = np.cumsum([0] + [len(part) for part in parts])
        positions = [np.arange(a, b) for a, b in itertools.pairwise(edges)]
    if [len(at) for at in positions] != [len(part) for part in parts]:
        raise InvalidInput("positions must number each client's rows, one number per row")
    if not np.array_equal(np.sort(np.concatenate(list(positions))), np.arange(total)):
        raise InvalidInput("positions must number all rows once")
    return parts, list(positions)


def check_columns(
    plan: Plan, rows: Sequence[Rows | Unscaled], columns: Sequence[int], ids: Sequence[Ids] | None
) -> None:
    holders = set(columns)
    if len(columns) != plan.wishes.features or not holders <= set(range(plan.wishes.clients)) or len(holders) < 2:
        raise InvalidInput("columns must name the holder of every feature, and two clients or more must hold some")
    if not plan.private or ids is None:
        raise InvalidInput("columns that are split need private membership, and the IDs of everybody's rows")
    for j, part in enumerate(rows):
        if isinstance(part, Unscaled):
            raise InvalidInput("columns that are split are scaled by their holders")
        own = [f for f, holder in enumerate(columns) if holder == j]
        if np.delete(part, own, axis=1).any() or (not own and len(part)):
            raise InvalidInput(f"client {j + 1} brings values in columns that are not its own")
