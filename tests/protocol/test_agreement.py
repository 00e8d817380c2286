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

from secfc import assignments, events, keys
from secfc.coins import Coins
from secfc.distances import Labels
from secfc.errors import Malformed, OutOfTurn, PeerError, WrongSender
from secfc.lloyd import Clustering
from secfc_client.guard import Guard
from secfc_client.participant import Participant, Phase
from secfc_client.policy import Policy
from secfc_server.coordinator import Cursor
from tests.protocol.joined import (
    agreements,
    deal,
    digest_of,
    introduce,
    make_federation,
    meet,
    plan_of,
    resigned,
    roster,
    sign,
    strangers,
    unchanged,
    verifier,
)
from tests.unit.test_coordinator import Server
from tests.unit.test_keys import equivalent

AGREED = make_federation(3, seeding="random")
ROWS = deal(1, [4, 5, 6])


def met(machines: list[Participant], members: tuple[events.Introduction, ...] | None = None) -> None:
    for machine in machines:
        machine.handle(events.Roster(members) if members else roster(machines))


def refused(machine: Participant, event: events.Event, error: type[PeerError], words: str) -> None:
    with unchanged(machine), pytest.raises(error, match=words):
        machine.handle(event)


def test_everybody_agrees_and_only_then_shares() -> None:
    machines = strangers(AGREED, ROWS)
    met(machines)
    for machine in machines:
        assert machine.phase is Phase.AGREEING
        with pytest.raises(OutOfTurn, match="not agreed on here yet"):
            machine.outgoing("c1" if machine.name != "c1" else "c0")
    for machine, said in zip(machines, agreements(machines), strict=True):
        machine.handle(said)
        machine.handle(said)  # told again after a lost connection
        assert machine.phase is Phase.SHARING


@pytest.mark.parametrize("membership", ["public", "private"])
def test_a_replayed_introduction_is_worth_nothing_without_its_owner(membership: str) -> None:
    """c2 took part in an earlier job and is switched off. The server has its introduction, its signature under the earlier
    session and all its proofs of then; c0 and c1 begin a new job, with shares they kept."""
    agreed = make_federation(3, seeding="random", membership=membership)
    before = strangers(agreed, ROWS)
    met(before)
    old = agreements(before)
    members = roster(before).members
    fresh = []
    for j in (0, 1):
        secrets = dataclasses.replace(
            before[j]._secrets, x25519=X25519PrivateKey.generate(), nonce=os.urandom(32), coin=os.urandom(32)
        )
        fresh.append(Participant(agreed, plan_of(agreed), f"c{j}", ROWS[j], secrets, verifier(agreed)))
    shown = (*(introduce(machine) for machine in fresh), members[2])
    met(fresh, shown)
    new = [machine.agreement(lambda text, name=machine.name: sign(name, text)) for machine in fresh]
    for j, machine in enumerate(fresh):
        signatures = (new[0].signature, new[1].signature, old[j].signatures[2])
        proofs = (new[0].proofs[j], new[1].proofs[j], old[j].proofs[2])
        refused(machine, events.Agreements(signatures, proofs), WrongSender, "agreement of c2 is not signed by it")
        assert machine.phase is Phase.AGREEING


def test_every_signature_must_be_there() -> None:
    machines = strangers(AGREED, ROWS)
    met(machines)
    said = agreements(machines)[0]
    refused(machines[0], dataclasses.replace(said, signatures=said.signatures[:2]), Malformed, "every client")
    refused(machines[0], dataclasses.replace(said, proofs=said.proofs[:2]), Malformed, "every client")
    swapped = (said.signatures[0], said.signatures[2], said.signatures[1])
    refused(machines[0], dataclasses.replace(said, signatures=swapped), WrongSender, "agreement of c1")
    newcomer = strangers(AGREED, ROWS)[0]
    refused(newcomer, said, OutOfTurn, "before the roster")


def test_a_signature_is_for_one_session_and_one_federation_file() -> None:
    one = events.Agreement("c0", b"s" * 32, b"")
    assert one.statement(bytes(32)) != dataclasses.replace(one, session=b"t" * 32).statement(bytes(32))
    assert one.statement(bytes(32)) != one.statement(b"x" * 32)
    assert one.statement(bytes(32)) != dataclasses.replace(one, name="c1").statement(bytes(32))


# --- a client with a key that is not its own ------------------------------------------------------------------------------


def conspiring(machines: list[Participant]) -> tuple[events.Introduction, ...]:
    """c2 introduces itself with an equivalent of c1's key; c0 stands between them in the graph of masks."""
    members = roster(machines).members
    return (*members[:2], resigned(members[2], AGREED, x25519=equivalent(members[1].x25519)))


def test_a_client_with_an_equivalent_of_anothers_key_gets_no_share() -> None:
    machines = strangers(AGREED, ROWS)
    shown = conspiring(machines)
    met(machines[:2], shown)
    victim, other = machines[:2]
    theirs = other.agreement(lambda text: sign("c1", text))
    signatures = (
        victim.agreement(lambda text: sign("c0", text)).signature,
        theirs.signature,
        sign("c2", events.Agreement("c2", victim.session, b"").statement(AGREED.digest())),
    )
    for forged in (theirs.proofs[0], bytes(32), b""):
        said = events.Agreements(signatures, (b"", theirs.proofs[0], forged))
        refused(victim, said, WrongSender, "c2 does not prove that the X25519 key it introduced is its own")


