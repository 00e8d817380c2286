"""Certificates: an authority for one federation, and a kit (folder) for each party.

Mutual TLS decides who speaks, so who a party *is* stands in its certificate: the DNS name `identity(...)`,
of which each certificate holds exactly one. All keys are P-256 with SHA-256: every TLS stack accepts them.

    OUT/ca/       ca.pem  ca.key  roster.json                   the authority; keep it offline after this
    OUT/<party>/  federation.toml  ca.pem  cert.pem  key.pem  roster.json    for "server" and each client
    OUT/<client>/link.key                                       with ids = "linked", or where jobs are submitted: one secret,
                                                                the same for all clients
                                                                (where columns are split, for those that hold some)

roster.json says which certificates are in force (`signedroster`); it is signed by the authority and the same everywhere.

`provision` makes all of it at once. With `enrolment`, parties make their keys themselves; certificates come from the same
`certify`, so both ways give the same kits.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from secfc.agreement.federation import LINK_KEY, Federation, dumps, identity
from secfc.agreement.parties import Party
from secfc.errors import ConfigError
from secfc.pki import keyfile, roles, signedroster
from secfc.pki.certificates import SUBMITTER_URI
from secfc.privacy import identifiers

MAX_DAYS = 3650
AUTHORITY_DAYS = 3650  # the authority outlives the kits, so that one kit can be renewed without renewing all
AUTHORITY_OF = "SecFC authority of "
CLOCK_SKEW = timedelta(days=1)  # a certificate made just now must hold on a machine whose clock is behind


@dataclass(frozen=True)
class Authority:
    """The federation's certificate authority; its key never prints."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey = field(repr=False)


@dataclass(frozen=True)
class Provisioned:
    """What `provision` made: the kits (server first), the authority's folder and fingerprint, when the kits (else the
    authority) expire."""

    kits: tuple[Path, ...]
    ca: Path
    expires: datetime
    authority: str


def provision(
    federation: Federation,
    out: Path,
    *,
    days: int = 365,
    now: datetime | None = None,
    ca_only: bool = False,
    passphrase: str | None = None,
    submitters: tuple[str, ...] = (),
) -> Provisioned:
    """Make the authority and (unless `ca_only`) every party's kit under `out`, which must be new or empty. `submitters` may
    submit jobs: those of them that are no clients get kits of their own.

    The authority's key is encrypted with `passphrase`; None leaves it to the file's permissions, for an authority that is
    thrown away (the command line asks for one unless told otherwise)."""
    now = now or datetime.now(UTC)
    check_days(days)
    if passphrase is not None:
        keyfile.check_new(passphrase)
    make_empty_folder(out)
    authority = make_authority(federation.name, days=max(days, AUTHORITY_DAYS), now=now)
    others = [roles.party(federation, name, submits=True) for name in submitters if name not in federation.roster]
    parties = () if ca_only else (federation.server, *federation.clients, *others)
    try:
        _write_authority(authority, out / "ca", passphrase)
        leaves = [
            _write_kit(authority, federation, party, out, days=days, now=now, submits=party.name in submitters)
            for party in parties
        ]
        roster = signedroster.first(federation.name, now, dict(zip((p.name for p in parties), leaves, strict=True)))
        content = signedroster.dump(roster, authority.key)
        for folder in ("ca", *(party.name for party in parties)):
            write_public(out / folder / signedroster.FILE, content)
        if federation.stays or federation.job.ids == "linked":
            write_link_keys([out / name for name in _holders(federation)])
    except OSError as error:
        complaint = f"{error.filename or out}: cannot be written ({error.strerror})"
        raise ConfigError(f"{complaint}; delete what is in {out} and provision again") from error
    kits = tuple(out / party.name for party in parties)
    expires = min(one.not_valid_after_utc for one in leaves or [authority.certificate])
    return Provisioned(kits, out / "ca", expires, authority_fingerprint(authority.certificate))


def subject_names(federation_name: str, party: Party) -> tuple[str, ...]:
    """All names of a party's certificate: its identity, the host others dial if they do, the file's extra names."""
    hosts = (party.host,) if party.address else ()
    return tuple(dict.fromkeys((identity(federation_name, party.name), *hosts, *party.names)))


def make_key() -> ec.EllipticCurvePrivateKey:
    """A fresh P-256 key."""
    return ec.generate_private_key(ec.SECP256R1())


def authority_name(federation_name: str) -> x509.Name:
    """Whom the authority's certificate names."""
    return _common_name(AUTHORITY_OF + federation_name)


def make_authority(federation_name: str, *, days: int, now: datetime) -> Authority:
    """A self-signed authority that can sign parties' certificates, and no further authorities."""
    key = make_key()
    name = authority_name(federation_name)
    builder = _builder(name, name, key.public_key(), key, (now, now + timedelta(days=days)), authority=True)
    return Authority(builder.sign(key, hashes.SHA256()), key)


def certify(
    authority: Authority,
    federation: Federation,
    party: Party,
    public_key: ec.EllipticCurvePublicKey,
    *,
    days: int,
    now: datetime,
    submits: bool = False,
) -> x509.Certificate:
    """This party's certificate. What it says comes from the federation file, never from whoever asks for it; whether it
    `submits` jobs, whoever keeps the authority decides."""
    names = (*subject_names(federation.name, party), *([SUBMITTER_URI] if submits else []))
    return issue_certificate(authority, public_key, party.name, names, days, now=now)


