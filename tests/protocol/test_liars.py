"""Liars in whole jobs without a network: the specification, and the machines joined in any order."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from secfc import central, events, federation, plan
from secfc.coins import Coins
from secfc.commands import status
from secfc.errors import JobFailed, Malformed, Unavailable, WrongSender
from secfc.field import Words
from secfc.lloyd import Clustering, Request
from secfc_server import result, service
from secfc_server.coordinator import Phase
from secfc_server.journal import Journal
from secfc_server.progress import Monitor
from secfc_server.rounds import Lies
from tests.integration.liar import falsified
from tests.protocol.joined import Joined, Site, deal, digest_of, make_federation, meet, unchanged
from tests.unit.test_coordinator import Server

K, FEATURES = 3, 2


def planned(n: int, t: int = 1, segments: int = 1, **wishes: Any) -> plan.Plan:
    return plan.make(plan.Wishes(n, t, K, FEATURES, 12 * n, 100.0, 0, uploads="open", segments=segments, **wishes))


def cluster(
    made: plan.Plan, seed: int, lie: Callable[[int, Request, Words], Words] | None
) -> tuple[federation.Result, central.Central]:
    rng = np.random.default_rng(seed)
    rows = [rng.integers(-100, 101, (int(rng.integers(1, 12)), FEATURES)) for _ in range(made.wishes.clients)]
    coins = Coins(bytes([seed]))
    found = federation.run(made, rows, lambda m: Clustering(m, K, coins=coins, max_rounds=50), lie=lie)
    return found, central.run(np.concatenate(rows), K, start="k-means++", coins=coins, max_rounds=50)


# --- the specification --------------------------------------------------------------------------------------------------


@settings(max_examples=20, deadline=None)
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

    def lie(client: int, request: Request, words: Words) -> Words:
        kind, first = lies.get(client, ("", 0))
        layout = made.shape(len(request.labels), request.sizes, request.columns).layout
        return falsified(kind, layout, words) if kind and request.number >= first else words

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

    def lie(client: int, request: Request, words: Words) -> Words:
        layout = made.shape(len(request.labels), request.sizes, request.columns).layout
        return falsified("random", layout, words) if client in (0, 5) else words

    with pytest.raises(JobFailed, match="1 wrong ones cannot explain"):
        cluster(made, 3, lie)


def test_without_liars_planned_a_lie_in_the_first_lloyd_round_is_believed() -> None:
    """The price of `liars = 0`: the paper's protocol believes every upload, as long as the inertia does not rise."""
    made = planned(3)

    def lie(client: int, request: Request, words: Words) -> Words:
        layout = made.shape(len(request.labels), request.sizes, request.columns).layout
        return falsified("random", layout, words) if client == 1 and request.number == K + 1 else words

    found, _ = cluster(made, 4, lie)
    honest, _ = cluster(made, 4, None)
    assert found.liars == ()
    assert found.history[K].inertia != honest.history[K].inertia


def test_without_liars_planned_a_lie_that_makes_the_inertia_rise_ends_the_job() -> None:
    made = planned(3)

    def lie(client: int, request: Request, words: Words) -> Words:
        layout = made.shape(len(request.labels), request.sizes, request.columns).layout
        return falsified("random", layout, words) if client == 1 and request.number > 4 else words

    with pytest.raises(JobFailed, match="the inertia rises in Lloyd round 2"):
        cluster(made, 4, lie)


# --- the machines, joined in any order -------------------------------------------------------------------------------------


class Lying(Joined):
    """A job in which some clients falsify their uploads; the service's part for liars is played here."""

    def __init__(self, *args: Any, lies: dict[str, tuple[str, int]], **options: Any) -> None:
        super().__init__(*args, **options)
        self.lies = lies

    def answer(self, site: Site, request: events.RoundRequest) -> None:
        kind, first = self.lies.get(site.name, ("", 0))
        honest = site.participant.answer
        if kind and request.number >= first:
            labels = site.participant._labels(request.number)
            sizes = np.bincount(labels[labels >= 0], minlength=self.federation.k)
            layout = self.plan.shape(len(labels), sizes, request.columns).layout
            site.participant.answer = lambda r: falsified(kind, layout, honest(r))  # type: ignore[method-assign]
        try:
            super().answer(site, request)
        finally:
            site.participant.answer = honest  # type: ignore[method-assign]

    def check_work(self, work: Any) -> None:
        attempt = self.coordinator.rounds.attempt if self.coordinator.rounds else None
        assert attempt is not None
        least, most = self.plan.asked(len(self.coordinator.liars))
        assert least <= len(set(attempt.responders)) <= most
        roster = self.federation.roster
        assert not {roster[j] for j in attempt.responders} & set(self.coordinator.liars), "a liar is never asked again"
        assert not work.decoder.missing()

    def finish_work(self) -> None:
        assert self.work is not None
        work, self.work = self.work, None
        try:
            found = work.run()
        except JobFailed as error:
            self.coordinator.fail(error, self.now)
            return
        if isinstance(found, Lies):
            self.coordinator.discard(found, self.now)
        else:
            self.coordinator.complete(self.coordinator.record(found, 0.001, self.now), self.now)

    def check_exact(self) -> None:
        assert self.coordinator.phase is Phase.FINISHED, str(self.coordinator.failure)
        pooled, _ = self.expected()
        assert [label for part in self.labels() for label in part] == pooled.labels.tolist()


