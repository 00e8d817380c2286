"""The start's coins: nobody alone chooses where a clustering begins, and a server that does is refused."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from secfc import assignments, events, start
from secfc.coins import Coins
from secfc.config import Federation
from secfc.distances import Labels
from secfc.errors import OutOfTurn, WrongSender
from secfc.lloyd import Clustering
from secfc_client.participant import Participant
from secfc_server.coordinator import Cursor, Phase
from tests.protocol.joined import Joined, deal, introduced, make_federation, meet, roster, strangers, unchanged
from tests.unit.test_coordinator import Server

SEEDINGS = ("random", "k-means++", "separation")
SIZES = [3, 4, 5]


def ready(seeding: str = "random", **changes: Any) -> tuple[Federation, list[Participant]]:
    """Clients that have revealed their coins and wait for the first assignment."""
    agreed = make_federation(3, seeding=seeding, **changes)
    return agreed, meet(agreed, deal(1, SIZES), any_start=False)


def reveals(machines: list[Participant]) -> events.Reveals:
    return events.Reveals(tuple(machine._secrets.coin for machine in machines))


def tossed(machines: list[Participant]) -> Coins:
    me = machines[0]
    return start.tossed(me.session, me.members, reveals(machines).coins)


def first(agreed: Federation, coins: Coins) -> Labels:
    return Clustering(sum(SIZES), agreed.k, start=agreed.seeding, coins=coins).labels


def piece(labels: Labels, version: int = 1) -> events.Assignment:
    data = assignments.encode(labels, 3)
    return events.Assignment(version, 0, 0, len(data), data)


def refused(machine: Participant, event: events.Event, words: str, error: type[Exception] = WrongSender) -> None:
    kept = dict(machine._versions)
    with pytest.raises(error, match=words):
        machine.handle(event)
    assert machine._versions == kept, "nothing of it is used"


# --- the coins --------------------------------------------------------------------------------------------------------


def test_the_seed_depends_on_every_coin_and_on_the_session() -> None:
    _, machines = ready()
    me, coins = machines[0], reveals(machines).coins
    seeds = {tossed(machines).seed}
    for j in range(3):
        other = bytes(32)
        members = list(me.members)
        members[j] = dataclasses.replace(members[j], commitment=start.commitment(members[j].name, other))
        seeds.add(start.tossed(me.session, members, [*coins[:j], other, *coins[j + 1 :]]).seed)
    seeds.add(start.tossed(bytes(32), me.members, coins).seed)
    assert len(seeds) == 5


def test_a_commitment_cannot_be_copied_by_another_client() -> None:
    """Else a client could wait for another's coin and show it as its own."""
    assert start.commitment("a", bytes(32)) != start.commitment("b", bytes(32))


def test_a_commitment_is_part_of_what_is_signed_and_of_the_session() -> None:
    agreed = make_federation(3)
    machines = strangers(agreed, deal(1, SIZES))
    members = list(roster(machines).members)
    before = events.session(agreed.digest(), members)
    members[1] = dataclasses.replace(members[1], commitment=bytes(32))
    assert events.session(agreed.digest(), members) != before
    with pytest.raises(WrongSender, match="c1 is not signed by it"):
        machines[0].handle(events.Roster(tuple(members)))


def test_no_coin_is_revealed_before_all_shares_are_here() -> None:
    """Shares carry the session, so by then every other client has seen the same commitments."""
    machine = introduced(make_federation(3), deal(1, SIZES))[0]
    with pytest.raises(OutOfTurn, match="revealed once every client's shares are here"):
        machine.coin()


def test_a_coin_serves_in_one_session_only() -> None:
    """Else a server and a client could learn the others' coins in one job, and choose theirs by them for the next."""
    agreed = make_federation(3)
    machines = strangers(agreed, deal(1, SIZES))
    met = roster(machines)
    session = events.session(agreed.digest(), met.members)
    for known, fair in ((session, True), (bytes(32), False)):
        again = strangers(agreed, deal(1, SIZES))[0]
        again._secrets = dataclasses.replace(again._secrets, revealed=known)
        if fair:
            again.handle(met)
            continue
        with unchanged(again), pytest.raises(WrongSender, match="our coin was revealed in another job"):
            again.handle(met)


# --- what a client refuses --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seeding", SEEDINGS)
def test_an_honest_start_is_taken(seeding: str) -> None:
    agreed, machines = ready(seeding)
    for machine in machines:
        machine.handle(reveals(machines))
        machine.handle(reveals(machines))  # as after a lost connection
        machine.handle(piece(first(agreed, tossed(machines))))
        assert machine._versions


@pytest.mark.parametrize("seeding", SEEDINGS)
@pytest.mark.parametrize("version", [1, 2, 9])
def test_a_server_that_skips_the_starts_coins(seeding: str, version: int) -> None:
    agreed, machines = ready(seeding)
    fair = piece(first(agreed, tossed(machines)), version)
    refused(machines[0], fair, "the server skips the start's coins")


