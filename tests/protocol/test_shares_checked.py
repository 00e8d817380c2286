"""Shares are checked before the first round, between machines: who is asked when, what is noticed, what a restart may do."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from secfc.agreement.federation import SERVER
from secfc.coding.field import Words
from secfc.errors import JobFailed, OutOfTurn, Unavailable, WrongSender
from secfc.protocol import messages
from secfc.protocol.client.past import Past
from secfc.protocol.effects import Arrived, Send, Tick
from secfc.protocol.messages import Phase
from secfc.protocol.parcels import Kind, Parcel, to_words
from secfc.protocol.server.news import Cursor
from tests.parties import deal, make_federation, unchanged
from tests.protocol.helpers import Client, agreements, exchange, flipped, introduced, reveals, roster, tampered
from tests.simulation.registry import Registry
from tests.simulation.scene import Scene
from tests.simulation.world import World

SIZES = [4, 3, 2, 5, 3]


def world(chance: int = 5, sizes: list[int] | None = None, **changes: Any) -> World:
    sizes = sizes or SIZES
    return World(Scene(make_federation(len(sizes), **changes), tuple(deal(1, sizes))), chance)


def failure(job: World) -> str:
    job.start()
    job.until(lambda: job.server.phase is Phase.FAILED)
    assert job.server._phase.asking is None, "no round was asked for"
    return str(job.server.failure)


def dealing_badly(job: World, owner: str = "c1", receiver: str = "c3") -> None:
    """What `owner` delivers of its rows to `receiver` is not what it should be."""

    def alter(sender: str, send: Send) -> Send:
        rows = isinstance(send.message, Parcel) and send.message.kind is Kind.SHARES
        sharing = rows and job.client(sender).phase is not Phase.UNION  # tables of IDs are left alone
        return tampered(send) if sharing and (sender, send.to) == (owner, receiver) else send

    job.alter = alter


@pytest.mark.parametrize("uploads", ["masked", "open"])
@pytest.mark.parametrize("membership", ["public", "private"])
def test_a_dealer_off_its_polynomial_ends_the_job_before_the_first_round(membership: str, uploads: str) -> None:
    job = world(3, membership=membership, uploads=uploads)
    dealing_badly(job)
    assert failure(job).startswith("the shares held by c3 do not fit those of the others: a copy is damaged, or")


def test_a_share_that_was_added_twice_ends_the_job_and_its_holder_is_named() -> None:
    """What a race in a restarted client once did, with wrong labels and no error."""
    job = world(4, membership="private")
    job.start()
    job.until(lambda: job.client("c2").phase is Phase.SHARING)
    stage = job.client("c2")._table().stage
    put = stage._put

    def doubled(owner: int, words: Words) -> None:
        for _ in range(2 if owner == 0 else 1):
            put(owner, words)

    stage._put = doubled
    assert failure(job).startswith("the shares held by c2 do not fit")


@pytest.mark.parametrize("seed", [None, "so be it"])
def test_coins_decide_the_factors_even_if_the_start_is_agreed(seed: str | None) -> None:
    """A dealer that knew them beforehand could be off its polynomial and pass."""
    job = world(3, **({} if seed is None else {"seed": seed}))
    dealing_badly(job)
    assert "the shares held by c3" in failure(job)
    tossed = job.server._phase.tossed
    assert tossed is not None
    assert tossed.seed != (seed or "").encode()


# --- restarts -------------------------------------------------------------------------------------------------------------


def flip_on_disk(job: World, holder: str, owner: str) -> None:
    disk = job.parties[holder].disk
    key = next(key for key in disk if key.startswith(f"shares/{owner}/"))
    disk[key] = flipped(to_words(disk[key])).tobytes()


def again(job: World, name: str) -> None:
    """kill -9, and the same command again."""
    job.kill(name)
    job.start(name)


def test_a_bit_that_flips_on_a_disk_is_noticed() -> None:
    """The seal of the file would notice as well; the check does not depend on it."""
    job = world()
    job.start()
    job.until(lambda: job.server.phase is Phase.SHARING and job.client("c4").phase is Phase.ROUNDS)
    job.kill("c4")
    flip_on_disk(job, "c4", "c0")
    assert "the shares held by c4 do not fit" in failure(job)


def test_a_client_whose_shares_changed_since_they_were_checked_says_so_and_sends_nothing() -> None:
    """It would also be a second plaintext under the same masks."""
    job = world(segments=2)  # nothing goes on without all five
    job.start()
    job.until(lambda: job.server.phase is Phase.ROUNDS)
    past = job.parties["c4"].disk["past"]
    assert json.loads(past)["verified"]
    job.kill("c4")
    flip_on_disk(job, "c4", "c0")
    job.registry = Registry()  # it is computed, and must not leave
    sent: list[Send] = []
    job.alter = lambda sender, send: (sent.append(send) if sender == "c4" else None) or send  # type: ignore[func-returns-value]
    job.start("c4")
    job.until(lambda: not job.parties["c4"].alive)
    assert isinstance(job.parties["c4"].error, JobFailed)
    assert "not those that were checked in this job" in str(job.parties["c4"].error)
    kinds = {send.message.kind for send in sent if isinstance(send.message, Parcel)}
    assert Kind.SUM not in kinds
    assert Kind.UPLOAD not in kinds
    assert job.parties["c4"].disk["past"] == past


@pytest.mark.parametrize("chance", range(3))
def test_a_server_that_was_told_before_it_died_does_not_ask_again(chance: int) -> None:
    job = world(chance)
    job.start()
    job.until(lambda: job.server.phase is Phase.CHECKING)
    again(job, SERVER)
    assert not job.server.job.verified
    job.until(lambda: "verified" in job.parties[SERVER].disk)
    again(job, SERVER)
    assert job.server.job.verified
    phases = [job.server.phase]
    while phases[-1] is not Phase.ROUNDS:
        job.until(lambda: job.server.phase is not phases[-1])
        phases.append(job.server.phase)
    assert phases == [Phase.SHARING, Phase.ROUNDS]
    job.until(lambda: job.finished)
    job.check_labels()


def test_a_client_gives_one_part_only_byte_for_byte_over_any_restarts() -> None:
    job = world(6)
    given: dict[str, set[bytes]] = {name: set() for name in job.scene.federation.roster}

    def alter(sender: str, send: Send) -> Send:
        if isinstance(send.message, Parcel) and send.message.kind is Kind.SUM:
            given[sender].add(bytes(send.body.data))  # type: ignore[union-attr]
        return send

    job.alter = alter
    job.start()
    job.until(lambda: job.server.phase is Phase.CHECKING and all(given.values()))
    for name in (SERVER, "c0", "c3"):
        again(job, name)
    job.until(lambda: job.finished)
    job.check_labels()
    assert [len(parts) for parts in given.values()] == [1] * 5


# --- the server -------------------------------------------------------------------------------------------------------------


def checking(**changes: Any) -> tuple[World, dict[str, Send]]:
    """A job of four whose server checks shares, and has the parts of c0 and c2; all parts."""
    job, parts = world(7, [4, 3, 2, 5], **changes), {}
    late = ("c1", "c3")

    def alter(sender: str, send: Send) -> Send:
        if not isinstance(send.message, Parcel) or send.message.kind is not Kind.SUM:
            return send
        parts[sender] = send
        return replace(send, message=replace(send.message, session=bytes(32))) if sender in late else send

    job.alter = alter
    job.start()
    job.until(lambda: len(parts) == 4 and job.server._phase.missing() == late)
    return job, parts


def test_the_server_names_whom_it_waits_for() -> None:
    job, _ = checking()
    told = job.server.news("c1", Cursor(), job.now)
    assert [type(event) for event in told] == [messages.Roster, messages.Agreements, messages.Reveals, messages.Waiting]
    assert told[-1] == messages.Waiting(Phase.CHECKING, ("c1", "c3"))
    since, limit = job.server._phase.since, job.deadlines.share
    job.server.handle(Tick(), since + limit - 0.01)
    assert job.server.failure is None, "not yet"
    job.server.handle(Tick(), since + limit + 1)
    assert isinstance(job.server.failure, Unavailable)
    text = f"after {limit + 1:.0f} s these have not given their part of the check: c1, c3"
    assert str(job.server.failure) == text + "; start the server and the clients again to go on"


def test_a_part_is_taken_once_and_only_while_shares_are_checked() -> None:
    job, parts = checking()
    due, body = parts["c1"].message, parts["c1"].body
    assert body is not None
    first = Arrived("c0", due, 0, body.total, bytes(8))
    with unchanged(job.server._phase._parts):  # type: ignore[attr-defined]
        assert not job.server.handle(first, job.now).work, "what is here already is passed over"
    other = Parcel(due.session, Kind.SUM, bytes(32))
    for sender, parcel, error in (("c1", other, OutOfTurn), ("c9", due, WrongSender)):
        with unchanged(job.server), pytest.raises(error, match=r"not due|roster"):
            job.server.handle(Arrived(sender, parcel, 0, body.total, bytes(8)), job.now)
    job.alter = lambda _, send: send
    again(job, SERVER)
    job.until(lambda: job.server.phase is Phase.ROUNDS)
    with unchanged(job.server), pytest.raises(OutOfTurn, match="not due"):
        job.server.handle(Arrived("c1", due, 0, body.total, bytes(8)), job.now)
    job.until(lambda: job.finished)
    job.check_labels()


def test_a_job_of_one_client_goes_straight_to_its_rounds() -> None:
    job = world(1, [6], privacy=0, uploads="open")
    seen: list[Phase] = []
    job.start()
    while not job.finished:
        job.until(lambda: job.finished or job.server.phase not in seen)
        seen.append(job.server.phase)
    job.check_labels()
    assert Phase.ROUNDS in seen
    assert Phase.CHECKING not in seen


# --- the client -------------------------------------------------------------------------------------------------------


def test_nothing_is_given_before_the_coins_are_known() -> None:
    clients = introduced(make_federation(5), deal(1, SIZES))
    exchange(clients)
    me = clients[0]
    assert me.phase is Phase.ROUNDS
    assert not me.parcels(Kind.SUM)
    assert not Past.restored(me.disk["past"]).verified
    me.tell(reveals(clients))
    assert len(me.parcels(Kind.SUM)) == 1
    past = Past.restored(me.disk["past"])
    assert past.verified
    assert past == me.machine._desk.past
    assert np.array_equal(to_words(me.parcels(Kind.SUM)[0].body.data), words_of(clients))  # type: ignore[union-attr]


def words_of(clients: list[Client]) -> Words:
    """What the next process of c0 gives: the same."""
    said = agreements(clients)[0]
    back = clients[0].restarted()
    back.tell(roster(clients), said, reveals(clients))
    return to_words(back.parcels(Kind.SUM)[0].body.data)  # type: ignore[union-attr]
