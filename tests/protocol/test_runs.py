"""Several runs of one job, side by side: each is exact Lloyd from its own start, and one alone sends what it always sent."""

from __future__ import annotations

import hashlib
import itertools
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secfc.agreement import plan
from secfc.agreement.policy import Policy
from secfc.errors import ConfigError, Malformed, OutOfTurn, Refused
from secfc.kmeans import assignments, central
from secfc.kmeans.coins import Coins
from secfc.kmeans.distances import Labels
from secfc.kmeans.runs import Runs
from secfc.net import wire
from secfc.privacy import identifiers
from secfc.privacy.leakage import Leakage, Tally
from secfc.protocol.client.guard import Guard
from secfc.protocol.client.inputs import Told
from secfc.protocol.effects import Send
from secfc.protocol.messages import RoundRequest, RunRequest
from secfc.protocol.parcels import Kind, Parcel
from secfc.protocol.rounds import kind_of
from secfc.protocol.rounds.sealing import Detail
from secfc.protocol.rounds.several import session_of
from tests.parties import deal, make_federation
from tests.protocol.bench import Bench
from tests.simulation.scene import partition_inertia

KINDS = ("open", "masked", "sealed")


class Sent(Bench):
    """A job that remembers what its parties say in rounds, and all that the server tells."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.said: list[tuple[str, str, Parcel, bytes]] = []
        self.told: list[bytes] = []
        self.alter = self._note

    def _note(self, sender: str, send: Send) -> Send:
        if isinstance(send.message, Parcel):
            data = b"".join(bytes(piece) for _, piece in send.body.pieces(0)) if send.body else b""
            self.said.append((sender, send.to, send.message, data))
        return send

    def _give(self, name: str, given: Any) -> None:
        if isinstance(given, Told):
            self.told.append(wire.event_to(given.event).SerializeToString())
        super()._give(name, given)

    def in_rounds(self) -> list[bytes]:
        return [data for _, _, parcel, data in self.said if parcel.kind in (Kind.UPLOAD, Kind.STEP)]


def found(job: Bench) -> Runs:
    asking = job.server._phase.asking
    assert asking is not None
    return asking.runs


def expected(job: Bench, rows: Any) -> list[central.Central]:
    """Every run by itself, centrally."""
    what, kind = job.federation.job, kind_of(job.plan)
    seed = job.server.snapshot(job.now).seed
    assert seed is not None
    return central.runs(
        rows,
        what.runs,
        coins=Coins(seed),
        start=what.seeding,
        max_rounds=what.max_rounds,
        candidates=what.candidates,
        empties=kind.empties,
        draw_bits=kind.draw_bits(job.plan),
    )


def check(job: Bench, rows: Any) -> None:
    runs, shows = found(job), kind_of(job.plan).shows_distances
    for got, wanted in zip(runs.all, expected(job, rows), strict=True):
        assert got.labels.tolist() == wanted.labels.tolist()
        assert (got.rounds, got.converged) == (wanted.rounds, wanted.converged)
        loss = wanted.inertia if shows else partition_inertia(rows, wanted.labels)
        assert got.inertia is not None
        assert abs(got.inertia - loss) <= (Fraction(0) if shows else 1 + loss / 10**6)
    for k, best in zip(job.federation.job.ks, runs.best, strict=True):
        mine = [(one.inertia, run) for run, one in enumerate(runs.all) if one.clusters == k]
        assert (runs.all[best].inertia, best) == min(mine)
    assert runs.chosen == runs.best[0]


# --- each run is exact Lloyd -------------------------------------------------------------------------------------------


@settings(max_examples=4, deadline=None)
@given(
    uploads=st.sampled_from(KINDS),
    seeding=st.sampled_from(["k-means++", "random", "separation"]),
    clusters=st.lists(st.integers(1, 4), min_size=1, max_size=3, unique=True),
    starts=st.integers(1, 3),
    seed=st.integers(0, 1 << 16),
    spread=st.sampled_from([2, 128]),
)
def test_each_run_is_exact_lloyd_whatever_runs_beside_it(
    uploads: str, seeding: str, clusters: list[int], starts: int, seed: int, spread: int
) -> None:
    rows = deal(seed, [4, 0, 5, 3, 6], spread=spread)
    job = Bench(make_federation(5, uploads=uploads, seeding=seeding, k=clusters, starts=starts, max_rounds=8), rows)
    job.finish()
    check(job, np.concatenate(rows))
    assert job.labels() == found(job).all[found(job).chosen].labels.tolist()


@pytest.mark.parametrize("uploads", ["masked", "sealed"])
def test_private_membership_too(uploads: str) -> None:
    rows = deal(5, [6, 0, 7, 5, 4])
    job = Bench(make_federation(5, uploads=uploads, membership="private", k=[3, 2], starts=2), rows)
    job.finish()
    values = [job.disks[f"c{j}"]["labels"][32:][4 * len(part) : 20 * len(part)] for j, part in enumerate(rows)]
    own = [np.frombuffer(value, "<u8").astype(np.uint64).reshape(-1, 2) for value in values]
    order = identifiers.order(np.concatenate(own))
    check(job, np.concatenate(rows)[order])
    wanted = np.empty(len(order), dtype=np.int32)
    wanted[order] = found(job).all[found(job).chosen].labels
    assert job.labels() == wanted.tolist()


def test_runs_that_converge_to_one_partition_tie_whatever_their_blurs() -> None:
    """Sealed totals are blurred, each run's by itself: which of two equal runs was taken would be left to chance."""
    rows = [np.array([[-100, 0, 0], [100, 0, 0], [0, 100, 0]]) + j for j in range(5)]
    job = Bench(make_federation(5, uploads="sealed", k=3, starts=6), rows)
    job.finish()
    runs = found(job)
    assert len({tuple(one.labels.tolist()) for one in runs.all}) > 1, (
        "starts that number the clusters alike show nothing"
    )
    for run, one in enumerate(runs.all):
        one.inertia = Fraction(1000 - run)  # as blurs might have it
    assert runs.chosen == 0
    runs.all[4].labels[:2] = runs.all[4].labels[[1, 0]]  # another partition
    runs._partitions.clear()
    assert runs.chosen == 4


