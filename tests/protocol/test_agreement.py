"""Nobody computes without everybody's fresh signature under the session, and everybody's proof of its own X25519 key.

Each test plays a server that conspires with at most one client, against the real machines.
"""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from secfc.agreement.policy import Policy
from secfc.errors import Malformed, OutOfTurn, WrongSender
from secfc.kmeans.distances import CodedClusters, Labels
from secfc.kmeans.lloyd import Clustering
from secfc.privacy import keys
from secfc.protocol import messages, parcels, start
from secfc.protocol.effects import Arrived
from secfc.protocol.messages import Phase
from secfc.protocol.parcels import Kind, Parcel
from secfc.protocol.server.news import Cursor
from tests.parties import deal, make_federation, make_site, resigned, sign, unchanged
from tests.protocol.helpers import (
    Client,
    agreements,
    answer,
    asked,
    deliver,
    exchange,
    met,
    refused,
    reveals,
    roster,
    strangers,
)
from tests.simulation.scene import Scene
from tests.simulation.world import World
from tests.unit.test_keys import equivalent

AGREED = make_federation(3, seeding="random")
ROWS = deal(1, [4, 5, 6])
EVERYBODY = (0, 1, 2)
LABELS = np.array([0, 1, 2] * 5, dtype=np.int32)


def meet(clients: list[Client], members: tuple[messages.Introduction, ...] | None = None) -> None:
    shown = messages.Roster(members) if members else roster(clients)
    for client in clients:
        client.tell(shown)


def test_everybody_agrees_and_only_then_shares() -> None:
    clients = strangers(AGREED, ROWS)
    meet(clients)
    for client in clients:
        assert client.phase is Phase.AGREEING
        assert not client.waiting, "no share leaves"
        early = Arrived(
            "c1" if client.name != "c1" else "c0", Parcel(client.machine.session, Kind.SHARES), 0, 8, bytes(8)
        )
        with unchanged(client.machine), pytest.raises(OutOfTurn, match="too early"):
            client.give(early)
    for client, said in zip(clients, agreements(clients), strict=True):
        client.tell(said, said)  # told again after a lost connection
        assert client.phase is Phase.SHARING
        assert {send.message.kind for send in client.waiting} == {Kind.SHARES}


def test_nobody_takes_shares_before_it_has_everybodys_signature() -> None:
    """A server that keeps the signatures from one client: the others share, and it takes nothing of it."""
    clients = strangers(AGREED, ROWS)
    meet(clients)
    said = agreements(clients)
    clients[0].tell(said[0])
    for send in clients[0].waiting:
        late = clients[AGREED.roster.index(send.to)]
        with unchanged(late.machine), pytest.raises(OutOfTurn):
            deliver(clients[0], late, send)


@pytest.mark.parametrize("membership", ["public", "private"])
def test_a_replayed_introduction_is_worth_nothing_without_its_owner(membership: str) -> None:
    """c2 took part in an earlier job and is switched off. The server has its introduction, its signature under the earlier
    session and all its proofs of then; c0 and c1 begin a new job, with shares they kept."""
    agreed = make_federation(3, seeding="random", membership=membership)
    before = strangers(agreed, ROWS)
    meet(before)
    old = agreements(before)
    members = roster(before).members
    fresh = []
    for j in (0, 1):
        secrets = dataclasses.replace(
            before[j].secrets, x25519=X25519PrivateKey.generate(), nonce=os.urandom(32), coin=os.urandom(32)
        )
        fresh.append(Client(make_site(agreed, f"c{j}", ROWS[j], secrets)))
    meet(fresh, (*(client.site.introduction() for client in fresh), members[2]))
    new = [client.report(messages.Agreed) for client in fresh]
    for j, client in enumerate(fresh):
        signatures = (new[0].signature, new[1].signature, old[j].signatures[2])
        proofs = (new[0].proofs[j], new[1].proofs[j], old[j].proofs[2])
        refused(client, messages.Agreements(signatures, proofs), WrongSender, "agreement of c2 is not signed by it")
        assert client.phase is Phase.AGREEING


