"""Who may look at a page: anybody on this machine, if it listens on loopback; else holders of a certificate or of a token.

A page on loopback can be asked for by any program and any web site that a browser on this machine shows, so the name in
the Host header must be one of ours: a stranger's name that resolves to us (DNS rebinding) is refused. An address is nobody's
name, so addresses pass.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
import ssl
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from secfc import atomicfile, limits, textfile
from secfc.agreement import federation as federations
from secfc.errors import ConfigError, InvalidInput, SecfcError
from secfc.pki import certificates
from secfc.pki.kit import Kit

TOKEN_FILE = "web.token"  # noqa: S105 - a file's name
COOKIE = "secfc"
_LOCAL = ("localhost", "ip6-localhost")


@dataclass(frozen=True)
class Door:
    """Where a page listens, and whom it lets in. `tls` is None on loopback."""

    host: str
    port: int
    names: frozenset[str]
    tls: ssl.SSLContext | None = None
    token: str = field(default="", repr=False)
    judge: Callable[[bytes], None] = field(default=lambda _: None, repr=False)

    def knows(self, header: str) -> bool:
        """Whether a Host header names us."""
        host = _host_of(header)
        return host in self.names or _address(host) is not None

    def admits(self, certificate: bytes | None, token: str) -> bool:
        """Whether somebody with this certificate (DER, of our authority, as TLS has found) or this token may look."""
        if self.tls is None:
            return True
        given = token.encode(errors="replace")  # a header may hold any bytes
        if token and hmac.compare_digest(given, self.token.encode()):
            return True
        try:
            if certificate is not None:
                self.judge(certificate)
        except SecfcError:
            return False
        return certificate is not None


def parse(text: str) -> tuple[str, int]:
    """Host and port of --web."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise InvalidInput(f"--web needs an address and a port, such as 127.0.0.1:8080, not {text[:60]!a}")
    host = host.removeprefix("[").removesuffix("]")
    if host not in _LOCAL and _address(host) is None:
        raise InvalidInput(f"--web needs an IP address to listen on, such as 127.0.0.1:8080, not {host[:60]!a}")
    return host, int(port)


def of(text: str, kit: Kit, state: Path) -> Door:
    """The door of a party's page. Not on loopback it has the kit's certificate, and a token in the state folder."""
    host, port = parse(text)
    party = kit.federation.server if kit.party_name == federations.SERVER else kit.federation.client(kit.party_name)
    names = frozenset(name.lower() for name in (*_LOCAL, party.host, *party.names) if name)
    address = _address(host)
    if address is None or address.is_loopback:
        return Door(host, port, names)
    return Door(host, port, names, _context(kit), _token(state / TOKEN_FILE), _judge(kit))


def _judge(kit: Kit) -> Callable[[bytes], None]:
    """The server's page is for every party of the federation; a site's is for itself: it shows what its rows are like."""

    def judge(der: bytes) -> None:
        certificate = certificates.parse_certificate(ssl.DER_cert_to_PEM_cert(der).encode(), "the certificate")
        identity = certificates.identity(certificate)
        allowed = (federations.SERVER, *kit.federation.roster) if kit.party_name == federations.SERVER else ()
        for party in {*allowed, kit.party_name}:
            if identity == federations.identity(kit.federation.name, party):
                kit.pins.check(party, der)
                return
        raise ConfigError("this certificate is for another party")

    return judge


def _context(kit: Kit) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=kit.ca_pem.decode("ascii"))
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_OPTIONAL  # who shows none needs the token
    with tempfile.TemporaryDirectory(
        prefix="secfc-web-"
    ) as folder:  # ssl reads files only; this one is 0600 and gone at once
        both = Path(folder) / "both.pem"
        atomicfile.write(both, [kit.certificate_pem + kit.key_pem])
        context.load_cert_chain(both)
    return context


def _token(path: Path) -> str:
    """The token of this state folder, made once: a page that is open reconnects after a restart."""
    if path.exists():
        token = textfile.read_small_file(path, 200).decode("ascii", "replace").strip()
        if len(token) < 32:
            raise ConfigError(f"{path}: damaged; remove it, and a new token is made")
        return token
    token = secrets.token_urlsafe(32)
    with limits.telling(f"{path}: cannot be written", "choose another --state, or leave out --web"):
        atomicfile.write(path, [f"{token}\n".encode()])
    return token


def _host_of(header: str) -> str:
    """Without the port: an IPv6 address has brackets."""
    if header.startswith("["):
        return header[1:].partition("]")[0].lower()
    return header.partition(":")[0].rstrip(".").lower()


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
