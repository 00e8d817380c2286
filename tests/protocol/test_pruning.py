"""Jobs that leave out distances which cannot change a row's cluster (docs/protocol.md, "Some rows only"): the same result,
fewer bytes, and nothing that a client does not check."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from secfc.agreement import plan
from secfc.coding.field import Words
from secfc.coding.sharing import CodedRows
from secfc.errors import Malformed, OutOfTurn, PlanError
from secfc.kmeans import bounds, central, rowsets
from secfc.kmeans.coins import Coins
from secfc.kmeans.lloyd import Question
from secfc.kmeans.rowsets import Wanted
from secfc.kmeans.runs import Runs
from secfc.protocol import memory
from secfc.protocol.client.runrules import RunAsked, RunRules
from secfc.protocol.memory import Memory
from secfc.protocol.messages import RoundRequest
from secfc.protocol.rounds.kinds import Holding
from secfc.protocol.rounds.masked import signed_keys
from secfc.protocol.server.asking import RequestRecord
from tests.parties import deal, digest_of, make_federation, plan_of
from tests.protocol.helpers import answer, asked, met, refused

SEED = Coins(b"pruning")


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out whatever can be left out, however little it is."""
    monkeypatch.setattr(bounds, "WORTH", 0)
    monkeypatch.setattr(bounds, "MOST", 1.0)


def rows_of(count: int, features: int = 4, groups: int = 5) -> np.ndarray[Any, Any]:
    """Groups of rows that lie apart but touch."""
    draw = np.random.default_rng(count)
    middles = draw.integers(-90, 91, (groups, features))
    return middles[draw.integers(0, groups, count)] + draw.integers(-30, 31, (count, features))


def job(rows: np.ndarray[Any, Any], monkeypatch: pytest.MonkeyPatch, **changes: Any) -> tuple[Any, list[RequestRecord]]:
    """A whole job of five clients in one process; what came of it, and its requests."""
    clusters = changes.pop("clusters", [4])
    starts, lie, shift = changes.pop("starts", 1), changes.pop("lie", None), changes.pop("features", rows.shape[1])
    wishes = {
        "clients": 5,
        "privacy": 1,
        "clusters": max(clusters),
        "features": shift,
        "max_rows": len(rows),
        "bound": 128.0,
        "precision": 0,
        "prune": True,
        "seeding": "random",
    }
    agreed = plan.make(plan.Wishes(**(wishes | changes)))
    seen: list[Memory] = []
    run = Memory.run

    def noted(self: Memory) -> None:
        seen.append(self)
        run(self)

    monkeypatch.setattr(Memory, "run", noted)
    parts = np.array_split(rows, agreed.wishes.clients)

    def machine(m: int) -> Runs:
        return Runs.of(m, [k for k in clusters for _ in range(starts)], SEED, start="random")

    ids = None
    if agreed.private:
        ids = [np.stack([np.full(len(p), j), np.arange(len(p))], 1).astype(np.uint64) for j, p in enumerate(parts)]
    made = memory.run(agreed, parts, machine, clusters=clusters, starts=starts, ids=ids, lie=lie)
    return made, list(seen[-1].server.snapshot(seen[-1].now).records)


