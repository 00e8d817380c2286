"""Enrolment: a certificate for a key that never leaves its party, like those of `provision` and given to nobody else."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import NameOID

from secfc.agreement import federation as federations
from secfc.errors import ConfigError
from secfc.pki import acceptance, enrolment, kit, provision, signedroster
from secfc.pki import authority as authorities
from secfc.pki.provision import Authority
from secfc_client.cli import group
from tests.unit.test_provision import FEDERATION, TEXT, certificate, cheap_scrypt, mode  # noqa: F401 - a fixture

pytestmark = pytest.mark.usefixtures("cheap_scrypt")


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    made = provision.provision(FEDERATION, tmp_path / "authority", ca_only=True)
    assert made.kits == ()
    assert [path.name for path in (tmp_path / "authority").iterdir()] == ["ca"]
    assert made.expires > datetime.now(UTC) + timedelta(days=3000)
    return made.ca


def opened(authority: Path) -> Authority:
    return authorities.load(authority, FEDERATION.name, lambda: "")


def spoken(authority: Path) -> str:
    """What the authority's holder reads out."""
    return provision.authority_fingerprint(certificate(authority / "ca.pem"))


def signed(authority: Path, site: Path, out: Path, name: str = "a") -> Path:
    """A request and its answer, not accepted yet; returns the answer's folder."""
    told = enrolment.enrol(FEDERATION, name, site)
    request = enrolment.read_request((site / kit.REQUEST).read_bytes(), FEDERATION)
    assert request == told
    enrolment.sign(opened(authority), authority, FEDERATION, request, told.fingerprint, out)
    return out


def answered(authority: Path, site: Path, out: Path, name: str = "a") -> Path:
    """The whole exchange; returns the site's kit."""
    assert acceptance.accept(site, signed(authority, site, out, name), spoken(authority)) == name
    return site


@pytest.mark.parametrize("name", ["a", "server"])
def test_a_kit_whose_key_never_left_its_site(tmp_path: Path, authority: Path, name: str) -> None:
    site = answered(authority, tmp_path / "site", tmp_path / "answer", name)
    assert kit.load(site).party_name == name
    assert mode(site / "key.pem") == 0o600
    key = (site / "key.pem").read_text().splitlines()[1]
    for path in [*(tmp_path / "answer").iterdir(), *authority.iterdir()]:
        assert key not in path.read_text(), path
    public = ["ca.pem", "cert.pem", "federation.toml", "roster.json"]
    assert sorted(path.name for path in (tmp_path / "answer").iterdir()) == public
    assert sorted(path.name for path in site.iterdir()) == sorted([*public, "key.pem"])


def test_certificates_are_those_of_provision(tmp_path: Path, authority: Path) -> None:
    """Same subject and extensions but for the key identifiers, which follow from the keys."""
    enrolled = certificate(answered(authority, tmp_path / "site", tmp_path / "answer") / "cert.pem")
    usual = certificate(provision.provision(FEDERATION, tmp_path / "kits").kits[1] / "cert.pem")

    def shape(one: x509.Certificate) -> list[object]:
        own = (x509.SubjectKeyIdentifier, x509.AuthorityKeyIdentifier)
        return [
            one.subject,
            one.version,
            *((e.oid, e.critical, None if isinstance(e.value, own) else e.value) for e in one.extensions),
        ]

    assert shape(enrolled) == shape(usual)
    assert abs(enrolled.not_valid_after_utc - usual.not_valid_after_utc) < timedelta(minutes=5)


def test_a_fingerprint_nobody_read_out_is_refused(tmp_path: Path, authority: Path) -> None:
    enrolment.enrol(FEDERATION, "a", tmp_path / "site")
    request = enrolment.read_request((tmp_path / "site" / kit.REQUEST).read_bytes(), FEDERATION)
    other = enrolment.fingerprint(provision.make_key().public_key())
    loaded = opened(authority)
    for heard in (other, "", request.fingerprint[:-1]):
        with pytest.raises(ConfigError, match="somebody else may have made this request") as caught:
            enrolment.sign(loaded, authority, FEDERATION, request, heard, tmp_path / "answer")
        assert request.fingerprint not in str(caught.value), "it would be pasted into the next try"
    assert not (tmp_path / "answer").exists()
    assert authorities.current(authority, "trial").version == 1
    heard = request.fingerprint.upper().replace(" ", ":")
    enrolment.sign(loaded, authority, FEDERATION, request, heard, tmp_path / "answer")


