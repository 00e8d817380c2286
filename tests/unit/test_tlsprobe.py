"""The TLS probe against real sockets on this machine: each way a connection fails gets its own line."""

from __future__ import annotations

import select
import shutil
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from secfc.agreement import federation as federations
from secfc.pki import certificates, kit
from secfc.pki.kit import Finding, Kit
from secfc.pki.probe import probe
from secfc.pki.provision import Authority, certificate_pem, issue_certificate, make_key, private_pem, provision
from tests.unit.test_kit import FEDERATION

NOW = datetime.now(UTC)
PATIENCE = 120.0  # only ever waited for in full when a test fails
SETTINGS = b"\0\0\0\4\0\0\0\0\0"  # an empty HTTP/2 SETTINGS frame: what a server says first


@pytest.fixture(scope="module")
def kits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Kits made 50 days ago, so that the authority can also sign what has expired since."""
    made = provision(FEDERATION, tmp_path_factory.mktemp("probe") / "kits", now=NOW - timedelta(days=50))
    return made.ca.parent


@pytest.fixture(scope="module")
def strange(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Kits of the same federation file, but of another provisioning."""
    return provision(FEDERATION, tmp_path_factory.mktemp("strange") / "kits").ca.parent


@pytest.fixture
def a(kits: Path) -> Kit:
    return kit.load(kits / "a")


def reissued(kits: Path, tmp_path: Path, party: str, issued: datetime) -> Path:
    """A copy of a kit without a roster, whose certificate lasts 10 days from then."""
    folder = Path(shutil.copytree(kits / party, tmp_path / party))
    authority_key = serialization.load_pem_private_key((kits / "ca" / "ca.key").read_bytes(), None)
    assert isinstance(authority_key, ec.EllipticCurvePrivateKey)
    authority = Authority(
        certificates.parse_certificate((kits / "ca" / "ca.pem").read_bytes(), "ca.pem"), authority_key
    )
    key, names = make_key(), [federations.identity("trial", party)]
    leaf = issue_certificate(authority, key.public_key(), party, names, 10, now=issued)
    (folder / "cert.pem").write_bytes(certificate_pem(leaf))
    (folder / "key.pem").write_bytes(private_pem(key))
    (folder / "roster.json").unlink()  # which lists another certificate
    return folder


