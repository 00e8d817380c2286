"""Liars in whole jobs without a network: the specification, and the machines joined in any order."""

from __future__ import annotations

import io
import logging
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from secfc.agreement import plan
from secfc.agreement.federation import SERVER, Federation
from secfc.coding.field import Words
from secfc.commands import status
from secfc.errors import ConfigError, JobFailed, Malformed, OutOfTurn, Unavailable, WrongSender
from secfc.kmeans import central
from secfc.kmeans.coins import Coins
from secfc.kmeans.lloyd import Clustering, Question
from secfc.net import inquiry
from secfc.protocol import memory, messages, transfer
from secfc.protocol.client.inputs import Told
from secfc.protocol.effects import Arrived, Effects, Put, Send, Tick, Worked
from secfc.protocol.messages import Phase
from secfc.protocol.parcels import Kind, Parcel, Whole, attempt_name, attempt_of, of_words, to_words
from secfc.protocol.rounds.kinds import Lies
from secfc.protocol.server import records
from secfc.protocol.server.asking import Solved
from secfc.protocol.server.attempt import Attempt
from secfc.protocol.server.inputs import Unfollowed
from secfc.protocol.server.job import Deadlines
from secfc_server import result, service
from secfc_server.journal import Journal
from secfc_server.progress import Monitor
from tests.integration.liar import falsified
from tests.parties import deal, make_federation, unchanged
from tests.protocol.bench import Bench, is_parcel

K, FEATURES = 3, 2


def planned(n: int, t: int = 1, segments: int = 1, **wishes: Any) -> plan.Plan:
    return plan.make(plan.Wishes(n, t, K, FEATURES, 12 * n, 100.0, 0, uploads="open", segments=segments, **wishes))


def cluster(
    made: plan.Plan, seed: int, lie: Callable[[int, Question, Words], Words] | None
) -> tuple[memory.Result, central.Central]:
    rng = np.random.default_rng(seed)
    rows = [rng.integers(-100, 101, (int(rng.integers(1, 12)), FEATURES)) for _ in range(made.wishes.clients)]
    coins = Coins(bytes([seed]))
    found = memory.run(made, rows, lambda m: Clustering(m, K, coins=coins, max_rounds=50), lie=lie)
    return found, central.run(np.concatenate(rows), K, start="k-means++", coins=coins, max_rounds=50)


# --- the specification --------------------------------------------------------------------------------------------------


@settings(max_examples=8, deadline=None)
@given(
    t=st.integers(0, 2),
    segments=st.integers(1, 2),
    liars=st.integers(1, 3),
    spare=st.integers(0, 2),
    seed=st.integers(0, 50),
    data=st.data(),
)
def test_the_specification_finds_liars_and_stays_exact(
    t: int, segments: int, liars: int, spare: int, seed: int, data: st.DataObject
) -> None:
    n = 2 * t + 2 * segments - 1 + 2 * liars + spare
    made = planned(n, t, segments, liars=liars, dropouts=spare)
    lies = data.draw(
        st.dictionaries(
            st.integers(0, n - 1),
            st.tuples(st.sampled_from(["random", "one", "offset"]), st.integers(1, 6)),
            max_size=liars,
        )
    )

    def lie(client: int, question: Question, words: Words) -> Words:
        kind, first = lies.get(client, ("", 0))
        layout = made.shape(len(question.labels), question.sizes, question.columns).layout
        return falsified(kind, layout, words) if kind and question.number >= first else words

    found, expected = cluster(made, seed, lie)
    np.testing.assert_array_equal(found.labels, expected.labels)
    assert set(found.liars) <= set(lies)
    lied = [r.number for r in found.history for j in r.responders if j in lies and r.number >= lies[j][1] and r.columns]
    assert lied == [], "no attempt that counts holds a lie"
    assert sum(r.attempts - 1 for r in found.history) <= len(found.liars)
    assert len(found.history[-1].responders) == made.asked(len(found.liars))[1]
    assert {j for j, (_, first) in lies.items() if j < made.responders and first == 1} <= set(found.liars)


