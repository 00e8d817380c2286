"""The server's machine on its own: joining, deadlines with a clock of the test's, attempts, and what is final."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from secfc.errors import AlreadyJoined, ConfigError, JobFailed, Malformed, OutOfTurn, Unavailable, WrongSender
from secfc.kmeans import assignments
from secfc.privacy import verification
from secfc.protocol import messages, parcels, start
from secfc.protocol.effects import Arrived, Effects, Put, Started, Tick, Work, Worked
from secfc.protocol.messages import Phase
from secfc.protocol.parcels import Kind, Parcel
from secfc.protocol.server.attempt import Attempt
from secfc.protocol.server.coordinator import Coordinator
from secfc.protocol.server.inputs import CalledOff, Followed, Joined, Reported, Unfollowed
from secfc.protocol.server.job import Deadlines
from secfc.protocol.server.news import Cursor
from secfc.protocol.server.snapshot import Snapshot
from secfc_server import result
from secfc_server.service import status
from tests.parties import deal, everything, make_federation, plan_of, resigned, sign, sites, unchanged, verifier

AGAIN = "; start the server and the clients again to go on"
DEADLINES = Deadlines(join=100.0, share=200.0, round=50.0, lost=5.0)


class Server:
    """A coordinator and the clients it serves, moved by hand."""

    def __init__(self, clients: int = 4, sizes: tuple[int, ...] = (3, 4, 0, 5), **changes: Any) -> None:
        self.federation = make_federation(clients, **changes)
        self.sites = sites(self.federation, deal(3, sizes))
        self.now = 50.0
        self.coordinator = Coordinator(
            self.federation,
            plan_of(self.federation),
            verifier(self.federation),
            deadlines=DEADLINES,
            now=self.now,
        )
        self.work: list[Work] = []  # handed out, not done
        self.kept: dict[str, bytes] = {}

    def give(self, given: Any) -> Effects:
        effects = self.coordinator.handle(given, self.now)
        self.work += [one for one in effects.work if isinstance(one, Work)]
        self.kept |= {one.key: bytes(one.value) for one in effects.keep if isinstance(one, Put)}
        return effects

    @property
    def seen(self) -> Snapshot:
        return self.coordinator.snapshot(self.now)

    @property
    def session(self) -> bytes:
        return messages.session(self.federation.agreed(), [site.introduction() for site in self.sites])

    def news(self, name: str, cursor: Cursor | None = None) -> list[messages.Event]:
        return self.coordinator.news(name, Cursor() if cursor is None else cursor, self.now)

    def instance(self, j: int) -> bytes:
        return self.sites[j].instance

    def joined(self, name: str, agreed: bytes, instance: bytes, introduction: messages.Introduction) -> None:
        self.give(Joined(name, messages.Join(agreed, instance, introduction)))

    def join(self, *clients: int, agree: bool = True) -> None:
        """With the last one everybody agrees, unless told otherwise."""
        for j in clients:
            site = self.sites[j]
            self.joined(site.name, self.federation.agreed(), site.instance, site.introduction())
        if agree and self.coordinator.phase is Phase.AGREEING:
            self.agree(*range(len(self.sites)))

    def agree(self, *clients: int) -> None:
        for j in clients:
            self.report(j, self.agreed(j))

    def agreed(self, j: int) -> messages.Agreed:
        """A signature under the session; the proofs are the clients' to check."""
        statement = messages.Agreement(f"c{j}", self.session, b"").statement(self.federation.agreed())
        return messages.Agreed(
            sign(f"c{j}", statement), tuple(b"" if i == j else bytes(32) for i in range(len(self.sites)))
        )

    def follow(self, *clients: int) -> None:
        for j in clients:
            self.give(Followed(f"c{j}", self.instance(j)))

    def lose(self, *clients: int) -> None:
        for j in clients:
            self.give(Unfollowed(f"c{j}", self.instance(j)))

    def report(self, j: int, report: messages.Report) -> None:
        self.give(Reported(f"c{j}", self.instance(j), report))

    def held(self, j: int) -> messages.Held:
        names = [site.share_set.id for site in self.sites]
        return messages.Held(messages.holdings(self.session, names), 10, 20, 0.5, self.sites[j].secrets.coin)

    def tick(self, seconds: float) -> None:
        self.now += seconds
        self.give(Tick())

    def begin_rounds(self) -> None:
        everybody = range(len(self.sites))
        self.join(*everybody)
        self.follow(*everybody)
        for j in everybody:
            self.report(j, self.held(j))
        self.check_shares()

    def part(self, j: int) -> None:
        """Zeros instead of a part of the check of all shares; they add up to zero, as honest ones do."""
        plan, introductions = plan_of(self.federation), [site.introduction() for site in self.sites]
        tossed = start.tossed(self.session, introductions, [site.secrets.coin for site in self.sites])
        total = 8 * verification.layout(plan).words
        parcel = Parcel(self.session, Kind.SUM, verification.purpose(plan, self.session, tossed))
        self.give(Arrived(f"c{j}", parcel, 0, total, bytes(total)))

    def check_shares(self) -> None:
        for j in range(len(self.sites)):
            self.part(j)
        self.complete(self.take_work())

    @property
    def attempt(self) -> Attempt:
        assert self.coordinator.attempt is not None
        return self.coordinator.attempt

    def responders(self) -> tuple[int, ...]:
        return self.attempt.responders

    def due(self) -> int:
        """Words of every responder's upload."""
        question = self.attempt.question
        return plan_of(self.federation).shape(len(question.labels), question.sizes, question.columns).layout.words

    def upload(self, name: tuple[int, int] | None = None) -> Parcel:
        return Parcel(self.session, Kind.UPLOAD, parcels.attempt_name(*(name or self.attempt.name)))

    def send(self, j: int, words: int | None = None, offset: int = 0, seconds: float = 0.5) -> bool:
        """Zeros instead of an upload, all of it unless told otherwise; True if nothing of it is missing then."""
        due = self.due()
        data = bytes(8 * (due if words is None else words))
        self.give(Arrived(f"c{j}", self.upload(), 8 * offset, 8 * due, data, seconds))
        return f"c{j}" not in self.seen.missing

    def take_work(self) -> Work | None:
        return self.work.pop(0) if self.work else None

    def complete(self, work: Work | None) -> None:
        assert work is not None
        self.give(Worked(work.name, work.run(), seconds=0.1))

    def finish_round(self) -> None:
        for j in self.responders():
            self.send(j)
        self.complete(self.take_work())

    def finish(self) -> None:
        while self.coordinator.phase is Phase.ROUNDS:
            self.finish_round()