def test_clients_have_the_labels_of_every_k() -> None:
    rows = deal(6, [8, 7, 9])
    job = Bench(make_federation(3, k=[3, 2, 4], starts=2), rows)
    job.finish()
    runs, edges = found(job), np.cumsum([0, *map(len, rows)])
    for client, (a, b) in enumerate(itertools.pairwise(edges)):
        value = np.frombuffer(job.disks[f"c{client}"]["labels"][32:], "<i4")
        assert value[: b - a].tolist() == runs.all[runs.best[0]].labels[a:b].tolist()
        others = value[b - a :].reshape(2, 1 + b - a)
        for (k, *labels), best in zip(others.tolist(), runs.best[1:], strict=True):
            assert (k, labels) == (runs.all[best].clusters, runs.all[best].labels[a:b].tolist())


def test_liars_are_found_in_whatever_run_they_lie() -> None:
    """An upload that is wrong in the last run only voids the attempt of all, and its sender is left out."""
    rows = deal(7, [5, 4, 6, 3, 5])
    job = Bench(make_federation(5, uploads="open", liars=1, k=[2, 3], starts=2), rows)

    def alter(sender: str, send: Send) -> Send:
        if sender == "c1" and isinstance(send.message, Parcel) and send.message.kind is Kind.UPLOAD:
            words = np.frombuffer(send.body.data, "<u8").copy()  # type: ignore[union-attr]
            words[-1] ^= np.uint64(1)
            return Send(send.to, send.message, type(send.body)(words.tobytes()), send.patient)  # type: ignore[call-arg, misc]
        return send

    job.alter = alter
    job.finish()
    assert job.server.job.liars == ("c1",)
    check(job, np.concatenate(rows))


# --- what is sent ------------------------------------------------------------------------------------------------------

