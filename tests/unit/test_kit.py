"""Kits: what is checked, in which words it fails, and signatures against hostile certificates."""

from __future__ import annotations

import os
import shutil
import ssl
import warnings
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from secfc.agreement import federation as federations
from secfc.errors import ConfigError, WrongSender
from secfc.pki import certificates, kit
from secfc.pki.kit import Kit
from secfc.pki.provision import (
    Authority,
    certificate_pem,
    issue_certificate,
    make_authority,
    make_key,
    private_pem,
    provision,
)

TEXT = """
name = "trial"
privacy = 1

[job]
k = 2
max_rows = 10
features = 2
bound = 1
precision = 8
[server]
address = "127.0.0.1:7000"
[[client]]
name = "a"
address = "127.0.0.1:7001"
[[client]]
name = "b"
address = "127.0.0.1:7002"
"""
FEDERATION = federations.parse(TEXT, "federation.toml")
NOW = datetime.now(UTC)
calm = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a busy machine is no bug
CHECKS = ["files", "key permissions", "key matches", "chain", "dates", "identity", "roster"]


@pytest.fixture(scope="module")
def kits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return provision(FEDERATION, tmp_path_factory.mktemp("kit") / "kits", days=30).ca.parent


@pytest.fixture
def folder(kits: Path, tmp_path: Path) -> Path:
    """A copy of a's kit, to spoil."""
    return Path(shutil.copytree(kits / "a", tmp_path / "a kit"))


def authority(kits: Path) -> Authority:
    key = serialization.load_pem_private_key((kits / "ca" / "ca.key").read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    ca = certificates.parse_certificate((kits / "ca" / "ca.pem").read_bytes(), "ca.pem")
    return Authority(ca, key)


def reissue(folder: Path, signer: Authority, *sans: str) -> None:
    """A new pair in the folder, signed by this authority, with these names, and no roster that could know it."""
    (folder / "roster.json").unlink(missing_ok=True)
    key = make_key()
    names = sans or ("a.trial.secfc.internal",)
    (folder / "key.pem").write_bytes(private_pem(key))
    leaf = issue_certificate(signer, key.public_key(), "a", names, 30, now=NOW)
    (folder / "cert.pem").write_bytes(certificate_pem(leaf))


def failed(folder: Path, now: datetime | None = None) -> dict[str, str]:
    """Failed checks by name; `load` must refuse with the first of them, in one line."""
    found = kit.findings(folder, now=now)
    assert [finding.name for finding in found] == CHECKS
    bad = {finding.name: finding.detail for finding in found if not finding.ok}
    with pytest.raises(ConfigError) as caught:
        kit.load(folder, now=now)
    assert str(caught.value) == next(iter(bad.values()))
    assert all(len(finding.detail.splitlines()) == 1 for finding in found)
    return bad


def test_every_kit_loads(kits: Path) -> None:
    for name in ("server", "a", "b"):
        loaded = kit.load(kits / name)
        assert (loaded.party_name, loaded.federation) == (name, FEDERATION)
        assert timedelta(days=29) < loaded.expires - datetime.now(UTC) < timedelta(days=30)
        assert all(finding.ok for finding in kit.findings(kits / name))
    assert "29 days left" in kit.findings(kits / "a")[4].detail


def test_key_never_prints(kits: Path) -> None:
    loaded = kit.load(kits / "a")
    assert b"PRIVATE KEY" in loaded.key_pem
    assert "PRIVATE" not in repr(loaded)
    assert "key_pem" not in repr(loaded)


@pytest.mark.parametrize("name", ["federation.toml", "ca.pem", "cert.pem", "key.pem"])
def test_missing_file(folder: Path, name: str) -> None:
    (folder / name).unlink()
    assert f"{name}: cannot be read" in failed(folder)["files"]


def test_missing_folder(tmp_path: Path) -> None:
    assert list(failed(tmp_path / "none")) == CHECKS


@pytest.mark.parametrize(
    ("name", "spoiled"),
    [
        ("ca.pem", {"files", "chain", "roster"}),
        ("cert.pem", {"files", "key matches", "chain", "dates", "identity", "roster"}),
        ("key.pem", {"files", "key matches"}),
        ("federation.toml", {"files", "identity", "roster"}),
    ],
)
@pytest.mark.parametrize("content", [b"", b"rubbish", b"#" * (2 << 20)])
def test_spoiled_file_leaves_the_other_checks(folder: Path, name: str, spoiled: set[str], content: bytes) -> None:
    (folder / name).write_bytes(content)
    assert set(failed(folder)) == spoiled


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o610])
def test_open_key_is_refused_with_the_command(folder: Path, mode: int) -> None:
    os.chmod(folder / "key.pem", mode)
    bad = failed(folder)
    assert set(bad) == {"key permissions"}
    assert f"mode {mode:04o}" in bad["key permissions"]
    assert f"run: chmod 600 '{folder}/key.pem'" in bad["key permissions"]