@pytest.fixture
def server() -> Server:
    return Server()


# --- joining ----------------------------------------------------------------------------------------------------------


def test_sharing_begins_when_all_have_joined_and_agreed(server: Server) -> None:
    server.join(0, 1, 3)
    assert (server.coordinator.phase, server.seen.missing) == (Phase.JOINING, ("c2",))
    server.join(2, agree=False)
    assert server.coordinator.phase is Phase.AGREEING
    server.agree(0, 1, 2)
    assert (server.coordinator.phase, server.seen.missing) == (Phase.AGREEING, ("c3",))
    with pytest.raises(OutOfTurn, match=r"too early or too late.*phase agreeing"):
        server.report(0, server.held(0))
    server.agree(3, 3, 0)
    assert (server.coordinator.phase, server.seen.rows) == (Phase.SHARING, 12)
    assert server.seen.missing == ("c0", "c1", "c2", "c3")


def test_the_same_process_may_repeat_and_a_second_live_one_is_refused(server: Server) -> None:
    server.join(0)
    server.follow(0)
    server.join(0)
    c, digest = server.coordinator, server.federation.agreed()
    with (
        unchanged(c),
        pytest.raises(AlreadyJoined, match="another process has joined as c0 and is alive; stop it first"),
    ):
        server.joined("c0", digest, b"B" * 16, server.sites[0].introduction())
    server.lose(0)
    server.joined("c0", digest, b"B" * 16, server.sites[0].introduction())
    with unchanged(c), pytest.raises(OutOfTurn, match="another process may have joined"):
        server.follow(0)
    server.give(Followed("c0", b"B" * 16))
    with unchanged(c.job.members):
        server.lose(0)  # the old process's stream ends late
    assert server.seen.clients[0].connected


@pytest.mark.parametrize(
    ("who", "what"),
    [({"dropouts": 1}, {}), ({}, {"k": 4}), ({}, {"max_rounds": 299}), ({}, {"bound": 8.5}), ({}, {"seed": "another"})],
)
def test_another_federation_or_another_job_is_refused_at_joining(
    server: Server, who: dict[str, int], what: dict[str, Any]
) -> None:
    theirs = dataclasses.replace(server.federation, **who, job=dataclasses.replace(server.federation.job, **what))
    mine = resigned(server.sites[0].introduction(), theirs)
    with (
        unchanged(server.coordinator),
        pytest.raises(OutOfTurn, match=r"your federation\.toml differs from the server's"),
    ):
        server.joined("c0", theirs.agreed(), b"B" * 16, mine)
    with unchanged(server.coordinator), pytest.raises(WrongSender, match="not signed"):  # who lies about its digest
        server.joined("c0", server.federation.agreed(), b"B" * 16, mine)
    server.join(0)


