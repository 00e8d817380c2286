"""Greedy k-means++: every kind of round takes the same seeds from the same coins, and says no more than it must."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secfc.agreement import costs, plan
from secfc.kmeans import central
from secfc.kmeans.candidates import candidates_per_seed
from secfc.kmeans.coins import Coins
from secfc.kmeans.lloyd import Clustering, Step
from secfc.kmeans.seeding import chosen_rows
from secfc.privacy import identifiers
from secfc.privacy.leakage import Leakage
from secfc.protocol import memory
from secfc.protocol.rounds import kind_of
from secfc.protocol.server import records
from tests import reference
from tests.parties import make_federation, plan_of

KINDS = ("open", "masked", "sealed")


def job(
    rows: np.ndarray[tuple[int, int], np.dtype[np.int64]],
    k: int,
    candidates: int,
    coins: Coins,
    uploads: str,
    membership: str,
) -> tuple[plan.Plan, memory.Result, list[int]]:
    """A whole job through the real machines: its plan, its result, and the order of its rows."""
    wishes = plan.Wishes(
        3, 1, k, rows.shape[1], len(rows), 9.0, 0, uploads=uploads, membership=membership, candidates=candidates
    )
    made = plan.make(wishes)
    parts = np.array_split(rows, 3)
    ids = [identifiers.fresh(len(part), bytes([j]) * 32) for j, part in enumerate(parts)]
    found = memory.run(
        made,
        parts,
        lambda total: Clustering(total, k, coins=coins, candidates=candidates),
        ids=ids if made.private else None,
    )
    return made, found, np.argsort(np.concatenate(found.slots)).tolist()


def seeds(found: memory.Result, k: int) -> list[list[int]]:
    """The seeds after every request of the seeding but the last, which assigns all rows."""
    rounds = [one for one in found.history if one.step is Step.SEED]
    assert len(rounds) == k, "one request per seed"
    return [chosen_rows(one.labels)[: one.number] for one in rounds[:-1]]


@settings(max_examples=6, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 1 << 20),
    k=st.integers(1, 5),
    candidates=st.integers(1, 6),
    spread=st.sampled_from([1, 9]),
    membership=st.sampled_from(["public", "private"]),
)
def test_all_kinds_take_the_seeds_of_the_reference(
    seed: int, k: int, candidates: int, spread: int, membership: str
) -> None:
    """Small values make ties between candidates, duplicates and ΣD² = 0."""
    rows = np.random.default_rng(seed).integers(-spread, spread + 1, (12, 2), dtype=np.int64)
    coins = Coins(b"greedy %d" % seed)
    for uploads in KINDS:
        made, found, order = job(rows, k, candidates, coins, uploads, membership)
        ordered, kind = rows[order], kind_of(made)
        labels = list(reference.draws(reference.as_rows(ordered), k, coins, kind.draw_bits(made), candidates))
        assert seeds(found, k) == [[after.index(c) for c in range(r)] for r, after in enumerate(labels[:-1], start=1)]
        pooled = central.run(
            ordered,
            k,
            coins=coins,
            empties=kind.empties,
            draw_bits=kind.draw_bits(made),
            candidates=candidates,
        )
        rounds = [one.labels.tolist() for one in found.history if one.step is Step.LLOYD]
        assert rounds == [labels.tolist() for labels in pooled.history], uploads


def test_all_kinds_take_the_same_seeds_from_the_same_coins() -> None:
    """A sealed job has fewer bits to draw with; they are the first of the others' bits."""
    rows = np.random.default_rng(3).integers(-9, 10, (60, 3), dtype=np.int64)
    made, bits = {}, set()
    for uploads in KINDS:
        agreed, found, _ = job(rows, 5, 3, Coins(b"the same"), uploads, "public")
        made[uploads] = seeds(found, 5)
        bits.add(kind_of(agreed).draw_bits(agreed))
    assert len(bits) > 1
    assert made["open"] == made["masked"] == made["sealed"]


@pytest.mark.parametrize("uploads", KINDS)
def test_one_request_carries_all_candidates_of_a_seed(uploads: str) -> None:
    rows = np.random.default_rng(1).integers(-9, 10, (60, 3), dtype=np.int64)
    _, found, _ = job(rows, 5, 4, Coins(b"columns"), uploads, "public")
    asked = [one.columns for one in found.history if one.step is Step.SEED]
    assert asked[0] == (0,)
    assert all(columns == tuple(range(r, r + len(columns))) for r, columns in enumerate(asked))
    assert max(map(len, asked)) > 1
    assert max(map(len, asked)) <= 4


def test_every_candidate_is_counted() -> None:
    """The server sees the distances to the candidates that lose as well."""
    rows = np.random.default_rng(1).integers(-9, 10, (60, 30), dtype=np.int64)
    given_away = {}
    for candidates in (1, 4):
        meter = Leakage(60, 30)
        _, found, _ = job(rows, 4, candidates, Coins(b"meter"), "masked", "public")
        before = np.full(60, -1, dtype=np.int32)
        before[chosen_rows(found.history[0].labels)[0]] = 0
        for one in found.history:
            if one.step is Step.SEED:
                meter = meter.after(before, one.columns)
                before = one.labels
        given_away[candidates] = meter.count
    assert given_away[1] == 3
    assert given_away[4] > 6


@pytest.mark.parametrize("uploads", ["masked", "sealed"])
def test_the_plan_knows_what_the_candidates_cost(uploads: str) -> None:
    """All candidates of all seeds are distinct here; what is really uploaded is what `secfc plan` says."""
    rows = np.random.default_rng(3).integers(-9, 10, (200, 6), dtype=np.int64)
    wishes = plan.Wishes(3, 1, 4, 6, 200, 9.0, 0, uploads=uploads, candidates=2)
    made, sent = plan.make(wishes), []
    coins = Coins(b"cost 2")
    found = memory.run(
        made,
        np.array_split(rows, 3),
        lambda total: Clustering(total, 4, coins=coins, candidates=2),
        tap=lambda question, given: sent.append((question.step, {8 * len(words) for words in given.values()})),
    )
    assert [len(one.columns) for one in found.history[:4]] == [1, 2, 2, 2]
    assert sum(max(sizes) for step, sizes in sent if step is Step.SEED) == costs.of(made)["seeding_bytes_per_client"]


def test_candidates_are_kept_over_a_restart_of_the_server() -> None:
    machine = Clustering(9, 3, coins=Coins(b"state"), candidates=3)
    labels = np.full(9, -1, dtype=np.int32)
    labels[[4, 2, 7, 1]] = range(4)
    machine.number, machine.labels = 2, labels
    again = Clustering(9, 3, coins=Coins(b"state"), candidates=3)
    again.resume(records.state_from(records.state_to(machine.state())))
    question = again.question
    assert (question.settled, question.columns) == (1, (0, 1, 2, 3))
    assert chosen_rows(question.labels) == [4, 2, 7, 1]
    assert question.draws == ("k-means++ 2 0", "k-means++ 2 1", "k-means++ 2 2")


def test_the_default_is_scikit_learns() -> None:
    assert [candidates_per_seed(k, "k-means++") for k in (1, 2, 3, 7, 8, 20, 21)] == [2, 2, 3, 3, 4, 4, 5]
    assert candidates_per_seed(8, "random") == candidates_per_seed(8, "separation") == 1
    agreed = make_federation(5, k=8)
    assert plan_of(agreed).candidates == 4
    assert plan_of(agreed).slots == 11
    plain = make_federation(5, k=8, candidates=1)
    assert plan_of(plain).slots == 8
    assert plain.job.digest() != agreed.job.digest()
