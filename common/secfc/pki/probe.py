"""Why a connection to a party fails, found out with plain sockets.

gRPC tells little more than "Socket closed". This walks the same way step by step, name, TCP, TLS, clock,
acceptance, and says at which step it ends and what to do. It stops at the first step without which the next
cannot be tried. Nothing here raises because of the network. A name that does not resolve takes as long as the
system's resolver does; everything else keeps to the timeout.
"""

from __future__ import annotations

import errno
import socket
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime

from secfc.agreement.federation import identity
from secfc.agreement.parties import split_address
from secfc.errors import ConfigError, SecfcError
from secfc.pki import proxies
from secfc.pki.certificates import Peek, peek
from secfc.pki.kit import Finding, Kit

_EXPIRED, _NOT_YET, _HOSTNAME = (
    10,
    9,
    62,
)  # OpenSSL's X509_V_ERR_* codes; any other means the chain is not ours
_NO_ROUTE = (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN)
_NOT_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG")
# Part of OpenSSL's reason for an alert (the rest differs between its versions) and what it means for us.
_ALERTS = (
    ("UNKNOWN_CA", "it trusts another authority; both kits must come from the same provisioning"),
    ("CERTIFICATE_EXPIRED", "it considers our certificate expired; compare both clocks, or ask for a new kit"),
    ("CERTIFICATE_UNKNOWN", "it does not accept our certificate; both kits must come from the same provisioning"),
    ("BAD_CERTIFICATE", "it cannot use our certificate; compare both clocks, or ask for a new kit"),
    ("CERTIFICATE_REVOKED", "it considers our certificate revoked; ask for a new kit"),
    ("CERTIFICATE_REQUIRED", "it did not get our certificate; a proxy in between may terminate TLS; bypass it"),
    ("ACCESS_DENIED", "our certificate is known but not admitted; both federation.toml must be the same"),
    (
        "DECRYPT_ERROR",
        "it finds our certificate's signature invalid; both kits must come from the same provisioning",
    ),
    ("PROTOCOL_VERSION", "it has no TLS version in common with us; TLS 1.2 or newer is needed"),
    ("APPLICATION_PROTOCOL", "it does not offer HTTP/2; the address is not a SecFC party's"),
)


@dataclass(frozen=True)
class _Target:
    """Whom to try, and how long."""

    kit: Kit
    party_name: str
    host: str
    port: int
    timeout: float

    @property
    def proxy(self) -> tuple[str, str] | None:
        return proxies.named(self.host)

    def connect(self) -> socket.socket:
        if self.proxy is not None:
            return proxies.connect(self.proxy[1], self.host, self.port, self.timeout)
        return socket.create_connection((self.host, self.port), self.timeout)

    def __str__(self) -> str:
        through = f" through {self.proxy[0]}" if self.proxy is not None else ""
        return f"{self.party_name} at {self.host} port {self.port}{through}"


def probe(kit: Kit, party_name: str, address: str, timeout: float = 5.0) -> list[Finding]:
    """Try to reach a party as gRPC would: findings dns, tcp, tls, clock, accepted, as far as one gets."""
    try:
        target = _Target(kit, party_name, *split_address(address), timeout)
    except ConfigError as error:
        return [Finding("dns", False, str(error))]
    found = [_resolve(target)]
    if not found[-1].ok:
        return found
    try:
        raw = target.connect()
    except OSError as error:
        return [*found, Finding("tcp", False, _tcp_advice(error, target))]
    with raw:
        try:
            peer = raw.getpeername()[0]
        except OSError as error:  # it has hung up already, and the system knows of no peer any more
            return [*found, Finding("tls", False, _handshake_advice(error, target))]
        where = f"{peer} port {target.port}" if target.proxy is None else str(target)
        found.append(Finding("tcp", True, f"connected to {where}"))
        return found + _tls(raw, target)


def _resolve(target: _Target) -> Finding:
    if target.proxy is not None:
        return _resolve_proxy(*target.proxy)
    try:
        infos = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        advice = "check the spelling in federation.toml, or this machine's DNS or hosts file"
        return Finding("dns", False, f"{target.host} does not resolve; {advice}")
    places = ", ".join(dict.fromkeys(str(info[4][0]) for info in infos))
    return Finding("dns", True, f"{target.host} is {places}")


def _resolve_proxy(variable: str, url: str) -> Finding:
    """The proxy looks up the party's name itself."""
    try:
        host, port = proxies.place(url)
        socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, ValueError):
        return Finding("dns", False, f"the proxy that {variable} names cannot be used or found; correct the variable")
    return Finding("dns", True, f"{variable} names a proxy at {host} port {port}, which looks up the name")


def _tcp_advice(error: OSError, target: _Target) -> str:
    if isinstance(error, proxies.Proxied):
        return f"{target}: {error}; ask who runs it to allow CONNECT to there, or put the host into no_proxy"
    if isinstance(error, TimeoutError):
        advice = "a firewall probably drops it, or the machine is off"
        return f"{target} does not answer within {target.timeout:g} s; {advice}"
    if isinstance(error, ConnectionRefusedError):
        return f"{target} refuses: nothing listens there; start it, or check port, bind and firewall"
    if error.errno in _NO_ROUTE:
        return f"{target} is unreachable from here; check the network, VPN and routing"
    return f"{target} cannot be reached ({error.strerror or type(error).__name__}); check address and network"


