"""A party's kit: the folder with its federation file, certificate, key and the authority's certificate.

A kit is checked as a whole before anything connects, because TLS itself says so little about what is wrong.
`findings` makes every check and reports each; `load` makes the same checks and raises the first that failed.
Certificates that peers send are judged by the same functions (`certificates`).
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec

from secfc.agreement import federation as federations
from secfc.agreement.federation import Federation
from secfc.errors import ConfigError, SecfcError, WrongSender
from secfc.pki import certificates, signedroster
from secfc.pki.pins import Pins, Source
from secfc.protocol.messages import Signed

REQUEST = "request.pem"  # is in a kit from `secfc enroll` until `secfc accept`


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at, for people and machines: `detail` is one line, advice included."""

    name: str
    ok: bool
    detail: str


@dataclass(frozen=True)
class Kit:
    """A checked kit. `party_name` is what the certificate says; the key never prints. `pins`: which certificates count."""

    path: Path
    federation: Federation
    party_name: str
    certificate_pem: bytes
    key_pem: bytes = field(repr=False)
    ca_pem: bytes
    expires: datetime
    pins: Pins = field(default_factory=Pins, repr=False, compare=False)
    submits: bool = False  # whether the certificate has the right to submit jobs

    def sign(self, message: bytes) -> bytes:
        """ECDSA on P-256 with SHA-256. TLS signs with this key too: open the message with its purpose."""
        return certificates.parse_key(self.key_pem, "the kit's key").sign(message, certificates.ECDSA)


def load(path: str | Path, *, now: datetime | None = None) -> Kit:
    """The kit in this folder, or a ConfigError with the first thing that is wrong."""
    kit, found = _inspect(Path(path), now or datetime.now(UTC))
    for finding in found:
        if not finding.ok:
            raise ConfigError(finding.detail)
    if kit is None:
        raise ConfigError(f"{path}: the kit is incomplete; {certificates.RENEW}")
    return kit


def findings(path: str | Path, *, now: datetime | None = None) -> list[Finding]:
    """Every check of a kit, going on after failures: files, permissions, key, chain, dates, identity, roster."""
    return _inspect(Path(path), now or datetime.now(UTC))[1]


def verify_signature(
    ca_pem: bytes,
    certificate_pem: bytes,
    federation_name: str,
    party_name: str,
    message: bytes,
    signature: bytes,
    now: datetime | None = None,
) -> None:
    """Raise WrongSender unless this party of this federation signed, with a certificate valid now."""
    ca = certificates.parse_certificate(ca_pem, "the federation's ca.pem")
    try:
        certificate = certificates.parse_certificate(certificate_pem, "the certificate")
        certificates.check_chain(certificate, ca)
        certificates.check_dates(certificate, ca, now or datetime.now(UTC))
        if certificates.identity(certificate) != federations.identity(federation_name, party_name):
            raise ConfigError("the certificate belongs to another party")
        certificates.p256(certificate).verify(signature, message, certificates.ECDSA)
    except InvalidSignature:
        raise WrongSender(f"the signature is not that of {party_name!a}; do not trust the message") from None
    except ConfigError as error:
        raise WrongSender(f"a message that claims to be from {party_name!a} is refused: {error}") from error


def verifier(own: Kit) -> Callable[[Signed], None]:
    """Checks that a statement is signed by the very client it names, with the certificate that is in force for it.

    Raises WrongSender, or Unavailable where a newer roster may put it right."""
    digest = own.federation.agreed()

    def verify(one: Signed) -> None:
        verify_signature(
            own.ca_pem, one.certificate, own.federation.name, one.name, one.statement(digest), one.signature
        )
        own.pins.check_pem(one.name, one.certificate)

    return verify


@dataclass
class _Contents:
    """What could be read of a kit; None stands for what could not."""

    path: Path
    federation: Federation | None = None
    ca: x509.Certificate | None = None
    certificate: x509.Certificate | None = None
    key: ec.EllipticCurvePrivateKey | None = None
    pem: dict[str, bytes] = field(default_factory=dict, repr=False)

    def read(self, name: str) -> tuple[bytes, str]:
        """A file's bytes, and where they are from."""
        self.pem[name] = certificates.read_pem(self.path / name)
        return self.pem[name], str(self.path / name)


