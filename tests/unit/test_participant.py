"""A client's machine on its own: what it answers, and everything a dishonest server or client cannot get from it."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from secfc.agreement.federation import SERVER
from secfc.errors import JobFailed, Malformed, OutOfTurn, PeerError, Unavailable, WentBack, WrongSender
from secfc.kmeans import assignments
from secfc.kmeans.distances import Labels
from secfc.protocol import messages, parcels
from secfc.protocol.client.inputs import Linked, Lost, Sent, Stop, Told
from secfc.protocol.client.participant import Participant
from secfc.protocol.client.site import Secrets, Site
from secfc.protocol.effects import Arrived, Effects, Put, Send, Started, Tick, Work, Worked
from secfc.protocol.messages import Phase
from secfc.protocol.parcels import Kind, Parcel
from tests.parties import deal, digest_of, make_federation, resigned, sites, unchanged

FEDERATION = make_federation(5, max_rows=30, seeding="random")  # R = 3
ROWS = deal(5, [3, 0, 4, 2, 3])
LABELS = np.array([0, 1, 2, 0, 1, 2, 0, 1, 0, 0, 1, 2], dtype=np.int32)


class Client:
    """A participant whose work is done at once, and what it kept and sent."""

    def __init__(self, site: Site, **options: Any) -> None:
        self.site, self.machine = site, Participant(site, **options)
        self.now = 100.0
        self.kept: dict[str, bytes] = {}
        self.sent: list[Send] = []

    @property
    def name(self) -> str:
        return self.site.name

    def give(self, given: Any) -> Effects:
        effects = self.machine.handle(given, self.now)
        self.kept |= {one.key: bytes(one.value) for one in effects.keep if isinstance(one, Put)}
        self.sent += effects.send
        for work in effects.work:
            self.give(Worked(work.name, work.run() if isinstance(work, Work) else None))
        return effects

    def hear(self, *events: messages.Event) -> None:
        for event in events:
            self.give(Told(event))

    def said(self, kind: type[messages.Report]) -> list[Any]:
        """What it has reported to the server."""
        return [send.message for send in self.sent if isinstance(send.message, kind)]

    def said_joins(self) -> list[Send]:
        return [send for send in self.sent if isinstance(send.message, messages.Join)]

    def parcels(self, kind: Kind, to: str = SERVER) -> list[Send]:
        return [s for s in self.sent if isinstance(s.message, Parcel) and s.message.kind is kind and s.to == to]

    def shares(self, to: Client) -> Send:
        """Its shares for another client, which take turns on their way."""
        while not (found := self.parcels(Kind.SHARES, to.name)):
            taken = [s for s in self.sent if isinstance(s.message, Parcel) and s.message.kind is Kind.SHARES]
            for send in taken:
                self.give(Sent(send))
        return found[0]


def data_of(send: Send) -> bytes:
    assert send.body is not None
    return b"".join(bytes(data) for _, data in send.body.pieces(0))


def strangers(rows: Sequence[npt.NDArray[np.int64]] = ROWS, agreed: Any = FEDERATION) -> list[Client]:
    return [Client(site) for site in sites(agreed, rows, any_start=True)]


def roster(clients: Sequence[Client]) -> messages.Roster:
    return messages.Roster(tuple(client.site.introduction() for client in clients))


def agreements(clients: Sequence[Client]) -> list[messages.Agreements]:
    """What the server tells each of them, once all have signed."""
    given = [client.said(messages.Agreed)[0] for client in clients]
    signatures = tuple(one.signature for one in given)
    return [messages.Agreements(signatures, tuple(one.proofs[j] for one in given)) for j in range(len(given))]


def reveals(clients: Sequence[Client]) -> messages.Reveals:
    return messages.Reveals(tuple(client.site.secrets.coin for client in clients))


def introduced(agreed: Any = FEDERATION) -> list[Client]:
    """Clients that have agreed on the session, hold no shares yet, and know everybody's coin."""
    clients = strangers(agreed=agreed)
    met = roster(clients)
    for client in clients:
        client.hear(met)
    for client, event in zip(clients, agreements(clients), strict=True):
        client.hear(event, reveals(clients))
    return clients


