"""The server's machine on its own: joining, deadlines with a clock of the test's, attempts, and what is final."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from secfc import assignments, events, verification
from secfc.errors import AlreadyJoined, ConfigError, JobFailed, Malformed, OutOfTurn, Unavailable, WrongSender
from secfc_server import result
from secfc_server.coordinator import Coordinator, Cursor, Deadlines, Phase
from secfc_server.service import status
from tests.protocol.joined import (
    deal,
    introduce,
    make_federation,
    plan_of,
    resigned,
    sign,
    snapshot,
    strangers,
    unchanged,
    verifier,
)

AGAIN = "; start the server and the clients again to go on"
DEADLINES = Deadlines(join=100.0, share=200.0, round=50.0, lost=5.0)


class Server:
    """A coordinator and the participants it serves, moved by hand. Instances are the client's number, 16 times."""

    def __init__(self, clients: int = 4, sizes: tuple[int, ...] = (3, 4, 0, 5), **changes: Any) -> None:
        self.federation = make_federation(clients, **changes)
        self.machines = strangers(self.federation, deal(3, sizes))
        self.now = 50.0
        self.coordinator = Coordinator(
            self.federation,
            plan_of(self.federation),
            verifier(self.federation),
            deadlines=DEADLINES,
            now=self.now,
        )

    def instance(self, j: int) -> bytes:
        return bytes([j]) * 16

    def join(self, *clients: int, agree: bool = True) -> None:
        """With the last one everybody agrees, unless told otherwise."""
        for j in clients:
            machine = self.machines[j]
            self.coordinator.join(
                machine.name, self.federation.digest(), self.instance(j), introduce(machine), self.now
            )
        if agree and self.coordinator.phase is Phase.AGREEING:
            self.agree(*range(len(self.machines)))

    def agree(self, *clients: int) -> None:
        for j in clients:
            self.report(j, self.agreed(j))

    def agreed(self, j: int) -> events.Agreed:
        """A signature under the session; the proofs are the clients' to check."""
        session = events.session(self.federation.digest(), self.coordinator.roster())
        statement = events.Agreement(f"c{j}", session, b"").statement(self.federation.digest())
        return events.Agreed(
            sign(f"c{j}", statement), tuple(b"" if i == j else bytes(32) for i in range(len(self.machines)))
        )

    def follow(self, *clients: int) -> None:
        for j in clients:
            self.coordinator.connected(f"c{j}", self.instance(j), self.now)

    def lose(self, *clients: int) -> None:
        for j in clients:
            self.coordinator.disconnected(f"c{j}", self.instance(j), self.now)

    def report(self, j: int, report: events.Report) -> None:
        self.coordinator.report(f"c{j}", self.instance(j), report, self.now)

    def held(self, j: int) -> events.Held:
        c = self.coordinator
        members = c._introductions()
        digest = events.holdings(events.session(self.federation.digest(), members), [one.share_set for one in members])
        return events.Held(digest, 10, 20, 0.5, self.machines[j]._secrets.coin)

    def tick(self, seconds: float) -> None:
        self.now += seconds
        self.coordinator.tick(self.now)

    def begin_rounds(self) -> None:
        everybody = range(len(self.machines))
        self.join(*everybody)
        self.follow(*everybody)
        for j in everybody:
            self.report(j, self.held(j))
        self.check_shares()

    def part(self, j: int, words: int | None = None) -> int:
        """Zeros instead of a part of the check of all shares; they add up to zero, as honest ones do."""
        c = self.coordinator
        assert c.tossed is not None
        purpose = verification.purpose(c.plan, events.session(self.federation.digest(), c._introductions()), c.tossed)
        due = verification.layout(c.plan).words
        chunk = events.Chunk(0, due, np.zeros(due if words is None else words, np.uint64))
        return c.contribute(f"c{j}", purpose, chunk, self.now)

    def check_shares(self) -> None:
        for j in range(len(self.machines)):
            self.part(j)
        comparison = self.coordinator.take_comparison()
        assert comparison is not None
        comparison.run()
        self.coordinator.compared(self.now)

    @property
    def rounds(self) -> Any:
        assert self.coordinator.rounds is not None
        return self.coordinator.rounds

    def responders(self) -> tuple[int, ...]:
        found: tuple[int, ...] = self.rounds.attempt.responders
        return found

    def send(self, j: int, words: int | None = None, offset: int = 0) -> bool:
        """Zeros instead of an upload; all of it unless told otherwise."""
        attempt = self.rounds.attempt
        due = attempt.decoder.shape.layout.words
        chunk = events.Chunk(offset, due, np.zeros(due if words is None else words, np.uint64))
        return self.coordinator.upload(f"c{j}", attempt.name, chunk, 0.5, self.now)

    def finish_round(self) -> None:
        for j in self.responders():
            self.send(j)
        work = self.coordinator.take_work()
        assert work is not None
        self.coordinator.complete(self.coordinator.record(work.run(), 0.1, self.now), self.now)

    def finish(self) -> None:
        while self.coordinator.phase is Phase.ROUNDS:
            self.finish_round()