def test_every_signature_must_be_there() -> None:
    clients = strangers(AGREED, ROWS)
    newcomer = clients[0].copy()
    meet(clients)
    said = agreements(clients)[0]
    refused(clients[0], dataclasses.replace(said, signatures=said.signatures[:2]), Malformed, "every client")
    refused(clients[0], dataclasses.replace(said, proofs=said.proofs[:2]), Malformed, "every client")
    swapped = (said.signatures[0], said.signatures[2], said.signatures[1])
    refused(clients[0], dataclasses.replace(said, signatures=swapped), WrongSender, "agreement of c1")
    refused(newcomer, said, OutOfTurn, "the server says Agreements while the job is in phase joining")


def test_a_signature_is_for_one_session_and_one_federation_file() -> None:
    one = messages.Agreement("c0", b"s" * 32, b"")
    assert one.statement(bytes(32)) != dataclasses.replace(one, session=b"t" * 32).statement(bytes(32))
    assert one.statement(bytes(32)) != one.statement(b"x" * 32)
    assert one.statement(bytes(32)) != dataclasses.replace(one, name="c1").statement(bytes(32))


# --- a client with a key that is not its own ------------------------------------------------------------------------------


def conspiring(clients: list[Client]) -> tuple[messages.Introduction, ...]:
    """c2 introduces itself with an equivalent of c1's key; c0 stands between them in the graph of masks."""
    members = roster(clients).members
    return (*members[:2], resigned(members[2], AGREED, x25519=equivalent(members[1].x25519)))


def signed(client: Client) -> tuple[bytes, ...]:
    """Everybody's signature under the session that this client sees."""
    session = client.machine.session
    return tuple(
        sign(name, messages.Agreement(name, session, b"").statement(AGREED.agreed())) for name in AGREED.roster
    )


def test_a_client_with_an_equivalent_of_anothers_key_gets_no_share() -> None:
    clients = strangers(AGREED, ROWS)
    meet(clients[:2], conspiring(clients))
    victim, other = clients[:2]
    theirs = other.report(messages.Agreed)
    for forged in (theirs.proofs[0], bytes(32), b""):
        said = messages.Agreements(signed(victim), (b"", theirs.proofs[0], forged))
        refused(victim, said, WrongSender, "c2 does not prove that the X25519 key it introduced is its own")
        assert not victim.waiting


def test_masks_do_not_cancel_even_where_nobody_checks_the_proofs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The attack of the review at n = 3, t = 1: c0's upload was its plain distances. Now it is masked twice over."""
    monkeypatch.setattr(keys, "check_proofs", lambda *_: None)
    clients = strangers(AGREED, ROWS, any_start=True)
    shown = conspiring(clients)
    meet(clients[:2], shown)
    for j, client in enumerate(clients[:2]):
        client.tell(messages.Agreements(signed(client), tuple(b"" if i == j else bytes(32) for i in range(3))))
    victim, spy = clients[0], clients[2]
    exchange(clients[:2])
    session = victim.machine.session
    body = spy_shares(spy, receiver=0)
    victim.give(Arrived("c2", Parcel(session, Kind.SHARES, spy.site.share_set.id), 0, len(body), body))
    assert victim.phase is Phase.ROUNDS, "it holds all shares"
    victim.tell(reveals(clients))
    victim.tell(*asked(victim, 1, LABELS, EVERYBODY))
    upload = answer(victim, 1)
    assert upload is not None
    plan = victim.site.plan
    clusters = CodedClusters(victim.machine.coded, AGREED.job.k)
    clusters.assign(LABELS)
    shape = plan.shape(len(LABELS), clusters.sizes, (0, 1, 2))
    bare = clusters.upload(shape, plan.code.weights(EVERYBODY)[:, 0], [])
    assert len(upload) == len(bare)
    assert np.count_nonzero(upload == bare) == 0


def spy_shares(spy: Client, receiver: int) -> bytes:
    return b"".join(words.astype("<u8").tobytes() for _, words in spy.site.share_set.pieces(receiver, 0))


# --- the owner's rule about keeping ---------------------------------------------------------------------------------------


def keeping(wishes: list[bool], **changes: Any) -> list[Client]:
    agreed = make_federation(3, seeding="random", **changes)
    sites = [client.site for client in strangers(agreed, ROWS)]
    return [
        Client(make_site(agreed, site.name, site.rows, site.secrets, policy=Policy(keep_shares=keep)))
        for site, keep in zip(sites, wishes, strict=True)
    ]


