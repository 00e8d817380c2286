"""What is simulated: a small federation, its rows, and what exact Lloyd makes of them."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from secfc.agreement.federation import Federation
from secfc.agreement.plan import Plan
from secfc.kmeans import central
from secfc.kmeans.coins import Coins
from secfc.kmeans.distances import Frozen
from secfc.privacy import identifiers
from secfc.privacy.identifiers import Ids
from secfc.protocol.client.freezing import KeptClusters
from secfc.protocol.rounds import kind_of
from tests.parties import Rows, deal, make_federation, plan_of


@dataclass(frozen=True)
class Scene:
    """A federation and its rows. `liars` send wrong distances. `clusters`: what each client kept of an earlier job's, if rows
    are only assigned to those."""

    federation: Federation
    rows: tuple[Rows, ...]
    liars: tuple[str, ...] = ()
    clusters: Mapping[str, KeptClusters] | None = None

    @property
    def plan(self) -> Plan:
        made = plan_of(self.federation)
        return made if self.clusters is None else next(iter(self.clusters.values())).public.plan(self.federation)

    def frozen(self, name: str) -> Frozen | None:
        return None if self.clusters is None else self.clusters[name].frozen(self.plan.field)

    def expected(self, coins: Coins, ids: Sequence[Ids] | None) -> list[Expected]:
        """Central Lloyd of every run from the same coins; with private membership rows are ordered by ID."""
        job = self.federation.job
        pooled = np.concatenate(self.rows)
        order = np.arange(len(pooled)) if ids is None else identifiers.order(np.concatenate(list(ids)))
        start = coins if job.seed is None else Coins(job.seed.encode())
        kind = kind_of(self.plan)
        runs = central.runs(
            pooled[order],
            job.runs,
            start=job.seeding,
            coins=start,
            max_rounds=job.max_rounds,
            empties=kind.empties,
            draw_bits=kind.draw_bits(self.plan),
            candidates=job.candidates,
        )
        return [self._expected(pooled, order, found) for found in runs]

    def _expected(self, pooled: Rows, order: npt.NDArray[np.int64], found: central.Central) -> Expected:
        kind = kind_of(self.plan)
        labels = np.empty(len(pooled), dtype=np.int32)
        labels[order] = found.labels
        edges = np.cumsum([0, *map(len, self.rows)])
        own = [labels[a:b].tolist() for a, b in itertools.pairwise(edges)]
        loss = found.inertia if kind.shows_distances else partition_inertia(pooled[order], found.labels)
        return Expected(own, [one.tolist() for one in found.history], found.converged, loss)


@dataclass(frozen=True)
class Expected:
    """What must come out: every client's own labels, all rows' labels after every Lloyd round, and the inertia in quantised
    units."""

    own: list[list[int]]
    rounds: list[list[int]]
    converged: bool
    inertia: Fraction


def partition_inertia(rows: Rows, labels: npt.NDArray[np.int32]) -> Fraction:
    """Of a finished partition to its own means, which is what sealed rounds measure."""
    total = Fraction(int((rows * rows).sum()))
    for h in set(labels.tolist()):
        mine = rows[labels == h]
        total -= Fraction(int((mine.sum(axis=0) ** 2).sum()), len(mine))
    return total


def relayed(federation: Federation, part: float, chance: random.Random) -> Federation:
    """The same, but so many of the clients only dial out."""
    without = [replace(one, address="", bind="") if chance.random() < part else one for one in federation.clients]
    relay = "never" if not part else "only" if part == 1 else "fallback"
    return replace(federation, clients=tuple(without), relay=relay)


def random_scene(chance: random.Random, *, sealed: bool | None = None) -> Scene:
    """All modes: open, masked, sealed, private membership, liars, centres; sizes, seedings and starts as chance has it.
    `sealed`: whether rounds are; None: a quarter of them."""
    sealed = chance.random() < 0.25 if sealed is None else sealed
    privacy = chance.choice([1, 1, 1, 2])
    liars = 0 if sealed else chance.choice([0, 0, 0, 1])
    dropouts = chance.choice([0, 1, 1, 2])
    segments = chance.choice([1, 1, 2])
    clients = 2 * privacy + 2 * segments - 1 + dropouts + 2 * liars
    private = not liars and chance.random() < 0.3
    settings: dict[str, Any] = {
        "privacy": privacy,
        "dropouts": dropouts,
        "liars": liars,
        "segments": segments,
        "uploads": "open" if liars else "sealed" if sealed else chance.choice(["masked", "masked", "open"]),
        "seeding": chance.choice(["k-means++", "random", "separation"]),
        "membership": "private" if private else "public",
        "k": chance.choice([2, 3, 3, 10] if sealed else [2, 3]),  # ten: groups of clusters
        "starts": 1,
        "max_rounds": chance.choice([3, 300]),
        "centers": "nobody" if private else chance.choice(["nobody", "nobody", "clients", "server"]),
        "centers_smallest": 1,
    }
    if settings["seeding"] == "k-means++" and chance.random() < 0.5:
        settings["candidates"] = chance.choice([1, 1, 2, 5])
    if chance.random() < 0.3:
        settings["seed"] = f"seed {chance.randrange(1000)}"
    if chance.random() < 0.3:
        settings["starts"] = chance.choice([1, 2, 3])
        settings["k"] = chance.choice([settings["k"], [2, 3], [3, 1], [4, 2, 3]])
    agreed = relayed(make_federation(clients, **settings), chance.choice([0.0, 0.0, 0.0, 0.5, 1.0]), chance)
    sizes = [chance.choice([0, 1, 3, 4, 6]) for _ in range(clients)]
    sizes[0] += max(max(agreed.job.ks) + 1 - sum(sizes), 0)
    spread = chance.choice([2, 128])
    rows = deal(chance.randrange(1 << 30), sizes, spread=spread)
    lying = tuple(chance.sample(agreed.roster, chance.randint(0, liars)))
    return Scene(agreed, tuple(rows), lying)