# Counted before a job could have several runs: parcels of rounds, their bytes, events of the server, their bytes; and where
# nothing but the agreed secrets decides, the digest of every byte.
ALONE = {
    ("open", "k-means++"): (21, 8688, 115, 13065, "7b6dab0d0cf18e39"),
    ("open", "random"): (9, 5136, 75, 10400, "fb741968c4b9b5d1"),
    ("masked", "k-means++"): (21, 8688, 115, 13065, "0fbb2838d34e4069"),
    ("masked", "separation"): (30, 11304, 145, 14930, "889ea4f637d6c8ec"),
    ("sealed", "k-means++"): (91, 48553, 187, 65051, ""),
    ("sealed", "random"): (35, 21510, 103, 32124, ""),
}


@pytest.mark.parametrize(("uploads", "seeding"), ALONE)
def test_one_run_alone_sends_what_it_always_sent(uploads: str, seeding: str) -> None:
    agreed = make_federation(5, uploads=uploads, seeding=seeding, seed="x")
    job = Sent(agreed, deal(3, [8, 7, 9, 6, 10]), seed=1)
    job.finish()
    said = job.in_rounds()
    digest = hashlib.sha256(b"|".join(sorted(job.told))).hexdigest()[:16] if uploads != "sealed" else ""
    told = (len(job.told), sum(map(len, job.told)))
    assert (len(said), sum(map(len, said)), *told, digest) == ALONE[uploads, seeding]


@pytest.mark.parametrize("uploads", ["open", "masked"])
def test_ten_runs_upload_as_many_parcels_as_the_longest_alone(uploads: str) -> None:
    job = Sent(make_federation(5, uploads=uploads, k=[2, 3], starts=5), deal(3, [8, 7, 9, 6, 10]))
    job.finish()
    requests = len(job.server.snapshot(job.now).records)
    assert requests == max(one.number for one in found(job).all) - 1
    assert len(job.in_rounds()) == requests * job.plan.responders


def test_runs_have_sessions_and_coins_of_their_own() -> None:
    session, coins = b"s" * 32, Coins(b"seed")
    assert session_of(session, 0) == session
    assert coins.of_run(0) == coins
    assert len({session_of(session, run) for run in range(200)}) == 200
    assert len({coins.of_run(run).seed for run in range(200)}) == 200
    assert session_of(session, 1) != coins.of_run(1).seed


# --- what is counted ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("uploads", KINDS)
def test_every_run_counts(uploads: str) -> None:
    job = Bench(make_federation(5, uploads=uploads, k=[3, 2], starts=2), deal(8, [5, 6, 4, 5, 5]))
    meter = Leakage(25, 3, job.plan.segments if uploads == "open" else 1)
    asked: list[Any] = []
    job.asked = asked.append
    job.finish()
    for attempt in asked if uploads != "sealed" else ():
        for question in attempt.questions.values():
            meter = meter.after(question.labels, question.columns)
    runs, outcome = found(job), job.server.snapshot(job.now).outcome
    assert outcome is not None
    given = sum(one.rounds + 1 for one in runs.all)  # one of the seeding, one for each round
    assert outcome.given == Tally(0, given, 4 if uploads == "sealed" else 0)
    assert outcome.directions == meter.count
    for client in job.clients.values():
        tally = client.site.guard.tally
        assert (tally.assignments, tally.inertias) == (outcome.given.assignments, outcome.given.inertias)
        assert client.site.guard.leakage is not None
        assert client.site.guard.leakage.count == meter.count


@pytest.mark.parametrize("uploads", KINDS)
def test_restarts_in_the_middle_go_on_with_all_runs(uploads: str) -> None:
    rows = deal(9, [5, 6, 4, 5, 5])
    job = Bench(make_federation(5, uploads=uploads, dropouts=1, k=[3, 2], starts=2), rows)
    job.start()
    for number, party in ((1, "server"), (2, "c0"), (3, "c1"), (4, "server")):
        job.until(lambda n=number: job.server.attempt is not None and job.server.attempt.question.number >= n)  # type: ignore[misc]
        job.restart(party)
    job.until(lambda: job.over)
    check(job, np.concatenate(rows))
    outcome = job.server.snapshot(job.now).outcome
    assert outcome is not None
    for client in job.clients.values():
        tally = client.site.guard.tally
        assert (tally.assignments, tally.inertias) == (outcome.given.assignments, outcome.given.inertias)