def test_before_sharing_a_new_process_may_bring_other_rows(server: Server) -> None:
    server.join(0)
    [other] = sites(make_federation(1, privacy=0, uploads="open"), deal(9, [7]))
    intro = resigned(other.introduction(), server.federation, name="c0")
    server.joined("c0", server.federation.agreed(), b"B" * 16, intro)
    assert server.seen.rows == 7


def test_after_sharing_has_begun_only_the_same_shares_may_come_back(server: Server) -> None:
    server.join(0, 1, 2, 3)
    c, digest, mine = server.coordinator, server.federation.agreed(), server.sites[0].introduction()
    sizes = {"nonce": 32, "commitment": 32, "share_set": 16, "x25519": 32}
    for change in ({"rows": 4}, *({name: bytes(size)} for name, size in sizes.items())):
        changed = resigned(mine, server.federation, **change)
        with unchanged(c), pytest.raises(OutOfTurn, match="the job has begun with other shares of c0"):
            server.joined("c0", digest, b"B" * 16, changed)
    server.joined("c0", digest, b"B" * 16, mine)


def test_another_federation_file_is_refused(server: Server) -> None:
    with (
        unchanged(server.coordinator),
        pytest.raises(OutOfTurn, match=r"your federation\.toml differs from the server's"),
    ):
        server.joined("c0", bytes(32), b"A" * 16, server.sites[0].introduction())


def test_a_name_that_is_not_the_certificates_is_refused(server: Server) -> None:
    digest, other = server.federation.agreed(), server.sites[1].introduction()
    with (
        unchanged(server.coordinator),
        pytest.raises(WrongSender, match="the certificate says c0, the introduction c1"),
    ):
        server.joined("c0", digest, b"A" * 16, other)
    ugly = dataclasses.replace(other, name="c1\n\x1b[31m" + "x" * 1000)
    with pytest.raises(WrongSender) as refused:
        server.joined("c0", digest, b"A" * 16, ugly)
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
    assert server.news("c0") == [messages.Failed("2 rows in all cannot make k = 3 clusters")]


def test_a_client_that_stops_while_joining_may_come_back(server: Server) -> None:
    server.join(0, 1)
    server.report(0, messages.Stopped("lunch"))
    assert server.seen.missing == ("c0", "c2", "c3")
    server.join(0)
    assert server.seen.missing == ("c2", "c3")


def test_a_client_that_others_cannot_reach_hears_it(server: Server) -> None:
    server.join(0, 1, 2, 3)
    told: dict[str, Cursor] = {"c0": Cursor(), "c3": Cursor()}

    def heard(name: str) -> list[tuple[str, ...]]:
        news = server.news(name, told[name])
        return [event.unreachable_by for event in news if isinstance(event, messages.Waiting)]

    assert (heard("c0"), heard("c3")) == ([()], [()])
    server.report(1, messages.Unreachable("c3", "timed out"))
    server.report(2, messages.Unreachable("c3", "refused"))
    assert (heard("c0"), heard("c3")) == ([], [("c1", "c2")])
    server.report(1, messages.Unreachable("c3", ""))
    server.report(2, messages.Unreachable("c3", ""))
    assert (heard("c0"), heard("c3")) == ([], [()])


def test_a_client_that_stops_while_sharing_is_waited_for_and_named(server: Server) -> None:
    """It can come back under its identity and go on, so the job is not over."""
    server.join(0, 1, 2, 3)
    for j in range(4):
        server.follow(j)
    for j in (0, 1, 2):
        server.report(j, server.held(j))
    server.report(1, messages.Stopped("disk full"))
    assert server.coordinator.phase is Phase.SHARING
    assert server.seen.missing == ("c1", "c3"), "it held all shares, but is gone"
    waiting = [e for e in server.news("c0") if isinstance(e, messages.Waiting)]
    assert waiting == [messages.Waiting(Phase.SHARING, ("c1", "c3"))]
    server.joined("c1", server.federation.agreed(), b"i" * 16, server.sites[1].introduction())
    server.give(Followed("c1", b"i" * 16))
    server.give(Reported("c1", b"i" * 16, server.held(1)))
    server.report(3, server.held(3))
    assert server.coordinator.phase is Phase.CHECKING