@pytest.fixture
def server() -> Server:
    return Server()


# --- joining ----------------------------------------------------------------------------------------------------------


def test_sharing_begins_when_all_have_joined_and_agreed(server: Server) -> None:
    server.join(0, 1, 3)
    assert (server.coordinator.phase, server.coordinator.missing()) == (Phase.JOINING, ("c2",))
    server.join(2, agree=False)
    assert server.coordinator.phase is Phase.AGREEING
    server.agree(0, 1, 2)
    assert (server.coordinator.phase, server.coordinator.missing()) == (Phase.AGREEING, ("c3",))
    with pytest.raises(OutOfTurn, match="joined and agreed"):
        server.report(0, server.held(0))
    server.agree(3, 3, 0)
    assert (server.coordinator.phase, server.coordinator.rows) == (Phase.SHARING, 12)
    assert server.coordinator.missing() == ("c0", "c1", "c2", "c3")


def test_the_same_process_may_repeat_and_a_second_live_one_is_refused(server: Server) -> None:
    server.join(0)
    server.follow(0)
    server.join(0)
    c, digest = server.coordinator, server.federation.digest()
    with (
        unchanged(c),
        pytest.raises(AlreadyJoined, match="another process has joined as c0 and is alive; stop it first"),
    ):
        c.join("c0", digest, b"B" * 16, introduce(server.machines[0]), server.now)
    server.lose(0)
    c.join("c0", digest, b"B" * 16, introduce(server.machines[0]), server.now)
    with unchanged(c), pytest.raises(OutOfTurn, match="another process may have joined"):
        server.follow(0)
    c.connected("c0", b"B" * 16, server.now)
    with unchanged(c):
        server.lose(0)  # the old process's stream ends late
    assert c.members["c0"].connected


def test_before_sharing_a_new_process_may_bring_other_rows(server: Server) -> None:
    server.join(0)
    [other] = strangers(make_federation(1, privacy=0, uploads="open"), deal(9, [7]))
    intro = resigned(introduce(other), server.federation, name="c0")
    server.coordinator.join("c0", server.federation.digest(), b"B" * 16, intro, server.now)
    assert server.coordinator.rows == 7


def test_after_sharing_has_begun_only_the_same_shares_may_come_back(server: Server) -> None:
    server.join(0, 1, 2, 3)
    c, digest, mine = server.coordinator, server.federation.digest(), introduce(server.machines[0])
    sizes = {"nonce": 32, "commitment": 32, "share_set": 16, "x25519": 32}
    for change in ({"rows": 4}, *({name: bytes(size)} for name, size in sizes.items())):
        changed = resigned(mine, server.federation, **change)
        with unchanged(c), pytest.raises(OutOfTurn, match="the job has begun with other shares of c0"):
            c.join("c0", digest, b"B" * 16, changed, server.now)
    c.join("c0", digest, b"B" * 16, mine, server.now)