def pem_of(
    key: ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey, subject: dict[x509.ObjectIdentifier, str]
) -> bytes:
    names = x509.Name([x509.NameAttribute(oid, text) for oid, text in subject.items()])
    algorithm = None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    request = x509.CertificateSigningRequestBuilder().subject_name(names).sign(key, algorithm)
    return request.public_bytes(serialization.Encoding.PEM)


GOOD = {
    NameOID.ORGANIZATION_NAME: "trial",
    NameOID.COMMON_NAME: "a",
    NameOID.SERIAL_NUMBER: FEDERATION.agreed().hex(),
}
STRANGE = dataclasses.replace(FEDERATION, job=dataclasses.replace(FEDERATION.job, k=1))


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({NameOID.COMMON_NAME: "zebra"}, "is not a client of trial"),
        ({NameOID.COMMON_NAME: "ca"}, "is not a client of trial"),
        ({NameOID.ORGANIZATION_NAME: "other"}, "another federation, not trial"),
        ({NameOID.SERIAL_NUMBER: STRANGE.agreed().hex()}, "a enrolled with a different federation.toml"),
    ],
)
def test_requests_for_something_else(changed: dict[x509.ObjectIdentifier, str], complaint: str) -> None:
    key = provision.make_key()
    assert enrolment.read_request(pem_of(key, GOOD), FEDERATION).party.name == "a"
    with pytest.raises(ConfigError, match=complaint):
        enrolment.read_request(pem_of(key, GOOD | changed), FEDERATION)


def test_requests_that_are_none() -> None:
    p384 = ec.generate_private_key(ec.SECP384R1())
    for pem in (b"", b"\0" * 100, b"-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n"):
        with pytest.raises(ConfigError, match="not a PEM signing request"):
            enrolment.read_request(pem, FEDERATION)
    for key in (p384, ed25519.Ed25519PrivateKey.generate()):
        with pytest.raises(ConfigError, match="not on P-256"):
            enrolment.read_request(pem_of(key, GOOD), FEDERATION)
    with pytest.raises(ConfigError, match="does not say whose"):
        enrolment.read_request(pem_of(provision.make_key(), {NameOID.COMMON_NAME: "a"}), FEDERATION)


def test_a_request_must_prove_that_its_key_is_its_makers() -> None:
    """Somebody puts the key of another's certificate into a request: the signature cannot fit."""
    pem = pem_of(provision.make_key(), GOOD)
    der = bytearray(x509.load_pem_x509_csr(pem).public_bytes(serialization.Encoding.DER))
    der[-4] ^= 1
    forged = x509.load_der_x509_csr(bytes(der)).public_bytes(serialization.Encoding.PEM)
    with pytest.raises(ConfigError, match="not signed by its own key"):
        enrolment.read_request(forged, FEDERATION)


