"""Whole jobs with sealed rounds through the real machines: labels after every round equal exact Lloyd's."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from secfc.agreement import plan
from secfc.errors import PlanError
from secfc.kmeans import central
from secfc.kmeans.coins import Coins
from secfc.kmeans.lloyd import Clustering, Step
from secfc.privacy.sealed import member
from secfc.privacy.sealed.context import Purse, pad_key
from secfc.privacy.sealed.questions import Lloyd, places
from secfc.protocol import memory
from secfc.protocol.rounds import kind_of
from tests.sealed.committee import Committee, scaled, terms_for


def check(
    seed: int, seeding: str, membership: str, privacy: int, clusters: int, spread: int = 20, candidates: int = 1
) -> None:
    chance, coins = random.Random(seed), Coins(b"job %d" % seed)
    clients = 2 * privacy + 1 + chance.randrange(3)
    rows = np.random.default_rng(seed).integers(-spread, spread + 1, (chance.randint(clusters, 60), 3))
    wishes = plan.Wishes(
        clients, privacy, clusters, 3, len(rows), 20.0, 0, uploads="sealed", membership=membership, seeding=seeding
    )
    agreed = plan.make(wishes if seeding != "k-means++" else replace(wishes, candidates=candidates))
    parts = np.split(rows, np.sort([chance.randint(0, len(rows)) for _ in range(clients - 1)]))
    found = memory.run(
        agreed, parts, lambda m: Clustering(m, clusters, start=seeding, coins=coins, candidates=candidates)
    )
    order = np.argsort(np.concatenate(found.slots))
    bits = kind_of(agreed).draw_bits(agreed)
    expected = central.run(
        rows[order],
        clusters,
        start=seeding,
        coins=coins,
        empties="largest",
        draw_bits=bits,
        candidates=candidates,
    )
    rounds = [one.labels.tolist() for one in found.history if one.step is Step.LLOYD]
    assert rounds == [labels.tolist() for labels in expected.history]
    assert found.labels.tolist() == expected.labels.tolist()
    assert abs(found.inertia - float(expected.inertia)) <= 1 + 1e-6 * float(expected.inertia)


@pytest.mark.parametrize("seeding", ["random", "k-means++", "separation"])
@pytest.mark.parametrize("membership", ["public", "private"])
def test_every_round_is_lloyds(seeding: str, membership: str) -> None:
    check(1, seeding, membership, 1, 4)


@pytest.mark.parametrize(("privacy", "clusters"), [(2, 3), (3, 2), (1, 14)])
def test_larger_committees_and_groups_of_clusters(privacy: int, clusters: int) -> None:
    check(2, "k-means++", "public", privacy, clusters)


def test_ties_and_duplicate_rows() -> None:
    check(3, "k-means++", "public", 1, 5, spread=1)
    check(3, "k-means++", "public", 1, 5, spread=1, candidates=3)


@pytest.mark.parametrize(
    ("membership", "privacy", "candidates"), [("public", 1, 4), ("private", 1, 3), ("public", 2, 9)]
)
def test_greedy_seeds(membership: str, privacy: int, candidates: int) -> None:
    check(4, "k-means++", membership, privacy, 4, candidates=candidates)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_any_job(seed: int) -> None:
    chance = random.Random(seed)
    seeding, membership = chance.choice(["random", "k-means++", "separation"]), chance.choice(["public", "private"])
    candidates = chance.randint(1, 5) if seeding == "k-means++" else 1
    check(seed, seeding, membership, chance.randint(1, 3), chance.randint(1, 12), chance.choice([1, 20]), candidates)


def test_the_server_and_a_member_know_the_distances() -> None:
    """What docs/privacy.md says first: Y of one member and ρ of the server make d′, as masked rounds show it."""
    rows = np.random.default_rng(5).integers(-20, 21, (24, 3))
    terms = terms_for(rows, 3, 2, "random")
    committee = Committee(rows, terms)
    committee.request = 1
    labels = np.arange(24, dtype=np.int32) % 3
    every = np.ones(3, dtype=bool)
    question = Lloyd(labels, np.bincount(labels), (0, 1, 2), every, np.zeros(24, dtype=bool))
    assert committee.ask(question) is not None
    shape = question.shape(terms)
    known = member.Pad(
        pad_key(Purse(committee.key, b"session"), committee.context(question)), shape
    )  # by any one member
    pads, (columns, lanes) = member._stream(known, 0, 24).astype(np.int64), places(shape)
    for at, (h, lane) in enumerate(zip(columns.tolist(), lanes.tolist(), strict=True)):
        p = terms.field.primes[lane]
        rho = committee.at_server.columns[:, h, lane].astype(np.int64)
        assert ((pads[:, at] - rho) % p == (scaled(rows, labels, h) % p).astype(np.int64)).all()


def test_what_cannot_be_compared_is_refused_by_the_plan() -> None:
    with pytest.raises(PlanError, match="k ≤ 127"):
        plan.make(plan.Wishes(3, 1, 128, 3, 200, 20.0, 0, uploads="sealed"))
    with pytest.raises(PlanError, match="11"):
        plan.make(plan.Wishes(3, 1, 3, 1 << 70, 1 << 19, 1e15, 0, uploads="sealed"))
    with pytest.raises(PlanError, match="privacy"):
        plan.make(plan.Wishes(3, 0, 3, 3, 100, 20.0, 0, uploads="sealed"))