def meet(agreed: Any = FEDERATION) -> list[Client]:
    """Clients that hold everybody's shares and wait for the first round, whichever its number."""
    clients = introduced(agreed)
    for owner in clients:
        for other in clients:
            if other is not owner:
                give(owner, other)
    for client in clients:
        assert client.machine.phase is Phase.ROUNDS
        vars(client.site.guard)["_check_first"] = lambda request: None
    assert len({client.said(messages.Held)[0].share_sets_digest for client in clients}) == 1
    return clients


def give(owner: Client, to: Client, first: int = 0, end: int | None = None, **changes: Any) -> int:
    """A part of the owner's shares, from word to word; returns how many words are here then."""
    send = owner.shares(to)
    data = data_of(send)
    parcel = dataclasses.replace(
        send.message, **{key: value for key, value in changes.items() if key in ("session", "name")}
    )
    piece = changes.get("data", data[8 * first : None if end is None else 8 * end])
    to.give(Arrived(changes.get("sender", owner.name), parcel, 8 * first, changes.get("total", len(data)), piece))
    return to.machine.progress(owner.name, send.message) // 8


@pytest.fixture
def newcomers() -> list[Client]:
    return strangers()


@pytest.fixture
def sharers() -> list[Client]:
    return introduced()


@pytest.fixture
def me() -> Client:
    """c2, ready for rounds."""
    return meet()[2]


def refused(client: Client, event: messages.Event, error: type[PeerError], words: str) -> None:
    """What no honest server says ends the client: it says why, nothing else leaves, and nothing of it is kept."""
    before, kept = len(client.sent), dict(client.kept)
    client.hear(event)
    assert client.machine.ended is not None
    failure = client.machine.ended.error
    assert type(failure) is error
    assert re.search(words, str(failure)), str(failure)
    assert [type(send.message) for send in client.sent[before:]] in ([messages.Stopped], [messages.Refused])
    assert client.kept == kept


def piece(labels: Labels, version: int = 1) -> messages.Piece:
    return part(assignments.encode(labels, FEDERATION.job.k), version)


def part(data: bytes, version: int = 1, base: int = 0, first: int = 0, end: int | None = None) -> messages.Piece:
    """Of an assignment; the session is filled in by `tell`."""
    parcel = Parcel(bytes(32), Kind.ASSIGNMENT, parcels.pair_name(version, base))
    return messages.Piece(parcel, first, len(data), data[first:end])


def tell(client: Client, *pieces: messages.Piece) -> None:
    for one in pieces:
        client.hear(of_session(client, one))


def of_session(client: Client, one: messages.Piece) -> messages.Piece:
    return dataclasses.replace(one, parcel=dataclasses.replace(one.parcel, session=client.machine.session))


def request(labels: Labels = LABELS, **changes: Any) -> messages.RoundRequest:
    asked = messages.RoundRequest(1, 1, (0, 2, 4), (0, 1, 2), digest_of(labels), 60.0)
    return dataclasses.replace(asked, **changes)


def ask(client: Client, labels: Labels = LABELS, **changes: Any) -> bytes | None:
    """The upload that an honest request brings."""
    tell(client, piece(labels, changes.get("number", 1)))
    before = len(client.parcels(Kind.UPLOAD))
    client.hear(request(labels, **changes))
    assert client.machine.ended is None, client.machine.ended.error
    made = client.parcels(Kind.UPLOAD)[before:]
    return data_of(made[0]) if made else None


# --- the roster -------------------------------------------------------------------------------------------------------


def changed(members: Sequence[messages.Introduction], at: int, **changes: Any) -> messages.Roster:
    """A roster in which one introduction, properly signed by its owner, says something else."""
    out = list(members)
    out[at] = resigned(out[at], FEDERATION, **changes)
    return messages.Roster(tuple(out))


def test_an_honest_roster_is_taken_once_and_may_be_repeated(newcomers: list[Client]) -> None:
    met = roster(newcomers)
    for client in newcomers:
        client.hear(met)
        assert client.machine.phase is Phase.AGREEING
        with unchanged(client.machine):
            client.hear(met)
    assert {client.machine.session for client in newcomers} == {messages.session(FEDERATION.agreed(), met.members)}


