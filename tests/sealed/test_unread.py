"""What a hostile member or server can make others hold is bounded in number and in bytes (docs/sealed.md, Section 4), and an
honest one, however far ahead it is, stays within these bounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from secfc.agreement.federation import SERVER
from secfc.errors import Malformed, SecfcError
from secfc.privacy.sealed import cost, rounds
from secfc.privacy.sealed.cost import Limit
from secfc.privacy.sealed.messages import SERVER as DEALER
from secfc.privacy.sealed.messages import Kind as Said
from secfc.privacy.sealed.messages import Message
from secfc.privacy.sealed.questions import Asked, Inertia, Lloyd, Seed
from secfc.protocol import parcels
from secfc.protocol.client.inputs import Told
from secfc.protocol.effects import Arrived
from secfc.protocol.messages import Piece
from secfc.protocol.parcels import Kind, Parcel, Whole
from secfc.protocol.rounds import sealing
from secfc.protocol.rounds.unread import Unread
from secfc.protocol.transfer import Here
from tests.sealed.committee import Committee, terms_for
from tests.sealed.test_failures import Watched

# --- honest parties stay within the bounds -------------------------------------------------------------------------------


def ahead(committee: Committee, asked: Asked, favoured: int) -> None:
    """Everything that the favoured party says arrives at once, what others say only when nothing else is left."""
    committee.attempt += 1
    context = committee.context(asked)
    referee, members = committee.halves(asked, context)
    said, dealt = cost.most_said(committee.terms, asked), cost.most_dealt(committee.terms, asked)
    names: dict[tuple[int, int], set[Any]] = {}
    post: dict[int, list[Any]] = {sender: [] for sender in (DEALER, *range(len(members)))}
    post[DEALER] += referee.feed(0, committee.sums(asked, context))
    while not (referee.done and all(half.done for half in members)):
        for j, half in enumerate(members):
            while half.room:
                post[j] += half.work()
        sender = favoured if post[favoured] else next(one for one, some in post.items() if some)
        out = post[sender].pop(0)
        names.setdefault((sender, out.to), set()).add(out.message.name)
        if out.to == DEALER:
            post[DEALER] += referee.take(sender, out.message)
        else:
            post[out.to] += members[out.to].take(out.message)
        for j, half in enumerate(members):
            assert referee.unread(j) <= said.size
            assert half.unread(DEALER) <= dealt.size
    committee.at_server, committee.at_members = referee.kept, [half.kept for half in members]
    for (sender, _), some in names.items():
        limit = dealt if sender == DEALER else said
        assert len(some) <= limit.names
        assert all(chunk < limit.chunks for chunk, *_ in some)


@pytest.mark.slow
@pytest.mark.parametrize(("clusters", "members"), [(3, 2), (10, 3)])
def test_honest_parties_are_never_too_far_ahead(members: int, clusters: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "MOST_COMPARISONS", 24 if clusters == 3 else 200)
    rows = np.random.default_rng(7).integers(-40, 41, (150, 2))
    for favoured in range(-1, members):
        committee = Committee(rows, terms_for(rows, clusters, members))
        labels = (np.arange(150) % clusters).astype(np.int32)
        every, sizes = np.ones(clusters, dtype=bool), np.bincount(labels)
        for number, asked in enumerate(
            [
                Seed(0, (3,), (5,)),
                Seed(1, (70, 9, 11), (5, 1 << 30)),
                Seed(2, (20, 33), (), finish=True),
                Lloyd(labels, sizes, tuple(range(clusters)), every, np.zeros(150, dtype=bool)),
                Lloyd(labels, sizes, tuple(range(clusters)), every, np.ones(150, dtype=bool)),
                Inertia(labels, sizes),
            ]
        ):
            committee.request = number + 1
            ahead(committee, asked, favoured)


# --- hostile ones are refused --------------------------------------------------------------------------------------------


def message(stage: int = 1, chunk: int = 0, step: int = 1, kind: Said = Said.TEST, size: int = 0) -> Message:
    return Message(kind, stage, chunk, step, np.zeros(size, dtype=np.uint8))


def refused(send: Callable[[Any], None], some: Sequence[Any], match: str) -> None:
    """Of so many, one is too many."""

    def all_of_them() -> None:
        for one in some:
            send(one)

    with pytest.raises(Malformed, match=match):
        all_of_them()


class Hostile:
    """A job in its second request, and members or a server that send what they like."""

    def __init__(self) -> None:
        self.job = Watched()
        self.name = self.job.agreed(2)
        self.world = self.job.world
        self.committee = self.job.detail(self.name).committee
        self.member = self.job.names(self.committee)[1]

    def parcel(self, name: bytes) -> Parcel:
        return Parcel(self.world.server._phase.met.session, Kind.STEP, parcels.attempt_name(*self.name) + name)  # type: ignore[union-attr]

    def to_server(self, first: Message, *more: Message) -> None:
        body = sealing.bundle_of(0, [first, *more])
        assert isinstance(body, Whole)
        parcel, total = self.parcel(sealing.message_name(0, first)), body.total
        errors: list[SecfcError | None] = []
        self.world.give(SERVER, Arrived(self.member, parcel, 0, total, bytes(body.data)), errors.append)
        if errors and errors[0] is not None:
            raise errors[0]

    def to_member(self, first: Message) -> None:
        piece = Piece(self.parcel(sealing.message_name(0, first)), 0, len(first.data), first.data.tobytes())
        machine = self.world.client(self.member)
        self.world.until(lambda: (machine._phase._exchange or [None])[0] == self.name)  # type: ignore[attr-defined]
        machine.handle(Told(piece), self.world.now)
        if machine.ended is not None and machine.ended.error is not None:
            raise machine.ended.error


def test_a_member_cannot_send_for_a_chunk_that_does_not_exist() -> None:
    hostile = Hostile()
    with pytest.raises(Malformed, match="chunk 2 of 1"):
        hostile.to_server(message(chunk=1))
    with pytest.raises(Malformed, match="chunk 9 of 1"):
        hostile.to_server(message(stage=7), message(chunk=8))


@pytest.mark.parametrize("together", [False, True])
def test_a_member_cannot_make_up_names_without_end(together: bool) -> None:
    hostile = Hostile()
    some = [message(stage, step=step) for stage in range(50, 60) for step in range(10)]
    sent = [some] if together else [[one] for one in some]
    refused(lambda part: hostile.to_server(*part), sent, "more messages about a question than there are")


def test_a_member_cannot_fill_the_servers_memory() -> None:
    hostile = Hostile()
    some = [message(stage, size=20_000) for stage in range(50, 60)]
    refused(hostile.to_server, some, "ahead of what was read|bytes are due")
    with pytest.raises(Malformed, match="bytes are due"):
        hostile.to_server(message(size=1 << 22))


def test_pieces_of_many_messages_share_one_bound() -> None:
    """Also if none of them ever comes whole."""
    box = Unread(Limit(1, 10, 1000), "somebody")
    sinks = [box.sink(bytes([one])) for one in range(10)]
    for sink in sinks:
        sink.begin(900)
    refused(lambda sink: sink.write(bytes(800)), sinks, "ahead of what was read")
    with pytest.raises(Malformed, match="more messages"):
        box.sink(b"another")


def test_what_was_read_makes_room() -> None:
    box = Unread(Limit(1, 100, 1000), "somebody")
    for one in range(50):
        sink = box.sink(bytes([one]))
        sink.begin(900)
        sink.write(bytes(900))
        assert box.pop(bytes([one])) == bytes(900)
        box.settle(100)
    box.sink(b"again", again=True)
    assert box.pop(b"unknown") is None


@pytest.mark.parametrize(
    ("some", "match"),
    [
        ([message(chunk=1, kind=Said.DIGITS)], "chunk 2 of 1"),
        ([message(stage, kind=Said.BITS) for stage in range(50, 250)], "more messages"),
        ([message(stage, kind=Said.DIGITS, size=30_000) for stage in range(50, 60)], "ahead|bytes are due"),
    ],
)
def test_a_server_cannot_flood_a_member(some: list[Message], match: str) -> None:
    refused(Hostile().to_member, some, match)


def test_nobody_keeps_what_is_about_a_question_that_is_over() -> None:
    """While seeding, a new epoch asks several questions in one request."""
    job = Watched(seeding="k-means++", k=3)
    job.agreed(3)
    attempt = job.world.server.attempt
    assert attempt is not None
    exchange: Any = attempt.exchange._exchanges[0]
    exchange._asked, exchange._place = exchange._asked * 2, 1
    client = job.detail(attempt.name).committee[0]
    name = sealing.message_name(0, message(stage=40))
    assert isinstance(exchange.sink(client, name), Here)
    exchange._inbox = [(0, 0, message(stage=40)), (0, 1, message(stage=41))]
    exchange._settle()
    assert [place for _, place, _ in exchange._inbox] == [1]


def test_junk_does_not_buy_time() -> None:
    """A member that sends what nobody can use is replaced as soon as one that sends nothing."""
    hostile = Hostile()
    job, world = hostile.job, hostile.world
    world.parties[hostile.member].frozen_until = world.now + 5000.0
    stages = iter(range(50, 400))

    def junk() -> None:
        if world.server.attempt is not None and world.server.attempt.name == hostile.name:
            hostile.to_server(message(next(stages)))
            world.after(5.0, junk)

    junk()
    world.until(lambda: job.asked(2) > hostile.name, seconds=120.0)
    assert world.scene.federation.roster.index(hostile.member) not in job.detail(job.asked(2)).committee
    assert world.parties[SERVER].alive