def test_who_stopped_while_sharing_and_why_is_said_at_the_deadline(server: Server) -> None:
    server.join(0, 1, 2, 3)
    server.report(1, messages.Stopped("disk full"))
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
    told = server.news("c0")
    assert told == [messages.Failed(str(server.coordinator.failure), again=True)]
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
    server.report(1, messages.Unreachable("c3", "connection refused"))
    server.report(2, messages.Unreachable("c3", "no route"))
    server.report(2, messages.Unreachable("c3", ""))
    server.tick(200.0)
    assert server.coordinator.phase is Phase.SHARING, "the clock starts anew with every phase"
    assert server.seen.missing == ("c1", "c3")
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
    assert str(server.coordinator.failure) == (f"no answer to request 1 from: c0, c2{AGAIN}")


def test_too_few_connected_clients_are_named_after_the_round_deadline() -> None:
    server = Server(3, (3, 4, 5))
    server.begin_rounds()
    server.tick(20.0)
    server.lose(1)
    server.tick(DEADLINES.lost + 0.1)
    assert server.coordinator.attempt is None
    server.follow(1)
    assert server.attempt.name == (1, 2), "asked as soon as there are enough"
    server.lose(1)
    server.tick(DEADLINES.lost + 0.1)
    assert server.coordinator.attempt is None
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
    work = server.take_work()
    assert work is not None
    server.lose(0, 1, 2, 3)
    server.tick(1e6)
    assert server.coordinator.phase is Phase.ROUNDS
    server.complete(work)
    assert server.coordinator.attempt is None


def test_no_deadline_while_the_server_itself_compares_shares(server: Server) -> None:
    """It named nobody."""
    everybody = range(len(server.sites))
    server.join(*everybody)
    server.follow(*everybody)
    for j in everybody:
        server.report(j, server.held(j))
    for j in everybody:
        server.part(j)
    work = server.take_work()
    server.tick(DEADLINES.share + 1.0)
    assert (server.coordinator.phase, server.seen.missing) == (Phase.CHECKING, ())
    server.complete(work)
    assert server.coordinator.phase is Phase.ROUNDS


# --- attempts -------------------------------------------------------------------------------------------------------------


def test_the_first_r_connected_clients_are_asked(server: Server) -> None:
    server.begin_rounds()
    assert server.responders() == (0, 1, 2)
    cursor = Cursor()
    kinds = [type(event) for event in server.news("c3", cursor)]
    assert kinds == [messages.Roster, messages.Agreements, messages.Reveals, messages.Piece, messages.RoundRequest]
    assert server.news("c3", cursor) == [], "nothing is told twice"


def test_the_slow_are_asked_last(server: Server) -> None:
    server.begin_rounds()
    server.send(0)
    server.send(1)
    server.now += 30.0
    server.send(2)
    work = server.take_work()
    assert work is not None
    server.complete(work)
    assert server.responders() == (0, 1, 3)


def test_a_lost_responder_is_replaced_only_after_a_while(server: Server) -> None:
    server.begin_rounds()
    server.send(0)
    server.send(1, words=2)
    old = server.attempt
    server.lose(1)
    server.tick(4.9)
    assert server.attempt is old
    server.follow(1)
    server.tick(4.9)
    assert server.attempt is old, "it was back in time"
    server.lose(1)
    server.tick(5.1)
    assert server.attempt.name == (1, 2)
    assert server.responders() == (0, 2, 3)
    with unchanged(server.coordinator), pytest.raises(OutOfTurn, match="request 1, attempt 1 is over"):
        server.give(Arrived("c0", server.upload(old.name), 0, 8, bytes(8)))
    server.lose(0)
    server.follow(1)
    server.tick(5.1)
    assert server.attempt.name == (1, 3), "attempts rise"
    assert server.responders() == (1, 2, 3)


def test_a_finished_upload_of_a_lost_client_still_counts(server: Server) -> None:
    server.begin_rounds()
    server.send(0)
    server.lose(0)
    old = server.attempt
    server.tick(20.0)
    assert server.attempt is old
    server.send(1)
    server.send(2)
    assert server.take_work() is not None


