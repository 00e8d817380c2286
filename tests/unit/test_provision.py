"""Provisioning: the folders, their permissions, the certificates' extensions and the command."""

from __future__ import annotations

import ipaddress
import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from secfc.agreement import federation as federations
from secfc.commands import passphrases
from secfc.commands.provision import command
from secfc.errors import ConfigError
from secfc.pki import authority, keyfile, kit
from secfc.pki.provision import Provisioned, issue_certificate, make_authority, make_key, provision, spoken

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
address = "coord.example:7000"
names = ["192.0.2.7", "other.example", "coord.example"]
[[client]]
name = "a"
address = "[::1]:7001"
[[client]]
name = "b"
address = "10.0.0.2:7001"
"""
FEDERATION = federations.parse(TEXT, "federation.toml")
NOW = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Provisioned:
    return provision(FEDERATION, tmp_path_factory.mktemp("made") / "deep" / "kits", days=30, now=NOW)


def certificate(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_layout_and_permissions(made: Provisioned) -> None:
    out = made.ca.parent
    assert sorted(path.name for path in out.iterdir()) == ["a", "b", "ca", "server"]
    assert made.kits == (out / "server", out / "a", out / "b")
    assert sorted(path.name for path in made.ca.iterdir()) == ["ca.key", "ca.pem", "roster.json"]
    for folder in made.kits:
        assert sorted(p.name for p in folder.iterdir()) == [
            "ca.pem",
            "cert.pem",
            "federation.toml",
            "key.pem",
            "roster.json",
        ]
        assert mode(folder / "key.pem") == 0o600
        assert federations.load(folder / "federation.toml") == FEDERATION
        for same in ("ca.pem", "roster.json"):
            assert (folder / same).read_bytes() == (made.ca / same).read_bytes()
    assert mode(made.ca / "ca.key") == 0o600
    assert {mode(folder) for folder in (out, made.ca, *made.kits)} == {0o700}


def test_keys_are_private_under_any_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        made = provision(FEDERATION, tmp_path / "kits")
    finally:
        os.umask(before)
    assert {mode(folder / "key.pem") for folder in made.kits} == {0o600}
    assert mode(made.ca / "ca.key") == 0o600
    assert {mode(folder) for folder in (made.ca, *made.kits)} == {0o700}


def test_authority(made: Provisioned) -> None:
    ca = certificate(made.ca / "ca.pem")
    ca.verify_directly_issued_by(ca)
    constraints = ca.extensions.get_extension_for_class(x509.BasicConstraints)
    assert (constraints.critical, constraints.value) == (True, x509.BasicConstraints(True, 0))
    usage = ca.extensions.get_extension_for_class(x509.KeyUsage)
    assert usage.critical
    assert (usage.value.key_cert_sign, usage.value.digital_signature) == (True, False)
    assert ca.not_valid_after_utc > made.expires


def test_leaf_extensions(made: Provisioned) -> None:
    ca, leaf = certificate(made.ca / "ca.pem"), certificate(made.kits[0] / "cert.pem")
    leaf.verify_directly_issued_by(ca)
    get = leaf.extensions.get_extension_for_class
    constraints, usage = get(x509.BasicConstraints), get(x509.KeyUsage)
    assert (constraints.critical, constraints.value.ca, usage.critical) == (True, False, True)
    assert (usage.value.key_cert_sign, usage.value.digital_signature) == (False, True)
    assert set(get(x509.ExtendedKeyUsage).value) == {
        ExtendedKeyUsageOID.SERVER_AUTH,
        ExtendedKeyUsageOID.CLIENT_AUTH,
    }
    issuer = ca.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value.digest
    assert get(x509.AuthorityKeyIdentifier).value.key_identifier == issuer
    assert get(x509.SubjectKeyIdentifier).value.digest != issuer
    assert leaf.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value == "server"
    assert isinstance(leaf.signature_hash_algorithm, SHA256)
    key = leaf.public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    assert isinstance(key.curve, ec.SECP256R1)


def test_names(made: Provisioned) -> None:
    def names(folder: Path) -> tuple[list[str], list[object]]:
        san = certificate(folder / "cert.pem").extensions.get_extension_for_class(x509.SubjectAlternativeName)
        return san.value.get_values_for_type(x509.DNSName), list(san.value.get_values_for_type(x509.IPAddress))

    server, a, b = made.kits
    assert names(server) == (
        ["server.trial.secfc.internal", "coord.example", "other.example"],
        [ipaddress.ip_address("192.0.2.7")],
    )
    assert names(a) == (["a.trial.secfc.internal"], [ipaddress.ip_address("::1")])
    assert names(b) == (["b.trial.secfc.internal"], [ipaddress.ip_address("10.0.0.2")])


def test_dates(made: Provisioned) -> None:
    assert made.expires == NOW + timedelta(days=30)
    for folder in made.kits:
        leaf = certificate(folder / "cert.pem")
        assert leaf.not_valid_before_utc == NOW - timedelta(days=1), "a clock may be an hour behind"
        assert leaf.not_valid_after_utc == made.expires


def test_keys_and_serials_differ(made: Provisioned) -> None:
    leaves = [certificate(folder / "cert.pem") for folder in made.kits]
    assert len({leaf.serial_number for leaf in leaves}) == 3
    assert len({(folder / "key.pem").read_bytes() for folder in made.kits}) == 3


def test_certificate_ends_with_its_authority() -> None:
    authority = make_authority("trial", days=10, now=NOW)
    leaf = issue_certificate(authority, make_key().public_key(), "a", ["a.trial.secfc.internal"], 365, now=NOW)
    assert leaf.not_valid_after_utc == NOW + timedelta(days=10)
    assert "PrivateKey" not in repr(authority)


def test_refuses_to_overwrite(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("x")
    with pytest.raises(ConfigError, match="is not empty"):
        provision(FEDERATION, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]
    with pytest.raises(ConfigError, match="cannot be made a folder"):
        provision(FEDERATION, tmp_path / "precious")


def test_empty_folder_is_used(tmp_path: Path) -> None:
    assert kit.load(provision(FEDERATION, tmp_path).kits[1]).party_name == "a"


@pytest.mark.parametrize("days", [0, -1, 3651])
def test_refuses_silly_lifetimes(tmp_path: Path, days: int) -> None:
    with pytest.raises(ConfigError, match="choose 1 to 3650"):
        provision(FEDERATION, tmp_path, days=days)
    assert not list(tmp_path.iterdir())


def run(tmp_path: Path, *options: str) -> str:
    (tmp_path / "federation.toml").write_text(TEXT)
    arguments = [str(tmp_path / "federation.toml"), "--out", str(tmp_path / "kits"), "--no-passphrase", *options]
    result = CliRunner(env={"COLUMNS": "200"}).invoke(command, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_command_json(tmp_path: Path) -> None:
    report = json.loads(run(tmp_path, "--json", "--days", "7"))
    assert report["digest"] == FEDERATION.agreed().hex()
    assert report["authority_fingerprint"] == spoken(certificate(tmp_path / "kits/ca/ca.pem").fingerprint(SHA256()))
    assert [one["party"] for one in report["kits"]] == ["server", "a", "b"]
    assert report["kits"][1]["names"] == ["a.trial.secfc.internal", "::1"]
    left = datetime.fromisoformat(report["expires"]) - datetime.now(UTC)
    assert timedelta(days=6) < left < timedelta(days=7)
    for one in report["kits"]:
        assert kit.load(one["path"]).party_name == one["party"]


def test_command_table(tmp_path: Path) -> None:
    output = run(tmp_path)
    for expected in ("addresses in the certificate", "offline", "secfc-server --kit"):
        assert expected in output


def test_command_lets_our_errors_through(tmp_path: Path) -> None:
    run(tmp_path)
    with pytest.raises(ConfigError, match="is not empty"):
        run(tmp_path)


# --- the authority's key ---------------------------------------------------------------------------------------------

PASSPHRASE = "correct horse battery staple"


@pytest.fixture
def cheap_scrypt(monkeypatch: pytest.MonkeyPatch) -> None:
    assert keyfile._COST["n"] >= 1 << 17
    monkeypatch.setitem(keyfile._COST, "n", 1 << 10)


def ask_nobody() -> str:
    raise AssertionError("this key needs no passphrase")


@pytest.mark.usefixtures("cheap_scrypt")
def test_the_authoritys_key_is_encrypted(tmp_path: Path) -> None:
    ca = provision(FEDERATION, tmp_path / "kits", ca_only=True, passphrase=PASSPHRASE).ca
    pem = (ca / "ca.key").read_bytes()
    assert mode(ca / "ca.key") == 0o600
    for password in (None, PASSPHRASE.encode()):  # neither open, nor behind the cheap derivation of PKCS#8 alone
        with pytest.raises((TypeError, ValueError)):
            serialization.load_pem_private_key(pem, password)
    opened = authority.load(ca, "trial", lambda: PASSPHRASE)
    assert opened.key.public_key() == certificate(ca / "ca.pem").public_key()
    with pytest.raises(ConfigError, match="the passphrase does not open this key") as caught:
        authority.load(ca, "trial", lambda: "correct horse battery")
    assert "horse" not in str(caught.value)


def test_an_open_key_asks_for_nothing(tmp_path: Path) -> None:
    ca = provision(FEDERATION, tmp_path / "kits", ca_only=True).ca
    assert authority.load(ca, "trial", ask_nobody).certificate == certificate(ca / "ca.pem")


def test_a_passphrase_that_is_too_short_makes_nothing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="at least 12 characters"):
        provision(FEDERATION, tmp_path / "kits", passphrase="secret")
    assert not (tmp_path / "kits").exists()


def invoke(tmp_path: Path, *options: str, **settings: str) -> Result:
    (tmp_path / "federation.toml").write_text(TEXT)
    arguments = [str(tmp_path / "federation.toml"), "--out", str(tmp_path / "kits"), "--ca-only", *options]
    return CliRunner().invoke(command, arguments, **settings)


def test_without_a_terminal_nobody_is_asked(tmp_path: Path) -> None:
    done = invoke(tmp_path)
    assert isinstance(done.exception, ConfigError)
    assert "there is no terminal; give --passphrase-file FILE, or --no-passphrase" in str(done.exception)
    assert not (tmp_path / "kits").exists()


@pytest.mark.usefixtures("cheap_scrypt")
def test_on_a_terminal_it_is_asked_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passphrases, "_check_terminal", lambda _: None)
    done = invoke(tmp_path, input=f"{PASSPHRASE}\nanother one\n{PASSPHRASE}\n{PASSPHRASE}\n")
    assert done.exit_code == 0, done.output
    assert PASSPHRASE not in done.output
    authority.load(tmp_path / "kits" / "ca", "trial", lambda: PASSPHRASE)


@pytest.mark.usefixtures("cheap_scrypt")
def test_from_a_file_that_is_its_owners_only(tmp_path: Path) -> None:
    file = tmp_path / "passphrase"
    file.write_text(f"{PASSPHRASE}\n")
    file.chmod(0o644)
    assert "users other than its owner have access" in str(invoke(tmp_path, "--passphrase-file", str(file)).exception)
    file.chmod(0o600)
    assert invoke(tmp_path, "--passphrase-file", str(file)).exit_code == 0
    authority.load(tmp_path / "kits" / "ca", "trial", lambda: PASSPHRASE)
    file.write_text("\n")
    assert "holds no passphrase" in str(invoke(tmp_path, "--passphrase-file", str(file)).exception)


@pytest.mark.parametrize("uploads", ["masked", "open"])
def test_what_weaker_uploads_mean_is_said_in_one_line(tmp_path: Path, uploads: str) -> None:
    quiet = invoke(tmp_path, "--no-passphrase")
    assert "warning" not in quiet.stderr
    chosen = tmp_path / "chosen.toml"
    chosen.write_text(f'uploads = "{uploads}"\n{TEXT}')
    done = CliRunner().invoke(command, [str(chosen), "--out", str(tmp_path / "more"), "--ca-only", "--no-passphrase"])
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("warning")]
    assert line.startswith(f"warning: {uploads} uploads: ")
    assert "can compute" in line


def test_no_passphrase_is_said_aloud(tmp_path: Path) -> None:
    done = invoke(tmp_path, "--no-passphrase")
    assert "is NOT encrypted" in done.stderr
    both = invoke(tmp_path, "--no-passphrase", "--passphrase-file", "x")
    assert both.exit_code == 2