@pytest.mark.parametrize("number", [2, 3, 4])
def test_an_attempt_that_was_half_done_is_forgotten_by_all(number: int) -> None:
    """Sealed: some runs have their answers, and the request is asked again of the same members, who have not moved on."""
    rows = deal(10, [5, 6, 4, 5, 5])
    job = Bench(make_federation(5, uploads="sealed", k=[3, 2], starts=2, seed="x"), rows)

    def half_done() -> bool:
        asking = job.server._phase.asking
        attempt = None if asking is None or asking.working else asking.attempt
        return attempt is not None and attempt.question.number == number and attempt.exchange.half_done

    job.start()
    job.until(half_done)
    phase: Any = job.server._phase
    committee = phase.asking.committee
    phase._ask(job.now)
    assert phase.asking.committee == committee
    job.until(lambda: job.over)
    check(job, np.concatenate(rows))


def test_a_half_done_attempt_is_asked_again_as_it_was() -> None:
    """What one run has found is not in the request: the rows that it moved may be more than a request can name."""
    rows = deal(10, [5, 6, 4, 5, 5])
    job = Bench(make_federation(5, uploads="sealed", k=[3, 2], starts=2, seeding="random", seed="x"), rows)

    def half_done() -> bool:
        asking = job.server._phase.asking
        attempt = None if asking is None or asking.working else asking.attempt
        return attempt is not None and attempt.exchange.half_done

    def said() -> list[Any]:
        phase: Any = job.server._phase
        one = phase.asking.attempt
        return [Detail.from_bytes(run.detail).asked for run in one.exchange.requests(one.digests)]

    job.start()
    job.until(half_done)
    before, phase = said(), job.server._phase
    phase._ask(job.now)  # type: ignore[attr-defined]
    assert said() == before
    job.until(lambda: job.over)
    check(job, np.concatenate(rows))


# --- a server that is not honest ---------------------------------------------------------------------------------------


def looked(uploads: str = "masked", **changes: Any) -> tuple[Bench, list[tuple[RoundRequest, dict[int, Labels]]]]:
    """A finished job, and every request of it with its assignments."""
    job = Bench(make_federation(3, uploads=uploads, k=[3, 2], **({"starts": 2} | changes)), deal(4, [7, 8, 6]))
    requests: list[tuple[RoundRequest, dict[int, Labels]]] = []

    def asked(attempt: Any) -> None:
        request = job.server._phase.asking.request(1.0)  # type: ignore[union-attr]
        assert request is not None
        requests.append((request, {run: one.labels for run, one in attempt.questions.items()}))

    job.asked = asked
    job.finish()
    return job, requests


def fresh_guard(job: Bench, **rules: Any) -> Guard:
    guard = Guard(job.federation, job.plan, Policy(**rules))
    guard.begin(b"s" * 32, b"x" * 32, 21, b"k" * 32)
    return guard


def give(guard: Any, request: RoundRequest, labels: dict[int, Labels]) -> None:
    examined = guard.examine(request, labels)
    if examined is not None:
        guard.admit(examined, examined.count())


def give_all(guard: Guard, requests: list[tuple[RoundRequest, dict[int, Labels]]]) -> None:
    for request, labels in requests:
        give(guard, request, labels)


def without(request: RoundRequest, run: int) -> RoundRequest:

    rest = [one for one in request.by_run.values() if one.run != run]
    more = tuple(RunRequest(one.run, one.columns, one.assignment_digest, one.detail) for one in rest[1:])
    return replace(rest[0], more=more)


def test_the_first_request_is_about_all_runs() -> None:
    job, requests = looked()
    guard = fresh_guard(job)
    with pytest.raises(OutOfTurn, match="leaves out runs that request 1 must be about"):
        give(guard, without(requests[0][0], 2), requests[0][1])