def test_decoding_waits_for_every_word_and_is_handed_out_once(server: Server) -> None:
    server.begin_rounds()
    due = server.due()
    assert due > 2
    assert server.send(0)
    assert server.send(1)
    assert not server.send(2, words=due - 1)
    assert server.take_work() is None
    assert server.send(2, words=1, offset=due - 1)
    work = server.take_work()
    assert work is not None
    cursor = Cursor(roster=True, agreements=True, reveals=True, version=1)
    assert server.news("c0", cursor) == [], "nobody is asked"
    with unchanged(server.coordinator), pytest.raises(OutOfTurn):
        server.send(0)
    server.follow(3)
    server.tick(1.0)
    assert server.attempt.name == (1, 1), "nobody else is asked meanwhile"
    assert server.take_work() is None
    server.complete(work)
    assert server.attempt.name == (2, 1)
    with unchanged(server.attempt, server.seen.records):
        server.complete(work)  # what comes back twice counts once
    assert server.attempt.name == (2, 1)


def test_an_upload_that_is_not_wanted(server: Server) -> None:
    with pytest.raises(OutOfTurn, match="this is not due"):
        server.give(Arrived("c0", server.upload((1, 1)), 0, 8, bytes(8)))
    assert server.give(Worked(("round", 1, 1), None)).send == []
    assert server.take_work() is None
    server.begin_rounds()
    with unchanged(server.coordinator), pytest.raises(OutOfTurn, match="this is not due"):
        server.send(3)
    other = dataclasses.replace(server.upload(), session=bytes(32))
    with unchanged(server.coordinator), pytest.raises(OutOfTurn, match="belongs to another job"):
        server.give(Arrived("c0", other, 0, 8 * server.due(), bytes(8)))
    named = dataclasses.replace(server.upload(), name=server.upload().name + b"more")
    with unchanged(server.coordinator), pytest.raises(OutOfTurn):
        server.give(Arrived("c0", named, 0, 8 * server.due(), bytes(8)))


@pytest.mark.parametrize("uploads", ["masked", "open", "sealed"])
def test_a_repeated_upload_under_another_name_is_refused(uploads: str) -> None:
    """It counts for no other question, attempt, step or client; under its own name it is passed over."""
    server = Server(4, (3, 4, 5, 5), uploads=uploads, seeding="random", dropouts=1)
    server.begin_rounds()
    me, [stranger] = server.responders()[0], set(range(4)) - set(server.responders())
    parcel, (number, attempt), exchange = (
        server.upload(),
        server.attempt.name,
        vars(server.attempt.exchange._exchanges[0]),
    )
    decoder = exchange["_decoders"][0]
    total = 8 * decoder.shape.layout.words

    def send(client: int, kind: Kind = Kind.UPLOAD, name: bytes = parcel.name) -> None:
        server.give(Arrived(f"c{client}", dataclasses.replace(parcel, kind=kind, name=name), 0, total, bytes(total)))

    send(me)
    others = [(number, attempt + 1), (number, attempt - 1), (number + 1, attempt), (number - 1, attempt)]
    lies = [(me, Kind.UPLOAD, parcels.attempt_name(*one)) for one in others]
    lies += [(me, kind, parcel.name + name) for kind in (Kind.UPLOAD, Kind.STEP) for name in (b"U\1", bytes(12))]
    lies += [(stranger, kind, parcel.name) for kind in (Kind.UPLOAD, Kind.STEP)]
    for lie in lies:
        with unchanged(server.coordinator), pytest.raises((OutOfTurn, Malformed)):
            send(*lie)
    with unchanged(server.coordinator):
        send(me)
    assert f"c{me}" not in server.seen.missing


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -5.0, 1e300])
def test_a_client_may_claim_any_time_to_compute(server: Server, seconds: float) -> None:
    server.begin_rounds()
    attempt = server.attempt
    assert server.send(0, seconds=seconds)
    assert 0.0 <= attempt.compute.get(0, 0.0) <= 86400.0


@pytest.mark.parametrize("sizes", [(3, 4, 5), (2, 4, 5)])
def test_an_open_upload_with_nothing_left_to_send(sizes: tuple[int, ...]) -> None:
    """A responder whose answer was lost is asked again with received = total, and sends one empty chunk."""
    server = Server(3, sizes, uploads="open")
    server.begin_rounds()
    due = server.due()
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
    assert server.attempt.question.columns == ()
    return server


def test_no_round_is_decoded_with_no_upload_at_all() -> None:
    """The end of a stream of the round before may come when the next round has been asked already."""
    server = with_no_columns()
    assert server.take_work() is None


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
        assert server.seen.short
        server.follow(1)
        assert not server.seen.short
    assert isinstance(server.coordinator.failure, Unavailable)