def test_authorities_that_are_none(tmp_path: Path, authority: Path) -> None:
    with pytest.raises(ConfigError, match="is not the authority of another but of another federation"):
        authorities.load(authority, "another", lambda: "")
    with pytest.raises(ConfigError, match="not valid now"):
        authorities.load(authority, "trial", lambda: "", datetime.now(UTC) + timedelta(days=4000))
    (authority / "ca.key").chmod(0o640)
    with pytest.raises(ConfigError, match="users other than its owner have access"):
        opened(authority)
    (authority / "ca.key").unlink()
    descriptor = os.open(authority / "ca.key", os.O_WRONLY | os.O_CREAT, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(provision.private_pem(provision.make_key()))
    with pytest.raises(ConfigError, match=r"ca\.key does not belong to ca\.pem"):
        opened(authority)


def test_nothing_is_overwritten(tmp_path: Path, authority: Path) -> None:
    site = answered(authority, tmp_path / "site", tmp_path / "answer")
    before = (site / "key.pem").read_bytes()
    with pytest.raises(ConfigError, match="is not empty"):
        enrolment.enrol(FEDERATION, "a", site)
    assert (site / "key.pem").read_bytes() == before
    with pytest.raises(ConfigError, match="is not a client of trial"):
        enrolment.enrol(FEDERATION, "zebra", tmp_path / "zebra")
    assert not (tmp_path / "zebra").exists()


# --- the authority's answer ------------------------------------------------------------------------------------------


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def refused(site: Path, answer: Path, heard: str | None, complaint: str) -> str:
    """The answer is not taken, nothing in the kit changes, and no program runs with it."""
    before = contents(site)
    with pytest.raises(ConfigError, match=complaint) as caught:
        acceptance.accept(site, answer, heard)
    assert contents(site) == before
    with pytest.raises(ConfigError, match=r"is not accepted yet; when it is here, run: secfc accept --kit"):
        kit.load(site)
    return str(caught.value)


@pytest.fixture
def rival(tmp_path: Path) -> Path:
    """An authority for the same federation, of somebody who carries answers."""
    return provision.provision(FEDERATION, tmp_path / "rival", ca_only=True).ca


def swapped(rival: Path, site: Path, out: Path) -> Path:
    """What the carrier makes of the site's own request: everything in it fits together, and to the site's key."""
    request = enrolment.read_request((site / kit.REQUEST).read_bytes(), FEDERATION)
    enrolment.sign(opened(rival), rival, FEDERATION, request, request.fingerprint, out)
    return out


def test_a_swapped_answer_is_refused(tmp_path: Path, authority: Path, rival: Path) -> None:
    """The attack: ca.pem, cert.pem and roster.json of another authority, for the site's own key."""
    site = tmp_path / "site"
    genuine = signed(authority, site, tmp_path / "genuine")
    forged = swapped(rival, site, tmp_path / "forged")
    said = refused(site, forged, spoken(authority), "somebody may have swapped the answer")
    assert spoken(rival) not in said, "it would be pasted into the next try"
    for heard in ("", spoken(authority)[:-1]):
        refused(site, genuine, heard, "somebody may have swapped the answer")
    refused(site, forged, None, "has not accepted that authority before")
    assert acceptance.accept(site, genuine, spoken(authority).upper()) == "a"
    assert kit.load(site).party_name == "a"


def test_a_swapped_answer_put_into_the_kit_by_hand_is_refused(tmp_path: Path, authority: Path, rival: Path) -> None:
    """The same without `accept`, as it was once done: no program runs with such a kit, whoever signed it."""
    for signer, name in ((rival, "forged"), (authority, "genuine")):
        site = tmp_path / name
        answer = signed(signer, site, tmp_path / f"{name}-answer")
        for file in ("ca.pem", "cert.pem", "roster.json"):
            (site / file).write_bytes((answer / file).read_bytes())
        with pytest.raises(ConfigError, match="secfc accept --kit"):
            kit.load(site)
    refused(tmp_path / "forged", tmp_path / "forged", None, "has not accepted that authority before")
    assert acceptance.accept(tmp_path / "genuine", tmp_path / "genuine", spoken(authority)) == "a"


def test_parts_of_another_answer_are_refused(tmp_path: Path, authority: Path, rival: Path) -> None:
    site = tmp_path / "site"
    genuine = signed(authority, site, tmp_path / "genuine")
    forged = swapped(rival, site, tmp_path / "forged")
    for file, complaint in (
        ("cert.pem", "not signed by this federation"),
        ("roster.json", "not signed by the authority"),
    ):
        mixed = Path(shutil.copytree(genuine, tmp_path / f"mixed-{file}"))
        (mixed / file).write_bytes((forged / file).read_bytes())
        refused(site, mixed, spoken(authority), complaint)
    others = signed(authority, tmp_path / "b", tmp_path / "b-answer", "b")
    refused(site, others, spoken(authority), "is for another key")
    (genuine / "roster.json").write_bytes((tmp_path / "authority/ca/roster.json").read_bytes())
    acceptance.accept(site, genuine, spoken(authority))  # a newer roster in an older answer


def test_an_answer_as_another_party_is_refused(tmp_path: Path, authority: Path) -> None:
    """The authority is honest but mistaken, or its holder is not: a site does not become somebody else unawares."""
    enrolment.enrol(FEDERATION, "a", tmp_path / "site")
    key = enrolment.read_request((tmp_path / "site" / kit.REQUEST).read_bytes(), FEDERATION).public_key
    wrong = enrolment.Request(FEDERATION.party("b"), key)
    enrolment.sign(opened(authority), authority, FEDERATION, wrong, wrong.fingerprint, tmp_path / "answer")
    refused(tmp_path / "site", tmp_path / "answer", spoken(authority), "is for b, but this kit asked to be a")


def test_one_certificate_is_renewed_with_the_same_key(tmp_path: Path, authority: Path, rival: Path) -> None:
    site = tmp_path / "site"
    signed(authority, site, tmp_path / "answer")
    request = (site / kit.REQUEST).read_bytes()
    acceptance.accept(site, tmp_path / "answer", spoken(authority))
    old = (site / "cert.pem").read_bytes()
    kept = enrolment.read_request(request, FEDERATION)
    enrolment.sign(opened(authority), authority, FEDERATION, kept, kept.fingerprint, tmp_path / "second")
    enrolment.sign(opened(rival), rival, FEDERATION, kept, kept.fingerprint, tmp_path / "forged")
    with pytest.raises(ConfigError, match="has not accepted that authority before"):
        acceptance.accept(site, tmp_path / "forged", None)
    acceptance.accept(site, tmp_path / "second", None)
    assert (site / "cert.pem").read_bytes() != old
    roster = kit.load(site).pins.roster
    assert roster is not None
    assert (roster.version, len(roster.certificates), roster.revoked) == (3, 1, {})


def test_an_answer_does_not_take_back_a_newer_roster(tmp_path: Path, authority: Path) -> None:
    """It was on its way for a while, and somebody was revoked meanwhile."""
    site, newest = tmp_path / "site", authority / signedroster.FILE
    signed(authority, tmp_path / "b", tmp_path / "b-answer", "b")
    answer = signed(authority, site, tmp_path / "answer")
    authorities.revoke(opened(authority), authority, "trial", "b")
    shutil.copyfile(newest, site / signedroster.FILE)
    acceptance.accept(site, answer, spoken(authority))
    assert (site / signedroster.FILE).read_bytes() == newest.read_bytes()
    authorities.revoke(opened(authority), authority, "trial", "a")
    shutil.copyfile(newest, site / signedroster.FILE)
    with pytest.raises(ConfigError, match="the certificate of a was revoked"):
        acceptance.accept(site, answer, spoken(authority))


def test_answers_that_are_none(tmp_path: Path, authority: Path) -> None:
    site = tmp_path / "site"
    genuine = signed(authority, site, tmp_path / "genuine")
    for file in acceptance.FILES:
        for content in (b"", b"\0\1\2", b'{"roster": 1}'):
            spoiled = Path(shutil.copytree(genuine, tmp_path / "spoiled", dirs_exist_ok=True))
            (spoiled / file).write_bytes(content)
            refused(site, spoiled, spoken(authority), file)
        shutil.rmtree(tmp_path / "spoiled")
    refused(site, tmp_path / "nowhere", spoken(authority), "cannot be read")


def test_commands(tmp_path: Path) -> None:
    (tmp_path / "federation.toml").write_text(TEXT)

    def run(*arguments: str) -> str:
        done = CliRunner().invoke(group, [*arguments], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.stdout

    toml, at = str(tmp_path / "federation.toml"), str
    secret = tmp_path / "passphrase"
    secret.touch(mode=0o600)
    secret.write_text("four words in a row\n")
    locked = ("--passphrase-file", at(secret))
    made = run("provision", toml, "--out", at(tmp_path / "authority"), "--ca-only", *locked)
    assert "Keep it offline" in made
    assert spoken(tmp_path / "authority" / "ca") in made
    told = json.loads(run("enroll", toml, "--as", "b", "--out", at(tmp_path / "kit"), "--json"))
    ca = ("--ca", at(tmp_path / "authority" / "ca"))
    call = ["sign", toml, told["request"], *ca, "--fingerprint", told["fingerprint"], "--out", at(tmp_path / "answer")]
    with pytest.raises(ConfigError, match=r"there is no terminal; give --passphrase-file FILE$"):
        CliRunner().invoke(group, call, catch_exceptions=False)
    answer = run(*call, *locked)
    assert "the answer for b" in answer
    assert spoken(tmp_path / "authority" / "ca") in answer
    heard = ("--authority-fingerprint", spoken(tmp_path / "authority" / "ca"))
    complete = run("accept", "--kit", at(tmp_path / "kit"), "--answer", at(tmp_path / "answer"), *heard)
    assert "the kit of b" in complete
    assert kit.load(tmp_path / "kit").party_name == "b"
    assert federations.load(tmp_path / "answer" / "federation.toml") == FEDERATION
    text = run("enroll", toml, "--as", "a", "--out", at(tmp_path / "other"))
    shown = enrolment.read_request((tmp_path / "other" / kit.REQUEST).read_bytes(), FEDERATION).fingerprint
    assert shown in text
    assert f"secfc accept --kit {tmp_path / 'other'}" in text
    revoked = json.loads(run("revoke", "b", *ca, *locked, "--json"))
    assert (revoked["party"], revoked["version"]) == ("b", 3)
    (tmp_path / "kit" / signedroster.FILE).write_bytes((tmp_path / "authority/ca/roster.json").read_bytes())
    with pytest.raises(ConfigError, match="the certificate of b was revoked"):
        kit.load(tmp_path / "kit")
