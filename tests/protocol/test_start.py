"""The start's coins: nobody alone chooses where a clustering begins, and a server that does is refused."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from secfc.agreement.federation import Federation
from secfc.errors import OutOfTurn, WrongSender
from secfc.kmeans.coins import Coins
from secfc.kmeans.distances import Labels
from secfc.kmeans.lloyd import Clustering
from secfc.protocol import messages, start
from secfc.protocol.messages import Phase
from secfc.protocol.parcels import Kind
from secfc.protocol.server.inputs import Reported
from secfc.protocol.server.news import Cursor
from tests.parties import deal, make_federation, unchanged
from tests.protocol.helpers import Client, assignment, exchange, introduced, refused, reveals, roster, strangers
from tests.simulation.scene import Scene
from tests.simulation.world import World

SEEDINGS = ("random", "k-means++", "separation")
SIZES = [3, 4, 5]
ROWS = deal(1, SIZES)


def ready(seeding: str = "random", **changes: Any) -> tuple[Federation, list[Client]]:
    """Clients that have revealed their coins and wait for everybody's, and for the first assignment."""
    agreed = make_federation(3, seeding=seeding, **changes)
    clients = introduced(agreed, ROWS)
    exchange(clients)
    return agreed, clients


def tossed(clients: list[Client]) -> Coins:
    return start.tossed(clients[0].machine.session, roster(clients).members, reveals(clients).coins)


def first(agreed: Federation, coins: Coins) -> Labels:
    return Clustering(sum(SIZES), agreed.job.k, start=agreed.job.seeding, coins=coins).labels


# --- the coins --------------------------------------------------------------------------------------------------------


def test_the_seed_depends_on_every_coin_and_on_the_session() -> None:
    _, clients = ready()
    session, coins = clients[0].machine.session, reveals(clients).coins
    seeds = {tossed(clients).seed}
    for j in range(3):
        other = bytes(32)
        members = list(roster(clients).members)
        members[j] = dataclasses.replace(members[j], commitment=start.commitment(members[j].name, other))
        seeds.add(start.tossed(session, members, [*coins[:j], other, *coins[j + 1 :]]).seed)
    seeds.add(start.tossed(bytes(32), roster(clients).members, coins).seed)
    assert len(seeds) == 5


def test_a_commitment_cannot_be_copied_by_another_client() -> None:
    """Else a client could wait for another's coin and show it as its own."""
    assert start.commitment("a", bytes(32)) != start.commitment("b", bytes(32))


def test_a_commitment_is_part_of_what_is_signed_and_of_the_session() -> None:
    agreed = make_federation(3)
    clients = strangers(agreed, ROWS)
    members = list(roster(clients).members)
    before = messages.session(agreed.agreed(), members)
    members[1] = dataclasses.replace(members[1], commitment=bytes(32))
    assert messages.session(agreed.agreed(), members) != before
    refused(clients[0], messages.Roster(tuple(members)), WrongSender, "c1 is not signed by it")


def test_no_coin_is_revealed_before_all_shares_are_here() -> None:
    """Shares carry the session, so by then every other client has seen the same commitments."""
    clients = introduced(make_federation(3), ROWS)
    exchange(clients, lambda send: send.to != "c0" or send.message.kind is not Kind.SHARES)
    held = {client.name: any(isinstance(send.message, messages.Held) for send in client.told) for client in clients}
    assert held == {"c0": False, "c1": True, "c2": True}
    assert "revealed" not in clients[0].disk
    exchange(clients)
    assert clients[0].report(messages.Held).coin == clients[0].secrets.coin
    assert clients[0].disk["revealed"] == clients[0].machine.session, "noted before it leaves"


def test_a_coin_serves_in_one_session_only() -> None:
    """Else a server and a client could learn the others' coins in one job, and choose theirs by them for the next."""
    agreed, clients = ready()
    met = roster(clients)
    again = clients[0].restarted()
    again.tell(met)
    assert again.phase is Phase.AGREEING
    elsewhere = roster([clients[0], *strangers(agreed, ROWS, seed=7)[1:]])
    refused(clients[0].restarted(), elsewhere, WrongSender, "our coin was revealed in another job")


# --- what a client refuses --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seeding", SEEDINGS)
def test_an_honest_start_is_taken(seeding: str) -> None:
    agreed, clients = ready(seeding)
    for client in clients:
        client.tell(reveals(clients), reveals(clients))  # as after a lost connection
        client.tell(assignment(client, 1, first(agreed, tossed(clients))))
        assert client.error is None


@pytest.mark.parametrize("seeding", SEEDINGS)
@pytest.mark.parametrize("version", [1, 2, 9])
def test_a_server_that_skips_the_starts_coins(seeding: str, version: int) -> None:
    agreed, clients = ready(seeding)
    fair = assignment(clients[0], version, first(agreed, tossed(clients)))
    refused(clients[0], fair, WrongSender, "the server skips the start's coins")


@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_server_that_alters_a_coin(at: int) -> None:
    _, clients = ready()
    coins = list(reveals(clients).coins)
    coins[at] = bytes(32)
    words = f"the coin shown for c{at} is not the one it committed to"
    for client in clients:
        refused(client, messages.Reveals(tuple(coins)), WrongSender, words)