def test_the_specification_stops_when_more_lie() -> None:
    made = planned(7, liars=1, segments=2)

    def lie(client: int, question: Question, words: Words) -> Words:
        layout = made.shape(len(question.labels), question.sizes, question.columns).layout
        return falsified("random", layout, words) if client in (0, 5) else words

    with pytest.raises(JobFailed, match="1 wrong ones cannot explain"):
        cluster(made, 3, lie)


def test_without_liars_planned_a_lie_in_the_first_lloyd_round_is_believed() -> None:
    """The price of `liars = 0`: the paper's protocol believes every upload, as long as the inertia does not rise."""
    made = planned(3)

    def lie(client: int, question: Question, words: Words) -> Words:
        layout = made.shape(len(question.labels), question.sizes, question.columns).layout
        return falsified("random", layout, words) if client == 1 and question.number == K + 1 else words

    found, _ = cluster(made, 4, lie)
    honest, _ = cluster(made, 4, None)
    assert found.liars == ()
    assert found.history[K].inertia != honest.history[K].inertia


def test_without_liars_planned_a_lie_that_makes_the_inertia_rise_ends_the_job() -> None:
    made = planned(3)

    def lie(client: int, question: Question, words: Words) -> Words:
        layout = made.shape(len(question.labels), question.sizes, question.columns).layout
        return falsified("random", layout, words) if client == 1 and question.number > 4 else words

    with pytest.raises(JobFailed, match="the inertia rises in Lloyd round 2"):
        cluster(made, 4, lie)


# --- the machines, joined in any order -------------------------------------------------------------------------------------


class Lying(Bench):
    """A job in which some clients falsify their uploads: `lies` says in which way, and from which request on."""

    def __init__(self, federation: Federation, rows: Any, *, lies: dict[str, tuple[str, int]], **options: Any) -> None:
        super().__init__(federation, rows, **options)
        self.lies = lies
        self.alter = self._lie

    def _lie(self, sender: str, send: Send) -> Send:
        if not is_parcel(send.message, Kind.UPLOAD):
            return send
        attempt, (kind, first) = self.server.attempt, self.lies.get(sender, ("", 0))
        number, tried = attempt_of(send.message.name)
        if not kind or number < first or attempt is None or (number, tried) != attempt.name:
            return send
        question = attempt.question
        layout = self.plan.shape(len(question.labels), question.sizes, question.columns).layout
        assert isinstance(send.body, Whole)
        return Send(send.to, send.message, of_words(falsified(kind, layout, to_words(send.body.data))), send.patient)

    def check_exact(self) -> None:
        assert self.server.phase is Phase.FINISHED, str(self.server.failure)
        seen, job = self.server.snapshot(self.now), self.federation.job
        assert seen.seed is not None
        rows = np.concatenate(self.rows)
        [pooled] = central.runs(
            rows,
            job.runs,
            start=job.seeding,
            coins=Coins(seen.seed),
            max_rounds=job.max_rounds,
            candidates=job.candidates,
        )
        assert self.labels() == pooled.labels.tolist()


