"""The authority's folder after `provision` made it: opening its key, and issuing the next version of the signed roster.

    DIR/ca.pem  ca.key  roster.json     roster.json is the newest version; every party gets a copy

A version is written here before it is given to anybody, and only one command at a time may write one: two different rosters
of the same version would be refused by every party that sees both.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.x509.oid import NameOID

from secfc import textfile
from secfc.errors import ConfigError
from secfc.pki import certificates, keyfile, kit, provision, signedroster
from secfc.pki.provision import Authority
from secfc.pki.signedroster import SignedRoster

Ask = Callable[[], str]


def load(folder: Path, federation: str, ask: Ask, now: datetime | None = None) -> Authority:
    """The authority that `provision` made for the federation of this name; `ask` gives the passphrase, if one is needed."""
    now = now or datetime.now(UTC)
    kit.check_permissions(folder / "ca.key")
    certificate = certificates.load(folder / "ca.pem")
    if certificate.subject != provision.authority_name(federation):
        raise ConfigError(
            f"{folder}: is not the authority of {federation} but of another federation; choose the right --ca"
        )
    if not certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc:
        raise ConfigError(f"{folder}: the authority is not valid now; provision a new one, or set the clock")
    pem, where = certificates.read_pem(folder / "ca.key"), str(folder / "ca.key")
    if keyfile.is_encrypted(pem):
        pem = keyfile.open_encrypted(pem, ask(), certificate.fingerprint(hashes.SHA256()), where)
    key = certificates.parse_key(pem, where)
    if certificates.p256(certificate) != key.public_key():
        raise ConfigError(f"{folder}: ca.key does not belong to ca.pem; use the folder as `secfc provision` made it")
    return Authority(certificate, key)


def federation_of(folder: Path) -> str:
    """The name of the federation whose authority this is."""
    names = certificates.load(folder / "ca.pem").subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    prefix = provision.AUTHORITY_OF
    if len(names) != 1 or not isinstance(names[0].value, str) or not names[0].value.startswith(prefix):
        raise ConfigError(f"{folder}: is not an authority of SecFC; choose the folder `secfc provision` made")
    return names[0].value.removeprefix(prefix)


def current(folder: Path, federation: str) -> SignedRoster:
    """The newest roster, which must be the authority's own."""
    path = folder / signedroster.FILE
    if not path.exists():
        raise ConfigError(f"{path}: is missing; copy the newest one from any party's kit, it holds no secret")
    content = textfile.read_small_file(path, signedroster.MAX_BYTES)
    return signedroster.parse(content, certificates.load(folder / "ca.pem"), federation, str(path))


def pin(authority: Authority, folder: Path, federation: str, party: str, certificate: x509.Certificate) -> bytes:
    """Issue the version in which this certificate is the party's; the new file."""
    now = datetime.now(UTC)
    return _issue(authority, folder, federation, lambda roster: roster.with_certificate(party, certificate, now))


def revoke(authority: Authority, folder: Path, federation: str, party: str) -> bytes:
    """Issue the version in which the party's certificate is revoked; the new file."""
    now = datetime.now(UTC)
    return _issue(authority, folder, federation, lambda roster: roster.without(party, now))


def _issue(
    authority: Authority, folder: Path, federation: str, change: Callable[[SignedRoster], SignedRoster]
) -> bytes:
    with _alone(folder):
        content = signedroster.dump(change(current(folder, federation)), authority.key)
        textfile.write(folder / signedroster.FILE, content, "make room there, and run the same command again")
    return content


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """No other command changes this authority meanwhile; one that does is not waited for."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be opened ({error.strerror}); check --ca") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise ConfigError(
            f"{folder}: another secfc command is using this authority; try again when it is done"
        ) from None
    finally:
        os.close(descriptor)
