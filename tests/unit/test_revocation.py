"""The signed roster: which certificates are in force, who may say so, and that nobody goes back."""

from __future__ import annotations

import dataclasses
import fcntl
import json
import logging
import os
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from secfc.errors import ConfigError, Unavailable, WrongSender
from secfc.pki import authority as authorities
from secfc.pki import certificates, kit, pins, provision, signedroster
from secfc.pki.kit import Kit
from secfc.pki.pins import Pins
from secfc.pki.provision import Authority
from secfc.protocol import messages
from tests.unit.test_provision import FEDERATION, certificate

NOW = datetime.now(UTC)
ROSTER = signedroster.FILE


@pytest.fixture
def kits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(pins, "LOOK_SECONDS", 0.0)
    return provision.provision(FEDERATION, tmp_path / "kits").ca.parent


def opened(kits: Path) -> Authority:
    return authorities.load(kits / "ca", "trial", lambda: "")


def revoke(kits: Path, party: str) -> None:
    authorities.revoke(opened(kits), kits / "ca", "trial", party)


def hand_out(kits: Path, *parties: str) -> None:
    """The authority's newest roster into these kits, as `cp` would."""
    for party in parties:
        shutil.copyfile(kits / "ca" / ROSTER, kits / party / ROSTER)


def renewed(kits: Path, party: str) -> Kit:
    """A second, genuine kit of a party, pinned in the authority's newest roster."""
    folder, key = Path(shutil.copytree(kits / party, kits / f"{party}-new")), provision.make_key()
    made = provision.certify(opened(kits), FEDERATION, FEDERATION.party(party), key.public_key(), days=9, now=NOW)
    authorities.pin(opened(kits), kits / "ca", "trial", party, made)
    (folder / "key.pem").write_bytes(provision.private_pem(key))
    (folder / "cert.pem").write_bytes(provision.certificate_pem(made))
    shutil.copyfile(kits / "ca" / ROSTER, folder / ROSTER)
    return kit.load(folder)


def introduction(own: Kit) -> messages.Introduction:
    bare = messages.Introduction(
        own.party_name, 3, bytes(16), bytes(32), bytes(32), bytes(32), own.certificate_pem, signature=b""
    )
    return dataclasses.replace(bare, signature=own.sign(bare.statement(own.federation.agreed())))


def der(own: Kit) -> bytes:
    return certificates.parse_certificate(own.certificate_pem, "x").public_bytes(serialization.Encoding.DER)


# --- what is in force ------------------------------------------------------------------------------------------------


def test_every_kit_of_a_provisioning_is_in_force(kits: Path) -> None:
    loaded = {name: kit.load(kits / name) for name in ("server", "a", "b")}
    for one in loaded.values():
        for other in loaded.values():
            one.pins.check(other.party_name, der(other))
            assert one.pins.anchor(other.party_name) == other.certificate_pem
    kit.verifier(loaded["a"])(introduction(loaded["b"]))


def test_a_revoked_certificate_is_refused_as_soon_as_the_file_is_replaced(kits: Path) -> None:
    """The attack: b's key is stolen. On the same running objects, without loading anything again."""
    a, b = kit.load(kits / "a"), kit.load(kits / "b")
    verify, told = kit.verifier(a), introduction(b)
    verify(told)
    revoke(kits, "b")
    verify(told)  # a does not know of it yet
    hand_out(kits, "a")
    with pytest.raises(WrongSender, match=r"the certificate of b was revoked \(version 2 of the roster\)"):
        verify(told)
    with pytest.raises(WrongSender, match="revoked and not replaced"):
        a.pins.anchor("b")
    verify(introduction(a))


def test_a_genuine_certificate_that_is_not_the_pinned_one_is_refused(kits: Path) -> None:
    """Signed by the authority, unexpired, of the right name: it passed for b, when any certificate of the authority did."""
    a, b = kit.load(kits / "a"), kit.load(kits / "b")
    new = renewed(kits, "b")
    verify = kit.verifier(a)
    with pytest.raises(Unavailable, match="version 1 of the roster lists another certificate for b"):
        verify(introduction(new))
    hand_out(kits, "a")
    verify(introduction(new))
    with pytest.raises(Unavailable, match="version 2 of the roster lists another certificate for b"):
        verify(introduction(b))
    assert a.pins.anchor("b") == new.certificate_pem


def test_another_partys_pinned_certificate_is_no_substitute(kits: Path) -> None:
    a, b = kit.load(kits / "a"), kit.load(kits / "b")
    with pytest.raises(Unavailable, match="another certificate for b"):
        a.pins.check("b", der(a))
    with pytest.raises(Unavailable, match="does not list zebra"):
        b.pins.check("zebra", der(b))


def test_who_is_revoked_does_not_start(kits: Path) -> None:
    revoke(kits, "b")
    hand_out(kits, "a", "b")
    with pytest.raises(ConfigError, match="the certificate of b was revoked"):
        kit.load(kits / "b")
    assert "1 revoked" in kit.findings(kits / "a")[-1].detail


