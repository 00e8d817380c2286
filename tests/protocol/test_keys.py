"""Keys: X25519 keys are bound to certificates, fresh nonces make the session, and the session is in all derivations.

The clients here have real kits: certificates of one authority and real signatures. What is tried is what a lying server,
which relays all introductions and has a certificate of the same authority, could do.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from secfc import assignments, events, kit, prg, start
from secfc.errors import OutOfTurn, WrongSender
from secfc.kit import Kit
from secfc.provision import provision
from secfc_client.participant import Participant, Phase, Secrets
from tests.protocol.joined import deal, digest_of, make_federation, plan_of, settle
from tests.unit.test_coordinator import Server

AGREED = make_federation(3, seed="keys")
ROWS = deal(2, [3, 4, 5])
LABELS = np.array([0, 1, 2] * 4, dtype=np.int32)


@pytest.fixture(scope="module")
def kits(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Kit]:
    folder: Path = tmp_path_factory.mktemp("keys") / "kits"
    provision(AGREED, folder)
    return {name: kit.load(folder / name) for name in ("server", *AGREED.roster)}


def secrets() -> Secrets:
    return Secrets(prg.fresh_key(), X25519PrivateKey.generate(), os.urandom(32), os.urandom(32))


def machine(own: Kit, kept: Secrets | None = None) -> Participant:
    j = AGREED.roster.index(own.party_name)
    return Participant(AGREED, plan_of(AGREED), own.party_name, ROWS[j], kept or secrets(), kit.verifier(own))


def introduction(own: Kit, me: Participant) -> events.Introduction:
    return me.introduction(own.certificate_pem, own.sign)


class Job:
    """Clients with real kits, and the roster an honest server would show."""

    def __init__(self, kits: dict[str, Kit], kept: dict[str, Secrets] | None = None) -> None:
        self.kits = kits
        self.clients = [machine(kits[name], (kept or {}).get(name)) for name in AGREED.roster]
        self.members = [introduction(kits[client.name], client) for client in self.clients]

    def meet(self) -> None:
        for client in self.clients:
            client.handle(events.Roster(tuple(self.members)))
        given = [client.agreement(self.kits[client.name].sign) for client in self.clients]
        for j, client in enumerate(self.clients):
            proofs = tuple(one.proofs[j] for one in given)
            client.handle(events.Agreements(tuple(one.signature for one in given), proofs))

    def share(self) -> None:
        self.meet()
        for owner, other in itertools.permutations(self.clients, 2):
            words = owner.outgoing(other.name)
            other.receive(owner.name, owner.session, owner.share_set.id, events.Chunk(0, len(words), words))
            settle(other, owner.name)
        for client in self.clients:
            client.keep_own()
            client.holdings()
            vars(client)["_check_start"] = lambda version, labels: None

    def answers(self) -> list[np.ndarray[Any, Any]]:
        """Everybody's masked upload for one and the same request."""
        data = assignments.encode(LABELS, AGREED.k)
        asked = events.RoundRequest(1, 1, (0, 1, 2), (0, 1, 2), digest_of(LABELS), 0, 60.0)
        for client in self.clients:
            client.handle(events.Assignment(1, 0, 0, len(data), data))
        return [client.answer(asked) for client in self.clients]


def refused(client: Participant, members: list[events.Introduction], words: str) -> None:
    with pytest.raises(WrongSender, match=words):
        client.handle(events.Roster(tuple(members)))
    assert client.phase is Phase.JOINING


def test_an_honest_roster_is_taken(kits: dict[str, Kit]) -> None:
    job = Job(kits)
    job.meet()
    assert len({client.session for client in job.clients}) == 1


@pytest.mark.parametrize("field", ["x25519", "nonce", "commitment", "share_set", "rows", "features"])
def test_a_server_that_swaps_what_a_client_signed(kits: dict[str, Kit], field: str) -> None:
    """Above all the X25519 key: a server that could put its own there would know all masks of that client."""
    job = Job(kits)
    own = X25519PrivateKey.generate().public_key().public_bytes_raw()
    change: dict[str, Any] = {"share_set": bytes(16), "rows": 5}
    swapped = dataclasses.replace(job.members[1], **{field: change.get(field, own)})
    for client in (job.clients[0], job.clients[2]):
        refused(client, [job.members[0], swapped, job.members[2]], "signature")
    refused(job.clients[1], [job.members[0], swapped, job.members[2]], "signature|that we did not make")


@pytest.mark.parametrize("signer", ["server", "c2"])
def test_a_swapped_key_signed_by_another_party_of_the_federation(kits: dict[str, Kit], signer: str) -> None:
    """The authority vouches for the server too, but under its own name only."""
    job, liar = Job(kits), kits[signer]
    own = X25519PrivateKey.generate().public_key().public_bytes_raw()
    for certificate in (liar.certificate_pem, job.members[1].certificate):
        bare = dataclasses.replace(job.members[1], x25519=own, certificate=certificate)
        forged = dataclasses.replace(bare, signature=liar.sign(bare.statement(AGREED.digest())))
        refused(job.clients[0], [job.members[0], forged, job.members[2]], "c1|signature")


