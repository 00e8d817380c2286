"""A server that forgets everything but its journal's state ends the same, from whichever request it goes on."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secfc import events, federation, plan
from secfc.coins import Coins
from secfc.decoding import Distances
from secfc.errors import InvalidInput
from secfc.lloyd import Clustering, Phase
from secfc_server.coordinator import ATTEMPTS_A_START
from secfc_server.coordinator import Phase as Job
from secfc_server.rounds import Work
from tests.unit.test_coordinator import Server

K, ROWS, FEATURES = 4, 60, 3


def run(start: str, seed: int, forget_at: set[int]) -> tuple[list[int], int, list[tuple[int, ...]]]:
    """Labels, rounds and columns asked for; at the given requests the machine is thrown away and made again."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(-8, 9, size=(ROWS, FEATURES))
    made = plan.make(plan.Wishes(3, 1, K, FEATURES, ROWS, 8.0, 0))
    parts = np.array_split(rows, 3)
    members = federation.share(made, parts, np.array_split(np.arange(ROWS), 3))
    machine = Clustering(ROWS, K, start=start, coins=Coins(bytes([seed])))
    distances = Distances(made.field, ROWS, K)
    asked = []
    while machine.phase is not Phase.DONE:
        if machine.number in forget_at:
            state = machine.state()
            machine = Clustering(ROWS, K, start=start, coins=Coins(bytes([seed])))
            machine.resume(state)
            distances = Distances(made.field, ROWS, K)
        request = machine.request
        asked.append(request.columns)
        uploads = {j: members[j].answer(request, bytes(32), (0, 1, 2), 1) for j in range(3)}
        federation.decode(made, request, uploads, distances)
        machine.absorb(distances)
    return machine.labels.tolist(), machine.rounds, asked


@settings(max_examples=15, deadline=None)
@given(
    start=st.sampled_from(["k-means++", "random", "separation"]),
    seed=st.integers(0, 50),
    forget_at=st.sets(st.integers(1, 12), max_size=4),
)
def test_a_resumed_clustering_ends_the_same(start: str, seed: int, forget_at: set[int]) -> None:
    labels, rounds, _ = run(start, seed, set())
    assert run(start, seed, forget_at)[:2] == (labels, rounds)


def test_all_columns_are_asked_for_again() -> None:
    _, _, asked = run("random", 1, {2})
    assert asked[1] == tuple(range(K))


def test_a_state_of_another_job_is_refused() -> None:
    with pytest.raises(InvalidInput, match="does not fit"):
        Clustering(5, 2).resume(Clustering(6, 2).state())


def agreements_of(server: Server) -> dict[str, events.Agreed]:
    return {name: member.agreed for name, member in server.coordinator.members.items() if member.agreed}


def test_a_coordinator_goes_on_and_numbers_its_attempts_anew() -> None:
    old = Server(3, (3, 4, 5))
    old.begin_rounds()
    for j in old.responders():
        old.send(j)
    work = old.coordinator.take_work()
    assert work is not None
    record = old.coordinator.record(work.run(), 0.1, old.now)
    kept = {one.name: one for one in old.coordinator.roster()}
    coins = {name: member.coin for name, member in old.coordinator.members.items()}
    agreed = agreements_of(old)

    new = Server(3, (3, 4, 5))
    new.coordinator.resume(kept, (), work.clustering.state(), [record], 1, new.now, agreed=agreed, coins=coins)
    assert new.coordinator.phase is Job.ROUNDS
    assert new.coordinator.rounds is not None
    assert new.coordinator.rounds.records == [record]
    assert new.coordinator.rounds.attempt is None, "nobody has come back yet"
    assert set(new.coordinator.missing()) == set(kept)
    for j in range(len(kept)):
        new.join(j)
        new.follow(j)
        new.report(j, new.held(j))
    assert new.coordinator.rounds.attempt is not None
    assert new.coordinator.rounds.attempt.name == (2, ATTEMPTS_A_START + 1)


def test_a_coordinator_that_told_nobody_a_roster_begins_again() -> None:
    server = Server(3, (3, 4, 5))
    server.coordinator.resume({}, (), None, [], 1, server.now)
    assert server.coordinator.phase is Job.JOINING


def test_a_coordinator_resumed_after_the_end_serves_the_labels() -> None:
    old = Server(3, (3, 4, 5), max_rounds=1, seeding="random")
    old.begin_rounds()
    for j in old.responders():
        old.send(j)
    work = old.coordinator.take_work()
    assert work is not None
    record = old.coordinator.record(work.run(), 0.1, old.now)
    kept = {one.name: one for one in old.coordinator.roster()}
    coins = {name: member.coin for name, member in old.coordinator.members.items()}
    agreed = agreements_of(old)
    new = Server(3, (3, 4, 5), max_rounds=1, seeding="random")
    new.coordinator.resume(kept, ("c1",), work.clustering.state(), [record], 1, new.now, agreed=agreed, coins=coins)
    assert new.coordinator.phase is Job.FINISHED
    assert set(new.coordinator.missing()) == {"c0", "c2"}


def completed(server: Server) -> tuple[Work, bytes]:
    """One request answered and decoded; what would be written down of the meter."""
    server.begin_rounds()
    for j in server.responders():
        server.send(j)
    work = server.coordinator.take_work()
    assert work is not None
    record = server.coordinator.record(work.run(), 0.1, server.now)
    assert record.directions == work.leakage.count
    kept = server.coordinator.kept_leakage(work)
    server.coordinator.complete(record, server.now)
    return work, kept


def test_the_meter_goes_on_with_the_same_shares_and_anew_with_others() -> None:
    old = Server(3, (3, 4, 5), seeding="random")
    work, kept = completed(old)
    told = work.leakage.count
    assert told >= 1
    roster = {one.name: one for one in old.coordinator.roster()}
    coins = {name: member.coin for name, member in old.coordinator.members.items()}
    agreed = agreements_of(old)
    same = Server(3, (3, 4, 5), seeding="random")
    same.coordinator.resume(
        roster, (), work.clustering.state(), [], 1, same.now, leakage=kept, agreed=agreed, coins=coins
    )
    assert same.coordinator.rounds is not None
    assert same.coordinator.rounds.leakage.count == told
    fresh = {name: dataclasses.replace(one, share_set=bytes(16)) for name, one in roster.items()}
    other = Server(3, (3, 4, 5), seeding="random")
    other.coordinator.resume(
        fresh, (), work.clustering.state(), [], 1, other.now, leakage=kept, agreed=agreed, coins=coins
    )
    assert other.coordinator.rounds is not None
    assert other.coordinator.rounds.leakage.count == 0


def test_a_meter_of_an_earlier_job_counts_on_if_the_shares_were_kept() -> None:
    old = Server(3, (3, 4, 5), seeding="random")
    work, kept = completed(old)
    new = Server(3, (3, 4, 5), seeding="random")
    new.coordinator.resume({}, (), None, [], 0, new.now, leakage=kept)  # a new job: nobody has joined
    new.begin_rounds()
    assert events.share_sets(new.coordinator.roster()) == events.share_sets(old.coordinator.roster())
    assert new.coordinator.rounds is not None
    assert new.coordinator.rounds.leakage.count == work.leakage.count >= 1