def test_a_run_that_was_left_out_does_not_come_back() -> None:
    job, requests = looked()
    guard = fresh_guard(job)
    give(guard, *requests[0])
    give(guard, without(requests[1][0], 1), requests[1][1])
    with pytest.raises(OutOfTurn, match="goes on with run 1, which was over"):
        give(guard, *requests[2])
    kept = fresh_guard(job)
    kept._restore(guard.kept())
    with pytest.raises(OutOfTurn, match="goes on with run 1, which was over"):
        give(kept, *requests[2])


def test_what_is_kept_of_another_number_of_runs_is_refused_in_one_line() -> None:
    """A process that ended between its fresh secrets and removing what was kept of a job with other starts."""
    several = make_federation(3, k=3, starts=4)
    kept = Guard(several, plan.of(several), Policy()).kept()
    agreed = make_federation(3, k=3, starts=1)
    with pytest.raises(ConfigError, match="start once with --new"):
        Guard(agreed, plan.of(agreed), Policy(), kept)


def test_an_attempt_of_the_same_request_is_about_the_same_runs() -> None:

    job, requests = looked()
    guard = fresh_guard(job)
    give(guard, *requests[0])
    again = replace(without(requests[0][0], 3), attempt=2)
    with pytest.raises(OutOfTurn, match="leaves out runs"):
        give(guard, again, requests[0][1])


def test_nothing_is_asked_about_a_run_whose_inertia_is_opened() -> None:
    job, requests = looked("sealed", max_rounds=2)
    kind = kind_of(job.plan)
    guard, opened = fresh_guard(job), False
    for (request, labels), (following, _) in itertools.pairwise(requests):
        give(guard, request, labels)
        for run, one in request.by_run.items():
            if kind.opens_inertia(one) and not opened:
                opened = True
                assert run not in following.by_run

                late = replace(one, number=request.number + 1)
                with pytest.raises(OutOfTurn, match="although the inertia was opened"):
                    give(guard, late, labels)
    assert opened


def test_limits_hold_over_all_runs() -> None:
    job, requests = looked()
    asked = sum(len(request.by_run) for request, _ in requests)
    given = sum(one.rounds + 1 for one in found(job).all)
    for rule, enough in (("max_requests", asked), ("max_assignments", given)):
        passed = fresh_guard(job, **{rule: enough})
        give_all(passed, requests)
        limited = fresh_guard(job, **{rule: enough - 1})
        with pytest.raises(Refused, match=rule):
            give_all(limited, requests)


def test_requests_that_were_not_seen_are_counted_for_every_run_that_moved() -> None:
    job, requests = looked()
    guard = fresh_guard(job)
    give(guard, *requests[0])
    guard.finish(len(requests) + 1)
    tally = guard.tally
    most = sum(len(requests) - k + 1 for k in job.federation.job.runs)
    assert tally.assignments == most >= sum(one.rounds + 1 for one in found(job).all)


@pytest.mark.parametrize(
    "data",
    [
        b"\x00",
        b"\x05\x00\x01\x00\x00\x00\x00",
        b"\x00\x00\x09\x00\x00\x00\x00",
        b"\x01\x00\x02\x00\x00\x00\x00\x01" + b"\x00\x00\x02\x00\x00\x00\x00\x01",
        b"\x00\x00\x02\x00\x00\x00\x00\x01" * 2,
    ],
    ids=["cut off", "no such run", "too short", "out of order", "twice"],
)
def test_malformed_assignments_of_several_runs(data: bytes) -> None:
    with pytest.raises(Malformed):
        assignments.decode_all(data, 4, {0: 3, 1: 2}, {})


def test_assignments_of_several_runs_come_back() -> None:
    slots = {0: 5, 1: 3, 2: 4}
    old = {run: np.random.default_rng(run).integers(-1, most, 400, dtype=np.int32) for run, most in slots.items()}
    new = {run: labels.copy() for run, labels in old.items() if run != 1}
    new[0][5] = 0 if new[0][5] else 1
    for base in ({}, old):
        data, changes = assignments.encode_all(new, slots, base)
        assert changes is bool(base)
        got = assignments.decode_all(data, 400, slots, base)
        assert {run: labels.tolist() for run, labels in got.items()} == {r: one.tolist() for r, one in new.items()}
        assert len(data) <= assignments.largest_of_all(400, slots)