@pytest.mark.parametrize("order", [(1, 0, 2, 3, 4), (0, 1, 2, 3), (0, 1, 2, 3, 4, 4), (0, 0, 2, 3, 4), ()])
def test_other_names_or_another_order(newcomers: list[Client], order: tuple[int, ...]) -> None:
    members = roster(newcomers).members
    wrong = messages.Roster(tuple(members[j] for j in order))
    refused(newcomers[2], wrong, WrongSender, r"not that of federation\.toml")


@pytest.mark.parametrize(
    "change", [{"share_set": bytes(16)}, {"x25519": b"\7" * 32}, {"nonce": bytes(32)}, {"commitment": bytes(32)}]
)
def test_an_introduction_of_ours_that_we_did_not_make(newcomers: list[Client], change: dict[str, bytes]) -> None:
    wrong = changed(roster(newcomers).members, 2, **change)
    refused(newcomers[2], wrong, WrongSender, "an introduction of ours that we did not make")


@pytest.mark.parametrize("at", [0, 2, 4])
@pytest.mark.parametrize("change", [{"rows": 1}, {"signature": b""}, {"signature": bytes(32)}, {"nonce": b"\1" * 32}])
def test_an_introduction_that_is_not_signed(newcomers: list[Client], at: int, change: dict[str, Any]) -> None:
    members = list(roster(newcomers).members)
    members[at] = dataclasses.replace(members[at], **change)
    words = "that we did not make" if at == 2 and "nonce" in change else "not signed by it"
    refused(newcomers[2], messages.Roster(tuple(members)), WrongSender, words)


@pytest.mark.parametrize("other", [0, 2])
def test_two_clients_with_one_key(newcomers: list[Client], other: int) -> None:
    members = roster(newcomers).members
    refused(newcomers[2], changed(members, 3, x25519=members[other].x25519), WrongSender, "the same X25519 key")


LOW_ORDER = [
    bytes(32),
    (1).to_bytes(32, "little"),
    (2**255 - 20).to_bytes(32, "little"),
    bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
]


@pytest.mark.parametrize("point", LOW_ORDER)
def test_a_key_of_low_order(newcomers: list[Client], point: bytes) -> None:
    wrong = changed(roster(newcomers).members, 4, x25519=point)
    refused(newcomers[2], wrong, WrongSender, "X25519 public key of c4 is not valid")
    assert newcomers[2].said(messages.Agreed) == []


@pytest.mark.parametrize(("rows", "total"), [(31, 40), (1 << 31, (1 << 31) + 9)])
def test_more_rows_than_allowed(newcomers: list[Client], rows: int, total: int) -> None:
    wrong = changed(roster(newcomers).members, 4, rows=rows)
    refused(newcomers[2], wrong, Malformed, f"{total} rows in all, beyond what the job allows")


def test_fewer_rows_than_clusters() -> None:
    clients = strangers(deal(5, [1, 0, 1, 0, 0]))
    refused(clients[2], roster(clients), Malformed, "2 rows in all, beyond what")


@pytest.mark.parametrize("ready", [False, True])
@pytest.mark.parametrize("empty", [False, True])
def test_a_second_roster(ready: bool, empty: bool) -> None:
    clients = meet() if ready else introduced()
    wrong = messages.Roster(()) if empty else changed(roster(clients).members, 0, nonce=bytes(32))
    refused(clients[2], wrong, WrongSender, "shows another roster than before")


# --- shares -------------------------------------------------------------------------------------------------------------


def test_shares_come_in_pieces_and_may_be_repeated_when_they_are_complete(sharers: list[Client]) -> None:
    owner, to = sharers[0], sharers[2]
    send = owner.shares(to)
    total = len(data_of(send)) // 8
    assert to.machine.progress("c0", send.message) == 0
    assert give(owner, to, 0, 2) == 2
    assert "shares/c0" not in {key.rpartition("/")[0] for key in to.kept}, "not complete: nothing is kept"
    assert give(owner, to, 2) == total
    assert "shares/c0" in {key.rpartition("/")[0] for key in to.kept}
    with unchanged(to.machine):
        assert give(owner, to) == total
    assert "c0" not in to.machine._phase.missing()


def test_shares_are_kept_before_they_are_used(sharers: list[Client]) -> None:
    owner, to = sharers[0], sharers[2]
    send = owner.shares(to)
    data = data_of(send)
    effects = to.machine.handle(Arrived("c0", send.message, 0, len(data), data), to.now)
    assert [bytes(one.value) for one in effects.keep if isinstance(one, Put)] == [data]
    assert [work.name[0] for work in effects.work] == ["used"]