def test_another_federation_file_is_refused(server: Server) -> None:
    with (
        unchanged(server.coordinator),
        pytest.raises(OutOfTurn, match=r"your federation\.toml differs from the server's"),
    ):
        server.coordinator.join("c0", bytes(32), b"A" * 16, introduce(server.machines[0]), 0.0)


def test_a_name_that_is_not_the_certificates_is_refused(server: Server) -> None:
    digest, other = server.federation.digest(), introduce(server.machines[1])
    with (
        unchanged(server.coordinator),
        pytest.raises(WrongSender, match="the certificate says c0, the introduction c1"),
    ):
        server.coordinator.join("c0", digest, b"A" * 16, other, 0.0)
    ugly = dataclasses.replace(other, name="c1\n\x1b[31m" + "x" * 1000)
    with pytest.raises(WrongSender) as refused:
        server.coordinator.join("c0", digest, b"A" * 16, ugly, 0.0)
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 600


def test_more_rows_than_allowed_are_refused() -> None:
    server = Server(max_rows=10)
    server.join(0, 1, 2)
    with unchanged(server.coordinator), pytest.raises(Malformed, match="12 rows in all exceed max_rows = 10"):
        server.join(3)
    server.join(1)  # a repetition is not counted twice


def test_too_few_rows_fail_the_job() -> None:
    server = Server(sizes=(1, 0, 1, 0))
    server.join(0, 1, 2, 3)
    assert server.coordinator.phase is Phase.FAILED
    assert isinstance(server.coordinator.failure, JobFailed)
    assert str(server.coordinator.failure) == "2 rows in all cannot make k = 3 clusters"
    assert server.coordinator.news("c0", Cursor(), 0.0) == [events.Failed("2 rows in all cannot make k = 3 clusters")]


def test_a_client_that_stops_while_joining_may_come_back(server: Server) -> None:
    server.join(0, 1)
    server.report(0, events.Stopped("lunch"))
    assert server.coordinator.missing() == ("c0", "c2", "c3")
    server.join(0)
    assert server.coordinator.missing() == ("c2", "c3")


def test_a_client_that_others_cannot_reach_hears_it(server: Server) -> None:
    server.join(0, 1, 2, 3)
    told: dict[str, Cursor] = {"c0": Cursor(), "c3": Cursor()}

    def heard(name: str) -> list[tuple[str, ...]]:
        news = server.coordinator.news(name, told[name], server.now)
        return [event.unreachable_by for event in news if isinstance(event, events.Waiting)]

    assert (heard("c0"), heard("c3")) == ([()], [()])
    server.report(1, events.Unreachable("c3", "timed out"))
    server.report(2, events.Unreachable("c3", "refused"))
    assert (heard("c0"), heard("c3")) == ([], [("c1", "c2")])
    server.report(1, events.Unreachable("c3", ""))
    server.report(2, events.Unreachable("c3", ""))
    assert (heard("c0"), heard("c3")) == ([], [()])


def test_a_client_that_stops_while_sharing_is_waited_for_and_named(server: Server) -> None:
    """It can come back under its identity and go on, so the job is not over."""
    server.join(0, 1, 2, 3)
    for j in range(4):
        server.follow(j)
    for j in (0, 1, 2):
        server.report(j, server.held(j))
    server.report(1, events.Stopped("disk full"))
    assert server.coordinator.phase is Phase.SHARING
    assert server.coordinator.missing() == ("c1", "c3"), "it held all shares, but is gone"
    waiting = [e for e in server.coordinator.news("c0", Cursor(), server.now) if isinstance(e, events.Waiting)]
    assert waiting == [events.Waiting("sharing", ("c1", "c3"))]
    server.coordinator.join("c1", server.federation.digest(), b"i" * 16, introduce(server.machines[1]), server.now)
    server.coordinator.connected("c1", b"i" * 16, server.now)
    server.coordinator.report("c1", b"i" * 16, server.held(1), server.now)
    server.report(3, server.held(3))
    assert server.coordinator.phase is Phase.CHECKING