@pytest.mark.parametrize(("clients", "uploads"), [(4, "masked"), (7, "masked"), (7, "open")])
def test_clients_that_are_there_and_do_not_answer_do_not_make_a_round_last_for_ever(clients: int, uploads: str) -> None:
    """One answer is always lacking, and there is always another connected client to be asked instead."""
    server = Server(clients, (3,) * clients, dropouts=1 if clients == 4 else 3, uploads=uploads)
    server.begin_rounds()
    began, asked, answer = server.now, set[tuple[int, int]](), len(server.responders()) - 1
    while server.coordinator.phase is Phase.ROUNDS:
        if server.attempt.name not in asked:
            asked.add(server.attempt.name)
            for j in range(answer):
                server.send(j)
        server.tick(1.0)
        assert server.now - began < (2 * clients + 1) * (DEADLINES.round + 1)
    said = str(server.coordinator.failure)
    assert said.startswith("no answer to request 1 from: c")
    assert said.endswith(AGAIN)
    assert {f"c{j}" for j in range(clients) if f"c{j}" in said} == {f"c{j}" for j in range(answer, clients)}


def test_a_client_that_comes_and_goes_is_not_replaced_for_ever() -> None:
    """Two that are lost whenever they are asked, and are back when the other is."""
    server = Server(4, (3, 4, 0, 5), dropouts=1)
    server.begin_rounds()
    began = server.now
    while server.coordinator.phase is Phase.ROUNDS:
        lost = [j for j in (2, 3) if j in server.responders()]
        server.follow(*({2, 3} - set(lost)))
        for j in (0, 1):
            if f"c{j}" in server.seen.missing:
                server.send(j)
        server.lose(*lost)
        server.tick(6.0)
        assert server.now - began < 20 * DEADLINES.round
    assert "c2" in str(server.coordinator.failure)
    assert "c3" in str(server.coordinator.failure)


def test_status_names_whom_the_job_cannot_go_on_without(server: Server) -> None:
    server.join(0, 1)
    assert server.seen.waits_for == ("c2", "c3")
    server.join(2, 3, agree=False)
    server.agree(0, 1, 3)
    assert server.seen.waits_for == ("c2",)
    server.agree(2)
    server.follow(0, 1, 2, 3)
    for j in range(4):
        server.report(j, server.held(j))
    assert server.seen.waits_for == ("c0", "c1", "c2", "c3"), "everybody has a part in the check of all shares"
    server.check_shares()
    assert server.seen.missing
    assert server.seen.waits_for == (), "a round that is asked can do without some"


def test_below_r_everybody_hears_whom_the_round_waits_for() -> None:
    server = Server(3, (3, 4, 5))
    server.begin_rounds()
    cursor = Cursor()
    server.news("c0", cursor)
    server.lose(1)
    server.tick(DEADLINES.lost + 0.1)
    assert server.news("c0", cursor) == [messages.Waiting(Phase.ROUNDS, ("c1",))]
    assert server.news("c0", cursor) == [], "once"


def test_held_must_be_of_this_session_and_comes_after_joining(server: Server) -> None:
    server.join(0)
    with (
        unchanged(server.coordinator),
        pytest.raises(OutOfTurn, match=r"too early or too late.*phase joining"),
    ):
        server.report(0, server.held(0))
    server.join(1, 2, 3)
    server.follow(0)
    with unchanged(server.coordinator), pytest.raises(Malformed, match="are not those of this job"):
        server.report(0, messages.Held(bytes(32), 0, 0, 0.0))
    server.report(0, server.held(0))
    server.report(0, server.held(0))
    assert server.seen.missing == ("c1", "c2", "c3")


def test_done_is_told_after_the_end() -> None:
    server = Server(3, (3, 4, 5))
    server.begin_rounds()
    with (
        unchanged(server.coordinator),
        pytest.raises(OutOfTurn, match=r"too early or too late.*phase rounds"),
    ):
        server.report(0, messages.Done())
    server.finish()
    assert server.seen.missing == ("c0", "c1", "c2")
    server.report(1, messages.Done())
    assert server.seen.missing == ("c0", "c2")


# --- the end is final -------------------------------------------------------------------------------------------------------


def ending(server: Server) -> object:
    c = server.coordinator
    return c.phase, c.failure, c.phase_seconds, everything(server.seen.outcome), server.seen.records


