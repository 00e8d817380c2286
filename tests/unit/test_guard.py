"""The guard: every request of an honest server passes, whatever restarts; everything else is refused and changes nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secfc.agreement.policy import Policy
from secfc.errors import ConfigError, Malformed, OutOfTurn, Refused, SecfcError, WentBack
from secfc.kmeans.coins import Coins
from secfc.kmeans.decoding import Distances
from secfc.kmeans.distances import Labels
from secfc.kmeans.lloyd import Clustering, Question, Step, solve
from secfc.privacy.leakage import Leakage, Tally
from secfc.protocol.client.guard import Guard
from secfc.protocol.messages import RoundRequest
from secfc.protocol.rounds.sealing import Detail
from tests.parties import Rows, deal, digest_of, make_federation, plan_of, unchanged

K, ROWS, FEATURES = 3, 24, 5
SESSION, SHARES, KEY = b"s" * 32, b"x" * 32, b"k" * 32


def guard(seeding: str = "random", policy: Policy | None = None, kept: bytes = b"", **changes: Any) -> Guard:
    agreed = make_federation(5, seeding=seeding, features=FEATURES, **changes)
    made = Guard(agreed, plan_of(agreed), policy, kept)
    made.begin(SESSION, SHARES, ROWS, KEY)
    vars(made)["_check_first"] = lambda request: None  # so that a test may begin with any request
    return made


def ask(number: int, labels: Labels, columns: Sequence[int] | None = None, attempt: int = 1) -> RoundRequest:
    wanted = np.unique(labels[labels >= 0]).tolist() if columns is None else columns
    return RoundRequest(number, attempt, (0, 1, 2), tuple(wanted), digest_of(labels), 60.0)


def admit(one: Guard, request: RoundRequest, labels: Labels) -> None:
    """As a client does: examine, count on a thread, admit."""
    with unchanged(one):
        admission = one.examine(request, {0: labels})
    if admission is not None:
        one.admit(admission, admission.count())


def refused(one: Guard, request: RoundRequest, labels: Labels, error: type[SecfcError], words: str) -> None:
    with unchanged(one), pytest.raises(error, match=words) as caught:
        admit(one, request, labels)
    assert caught.type is error


def partition(seed: int = 0) -> Labels:
    labels = np.random.default_rng(seed).integers(0, K, ROWS, dtype=np.int32)
    labels[:K] = range(K)
    return labels


def chosen(*rows: int) -> Labels:
    labels = np.full(ROWS, -1, dtype=np.int32)
    labels[list(rows)] = range(len(rows))
    return labels


# --- an honest server ----------------------------------------------------------------------------------------------------


def honest(start: str, seed: int, forget_at: set[int], candidates: int) -> Iterator[Question]:
    """Every question of a job; at the given numbers the server is restarted after it asked once."""
    rows = np.concatenate(deal(seed, [8, 9, 7], FEATURES, spread=4))
    field = plan_of(make_federation(3, features=FEATURES, seeding=start)).field

    def begin() -> Clustering:
        return Clustering(ROWS, K, start=start, coins=Coins(bytes([seed])), candidates=candidates)

    machine, distances = begin(), Distances(field, ROWS, K)
    while machine.step is not Step.DONE:
        if machine.number in forget_at:
            yield machine.question
            state, machine, distances = machine.state(), begin(), Distances(field, ROWS, K)
            machine.resume(state)
        question = machine.question
        yield question
        distances.resize(len(question.sizes))
        decode(question, rows, distances)
        machine.absorb(solve(question, distances))


def decode(question: Question, rows: Rows, distances: Distances) -> None:
    """What the responders' uploads show: |S_h|²·‖x − μ_h‖², in mixed radix."""
    for h in question.columns:
        members = question.labels == h
        scaled = int(members.sum()) * rows - rows[members].sum(axis=0)
        left = (scaled**2).sum(axis=1)
        for lane, prime in enumerate(distances.field.primes):
            left, distances.digits[lane, :, h] = np.divmod(left, prime)