@settings(max_examples=8, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    kind=st.sampled_from(["random", "one", "offset"]),
    both=st.booleans(),
    first=st.sampled_from([1, 3]),
    restarts=st.lists(st.tuples(st.integers(1, 3), st.sampled_from([SERVER, "c0", "c1"])), max_size=3),
)
def test_joined_machines_find_liars_in_any_order(
    seed: int, kind: str, both: bool, first: int, restarts: list[tuple[int, str]]
) -> None:
    """A = 2 and one or two lie, while connections break, and the server, an honest client or a liar is killed and comes
    back: every client, liars included, gets the right labels, and who was found is remembered."""
    agreed = make_federation(8, uploads="open", liars=2, dropouts=1)
    lies = {"c1": (kind, first)} | ({"c6": ("offset", 2)} if both else {})
    rows = deal(seed, [2, 0, 3, 1, 4, 2, 2, 1])
    job = Lying(agreed, rows, seed=seed, lies=lies, chance=random.Random(seed), mishap=0.02)
    asked: list[tuple[set[int], set[str]]] = []
    job.asked = lambda attempt: asked.append((set(attempt.responders), set(job.server.job.liars)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transfer, "PIECE_BYTES", 24)
        job.start()
        for attempts, who in restarts:
            due = len(asked) + attempts
            job.until(lambda due=due: len(asked) >= due or job.over)  # type: ignore[misc]
            if not job.over:
                known = job.server.job.liars
                job.restart(who)
                assert job.server.job.liars == known
        job.until(lambda: job.over)
    job.check_exact()
    seen = job.server.snapshot(job.now)
    assert set(seen.liars) <= set(lies)
    for responders, liars in asked:
        least, most = job.plan.asked(len(liars))
        assert least <= len(responders) <= most
        assert not {agreed.roster[j] for j in responders} & liars, "a liar is never asked again"
    assert result.describe(seen, 1.0)["liars"] == list(seen.liars)
    wrong = {agreed.roster.index(name): first for name, (_, first) in lies.items()}
    for record in seen.records:
        assert not any(j in record.responders and record.number >= wrong[j] and record.columns for j in wrong)


def test_joined_machines_stop_when_too_many_lie() -> None:
    agreed = make_federation(5, uploads="open", liars=1)
    job = Lying(agreed, deal(1, [3, 2, 3, 1, 4]), lies={"c0": ("random", 1), "c3": ("random", 1)})
    job.finish()
    assert job.server.phase is Phase.FAILED
    assert isinstance(job.server.failure, JobFailed)
    assert "contradict each other" in str(job.server.failure)


# --- the server's machine -------------------------------------------------------------------------------------------------


class Asking(Bench):
    """A job at its first question, moved by hand from there: what clients send is held back."""

    def __init__(self, clients: int, sizes: list[int], **changes: Any) -> None:
        super().__init__(make_federation(clients, **changes), deal(3, sizes))
        self.start()
        self.until(lambda: self.server.attempt is not None)
        self._todo.clear()

    @property
    def attempt(self) -> Attempt:
        assert self.server.attempt is not None
        return self.server.attempt

    @property
    def responders(self) -> tuple[int, ...]:
        return self.attempt.responders

    @property
    def parcel(self) -> Parcel:
        return Parcel(self.clients["c0"].session, Kind.UPLOAD, attempt_name(*self.attempt.name))

    @property
    def due(self) -> int:
        """Bytes of an upload."""
        return self.attempt.exchange.upload_bytes // len(self.responders)

    def piece(self, j: int, data: bytes, offset: int = 0, total: int | None = None) -> Effects:
        given = Arrived(f"c{j}", self.parcel, offset, self.due if total is None else total, data)
        return self.server.handle(given, self.now)

    def malformed(self, j: int) -> None:
        """Residues that are not below their prime: its sender is a liar."""
        effects = self.piece(j, b"\xff" * self.due)
        assert isinstance(effects.refusal, Malformed)

    def upload(self, j: int, first: int = 0) -> Effects:
        """Zeros instead of an upload, but for the first word."""
        return self.piece(j, first.to_bytes(8, "little") + bytes(self.due - 8) if self.due else b"")

    def answer(self) -> tuple[Any, Any]:
        """All responders send zeros; the work that follows, and what it finds."""
        effects = [self.upload(j) for j in self.responders]
        [work] = effects[-1].work
        return work, work.run()

    def missing(self) -> tuple[str, ...]:
        return self.server.snapshot(self.now).missing

    def lose(self, *clients: int) -> None:
        for j in clients:
            name = f"c{j}"
            self._cursors.pop(name, None)
            self.server.handle(Unfollowed(name, self.clients[name].site.instance), self.now)

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.server.handle(Tick(), self.now)


@pytest.fixture
def server() -> Asking:
    """R = 3, A = 1, n = 6: one may be missing."""
    return Asking(6, [3, 4, 0, 5, 1, 1], uploads="open", liars=1)


def test_r_plus_2a_are_asked_and_after_a_liar_one_less(server: Asking) -> None:
    assert server.responders == (0, 1, 2, 3, 4)
    number = server.attempt.number
    server.malformed(3)
    assert server.server.job.liars == ("c3",)
    assert server.responders == (0, 1, 2, 4)
    assert server.attempt.number == number + 1
    assert server.missing() == ("c0", "c1", "c2", "c4")
    while server.server.phase is Phase.ROUNDS:
        work, found = server.answer()
        server.server.handle(Worked(work.name, found), server.now)
    assert server.server.phase is Phase.FINISHED
    assert all(3 not in record.responders for record in server.server.snapshot(server.now).records)
    assert server.missing() == tuple(f"c{j}" for j in range(6)), "a liar gets its labels too"


def test_a_wrong_upload_is_discarded_and_its_sender_left_out(server: Asking) -> None:
    question = server.attempt.question
    effects = [server.upload(j, first=int(j == 2)) for j in server.responders]
    [work] = effects[-1].work
    found = work.run()  # type: ignore[union-attr]
    assert found.result == {0: Lies((2,))}
    server.server.handle(Worked(work.name, found), server.now)
    assert server.server.job.liars == ("c2",)
    assert server.responders == (0, 1, 3, 4)
    assert server.attempt.question.number == question.number
    assert not server.server.snapshot(server.now).records


def test_status_and_log_name_the_liar(server: Asking, caplog: pytest.LogCaptureFixture) -> None:
    monitor = Monitor(server.server.snapshot(server.now))
    server.malformed(3)
    with caplog.at_level(logging.WARNING, logger="secfc.server"):
        monitor.look(server.server.snapshot(server.now), server.now)
        monitor.look(server.server.snapshot(server.now), server.now)
    assert [record.getMessage() for record in caplog.records].count("liar") == 1
    shown = inquiry.from_reply(service.status(server.server.snapshot(server.now), 1.0))
    assert [client.name for client in shown.clients if client.liar] == ["c3"]
    console = Console(width=200, file=io.StringIO())
    console.print(status._picture(shown))
    assert "c3: wrong distances, not asked again" in console.file.getvalue()  # type: ignore[attr-defined]


def test_after_a_liars_the_least_is_r_and_more_than_that_is_not_waited_for() -> None:
    server = Asking(6, [3, 4, 0, 5, 1, 1], uploads="open", liars=1)
    server.server.job.deadlines = Deadlines(join=100.0, share=200.0, round=50.0, lost=5.0)
    server.malformed(0)
    assert server.responders == (1, 2, 3, 4)
    server.lose(1, 2)
    server.wait(6.0)
    assert server.responders == (3, 4, 5)
    server.lose(3)
    server.wait(6.0)
    assert server.server.attempt is None
    assert server.missing() == ("c1", "c2", "c3"), "nobody waits for a liar"
    server.wait(60.0)
    assert isinstance(server.server.failure, Unavailable)
    assert "fewer than 3 clients are ready" in str(server.server.failure)


def test_no_more_than_a_are_left_out(server: Asking) -> None:
    job = server.server.job
    assert job.suspects(["c1", "c2"]) == ()
    server.malformed(1)
    with unchanged(server.server), pytest.raises(Malformed):
        server.piece(2, b"\xff" * server.due)
    assert job.liars == ("c1",)
    assert job.suspects(["c1"]) == job.suspects(["c2"]) == ("c1",)


def test_liars_found_while_others_were_left_out_end_the_job(server: Asking) -> None:
    work, found = server.answer()
    server.server.job.liars = ("c5",)
    server.server.handle(Worked(work.name, Solved({0: Lies((1,))}, found.leakage)), server.now)
    assert str(server.server.failure) == "more clients send wrong distances than liars = 1"


def test_what_came_in_its_turn_and_is_malformed_is_no_accident(server: Asking) -> None:
    """A stream that was cut may go on at the wrong place; that is refused, and makes nobody a liar."""
    bad, due = b"\xff" * server.due, server.due
    another = replace(server.parcel, name=attempt_name(1, server.attempt.number + 1))
    with unchanged(server.server), pytest.raises(Malformed):
        server.piece(1, bad[8:], offset=8)  # a gap
    server.piece(1, bytes(16))
    for error, piece in (
        (Malformed, Arrived("c1", server.parcel, 0, due, bytes(8) + b"\xff" * (due - 8))),  # not in its turn
        (OutOfTurn, Arrived("c5", server.parcel, 0, due, bad)),  # it was not asked
        (WrongSender, Arrived(SERVER, server.parcel, 0, due, bad)),
        (OutOfTurn, Arrived("c1", another, 0, due, bad)),
    ):
        with unchanged(server.server), pytest.raises(error):
            server.server.handle(piece, server.now)
    assert server.server.job.liars == ()
    assert isinstance(server.piece(1, bad[16:], offset=16).refusal, Malformed)
    assert server.server.job.liars == ("c1",)


def test_an_upload_of_another_length_is_no_accident(server: Asking) -> None:
    assert isinstance(server.piece(1, bytes(8), total=server.due + 8).refusal, Malformed)
    assert server.server.job.liars == ("c1",)


def test_a_masked_job_leaves_nobody_out() -> None:
    server = Asking(4, [3, 4, 0, 5])
    with unchanged(server.server), pytest.raises(Malformed):
        server.piece(server.responders[0], b"\xff" * server.due)
    assert server.server.job.liars == ()


def test_liars_are_kept(tmp_path: Path, server: Asking) -> None:
    effects = server.piece(4, b"\xff" * server.due)
    [kept] = [one for one in effects.keep if isinstance(one, Put) and one.key == "liars"]
    server.disks[SERVER][kept.key] = bytes(kept.value)
    server.restart(SERVER)
    assert server.server.job.liars == ("c4",)
    server.disks[SERVER]["liars"] = records.names_to(("c1", "c4"))
    server.restart(SERVER)
    assert server.server.job.liars == (), "never more than planned for"
    journal = Journal(tmp_path, bytes(32))
    journal.put([kept])
    assert Journal(tmp_path, bytes(32)).get("liars") == kept.value
    journal._database.execute("UPDATE kept SET value = ? WHERE key = 'liars'", (b'{"c4": 1}',))
    with pytest.raises(ConfigError, match="the journal is damaged"):
        Journal(tmp_path, bytes(32))


# --- a client ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("uploads", "liars", "sizes"), [("open", 1, {3, 4, 5}), ("open", 0, {3}), ("masked", 0, {3})])
@pytest.mark.parametrize("count", range(1, 7))
def test_a_client_answers_to_as_many_as_the_plan_allows(uploads: str, liars: int, sizes: set[int], count: int) -> None:
    job = Bench(make_federation(6, uploads=uploads, liars=liars, seeding="random"), deal(2, [2, 2, 1, 3, 1, 1]))
    client, asked = job.clients["c0"], []
    handle = client.handle

    def overheard(given: Any, now: float) -> Effects:
        if isinstance(given, Told) and isinstance(given.event, messages.RoundRequest):
            asked.append(given.event)
            return Effects()
        return handle(given, now)

    client.handle = overheard  # type: ignore[method-assign]
    job.start()
    job.until(lambda: bool(asked))
    wanted = messages.RoundRequest(**{**vars(asked[0]), "responders": tuple(range(count))})
    effects = handle(Told(wanted), job.now)
    if count in sizes:
        assert client.ended is None
        assert [work.name[:2] for work in effects.work] == [("count", wanted), ("answer", wanted)]
    else:
        assert client.ended is not None
        assert isinstance(client.ended.error, WrongSender)
        assert "distinct responders are needed" in str(client.ended.error)
        assert not effects.work