def test_shares_that_are_not_due(sharers: list[Client]) -> None:
    owner, to = sharers[0], sharers[2]
    give(owner, to, 0, 2)
    sharers[3].shares(to)
    total = len(data_of(owner.shares(to)))
    cases: list[tuple[dict[str, Any], type[PeerError], str]] = [
        ({"session": bytes(32)}, OutOfTurn, "another job"),
        ({"session": b""}, OutOfTurn, "another job"),
        ({"name": sharers[3].site.share_set.id}, OutOfTurn, "another step of the job"),
        ({"name": b""}, OutOfTurn, "another step of the job"),
        ({"sender": "c2"}, WrongSender, "only the other clients"),
        ({"sender": "mallory"}, WrongSender, "only the other clients"),
        ({"sender": "c3"}, OutOfTurn, "another step of the job"),
        ({"total": total + 8}, Malformed, f"{total} bytes are due, not {total + 8}"),
        ({"total": 1 << 63}, Malformed, f"{total} bytes are due"),
        ({"first": 3}, Malformed, "from offset 16 are due, not from 24"),
        ({"data": bytes(total)}, Malformed, "reaches beyond its total"),
        ({"data": bytes(9)}, Malformed, "ends within one"),
        ({"data": (0x1FFFFF).to_bytes(8, "little")}, Malformed, "not below its prime"),
        ({"data": (1 << 63).to_bytes(8, "little")}, Malformed, "not below its prime"),
    ]
    for changes, error, words in cases:
        with unchanged(to.machine), pytest.raises(error, match=words) as caught:
            give(owner, to, **({"first": 2} | changes))
        assert caught.type is error
    assert give(owner, to, 2) == total // 8


def test_shares_before_the_roster(newcomers: list[Client], sharers: list[Client]) -> None:
    with unchanged(newcomers[2].machine), pytest.raises(OutOfTurn, match="the session is not agreed on here yet"):
        give(sharers[0], newcomers[2])
    with unchanged(newcomers[2].machine), pytest.raises(OutOfTurn, match="the session is not agreed on here yet"):
        newcomers[2].machine.progress("c0", sharers[0].shares(newcomers[2]).message)


@pytest.mark.parametrize("event", [request(), messages.Finished(1, 1, True, 0.0)])
def test_nothing_refers_to_an_assignment_that_was_not_sent(sharers: list[Client], event: messages.Event) -> None:
    refused(sharers[2], event, OutOfTurn, "an assignment it did not send")


def test_rounds_wait_for_all_shares(sharers: list[Client]) -> None:
    assert sharers[2].machine._phase.missing() == ("c0", "c1", "c3", "c4")
    assert sharers[2].said(messages.Held) == []
    tell(sharers[2], piece(LABELS))
    refused(sharers[2], request(), OutOfTurn, "before all shares have arrived")


def test_a_client_that_comes_back_after_the_end_needs_no_shares_for_its_labels(sharers: list[Client]) -> None:
    final = np.maximum(LABELS, 0)
    tell(sharers[2], piece(final))
    sharers[2].hear(messages.Finished(1, 1, True, 0.0))
    first = len(ROWS[0]) + len(ROWS[1])
    assert own_labels(sharers[2]) == final[first : first + len(ROWS[2])].tolist()


def test_empty_pieces_of_an_assignment_take_no_memory(me: Client) -> None:
    tell(me, part(b"data", 1, 0, 0, 0))
    with unchanged(me.machine):
        tell(me, *[part(b"data", 1, 0, 0, 0)] * 1000)


def test_a_restarted_client_makes_the_same_shares_again() -> None:
    first, again = introduced()[0], introduced()[0]
    assert first.site.share_set.id == again.site.share_set.id
    assert first.site.introduction() == again.site.introduction()
    others = introduced()[1:]
    assert all(data_of(first.shares(other)) == data_of(again.shares(other)) for other in others)


