"""Keys: X25519 keys are bound to certificates, fresh nonces make the session, and the session is in all derivations.

The clients here have real kits: certificates of one authority and real signatures. What is tried is what a lying server,
which relays all introductions and has a certificate of the same authority, could do.
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from secfc.agreement.federation import SERVER
from secfc.coding import prg
from secfc.coding.field import Words
from secfc.errors import Malformed, OutOfTurn, WrongSender
from secfc.pki import kit
from secfc.pki.kit import Kit
from secfc.pki.provision import provision
from secfc.protocol import messages, parcels, start
from secfc.protocol.client.site import Secrets
from secfc.protocol.effects import Arrived
from secfc.protocol.messages import Phase
from secfc.protocol.parcels import Kind, Parcel
from secfc.protocol.server.inputs import Reported
from tests.parties import deal, make_federation, make_site, unchanged
from tests.protocol.helpers import Client, agree, answer, asked, deliver, exchange, reveals, roster
from tests.protocol.helpers import refused as refused_by
from tests.simulation.scene import Scene
from tests.simulation.world import World

AGREED = make_federation(3, seed="keys")
ROWS = deal(2, [3, 4, 5])
LABELS = np.array([0, 1, 2] * 4, dtype=np.int32)


@pytest.fixture(scope="module")
def kits(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Kit]:
    folder: Path = tmp_path_factory.mktemp("keys") / "kits"
    provision(AGREED, folder)
    return {name: kit.load(folder / name) for name in (SERVER, *AGREED.roster)}


def secrets() -> Secrets:
    return Secrets(prg.fresh_key(), X25519PrivateKey.generate(), os.urandom(32), os.urandom(32))


def made(own: Kit, kept: Secrets | None = None, **changes: Any) -> Client:
    name, real = own.party_name, {"certificate": own.certificate_pem, "sign": own.sign, "verify": kit.verifier(own)}
    rows = ROWS[AGREED.roster.index(name)]
    site = make_site(AGREED, name, rows, kept or secrets(), any_start=True, **(real | changes))
    return Client(site, begins_anywhere=True)


class Job:
    """Clients with real kits, and the roster an honest server would show."""

    def __init__(self, kits: dict[str, Kit], kept: dict[str, Secrets] | None = None) -> None:
        self.clients = [made(kits[name], (kept or {}).get(name)) for name in AGREED.roster]
        self.members = list(roster(self.clients).members)

    @property
    def session(self) -> bytes:
        return self.clients[0].machine.session

    def share(self) -> None:
        agree(self.clients)
        exchange(self.clients)
        for client in self.clients:
            client.tell(reveals(self.clients))

    def answers(self) -> list[Words]:
        """Everybody's masked upload for one and the same request."""
        out = []
        for client in self.clients:
            client.tell(*asked(client, 4, LABELS, (0, 1, 2)))
            words = answer(client, 4)
            assert words is not None, client.error
            out.append(words)
        return out


def refused(client: Client, members: list[messages.Introduction], words: str) -> None:
    refused_by(client, messages.Roster(tuple(members)), WrongSender, words)
    assert client.phase is Phase.JOINING


def test_an_honest_roster_is_taken(kits: dict[str, Kit]) -> None:
    job = Job(kits)
    agree(job.clients)
    assert len({client.machine.session for client in job.clients}) == 1
    assert {client.phase for client in job.clients} == {Phase.SHARING}


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


@pytest.mark.parametrize("signer", [SERVER, "c2"])
def test_a_swapped_key_signed_by_another_party_of_the_federation(kits: dict[str, Kit], signer: str) -> None:
    """The authority vouches for the server too, but under its own name only."""
    job, liar = Job(kits), kits[signer]
    own = X25519PrivateKey.generate().public_key().public_bytes_raw()
    for certificate in (liar.certificate_pem, job.members[1].certificate):
        bare = dataclasses.replace(job.members[1], x25519=own, certificate=certificate)
        forged = dataclasses.replace(bare, signature=liar.sign(bare.statement(AGREED.agreed())))
        refused(job.clients[0], [job.members[0], forged, job.members[2]], "c1|signature")


def test_an_introduction_of_an_earlier_job_does_not_get_far(kits: dict[str, Kit]) -> None:
    """It is truly signed, so others cannot tell. But its owner sees it, and does not sign the session they see."""
    job = Job(kits)
    stale = made(kits["c1"]).site.introduction()
    members = [job.members[0], stale, job.members[2]]
    refused(job.clients[1], members, "an introduction of ours that we did not make")
    job.clients[0].tell(messages.Roster(tuple(members)))
    job.clients[1].tell(messages.Roster(tuple(job.members)))
    given = [client.report(messages.Agreed) for client in job.clients[:2]]
    said = messages.Agreements((given[0].signature, given[1].signature, b""), (b"", given[1].proofs[0], bytes(32)))
    refused_by(job.clients[0], said, WrongSender, "the signature is not that of 'c1'")
    assert job.clients[0].phase is Phase.AGREEING