def test_key_of_somebody_else(folder: Path, kits: Path) -> None:
    shutil.copy(kits / "b" / "key.pem", folder / "key.pem")
    assert set(failed(folder)) == {"key matches"}


def test_keys_of_other_kinds(folder: Path) -> None:
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8)
    for key in (ed25519.Ed25519PrivateKey.generate(), ec.generate_private_key(ec.SECP384R1())):
        (folder / "key.pem").write_bytes(key.private_bytes(*form, serialization.NoEncryption()))
        assert "is not a P-256 key" in failed(folder)["files"]
    secret = make_key().private_bytes(*form, serialization.BestAvailableEncryption(b"word"))
    (folder / "key.pem").write_bytes(secret)
    assert "unencrypted" in failed(folder)["files"]


def test_other_authority_of_the_same_name(folder: Path) -> None:
    reissue(folder, make_authority("trial", days=30, now=NOW))
    bad = failed(folder)
    assert set(bad) == {"chain"}
    assert "not signed by this federation's authority" in bad["chain"]


def test_a_leaf_is_no_authority(folder: Path, kits: Path) -> None:
    """b may not make a certificate for a, although b's own certificate is good."""
    key = certificates.parse_key((kits / "b" / "key.pem").read_bytes(), "key.pem")
    leaf = certificates.parse_certificate((kits / "b" / "cert.pem").read_bytes(), "cert.pem")
    reissue(folder, Authority(leaf, key))
    assert set(failed(folder)) == {"chain"}
    shutil.copy(kits / "b" / "cert.pem", folder / "ca.pem")
    assert "may not sign" in failed(folder)["chain"]


def test_the_authority_is_no_party(folder: Path, kits: Path) -> None:
    shutil.copy(kits / "ca" / "ca.pem", folder / "cert.pem")
    shutil.copy(kits / "ca" / "ca.key", folder / "key.pem")
    assert {"chain", "identity", "roster"} == set(failed(folder))


@pytest.mark.parametrize("name", ["ca.pem", "cert.pem"])
def test_more_than_one_certificate(folder: Path, kits: Path, name: str) -> None:
    both = (folder / name).read_bytes() + certificate_pem(make_authority("x", days=1, now=NOW).certificate)
    (folder / name).write_bytes(both)
    assert "holds 2 certificates" in failed(folder)["files"]


def test_dates(folder: Path) -> None:
    late = failed(folder, datetime.now(UTC) + timedelta(days=31))
    assert set(late) == {"dates"}
    assert "expired on" in late["dates"]
    early = failed(folder, datetime.now(UTC) - timedelta(days=2))
    assert "set this machine's clock" in early["dates"]


@pytest.mark.parametrize(
    ("sans", "complaint"),
    [
        (["c.trial.secfc.internal"], "not a party of trial's"),
        (["a.other.secfc.internal"], "not a party of trial's"),
        (["x.a.trial.secfc.internal"], "not a party of trial's"),
        (["a.trial.secfc.internal", "b.trial.secfc.internal"], "holds 2 SecFC identities"),
        (["a.trial.secfc.internal", "SERVER.trial.SECFC.internal"], "holds 2 SecFC identities"),
        (["127.0.0.1", "a.example"], "holds 0 SecFC identities"),
    ],
)
def test_identity(folder: Path, kits: Path, sans: list[str], complaint: str) -> None:
    reissue(folder, authority(kits), *sans)
    bad = failed(folder)
    assert set(bad) == {"identity", "roster"}
    assert complaint in bad["identity"]


def verify(kits: Path, signer: Kit, message: bytes, signature: bytes, party: str = "a", **other: object) -> None:
    arguments = {
        "ca_pem": (kits / "ca" / "ca.pem").read_bytes(),
        "certificate_pem": signer.certificate_pem,
        "federation_name": "trial",
        "party_name": party,
        **other,
    }
    kit.verify_signature(message=message, signature=signature, **arguments)  # type: ignore[arg-type]