def test_a_client_that_has_lost_our_shares_gets_them_once_more(me: Client) -> None:
    wanted = Parcel(me.machine.session, Kind.WANTED, me.site.share_set.id)
    first = me.parcels(Kind.SHARES, "c0")[0]
    for send in [send for send in me.sent if isinstance(send.message, Parcel)]:
        me.give(Sent(send))
    before = len(me.sent)
    me.give(Arrived("c0", wanted, 0, 0, b""))
    assert [data_of(send) for send in me.sent[before:]] == [data_of(first)]
    other = dataclasses.replace(wanted, name=bytes(16))
    with unchanged(me.machine), pytest.raises(OutOfTurn):
        me.give(Arrived("c0", other, 0, 0, b""))


# --- assignments ----------------------------------------------------------------------------------------------------------


def test_an_assignment_in_pieces(me: Client) -> None:
    data = assignments.encode(LABELS, 3)
    tell(me, *(part(data, first=at, end=at + 1) for at in range(len(data))))
    me.hear(request())
    assert len(me.parcels(Kind.UPLOAD)) == 1


def test_an_assignment_that_starts_again(me: Client) -> None:
    """As after a lost connection, in the middle of one."""
    data = assignments.encode(LABELS, 3)
    tell(me, part(data, end=2), *(part(data, first=at, end=at + 1) for at in range(len(data))))
    me.hear(request())
    assert len(me.parcels(Kind.UPLOAD)) == 1


def test_only_the_last_assignment_is_kept(me: Client) -> None:
    """Memory is flat over rounds."""
    tell(me, *(piece(LABELS, version) for version in range(1, 20)))
    refused(me, request(number=18), OutOfTurn, "an assignment it did not send")


DATA = assignments.encode(LABELS, 3)
LONGEST = assignments.largest(len(LABELS), 3)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (part(DATA, first=3), "from offset 2 are due, not from 3"),
        (dataclasses.replace(part(DATA, first=2), total=len(DATA) + 1), "bytes are due, and of one total"),
        (part(DATA, version=2, first=2), "from offset 0 are due, not from 2"),
        (dataclasses.replace(part(DATA), total=LONGEST + 1), f"at most {LONGEST} bytes are due"),
        (dataclasses.replace(part(DATA, end=2), total=1 << 63), f"at most {LONGEST} bytes are due"),
        (dataclasses.replace(part(DATA, first=2), data=DATA), "reaches beyond its total"),
    ],
)
def test_pieces_out_of_order_or_too_long(me: Client, wrong: messages.Piece, words: str) -> None:
    tell(me, part(DATA, end=2))
    refused(me, of_session(me, wrong), Malformed, words)


@pytest.mark.parametrize("known", [False, True])
def test_a_change_of_an_assignment_we_do_not_hold(me: Client, known: bool) -> None:
    if known:
        tell(me, piece(np.zeros(12, dtype=np.int32)))
    data = bytes([1, 1, 0, 0, 0, 0, 2])  # row 0 goes to cluster 1
    words = "neither whole nor a change of one we hold"
    refused(me, of_session(me, part(data, 3 if known else 2, 2 if known else 1)), Malformed, words)


def test_a_change_of_the_assignment_we_hold(me: Client) -> None:
    tell(me, piece(np.zeros(12, dtype=np.int32)))
    tell(me, part(bytes([1, 1, 0, 0, 0, 0, 2]), 2, 1))
    changed_labels = np.array([1] + [0] * 11, dtype=np.int32)
    me.hear(request(changed_labels, number=2, columns=(0, 1)))
    assert len(me.parcels(Kind.UPLOAD)) == 1


@pytest.mark.parametrize("number", [1, 2])
def test_a_request_for_an_assignment_that_was_not_sent(me: Client, number: int) -> None:
    if number == 2:
        tell(me, piece(LABELS))
    refused(me, request(number=number), OutOfTurn, "an assignment it did not send")


def test_a_request_for_another_assignment(me: Client) -> None:
    tell(me, piece(LABELS))
    other = LABELS.copy()
    other[0] = 1
    refused(me, request(assignment_digest=digest_of(other)), Malformed, "not the one the request speaks of")