def test_who_stopped_while_sharing_and_why_is_said_at_the_deadline(server: Server) -> None:
    server.join(0, 1, 2, 3)
    server.report(1, events.Stopped("disk full"))
    server.tick(201.0)
    assert "c0, c1 (stopped: disk full), c2, c3" in str(server.coordinator.failure)


# --- deadlines ----------------------------------------------------------------------------------------------------------


def test_the_join_deadline_names_who_is_missing(server: Server) -> None:
    server.join(0, 2)
    server.tick(100.0)
    assert server.coordinator.phase is Phase.JOINING
    server.tick(0.5)
    assert isinstance(server.coordinator.failure, Unavailable)
    assert str(server.coordinator.failure) == f"after 100 s these have not joined: c1, c3{AGAIN}"
    told = server.coordinator.news("c0", Cursor(), server.now)
    assert told == [events.Failed(str(server.coordinator.failure), again=True)]
    with pytest.raises(
        Unavailable, match="have not joined"
    ):  # it is no failure of the job, so the late one keeps trying
        server.join(1)
    assert server.coordinator.phase_seconds == {"joining": 100.5}


def test_the_share_deadline_names_who_is_missing_and_which_links_are_broken(server: Server) -> None:
    server.tick(99.0)
    server.join(0, 1, 2, 3)
    server.follow(0)
    server.follow(2)
    server.report(0, server.held(0))
    server.report(2, server.held(2))
    server.report(1, events.Unreachable("c3", "connection refused"))
    server.report(2, events.Unreachable("c3", "no route"))
    server.report(2, events.Unreachable("c3", ""))
    server.tick(200.0)
    assert server.coordinator.phase is Phase.SHARING, "the clock starts anew with every phase"
    assert server.coordinator.missing() == ("c1", "c3")
    server.tick(1.0)
    assert isinstance(server.coordinator.failure, Unavailable)
    assert str(server.coordinator.failure) == (
        f"after 201 s these do not hold all shares or are gone: c1, c3; c1 cannot reach c3: connection refused{AGAIN}"
    )


def test_the_round_deadline_names_who_is_missing() -> None:
    server = Server(3, (3, 4, 5))
    server.begin_rounds()
    server.send(1)
    server.tick(50.0)
    assert server.coordinator.phase is Phase.ROUNDS
    server.tick(0.1)
    assert isinstance(server.coordinator.failure, Unavailable)
    assert str(server.coordinator.failure) == (f"no upload for round 1 from: c0, c2{AGAIN}")


def test_too_few_connected_clients_are_named_after_the_round_deadline() -> None:
    server = Server(3, (3, 4, 5))
    server.begin_rounds()
    server.tick(20.0)
    server.lose(1)
    server.tick(DEADLINES.lost + 0.1)
    assert server.rounds.attempt is None
    server.follow(1)
    assert server.rounds.attempt.name == (1, 2), "asked as soon as there are enough"
    server.lose(1)
    server.tick(DEADLINES.lost + 0.1)
    assert server.rounds.attempt is None
    server.tick(40.0)
    assert server.coordinator.phase is Phase.ROUNDS
    server.tick(10.0)
    assert isinstance(server.coordinator.failure, Unavailable)
    assert str(server.coordinator.failure) == (f"after 55 s fewer than 3 clients are ready; missing: c1{AGAIN}")


def test_no_deadline_while_the_server_itself_decodes() -> None:
    server = Server()
    server.begin_rounds()
    for j in server.responders():
        server.send(j)
    work = server.coordinator.take_work()
    assert work is not None
    server.lose(0, 1, 2, 3)
    server.tick(1e6)
    assert server.coordinator.phase is Phase.ROUNDS
    server.coordinator.complete(server.coordinator.record(work.run(), 0.1, server.now), server.now)
    assert server.rounds.attempt is None


# --- attempts -------------------------------------------------------------------------------------------------------------


def test_the_first_r_connected_clients_are_asked(server: Server) -> None:
    server.begin_rounds()
    assert server.responders() == (0, 1, 2)
    cursor = Cursor()
    kinds = [type(event) for event in server.coordinator.news("c3", cursor, server.now)]
    assert kinds == [events.Roster, events.Agreements, events.Reveals, events.Assignment, events.RoundRequest]
    assert server.coordinator.news("c3", cursor, server.now) == [], "nothing is told twice"