@settings(max_examples=25, deadline=None)
@given(
    start=st.sampled_from([("k-means++", 1), ("k-means++", 3), ("k-means++", 9), ("random", 1), ("separation", 1)]),
    seed=st.integers(0, 60),
    forget_at=st.sets(st.integers(1, 12), max_size=4),
    restart_at=st.sets(st.integers(1, 12), max_size=4),
)
def test_an_honest_server_is_never_refused(
    start: tuple[str, int], seed: int, forget_at: set[int], restart_at: set[int]
) -> None:
    """Restarts of the server, and of the client that keeps `kept`; the meter is that of all requests, candidates included."""
    seeding, candidates = start
    agreed = {"candidates": candidates} if seeding == "k-means++" else {}
    mine, meter = guard(seeding, **agreed), Leakage(ROWS, FEATURES)
    for attempt, request in enumerate(honest(seeding, seed, forget_at, candidates), start=1):
        asked = ask(request.number, request.labels, request.columns, attempt)
        admit(mine, asked, request.labels)
        meter = meter.after(request.labels, request.columns)
        if request.number in restart_at:
            mine = guard(seeding, kept=mine.kept(), **agreed)
        admit(mine, asked, request.labels)
        assert mine.leakage is not None
        assert mine.leakage.count == meter.count


# --- order ---------------------------------------------------------------------------------------------------------------


def test_a_number_keeps_its_assignment_and_columns() -> None:
    one, labels = guard(), partition()
    admit(one, ask(4, labels, (0, 2)), labels)
    for mine in (one, guard(kept=one.kept())):  # a restarted client knows it too
        other = partition(1)
        refused(mine, ask(4, other, (0, 2)), other, OutOfTurn, "something else than before as request 4, attempt 1")
        refused(mine, ask(4, labels, (0, 1)), labels, OutOfTurn, "something else than before")
        swapped = dataclasses.replace(ask(4, labels, (0, 2)), responders=(0, 1, 3))
        refused(mine, swapped, labels, OutOfTurn, "something else than before")
        refused(mine, ask(4, other, (0, 2), attempt=2), other, OutOfTurn, "repeats request 4 with another assignment")
        refused(mine, ask(4, labels, (0, 1), attempt=2), labels, OutOfTurn, "repeats request 4 with other columns")
        refused(mine, ask(3, labels, attempt=9), labels, WentBack, "goes back to an earlier request")
        refused(mine, ask(0, labels), labels, WentBack, "goes back to an earlier request")
        admit(mine, ask(4, labels, (0, 2)), labels)
        admit(mine, ask(4, labels, (0, 2), attempt=2), labels)
        admit(mine, ask(4, labels, (0, 1, 2), attempt=1 << 16), labels)
        refused(mine, ask(4, labels, (0, 2), attempt=1), labels, WentBack, "goes back to an earlier request")


def test_another_session_numbers_anew() -> None:
    one, labels = guard(), partition()
    admit(one, ask(7, labels), labels)
    refused(one, ask(1, labels), labels, WentBack, "goes back")
    one.begin(b"t" * 32, SHARES, ROWS, KEY)
    admit(one, ask(1, labels), labels)


def test_no_more_rounds_than_agreed() -> None:
    one, labels = guard(max_rounds=5), partition()
    admit(one, ask(5, labels), labels)
    refused(one, ask(6, labels), labels, OutOfTurn, "beyond max_rounds = 5 of federation.toml")
    seeded = guard("k-means++", max_rounds=5)
    admit(seeded, ask(K + 5, labels), labels)
    refused(seeded, ask(K + 6, labels), labels, OutOfTurn, "beyond max_rounds")


# --- shapes --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [(3,), (0, 0), (1, 0), (0, 1 << 31), (-1,)])
def test_impossible_columns(columns: tuple[int, ...]) -> None:
    refused(guard(), ask(1, partition(), columns), partition(), Malformed, "impossible columns")


def test_a_partition_leaves_no_row_out() -> None:
    """Else the server could ask for the distances to any one row, in any round."""
    for seeding, first in (("random", 1), ("k-means++", K + 1), ("separation", K + 1)):
        left_out = partition()
        left_out[5] = -1
        for number in (first, first + 2):
            refused(guard(seeding), ask(number, left_out), left_out, Malformed, "leaves rows out")
            refused(guard(seeding), ask(number, chosen(2)), chosen(2), Malformed, "leaves rows out")
    admit(guard("separation"), ask(K + 2, left_out), left_out)
    refused(guard("k-means++"), ask(K + 2, left_out), left_out, Malformed, "leaves rows out")