def test_nothing_moves_a_finished_job() -> None:
    server = Server(3, (3, 4, 5))
    server.begin_rounds()
    server.finish()
    before = ending(server)
    server.give(CalledOff(JobFailed("too late")))
    server.lose(0, 1, 2)
    server.tick(1e9)
    server.join(0)
    server.follow(0)
    server.report(0, server.held(0))
    server.report(0, messages.Stopped("bye"))
    assert server.take_work() is None
    assert ending(server) == before
    told = server.news("c0")
    kinds = [messages.Roster, messages.Agreements, messages.Reveals, messages.Piece, messages.Finished]
    assert [type(event) for event in told] == kinds


def test_nothing_moves_a_failed_job() -> None:
    server = Server(3, (3, 4, 5))
    server.begin_rounds()
    server.give(CalledOff(JobFailed("stopped")))
    before = ending(server)
    server.give(CalledOff(JobFailed("another reason")))
    server.lose(0, 1)
    server.tick(1e9)
    with pytest.raises(JobFailed, match="stopped"):
        server.join(0)
    server.follow(0)
    with pytest.raises(OutOfTurn):
        server.send(0)
    assert server.take_work() is None
    assert ending(server) == before
    assert server.news("c0") == [messages.Failed("stopped")]


def test_a_job_that_fails_while_it_decodes_stays_failed() -> None:
    """As when the server is stopped by a signal during the last round."""
    server = Server(3, (3, 4, 5), max_rounds=1, seeding="random")
    server.begin_rounds()
    for j in server.responders():
        server.send(j)
    work = server.take_work()
    assert work is not None
    server.give(CalledOff(JobFailed("the server was stopped")))
    server.complete(work)
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
    assert server.news("c0", cursor) == [messages.Waiting(Phase.JOINING, ("c1", "c2", "c3"))]
    assert server.news("c0", cursor) == []
    server.join(1)
    assert server.news("c0", cursor) == [messages.Waiting(Phase.JOINING, ("c2", "c3"))]
    server.join(2, 3, agree=False)
    met, waiting = server.news("c0", cursor)
    assert isinstance(met, messages.Roster)
    assert [member.name for member in met.members] == ["c0", "c1", "c2", "c3"]
    assert waiting == messages.Waiting(Phase.AGREEING, ("c0", "c1", "c2", "c3"))
    server.agree(0, 1, 2, 3)
    agreed, waiting = server.news("c0", cursor)
    assert isinstance(agreed, messages.Agreements)
    assert waiting == messages.Waiting(Phase.SHARING, ("c0", "c1", "c2", "c3"))


def assignment(events: list[messages.Event], known: Any) -> tuple[Any, int]:
    """The assignment that a follower is told, and the version it is a change of."""
    pieces = [event for event in events if isinstance(event, messages.Piece)]
    _, base = parcels.pair_of(pieces[0].parcel.name)
    assert {piece.parcel.kind for piece in pieces} == {Kind.ASSIGNMENT}
    return assignments.decode(b"".join(bytes(piece.data) for piece in pieces), 60, 2, known), base


def test_a_follower_gets_changes_and_a_new_one_the_whole() -> None:
    server = Server(3, (20, 20, 20), k=2)
    server.begin_rounds()
    cursor, bases = Cursor(), []
    labels: np.ndarray[Any, Any] | None = None
    while server.coordinator.phase is Phase.ROUNDS:
        labels, base = assignment(server.news("c0", cursor), labels)
        bases.append(base)
        assert labels.tolist() == server.attempt.question.labels.tolist()
        whole, base = assignment(server.news("c0", Cursor(roster=True, began=True)), None)
        assert base == 0
        assert whole.tolist() == labels.tolist()
        server.finish_round()
    assert any(bases), "a change was sent"


def test_a_late_question_still_leaves_a_second(server: Server) -> None:
    server.begin_rounds()
    [question] = [
        event
        for event in server.coordinator.news("c0", Cursor(roster=True), server.now + 1000.0)
        if isinstance(event, messages.RoundRequest)
    ]
    assert question.deadline_seconds == 1.0


def test_the_server_says_how_much_of_an_upload_has_arrived(server: Server) -> None:
    server.begin_rounds()
    server.send(1, words=2)
    assert [server.coordinator.progress(f"c{j}", server.upload()) for j in range(3)] == [0, 16, 0]
    with pytest.raises(OutOfTurn, match="this is not due"):
        server.coordinator.progress("c3", server.upload())


# --- result.json ------------------------------------------------------------------------------------------------------------


