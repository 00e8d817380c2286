"""A party's certificate without its key ever leaving the party: the party *enrols*, the authority *signs*.

    site                                     authority
    make_request: key.pem stays here
    request.pem, and its fingerprint on the phone ──▶ sign: the request's key and the names of federation.toml
    accept (`acceptance`)  ◀──  cert.pem, ca.pem, roster.json, federation.toml, and the authority's fingerprint on the phone

Of the request only its key is used, and which party it claims to be. That it is that party's, only the fingerprint says,
compared over a channel on which people know each other; so `sign` demands it. No error repeats the right one: it would be
copied into the next try. The request also carries the digest of the party's federation.toml: a party that agreed to another
file finds out now, not when it joins.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from secfc.agreement import federation as federations
from secfc.agreement.federation import Federation
from secfc.agreement.parties import Party
from secfc.errors import ConfigError
from secfc.pki import authority as authorities
from secfc.pki import certificates, provision, roles, signedroster
from secfc.pki.kit import REQUEST
from secfc.pki.provision import Authority

_ASK_AGAIN = "have the site run `secfc enroll` again and send what it writes"


@dataclass(frozen=True)
class Request:
    """A signing request that was checked: whose it claims to be, and the key it proves to have."""

    party: Party
    public_key: ec.EllipticCurvePublicKey
    submits: bool = False  # whether it asks for the right to submit jobs

    @property
    def fingerprint(self) -> str:
        """What people compare: SHA-256 of the public key, in groups of four."""
        return fingerprint(self.public_key)


def fingerprint(public_key: ec.EllipticCurvePublicKey) -> str:
    """SHA-256 of a public key (DER), hexadecimal, in groups of four."""
    encoding, form = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    return provision.spoken(hashlib.sha256(public_key.public_bytes(encoding, form)).digest())


def same_fingerprint(heard: str, right: str) -> bool:
    """Whether people read out the right one; spaces, colons and case do not matter."""
    return hmac.compare_digest(_bare(heard), _bare(right))


def enrol(federation: Federation, name: str, out: Path, *, submits: bool = False) -> Request:
    """Make this party's key and signing request in `out`, which must be new or empty; it becomes the party's kit.
    `submits`: with the right to submit jobs, which somebody who is no party of the file may ask for too."""
    party = roles.party(federation, name, submits=submits)
    provision.make_empty_folder(out)
    key = provision.make_key()
    try:
        provision.write_private(out / "key.pem", provision.private_pem(key))
        provision.write_public(out / "federation.toml", federations.dumps(federation).encode())
        provision.write_public(out / REQUEST, make_request(federation, party, key, submits=submits))
    except OSError as error:
        raise ConfigError(
            f"{error.filename or out}: cannot be written ({error.strerror}); choose another --out"
        ) from error
    return Request(party, key.public_key(), submits)


def make_request(
    federation: Federation, party: Party, key: ec.EllipticCurvePrivateKey, *, submits: bool = False
) -> bytes:
    """A PKCS#10 request, signed by the key it is about."""
    role = [x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, roles.SUBMITTER)] if submits else []
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, federation.name),
            x509.NameAttribute(NameOID.COMMON_NAME, party.name),
            x509.NameAttribute(NameOID.SERIAL_NUMBER, federation.agreed().hex()),
            *role,
        ]
    )
    request = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    return request.public_bytes(serialization.Encoding.PEM)


def read_request(pem: bytes, federation: Federation) -> Request:
    """Check a request that came from outside: its form, its signature by its own key, its party and its federation."""
    try:
        request = x509.load_pem_x509_csr(pem)
        key = request.public_key()
        proven = request.is_signature_valid
        subject = request.subject
    except certificates.BAD_BYTES as error:
        raise ConfigError(f"the request is not a PEM signing request; {_ASK_AGAIN}") from error
    if not certificates.on_p256(key):
        raise ConfigError(f"the request's key is not on P-256; {_ASK_AGAIN}")
    if not proven:
        raise ConfigError(f"the request is not signed by its own key; {_ASK_AGAIN}")
    if _attribute(subject, NameOID.ORGANIZATION_NAME) != federation.name:
        raise ConfigError(f"the request is for another federation, not {federation.name}; check which file was sent")
    submits = _submits(subject)
    party = roles.party(federation, _attribute(subject, NameOID.COMMON_NAME), submits=submits)
    if _attribute(subject, NameOID.SERIAL_NUMBER) != federation.agreed().hex():
        raise ConfigError(f"{party.name} enrolled with a different federation.toml; give every party the same file")
    return Request(party, key, submits)


def sign(
    authority: Authority,
    ca: Path,
    federation: Federation,
    request: Request,
    heard: str,
    out: Path,
    *,
    days: int = 365,
    now: datetime | None = None,
    submits: bool = False,
) -> x509.Certificate:
    """Answer a request whose fingerprint people have compared: `out`, new or empty, gets the kit without its key.

    The certificate becomes the party's in the next version of the roster in `ca`, instead of one that it had before.
    `submits`: whoever keeps the authority grants the right to submit jobs; a request alone gets nobody that right."""
    provision.check_days(days)
    if submits != request.submits:
        asks = "asks for the right to submit jobs" if request.submits else "does not ask for the right to submit jobs"
        grant = "add --role submitter if it is to have it" if request.submits else "leave out --role submitter"
        raise ConfigError(f"the request of {request.party.name} {asks}; {grant}")
    if not same_fingerprint(heard, request.fingerprint):
        advice = f"ask {request.party.name} again, on a channel you trust; somebody else may have made this request"
        raise ConfigError(f"the fingerprint you heard is not that of the request; {advice}")
    provision.make_empty_folder(out)
    when, name = now or datetime.now(UTC), request.party.name
    certificate = provision.certify(
        authority, federation, request.party, request.public_key, days=days, now=when, submits=submits
    )
    roster = authorities.pin(authority, ca, federation.name, name, certificate)
    try:
        provision.write_public_part(authority, federation, certificate, out)
        provision.write_public(out / signedroster.FILE, roster)
    except OSError as error:
        raise ConfigError(
            f"{error.filename or out}: cannot be written ({error.strerror}); choose another --out"
        ) from error
    return certificate


def _bare(text: str) -> bytes:
    return re.sub(r"[\s:]", "", text).lower().encode()


def _submits(subject: x509.Name) -> bool:
    asked = subject.get_attributes_for_oid(NameOID.ORGANIZATIONAL_UNIT_NAME)
    if any(one.value != roles.SUBMITTER for one in asked):
        raise ConfigError(f"the request asks for a role that this version does not know; {_ASK_AGAIN}")
    return bool(asked)


def _attribute(subject: x509.Name, oid: x509.ObjectIdentifier) -> str:
    found = subject.get_attributes_for_oid(oid)
    if len(found) != 1 or not isinstance(found[0].value, str):
        raise ConfigError(f"the request does not say whose it is; {_ASK_AGAIN}")
    return found[0].value