def twice(row: int, other: int) -> Labels:
    """Two rows in one cluster."""
    return np.maximum(chosen(row, other) - 1, chosen(row)).astype(np.int32)


@pytest.mark.parametrize(
    ("labels", "columns"),
    [(chosen(3), ()), (chosen(3, 4, 5), (0, 1, 2)), (partition(), (1,)), (partition(), (0, 1, 2)), (twice(3, 4), (0,))],
)
def test_the_second_request_of_the_seeding_knows_two_rows(labels: Labels, columns: tuple[int, ...]) -> None:
    words = "must know 2 single rows and nothing else|newest row are asked for"
    refused(guard("k-means++", candidates=1), ask(2, labels, columns), labels, Malformed, words)


def test_the_seeding_grows_by_one_and_exchanges_nothing() -> None:
    one = guard("k-means++", candidates=1)
    admit(one, ask(1, chosen(7)), chosen(7))
    refused(one, ask(2, chosen(8, 9), (1,)), chosen(8, 9), OutOfTurn, "replaces seeds")
    refused(one, ask(2, chosen(9, 7), (1,)), chosen(9, 7), OutOfTurn, "replaces seeds")
    admit(one, ask(2, chosen(7, 9), (1,)), chosen(7, 9))
    restarted = guard("k-means++", kept=one.kept(), candidates=1)
    for mine in (one, restarted):
        refused(mine, ask(3, chosen(7, 8, 9), (2,)), chosen(7, 8, 9), OutOfTurn, "replaces seeds")
        refused(
            mine, ask(3, chosen(7, 9, 8), (0, 2)), chosen(7, 9, 8), Malformed, "newest row are asked for, or to all"
        )
        admit(mine, ask(3, chosen(7, 9, 8), (2,)), chosen(7, 9, 8))


def test_a_seed_is_one_of_the_candidates_asked_for_before() -> None:
    """Two candidates a seed: else the server could ask for distances to rows as it likes."""
    one = guard("k-means++", candidates=2)
    refused(one, ask(1, chosen(7, 8)), chosen(7, 8), Malformed, "request 1 of the seeding must know 1 single rows")
    admit(one, ask(1, chosen(7)), chosen(7))
    four = chosen(7, 1, 2, 3)
    refused(one, ask(2, four, (1, 2, 3)), four, Malformed, "request 2 of the seeding must know 2 to 3 single rows")
    two = chosen(7, 9, 4)
    refused(one, ask(2, two, (1,)), two, Malformed, "newest row are asked for, or to all")
    admit(one, ask(2, two, (1, 2)), two)
    for mine in (one, guard("k-means++", kept=one.kept(), candidates=2)):
        admit(mine, ask(2, two, (0, 1, 2), attempt=2), two)  # a restarted server
        for wrong in (chosen(7, 5, 1, 2), chosen(9, 7, 1, 2), chosen(4, 9, 1, 2)):
            refused(mine, ask(3, wrong, (2, 3)), wrong, OutOfTurn, "replaces seeds")
        admit(mine, ask(3, chosen(7, 4, 9, 2), (2, 3)), chosen(7, 4, 9, 2))  # a loser may be drawn again
    beyond = partition()
    beyond[0] = K
    refused(one, ask(K + 1, beyond), beyond, Malformed, "names a cluster beyond 2")


def test_candidates_that_were_not_seen_are_all_counted() -> None:
    one = guard("k-means++", candidates=2)
    admit(one, ask(1, chosen(3)), chosen(3))
    assert one.leakage is not None
    one.finish(K + 1)  # the other requests of the seeding
    assert one.leakage.count == 2 * (K - 1)


# --- the policy ----------------------------------------------------------------------------------------------------------


def test_the_policy_limits_requests() -> None:
    one, labels = guard(policy=Policy(max_requests=3)), partition()
    admit(one, ask(3, labels), labels)
    refused(one, ask(4, labels), labels, Refused, r"policy\.toml: max_requests = 3, and this is request 4")