def test_the_slow_are_asked_last(server: Server) -> None:
    server.begin_rounds()
    server.send(0)
    server.send(1)
    server.now += 30.0
    server.send(2)
    work = server.coordinator.take_work()
    assert work is not None
    server.coordinator.complete(server.coordinator.record(work.run(), 0.1, server.now), server.now)
    assert server.responders() == (0, 1, 3)


def test_a_lost_responder_is_replaced_only_after_a_while(server: Server) -> None:
    server.begin_rounds()
    server.send(0)
    server.send(1, words=2)
    old = server.rounds.attempt
    server.lose(1)
    server.tick(4.9)
    assert server.rounds.attempt is old
    server.follow(1)
    server.tick(4.9)
    assert server.rounds.attempt is old, "it was back in time"
    server.lose(1)
    server.tick(5.1)
    assert server.rounds.attempt.name == (1, 2)
    assert server.responders() == (0, 2, 3)
    with unchanged(server.coordinator), pytest.raises(OutOfTurn, match="round 1, attempt 1 is over"):
        server.coordinator.upload("c0", old.name, events.Chunk(0, 1, np.zeros(1, np.uint64)), 0.0, server.now)
    server.lose(0)
    server.follow(1)
    server.tick(5.1)
    assert server.rounds.attempt.name == (1, 3), "attempts rise"
    assert server.responders() == (1, 2, 3)


def test_a_finished_upload_of_a_lost_client_still_counts(server: Server) -> None:
    server.begin_rounds()
    server.send(0)
    server.lose(0)
    old = server.rounds.attempt
    server.tick(20.0)
    assert server.rounds.attempt is old
    server.send(1)
    server.send(2)
    assert server.coordinator.take_work() is not None


def test_decoding_waits_for_every_word_and_is_handed_out_once(server: Server) -> None:
    server.begin_rounds()
    due = server.rounds.attempt.decoder.shape.layout.words
    assert due > 2
    assert server.send(0)
    assert server.send(1)
    assert not server.send(2, words=due - 1)
    assert server.coordinator.take_work() is None
    with pytest.raises(JobFailed, match="1 uploads are missing"):
        server.rounds.attempt.decoder.finish(server.rounds._distances)
    assert server.send(2, words=1, offset=due - 1)
    work = server.coordinator.take_work()
    assert work is not None
    assert server.coordinator.take_work() is None
    cursor = Cursor(roster=True, agreements=True, reveals=True)
    assert server.coordinator.news("c0", cursor, server.now) == [], "nobody is asked"
    with unchanged(server.coordinator), pytest.raises(OutOfTurn):
        server.send(0)
    with pytest.raises(OutOfTurn, match="no question is due"):
        server.rounds.ask([0, 1, 2], server.now)
    server.coordinator.complete(server.coordinator.record(work.run(), 0.1, server.now), server.now)
    assert server.rounds.attempt.name == (2, 1)
    with unchanged(server.coordinator), pytest.raises(OutOfTurn, match="no work was handed out"):
        server.coordinator.complete(None, server.now)  # type: ignore[arg-type]


def test_an_upload_that_is_not_wanted(server: Server) -> None:
    chunk = events.Chunk(0, 1, np.zeros(1, np.uint64))
    with pytest.raises(OutOfTurn, match="no distances are wanted now"):
        server.coordinator.upload("c0", (1, 1), chunk, 0.0, 0.0)
    with pytest.raises(OutOfTurn, match="no work was handed out"):
        server.coordinator.complete(None, 0.0)  # type: ignore[arg-type]
    assert server.coordinator.take_work() is None
    server.begin_rounds()
    with unchanged(server.coordinator), pytest.raises(OutOfTurn, match="not a responder"):
        server.send(3)


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -5.0, 1e300])
def test_a_client_may_claim_any_time_to_compute(server: Server, seconds: float) -> None:
    server.begin_rounds()
    attempt = server.rounds.attempt
    due = attempt.decoder.shape.layout.words
    chunk = events.Chunk(0, due, np.zeros(due, np.uint64))
    server.coordinator.upload("c0", attempt.name, chunk, seconds, server.now)
    assert 0.0 <= attempt.compute.get(0, 0.0) <= 86400.0


