"""Certificates and keys as bytes from anywhere: parsed, and judged by signature, purpose, dates and the one name they hold.

A certificate may come from a kit, from the authority's answer or from a peer; it may hold anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeGuard

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from secfc import textfile
from secfc.agreement import federation as federations
from secfc.agreement.federation import Federation
from secfc.agreement.parties import IDENTITY_DOMAIN
from secfc.errors import ConfigError

MAX_PEM_BYTES = 16 << 10
RENEW = "ask whoever provisions the federation for a new kit"
SUBMITTER_URI = "urn:secfc:role:submitter"
ECDSA = ec.ECDSA(hashes.SHA256())
# All that `cryptography` raises for bytes that are not what they should be.
BAD_BYTES = (
    *(ValueError, TypeError, OverflowError, UnsupportedAlgorithm, InvalidSignature, x509.InvalidVersion),
    *(x509.DuplicateExtension, x509.ExtensionNotFound, x509.UnsupportedGeneralNameType),
)


@dataclass(frozen=True)
class Peek:
    """What a certificate claims, nothing of it verified: only good for explaining a failure."""

    names: tuple[str, ...]
    not_before: datetime
    not_after: datetime


def read_pem(path: Path) -> bytes:
    """A file that holds a certificate, a key or a request."""
    return textfile.read_small_file(path, MAX_PEM_BYTES)


def load(path: Path) -> x509.Certificate:
    """The certificate in a file."""
    return parse_certificate(read_pem(path), str(path))


def load_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """The key in a file."""
    return parse_key(read_pem(path), str(path))


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


def on_p256(key: Any) -> TypeGuard[ec.EllipticCurvePublicKey]:
    """Whether this is a public key on P-256."""
    return isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, ec.SECP256R1)


def p256(certificate: x509.Certificate) -> ec.EllipticCurvePublicKey:
    """The certificate's key, which must be on P-256."""
    try:
        key = certificate.public_key()
    except BAD_BYTES as error:
        raise ConfigError(f"the certificate's key cannot be read; {RENEW}") from error
    if not on_p256(key):
        raise ConfigError(f"the certificate's key is not on P-256; {RENEW}")
    return key


def check_certificate(
    certificate: x509.Certificate, ca: x509.Certificate, federation: Federation, now: datetime
) -> str:
    """The party whose certificate this is, signed by that authority and valid now; ConfigError otherwise."""
    check_chain(certificate, ca)
    check_dates(certificate, ca, now)
    check_identity(certificate, federation)
    return identity(certificate).partition(".")[0]


def peek(der: bytes) -> Peek:
    """Names and dates of a certificate that failed verification."""
    try:
        certificate = x509.load_der_x509_certificate(der)
        san = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        names = tuple(san.get_values_for_type(x509.DNSName))
        return Peek(names, certificate.not_valid_before_utc, certificate.not_valid_after_utc)
    except BAD_BYTES as error:
        raise ConfigError("the peer's certificate cannot be read") from error


def check_chain(certificate: x509.Certificate, ca: x509.Certificate) -> str:
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


def check_dates(certificate: x509.Certificate, ca: x509.Certificate | None, now: datetime) -> str:
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


def identity(certificate: x509.Certificate) -> str:
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


def may_submit(certificate: x509.Certificate) -> bool:
    """Whether a certificate, verified before, has the right to submit jobs."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        return SUBMITTER_URI in names.get_values_for_type(x509.UniformResourceIdentifier)
    except BAD_BYTES:
        return False


def check_identity(certificate: x509.Certificate, federation: Federation) -> str:
    """A party of the file, or somebody besides who has the right to submit jobs."""
    name, right = identity(certificate), may_submit(certificate)
    for party_name in (federations.SERVER, *federation.roster):
        if name == federations.identity(federation.name, party_name):
            return f"this kit is {party_name}'s in {federation.name}{', which may submit jobs' if right else ''}"
    other = name.removesuffix(federations.identity(federation.name, ""))
    if right and "." not in other:
        return f"this kit is {other}'s, who may submit jobs to {federation.name}"
    raise ConfigError(
        f"the certificate is for {name!a}, which is not a party of {federation.name}'s federation.toml; {RENEW}"
    )