def _inspect(path: Path, now: datetime) -> tuple[Kit | None, list[Finding]]:
    """Read what can be read, then check all that was read. The kit is there only if all is well."""
    contents = _Contents(path)
    found = [_try("files", lambda: _read_files(contents))]
    found.append(_try("key permissions", lambda: check_permissions(path / "key.pem")))
    federation, ca, certificate, key = contents.federation, contents.ca, contents.certificate, contents.key
    if certificate is None:
        skipped = ("key matches", "chain", "dates", "identity", "roster")
        return None, [*found, *(_skip(name, "cert.pem") for name in skipped)]
    own = certificate
    found.append(_try("key matches", lambda: _key_matches(own, key)) if key else _skip("key matches", "key.pem"))
    found.append(_try("chain", lambda: certificates.check_chain(own, ca)) if ca else _skip("chain", "ca.pem"))
    found.append(_try("dates", lambda: certificates.check_dates(own, ca, now)))
    if federation is None:
        return None, [*found, *(_skip(name, "federation.toml") for name in ("identity", "roster"))]
    found.append(_try("identity", lambda: certificates.check_identity(own, federation)))
    if ca is None or not found[-1].ok:
        return None, [*found, _skip("roster", "ca.pem" if ca is None else "a party's name in cert.pem")]
    party_name = certificates.identity(own).partition(".")[0]
    pins, pinned = _roster(Source(path / signedroster.FILE, ca, federation.name), party_name, contents.pem["cert.pem"])
    found.append(pinned)
    if not all(finding.ok for finding in found):
        return None, found
    pem, expires = contents.pem, min(own.not_valid_after_utc, ca.not_valid_after_utc)
    pems, submits = (pem["cert.pem"], pem["key.pem"], pem["ca.pem"]), certificates.may_submit(own)
    return Kit(path, federation, party_name, *pems, expires, pins, submits), found


def _try(name: str, check: Callable[[], str]) -> Finding:
    try:
        return Finding(name, True, check())
    except ConfigError as error:
        return Finding(name, False, str(error))


def _skip(name: str, needs: str) -> Finding:
    return Finding(name, False, f"not checked, because {needs} could not be read; fix that first")


def _roster(source: Source, party_name: str, certificate_pem: bytes) -> tuple[Pins, Finding]:
    """The roster in force, by which this kit's own certificate must be in force too."""
    pins = Pins()
    try:
        pins = Pins(source)
        pins.check_pem(party_name, certificate_pem)
    except SecfcError as error:
        text = str(error)
        return pins, Finding("roster", False, text if str(source.path) in text else f"{source.path}: {text}")
    roster = pins.roster
    if roster is None:
        return pins, Finding("roster", True, "no roster.json: certificates are not pinned, and none can be revoked")
    counts = f"{len(roster.certificates)} certificates in force, {len(roster.revoked)} revoked"
    return pins, Finding("roster", True, f"version {roster.version} of {roster.issued:%Y-%m-%d}: {counts}")


def _not_accepted(path: Path) -> str:
    """What is missing between `secfc enroll` and a kit."""
    call = f"secfc accept --kit {shlex.quote(str(path))} --answer DIR --authority-fingerprint HEX"
    return f"{path}: the authority's answer to {REQUEST} is not accepted yet; when it is here, run: {call}"


def _read_files(contents: _Contents) -> str:
    """Read all four files even if one fails, so that a report shows everything; raise the first failure.

    A request whose answer nobody has accepted is the first: whoever carried the answer may have swapped it."""
    path = contents.path
    failures = [ConfigError(_not_accepted(path))] if (path / REQUEST).exists() else []

    reading: dict[str, Callable[[], object]] = {
        "federation": lambda: federations.load(path / "federation.toml"),
        "ca": lambda: certificates.parse_certificate(*contents.read("ca.pem")),
        "certificate": lambda: certificates.parse_certificate(*contents.read("cert.pem")),
        "key": lambda: certificates.parse_key(*contents.read("key.pem")),
    }
    for what, read in reading.items():
        try:
            setattr(contents, what, read())
        except ConfigError as error:
            failures.append(error)
    if failures:
        raise failures[0]
    return f"{path}: federation.toml, ca.pem, cert.pem and key.pem can be read"


def check_permissions(key_path: Path) -> str:
    """Who else can read the key can be this party."""
    try:
        mode = key_path.stat().st_mode & 0o777
    except OSError as error:
        raise ConfigError(f"{key_path}: cannot be accessed ({error.strerror}); check the path") from error
    if mode & 0o077:
        advice = f"run: chmod 600 {shlex.quote(str(key_path))}"
        raise ConfigError(f"{key_path}: users other than its owner have access (mode {mode:04o}); {advice}")
    return f"only the owner has access (mode {mode:04o})"


def _key_matches(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> str:
    if certificates.p256(certificate) != key.public_key():
        raise ConfigError("key.pem does not belong to cert.pem; put back the pair that was provisioned together")
    return "key.pem belongs to cert.pem"
