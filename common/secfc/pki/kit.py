"""A party's kit: the folder with its federation file, certificate, key and the authority's certificate.

A kit is checked as a whole before anything connects, because TLS itself says so little about what is wrong.
`findings` makes every check and reports each; `load` makes the same checks and raises the first that failed.
Certificates that peers send are judged by the same functions (`verify_signature`); they may hold anything.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from secfc import textfile
from secfc.agreement import federation as federations
from secfc.agreement.federation import IDENTITY_DOMAIN, Federation
from secfc.errors import ConfigError, SecfcError, WrongSender
from secfc.pki import signedroster
from secfc.pki.pins import Pins, Source
from secfc.protocol.messages import Signed

MAX_PEM_BYTES = 16 << 10
REQUEST = "request.pem"  # is in a kit from `secfc enroll` until `secfc accept`
RENEW = "ask whoever provisions the federation for a new kit"
_ECDSA = ec.ECDSA(hashes.SHA256())
# All that `cryptography` raises for bytes that are not what they should be.
BAD_BYTES = (
    *(ValueError, TypeError, OverflowError, UnsupportedAlgorithm, InvalidSignature, x509.InvalidVersion),
    *(x509.DuplicateExtension, x509.ExtensionNotFound, x509.UnsupportedGeneralNameType),
)


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

    def sign(self, message: bytes) -> bytes:
        """ECDSA on P-256 with SHA-256. TLS signs with this key too: open the message with its purpose."""
        return parse_key(self.key_pem, "the kit's key").sign(message, _ECDSA)


@dataclass(frozen=True)
class Peek:
    """What a certificate claims, nothing of it verified: only good for explaining a failure."""

    names: tuple[str, ...]
    not_before: datetime
    not_after: datetime


def load(path: str | Path, *, now: datetime | None = None) -> Kit:
    """The kit in this folder, or a ConfigError with the first thing that is wrong."""
    kit, found = _inspect(Path(path), now or datetime.now(UTC))
    for finding in found:
        if not finding.ok:
            raise ConfigError(finding.detail)
    if kit is None:
        raise ConfigError(f"{path}: the kit is incomplete; {RENEW}")
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
    ca = parse_certificate(ca_pem, "the federation's ca.pem")
    try:
        certificate = parse_certificate(certificate_pem, "the certificate")
        _check_chain(certificate, ca)
        _check_dates(certificate, ca, now or datetime.now(UTC))
        if _identity(certificate) != federations.identity(federation_name, party_name):
            raise ConfigError("the certificate is another party's")
        p256(certificate).verify(signature, message, _ECDSA)
    except InvalidSignature:
        raise WrongSender(f"the signature is not that of {party_name!a}; do not trust the message") from None
    except ConfigError as error:
        raise WrongSender(f"a message as from {party_name!a} is refused: {error}") from error


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


def check_certificate(
    certificate: x509.Certificate, ca: x509.Certificate, federation: Federation, now: datetime
) -> str:
    """The party whose certificate this is, signed by that authority and valid now; ConfigError otherwise."""
    _check_chain(certificate, ca)
    _check_dates(certificate, ca, now)
    _check_identity(certificate, federation)
    return _identity(certificate).partition(".")[0]


def peek(der: bytes) -> Peek:
    """Names and dates of a certificate that failed verification."""
    try:
        certificate = x509.load_der_x509_certificate(der)
        san = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        names = tuple(san.get_values_for_type(x509.DNSName))
        return Peek(names, certificate.not_valid_before_utc, certificate.not_valid_after_utc)
    except BAD_BYTES as error:
        raise ConfigError("the peer's certificate cannot be read") from error


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
        self.pem[name] = textfile.read_small_file(self.path / name, MAX_PEM_BYTES)
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
    found.append(_try("chain", lambda: _check_chain(own, ca)) if ca else _skip("chain", "ca.pem"))
    found.append(_try("dates", lambda: _check_dates(own, ca, now)))
    if federation is None:
        return None, [*found, *(_skip(name, "federation.toml") for name in ("identity", "roster"))]
    found.append(_try("identity", lambda: _check_identity(own, federation)))
    if ca is None or not found[-1].ok:
        return None, [*found, _skip("roster", "ca.pem" if ca is None else "a party's name in cert.pem")]
    party_name = _identity(own).partition(".")[0]
    pins, pinned = _roster(Source(path / signedroster.FILE, ca, federation.name), party_name, contents.pem["cert.pem"])
    found.append(pinned)
    if not all(finding.ok for finding in found):
        return None, found
    pem, expires = contents.pem, min(own.not_valid_after_utc, ca.not_valid_after_utc)
    return Kit(path, federation, party_name, pem["cert.pem"], pem["key.pem"], pem["ca.pem"], expires, pins), found


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
        "ca": lambda: parse_certificate(*contents.read("ca.pem")),
        "certificate": lambda: parse_certificate(*contents.read("cert.pem")),
        "key": lambda: parse_key(*contents.read("key.pem")),
    }
    for what, read in reading.items():
        try:
            setattr(contents, what, read())
        except ConfigError as error:
            failures.append(error)
    if failures:
        raise failures[0]
    return f"{path}: federation.toml, ca.pem, cert.pem and key.pem can be read"


def parse_certificate(pem: bytes, where: str) -> x509.Certificate:
    """Exactly one certificate: TLS would also trust further authorities, which nobody has looked at."""
    if len(pem) > MAX_PEM_BYTES:
        raise ConfigError(f"{where} is larger than {MAX_PEM_BYTES} bytes; {RENEW}")
    try:
        certificates = x509.load_pem_x509_certificates(pem)
    except BAD_BYTES as error:
        raise ConfigError(f"{where} is not a PEM certificate; {RENEW}") from error
    if len(certificates) != 1:
        raise ConfigError(f"{where} holds {len(certificates)} certificates instead of one; {RENEW}")
    return certificates[0]


def parse_key(pem: bytes, where: str) -> ec.EllipticCurvePrivateKey:
    """An unencrypted P-256 key."""
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except BAD_BYTES as error:
        raise ConfigError(f"{where} is not an unencrypted PEM private key; {RENEW}") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        raise ConfigError(f"{where} is not a P-256 key; {RENEW}")
    return key


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
    if p256(certificate) != key.public_key():
        raise ConfigError("key.pem does not belong to cert.pem; put back the pair that was provisioned together")
    return "key.pem belongs to cert.pem"


def p256(certificate: x509.Certificate) -> ec.EllipticCurvePublicKey:
    """The certificate's key, which must be on P-256."""
    try:
        key = certificate.public_key()
    except BAD_BYTES as error:
        raise ConfigError(f"the certificate's key cannot be read; {RENEW}") from error
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise ConfigError(f"the certificate's key is not on P-256; {RENEW}")
    return key