@pytest.mark.parametrize("sizes", [(3, 4, 5), (2, 4, 5)])
def test_an_open_upload_with_nothing_left_to_send(sizes: tuple[int, ...]) -> None:
    """A responder whose answer was lost is asked again with received = total, and sends one empty chunk."""
    server = Server(3, sizes, uploads="open")
    server.begin_rounds()
    due = server.rounds.attempt.decoder.shape.layout.words
    assert server.send(0)
    assert server.send(0, words=0, offset=due)


def test_an_open_upload_of_no_columns() -> None:
    server = with_no_columns(uploads="open")
    assert server.send(0)


def with_no_columns(**changes: Any) -> Server:
    """k = m = 1: after the seeding nothing has changed, so the Lloyd round asks for no column."""
    server = Server(3, (1, 0, 0), k=1, **changes)
    server.begin_rounds()
    server.finish_round()
    assert server.rounds.attempt.request.columns == ()
    return server


def test_no_round_is_decoded_with_no_upload_at_all() -> None:
    """The end of a stream of the round before may come when the next round has been asked already."""
    server = with_no_columns()
    assert server.coordinator.take_work() is None


def test_a_masked_upload_of_no_columns_is_an_empty_chunk() -> None:
    server = with_no_columns()
    server.finish()
    assert server.coordinator.phase is Phase.FINISHED


# --- reports --------------------------------------------------------------------------------------------------------------


def test_a_client_that_comes_and_goes_does_not_make_a_round_last_for_ever() -> None:
    server = Server(3, (3, 4, 5))
    server.begin_rounds()
    for _ in range(20):
        server.lose(1)
        server.tick(DEADLINES.lost + 0.1)
        if server.coordinator.failure is not None:
            break
        assert server.coordinator.short
        server.follow(1)
        assert not server.coordinator.short
    assert isinstance(server.coordinator.failure, Unavailable)


def test_status_names_whom_the_job_cannot_go_on_without(server: Server) -> None:
    server.join(0, 1)
    assert server.coordinator.waits_for() == ("c2", "c3")
    server.join(2, 3, agree=False)
    server.agree(0, 1, 3)
    assert server.coordinator.waits_for() == ("c2",)
    server.agree(2)
    server.follow(0, 1, 2, 3)
    for j in range(4):
        server.report(j, server.held(j))
    assert server.coordinator.waits_for() == ("c0", "c1", "c2", "c3"), "everybody has a part in the check of all shares"
    server.check_shares()
    assert server.coordinator.missing()
    assert server.coordinator.waits_for() == (), "a round that is asked can do without some"


def test_below_r_everybody_hears_whom_the_round_waits_for() -> None:
    server = Server(3, (3, 4, 5))
    server.begin_rounds()
    cursor = Cursor()
    server.coordinator.news("c0", cursor, server.now)
    server.lose(1)
    server.tick(DEADLINES.lost + 0.1)
    assert server.coordinator.news("c0", cursor, server.now) == [events.Waiting("rounds", ("c1",))]
    assert server.coordinator.news("c0", cursor, server.now) == [], "once"


def test_held_must_be_of_this_session_and_comes_after_joining(server: Server) -> None:
    server.join(0)
    with unchanged(server.coordinator), pytest.raises(OutOfTurn, match="before everybody has joined"):
        server.report(0, server.held(0))
    server.join(1, 2, 3)
    server.follow(0)
    with unchanged(server.coordinator), pytest.raises(Malformed, match="are not those of this job"):
        server.report(0, events.Held(bytes(32), 0, 0, 0.0))
    server.report(0, server.held(0))
    server.report(0, server.held(0))
    assert server.coordinator.missing() == ("c1", "c2", "c3")