def test_a_server_that_leaves_out_or_mixes_up_coins() -> None:
    _, clients = ready()
    coins, me = reveals(clients).coins, clients[0]
    refused(me, messages.Reveals(coins[:2]), WrongSender, "coins of 3 clients are due for the start, not of 2")
    refused(me, messages.Reveals(()), WrongSender, "not of 0")
    refused(me, messages.Reveals((coins[1], coins[0], coins[2])), WrongSender, "the coin shown for c0")


@pytest.mark.parametrize("seeding", SEEDINGS)
@pytest.mark.parametrize("version", [0, 1])
def test_another_first_assignment(seeding: str, version: int) -> None:
    agreed, clients = ready(seeding)
    fair = first(agreed, tossed(clients))
    other = np.roll(fair, 1)
    assert not np.array_equal(fair, other)
    clients[1].tell(reveals(clients))
    lie = assignment(clients[1], version, other)
    refused(clients[1], lie, WrongSender, "does not begin where the clients' coins say")


@pytest.mark.parametrize("seeding", ["k-means++", "separation"])
def test_later_rows_of_kmeanspp_must_go_on_from_the_first(seeding: str) -> None:
    agreed, clients = ready(seeding)
    row = int(np.flatnonzero(first(agreed, tossed(clients)) == 0)[0])
    client = clients[2]
    client.tell(reveals(clients))
    second = np.full(sum(SIZES), -1, dtype=np.int32)
    second[(row + 1) % 12], second[(row + 2) % 12] = 0, 1
    refused(client, assignment(client, 2, second), WrongSender, "does not begin where the clients' coins say")
    second[:] = -1
    second[row], second[(row + 2) % 12] = 0, 1
    client.tell(assignment(client, 2, second))
    client.tell(assignment(client, 4, np.zeros(12, np.int32)))  # beyond the chosen rows nothing follows from the coins
    assert client.error is None


# --- the server -------------------------------------------------------------------------------------------------------


def world(phase: Phase, **changes: Any) -> World:
    """A job whose server is in this phase."""
    made = World(Scene(make_federation(3, **changes), tuple(ROWS)), 3)
    made.start()
    made.until(lambda: made.server.phase is phase)
    return made


@pytest.mark.parametrize("changes", [{}, {"seed": "so be it"}])
def test_a_coin_that_was_not_committed_to_is_not_taken(changes: dict[str, str]) -> None:
    job = world(Phase.SHARING, **changes)
    job.until(lambda: job.server.job.members["c0"].held is not None)
    member = job.server.job.members["c0"]
    assert member.held is not None
    for coin in (bytes(32), b"", job.coins["c1"]):
        lie = Reported("c0", member.instance, dataclasses.replace(member.held, coin=coin))
        with unchanged(job.server), pytest.raises(WrongSender, match="the coin shown for c0"):
            job.server.handle(lie, job.now)


def test_shares_are_checked_when_the_last_coin_is_there() -> None:
    job = world(Phase.SHARING)
    members = job.server.job.members.values()
    told: list[messages.Event] = []
    job.tell = lambda _, event: told.append(event) or event  # type: ignore[func-returns-value]
    job.until(lambda: job.server.phase is not Phase.SHARING)
    assert all(member.coin for member in members)
    assert not any(isinstance(event, messages.Reveals) for event in told), "no coin is shown before all are there"
    assert job.server.phase is Phase.CHECKING
    job.until(lambda: job.server.phase is Phase.ROUNDS)
    rounds = job.server._phase.asking
    assert rounds is not None
    assert rounds.runs.all[0].coins == job.server.job.tossed(job.server.job.meet())


def test_a_follower_hears_the_coins_before_the_assignment_every_time() -> None:
    job = world(Phase.ROUNDS)
    for _ in range(2):
        told = job.server.news("c0", Cursor(), job.now)
        assert [type(event) for event in told][:4] == [
            messages.Roster,
            messages.Agreements,
            messages.Reveals,
            messages.Piece,
        ]
        assert isinstance(told[3], messages.Piece)
        assert told[3].parcel.kind is Kind.ASSIGNMENT


# --- an agreed seed -----------------------------------------------------------------------------------------------------


def test_with_an_agreed_seed_coins_are_tossed_too_but_do_not_decide_the_start() -> None:
    """The factors of the check of all shares must not be known while shares are dealt; the agreed seed is."""
    agreed, clients = ready(seed="so be it")
    assert len({client.report(messages.Held).coin for client in clients}) == 3
    fair = first(agreed, Coins(b"so be it"))
    for client in clients:
        refused(client, assignment(client, 1, fair), WrongSender, "the server skips the start's coins")
        client.tell(reveals(clients))
        refused(client, assignment(client, 1, np.roll(fair, 1)), WrongSender, "does not begin where")
        client.tell(assignment(client, 1, fair))
        assert client.error is None


def test_coins_before_the_roster_are_refused() -> None:
    clients = strangers(make_federation(3), ROWS)
    refused(clients[0], reveals(clients), OutOfTurn, "the server says Reveals while the job is in phase joining")


def test_a_whole_job_from_an_agreed_seed() -> None:
    job = World(Scene(make_federation(3, seed="so be it"), tuple(ROWS)), 3)
    job.start()
    job.until(lambda: job.finished)
    rounds = job.server._phase.asking
    assert rounds is not None
    assert rounds.runs.all[0].coins == Coins(b"so be it")
    job.check_labels()
