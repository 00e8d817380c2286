"""Enrolment: a certificate for a key that never leaves its party, like those of `provision` and given to nobody else."""

from __future__ import annotations

import dataclasses
import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import NameOID

from secfc import config, enrolment, kit, provision
from secfc.cli import group
from secfc.errors import ConfigError
from tests.unit.test_provision import FEDERATION, TEXT, certificate, mode


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    made = provision.provision(FEDERATION, tmp_path / "authority", ca_only=True)
    assert made.kits == ()
    assert [path.name for path in (tmp_path / "authority").iterdir()] == ["ca"]
    assert made.expires > datetime.now(UTC) + timedelta(days=3000)
    return made.ca


def answered(authority: Path, site: Path, out: Path, name: str = "a") -> Path:
    """The whole exchange; returns the site's kit."""
    told = enrolment.enrol(FEDERATION, name, site)
    request = enrolment.read_request((site / enrolment.REQUEST).read_bytes(), FEDERATION)
    assert request == told
    enrolment.sign(enrolment.load_authority(authority, FEDERATION), FEDERATION, request, told.fingerprint, out)
    for file in ("cert.pem", "ca.pem"):
        (site / file).write_bytes((out / file).read_bytes())
    return site


@pytest.mark.parametrize("name", ["a", "server"])
def test_a_kit_whose_key_never_left_its_site(tmp_path: Path, authority: Path, name: str) -> None:
    site = answered(authority, tmp_path / "site", tmp_path / "answer", name)
    assert kit.load(site).party_name == name
    assert mode(site / "key.pem") == 0o600
    key = (site / "key.pem").read_text().splitlines()[1]
    for path in [*(tmp_path / "answer").iterdir(), *authority.iterdir(), site / enrolment.REQUEST]:
        assert key not in path.read_text(), path
    assert sorted(path.name for path in (tmp_path / "answer").iterdir()) == ["ca.pem", "cert.pem", "federation.toml"]


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
    request = enrolment.read_request((tmp_path / "site" / enrolment.REQUEST).read_bytes(), FEDERATION)
    other = enrolment.fingerprint(provision.make_key().public_key())
    loaded = enrolment.load_authority(authority, FEDERATION)
    for heard in (other, "", request.fingerprint[:-1]):
        with pytest.raises(ConfigError, match="somebody else may have made this request"):
            enrolment.sign(loaded, FEDERATION, request, heard, tmp_path / "answer")
    assert not (tmp_path / "answer").exists()
    enrolment.sign(loaded, FEDERATION, request, request.fingerprint.upper().replace(" ", ":"), tmp_path / "answer")


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
    NameOID.SERIAL_NUMBER: FEDERATION.digest().hex(),
}
STRANGE = dataclasses.replace(FEDERATION, k=1)


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({NameOID.COMMON_NAME: "zebra"}, "is not a client of trial"),
        ({NameOID.COMMON_NAME: "ca"}, "is not a client of trial"),
        ({NameOID.ORGANIZATION_NAME: "other"}, "another federation than trial"),
        ({NameOID.SERIAL_NUMBER: STRANGE.digest().hex()}, "a enrolled with another federation.toml"),
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
    renamed = dataclasses.replace(FEDERATION, name="another")
    with pytest.raises(ConfigError, match="authority of another federation than another"):
        enrolment.load_authority(authority, renamed)
    with pytest.raises(ConfigError, match="not valid now"):
        enrolment.load_authority(authority, FEDERATION, datetime.now(UTC) + timedelta(days=4000))
    (authority / "ca.key").chmod(0o640)
    with pytest.raises(ConfigError, match="others than its owner have access"):
        enrolment.load_authority(authority, FEDERATION)
    (authority / "ca.key").unlink()
    descriptor = os.open(authority / "ca.key", os.O_WRONLY | os.O_CREAT, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(provision.private_pem(provision.make_key()))
    with pytest.raises(ConfigError, match=r"ca\.key does not belong to ca\.pem"):
        enrolment.load_authority(authority, FEDERATION)


def test_nothing_is_overwritten(tmp_path: Path, authority: Path) -> None:
    site = answered(authority, tmp_path / "site", tmp_path / "answer")
    before = (site / "key.pem").read_bytes()
    with pytest.raises(ConfigError, match="is not empty"):
        enrolment.enrol(FEDERATION, "a", site)
    assert (site / "key.pem").read_bytes() == before
    with pytest.raises(ConfigError, match="is not a client of trial"):
        enrolment.enrol(FEDERATION, "zebra", tmp_path / "zebra")
    assert not (tmp_path / "zebra").exists()


def test_commands(tmp_path: Path) -> None:
    (tmp_path / "federation.toml").write_text(TEXT)

    def run(*arguments: str) -> str:
        done = CliRunner().invoke(group, [*arguments], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.stdout

    toml, at = str(tmp_path / "federation.toml"), str
    assert "Keep it offline" in run("provision", toml, "--out", at(tmp_path / "authority"), "--ca-only")
    told = json.loads(run("enroll", toml, "--as", "b", "--out", at(tmp_path / "kit"), "--json"))
    ca = ("--ca", at(tmp_path / "authority" / "ca"))
    answer = run(
        "sign", toml, told["request"], *ca, "--fingerprint", told["fingerprint"], "--out", at(tmp_path / "answer")
    )
    assert "the answer for b" in answer
    for name in ("cert.pem", "ca.pem"):
        (tmp_path / "kit" / name).write_bytes((tmp_path / "answer" / name).read_bytes())
    assert kit.load(tmp_path / "kit").party_name == "b"
    assert config.load(tmp_path / "answer" / "federation.toml") == FEDERATION
    text = run("enroll", toml, "--as", "a", "--out", at(tmp_path / "other"))
    shown = enrolment.read_request((tmp_path / "other" / enrolment.REQUEST).read_bytes(), FEDERATION).fingerprint
    assert shown in text