def _tls(raw: socket.socket, target: _Target) -> list[Finding]:
    try:
        context = _context(target.kit)
    except (OSError, ValueError) as error:  # SSLError is an OSError
        why = type(error).__name__  # and not where: other parties are told what we find
        return [Finding("tls", False, f"cert.pem, key.pem or ca.pem of our kit cannot be used ({why}); check the kit")]
    name = identity(target.kit.federation.name, target.party_name)
    try:
        with context.wrap_socket(raw, server_hostname=name, do_handshake_on_connect=False) as secured:
            secured.do_handshake()  # here it raises if the peer has hung up already; wrapping would leave it undone
            return [_handshake(secured, target), _clock(secured, target), _acceptance(secured, target)]
    except ssl.SSLCertVerificationError as error:
        return _unverified(error, target)
    except OSError as error:
        return [Finding("tls", False, _handshake_advice(error, target))]


def _context(kit: Kit) -> ssl.SSLContext:
    """As strict as the real connection."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # verifies chain and name
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_verify_locations(cadata=kit.ca_pem.decode("ascii"))
    context.load_cert_chain(kit.path / "cert.pem", kit.path / "key.pem")
    context.set_alpn_protocols(["h2"])
    return context


def _handshake(secured: ssl.SSLSocket, target: _Target) -> Finding:
    if secured.selected_alpn_protocol() != "h2":
        advice = "the address is not a SecFC party's, or a proxy in between terminates TLS"
        return Finding("tls", False, f"{target} does not speak HTTP/2; {advice}")
    try:
        target.kit.pins.check(target.party_name, secured.getpeercert(binary_form=True) or b"")
    except SecfcError as error:
        return Finding("tls", False, f"{target} shows a certificate that is not in force: {error}")
    return Finding("tls", True, f"{secured.version()} with {target.party_name}, certificate as expected")


def _clock(secured: ssl.SSLSocket, target: _Target) -> Finding:
    """Verified, so our clock fits; say how long both certificates last: that may fail next."""
    now = datetime.now(UTC)
    der = secured.getpeercert(binary_form=True)
    try:
        theirs = peek(der or b"").not_after
    except ConfigError as error:
        return Finding("clock", False, f"{error}; renew {target.party_name}'s kit")
    left = f"certificate lasts another {(theirs - now).days} days, ours {(target.kit.expires - now).days}"
    return Finding("clock", True, f"our clock says {_stamp(now)}, {target.party_name}'s {left}")


def _acceptance(secured: ssl.SSLSocket, target: _Target) -> Finding:
    """In TLS 1.3 our handshake ends before the peer has judged our certificate: its first bytes tell."""
    try:
        greeting = secured.recv(1)
    except TimeoutError:
        advice = "it is overloaded, or not a SecFC party"
        return Finding("accepted", False, f"{target} says nothing within {target.timeout:g} s; {advice}")
    except OSError as error:
        return Finding("accepted", False, _rejection(error, target))
    if not greeting:
        return Finding("accepted", False, _closed(target))
    return Finding("accepted", True, f"{target.party_name} accepts our certificate ({target.kit.party_name})")


def _rejection(error: OSError, target: _Target) -> str:
    """What the peer says about us, where it says something."""
    reason = getattr(error, "reason", None) or ""
    for part, meaning in _ALERTS:
        if part in reason:
            return f"{target} rejects us: {meaning}"
    if isinstance(error, ssl.SSLEOFError | ConnectionError):
        return _closed(target)
    return f"{target} breaks off the TLS connection ({reason or type(error).__name__}); look at its log"


def _closed(target: _Target) -> str:
    advice = "compare both kits and clocks, and look at its log"
    return f"{target} hangs up without a reason, probably because of our certificate; {advice}"


def _handshake_advice(error: OSError, target: _Target) -> str:
    reason = getattr(error, "reason", None) or ""
    if any(part in reason for part in _NOT_TLS):
        return f"{target} answers, but not in TLS; it is another service, or runs without its kit"
    if isinstance(error, TimeoutError):
        advice = "it is not a TLS service, or a firewall lets only the connection through"
        return f"{target} accepts the connection but does not answer TLS within {target.timeout:g} s; {advice}"
    if isinstance(error, ssl.SSLEOFError | ConnectionError) or error.errno == errno.ENOTCONN:
        advice = "it is not a TLS service, or a firewall or proxy cuts TLS"
        return f"{target} hangs up during the TLS handshake; {advice}"
    return _rejection(error, target)


def _unverified(error: ssl.SSLCertVerificationError, target: _Target) -> list[Finding]:
    """The peer's certificate failed our check: look at what it claims, to tell the reasons apart."""
    claim = _look(target)
    now = datetime.now(UTC)
    if error.verify_code in (_EXPIRED, _NOT_YET):
        expired = error.verify_code == _EXPIRED
        dates = f" ({_stamp(claim.not_before)} to {_stamp(claim.not_after)})" if claim else ""
        detail = f"{target}'s certificate {'has expired' if expired else 'is not valid yet'}{dates}"
        advice = f"our clock says {_stamp(now)}; set it if it is wrong, or renew {target.party_name}'s kit"
        return [Finding("tls", False, detail), Finding("clock", False, f"{detail}; {advice}")]
    if error.verify_code == _HOSTNAME:
        names = ", ".join(claim.names) if claim else "somebody else"
        detail = f"{names!a} answers there instead; check the addresses in federation.toml"
        return [Finding("tls", False, f"{target}: {detail}")]
    advice = "both kits must come from the same provisioning"
    return [Finding("tls", False, f"{target} shows a certificate of another authority; {advice}")]


def _look(target: _Target) -> Peek | None:
    """The peer's certificate, trusted in nothing and used for the message only: no data is exchanged."""
    context = _context(target.kit)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with target.connect() as raw, context.wrap_socket(raw) as secured:
            return peek(secured.getpeercert(binary_form=True) or b"")
    except (OSError, ConfigError):
        return None


def _stamp(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"