def test_without_a_roster_any_certificate_of_the_authority_counts(kits: Path) -> None:
    """What then holds, so that nobody is surprised."""
    new = renewed(kits, "b")
    (kits / "a" / ROSTER).unlink()
    a = kit.load(kits / "a")
    kit.verifier(a)(introduction(new))
    kit.verifier(a)(introduction(kit.load(kits / "b")))
    assert a.pins.anchor("b") is None
    hand_out(kits, "a")  # and from here on not
    with pytest.raises(Unavailable):
        kit.verifier(a)(introduction(kit.load(kits / "b")))


def test_the_authority_pins_whom_it_likes(kits: Path) -> None:
    """Against the holder of ca.key a roster is no protection: it signs a certificate in b's name, and a roster with it."""
    a, impostor = kit.load(kits / "a"), renewed(kits, "b")
    hand_out(kits, "a")
    kit.verifier(a)(introduction(impostor))


# --- versions --------------------------------------------------------------------------------------------------------


def test_versions_never_go_back_while_running(kits: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The attack: whoever has the stolen key puts back the roster from before."""
    a, b = kit.load(kits / "a"), kit.load(kits / "b")
    old = (kits / "a" / ROSTER).read_bytes()
    revoke(kits, "b")
    hand_out(kits, "a")
    with pytest.raises(WrongSender):
        a.pins.check("b", der(b))
    with caplog.at_level(logging.WARNING, "secfc.pki.pins"):
        for content in (old, b"", b"rubbish", None):
            if content is None:
                (kits / "a" / ROSTER).unlink()
            else:
                (kits / "a" / ROSTER).write_bytes(content)
            with pytest.raises(WrongSender, match="revoked"):
                a.pins.check("b", der(b))
    told = [
        record for record in caplog.records if record.name == "secfc.pki.pins" and record.levelno >= logging.WARNING
    ]
    assert "is version 1, but version 2 was seen here" in told[0].fields["reason"]  # type: ignore[attr-defined]
    assert len(told) == 4, "once for each change of the file"


def test_versions_never_go_back_over_a_restart(kits: Path, tmp_path: Path) -> None:
    state, old = tmp_path / "state", (kits / "a" / ROSTER).read_bytes()
    revoke(kits, "b")
    hand_out(kits, "a")
    kit.load(kits / "a").pins.remember(state)
    (kits / "a" / ROSTER).write_bytes(old)
    with pytest.raises(ConfigError, match=r"is version 1, but version 2 was seen here; get the newest roster\.json"):
        kit.load(kits / "a").pins.remember(state)
    (kits / "a" / ROSTER).unlink()
    with pytest.raises(ConfigError, match="is missing, but version 2 was in force before"):
        kit.load(kits / "a").pins.remember(state)
    hand_out(kits, "a")
    kit.load(kits / "a").pins.remember(state)


def test_what_came_while_running_is_remembered(kits: Path, tmp_path: Path) -> None:
    state, old = tmp_path / "state", (kits / "a" / ROSTER).read_bytes()
    running = kit.load(kits / "a").pins
    running.remember(state)
    revoke(kits, "b")
    hand_out(kits, "a")
    assert running.describe() == "version 2"
    (kits / "a" / ROSTER).write_bytes(old)
    with pytest.raises(ConfigError, match="version 2 was seen here"):
        kit.load(kits / "a").pins.remember(state)


def test_two_rosters_of_one_version_are_noticed(kits: Path, tmp_path: Path) -> None:
    """An authority's folder that was put back from a copy."""
    backup = (kits / "ca" / ROSTER).read_bytes()
    revoke(kits, "b")
    hand_out(kits, "a")
    kit.load(kits / "a").pins.remember(tmp_path / "state")
    (kits / "ca" / ROSTER).write_bytes(backup)
    revoke(kits, "server")
    hand_out(kits, "a")
    with pytest.raises(ConfigError, match="two different rosters claim to be version 2"):
        kit.load(kits / "a").pins.remember(tmp_path / "state")


def test_another_authoritys_memory_is_none(kits: Path, tmp_path: Path) -> None:
    revoke(kits, "b")
    hand_out(kits, "a")
    kit.load(kits / "a").pins.remember(tmp_path / "state")
    fresh = provision.provision(FEDERATION, tmp_path / "fresh").kits[1]
    kit.load(fresh).pins.remember(tmp_path / "state")
    assert json.loads((tmp_path / "state" / ROSTER).read_bytes())["roster"]["version"] == 1


def test_a_roster_holds_even_where_it_cannot_be_remembered(kits: Path, tmp_path: Path) -> None:
    a, b = kit.load(kits / "a"), kit.load(kits / "b")
    a.pins.remember(tmp_path / "state")
    shutil.rmtree(tmp_path / "state")
    (tmp_path / "state").write_text("a file where the folder was")
    revoke(kits, "b")
    hand_out(kits, "a")
    with pytest.raises(WrongSender, match="revoked"):
        a.pins.check("b", der(b))


# --- the file --------------------------------------------------------------------------------------------------------


def read(kits: Path, content: bytes, federation: str = "trial") -> signedroster.SignedRoster:
    return signedroster.parse(content, certificate(kits / "ca" / "ca.pem"), federation, "roster.json")


def test_only_the_authority_signs(kits: Path, tmp_path: Path) -> None:
    rival = provision.provision(FEDERATION, tmp_path / "rival").ca
    whole = json.loads((kits / "ca" / ROSTER).read_bytes())
    forged = [
        (rival / ROSTER).read_bytes(),
        signedroster.dump(
            read(kits, (kits / "ca" / ROSTER).read_bytes()), certificates.parse_key(_key(kits / "b"), "key.pem")
        ),
        json.dumps(whole | {"roster": whole["roster"] | {"version": 7}}).encode(),
        json.dumps(whole | {"roster": whole["roster"] | {"revoked": {"00": "a"}}}).encode(),
        json.dumps(whole | {"signature": ""}).encode(),
    ]
    for content in forged:
        with pytest.raises(ConfigError, match=r"not signed by the authority in ca\.pem"):
            read(kits, content)
    with pytest.raises(ConfigError, match="for another federation, not other"):
        read(kits, (kits / "ca" / ROSTER).read_bytes(), "other")


def _key(folder: Path) -> bytes:
    return (folder / "key.pem").read_bytes()


@pytest.mark.parametrize(
    "changed",
    [
        {"version": 0},
        {"version": 1.0},
        {"version": True},
        {"version": 1 << 60},
        {"issued": "yesterday"},
        {"issued": "2030-01-01T00:00:00"},
        {"issued": 3},
        {"federation": None},
        {"certificates": []},
        {"certificates": {"a": "*"}},
        {"certificates": {"a": 7}},
        {"revoked": "a"},
        {"more": 1},
    ],
)
def test_files_that_are_no_roster(kits: Path, changed: dict[str, object]) -> None:
    whole = json.loads((kits / "ca" / ROSTER).read_bytes())
    with pytest.raises(ConfigError, match="not a roster"):
        read(kits, json.dumps(whole | {"roster": whole["roster"] | changed}).encode())
    for content in (b"", b"[]", b"{}", b"[" * 100_000, b'{"roster": {}, "signature": 3}', b"\xff"):
        with pytest.raises(ConfigError, match="not a roster"):
            read(kits, content)


def test_the_largest_federation_fits(kits: Path) -> None:
    whole = read(kits, (kits / "ca" / ROSTER).read_bytes())
    many = {f"hospital-with-a-long-name-{j}": whole.certificates["a"] for j in range(2048)}
    gone = {f"{j:064x}": f"hospital-with-a-long-name-{j}" for j in range(2048)}
    large = signedroster.dump(dataclasses.replace(whole, certificates=many, revoked=gone), opened(kits).key)
    assert len(large) < signedroster.MAX_BYTES


# --- the authority ---------------------------------------------------------------------------------------------------


def test_revoking_nobody(kits: Path) -> None:
    before = (kits / "ca" / ROSTER).read_bytes()
    with pytest.raises(
        ConfigError, match="'zebra' has no certificate in version 1 of the roster; it lists a, b, server"
    ):
        revoke(kits, "zebra")
    assert (kits / "ca" / ROSTER).read_bytes() == before
    revoke(kits, "b")
    with pytest.raises(ConfigError, match="'b' has no certificate in version 2"):
        revoke(kits, "b")


def test_a_revoked_key_gets_no_certificate_again(kits: Path) -> None:
    """The request of the stolen key still lies about; nor does an older or a further certificate for that key count."""
    a, b = kit.load(kits / "a"), kit.load(kits / "b")
    key = certificates.p256(certificates.parse_certificate(b.certificate_pem, "x"))
    again = provision.certify(opened(kits), FEDERATION, FEDERATION.party("b"), key, days=9, now=NOW)
    revoke(kits, "b")
    with pytest.raises(ConfigError, match="the key of this request was revoked; b must run `secfc enroll` again"):
        authorities.pin(opened(kits), kits / "ca", "trial", "b", again)
    hand_out(kits, "a")
    with pytest.raises(WrongSender, match="revoked"):
        a.pins.check("b", again.public_bytes(serialization.Encoding.DER))
    assert renewed(kits, "b").party_name == "b"


def test_a_lost_roster_is_not_begun_again(kits: Path) -> None:
    """Version 1 once more would be refused by everybody; any kit has a copy."""
    (kits / "ca" / ROSTER).unlink()
    with pytest.raises(ConfigError, match="copy the newest one from any party's kit"):
        revoke(kits, "b")
    shutil.copyfile(kits / "a" / ROSTER, kits / "ca" / ROSTER)
    revoke(kits, "b")


def test_one_command_at_a_time(kits: Path) -> None:
    held = os.open(kits / "ca", os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(ConfigError, match="another secfc command is using this authority"):
            revoke(kits, "b")
    finally:
        os.close(held)
    revoke(kits, "b")


def test_pins_without_a_source_let_everybody_through() -> None:
    bare = Pins()
    bare.check("a", b"anything")
    bare.remember(Path("/nowhere"))
    assert (bare.roster, bare.anchor("a")) == (None, None)