def test_masks_do_not_cancel_even_where_nobody_checks_the_proofs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The attack of the review at n = 3, t = 1: c0's upload was its plain distances. Now it is masked twice over."""
    monkeypatch.setattr(keys, "check_proofs", lambda *_: None)
    machines = strangers(AGREED, ROWS)
    shown = conspiring(machines)
    met(machines[:2], shown)
    victim = machines[0]
    signatures = tuple(
        sign(name, events.Agreement(name, victim.session, b"").statement(AGREED.digest())) for name in AGREED.roster
    )
    victim.handle(events.Agreements(signatures, (b"", bytes(32), bytes(32))))
    plain = meet(AGREED, ROWS)[0]
    victim._coded, victim.phase = plain._coded, plain.phase
    victim._clusters = plain._clusters
    vars(victim)["_check_start"] = lambda version, labels: None
    labels = np.array([0, 1, 2] * 5, dtype=np.int32)
    request = ask(victim, 1, labels)
    upload = victim.answer(request)
    shape = victim.plan.shape(len(labels), victim._clusters.sizes, request.columns)
    weights = victim.plan.code.weights(request.responders)[:, 0]
    bare = victim._clusters.upload(shape, weights, [])
    assert np.count_nonzero(upload == bare) == 0


def ask(machine: Participant, number: int, labels: Labels) -> events.RoundRequest:
    """Shows an assignment and makes the request for it."""
    data = assignments.encode(labels, AGREED.k)
    machine.handle(events.Assignment(number, 0, 0, len(data), data))
    return events.RoundRequest(number, 1, (0, 1, 2), (0, 1, 2), digest_of(labels), 0, 60.0)


# --- the owner's rule about keeping ---------------------------------------------------------------------------------------


def keeping(wishes: list[bool], **changes: Any) -> list[Participant]:
    agreed = make_federation(3, seeding="random", **changes)
    machines = strangers(agreed, ROWS)
    for machine, keep in zip(machines, wishes, strict=True):
        machine.guard = Guard(agreed, plan_of(agreed), Policy(keep_shares=keep))
    return machines


def test_shares_outlive_a_job_only_where_owner_and_holder_want_that() -> None:
    machines = keeping([True, True, False])
    met(machines)
    allowed = {(m.name, owner): m.may_keep(owner) for m in machines for owner in AGREED.roster if owner != m.name}
    assert [pair for pair, may in allowed.items() if may] == [("c0", "c1"), ("c1", "c0")]


def test_a_server_cannot_change_the_owners_rule() -> None:
    machines = keeping([True, True, False])
    members = roster(machines).members
    assert [member.keeps for member in members] == [True, True, False]
    lie = dataclasses.replace(members[2], keeps=True)
    refused(machines[0], events.Roster((*members[:2], lie)), WrongSender, "introduction of c2 is not signed")
    signed = resigned(members[2], AGREED, keeps=True)
    refused(machines[2], events.Roster((*members[:2], signed)), WrongSender, "that we did not make")


def test_slots_of_private_membership_are_never_kept() -> None:
    assert not any(machine.keeps for machine in keeping([True, True, True], membership="private"))


# --- the first request --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("seeding", "first"), [("random", 2), ("k-means++", 4), ("separation", 4)])
def test_a_server_that_begins_after_the_start(seeding: str, first: int) -> None:
    """The coins decide the first request only, so a server that skips it would choose where the clustering begins."""
    machine = meet(make_federation(3, seeding=seeding), ROWS, any_start=False)[0]
    vars(machine)["_check_start"] = lambda version, labels: None
    request = ask(machine, first, np.array([0, 1, 2] * 5, dtype=np.int32))
    refused(machine, request, OutOfTurn, f"begins with request {first}: it skips")


def first_of(machine: Participant) -> tuple[Labels, events.RoundRequest]:
    """The first request of a job, as an honest server shows it once it is over."""
    coins = machine._tossed
    assert coins is not None
    labels = Clustering(15, AGREED.k, start="random", coins=coins).labels
    return labels, dataclasses.replace(ask(machine, 1, labels), past=True)


def test_a_client_that_missed_the_start_is_shown_it_and_goes_on() -> None:
    machine = meet(AGREED, ROWS, any_start=False)[0]
    machine._tossed = Coins(b"tossed")
    _, past = first_of(machine)
    assert machine.handle(past) is None, "nothing is to be uploaded"
    later = ask(machine, 3, np.array([0, 1, 2] * 5, dtype=np.int32))
    assert machine.handle(later) is not None
    assert machine.handle(first_of(machine)[1]) is None, "shown again after a lost connection, it changes nothing"
    ask(machine, 3, np.array([0, 1, 2] * 5, dtype=np.int32))
    assert machine.handle(later) is not None


def test_a_start_that_is_not_the_coins_is_refused_when_it_is_over_too() -> None:
    machine = meet(AGREED, ROWS, any_start=False)[0]
    machine._tossed = Coins(b"tossed")
    labels, past = first_of(machine)
    with pytest.raises(WrongSender, match="does not begin where the clients' coins say"):
        ask(machine, 1, np.roll(labels, 1))
    refused(machine, dataclasses.replace(past, number=2), OutOfTurn, "an assignment it did not send")
    later = ask(machine, 2, labels)
    refused(machine, dataclasses.replace(later, past=True), Malformed, "only the first is shown")


def test_a_follower_that_missed_the_start_hears_of_it_first() -> None:
    server = Server(4, (3, 4, 0, 5), dropouts=1)
    server.begin_rounds()
    server.finish_round()
    server.finish_round()
    told = server.coordinator.news("c3", Cursor(), server.now)
    kinds = [(event.number, event.past) for event in told if isinstance(event, events.RoundRequest)]
    assert kinds == [(1, True), (3, False)]
    versions = [event.version for event in told if isinstance(event, events.Assignment)]
    assert versions == [1, 3]