def tls(folder: Path, ca: Path | None = None, alpn: str = "h2") -> ssl.SSLContext:
    """A server's context from a kit folder; clients must come with a certificate of `ca` (default: the kit's)."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    context.load_verify_locations(ca or folder / "ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    context.set_alpn_protocols([alpn])
    return context


@contextmanager
def listening(handle: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server in a thread that handles one connection after the other; the address to dial."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_accept, args=(listener, handle), daemon=True)
        thread.start()
        port = listener.getsockname()[1]
        yield f"127.0.0.1:{port}"
        listener.shutdown(socket.SHUT_RDWR)  # wakes the accept
        thread.join(PATIENCE)
        assert not thread.is_alive()


def _accept(listener: socket.socket, handle: Callable[[socket.socket], None]) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection:
            connection.settimeout(PATIENCE)
            handle(connection)


def greeter(context: ssl.SSLContext, greeting: bytes = SETTINGS) -> Callable[[socket.socket], None]:
    """Speaks TLS, greets, and waits for the other end to leave (or leaves, if it has nothing to say)."""

    def handle(connection: socket.socket) -> None:
        try:
            with context.wrap_socket(connection, server_side=True) as secured:
                secured.sendall(greeting)
                while greeting and secured.recv(1024):
                    pass
        except OSError:
            return  # the probe saw to it; what it reports is what the test looks at

    return handle


def checked(found: list[Finding]) -> dict[str, Finding]:
    """By name; every line is one line."""
    assert all(len(finding.detail.splitlines()) == 1 for finding in found)
    return {finding.name: finding for finding in found}


def failure(found: list[Finding]) -> Finding:
    """The only finding that failed."""
    bad = [finding for finding in checked(found).values() if not finding.ok]
    assert len(bad) == 1, found
    return bad[0]


def test_all_is_well(kits: Path, a: Kit) -> None:
    with listening(greeter(tls(kits / "server"))) as address:
        found = checked(probe(a, "server", address, PATIENCE))
    assert list(found) == ["dns", "tcp", "tls", "clock", "accepted"]
    assert all(finding.ok for finding in found.values()), found
    assert found["dns"].detail == "127.0.0.1 is 127.0.0.1"
    assert "another 314 days, ours 314" in found["clock"].detail


def test_tls_12(kits: Path, a: Kit) -> None:
    context = tls(kits / "server")
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with listening(greeter(context)) as address:
        found = probe(a, "server", address, PATIENCE)
    assert all(finding.ok for finding in found), found
    assert "TLSv1.2" in checked(found)["tls"].detail


def test_refused_port(a: Kit) -> None:
    with socket.socket() as bound:  # bound but not listening: nobody else takes the port meanwhile
        bound.bind(("127.0.0.1", 0))
        finding = failure(probe(a, "server", f"127.0.0.1:{bound.getsockname()[1]}", PATIENCE))
    assert finding.name == "tcp"
    assert "nothing listens there" in finding.detail


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (TimeoutError("timed out"), "does not answer within 5 s; a firewall"),
        (OSError(113, "No route to host"), "unreachable from here"),
        (PermissionError(13, "Permission denied"), "Permission denied"),
    ],
)
def test_tcp_errors(a: Kit, monkeypatch: pytest.MonkeyPatch, error: OSError, advice: str) -> None:
    """These cannot be brought about on one machine without rights, so the socket call is replaced."""

    def fail(*_: object) -> socket.socket:
        raise error

    monkeypatch.setattr(socket, "create_connection", fail)
    finding = failure(probe(a, "server", "127.0.0.1:7000"))
    assert finding.name == "tcp"
    assert advice in finding.detail


def test_name_that_does_not_resolve(a: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    found = probe(a, "server", "coord.example:7000")
    assert [finding.name for finding in found] == ["dns"]
    assert "coord.example does not resolve" in failure(found).detail


def test_malformed_address(a: Kit) -> None:
    assert 'is not "host:port"' in failure(probe(a, "server", "nonsense")).detail


def test_plaintext_peer(a: Kit) -> None:
    def handle(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        connection.recv(1 << 16)

    with listening(handle) as address:
        finding = failure(probe(a, "server", address, PATIENCE))
    assert finding.name == "tls"
    assert "but not in TLS" in finding.detail


def test_peer_that_hangs_up(a: Kit) -> None:
    with listening(lambda connection: None) as address:
        finding = failure(probe(a, "server", address, PATIENCE))
    assert finding.name == "tls"
    assert "hangs up during the TLS handshake" in finding.detail


@pytest.mark.parametrize("after", ["connecting", "wrapping"])
def test_peer_that_resets_before_we_have_said_anything(a: Kit, monkeypatch: pytest.MonkeyPatch, after: str) -> None:
    """As a load balancer does that has nothing behind it. The system then knows of no peer, which was raised as it is, and
    ended a client that only wanted to know why it does not get through."""
    gone = threading.Event()

    def reset(connection: socket.socket) -> None:
        assert gone.wait(PATIENCE)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def let_go(ours: socket.socket) -> None:
        gone.set()
        poll = select.poll()
        poll.register(ours, 0)
        assert poll.poll(1000 * PATIENCE), "the reset is here"

    def connect(place: tuple[str, int], seconds: float, made: Any = socket.create_connection) -> socket.socket:
        ours: socket.socket = made(place, seconds)
        let_go(ours)
        return ours

    def shake(ours: ssl.SSLSocket, made: Any = ssl.SSLSocket.do_handshake) -> None:
        let_go(ours)
        made(ours)

    if after == "connecting":
        monkeypatch.setattr(socket, "create_connection", connect)
    else:
        monkeypatch.setattr(ssl.SSLSocket, "do_handshake", shake)
    with listening(reset) as address:
        finding = failure(probe(a, "server", address, PATIENCE))
    assert finding.name == "tls"
    assert "hangs up during the TLS handshake" in finding.detail


def test_silent_peer(a: Kit) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:  # the kernel accepts, nobody ever answers
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        finding = failure(probe(a, "server", address, 0.2))
    assert finding.name == "tls"
    assert "does not answer TLS within 0.2 s" in finding.detail


def test_other_authority_on_the_server(strange: Path, a: Kit) -> None:
    with listening(greeter(tls(strange / "server"))) as address:
        finding = failure(probe(a, "server", address, PATIENCE))
    assert finding.name == "tls"
    assert "certificate of another authority" in finding.detail


def test_other_party_at_the_address(kits: Path, a: Kit) -> None:
    with listening(greeter(tls(kits / "b"))) as address:
        finding = failure(probe(a, "server", address, PATIENCE))
    assert finding.name == "tls"
    assert "'b.trial.secfc.internal' answers there instead" in finding.detail


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_server_rejects_our_authority(kits: Path, strange: Path, a: Kit, version: ssl.TLSVersion) -> None:
    context = tls(kits / "server", ca=strange / "ca" / "ca.pem")
    context.maximum_version = version
    with listening(greeter(context)) as address:
        finding = failure(probe(a, "server", address, PATIENCE))
    assert finding.name == ("tls" if version == ssl.TLSVersion.TLSv1_2 else "accepted")
    assert "rejects us: it trusts another authority" in finding.detail


def test_server_finds_our_certificate_expired(kits: Path, tmp_path: Path) -> None:
    folder = reissued(kits, tmp_path, "a", NOW - timedelta(days=20))
    stale = kit.load(folder, now=NOW - timedelta(days=15))
    with listening(greeter(tls(kits / "server"))) as address:
        finding = failure(probe(stale, "server", address, PATIENCE))
    assert finding.name == "accepted"
    assert "it considers our certificate expired; compare both clocks" in finding.detail


@pytest.mark.parametrize(("age", "words"), [(20, "has expired"), (-20, "is not valid yet")])
def test_server_certificate_out_of_date(kits: Path, tmp_path: Path, a: Kit, age: int, words: str) -> None:
    folder = reissued(kits, tmp_path, "server", NOW - timedelta(days=age))
    with listening(greeter(tls(folder))) as address:
        found = checked(probe(a, "server", address, PATIENCE))
    assert (found["tls"].ok, found["clock"].ok) == (False, False)
    assert words in found["tls"].detail
    assert f"{NOW - timedelta(days=age - 10):%Y-%m-%d}" in found["clock"].detail
    assert f"our clock says {datetime.now(UTC):%Y-%m}" in found["clock"].detail


def test_server_closes_without_a_word(kits: Path, a: Kit) -> None:
    with listening(greeter(tls(kits / "server"), greeting=b"")) as address:
        finding = failure(probe(a, "server", address, PATIENCE))
    assert finding.name == "accepted"
    assert "hangs up without a reason" in finding.detail


def test_no_http2(kits: Path, a: Kit) -> None:
    with listening(greeter(tls(kits / "server", alpn="http/1.1"))) as address:
        found = checked(probe(a, "server", address, PATIENCE))
    assert not found["tls"].ok
    assert "HTTP/2" in found["tls"].detail


def test_kit_that_vanished(kits: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(kits / "a", tmp_path / "a"))
    loaded = kit.load(folder)
    shutil.rmtree(folder)
    with listening(greeter(tls(kits / "server"))) as address:
        finding = failure(probe(loaded, "server", address, PATIENCE))
    assert "check the kit" in finding.detail
    assert str(folder) not in finding.detail, "a client tells the server what it finds wrong with a link"


@contextmanager
def grpc_server(folder: Path, ca: Path) -> Iterator[str]:
    """A real gRPC server with no service: it is its TLS that matters."""
    pair = ((folder / "key.pem").read_bytes(), (folder / "cert.pem").read_bytes())
    credentials = grpc.ssl_server_credentials([pair], ca.read_bytes(), require_client_auth=True)
    with ThreadPoolExecutor(1) as pool:
        server = grpc.server(pool)
        port = server.add_secure_port("127.0.0.1:0", credentials)
        server.start()
        try:
            yield f"127.0.0.1:{port}"
        finally:
            server.stop(None).wait(PATIENCE)


def test_real_grpc_server(kits: Path, strange: Path, a: Kit) -> None:
    with grpc_server(kits / "server", kits / "ca" / "ca.pem") as address:
        found = probe(a, "server", address, PATIENCE)
    assert all(finding.ok for finding in found), found
    with grpc_server(kits / "server", strange / "ca" / "ca.pem") as address:
        finding = failure(probe(a, "server", address, PATIENCE))
    assert finding.name == "accepted"