@settings(max_examples=6, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(["random", "one", "offset"]), st.booleans(), st.sampled_from([1, 3]))
def test_joined_machines_find_liars_in_any_order(seed: int, kind: str, both: bool, first: int) -> None:
    """A = 2 and one or two lie, while connections break: every client, liars included, gets the right labels."""
    agreed = make_federation(8, uploads="open", liars=2, dropouts=1)
    lies = {"c1": (kind, first)} | ({"c6": ("offset", 2)} if both else {})
    job = Lying(agreed, deal(seed, [2, 0, 3, 1, 4, 2, 2, 1]), seed=seed, lies=lies)
    job.run(mishap=0.05, mishaps_until=600)
    job.check_exact()
    assert set(job.coordinator.liars) <= set(lies)
    described = result.describe(job.coordinator, 1.0)
    assert described["liars"] == list(job.coordinator.liars)
    wrong = {agreed.roster.index(name): first for name, (_, first) in lies.items()}
    assert job.coordinator.rounds is not None
    for record in job.coordinator.rounds.records:
        assert not any(j in record.responders and record.number >= wrong[j] and record.columns for j in wrong)


def test_joined_machines_stop_when_too_many_lie() -> None:
    agreed = make_federation(5, uploads="open", liars=1)
    job = Lying(agreed, deal(1, [3, 2, 3, 1, 4]), lies={"c0": ("random", 1), "c3": ("random", 1)})
    job.run()
    assert job.coordinator.phase is Phase.FAILED
    assert isinstance(job.coordinator.failure, JobFailed)
    assert "contradict each other" in str(job.coordinator.failure)


# --- the server's machine -------------------------------------------------------------------------------------------------


@pytest.fixture
def server() -> Server:
    """R = 3, A = 1, n = 6: one may be missing."""
    made = Server(6, (3, 4, 0, 5, 1, 1), uploads="open", liars=1)
    made.begin_rounds()
    return made


def test_r_plus_2a_are_asked_and_after_a_liar_one_less(server: Server) -> None:
    assert server.responders() == (0, 1, 2, 3, 4)
    number = server.rounds.attempt.number
    server.coordinator.leave_out(["c3"], server.now)
    assert server.coordinator.liars == ("c3",)
    assert server.responders() == (0, 1, 2, 4)
    assert server.rounds.attempt.number == number + 1
    assert server.coordinator.missing() == ("c0", "c1", "c2", "c4")
    server.finish()
    assert server.coordinator.phase is Phase.FINISHED
    assert all(3 not in record.responders for record in server.rounds.records)
    assert server.coordinator.missing() == tuple(f"c{j}" for j in range(6)), "a liar gets its labels too"


def test_a_wrong_upload_is_discarded_and_its_sender_left_out(server: Server) -> None:
    coordinator, attempt = server.coordinator, server.rounds.attempt
    for j in server.responders():
        words = np.zeros(attempt.decoder.shape.layout.words, np.uint64)
        words[0] = j == 2
        coordinator.upload(f"c{j}", attempt.name, events.Chunk(0, len(words), words), 0.1, server.now)
    work = coordinator.take_work()
    assert work is not None
    found = work.run()
    assert found == Lies((2,))
    assert server.rounds.busy
    coordinator.discard(found, server.now)
    assert coordinator.liars == ("c2",)
    assert server.responders() == (0, 1, 3, 4)
    assert server.rounds.attempt.request.number == attempt.request.number
    assert not server.rounds.records