def test_the_result_is_described_at_any_moment(server: Server) -> None:
    assert result.describe(server.seen, 1.0)["state"] == "joining"
    server.begin_rounds()
    for j in server.responders():
        server.send(j)
    assert result.describe(server.seen, 1.0)["rounds"] == 0
    work = server.take_work()
    assert work is not None
    assert result.describe(server.seen, 1.0)["cluster_sizes"] == [1, 0, 0], "what was found before"
    server.complete(work)
    server.finish()
    told = result.describe(server.seen, 1.0)
    assert told["state"] == "finished"
    assert sum(told["cluster_sizes"]) == 12
    assert [entry["request"] for entry in told["history"]] == list(range(1, len(told["history"]) + 1))
    assert told["bytes"]["sharing_sent"] == dict.fromkeys(server.federation.roster, 10)


def test_a_responder_that_has_restarted_is_asked_once_it_holds_its_shares_again(server: Server) -> None:
    server.begin_rounds()
    j, c = server.responders()[0], server.coordinator
    server.lose(j)
    server.joined(f"c{j}", server.federation.agreed(), b"B" * 16, server.sites[j].introduction())
    server.give(Followed(f"c{j}", b"B" * 16))
    cursor = Cursor()
    assert not any(isinstance(event, messages.RoundRequest) for event in c.news(f"c{j}", cursor, server.now))
    server.give(Reported(f"c{j}", b"B" * 16, server.held(j)))
    asked = [event for event in c.news(f"c{j}", cursor, server.now) if isinstance(event, messages.RoundRequest)]
    assert [(one.number, one.attempt) for one in asked] == [server.attempt.name]
    assert j in asked[0].responders


def test_clients_do_not_hear_where_the_servers_files_are() -> None:
    """A journal that cannot be written ends the job; its place is for the server's own log."""
    server = Server()
    server.join(0, 1)
    server.give(CalledOff(ConfigError("/srv/hub/state/journal.sqlite: the journal cannot be written")))
    [failed] = server.news("c0")
    assert isinstance(failed, messages.Failed)
    with pytest.raises(JobFailed) as late:
        server.join(2)
    for heard in (failed.reason, str(late.value), status(server.seen, 0.0).reason):
        assert heard == "it has a problem with its own files; its log says which"
    assert "/srv/hub" in str(server.coordinator.failure)


# --- what is kept ---------------------------------------------------------------------------------------------------


def restarted(server: Server) -> Server:
    """Another process of the same server, with what the first one kept."""
    again = Server(len(server.sites), tuple(len(site.rows) for site in server.sites))
    again.federation, again.sites, again.now = server.federation, server.sites, server.now
    again.coordinator = Coordinator(
        server.federation,
        plan_of(server.federation),
        verifier(server.federation),
        kept=server.kept,
        deadlines=DEADLINES,
        now=server.now,
    )
    again.kept = dict(server.kept)
    again.give(Started())
    return again


def test_a_round_is_kept_with_the_answer_and_before_the_next_question_is_told(server: Server) -> None:
    server.begin_rounds()
    for j in server.responders():
        server.send(j)
    work = server.take_work()
    assert work is not None
    effects = server.give(Worked(work.name, work.run(), seconds=0.1))
    assert [one.key for one in effects.keep] == ["state/00000", "record/000000001", "leakage"]


def test_a_restarted_server_goes_on_where_it_stood_and_repeats_no_attempt() -> None:
    server = Server()
    server.give(Started())
    server.begin_rounds()
    server.finish_round()
    server.finish_round()
    number, labels = server.attempt.question.number, server.attempt.question.labels
    again = restarted(server)
    assert (again.coordinator.phase, again.seen.short) == (Phase.ROUNDS, True)
    assert [record.number for record in again.seen.records] == [1, 2]
    for j in range(4):
        again.join(j)
        again.follow(j)
        again.report(j, again.held(j))
    assert again.attempt.question.number == number
    assert again.attempt.question.labels.tolist() == labels.tolist()
    assert again.attempt.number > 1 << 15, "attempts of another process are numbered in a range of their own"
    again.finish()
    assert again.coordinator.phase is Phase.FINISHED
    assert restarted(again).coordinator.phase is Phase.FINISHED, "the end is kept as well"


def test_a_server_that_restarts_before_everybody_has_joined_begins_again() -> None:
    server = Server()
    server.give(Started())
    server.join(0, 1)
    again = restarted(server)
    assert (again.coordinator.phase, again.seen.missing) == (Phase.JOINING, ("c0", "c1", "c2", "c3"))
    assert again.kept["starts"] == b"2"