# --- requests -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("responders", "error"),
    [
        ((0, 2), WrongSender),
        ((0, 1, 2, 4), WrongSender),
        ((), WrongSender),
        ((0, 2, 2), WrongSender),
        ((2, 2, 2), WrongSender),
        ((0, 2, 5), WrongSender),
        ((0, 2, 1 << 31), WrongSender),
        ((-1, 0, 2), WrongSender),
        ((2, 0, 4), Malformed),
        ((4, 2, 0), Malformed),
    ],
)
def test_a_wrong_responder_set(me: Client, responders: tuple[int, ...], error: type[PeerError]) -> None:
    """A client refuses a responder set that is not exactly R distinct names of the roster."""
    tell(me, piece(LABELS))
    words = "names a wrong responder set" if error is WrongSender else "roster order"
    refused(me, request(responders=responders), error, words)


def test_who_is_not_asked_does_not_answer_but_counts_it(me: Client) -> None:
    assert ask(me, responders=(0, 1, 3)) is None
    assert me.machine.ended is None
    assert {"given", "tally"} <= set(me.kept)


@pytest.mark.parametrize(("number", "attempt"), [(2, 1), (3, 1)])
def test_going_back_to_an_earlier_round(me: Client, number: int, attempt: int) -> None:
    assert ask(me, number=3, attempt=2) is not None
    tell(me, piece(LABELS, version=number))
    refused(me, request(number=number, attempt=attempt), WentBack, "goes back to an earlier request")
    assert me.said(messages.Refused), "the server must not go on without us"


@pytest.mark.parametrize("columns", [(3,), (0, 0), (0, 1 << 31), (-1,), (2,)])
def test_impossible_columns(me: Client, columns: tuple[int, ...]) -> None:
    """Out of range, twice, or of a cluster without rows."""
    labels = np.where(LABELS == 2, 0, LABELS).astype(np.int32)
    tell(me, piece(labels))
    refused(me, request(labels, columns=columns), Malformed, "impossible columns")


# --- answers --------------------------------------------------------------------------------------------------------------


def test_the_same_request_gives_the_same_bytes(me: Client) -> None:
    first = ask(me)
    me.give(Sent(me.parcels(Kind.UPLOAD)[-1]))
    again = ask(me, deadline_seconds=1.0)
    assert first == again is not None
    assert first == ask(meet()[2]), "a restarted client gives the same bytes, too"


@pytest.mark.parametrize(
    "changes", [{"attempt": 2}, {"number": 2}, {"responders": (1, 2, 4)}, {"columns": (0, 1)}, {"columns": (1, 2)}]
)
def test_another_request_gives_other_masks(me: Client, changes: dict[str, Any]) -> None:
    first, second = ask(me), ask(meet()[2], **changes)
    assert first is not None
    assert second is not None
    one, other = (np.frombuffer(data, "<u8") for data in (first, second))
    same = min(len(one), len(other))
    assert (one[:same] != other[:same]).mean() > 0.9


def test_open_answers_do_not_depend_on_the_attempt() -> None:
    me = meet(make_federation(5, max_rows=30, uploads="open", seeding="random"))[2]
    first, second = ask(me), ask(me, attempt=2)
    assert first == second is not None


def test_no_columns_is_an_empty_answer(me: Client) -> None:
    assert ask(me, columns=()) == b""


def test_what_a_request_gives_away_is_kept_before_the_answer_leaves(me: Client) -> None:
    tell(me, piece(LABELS))
    count, answer = me.machine.handle(Told(request()), me.now).work
    assert isinstance(count, Work)
    assert isinstance(answer, Work)
    made = me.machine.handle(Worked(answer.name, answer.run()), me.now)
    assert not made.send, "an answer waits until it is counted"
    effects = me.machine.handle(Worked(count.name, count.run()), me.now)
    assert [one.key for one in effects.keep] == ["tally", "given"]
    assert [send.message.kind for send in effects.send] == [Kind.UPLOAD]


def test_an_answer_that_is_made_after_it_was_counted_leaves_at_once(me: Client) -> None:
    tell(me, piece(LABELS))
    count, answer = me.machine.handle(Told(request()), me.now).work
    assert isinstance(count, Work)
    assert isinstance(answer, Work)
    assert not me.machine.handle(Worked(count.name, count.run()), me.now).send
    effects = me.machine.handle(Worked(answer.name, answer.run()), me.now)
    assert [send.message.kind for send in effects.send] == [Kind.UPLOAD]


# --- the link to the server -----------------------------------------------------------------------------------------------


