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

from secfc.agreement.features import Feature
from secfc.agreement.federation import Federation
from secfc.agreement.plan import Plan
from secfc.kmeans import central
from secfc.kmeans.coins import Coins
from secfc.kmeans.distances import Frozen
from secfc.kmeans.standard import Unscaled
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
    names: tuple[tuple[str, ...], ...] = ()  # of every client's rows, where columns are split and rows linked

    def linked(self, client: str, session: bytes) -> Ids:
        """IDs of a client's rows, by their names."""
        return identifiers.linked(self.names[self.federation.roster.index(client)], bytes(32), session)

    @property
    def plan(self) -> Plan:
        made = plan_of(self.federation)
        return made if self.clusters is None else next(iter(self.clusters.values())).public.plan(self.federation)

    def frozen(self, name: str) -> Frozen | None:
        return None if self.clusters is None else self.clusters[name].frozen(self.plan.field)

    @property
    def pooled(self) -> Rows:
        """Everybody's rows as they are clustered, one after the other."""
        job, whole = self.federation.job, np.concatenate(self.rows)
        if not job.standard:
            return whole
        every = _unscaled(whole)
        names = [str(f) for f in range(job.features)]
        return every.quantised(every.spread(every.moments(), names), names, (job.clip, job.bound, job.precision))

    def brought(self, j: int) -> Rows | Unscaled:
        """What a client begins with."""
        return _unscaled(self.rows[j]) if self.federation.job.standard else self.rows[j]

    def expected(self, coins: Coins, ids: Sequence[Ids] | None) -> list[Expected]:
        """Central Lloyd of every run from the same coins; with private membership rows are ordered by ID, and where columns
        are split they are those that all holders have."""
        job = self.federation.job
        pooled, places = self._pooled(ids)
        start = coins if job.seed is None else Coins(job.seed.encode())
        kind = kind_of(self.plan)
        runs = central.runs(
            pooled,
            job.runs,
            start=job.seeding,
            coins=start,
            max_rounds=job.max_rounds,
            empties=kind.empties,
            draw_bits=kind.draw_bits(self.plan),
            candidates=job.candidates,
        )
        return [self._expected(pooled, places, found) for found in runs]

    def _pooled(self, ids: Sequence[Ids] | None) -> tuple[Rows, list[list[int]]]:
        """The table that a central party would cluster, and where every client's rows stand in it (-1: they do not)."""
        edges, whole = np.cumsum([0, *map(len, self.rows)]), self.pooled
        if ids is None:
            return whole, [list(range(a, b)) for a, b in itertools.pairwise(edges)]
        named = [list(map(tuple, own.tolist())) for own in ids]
        holders = [set(own) for own, client in zip(named, self.federation.roster, strict=True) if self._holds(client)]
        common = sorted(set.intersection(*holders) if self.names else set.union(*holders))
        at = {name: place for place, name in enumerate(common)}
        places = [[at.get(name, -1) for name in own] for own in named]
        pooled = np.zeros((len(common), self.federation.job.features), dtype=np.int64)
        for (a, b), own in zip(itertools.pairwise(edges), places, strict=True):
            for row, place in zip(whole[a:b], own, strict=True):
                if place >= 0:
                    pooled[place] += row
        return pooled, places

    def _holds(self, client: str) -> bool:
        return not self.federation.helps(client)

    def _expected(self, pooled: Rows, places: list[list[int]], found: central.Central) -> Expected:
        kind = kind_of(self.plan)
        labels = found.labels.tolist()
        own = [[labels[place] if place >= 0 else -1 for place in mine] for mine in places]
        loss = found.inertia if kind.shows_distances else partition_inertia(pooled, found.labels)
        return Expected(own, [one.tolist() for one in found.history], found.converged, loss)


def _unscaled(rows: Rows) -> Unscaled:
    """Columns of quite different sizes."""
    values = rows * np.geomspace(1e-3, 1e6, rows.shape[1]) + 1e4
    return Unscaled(values, np.ones(rows.shape[1], bool))


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
    """All modes: open, masked, sealed, private membership, liars, centres, standard scaling; sizes, seedings and starts as
    chance has it. `sealed`: whether rounds are; None: a quarter of them."""
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
        "k": chance.choice([2, 2, 3, 3, 10] if sealed else [2, 3]),  # ten: groups of clusters
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
        settings["k"] = chance.choice([2, 3, [2, 3], [3, 1], [4, 2, 3]])
        several = isinstance(settings["k"], list)
        settings["starts"] = chance.choice([1, 1, 2] if several else [2, 3])
    if chance.random() < 0.2:
        settings["scale"] = "standard"
    if settings["uploads"] != "sealed":  # drawn apart, so that scenes are otherwise those of before
        settings["prune"] = random.Random(repr(settings)).random() < 0.6
    agreed = relayed(make_federation(clients, **settings), chance.choice([0.0, 0.0, 0.0, 0.5, 1.0]), chance)
    sizes = [chance.choice([0, 1, 3, 4, 6]) for _ in range(clients)]
    sizes[0] += max(max(agreed.job.ks) + 1 - sum(sizes), 0)
    spread = chance.choice([2, 128])
    rows = deal(chance.randrange(1 << 30), sizes, spread=spread)
    lying = tuple(chance.sample(agreed.roster, chance.randint(0, liars)))
    if private and not agreed.job.standard and chance.random() < 0.5:
        return split_scene(agreed, chance, spread)
    return Scene(agreed, tuple(rows), lying)


def split_scene(agreed: Federation, chance: random.Random, spread: int = 128) -> Scene:
    """The same, but columns are split over two clients or more; each has some rows that not all others have."""
    features, count = agreed.job.features, chance.randint(2, min(agreed.job.features, agreed.n))
    holders = chance.sample(agreed.roster, count)
    held = [*holders, *(chance.choice(holders) for _ in range(features - count))]
    about = tuple(Feature(f"x{f + 1}", holder=name) for f, name in enumerate(chance.sample(held, features)))
    names = tuple(one.name for one in about)
    job = replace(agreed.job, split="columns", ids="linked", agreed=about, feature_names=names)
    common = max(job.ks) + chance.choice([0, 1, 5])
    rows, named = [], []
    for client in agreed.roster:
        own = [f"p{i}" for i in range(common)]
        own += [f"q{i}" for i in range(6) if chance.random() < 0.3 and client != holders[i % count]]
        own = chance.sample(own, len(own)) if client in holders else []
        values = deal(chance.randrange(1 << 30), [len(own)], features, spread)[0]
        rows.append(values * np.isin(np.arange(features), job.columns_of(client)))
        named.append(tuple(own))
    return Scene(replace(agreed, job=job), tuple(rows), names=tuple(named))