def test_an_introduction_of_an_earlier_job_does_not_get_far(kits: dict[str, Kit]) -> None:
    """It is truly signed, so others cannot tell. But its owner sees it, and does not sign the session they see."""
    job = Job(kits)
    stale = introduction(kits["c1"], machine(kits["c1"]))
    members = [job.members[0], stale, job.members[2]]
    refused(job.clients[1], members, "an introduction of ours that we did not make")
    job.clients[0].handle(events.Roster(tuple(members)))
    job.clients[1].handle(events.Roster(tuple(job.members)))
    given = [client.agreement(kits[client.name].sign) for client in job.clients[:2]]
    said = events.Agreements((given[0].signature, given[1].signature, b""), (b"", given[1].proofs[0], bytes(32)))
    with pytest.raises(WrongSender, match="the signature is not that of 'c1'"):
        job.clients[0].handle(said)
    assert job.clients[0].phase is Phase.AGREEING


def test_the_statement_is_bound_to_the_federation_file(kits: dict[str, Kit]) -> None:
    """A signature made under another federation file, say with a smaller t, does not serve here."""
    job = Job(kits)
    other = job.clients[1].introduction(kits["c1"].certificate_pem, lambda text: kits["c1"].sign(b"x" + text))
    refused(job.clients[0], [job.members[0], other, job.members[2]], "signature")
    assert job.members[1].statement(AGREED.digest()) != job.members[1].statement(bytes(32))


@pytest.mark.parametrize("at", [0, 1, 2])
def test_one_fresh_nonce_changes_the_session_and_all_that_follows(kits: dict[str, Kit], at: int) -> None:
    """Everything else the same: rows, share sets, keys, coins, round, attempt, responders, assignment, columns."""
    kept = {name: secrets() for name in AGREED.roster}
    name = AGREED.roster[at]
    again = kept | {name: dataclasses.replace(kept[name], nonce=os.urandom(32))}
    one, same, other = Job(kits, kept), Job(kits, kept), Job(kits, again)
    for job in (one, same, other):
        job.share()
    assert one.clients[0].session == same.clients[0].session != other.clients[0].session
    members = one.clients[0].members
    held = [m.share_set for m in members]
    assert events.holdings(one.clients[0].session, held) != events.holdings(other.clients[0].session, held)
    coins = [kept[each].coin for each in AGREED.roster]
    tossed = {start.tossed(job.clients[0].session, members, coins).seed for job in (one, same, other)}
    assert len(tossed) == 2
    first, repeated, changed = one.answers(), same.answers(), other.answers()
    for j in range(3):
        assert np.array_equal(first[j], repeated[j]), "the same session repeats itself byte for byte"
        assert np.count_nonzero(first[j] == changed[j]) < len(first[j]) / 4, "another session has other masks"


def test_replayed_shares_of_another_session_are_refused(kits: dict[str, Kit]) -> None:
    """Even the same share set: c1 has restarted with its seed, and c2 begins with a fresh nonce."""
    kept = {name: secrets() for name in AGREED.roster}
    old, new = Job(kits, kept), Job(kits, kept | {"c2": dataclasses.replace(kept["c2"], nonce=os.urandom(32))})
    old.share()
    new.meet()
    words = old.clients[1].outgoing("c0")
    chunk = events.Chunk(0, len(words), words)
    with pytest.raises(OutOfTurn, match="belong to another job"):
        new.clients[0].receive("c1", old.clients[1].session, old.clients[1].share_set.id, chunk)
    with pytest.raises(OutOfTurn, match="belong to another job"):
        new.clients[0].asked("c1", old.clients[1].session, new.clients[0].share_set.id)
    assert new.clients[0].progress("c1", new.clients[0].session, new.clients[1].share_set.id) == 0


def test_replayed_uploads_and_reports_of_another_session_are_refused() -> None:
    old, new = Server(3, (3, 4, 5)), Server(3, (3, 4, 5))
    new.machines[2]._secrets = dataclasses.replace(new.machines[2]._secrets, nonce=os.urandom(32))
    old.begin_rounds()
    stale = old.held(0)
    new.join(0, 1, 2)
    new.follow(0, 1, 2)
    with pytest.raises(ValueError, match="not those of this job"):
        new.report(0, stale)
    for j in range(3):
        new.report(j, new.held(j))
    new.check_shares()
    session = events.session(old.federation.digest(), old.coordinator.roster())
    with pytest.raises(OutOfTurn, match="this upload belongs to another job"):
        new.coordinator.check_session("c0", session)
    new.coordinator.check_session("c0", events.session(new.federation.digest(), new.coordinator.roster()))
    with pytest.raises(WrongSender):
        new.coordinator.check_session("stranger", session)