def _check_chain(certificate: x509.Certificate, ca: x509.Certificate) -> str:
    """The signature first: what a stranger wrote into the extensions is not even parsed."""
    p256(ca)
    try:
        certificate.verify_directly_issued_by(ca)
    except BAD_BYTES as error:
        raise ConfigError(f"the certificate was not signed by this federation's authority; {RENEW}") from error
    if certificate.public_bytes(serialization.Encoding.DER)[-1 - len(certificate.signature)] != 0:
        # its last bit declared unused: the same signature in other bytes, so that one certificate would have two digests
        raise ConfigError(f"the certificate's signature is not encoded as DER demands; {RENEW}")
    p256(certificate)
    try:
        fit = _may_sign(ca) and _may_speak(certificate)
    except BAD_BYTES as error:
        raise ConfigError(f"the certificate's extensions cannot be read; {RENEW}") from error
    if not fit:
        raise ConfigError(f"ca.pem may not sign, or the certificate may not serve and dial; {RENEW}")
    return "the certificate is signed by the authority in ca.pem"


def _may_sign(ca: x509.Certificate) -> bool:
    usage = ca.extensions.get_extension_for_class(x509.KeyUsage).value
    return ca.extensions.get_extension_for_class(x509.BasicConstraints).value.ca and usage.key_cert_sign


def _may_speak(certificate: x509.Certificate) -> bool:
    extensions = certificate.extensions
    purposes = set(extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
    both = {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH} <= purposes
    signs = extensions.get_extension_for_class(x509.KeyUsage).value.digital_signature
    return both and signs and not extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def _check_dates(certificate: x509.Certificate, ca: x509.Certificate | None, now: datetime) -> str:
    for name, one in (("the certificate", certificate), ("the authority", ca)):
        if one is None:
            continue
        try:
            begin, end = one.not_valid_before_utc, one.not_valid_after_utc
        except BAD_BYTES as error:
            raise ConfigError(f"{name}'s dates cannot be read; {RENEW}") from error
        if now < begin:
            advice = f"set this machine's clock, it says {now:%Y-%m-%d %H:%M} UTC"
            raise ConfigError(f"{name} is not valid before {begin:%Y-%m-%d %H:%M} UTC; {advice}")
        if now > end:
            raise ConfigError(f"{name} expired on {end:%Y-%m-%d %H:%M} UTC; {RENEW}, or set the clock if it is wrong")
    end = certificate.not_valid_after_utc
    return f"valid until {end:%Y-%m-%d %H:%M} UTC, {(end - now).days} days left"


def _identity(certificate: x509.Certificate) -> str:
    """The one name under our domain. Two would let a party choose who it is, so they are refused."""
    try:
        san = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        names = san.get_values_for_type(x509.DNSName)
    except BAD_BYTES as error:
        raise ConfigError(f"the certificate names nobody; {RENEW}") from error
    ours = [name for name in names if name.lower().endswith(f".{IDENTITY_DOMAIN}")]
    if len(ours) != 1:
        raise ConfigError(f"the certificate holds {len(ours)} SecFC identities instead of one; {RENEW}")
    return ours[0]


def _check_identity(certificate: x509.Certificate, federation: Federation) -> str:
    name = _identity(certificate)
    for party_name in (federations.SERVER, *federation.roster):
        if name == federations.identity(federation.name, party_name):
            return f"this kit is {party_name}'s in {federation.name}"
    raise ConfigError(f"the certificate is for {name!a}, no party of {federation.name}'s federation.toml; {RENEW}")