def test_shares_outlive_a_job_only_where_owner_and_holder_want_that() -> None:
    clients = keeping([True, True, False])
    meet(clients)
    for client, said in zip(clients, agreements(clients), strict=True):
        client.tell(said)
    exchange(clients)
    kept = {(client.name, key.split("/")[1]) for client in clients for key in client.disk if key.startswith("lasting/")}
    assert kept == {("c0", "c1"), ("c1", "c0")}
    others = {
        (client.name, key.split("/")[1]) for client in clients for key in client.disk if key.startswith("shares/")
    }
    assert others == {("c0", "c2"), ("c1", "c2"), ("c2", "c0"), ("c2", "c1")}


def test_a_server_cannot_change_the_owners_rule() -> None:
    clients = keeping([True, True, False])
    members = roster(clients).members
    assert [member.keeps for member in members] == [True, True, False]
    lie = dataclasses.replace(members[2], keeps=True)
    refused(clients[0], messages.Roster((*members[:2], lie)), WrongSender, "introduction of c2 is not signed")
    forged = resigned(members[2], AGREED, keeps=True)
    refused(clients[2], messages.Roster((*members[:2], forged)), WrongSender, "that we did not make")


def test_slots_of_private_membership_are_never_kept() -> None:
    assert not any(client.site.keeps for client in keeping([True, True, True], membership="private"))


# --- the first request --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("seeding", "first"), [("random", 2), ("k-means++", 4), ("separation", 4)])
def test_a_server_that_begins_after_the_start(seeding: str, first: int) -> None:
    """The coins decide the first request only, so a server that skips it would choose where the clustering begins."""
    clients = met(make_federation(3, seeding=seeding), ROWS, any_start=False)
    request = asked(clients[0], first, LABELS, EVERYBODY)
    refused(clients[0], request, OutOfTurn, f"begins with request {first}: it skips")


def first_of(clients: list[Client]) -> tuple[Labels, list[messages.Event]]:
    """The first request of a job, as an honest server shows it once it is over."""
    coins = start.tossed(clients[0].machine.session, roster(clients).members, reveals(clients).coins)
    labels = Clustering(15, AGREED.job.k, start="random", coins=coins).labels
    return labels, asked(clients[0], 1, labels, EVERYBODY, past=True)


def test_a_client_that_missed_the_start_is_shown_it_and_goes_on() -> None:
    clients = met(AGREED, ROWS, any_start=False)
    client, past = clients[0], first_of(clients)[1]
    client.tell(*past)
    assert answer(client, 1) is None, "nothing is to be uploaded"
    later = asked(client, 3, LABELS, EVERYBODY)
    client.tell(*later)
    first = answer(client, 3)
    assert first is not None
    client.tell(*past)  # shown again after a lost connection, it changes nothing
    client.tell(*later)
    assert np.array_equal(answer(client, 3), first)
    assert client.error is None
    assert {parcels.attempt_of(send.message.name) for send in client.parcels(Kind.UPLOAD)} == {(3, 1)}


def test_a_start_that_is_not_the_coins_is_refused_when_it_is_over_too() -> None:
    clients = met(AGREED, ROWS, any_start=False)
    client, (labels, past) = clients[0], first_of(clients)
    other = asked(client, 1, np.roll(labels, 1), EVERYBODY, past=True)
    refused(client, other, WrongSender, "does not begin where the clients' coins say")
    unknown = dataclasses.replace(past[1], number=2)  # type: ignore[type-var]
    refused(client, [past[0], unknown], OutOfTurn, "an assignment it did not send")
    refused(client, asked(client, 2, labels, EVERYBODY, past=True), Malformed, "only the first is shown")


def test_a_follower_that_missed_the_start_hears_of_it_first() -> None:
    world = World(Scene(make_federation(4, dropouts=1), tuple(deal(7, [3, 4, 0, 5]))), 1)
    world.start()
    world.until(lambda: world.server.attempt is not None and world.server.attempt.question.number == 3)
    told = world.server.news("c3", Cursor(), world.now)
    kinds = [(event.number, event.past) for event in told if isinstance(event, messages.RoundRequest)]
    assert kinds == [(1, True), (3, False)]
    versions = [
        parcels.pair_of(event.parcel.name)[0]
        for event in told
        if isinstance(event, messages.Piece) and event.parcel.kind is Kind.ASSIGNMENT and event.offset == 0
    ]
    assert versions == [1, 3]
