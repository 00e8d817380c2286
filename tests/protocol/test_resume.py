"""A server that forgets everything but its journal's state ends the same, from whichever request it goes on."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secfc.agreement import plan
from secfc.agreement.federation import SERVER
from secfc.errors import InvalidInput
from secfc.kmeans.coins import Coins
from secfc.kmeans.decoding import Distances
from secfc.kmeans.lloyd import Clustering, Step, solve
from secfc.protocol.effects import Send, Started
from secfc.protocol.messages import Phase
from secfc.protocol.parcels import Kind, attempt_of
from secfc.protocol.rounds.sealing import Detail
from secfc.protocol.server import records
from secfc.protocol.server.phases.rounds import ATTEMPTS_PER_START
from tests.federations import decoded, holders
from tests.parties import deal, make_federation
from tests.protocol.bench import Bench, is_parcel

K, ROWS, FEATURES = 4, 60, 3


def run(start: str, seed: int, forget_at: set[int]) -> tuple[list[int], int, list[tuple[int, ...]]]:
    """Labels, rounds and columns asked for; at the given requests the machine is thrown away and made again."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(-8, 9, size=(ROWS, FEATURES))
    made = plan.make(plan.Wishes(3, 1, K, FEATURES, ROWS, 8.0, 0))
    clients = holders(made, np.array_split(rows, 3), np.array_split(np.arange(ROWS), 3))
    machine = Clustering(ROWS, K, start=start, coins=Coins(bytes([seed])))
    distances = Distances(made.field, ROWS, K)
    asked = []
    while machine.step is not Step.DONE:
        if machine.number in forget_at:
            state = machine.state()
            machine = Clustering(ROWS, K, start=start, coins=Coins(bytes([seed])))
            machine.resume(state)
            distances = Distances(made.field, ROWS, K)
        question = machine.question
        asked.append(question.columns)
        uploads = {j: clients[j].answer(question, bytes(32), (0, 1, 2), 1) for j in range(3)}
        machine.absorb(solve(question, decoded(made, question, uploads, distances)))
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


def begun(records: int = 1, **changes: Any) -> Bench:
    """A job of three clients after so many requests."""
    job = Bench(make_federation(3, **changes), deal(3, [3, 4, 5]))
    job.start()
    job.until(lambda: len(job.server.snapshot(job.now).records) >= records)
    return job


def test_a_coordinator_goes_on_and_numbers_its_attempts_anew() -> None:
    job = begun()
    before = job.server.snapshot(job.now).records
    job.restart(SERVER)
    after = job.server.snapshot(job.now)
    assert job.server.phase is Phase.ROUNDS
    assert after.records == before
    assert job.server.attempt is None, "nobody has come back yet"
    assert set(after.missing) == set(job.clients)
    job.until(lambda: job.server.attempt is not None)
    assert job.server.attempt is not None
    assert job.server.attempt.name == (len(before) + 1, ATTEMPTS_PER_START + 1)
    job.until(lambda: all(client.ended for client in job.clients.values()))
    assert job.server.phase is Phase.FINISHED


def test_a_coordinator_that_told_nobody_a_roster_begins_again() -> None:
    job = Bench(make_federation(3), deal(3, [3, 4, 5]))
    job.give(SERVER, Started())
    for name in ("c0", "c1"):
        job.give(name, Started())
    job.until(lambda: set(job.server.snapshot(job.now).missing) == {"c2"})
    job.restart(SERVER)
    assert job.server.phase is Phase.JOINING


def test_a_coordinator_resumed_after_the_end_serves_the_labels() -> None:
    job = Bench(make_federation(3, max_rounds=1, seeding="random"), deal(3, [3, 4, 5]))
    job.start()
    job.until(lambda: job.server.phase is Phase.FINISHED)
    job.disks[SERVER]["done/c1"] = b""
    job.restart(SERVER)
    assert job.server.phase is Phase.FINISHED
    assert set(job.server.snapshot(job.now).missing) == {"c0", "c2"}
    job.until(lambda: all(client.ended for client in job.clients.values()))
    assert len(job.labels()) == 12


def directions(job: Bench) -> int:
    outcome = job.server.snapshot(job.now).outcome
    assert outcome is not None
    return outcome.directions


def test_the_meter_goes_on_with_the_same_shares_and_anew_with_others() -> None:
    job = begun(seeding="random")
    told = directions(job)
    assert told >= 1
    assert job.server.snapshot(job.now).records[-1].directions == told
    job.restart(SERVER)
    assert directions(job) == told
    for name in job.clients:
        one = records.introduction_from(job.disks[SERVER][f"introduction/{name}"])
        other = dataclasses.replace(one, share_set=bytes(16))
        job.disks[SERVER][f"introduction/{name}"] = records.introduction_to(other)
    job.restart(SERVER)
    assert directions(job) == 0


def test_a_meter_of_an_earlier_job_counts_on_if_the_shares_were_kept() -> None:
    old = begun(seeding="random")
    new = Bench(old.federation, old.rows)  # the same secrets, so the same share sets
    new.server = new.make_server({"leakage": old.disks[SERVER]["leakage"]})
    new.start()
    new.until(lambda: new.server.attempt is not None)
    assert directions(new) == directions(old) >= 1


def test_a_member_writes_an_epoch_down_before_it_speaks_and_never_speaks_in_it_again() -> None:
    """The keys of an epoch are in memory only, so a process that begins must not use what an earlier one may have used."""
    job = Bench(make_federation(3, uploads="sealed", seeding="random", max_rounds=2), deal(3, [3, 4, 5]))
    spoken: list[tuple[str, int]] = []

    def alter(sender: str, send: Send) -> Send:
        attempt = job.server.attempt
        said = is_parcel(send.message, Kind.STEP) or is_parcel(send.message, Kind.UPLOAD)
        if said and attempt is not None and attempt_of(send.message.name) == attempt.name:
            detail = Detail.from_bytes(attempt.exchange.requests(attempt.digests)[0].detail)
            if job.clients[sender].site.index in detail.committee:
                assert int(job.disks[sender]["noted"].split()[1]) == detail.epoch
                spoken.append((sender, detail.epoch))
        return send

    job.alter = alter
    job.start()
    job.until(lambda: bool(spoken))
    member, epoch = spoken[0]
    job.restart(member)
    spoken.clear()
    job.until(lambda: job.over)
    assert job.server.phase is Phase.FINISHED
    assert all(number > epoch for name, number in spoken if name == member)
    assert {number for _, number in spoken} - {epoch}, "another epoch was begun"