def test_the_policy_limits_directions() -> None:
    one = guard(policy=Policy(max_directions=3))
    admit(one, ask(1, partition(1)), partition(1))
    assert one.leakage is not None
    assert one.leakage.count == K - 1
    words = r"policy\.toml: max_directions = 3, and this request would make it 4 of 5"
    refused(one, ask(2, partition(2)), partition(2), Refused, words)
    admit(one, ask(2, partition(1)), partition(1))  # nothing new: still answered
    admit(one, ask(3, partition(3), (0,)), partition(3))
    assert one.leakage.count == 3


def test_the_policy_has_a_size_floor_for_every_cluster_not_only_those_asked_for() -> None:
    """All other columns of a partition tell of a small cluster as well as its own."""
    labels = np.array([0] * 10 + [1] * 11 + [2] * 3, dtype=np.int32)
    admit(guard(policy=Policy(smallest_cluster=3)), ask(1, labels), labels)
    strict = guard(policy=Policy(smallest_cluster=4))
    words = r"policy\.toml: smallest_cluster = 4, but one has 3 \(an empty cluster takes one row"
    refused(strict, ask(1, labels), labels, Refused, words)
    refused(strict, ask(1, labels, (0, 1)), labels, Refused, words)
    two = np.minimum(labels, 1)
    admit(strict, ask(1, two), two)  # an empty cluster has no centre, and is not asked for


# --- the meter -----------------------------------------------------------------------------------------------------------


def test_requests_that_were_not_seen_are_counted_at_their_most() -> None:
    seen, gap = guard(), guard()
    for number in (1, 2):
        admit(seen, ask(number, partition(number)), partition(number))
    admit(gap, ask(2, partition(2)), partition(2))
    assert seen.leakage is not None
    assert gap.leakage is not None
    assert seen.leakage.count == 4
    assert gap.leakage.count == K + (K - 1)


def test_requests_missed_at_the_end_are_counted_once() -> None:
    one = guard("k-means++", candidates=1)
    admit(one, ask(2, chosen(3, 4), (1,)), chosen(3, 4))
    assert one.leakage is not None
    assert one.leakage.count == 1
    one.finish(K + 2)  # a seed and one partition were not seen
    for mine in (one, guard("k-means++", kept=one.kept(), candidates=1)):
        mine.finish(K + 2)
        assert mine.leakage is not None
        assert mine.leakage.count == 1 + 1 + K
        directions = "distance directions given away: 5 of 5 at most, as some requests were not seen here"
        assert mine.text() == f"{directions}; assignments given away: 2"
    one.finish(1 << 63)
    assert one.leakage.count == 5


def test_the_meter_outlives_the_job_while_the_shares_do() -> None:
    one = guard()
    admit(one, ask(1, partition(1)), partition(1))
    again = guard(kept=one.kept())
    again.begin(b"t" * 32, SHARES, ROWS, KEY)
    admit(again, ask(1, partition(1)), partition(1))
    assert again.leakage is not None
    assert again.leakage.count == 2
    admit(again, ask(2, partition(2)), partition(2))
    assert again.leakage.count == 4


def test_with_others_rows_changed_what_ours_gave_away_stays() -> None:
    one = guard()
    admit(one, ask(1, partition(1)), partition(1))
    again = guard(kept=one.kept())
    again.begin(b"t" * 32, b"y" * 32, ROWS + 2, KEY)
    labels = np.concatenate([partition(1), np.zeros(2, np.int32)])
    admit(again, ask(1, labels), labels)
    assert again.leakage is not None
    assert (again.leakage.count, again.leakage.total) == (5, 5), "all known at most: 3 ranks before, 3 now"


def test_open_uploads_count_every_segment() -> None:
    agreed = make_federation(7, seeding="random", features=6, uploads="open", segments=2)
    one = Guard(agreed, plan_of(agreed))
    one.begin(SESSION, SHARES, ROWS, KEY)
    admit(one, ask(1, partition(1)), partition(1))
    assert one.leakage is not None
    assert one.leakage.text() == "distance directions given away: 4 of 6"


