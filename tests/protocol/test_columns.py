"""Columns split over the clients (docs/protocol.md, Section 2b): labels are those of central Lloyd on the joined table after
every round, in every kind of round; clients learn which of their rows all holders have, and nothing about other rows."""

from __future__ import annotations

import dataclasses
import random

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from secfc import SecureKMeans
from secfc.agreement import plan
from secfc.errors import InvalidInput, JobFailed
from secfc.privacy import identifiers
from secfc.privacy.identifiers import Ids
from secfc.protocol import memory, messages
from secfc.protocol.messages import Phase
from secfc.protocol.parcels import Kind
from tests.federations import Job, check
from tests.parties import fresh_secrets, make_federation, make_site
from tests.protocol.helpers import Client, agree, exchange, opened
from tests.protocol.test_confirming import concluded, confirms
from tests.protocol.test_exactness import CASES, jobs
from tests.protocol.test_membership import in_slots
from tests.simulation.disasters import run
from tests.simulation.scene import Scene, random_scene, split_scene
from tests.simulation.world import World

calm = settings(deadline=None, suppress_health_check=list(HealthCheck))


# --- the result -------------------------------------------------------------------------------------------------------


def check_columns(job: Job, seed: int) -> None:
    """A job whose columns are dealt over clients that have other rows besides equals, after every round, central Lloyd and
    the job with whole rows on the joined table."""
    chance = random.Random(seed)
    holders = chance.sample(range(job.clients), chance.randint(2, min(job.clients, job.features)))
    columns = chance.sample([*holders, *chance.choices(holders, k=job.features - len(holders))], job.features)
    rows, count = np.array(job.rows, dtype=np.int64), len(job.rows)
    wishes = dataclasses.replace(job.plan().wishes, membership="private", max_rows=count + 4)
    everybody = identifiers.fresh(count + 4, seed.to_bytes(32, "big"))  # the last four are not common
    wide = np.concatenate([rows, np.full((4, job.features), chance.choice([-1, 1]) * job.plan().eta)])
    parts, ids = [], []
    for j in range(job.clients):
        lacking = 0 if j in holders else count + 4
        own = [i for i in range(lacking, count + 4) if i < count or (chance.random() < 0.5 and j != holders[i % 2])]
        chance.shuffle(own)
        parts.append(wide[own] * np.array([holder == j for holder in columns]))
        ids.append(everybody[own])
    order = identifiers.order(everybody[:count])
    sorted_job = in_slots(job, order)
    machine = sorted_job.clustering()
    result = memory.run(plan.make(wishes), parts, lambda _: machine, ids=ids, columns=columns)
    assert machine.steps == sorted_job.expected()
    whole = check(sorted_job)
    np.testing.assert_array_equal(result.labels, whole.labels)
    assert (result.inertia, result.rounds, result.converged) == (whole.inertia, whole.rounds, whole.converged)
    for own, slots in zip(ids, result.slots, strict=True):
        np.testing.assert_array_equal(slots, identifiers.find(everybody[order], own))


@settings(calm, max_examples=2)
@given(jobs(), st.integers(0, 1 << 20))
@example(CASES["duplicate rows"], 1)
@example(CASES["rows in no cluster"], 2)
def test_labels_after_every_round_are_those_of_the_joined_table(job: Job, seed: int) -> None:
    assume(job.privacy and job.features > 1)
    check_columns(job, seed)


@pytest.mark.slow
@settings(calm, max_examples=150)
@given(jobs(most_rows=24, most_features=9), st.integers(0, 1 << 20))
def test_very_many_splits(job: Job, seed: int) -> None:
    assume(job.privacy and job.features > 1)
    check_columns(job, seed)


@pytest.mark.parametrize("uploads", ["masked", "open", "sealed"])
def test_an_estimator_with_split_columns_finds_what_it_finds_with_whole_rows(uploads: str) -> None:
    pick = np.random.default_rng(3)
    X, start = pick.normal(size=(40, 4)), pick.integers(0, 3, 40)
    whole = SecureKMeans(3, n_clients=4, uploads=uploads).fit(X, initial_labels=start)
    for groups in (["a", "b", "b", "a"], [3, 1, 0, 2]):
        split = SecureKMeans(3, n_clients=4, uploads=uploads, feature_groups=groups).fit(X, initial_labels=start)
        np.testing.assert_array_equal(split.labels_, whole.labels_)
        assert split.inertia_ == pytest.approx(whole.inertia_, rel=1e-6)
        assert split.n_iter_ == whole.n_iter_


def test_an_estimator_refuses_groups_that_make_no_sense() -> None:
    X = np.eye(4)
    with pytest.raises(InvalidInput, match="one client per feature: 4, not shape"):
        SecureKMeans(2, feature_groups=[0, 1]).fit(X)
    with pytest.raises(InvalidInput, match="must be 2 to n_clients = 3"):
        SecureKMeans(2, n_clients=3, feature_groups=[0, 1, 2, 3]).fit(X)
    with pytest.raises(InvalidInput, match="must be 2 to n_clients"):
        SecureKMeans(2, feature_groups=[0, 0, 0, 0]).fit(X)
    with pytest.raises(InvalidInput, match="give one of them"):
        SecureKMeans(2, feature_groups=[0, 1, 0, 1]).fit(X, groups=[0, 1, 0, 1])