def test_status_and_log_name_the_liar(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    monitor = Monitor(server.coordinator)
    server.coordinator.leave_out(["c3"], server.now)
    with caplog.at_level(logging.WARNING, logger="secfc.server"):
        monitor.look(server.now)
        monitor.look(server.now)
    assert [record.getMessage() for record in caplog.records].count("liar") == 1
    shown = status._from_reply(service.status(server.coordinator, 1.0))
    assert [client.name for client in shown.clients if client.liar] == ["c3"]
    console = Console(width=200, file=io.StringIO())
    console.print(status._picture(shown))
    assert "c3: wrong distances, asked for nothing any more" in console.file.getvalue()  # type: ignore[attr-defined]


def test_after_a_liars_the_least_is_r_and_more_than_that_is_not_waited_for(server: Server) -> None:
    server.coordinator.leave_out(["c0"], server.now)
    assert server.responders() == (1, 2, 3, 4)
    server.lose(1, 2)
    server.tick(6.0)
    assert server.responders() == (3, 4, 5)
    server.lose(3)
    server.tick(6.0)
    assert server.rounds.attempt is None
    assert server.coordinator.missing() == ("c1", "c2", "c3"), "nobody waits for a liar"
    server.tick(60.0)
    assert isinstance(server.coordinator.failure, Unavailable)
    assert "fewer than 3 clients are ready" in str(server.coordinator.failure)


def test_no_more_than_a_are_left_out(server: Server) -> None:
    c = server.coordinator
    assert c.suspects(["c1", "c2"]) == ()
    c.leave_out(["c1"], server.now)
    with unchanged(c):
        c.leave_out(["c2"], server.now)
    assert c.suspects(["c1"]) == c.suspects(["c2"]) == ("c1",)


def test_liars_found_while_others_were_left_out_end_the_job(server: Server) -> None:
    for j in server.responders():
        server.send(j)
    assert server.coordinator.take_work() is not None
    server.coordinator.leave_out(["c5"], server.now)
    assert server.rounds.busy
    server.coordinator.discard(Lies((1,)), server.now)
    assert str(server.coordinator.failure) == "more clients send wrong distances than liars = 1"


def test_what_came_in_its_turn_and_is_malformed_is_no_accident(server: Server) -> None:
    c, attempt = server.coordinator, server.rounds.attempt
    due = attempt.decoder.shape.layout.words
    bad = np.full(due, (1 << 21) - 1, np.uint64)
    turn, again = events.Chunk(0, due, bad), events.Chunk(1, due, bad[1:])
    for chunk in (turn, again, events.Chunk(0, due + 1, bad)):
        with unchanged(c), pytest.raises(Malformed):
            c.upload("c1", attempt.name, chunk, 0.1, server.now)
    assert c.was_due("c1", attempt.name, turn.offset)
    assert not c.was_due("c1", attempt.name, again.offset), "a stream that was cut may go on at the wrong place"
    assert not c.was_due("c5", attempt.name, 0), "it was not asked"
    assert not c.was_due("server", attempt.name, 0)
    assert not c.was_due("c1", (attempt.name[0], attempt.name[1] + 1), 0)


def test_a_masked_job_leaves_nobody_out() -> None:
    made = Server()
    made.begin_rounds()
    with unchanged(made.coordinator):
        made.coordinator.leave_out(["c1"], made.now)


def test_liars_are_kept(tmp_path: Path, server: Server) -> None:
    journal = Journal(tmp_path, bytes(32))
    assert journal.begin().liars == ()
    journal.liars(("c4",))
    kept = Journal(tmp_path, bytes(32)).begin()
    assert kept.liars == ("c4",)
    other = Server(6, (3, 4, 0, 5, 1, 1), uploads="open", liars=1)
    introductions = {m.name: m for m in server.coordinator._introductions()}
    other.coordinator.resume(introductions, (), None, [], 1, other.now, liars=kept.liars)
    assert other.coordinator.liars == ("c4",)
    other = Server(6, (3, 4, 0, 5, 1, 1), uploads="open", liars=1)
    other.coordinator.resume(introductions, (), None, [], 1, other.now, liars=("c1", "c4"))
    assert other.coordinator.liars == (), "never more than planned for"
    journal._put(liars=b'{"c4": 1}')
    with pytest.raises(Exception, match="the journal is damaged"):
        Journal(tmp_path, bytes(32)).begin()


# --- a client ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("uploads", "liars", "sizes"), [("open", 1, {3, 4, 5}), ("open", 0, {3}), ("masked", 0, {3})])
def test_a_client_answers_to_as_many_as_the_plan_allows(uploads: str, liars: int, sizes: set[int]) -> None:
    agreed = make_federation(6, uploads=uploads, liars=liars, seeding="random")
    machine = meet(agreed, deal(2, [2, 2, 1, 3, 1, 1]))[0]
    labels = np.zeros(10, np.int32)
    machine._versions = {1: labels}
    for count in range(1, 7):
        request = events.RoundRequest(1, 1, tuple(range(count)), (0,), digest_of(labels), 0, 10.0)
        if count in sizes:
            assert machine.handle(request) is request
            machine.guard._asked = type(
                machine.guard._asked
            )()  # the sets are tried one by one, as if each were the first
        else:
            with unchanged(machine), pytest.raises(WrongSender, match="distinct responders are needed"):
                machine.handle(request)
