"""What `secfc plan` says of sealed rounds, against what the real machines send in one process."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import isqrt
from typing import Any

import numpy as np
import pytest

from secfc.agreement import costs, plan
from secfc.agreement.federation import SERVER
from secfc.coding.field import Field
from secfc.kmeans.coins import Coins
from secfc.kmeans.lloyd import Clustering
from secfc.privacy.sealed import cost, rounds
from secfc.privacy.sealed.messages import Kind as Sealed
from secfc.privacy.sealed.questions import Lloyd, Seed
from secfc.protocol import parcels
from secfc.protocol.client.inputs import Told
from secfc.protocol.effects import Arrived
from secfc.protocol.memory import Memory
from secfc.protocol.messages import Piece
from secfc.protocol.parcels import Kind
from secfc.protocol.rounds import sealing
from secfc.protocol.rounds.sealing import CHECK, DONE, KEY, SEED
from tests.sealed.committee import Committee, terms_for

ROWS, FEATURES = 60, 3
SEEDS = {3: 3, 4: 4, 10: 1}  # rows with which no cluster runs empty in the first two rounds
# All comparisons of clusters of at most 60 rows take three lanes: 2·unit is just above Q₂, and (30·30)² is below 2²¹.
ETA = isqrt(Field.of(2).modulus // (2 * FEATURES)) // 2 + 1
HEAD = len(parcels.attempt_name(0, 0))
AGREEING = (KEY, CHECK, SEED)  # once in an epoch, some 60 bytes each


class Counted(Memory):
    """Bytes and messages of every request: (number, sender, kind), but for what agrees on an epoch's keys."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.sent: Counter[tuple[int, str, Kind]] = Counter()
        self.messages: Counter[tuple[int, str, Kind]] = Counter()
        self._parcels: dict[tuple[str, str, parcels.Parcel], bytearray] = {}
        self.labels: list[list[int]] = []
        self.finished = lambda runs, _: self.labels.append(runs.all[0].labels.tolist())

    def _give(self, name: str, given: Any) -> None:
        if name == SERVER and isinstance(given, Arrived):
            self._count(given.sender, name, given.parcel, given.data)
        elif isinstance(given, Told) and isinstance(given.event, Piece):
            self._count(SERVER, name, given.event.parcel, given.event.data)
        super()._give(name, given)

    def _count(self, sender: str, to: str, parcel: parcels.Parcel, data: Any) -> None:
        word = parcel.name[HEAD:][:1] if len(parcel.name) - HEAD < 3 else b""
        if parcel.kind in (Kind.UPLOAD, Kind.STEP) and word not in (*AGREEING, DONE):
            self._parcels.setdefault((sender, to, parcel), bytearray()).extend(data)

    def run(self) -> None:
        super().run()
        for (sender, _, parcel), data in self._parcels.items():
            key = parcels.attempt_of(parcel.name)[0], sender, parcel.kind
            said: list[Any] = [data]
            if parcel.kind is Kind.STEP and sender != SERVER:  # what a member says at once travels together
                said = [message.data for _, message in sealing.messages_of(parcel.name[HEAD:], data, frozenset(Sealed))]
            self.sent[key] += sum(map(len, said))
            self.messages[key] += len(said)


def job(clusters: int, privacy: int) -> tuple[plan.Plan, Counted]:
    clients = 2 * privacy + 1
    wishes = plan.Wishes(clients, privacy, clusters, FEATURES, ROWS, float(ETA), 0, uploads="sealed", seeding="random")
    agreed = plan.make(wishes)
    rows = np.random.default_rng(SEEDS[clusters]).integers(-ETA, ETA + 1, (ROWS, FEATURES))
    start = Coins(b"cost")
    made = Counted(
        agreed, np.array_split(rows, clients), lambda m: Clustering(m, clusters, start="random", coins=start)
    )
    made.run()
    return agreed, made


def check(agreed: plan.Plan, made: Counted, number: int, expected: cost.Traffic) -> None:
    """What the parties said in a request is what was expected, byte for byte and message for message."""
    members = agreed.wishes.privacy + 1
    assert cost.comparison_lanes(agreed.sealed(ROWS), 1 << 16) == (3, 0)
    uploads = [made.sent[number, name, Kind.UPLOAD] for name in made.clients]
    assert uploads == [cost.upload_bytes(agreed.sealed(ROWS))] * agreed.responders
    answers = {name: made.sent[number, name, Kind.STEP] for name in made.clients}
    assert sum(answers.values()) == members * expected.answered + expected.single
    assert sum(size > 0 for size in answers.values()) == members
    assert made.sent[number, SERVER, Kind.STEP] == expected.dealt + expected.told
    assert made.messages[number, SERVER, Kind.STEP] == expected.server_messages
    said = sum(made.messages[number, name, Kind.STEP] for name in made.clients)
    assert said == members * expected.member_messages + expected.single_messages


@pytest.mark.parametrize(("clusters", "privacy"), [(3, 1), (4, 2), (10, 1)])
def test_rounds_send_what_the_plan_says(clusters: int, privacy: int) -> None:
    agreed, made = job(clusters, privacy)
    terms = agreed.sealed(ROWS)
    check(agreed, made, 1, cost.first_round(terms))
    before, after = (np.array(labels) for labels in made.labels[:2])
    moved = np.flatnonzero(before != after)
    assert len(moved), "stage 2 is needed, or the last thing told may not leave any more"
    for labels in (before, after):
        assert np.bincount(labels, minlength=clusters).min() > 1, "no cluster has run empty: every label is trusted"
    check(agreed, made, 2, cost.usual_round(terms, len(moved) / ROWS))