def test_done_is_told_after_the_end() -> None:
    server = Server(3, (3, 4, 5))
    server.begin_rounds()
    with unchanged(server.coordinator), pytest.raises(OutOfTurn, match="not finished"):
        server.report(0, events.Done())
    server.finish()
    assert server.coordinator.missing() == ("c0", "c1", "c2")
    server.report(1, events.Done())
    assert server.coordinator.missing() == ("c0", "c2")


# --- the end is final -------------------------------------------------------------------------------------------------------


def ending(server: Server) -> object:
    c = server.coordinator
    return c.phase, c.failure, c.phase_seconds, snapshot(c.rounds)


def test_nothing_moves_a_finished_job() -> None:
    server = Server(3, (3, 4, 5))
    server.begin_rounds()
    server.finish()
    before = ending(server)
    server.coordinator.fail(JobFailed("too late"), server.now)
    server.lose(0, 1, 2)
    server.tick(1e9)
    server.join(0)
    server.follow(0)
    server.report(0, server.held(0))
    server.report(0, events.Stopped("bye"))
    assert server.coordinator.take_work() is None
    assert ending(server) == before
    told = server.coordinator.news("c0", Cursor(), server.now)
    kinds = [events.Roster, events.Agreements, events.Reveals, events.Assignment, events.Finished]
    assert [type(event) for event in told] == kinds


def test_nothing_moves_a_failed_job() -> None:
    server = Server(3, (3, 4, 5))
    server.begin_rounds()
    server.coordinator.fail(JobFailed("stopped"), server.now)
    before = ending(server)
    server.coordinator.fail(JobFailed("another reason"), server.now)
    server.lose(0, 1)
    server.tick(1e9)
    with pytest.raises(JobFailed, match="stopped"):
        server.join(0)
    server.follow(0)
    with pytest.raises(OutOfTurn):
        server.send(0)
    assert server.coordinator.take_work() is None
    assert ending(server) == before
    assert server.coordinator.news("c0", Cursor(), server.now) == [events.Failed("stopped")]


def test_a_job_that_fails_while_it_decodes_stays_failed() -> None:
    """As when the server is stopped by a signal during the last round."""
    server = Server(3, (3, 4, 5), max_rounds=1, seeding="random")
    server.begin_rounds()
    for j in server.responders():
        server.send(j)
    work = server.coordinator.take_work()
    assert work is not None
    server.coordinator.fail(JobFailed("the server was stopped"), server.now)
    server.coordinator.complete(server.coordinator.record(work.run(), 0.1, server.now), server.now)
    assert server.coordinator.phase is Phase.FAILED


def test_who_comes_after_the_failure_is_told_why(server: Server) -> None:
    """As one that may try again: the server, started again, goes on with the job."""
    server.join(0, 1, 2)
    server.tick(101.0)
    with pytest.raises(Unavailable, match="after 101 s these have not joined: c3"):
        server.join(3)


# --- what a follower is told ------------------------------------------------------------------------------------------------


def test_waiting_is_told_when_it_changes(server: Server) -> None:
    server.join(0)
    cursor = Cursor()
    assert server.coordinator.news("c0", cursor, 0.0) == [events.Waiting("joining", ("c1", "c2", "c3"))]
    assert server.coordinator.news("c0", cursor, 0.0) == []
    server.join(1)
    assert server.coordinator.news("c0", cursor, 0.0) == [events.Waiting("joining", ("c2", "c3"))]
    server.join(2, 3, agree=False)
    met, waiting = server.coordinator.news("c0", cursor, 0.0)
    assert isinstance(met, events.Roster)
    assert [member.name for member in met.members] == ["c0", "c1", "c2", "c3"]
    assert waiting == events.Waiting("agreeing", ("c0", "c1", "c2", "c3"))
    server.agree(0, 1, 2, 3)
    agreed, waiting = server.coordinator.news("c0", cursor, 0.0)
    assert isinstance(agreed, events.Agreements)
    assert waiting == events.Waiting("sharing", ("c0", "c1", "c2", "c3"))