@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_server_that_alters_a_coin(at: int) -> None:
    _, machines = ready()
    coins = list(reveals(machines).coins)
    coins[at] = bytes(32)
    name = f"c{at}"
    for machine in machines:
        refused(machine, events.Reveals(tuple(coins)), f"the coin shown for {name} is not the one it committed to")


def test_a_server_that_leaves_out_or_mixes_up_coins() -> None:
    _, machines = ready()
    coins = reveals(machines).coins
    refused(machines[0], events.Reveals(coins[:2]), "coins of 3 clients are due for the start, not of 2")
    refused(machines[0], events.Reveals(()), "not of 0")
    refused(machines[0], events.Reveals((coins[1], coins[0], coins[2])), "the coin shown for c0")


@pytest.mark.parametrize("seeding", SEEDINGS)
@pytest.mark.parametrize("version", [0, 1])
def test_another_first_assignment(seeding: str, version: int) -> None:
    agreed, machines = ready(seeding)
    fair = first(agreed, tossed(machines))
    other = np.roll(fair, 1)
    assert not np.array_equal(fair, other)
    machines[1].handle(reveals(machines))
    refused(machines[1], piece(other, version), "does not begin where the clients' coins say")


@pytest.mark.parametrize("seeding", ["k-means++", "separation"])
def test_later_rows_of_kmeanspp_must_go_on_from_the_first(seeding: str) -> None:
    agreed, machines = ready(seeding)
    row = int(np.flatnonzero(first(agreed, tossed(machines)) == 0)[0])
    machine = machines[2]
    machine.handle(reveals(machines))
    second = np.full(sum(SIZES), -1, dtype=np.int32)
    second[(row + 1) % 12], second[(row + 2) % 12] = 0, 1
    refused(machine, piece(second, 2), "does not begin where the clients' coins say")
    second[:] = -1
    second[row], second[(row + 2) % 12] = 0, 1
    machine.handle(piece(second, 2))
    machine.handle(piece(np.zeros(12, np.int32), 4))  # beyond the chosen rows nothing follows from the coins


# --- the server -------------------------------------------------------------------------------------------------------


def test_a_coin_that_was_not_committed_to_is_not_taken() -> None:
    server = Server(3, (3, 4, 5))
    server.join(0, 1, 2)
    server.follow(0, 1, 2)
    for coin in (bytes(32), b"", server.machines[1]._secrets.coin):
        lie = dataclasses.replace(server.held(0), coin=coin)
        with unchanged(server.coordinator), pytest.raises(WrongSender, match="the coin shown for c0"):
            server.report(0, lie)


def test_shares_are_checked_when_the_last_coin_is_there() -> None:
    server = Server(3, (3, 4, 5))
    server.join(0, 1, 2)
    server.follow(0, 1, 2)
    for j in range(3):
        assert server.coordinator.phase is Phase.SHARING
        assert server.coordinator.coins is None
        server.report(j, server.held(j))
    assert server.coordinator.phase is Phase.CHECKING
    server.check_shares()
    assert server.coordinator.phase is Phase.ROUNDS
    coins = server.coordinator.coins
    assert coins is not None
    assert server.rounds.clustering.coins == coins


def test_a_follower_hears_the_coins_before_the_assignment_every_time() -> None:
    server = Server(3, (3, 4, 5))
    server.begin_rounds()
    for _ in range(2):
        kinds = [type(event) for event in server.coordinator.news("c0", Cursor(), server.now)]
        assert kinds[:4] == [events.Roster, events.Agreements, events.Reveals, events.Assignment]


# --- an agreed seed -----------------------------------------------------------------------------------------------------


def test_with_an_agreed_seed_coins_are_tossed_too_but_do_not_decide_the_start() -> None:
    """The factors of the check of all shares must not be known while shares are dealt; the agreed seed is."""
    agreed, machines = ready(seed="so be it")
    assert len({machine.coin() for machine in machines}) == 3
    fair = first(agreed, Coins(b"so be it"))
    for machine in machines:
        refused(machine, piece(fair), "the server skips the start's coins")
        machine.handle(reveals(machines))
        refused(machine, piece(np.roll(fair, 1)), "does not begin where")
        machine.handle(piece(fair))
    server = Server(3, (3, 4, 5), seed="so be it")
    server.join(0, 1, 2)
    with unchanged(server.coordinator), pytest.raises(WrongSender, match="the coin shown for c0"):
        server.report(0, dataclasses.replace(server.held(0), coin=b""))


def test_coins_before_the_roster_are_refused() -> None:
    machines = strangers(make_federation(3), deal(1, SIZES))
    refused(machines[0], reveals(machines), "nobody was asked for", OutOfTurn)


def test_a_whole_job_from_an_agreed_seed() -> None:
    job = Joined(make_federation(3, seed="so be it"), deal(1, SIZES), seed=3)
    job.run()
    assert job.coordinator.coins == Coins(b"so be it")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Joined, "coins", Coins(b"so be it"))
        job.check_result()