def issue_certificate(
    authority: Authority,
    public_key: ec.EllipticCurvePublicKey,
    subject_name: str,
    sans: Iterable[str],
    days: int,
    *,
    now: datetime | None = None,
) -> x509.Certificate:
    """A party's certificate for both ends of TLS. It ends with its authority's, at the latest."""
    now = now or datetime.now(UTC)
    issuer = authority.certificate
    until = min(now + timedelta(days=days), issuer.not_valid_after_utc)
    both_ends = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
    names = x509.SubjectAlternativeName([_general_name(name) for name in sans])
    subject = _common_name(subject_name)
    builder = _builder(subject, issuer.subject, public_key, authority.key, (now, until), authority=False)
    builder = builder.add_extension(both_ends, critical=False).add_extension(names, critical=False)
    return builder.sign(authority.key, hashes.SHA256())


def check_days(days: int) -> None:
    """Refuse a lifetime that nobody can mean."""
    if not 1 <= days <= MAX_DAYS:
        raise ConfigError(f"certificates cannot last {days} days; choose 1 to {MAX_DAYS}")


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public_key: ec.EllipticCurvePublicKey,
    signer: ec.EllipticCurvePrivateKey,
    period: tuple[datetime, datetime],
    *,
    authority: bool,
) -> x509.CertificateBuilder:
    """What authority and leaf have in common. By the key identifiers a verifier finds the issuer."""
    constraints = x509.BasicConstraints(ca=authority, path_length=0 if authority else None)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(period[0] - CLOCK_SKEW)
        .not_valid_after(period[1])
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        .add_extension(constraints, critical=True)
        .add_extension(_key_usage(authority=authority), critical=True)
    )


def _common_name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _key_usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(name: str) -> x509.GeneralName:
    if name == SUBMITTER_URI:
        return x509.UniformResourceIdentifier(name)
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def make_empty_folder(out: Path) -> None:
    """Overwriting keys that are in use would lock every party out, so an `out` with content is refused."""
    try:
        out.mkdir(mode=0o700, parents=True, exist_ok=True)
        occupied = any(out.iterdir())
    except OSError as error:
        raise ConfigError(f"{out}: cannot be made a folder ({error.strerror}); choose another --out") from error
    if occupied:
        raise ConfigError(f"{out}: is not empty, and kits are never overwritten; choose a new folder or empty it")


def _write_authority(authority: Authority, folder: Path, passphrase: str | None) -> None:
    folder.mkdir(mode=0o700)
    salt = authority.certificate.fingerprint(hashes.SHA256())
    write_private(folder / "ca.key", keyfile.dump(authority.key, passphrase, salt))
    write_public(folder / "ca.pem", certificate_pem(authority.certificate))


def _write_kit(
    authority: Authority, federation: Federation, party: Party, out: Path, *, days: int, now: datetime, submits: bool
) -> x509.Certificate:
    key, folder = make_key(), out / party.name
    certificate = certify(authority, federation, party, key.public_key(), days=days, now=now, submits=submits)
    folder.mkdir(mode=0o700)
    write_private(folder / "key.pem", private_pem(key))
    write_public_part(authority, federation, certificate, folder)
    return certificate


def _holders(federation: Federation) -> tuple[str, ...]:
    """Clients that may have rows to name."""
    return federation.roster if federation.stays else federation.holders or federation.roster


def write_link_keys(kits: Iterable[Path]) -> None:
    """The clients' common key for linked IDs; the server never gets it."""
    key = os.urandom(identifiers.KEY_BYTES).hex().encode() + b"\n"
    for folder in kits:
        write_private(folder / LINK_KEY, key)


def write_public_part(
    authority: Authority, federation: Federation, certificate: x509.Certificate, folder: Path
) -> None:
    """A kit without its key."""
    write_public(folder / "cert.pem", certificate_pem(certificate))
    write_public(folder / "ca.pem", certificate_pem(authority.certificate))
    write_public(folder / "federation.toml", dumps(federation).encode())


def spoken(digest: bytes) -> str:
    """A digest as people read it out: hexadecimal, in groups of four."""
    text = digest.hex()
    return " ".join(text[i : i + 4] for i in range(0, len(text), 4))


def authority_fingerprint(certificate: x509.Certificate) -> str:
    """What people compare before they trust an authority: SHA-256 of its whole certificate."""
    return spoken(certificate.fingerprint(hashes.SHA256()))


def certificate_pem(certificate: x509.Certificate) -> bytes:
    """A certificate as PEM."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """A private key as PKCS#8 PEM, not encrypted: permissions protect it, and daemons can start."""
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def write_private(path: Path, content: bytes) -> None:
    """A new file for its owner only."""
    _write(path, content, 0o600)


def write_public(path: Path, content: bytes) -> None:
    """A new file that anybody may read."""
    _write(path, content, 0o644)


def _write(path: Path, content: bytes, mode: int) -> None:
    """A new file that never had a wider mode than this, not even while it was empty."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
