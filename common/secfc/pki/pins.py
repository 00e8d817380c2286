"""Which certificates count, asked again and again while a party runs.

`Pins` holds the newest signed roster (`signedroster`) that this party has seen: from its kit at the start, from the same file
whenever that changes (it is looked at every half second at most), and from its state folder, where the newest is remembered.
A roster that is damaged, signed by somebody else or older than one seen before never comes into force: at the start it is an
error, while running it is a warning, and what was in force stays.

Without a roster.json every unexpired certificate of the authority counts that names a party, and none can be revoked.
"""

from __future__ import annotations

import contextlib
import logging
import ssl
import threading
import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from secfc import textfile
from secfc.errors import ConfigError, Unavailable, WrongSender
from secfc.logs import say
from secfc.pki import signedroster
from secfc.pki.signedroster import NEWEST, SignedRoster

log = logging.getLogger("secfc.pki.pins")
LOOK_SECONDS = 0.5
_Stamp = tuple[int, int, int, int]


@dataclass(frozen=True)
class Source:
    """A kit's roster.json, and who must have signed it for which federation."""

    path: Path
    ca: x509.Certificate
    federation: str

    def stamp(self) -> _Stamp | None:
        """Changes with the file; None if there is none."""
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino

    def read(self, path: Path | None = None) -> tuple[SignedRoster, bytes]:
        """The roster there, checked, and the file's bytes; ConfigError if it is not the authority's."""
        content = textfile.read_small_file(path or self.path, signedroster.MAX_BYTES)
        return signedroster.parse(content, self.ca, self.federation, str(path or self.path)), content


class Pins:
    """The roster in force at one party. Methods may be called from any thread."""

    def __init__(self, source: Source | None = None) -> None:
        """Reads the source's file if it is there. Without a source there is no roster, and never will be."""
        self._source, self._lock = source, threading.Lock()
        self._memory: Path | None = None
        self._looked, self._stamp = time.monotonic(), source.stamp() if source else None
        self._roster: SignedRoster | None = None
        self._content = b""
        if source is not None and self._stamp is not None:
            self._roster, self._content = source.read()

    @property
    def roster(self) -> SignedRoster | None:
        """What is in force now."""
        if self._source is not None and time.monotonic() - self._looked >= LOOK_SECONDS:
            self._look(self._source)
        return self._roster

    def describe(self) -> str:
        """For a log: which roster is in force."""
        return _version(self.roster)

    def remember(self, folder: Path) -> None:
        """Keep the newest roster in this state folder from now on; raises ConfigError if a newer one is there already."""
        if self._source is None:
            return
        self._memory = folder / signedroster.FILE
        before = self._remembered(self._source, self._memory)
        if before is not None and self._roster is None:
            lost = f"{self._source.path}: is missing, but version {before.version} was in force before"
            raise ConfigError(f"{lost}; {NEWEST}")
        if self._roster is not None:
            if before is not None:
                _check_newer(self._roster, before, str(self._source.path))
            self._keep()

    def check(self, party: str, der: bytes) -> None:
        """Refuse a certificate that names `party` but is not the one in force: WrongSender if it was revoked, for good;
        Unavailable if a newer roster, here or there, may put it right."""
        roster = self.roster
        if roster is None:
            return
        if signedroster.key_digest(der) in roster.revoked:
            raise WrongSender(f"the certificate of {party} was revoked (version {roster.version} of the roster)")
        if der != self._pinned(roster, party):
            advice = f"if {party} has a new certificate, {NEWEST}, and put it into the kits"
            raise Unavailable(f"version {roster.version} of the roster lists another certificate for {party}; {advice}")

    def check_pem(self, party: str, pem: bytes) -> None:
        """`check` for a certificate as PEM, which must have been parsed before."""
        if self.roster is not None:
            self.check(party, _der(pem))

    def anchor(self, party: str) -> bytes | None:
        """The one certificate (PEM) to trust when this party is dialled; None without a roster. Raises like `check`."""
        roster = self.roster
        if roster is None:
            return None
        return ssl.DER_cert_to_PEM_cert(self._pinned(roster, party)).encode("ascii")

    def _pinned(self, roster: SignedRoster, party: str) -> bytes:
        der = roster.certificates.get(party)
        if der is not None:
            return der
        if party in roster.revoked.values():
            text = f"the certificate of {party} was revoked and not replaced (version {roster.version} of the roster)"
            raise WrongSender(text)
        raise Unavailable(f"version {roster.version} of the roster does not list {party}; {NEWEST}")

    # --- the file ------------------------------------------------------------------------------------------------------

    def _look(self, source: Source) -> None:
        """Take over a file that has changed since the last look, if it is sound and newer."""
        with self._lock:
            self._looked = time.monotonic()
            stamp = source.stamp()
            if stamp == self._stamp:
                return
            self._stamp = stamp
            try:
                self._take_over(source)
            except ConfigError as error:
                say(
                    log,
                    "roster.json has changed",
                    level=logging.WARNING,
                    reason=str(error),
                    in_force=_version(self._roster),
                )

    def _take_over(self, source: Source) -> None:
        found, content = source.read()
        if self._roster is not None:
            _check_newer(found, self._roster, str(source.path))
        newer = found != self._roster
        self._roster, self._content = found, content  # in force even if it cannot be remembered
        if newer:
            say(log, "a newer roster is in force", version=found.version, revoked=len(found.revoked))
            self._keep()

    @staticmethod
    def _remembered(source: Source, memory: Path) -> SignedRoster | None:
        """The newest roster seen before. One of another authority tells nothing about this one; nor does a torn file."""
        with contextlib.suppress(ConfigError):
            return source.read(memory)[0]
        return None

    def _keep(self) -> None:
        if self._memory is None:
            return
        with contextlib.suppress(OSError):  # `replace` says what is wrong
            self._memory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        textfile.write(self._memory, self._content, "this roster may be forgotten; make room or choose another --state")


def _version(roster: SignedRoster | None) -> str:
    return f"version {roster.version}" if roster is not None else "none, so certificates are not pinned"


def _check_newer(found: SignedRoster, before: SignedRoster, where: str) -> None:
    """The same roster, or one of a higher version."""
    if found.version < before.version:
        raise ConfigError(f"{where}: is version {found.version}, but version {before.version} was seen here; {NEWEST}")
    if found.version == before.version and found.digest() != before.digest():
        advice = "whoever keeps the authority must issue a higher version"
        raise ConfigError(f"{where}: two different rosters claim to be version {found.version}; {advice}")


@lru_cache(maxsize=4096)
def _der(pem: bytes) -> bytes:
    return x509.load_pem_x509_certificate(pem).public_bytes(serialization.Encoding.DER)