def test_what_is_in_columns_of_others_is_refused() -> None:
    wishes = plan.Wishes(3, 1, 1, 2, 4, 1.0, 0, membership="private")
    ids = [identifiers.fresh(2, bytes(32))] * 2 + [identifiers.none()]
    parts = [np.ones((2, 2), dtype=np.int64)] * 2 + [np.empty((0, 2), dtype=np.int64)]
    with pytest.raises(InvalidInput, match="client 1 brings values in columns that are not its own"):
        memory.run(plan.make(wishes), parts, lambda _: CASES["duplicate rows"].clustering(), ids=ids, columns=[0, 1])


# --- mishaps ----------------------------------------------------------------------------------------------------------

SPLIT = [seed for seed in range(160) if random_scene(random.Random(seed)).names]  # of what CI draws from


@pytest.mark.parametrize("seed", [*SPLIT[:3], *(pytest.param(seed, marks=pytest.mark.slow) for seed in SPLIT[3:])])
def test_disasters(seed: int) -> None:
    """Everybody dies and comes back; every round is Lloyd's on the joined table, and rows outside it have no label."""
    outcome = run(seed)
    assert not outcome.failure, outcome.failure


def scene(uploads: str = "masked", seed: int = 5) -> Scene:
    return split_scene(make_federation(3, membership="private", uploads=uploads, k=2), random.Random(seed))


def test_one_line_for_rows_that_do_not_meet() -> None:
    apart = scene()
    lost = dataclasses.replace(
        apart, names=tuple(tuple(f"{j} {name}" for name in own) for j, own in enumerate(apart.names))
    )
    world = World(lost, 1)
    world.start()
    world.until(lambda: world.server.phase is Phase.FAILED)
    assert isinstance(world.server.failure, JobFailed)
    assert str(world.server.failure).startswith(
        "no rows have an ID that all 3 holders have, and k = 2 needs as many; see"
    )


# --- who learns what --------------------------------------------------------------------------------------------------


def test_clients_are_told_common_ids_only_and_the_server_how_many_holders_have_each() -> None:
    told: set[tuple[int, ...]] = set()
    split = next(one for one in (scene(seed=seed) for seed in range(99)) if len(set(map(frozenset, one.names))) > 2)
    world = World(split, 1)

    def listen(name: str, event: messages.Event) -> messages.Event:
        if isinstance(event, messages.Piece) and event.parcel.kind is Kind.OPENED:
            ids = np.frombuffer(event.data, "<u8").reshape(-1, 2)
            told.update(map(tuple, ids.tolist()))
        return event

    world.tell = listen
    world.start()
    world.until(lambda: world.finished)
    world.check_labels()
    holders = [set(own) for own in split.names if own]
    common = set.intersection(*holders)
    assert len(told) == len(common) < len(set.union(*holders))
    union = world.server._phase.union
    copies = sorted(c for one in union.opened for c in one.outside.copies.tolist())
    assert copies == sorted(sum(name in own for own in holders) for name in set.union(*holders) - common)


SPLIT_FOUR = make_federation(
    4,
    membership="private",
    ids="linked",
    split="columns",
    features={"x1": {"holder": "c0"}, "x2": {"holder": "c1"}, "x3": {"holder": "c2"}},
)
HELD = [[0, 1, 2, 3], [0, 1, 2, 4], [2, 0, 1, 5], []]  # by c3 nothing: it helps


def aligned() -> tuple[list[Client], Ids]:
    """Clients whose tables are summed up: the server knows all IDs, and has told the count alone."""
    ids = identifiers.fresh(6, b"i" * 32)
    generator, clients = random.Random(2), []
    for j, own in enumerate(HELD):
        rows = np.zeros((len(own), 3), dtype=np.int64)
        site = make_site(SPLIT_FOUR, f"c{j}", rows, fresh_secrets(generator), ids=lambda _, own=own: ids[own])
        clients.append(Client(site))
    agree(clients)
    exchange(clients)
    for client in clients:
        client.tell(opened(client, 0, 12))
    exchange(clients)
    return clients, ids


@pytest.mark.parametrize(
    ("told", "goes_on"),
    [
        ([[0, 1, 2]] * 4, True),
        ([[0, 1, 2, 3]] * 4, False),  # c0 alone has 3
        ([[0, 1, 2, 4]] * 4, False),
        ([[0, 1, 2, 5]] * 4, False),
        ([[0, 1, 3]] * 4, False),
        ([[0, 1, 2], [0, 1, 2], [0, 1, 2], [0, 1]], False),  # the helper hears otherwise
        ([[0, 1]] * 4, True),  # left out: nobody can tell, see docs/privacy.md
    ],
)
def test_a_server_that_adds_rows_or_tells_different_ones_is_left_by_all_with_the_same_words(
    told: list[list[int]], goes_on: bool
) -> None:
    clients, ids = aligned()
    before = [len(client.told) for client in clients]
    for client, own in zip(clients, told, strict=True):
        client.tell(opened(client, 1, 0, ids[own]))
    exchange(clients, confirms)
    ends = {view[1:] for view in concluded(clients, before)}
    assert len(ends) == 1, "all do the same, so nobody shows what it lacks"
    assert (next(iter(ends))[0] == "goes on") == goes_on