@pytest.mark.parametrize("clusters", [4, 10])
def test_a_round_of_many_chunks(clusters: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "MOST_COMPARISONS", 250)
    agreed, made = job(clusters, 1)
    assert rounds.chunk_rows(clusters, asked=False) < ROWS
    check(agreed, made, 1, cost.first_round(agreed.sealed(ROWS)))


@pytest.mark.parametrize("most", [1 << 16, 72])
@pytest.mark.parametrize("trusted", [False, True])
def test_rounds_with_shorter_comparisons_send_what_the_plan_says(
    trusted: bool, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Byte for byte, if shortening leaves two lanes of three; of 36 or 24 rows a chunk."""
    monkeypatch.setattr(rounds, "MOST_COMPARISONS", most)
    values = np.random.default_rng(4).integers(-(1 << 14), 1 << 14, (60, 2))
    terms = terms_for(values, 3, 2, "random")
    labels = np.repeat(np.arange(3, dtype=np.int32), [19, 20, 21])
    ones = np.ones(3, dtype=bool)
    committee = Committee(values, terms)
    found = committee.ask(Lloyd(labels, np.array([19, 20, 21]), (0, 1, 2), ones, np.full(60, trusted)))
    assert found is not None
    assert found.labels is not None
    expected = cost.first_round(terms)
    if trusted:
        expected = cost.usual_round(terms, float((found.labels != labels).mean()))
    sent = Counter[int]()
    for sender, said in committee.record:
        sent[sender] += len(said.message.data)
    assert cost.comparison_lanes(terms, 1 << 16) == (2, 1)
    assert sent[-1] == expected.dealt + expected.told
    assert sent[0] + sent[1] == 2 * expected.answered + expected.single


def test_the_plan_adds_up() -> None:
    """What the parties send is what the parties receive, and a larger committee takes more of the server."""
    agreed = plan.make(plan.Wishes(9, 2, 12, 5, 5000, 8.0, 8, dropouts=1, uploads="sealed"))
    for found in costs.sealed(agreed).values():
        members = 3
        others = agreed.responders - members
        sent = members * found["member_sent"] + others * found["client_sent"]
        assert 0 <= sent - found["server_received"] < members, "rounded up for each member"
        assert 0 <= members * found["member_received"] - found["server_sent"] < members
    masked = costs.of(plan.make(plan.Wishes(9, 2, 12, 5, 5000, 8.0, 8, dropouts=1)))
    assert costs.of(agreed)["server_process_bytes"] > masked["server_process_bytes"]
    assert costs.of(agreed)["client_process_bytes"] > masked["client_process_bytes"]


@pytest.mark.parametrize("candidates", [1, 3])
@pytest.mark.parametrize("parts", [1 << 15, 40])
def test_a_seed_makes_everybody_say_what_is_counted(
    candidates: int, parts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Byte for byte, and message for message, if no row of a block is left out: 64 rows are eight blocks of eight."""
    monkeypatch.setattr(rounds, "MOST_COMPARISONS", parts)
    values = np.random.default_rng(3).integers(-40, 41, (64, 2))
    terms = terms_for(values, 3, 2)
    committee = Committee(values, terms)
    seeds = (Seed(0, (7,), (5,)), Seed(1, tuple(range(candidates)), (1,) * candidates), Seed(2, (9,), (), finish=True))
    for number, asked in enumerate(seeds):
        committee.request, committee.record = number + 1, []
        committee.ask(asked)
        expected = cost.of_seed(terms, asked)
        sent = Counter[int]()
        for sender, said in committee.record:
            sent[sender] += len(said.message.data)
        assert sent[-1] == expected.dealt + expected.told
        assert sent[0] + sent[1] == 2 * expected.answered + expected.single
        dealt = sum(sender == -1 for sender, _ in committee.record)
        assert dealt == expected.server_messages
        assert len(committee.record) - dealt == 2 * expected.member_messages + expected.single_messages


def test_the_plan_counts_all_comparisons_of_seeding() -> None:
    """Of every party, over all requests: what each of them takes alone is checked byte for byte above."""
    agreed = plan.make(plan.Wishes(9, 2, 5, 4, 400, 8.0, 8, uploads="sealed", candidates=3))
    terms = agreed.sealed(400)
    asked = [Seed(0, (0,), (0, 0, 0)), *(Seed(number, (0, 1, 2), (0, 0, 0)) for number in (1, 2, 3))]
    expected = sum((cost.of_seed(terms, one) for one in [*asked, Seed(4, (0, 1, 2), (), True)]), cost.Traffic())
    found = costs.sealed(agreed)["seeding"]
    assert found["server_sent"] == expected.dealt + expected.told
    assert found["server_messages"] == expected.server_messages
    assert found["client_sent"] == costs.of(agreed)["seeding_bytes_per_client"]
    assert found["client_messages"] == 5
    two = costs.sealed_runs(agreed, (5, 3))["seeding"]
    three = costs.sealed(agreed.of_run(3))["seeding"]
    assert two["client_messages"] == 5
    assert two["member_messages"] == found["member_messages"] + three["member_messages"] - 3
    assert "seeding" not in costs.sealed(plan.make(replace(agreed.wishes, seeding="random", candidates=None)))


def test_the_plan_counts_what_seeding_takes() -> None:
    """With few clusters and many candidates that is more than a first round."""
    wishes = plan.Wishes(5, 1, 2, 5, 50000, 8.0, 8, uploads="sealed", seeding="random")
    without = costs.of(plan.make(wishes))
    seeded = costs.of(plan.make(replace(wishes, seeding="k-means++", candidates=16)))
    assert seeded["client_memory_bytes"] > 1.5 * without["client_memory_bytes"]
    assert seeded["server_memory_bytes"] > 1.5 * without["server_memory_bytes"]