def test_signature(kits: Path) -> None:
    a = kit.load(kits / "a")
    signature = a.sign(b"message")
    verify(kits, a, b"message", signature)
    kit.verify_signature(a.ca_pem, a.certificate_pem, "trial", "a", b"message", signature)
    refusals: list[Callable[[], None]] = [
        lambda: verify(kits, a, b"massage", signature),
        lambda: verify(kits, a, b"message", signature[:-1]),
        lambda: verify(kits, a, b"message", b""),
        lambda: verify(kits, a, b"message", signature, "b"),
        lambda: verify(kits, a, b"message", signature, "server"),
        lambda: verify(kits, a, b"message", signature, federation_name="other"),
        lambda: verify(kits, a, b"message", signature, now=datetime.now(UTC) + timedelta(days=31)),
        lambda: verify(kits, a, b"message", signature, now=datetime.now(UTC) - timedelta(days=31)),
        lambda: verify(kits, kit.load(kits / "b"), b"message", signature),
        lambda: verify(kits, a, b"m", signature, certificate_pem=a.certificate_pem + b"\n" * 16384),
        lambda: verify(kits, a, b"m", signature, certificate_pem=a.certificate_pem * 2),
    ]
    for refusal in refusals:
        with pytest.raises(WrongSender) as caught:
            refusal()
        assert len(str(caught.value).splitlines()) == 1


def test_certificate_of_a_stranger(kits: Path, folder: Path) -> None:
    reissue(folder, make_authority("trial", days=30, now=NOW))
    key = certificates.parse_key((folder / "key.pem").read_bytes(), "key.pem")
    signature = key.sign(b"message", certificates.ECDSA)
    with pytest.raises(WrongSender, match="not signed by this federation's authority"):
        verify(
            kits,
            kit.load(kits / "a"),
            b"message",
            signature,
            certificate_pem=(folder / "cert.pem").read_bytes(),
        )


@calm
@given(certificate=st.binary(max_size=200), signature=st.binary(max_size=100), message=st.binary(max_size=50))
def test_arbitrary_bytes_are_refused(kits: Path, certificate: bytes, signature: bytes, message: bytes) -> None:
    a = kit.load(kits / "a")
    with pytest.raises(WrongSender):
        verify(kits, a, message, signature, certificate_pem=certificate)
    with pytest.raises(WrongSender):
        verify(kits, a, message, signature)


def test_a_certificate_has_no_second_encoding(kits: Path) -> None:
    """With the last bit of its signature declared unused, if it is zero, it verified, and had another digest."""
    key, last = make_key(), b"\1"
    while last[0] & 1:
        leaf = issue_certificate(authority(kits), key.public_key(), "a", ["a.trial.secfc.internal"], 30, now=NOW)
        last = leaf.signature[-1:]
    der = bytearray(leaf.public_bytes(serialization.Encoding.DER))
    der[-1 - len(leaf.signature)] = 1
    a, signature = kit.load(kits / "a"), key.sign(b"message", ec.ECDSA(hashes.SHA256()))
    verify(kits, a, b"message", signature, certificate_pem=certificate_pem(leaf))
    with pytest.raises(WrongSender, match="not encoded as DER demands"):
        verify(kits, a, b"message", signature, certificate_pem=ssl.DER_cert_to_PEM_cert(bytes(der)).encode())


@calm
@given(st.data())
def test_damaged_certificates_are_refused(kits: Path, data: st.DataObject) -> None:
    """One byte of the DER changed: parsers get further than with arbitrary bytes, and none gets through."""
    a = kit.load(kits / "a")
    leaf = certificates.parse_certificate(a.certificate_pem, "cert.pem")
    der = bytearray(leaf.public_bytes(serialization.Encoding.DER))
    place = data.draw(st.integers(0, len(der) - 1))
    der[place] ^= data.draw(st.integers(1, 255))
    pem = ssl.DER_cert_to_PEM_cert(bytes(der)).encode()
    with warnings.catch_warnings(action="ignore"), pytest.raises(WrongSender):  # of forms that will be refused
        verify(kits, a, b"message", a.sign(b"message"), certificate_pem=pem)


@calm
@given(st.binary(max_size=300))
def test_peek_of_anything(der: bytes) -> None:
    with pytest.raises(ConfigError):
        certificates.peek(der)