# --- assignments and inertias --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("seeding", "counts"), [("random", [1, 2, 3, 4]), ("k-means++", [0, 0, 1, 2])])
def test_every_request_that_gives_an_assignment_counts_once(seeding: str, counts: list[int]) -> None:
    """Neither attempts nor restarts count again; while seeding single rows are chosen, which is no assignment."""
    one, found = guard(seeding), []
    for number in range(1, 5):
        labels = chosen(*range(number)) if seeding == "k-means++" and number <= K else partition(number)
        columns = (number - 1,) if seeding == "k-means++" and number <= K else None
        for attempt in (1, 2):
            admit(one, ask(number, labels, columns, attempt), labels)
            one = guard(seeding, kept=one.kept())
            admit(one, ask(number, labels, columns, attempt), labels)
        found.append(one.tally.assignments)
    assert found == counts


def test_assignments_of_requests_that_were_not_seen_count() -> None:
    one = guard()
    admit(one, ask(1, partition(1)), partition(1))
    admit(one, ask(4, partition(2)), partition(2))
    assert one.tally.assignments == 4
    one.finish(9)
    assert one.tally.assignments == 8, "the request that version 9 would have had is not asked"


def test_the_policy_limits_assignments_over_sessions_and_jobs() -> None:
    one = guard(policy=Policy(max_assignments=5))
    one.charge(Tally(assignments=1))  # of other shares
    for number in (1, 2):
        admit(one, ask(number, partition(number)), partition(number))
    one.begin(b"t" * 32, SHARES, ROWS, KEY)
    for number in (1, 2):
        admit(one, ask(number, partition(number)), partition(number))
    assert one.text().endswith("; assignments given away: 5")
    words = r"policy\.toml: max_assignments = 5, and this request would make it 6 over all jobs on these rows"
    refused(one, ask(3, partition(3)), partition(3), Refused, words)
    with pytest.raises(ConfigError, match="max_assignments = 5, and earlier jobs on these rows may have given away"):
        one.charge(Tally(assignments=5))


def sealed(number: int, labels: Labels, *asked: dict[str, Any]) -> RoundRequest:
    return dataclasses.replace(ask(number, labels), detail=Detail(1, (0, 1), asked).to_bytes())


LLOYD: dict[str, Any] = {"changed": [0], "doubted": [], "separate": False}


def test_sealed_rounds_count_assignments_and_the_inertia_and_no_directions() -> None:
    one = guard(uploads="sealed")
    admit(one, sealed(1, partition(1), LLOYD), partition(1))
    admit(one, sealed(2, partition(2), LLOYD), partition(2))
    assert one.text() == "distance directions given away: 0 of 5; assignments given away: 2"
    admit(one, sealed(3, partition(2), {}), partition(2))
    assert one.tally == Tally(0, 2, 1)
    again = guard(uploads="sealed", kept=one.kept())
    for mine in (one, again):
        mine.finish(4)
        assert mine.text() == "distance directions given away: 0 of 5; assignments given away: 2; inertias opened: 1"
    again.begin(b"t" * 32, SHARES, ROWS, KEY)
    assert again.tally == Tally(0, 2, 1)


def test_an_inertia_that_was_not_seen_counts() -> None:
    one = guard(uploads="sealed")
    admit(one, sealed(1, partition(1), LLOYD), partition(1))
    one.finish(4)
    assert one.tally == Tally(0, 2, 1)


def test_nothing_is_asked_once_the_inertia_is_opened() -> None:
    """Inertias of partitions of the server's choice would tell it distances."""
    one = guard(uploads="sealed")
    admit(one, sealed(1, partition(1), {}), partition(1))
    for asked in ({}, LLOYD):
        refused(one, sealed(2, partition(2), asked), partition(2), OutOfTurn, "although the inertia was opened")


@pytest.mark.parametrize("damage", [b"\0\0\0\2{}", b"\0\0\0\1x", b"x", b"\xff\xff\xff\xff{}"])
def test_what_cannot_be_read_is_told(damage: bytes) -> None:
    with pytest.raises(ConfigError, match="start once with --new"):
        guard(kept=damage)
    good = guard().kept()
    with pytest.raises(ConfigError, match="start once with --new"):
        guard(kept=good[:-1])