def test_the_statement_is_bound_to_the_federation_file(kits: dict[str, Kit]) -> None:
    """A signature made under another federation file, say with a smaller t, does not serve here."""
    job = Job(kits)
    other = made(kits["c1"], job.clients[1].secrets, sign=lambda text: kits["c1"].sign(b"x" + text)).site.introduction()
    refused(job.clients[0], [job.members[0], other, job.members[2]], "signature")
    assert job.members[1].statement(AGREED.agreed()) != job.members[1].statement(bytes(32))


@pytest.mark.parametrize("at", [0, 1, 2])
def test_one_fresh_nonce_changes_the_session_and_all_that_follows(kits: dict[str, Kit], at: int) -> None:
    """Everything else the same: rows, share sets, keys, coins, round, attempt, responders, assignment, columns."""
    kept = {name: secrets() for name in AGREED.roster}
    name = AGREED.roster[at]
    again = kept | {name: dataclasses.replace(kept[name], nonce=os.urandom(32))}
    one, same, other = Job(kits, kept), Job(kits, kept), Job(kits, again)
    for job in (one, same, other):
        job.share()
    assert one.session == same.session != other.session
    held = [client.report(messages.Held).share_sets_digest for job in (one, same, other) for client in job.clients[:1]]
    assert held[0] == held[1] != held[2]
    coins = [kept[each].coin for each in AGREED.roster]
    tossed = {start.tossed(job.session, one.members, coins).seed for job in (one, same, other)}
    assert len(tossed) == 2
    first, repeated, changed = one.answers(), same.answers(), other.answers()
    for j in range(3):
        assert np.array_equal(first[j], repeated[j]), "the same session repeats itself byte for byte"
        assert np.count_nonzero(first[j] == changed[j]) < len(first[j]) / 4, "another session has other masks"


def test_replayed_shares_of_another_session_are_refused(kits: dict[str, Kit]) -> None:
    """Even the same share set: c1 has restarted with its seed, and c2 begins with a fresh nonce."""
    kept = {name: secrets() for name in AGREED.roster}
    old, new = Job(kits, kept), Job(kits, kept | {"c2": dataclasses.replace(kept["c2"], nonce=os.urandom(32))})
    agree(old.clients)
    agree(new.clients)
    stale = next(send for send in old.clients[1].waiting if send.to == "c0")
    receiver = new.clients[0]
    with unchanged(receiver.machine), pytest.raises(OutOfTurn, match="belongs to another job"):
        deliver(old.clients[1], receiver, stale)
    wanted = Parcel(old.session, Kind.WANTED, receiver.site.share_set.id)
    with unchanged(receiver.machine), pytest.raises(OutOfTurn, match="belongs to another job"):
        receiver.give(Arrived("c1", wanted, 0, 0, b""))
    assert receiver.machine.progress("c1", dataclasses.replace(stale.message, session=new.session)) == 0


def test_replayed_uploads_and_reports_of_another_session_are_refused() -> None:
    scene = Scene(AGREED, tuple(ROWS))
    old, new = World(scene, 1), World(scene, 2)
    for world in (old, new):
        world.start()
    old.until(lambda: old.server.phase is Phase.ROUNDS)
    stale = old.server.job.members["c0"].held
    assert stale is not None
    new.until(lambda: new.server.phase is Phase.SHARING)
    instance = new.server.job.members["c0"].instance
    with unchanged(new.server), pytest.raises(Malformed, match="not those of this job"):
        new.server.handle(Reported("c0", instance, stale), new.now)
    new.until(lambda: new.server.attempt is not None)
    attempt = new.server.attempt
    assert attempt is not None
    sender = AGREED.roster[attempt.responders[0]]
    upload = Parcel(old.server.job.meet().session, Kind.UPLOAD, parcels.attempt_name(*attempt.name))
    with unchanged(new.server), pytest.raises(OutOfTurn, match="this belongs to another job"):
        new.server.handle(Arrived(sender, upload, 0, 8, bytes(8)), new.now)
    with unchanged(new.server), pytest.raises(WrongSender):
        new.server.handle(Arrived("stranger", upload, 0, 8, bytes(8)), new.now)