def test_a_client_joins_and_notes_that_it_did(newcomers: list[Client]) -> None:
    effects = newcomers[2].give(Started())
    assert [one.key for one in effects.keep] == ["joined"]
    [send] = effects.send
    assert isinstance(send.message, messages.Join)
    assert (send.to, send.message.begun) == (SERVER, False)


def test_a_lost_server_is_tried_again_until_patience_ends(newcomers: list[Client]) -> None:
    me = newcomers[2]
    me.give(Started())
    me.give(Linked())
    for _ in range(2000):
        me.give(Lost(Unavailable("no route")))
        if me.machine.ended is not None:
            break
        dials = len(me.said_joins())
        while len(me.said_joins()) == dials:
            me.now += 0.5
            me.give(Tick())
    assert me.machine.ended is not None
    assert str(me.machine.ended.error) == "gave up on the server after 600 s: no route"
    assert me.now - 100.0 < 620.0


def test_an_operator_may_stop_it_and_the_server_hears_why(me: Client) -> None:
    me.give(Stop("stopped by a signal"))
    assert me.machine.ended is not None
    assert [one.reason for one in me.said(messages.Stopped)] == ["stopped by a signal"]
    assert not me.machine.over(me.now)
    assert me.machine.over(me.now + 10.0)


# --- the end ----------------------------------------------------------------------------------------------------------------


def own_labels(client: Client) -> list[int]:
    """As they are written."""
    session, labels = client.kept["labels"][:32], client.kept["labels"][32:]
    assert session == client.machine.session
    return np.frombuffer(labels, "<i4").tolist()


def test_own_labels_are_those_of_our_rows() -> None:
    labels = np.array([0, 1, 2, 0, 1, 2, 2, 1, 0, 0, 1, 2], dtype=np.int32)
    found = []
    for client in meet():
        tell(client, piece(labels, 9))
        assert "labels" not in client.kept
        client.hear(messages.Finished(9, 4, True, 1.5))
        assert client.machine.phase is Phase.FINISHED
        found.append(own_labels(client))
    assert found == [[0, 1, 2], [], [0, 1, 2, 2], [1, 0], [0, 1, 2]]


@pytest.mark.parametrize(
    ("version", "error", "words"),
    [(2, OutOfTurn, "an assignment it did not send"), (1, Malformed, "leaves rows without a cluster")],
)
def test_a_final_assignment_that_leaves_rows_out(me: Client, version: int, error: type[PeerError], words: str) -> None:
    tell(me, piece(np.where(LABELS == 2, -1, LABELS).astype(np.int32)))
    refused(me, messages.Finished(version, 4, True, 1.5), error, words)
    assert "labels" not in me.kept


@pytest.mark.parametrize("last", [messages.Finished(1, 4, True, 1.5), messages.Failed("no")])
def test_nothing_is_taken_after_the_end(me: Client, last: messages.Event) -> None:
    tell(me, piece(np.abs(LABELS)))
    me.hear(last)
    others: list[messages.Event] = [
        messages.Roster(()),
        messages.Finished(5, 1, False, 0.0),
        messages.Failed("another reason"),
        of_session(me, piece(LABELS, 2)),
        request(),
        messages.Waiting(Phase.ROUNDS, ()),
    ]
    phase, kept, sent, ended = me.machine.phase, dict(me.kept), len(me.sent), me.machine.ended
    me.hear(*others)
    assert (me.machine.phase, me.kept, len(me.sent), me.machine.ended) == (phase, kept, sent, ended)


def test_a_failure_is_told(newcomers: list[Client]) -> None:
    newcomers[0].hear(messages.Failed("after 600 s these have not joined: c1"))
    ended = newcomers[0].machine.ended
    assert newcomers[0].machine.phase is Phase.FAILED
    assert ended is not None
    assert isinstance(ended.error, JobFailed)
    assert str(ended.error) == "the job has failed: after 600 s these have not joined: c1"
    assert "labels" not in newcomers[0].kept


def test_secrets_are_not_printed(me: Client) -> None:
    secrets: Secrets = me.site.secrets
    assert repr(secrets) == str(secrets) == f"{secrets}" == "Secrets(…)"
    for shown in (repr(me.machine), repr(me.site), repr(vars(me.machine)), repr(me.site.share_set)):
        assert secrets.seed.hex() not in shown
        assert repr(secrets.seed) not in shown
