"""Memory of a sealed round is flat in chunks: what is dealt, said and under way does not grow with the rows (docs/sealed.md,
Section 4). What grows is what is kept per row: at the server ρ and the sums of uploads, at a member labels."""

from __future__ import annotations

import tracemalloc
from collections import deque
from typing import Any

import numpy as np
import pytest

from secfc.agreement import plan
from secfc.agreement.federation import SERVER as THE_SERVER
from secfc.kmeans.lloyd import Clustering
from secfc.privacy.sealed import cost, rounds
from secfc.privacy.sealed.member import Ledger
from secfc.privacy.sealed.messages import SERVER, Kind, Said
from secfc.privacy.sealed.questions import Lloyd, Seed
from secfc.protocol.effects import Effects
from secfc.protocol.memory import Memory
from tests.sealed.committee import Committee, terms_for

CLUSTERS = 4
CHUNK = 120  # rows, of up to six comparisons each


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "MOST_COMPARISONS", 6 * CHUNK)


def some_rows(chunks: int) -> tuple[Any, Any]:
    """Rows, and labels that say nothing about them."""
    random = np.random.default_rng(3)
    return random.integers(-60, 60, (chunks * CHUNK, 2)), random.integers(0, CLUSTERS, chunks * CHUNK).astype(np.int32)


class Watched(Memory):
    """The real machines in one process; after every input of the server's: how much it could be asked to deal again."""

    held = 0

    def _carry_out(self, name: str, effects: Effects) -> None:
        super()._carry_out(name, effects)
        if name == THE_SERVER and self.server.attempt is not None:
            told = [self.server.attempt.exchange.told(j) for j in range(len(self.clients))]
            self.held = max(self.held, sum(one.body.total for some in told for one in some if one is not None))

    @property
    def dealt(self) -> int:
        return sum(member.told_bytes for member in self.server.job.members.values())


def one_round(chunks: int) -> Watched:
    values, start = some_rows(chunks)
    wishes = plan.Wishes(4, 1, CLUSTERS, 2, len(values), bound=1.0, precision=6, uploads="sealed", seeding="random")
    job = Watched(
        plan.make(wishes),
        np.array_split(values, 4),
        lambda count: Clustering(count, CLUSTERS, initial=start, max_rounds=1),
    )
    job.run()
    return job


def test_the_server_drops_what_it_dealt_once_it_is_answered() -> None:
    few, many = one_round(6), one_round(24)
    assert many.dealt > 3.5 * few.dealt
    assert many.held <= 1.2 * few.held
    assert many.held < many.dealt / 4


def peak(chunks: int) -> int:
    """Bytes that all halves of a round hold at the worst moment, over what they kept before it."""
    values, labels = some_rows(chunks)
    committee = Committee(values, terms_for(values, CLUSTERS, 2, "random"))
    every, sizes = np.ones(CLUSTERS, dtype=bool), np.bincount(labels, minlength=CLUSTERS)
    question = Lloyd(labels, sizes, tuple(range(CLUSTERS)), every, np.ones(len(labels), dtype=bool))
    context = committee.context(question)
    sums = committee.sums(question, context)
    tracemalloc.start()
    try:
        referee, members = committee.halves(question, context)
        post: deque[tuple[int, Said]] = deque((SERVER, one) for one in referee.begin())
        fed = 0
        while not (referee.done and all(half.done for half in members)):
            for j, half in enumerate(members):
                post.extend((j, one) for one in half.work())
            if not post:
                post.extend((SERVER, one) for one in referee.feed(fed, sums[fed : fed + CHUNK]))
                fed += CHUNK
            while post:
                sender, out = post.popleft()
                taken = referee.take(sender, out.message) if out.to == SERVER else members[out.to].take(out.message)
                post.extend((out.to, one) for one in taken)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_peak_memory_is_flat_in_chunks() -> None:
    peak(2)  # compiles and fills caches
    few, many = peak(8), peak(32)
    kept = 64 * 24 * CHUNK  # labels and such, of 24 chunks more; what those are dealt is thirty times as much
    assert many < 1.2 * few + kept


def seeding_peak(rows: int, candidates: int) -> tuple[int, int]:
    """Bytes that the server and two members hold together while a seed is chosen, and what the plan counts for them."""
    values = np.random.default_rng(3).integers(-2000, 2000, (rows, 2))
    committee = Committee(values, terms_for(values, CLUSTERS, 2))
    found = 0
    for number, asked in enumerate((Seed(0, (7,), (5,)), Seed(1, tuple(range(candidates)), (1,) * candidates))):
        committee.request = number + 1
        context = committee.context(asked)
        sums = committee.sums(asked, context)
        tracemalloc.start()
        referee, members = committee.halves(asked, context)
        post = deque((j, one) for j, half in enumerate(members) for one in half.begin())
        post.extend((SERVER, one) for one in referee.feed(0, sums))
        while post:
            sender, out = post.popleft()
            taken = referee.take(sender, out.message) if out.to == SERVER else members[out.to].take(out.message)
            post.extend((out.to, one) for one in taken)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert referee.done
        committee.at_server, committee.at_members = referee.kept, [half.kept for half in members]
    member, server = cost.seeding_memory(committee.terms, candidates)
    return found, 2 * member + server


@pytest.mark.parametrize("candidates", [1, 4])
def test_choosing_a_seed_takes_what_the_plan_says(candidates: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """All halves together: no more than was planned for each of them, and not far less."""
    monkeypatch.setattr(rounds, "MOST_COMPARISONS", 1 << 10)
    found, planned = seeding_peak(6000, candidates)
    assert planned / 6 < found < planned


def member_peak(rows: int, candidates: int) -> int:
    """Bytes that a member holds at the worst moment while it folds a seed's candidates into D² and draws, beside its
    messages. What the server says is recorded first; the member is not the one that is dealt to."""
    values = np.random.default_rng(3).integers(-2000, 2000, (rows, 2))
    committee = Committee(values, terms_for(values, CLUSTERS, 2))
    committee.request = 1
    committee.ask(Seed(0, (7,), (5,)))
    kept, asked = committee.at_members[1], Seed(1, tuple(range(candidates)), (1,) * candidates)
    committee.request, committee.record = 2, []
    committee.ask(asked)
    said = [one.message for sender, one in committee.record if sender == SERVER and one.to == 1]
    assert {message.kind for message in said} == {Kind.TOLD}
    committee.at_members[1], committee.ledgers[1] = kept, Ledger()
    half = committee.halves(asked, committee.context(asked))[1][1]
    mail = iter(said)
    tracemalloc.start()
    try:
        spoken = sum(len(one.message.data) for one in half.begin())
        for message in mail:
            half.take(message)
        assert half.done
        return tracemalloc.get_traced_memory()[1] - spoken
    finally:
        tracemalloc.stop()


def test_a_member_holds_no_d2_of_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three candidates more take a bit each and row, and columns of a part."""
    monkeypatch.setattr(rounds, "MOST_COMPARISONS", 1 << 11)
    member_peak(600, 4)  # compiles and fills caches
    one, four = member_peak(12000, 1), member_peak(12000, 4)
    lanes = 4 * 4  # bytes of D² of a row
    assert four < one + lanes * 12000