@pytest.mark.parametrize(
    "changes",
    [
        {"uploads": "masked"},
        {"uploads": "open", "segments": 2},
        {"uploads": "open", "liars": 1},
        {"uploads": "masked", "membership": "private"},
        {"uploads": "masked", "clusters": [4, 6], "starts": 2},
        {"uploads": "masked", "bound": 2.0**30, "precision": 10},
        {"uploads": "masked", "clusters": [16]},
    ],
    ids=["masked", "open", "liars", "private", "runs", "wide", "sixteen"],
)
def test_the_result_is_the_same_and_less_is_sent(
    changes: dict[str, Any], eager: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = rows_of(240)
    less, pruned = job(rows, monkeypatch, **changes)
    plain, whole = job(rows, monkeypatch, prune=False, **changes)
    assert less.labels.tolist() == plain.labels.tolist()
    assert less.inertia == plain.inertia
    for one, other in zip(less.runs.all, plain.runs.all, strict=True):
        assert one.labels.tolist() == other.labels.tolist()
        assert (one.rounds, one.converged, one.inertia) == (other.rounds, other.converged, other.inertia)
        assert one.indices == other.indices
    assert sum(r.pairs_asked for r in pruned) < sum(r.pairs for r in pruned) == sum(r.pairs for r in whole)
    assert all(r.pairs_asked == r.pairs for r in whole)
    assert sum(r.upload_bytes for r in pruned) < sum(r.upload_bytes for r in whole)
    for pruned_round, whole_round in zip(less.history, plain.history, strict=False):
        assert pruned_round.labels.tolist() == whole_round.labels.tolist()
        assert pruned_round.exact == whole_round.exact


def test_it_is_exact_lloyd(eager: None, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = rows_of(300)
    made, _ = job(rows, monkeypatch, clusters=[7])
    wanted = central.run(rows, 7, coins=SEED, start="random")
    assert made.labels.tolist() == wanted.labels.tolist()
    assert made.runs.all[0].inertia == wanted.inertia
    assert made.runs.all[0].rounds == wanted.rounds


def test_a_liar_among_some_rows_is_found(eager: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """In whatever part of an upload it lies: parts have a check each."""
    rows, lied = rows_of(240), []

    def lie(client: int, question: Question, upload: Words) -> Words:
        if client != 2 or question.number < 4 or len(upload) < 3:
            return upload
        lied.append(question.number)
        out = upload.copy()
        out[-2] ^= np.uint64(1)
        return out

    made, records = job(rows, monkeypatch, uploads="open", liars=1, lie=lie, clusters=[5])
    assert made.liars == (2,)
    assert records[lied[0] - 1].pairs_asked < records[lied[0] - 1].pairs
    assert made.labels.tolist() == central.run(rows, 5, coins=SEED, start="random").labels.tolist()


def test_long_lists_of_rows_give_way_to_whole_columns(eager: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is asked has to fit into one message."""
    monkeypatch.setattr("secfc.protocol.rounds.several_server.MOST_BYTES", 40)
    rows = rows_of(240)
    less, _ = job(rows, monkeypatch, clusters=[5, 6], starts=2)
    monkeypatch.undo()
    plain, _ = job(rows, monkeypatch, clusters=[5, 6], starts=2, prune=False)
    assert [one.labels.tolist() for one in less.runs.all] == [one.labels.tolist() for one in plain.runs.all]
    assert [one.indices for one in less.runs.all] == [one.indices for one in plain.runs.all]


# --- what a client checks --------------------------------------------------------------------------------------------------

LABELS = np.array([0, 1, 1, 2, 0, 1, 2, 2, 0, 1, 0, 2], dtype=np.int32)
NEXT = np.array([0, 1, 1, 2, 0, 1, 2, 2, 0, 1, 2, 2], dtype=np.int32)
SOME = rowsets.encode(
    {0: Wanted(np.array([3, 6], dtype=np.int32), own=True), 2: Wanted(np.array([0], dtype=np.int32))}, 12
)


def test_masks_are_bound_to_the_rows() -> None:
    """No stream covers the distances of two sets of rows, nor of some rows and of all."""
    agreed = plan_of(make_federation(3, seeding="random", prune=True))
    coded = CodedRows(agreed.field, 12, agreed.length)
    holding = Holding(agreed, 0, bytes(32), coded, {1: bytes([1]) * 32, 2: bytes([2]) * 32})
    shape = agreed.shape(12, np.bincount(NEXT), (0, 2))
    found = set()
    for rows in (b"", SOME, SOME[:-1]):
        request = RoundRequest(2, 1, (0, 1, 2), (0, 2), digest_of(NEXT), 60.0, rows=rows)
        found |= {key for key, _ in signed_keys(holding, shape, request)}
    assert len(found) == 3 * 2


def test_some_rows_are_answered() -> None:
    agreed = make_federation(3, seeding="random", prune=True)
    everybody = met(agreed, deal(1, [4, 4, 4]))
    for client in everybody:
        client.tell(*asked(client, 1, LABELS, (0, 1, 2)))
        client.tell(*asked(client, 2, NEXT, (0, 1, 2), columns=(0, 2), rows=SOME))
    uploads = [answer(client, 2) for client in everybody]
    assert all(words is not None for words in uploads)
    pairs = 2 + 4 + 1  # those named, the rows in cluster 0 (its size is 3 in NEXT), one of cluster 2
    lanes = plan_of(agreed).field.lanes
    assert max(len(words) for words in uploads if words is not None) <= -(-pairs * lanes // 3) + 2


def rules(**changes: Any) -> tuple[RunRules, Callable[..., RoundRequest]]:
    """The rules about a run, and requests about it."""
    agreed = make_federation(3, **({"seeding": "random", "prune": True, "max_rounds": 3} | changes))

    def request(number: int, labels: Any, columns: tuple[int, ...] = (0, 1, 2), rows: bytes = b"") -> RoundRequest:
        return RoundRequest(number, 1, (0, 1, 2), columns, digest_of(labels), 60.0, rows=rows)

    return RunRules(agreed.job, plan_of(agreed), any_start=False), request


def test_all_rows_are_asked_for_first() -> None:
    """The first Lloyd round knows nothing that could be left out."""
    run, request = rules()
    with pytest.raises(OutOfTurn, match="where all are asked for"):
        run.next(RunAsked(), request(1, NEXT, (0, 2), SOME), NEXT)
    run.next(run.next(RunAsked(), request(1, LABELS), LABELS), request(2, NEXT, (0, 2), SOME), NEXT)
    run, request = rules(seeding="k-means++")
    with pytest.raises(OutOfTurn, match="where all are asked for"):
        run.next(RunAsked(3), request(4, NEXT, (0, 2), SOME), NEXT)
    run.next(RunAsked(4), request(5, NEXT, (0, 2), SOME), NEXT)


def test_an_assignment_that_came_back_is_asked_about_once_more_and_then_nothing() -> None:
    """For the indices, which need all distances; it gives no assignment away, and may be one request beyond max_rounds."""
    run, request = rules()
    asked = RunAsked()
    for number, labels in enumerate((LABELS, NEXT, LABELS[::-1].copy()), start=1):
        asked = run.next(asked, request(number, labels), labels)
    assert run.tally(asked).assignments == 3
    last = run.next(asked, request(4, LABELS[::-1]), LABELS[::-1])
    assert last.again
    assert run.tally(last).assignments == 3
    with pytest.raises(OutOfTurn, match="came twice"):
        run.check_order(last, request(5, NEXT))
    with pytest.raises(OutOfTurn, match="beyond max_rounds"):
        run.next(asked, request(4, NEXT), NEXT)
    run.next(replace(asked, number=2), request(4, LABELS), LABELS)  # one that missed request 3 cannot tell
    run, request = rules(prune=False)
    with pytest.raises(OutOfTurn, match="beyond max_rounds"):
        run.next(asked, request(4, LABELS[::-1]), LABELS[::-1])


def test_some_rows_count_as_the_whole_column() -> None:
    """So the meter never counts less than was given away."""
    agreed = make_federation(3, seeding="random", prune=True)
    counts = []
    for rows in (b"", SOME):
        client = met(agreed, deal(1, [4, 4, 4]))[0]
        client.tell(*asked(client, 1, LABELS, (0, 1, 2)))
        client.tell(*asked(client, 2, NEXT, (0, 1, 2), columns=(0, 2), rows=rows))
        counts.append(client.site.guard.ranks)
    assert counts[0] == counts[1] > 0


@pytest.mark.parametrize(
    ("rows", "words"),
    [(b"\7", "a way this version"), (SOME[:-1], "wrong length"), (SOME + b"\1", "wrong length")],
)
def test_malformed_rows_are_refused(rows: bytes, words: str) -> None:
    client = met(make_federation(3, seeding="random", prune=True), deal(1, [4, 4, 4]))[0]
    client.tell(*asked(client, 1, LABELS, (0, 1, 2)))
    refused(client, asked(client, 2, NEXT, (0, 1, 2), columns=(0, 2), rows=rows), Malformed, words)


def test_some_rows_are_refused_where_the_job_does_not_say_so() -> None:
    client = met(make_federation(3, seeding="random"), deal(1, [4, 4, 4]))[0]
    client.tell(*asked(client, 1, LABELS, (0, 1, 2)))
    refused(client, asked(client, 2, NEXT, (0, 1, 2), columns=(0, 2), rows=SOME), OutOfTurn, "where all are asked for")


def test_under_one_number_rows_stay_or_all_are_asked_for() -> None:
    client = met(make_federation(3, seeding="random", prune=True), deal(1, [4, 4, 4]))[0]
    client.tell(*asked(client, 1, LABELS, (0, 1, 2)))
    client.tell(*asked(client, 2, NEXT, (0, 1, 2), columns=(0, 2), rows=SOME))
    other = rowsets.encode({0: Wanted(np.array([3], dtype=np.int32), own=True), 2: Wanted()}, 12)
    for rows in (other, b""):
        again = asked(client, 2, NEXT, (0, 1, 2), columns=(0, 2), rows=rows, attempt=2)
        refused(client, again, OutOfTurn, "with other columns")
    refused(client, asked(client, 2, NEXT, (0, 1, 2), columns=(0, 2), rows=other), OutOfTurn, "something else")
    client.tell(*asked(client, 2, NEXT, (0, 1, 2), columns=(0, 2), rows=SOME, attempt=2))
    client.tell(*asked(client, 2, NEXT, (0, 1, 2), attempt=3))
    assert [answer(client, 2, attempt) is not None for attempt in (1, 2, 3)] == [True] * 3


def test_the_answer_of_a_restarted_client_is_the_same() -> None:
    client = met(make_federation(3, seeding="random", prune=True), deal(1, [4, 4, 4]))[0]
    told = asked(client, 2, NEXT, (0, 1, 2), columns=(0, 2), rows=SOME)
    client.tell(*asked(client, 1, LABELS, (0, 1, 2)))
    client.tell(*told)
    before = answer(client, 2)
    twin = client.copy()
    twin.tell(*told)
    after = answer(twin, 2)
    assert before is not None
    assert after is not None
    assert (before == after).all()


def test_jobs_that_say_nothing_have_the_digests_of_before() -> None:
    plain = make_federation(3, prune=False)
    assert make_federation(3).job.digest() == plain.job.digest() != make_federation(3, prune=True).job.digest()
    assert "prune" not in plan_of(plain).parameters()
    assert plan_of(plain).digest != plan_of(make_federation(3, prune=True)).digest
    assert dataclasses.replace(plain.job, prune=True).prune


def test_sealed_rounds_do_not_prune() -> None:
    """They have a rule of their own, and no key of a job is ignored."""
    with pytest.raises(PlanError, match="prune = true"):
        plan_of(make_federation(5, uploads="sealed", prune=True))


def test_masks_are_bound_to_the_column_that_rows_are_of() -> None:
    """A server that tells some clients other columns of the same rows gets masks that do not cancel."""
    agreed = plan_of(make_federation(3, k=4, seeding="random", prune=True))
    labels = np.array([0] * 19 + [1] + [2] + [3] * 19, dtype=np.int32)
    sizes = np.bincount(labels)
    coded = CodedRows(agreed.field, len(labels), agreed.length)
    rows = rowsets.encode({0: Wanted(np.array([5], dtype=np.int32)), 2: Wanted(np.array([25], dtype=np.int32))}, 40)
    holding = Holding(agreed, 0, bytes(32), coded, {1: bytes([1]) * 32, 2: bytes([2]) * 32})
    found = []
    for columns in ((0, 2), (2, 3)):
        request = RoundRequest(2, 1, (0, 1, 2), columns, digest_of(labels), 60.0, rows=rows)
        parts = agreed.shapes(labels, sizes, rowsets.decode(rows, columns, labels))
        [part] = [part for part in parts if part.columns == (2,)]
        found.append({key for key, _ in signed_keys(holding, part, request)})
    assert not found[0] & found[1]