def test_a_follower_gets_changes_and_a_new_one_the_whole() -> None:
    server = Server(3, (20, 20, 20), k=2)
    server.begin_rounds()
    cursor, bases = Cursor(), []
    labels: np.ndarray[Any, Any] | None = None
    while server.coordinator.phase is Phase.ROUNDS:
        pieces = [e for e in server.coordinator.news("c0", cursor, server.now) if isinstance(e, events.Assignment)]
        data = b"".join(piece.data for piece in pieces)
        bases.append(pieces[0].base)
        labels = assignments.decode(data, 60, 2, labels)
        assert labels.tolist() == server.rounds.clustering.labels.tolist()
        [whole] = server.rounds.assignment(0, 1 << 20)
        assert whole.base == 0
        assert assignments.decode(whole.data, 60, 2, None).tolist() == labels.tolist()
        server.finish_round()
    assert any(bases), "a change was sent"


def test_a_late_question_still_leaves_a_second(server: Server) -> None:
    server.begin_rounds()
    [question] = [
        event
        for event in server.coordinator.news("c0", Cursor(roster=True), server.now + 1000.0)
        if isinstance(event, events.RoundRequest)
    ]
    assert question.deadline_seconds == 1.0


def test_the_question_says_how_much_has_arrived(server: Server) -> None:
    server.begin_rounds()
    server.send(1, words=2)
    received = [server.rounds.question(j, 10.0).received for j in range(4)]
    assert received == [0, 2, 0, 0]


# --- result.json ------------------------------------------------------------------------------------------------------------


def test_the_result_is_described_at_any_moment(server: Server) -> None:
    assert result.describe(server.coordinator, 1.0)["state"] == "joining"
    server.begin_rounds()
    for j in server.responders():
        server.send(j)
    assert result.describe(server.coordinator, 1.0)["rounds"] == 0
    work = server.coordinator.take_work()
    assert work is not None
    assert result.describe(server.coordinator, 1.0)["cluster_sizes"] is None, "not while a thread works on it"
    server.coordinator.complete(server.coordinator.record(work.run(), 0.1, server.now), server.now)
    server.finish()
    told = result.describe(server.coordinator, 1.0)
    assert told["state"] == "finished"
    assert sum(told["cluster_sizes"]) == 12
    assert [entry["request"] for entry in told["history"]] == list(range(1, len(told["history"]) + 1))
    assert told["bytes"]["sharing_sent"] == dict.fromkeys(server.federation.roster, 10)


def test_a_responder_that_has_restarted_is_asked_once_it_holds_its_shares_again(server: Server) -> None:
    server.begin_rounds()
    j, c = server.responders()[0], server.coordinator
    server.lose(j)
    c.join(f"c{j}", server.federation.digest(), b"B" * 16, introduce(server.machines[j]), server.now)
    c.connected(f"c{j}", b"B" * 16, server.now)
    cursor = Cursor()
    assert not any(isinstance(event, events.RoundRequest) for event in c.news(f"c{j}", cursor, server.now))
    c.report(f"c{j}", b"B" * 16, server.held(j), server.now)
    asked = [event for event in c.news(f"c{j}", cursor, server.now) if isinstance(event, events.RoundRequest)]
    assert [(one.number, one.attempt) for one in asked] == [server.rounds.attempt.name]
    assert j in asked[0].responders


def test_clients_do_not_hear_where_the_servers_files_are() -> None:
    """A journal that cannot be written ends the job; its place is for the server's own log."""
    server = Server()
    server.join(0, 1)
    server.coordinator.fail(ConfigError("/srv/hub/state/journal.sqlite: the journal cannot be written"), server.now)
    [failed] = server.coordinator.news("c0", Cursor(), server.now)
    assert isinstance(failed, events.Failed)
    with pytest.raises(JobFailed) as late:
        server.join(2)
    for heard in (failed.reason, str(late.value), status(server.coordinator, 0.0).reason):
        assert heard == "it has a problem with its own files; its log says which"
    assert "/srv/hub" in str(server.coordinator.failure)
