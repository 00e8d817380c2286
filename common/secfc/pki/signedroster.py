"""The signed roster: which certificate is each party's, and which were revoked, in the authority's own words.

    roster.json   {"roster": {federation, version, issued, certificates: {party: DER in base64}, revoked: {key: party}},
                   "signature": ECDSA of the authority's key over the roster, in base64}

A certificate says who somebody is until it expires. The roster says which one certificate counts *now*, so that a stolen or
replaced one can be refused. What is revoked is the key (by the SHA-256 of its public half): no certificate for it counts, and
none is made again. Versions only rise; `pins` sees to it that a party never goes back. Nothing here is secret.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from secfc.errors import ConfigError
from secfc.framing import framed

FILE = "roster.json"
MAX_BYTES = 4 << 20  # 2047 clients' certificates, and as many revoked ones
MAX_VERSION = (1 << 53) - 1
NEWEST = "get the newest roster.json from whoever keeps the authority"
_PURPOSE = b"secfc/v1/signed-roster"  # the same key signs certificates, which never begin like this
_KEYS = {"federation", "version", "issued", "certificates", "revoked"}
_ECDSA = ec.ECDSA(hashes.SHA256())


@dataclass(frozen=True)
class SignedRoster:
    """What the authority says. `certificates` are DER by party; `revoked` names the party by its key's digest."""

    federation: str
    version: int
    issued: datetime
    certificates: Mapping[str, bytes]
    revoked: Mapping[str, str]

    def with_certificate(self, party: str, certificate: x509.Certificate, now: datetime) -> SignedRoster:
        """The next version, in which this certificate is the party's; one that it had before counts no more."""
        if key_digest(_der(certificate)) in self.revoked:
            raise ConfigError(
                f"the key of this request was revoked; {party} must run `secfc enroll` again, for a new one"
            )
        return self._next(now, {**self.certificates, party: _der(certificate)}, self.revoked)

    def without(self, party: str, now: datetime) -> SignedRoster:
        """The next version, in which the party's certificate is revoked and it has none."""
        if party not in self.certificates:
            known = ", ".join(sorted(self.certificates)) or "nobody"
            raise ConfigError(f"{party!a} has no certificate in version {self.version} of the roster; it lists {known}")
        left = {name: der for name, der in self.certificates.items() if name != party}
        return self._next(now, left, {**self.revoked, key_digest(self.certificates[party]): party})

    def _next(self, now: datetime, certificates: Mapping[str, bytes], revoked: Mapping[str, str]) -> SignedRoster:
        if self.version >= MAX_VERSION:
            raise ConfigError("the roster has no version number left; provision a new authority")
        return replace(self, version=self.version + 1, issued=now, certificates=certificates, revoked=revoked)

    def digest(self) -> bytes:
        """Tells two rosters of the same version apart."""
        return hashlib.sha256(_statement(self)).digest()


def first(federation: str, now: datetime, certificates: Mapping[str, x509.Certificate]) -> SignedRoster:
    """Version 1."""
    return SignedRoster(federation, 1, now, {name: _der(one) for name, one in certificates.items()}, {})


@lru_cache(maxsize=4096)
def key_digest(der: bytes) -> str:
    """SHA-256 of a certificate's public key, hexadecimal; empty for bytes that hold none."""
    try:
        key = x509.load_der_x509_certificate(der).public_key()
    except (ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion):
        return ""
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return hashlib.sha256(key.public_bytes(serialization.Encoding.DER, form)).hexdigest()


def dump(roster: SignedRoster, key: ec.EllipticCurvePrivateKey) -> bytes:
    """The file, signed."""
    signature = base64.b64encode(key.sign(_statement(roster), _ECDSA)).decode("ascii")
    return json.dumps({"roster": _fields(roster), "signature": signature}, indent=1).encode() + b"\n"


def parse(content: bytes, ca: x509.Certificate, federation: str, where: str) -> SignedRoster:
    """A roster that this authority signed for this federation; anything else is a ConfigError."""
    try:
        whole = json.loads(content)
        roster = _read(whole["roster"])
        signature = base64.b64decode(whole["signature"], validate=True)
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError, binascii.Error) as error:
        raise ConfigError(f"{where}: not a roster; {NEWEST}") from error
    key = ca.public_key()
    try:
        if not isinstance(key, ec.EllipticCurvePublicKey):
            raise InvalidSignature
        key.verify(signature, _statement(roster), _ECDSA)
    except InvalidSignature:
        raise ConfigError(f"{where}: not signed by the authority in ca.pem; {NEWEST}") from None
    if roster.federation != federation:
        raise ConfigError(f"{where}: is for another federation, not {federation}; {NEWEST}")
    return roster


def _der(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.DER)


def _statement(roster: SignedRoster) -> bytes:
    """What is signed: made from the values that are used, so that the file's spelling does not matter."""
    return framed(_PURPOSE, json.dumps(_fields(roster), sort_keys=True, separators=(",", ":")).encode())


def _fields(roster: SignedRoster) -> dict[str, Any]:
    certificates = {name: base64.b64encode(der).decode("ascii") for name, der in roster.certificates.items()}
    issued = roster.issued.astimezone(UTC).isoformat(timespec="seconds")
    return {
        "federation": roster.federation,
        "version": roster.version,
        "issued": issued,
        "certificates": certificates,
        "revoked": dict(roster.revoked),
    }


def _read(fields: Any) -> SignedRoster:
    """Raises ValueError, KeyError or TypeError for anything that `_fields` does not make."""
    if not isinstance(fields, dict) or set(fields) != _KEYS:
        raise ValueError("keys")
    version, federation, issued = fields["version"], fields["federation"], datetime.fromisoformat(fields["issued"])
    if type(version) is not int or not 1 <= version <= MAX_VERSION or not isinstance(federation, str):
        raise ValueError("version or federation")
    if issued.tzinfo is None or not all(isinstance(fields[name], dict) for name in ("certificates", "revoked")):
        raise ValueError("issued, certificates or revoked")
    certificates = {str(n): base64.b64decode(text, validate=True) for n, text in fields["certificates"].items()}
    revoked = {str(digest): str(name) for digest, name in fields["revoked"].items()}
    return SignedRoster(federation, version, issued, certificates, revoked)
