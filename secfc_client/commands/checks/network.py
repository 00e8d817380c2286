"""What is tried on the network: our own port, the server step by step, and the other clients.

Everything is tried at the same time, in threads that are given up after the timeout and `GRACE` seconds; so the check ends
then, whatever the network does.
"""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import closing
from functools import partial

from secfc.agreement import federation as federations
from secfc.agreement.federation import SERVER, Federation
from secfc.agreement.parties import Party, split_address
from secfc.errors import SecfcError
from secfc.net import inquiry
from secfc.net.inquiry import Status
from secfc.pki import probe
from secfc.pki.kit import Finding, Kit
from secfc_client.commands.checks import firewall
from secfc_client.commands.checks.verdicts import FAIL, OK, WARN, Verdict, failed

GRACE = 2.0  # for what the probe does besides waiting, on a busy machine
_NO_PORT = Verdict("own port", OK, "none: this client only dials out, and listens nowhere")
_SERVER_STEPS = {"dns": "server name", "tcp": "server port", "tls": "server tls", "clock": "server clock"}


class Network:
    """Everything that is tried on the network, begun at once; `results` waits, but not for long."""

    def __init__(self, kit: Kit, timeout: float) -> None:
        self._kit, self._timeout = kit, timeout
        self._deadline = time.monotonic() + timeout + GRACE
        self._tasks: list[tuple[str, str, Future[list[Verdict]]]] = []  # name, status if given up, task
        me = kit.federation.party(kit.party_name)
        others = [party for party in kit.federation.clients if party is not me]
        listens = kit.federation.dialled(me.name)
        self._begin("own port", FAIL, lambda: [_own_port(me) if listens else _NO_PORT])
        if me.name != SERVER:
            self._begin("server", FAIL, self._server)
            if kit.federation.relay != "never":
                self._begin("relay", FAIL, self._relay)
        for other in others:
            self._begin(f"client {other.name}", WARN, partial(self._client, other))
        self._begin("firewall", WARN, lambda: firewall.rules(kit.federation, me))

    def _begin(self, name: str, given_up: str, task: Callable[[], list[Verdict]]) -> None:
        self._tasks.append((name, given_up, inquiry.in_background(task)))

    def results(self) -> list[Verdict]:
        """What came of it, in the order in which it was begun."""
        collected: list[Verdict] = []
        for name, given_up, task in self._tasks:
            try:
                collected += task.result(max(0.0, self._deadline - time.monotonic()))
            except TimeoutError:
                seconds = f"{self._timeout + GRACE:g} s"
                detail = f"not finished within {seconds}; DNS probably hangs: check this machine's resolver and network"
                collected.append(Verdict(name, given_up, detail))
        return collected

    def _server(self) -> list[Verdict]:
        """Step by step, then the service itself."""
        kit = self._kit
        found = probe.probe(kit, SERVER, kit.federation.server.address, self._timeout)
        results = [_server_step(finding) for finding in found]
        if failed(results):
            return results
        try:
            reply = inquiry.ask(kit, max(0.5, self._deadline - time.monotonic() - GRACE / 2))
        except SecfcError as error:
            return [*results, Verdict("server answers", FAIL, f"{error}; look at the server's log, compare versions")]
        return [*results, _service(reply, kit), _same_federation(reply, kit.federation)]

    def _relay(self) -> list[Verdict]:
        """Open a stream to it, as the client will."""
        try:
            inquiry.try_relay(self._kit, self._timeout)
        except SecfcError as error:
            return [Verdict("relay", FAIL, f"no stream to the server's relay: {error}; a proxy may cut long calls")]
        return [Verdict("relay", OK, "the server carries what clients send each other, end-to-end encrypted")]

    def _client(self, client: Party) -> list[Verdict]:
        if not self._kit.federation.dialled(client.name):
            return [self._through_server(client)]
        return [_resolves(client) if self._kit.party_name == SERVER else self._peer(client)]

    def _through_server(self, peer: Party) -> Verdict:
        """Only the server knows whether it is there."""
        name, way = f"client {peer.name}", f"{self._kit.party_name} -> server -> {peer.name}"
        if self._kit.party_name == SERVER:
            return Verdict(name, OK, f"{peer.name} only dials out; nobody connects to it")
        try:
            clients = {one.name: one for one in inquiry.ask(self._kit, self._timeout).clients}
        except SecfcError:
            return Verdict(name, WARN, f"{way}: not known while the server does not answer")
        if (found := clients.get(peer.name)) is not None and found.connected:
            return Verdict(name, OK, f"{way}: connected to the server")
        return Verdict(name, WARN, f"{way}: {peer.name} is not connected to the server yet")

    @property
    def _falls_back(self) -> bool:
        return self._kit.federation.relay == "fallback"

    def _peer(self, peer: Party) -> Verdict:
        """Name and port may come with the client's start; if it answers, it must be the right one."""
        found = probe.probe(self._kit, peer.name, peer.address, self._timeout)
        name, link = f"client {peer.name}", f"{self._kit.party_name} -> {peer.name}"
        for finding in found:
            if finding.ok:
                continue
            if finding.name in ("dns", "tcp"):
                else_ = "; if that stays so, we reach it through the server" if self._falls_back else ""
                return Verdict(name, WARN, f"{link} not reachable yet: {finding.detail}{else_}")
            return Verdict(name, FAIL, f"{link}: {finding.detail}")
        return Verdict(name, OK, f"{link} at {peer.address}: {found[-1].detail}")


def _server_step(finding: Finding) -> Verdict:
    name = _SERVER_STEPS.get(finding.name, f"server {finding.name}")
    if finding.ok:
        return Verdict(name, OK, finding.detail)
    up = "; the server must be up for this check" if finding.name == "tcp" else ""
    return Verdict(name, FAIL, finding.detail + up)


def _service(reply: Status, kit: Kit) -> Verdict:
    """The gRPC service answers; is it a job that this client can still join?"""
    if reply.phase in ("finished", "failed"):
        detail = f"its job has {reply.phase}; for a new one: secfc-server --new"
        return Verdict("server answers", WARN, detail + (f" (reason: {reply.reason})" if reply.reason else ""))
    if any(client.name == kit.party_name and client.connected for client in reply.clients):
        detail = f"a process is connected as {kit.party_name} already, and a second one would be refused; stop it first"
        return Verdict("server answers", WARN, detail)
    joined = sum(client.joined for client in reply.clients)
    return Verdict("server answers", OK, f"phase {reply.phase}, {joined} of {len(reply.clients)} clients have joined")


def _same_federation(reply: Status, federation: Federation) -> Verdict:
    name, ours, theirs = "same federation", federation.agreed().hex(), reply.federation_digest
    if not theirs:
        return Verdict(name, WARN, "the server does not show its digest of federation.toml; joining will compare it")
    if theirs != ours:
        part = _differing(reply, federation)
        detail = f"the server's federation.toml differs from ours{part} (digest {theirs[:12]}, ours {ours[:12]})"
        return Verdict(name, FAIL, f"{detail}; give every party the same file")
    return Verdict(name, OK, f"the server has the same federation.toml (digest {ours[:12]})")


def _differing(reply: Status, federation: Federation) -> str:
    """Which part of federation.toml it is, if the server's digest of its job tells."""
    if not reply.job_digest:
        return ""
    if reply.job_digest == federation.job.digest().hex():
        return " in who takes part or in the guarantees, not in [job]"
    only = federations.agreed(federation.digest(), bytes.fromhex(reply.job_digest)).hex() == reply.federation_digest
    return " in [job] only" if only else " in [job], and in who takes part or in the guarantees"


def _own_port(me: Party) -> Verdict:
    """Bind as gRPC would, and let go; without listening, lest another site's check meets us."""
    host, port = split_address(me.bind)
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with closing(socket.socket(family, kind, protocol)) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # old connections are no listener
            listener.bind(place)
    except (OSError, UnicodeError) as error:
        return Verdict("own port", FAIL, f"cannot listen on {me.bind}: {_bind_advice(error, me)}")
    return Verdict("own port", OK, f"{me.bind} is free to listen on; others dial {me.address}")


def _bind_advice(error: OSError | UnicodeError, me: Party) -> str:
    code = error.errno if isinstance(error, OSError) and not isinstance(error, socket.gaierror) else None
    if code == errno.EADDRINUSE:
        running = "secfc-server" if me.name == SERVER else "secfc-client"
        return f"something (perhaps a running {running}) is listening on it; stop that, or choose another port"
    if code == errno.EADDRNOTAVAIL:
        return "the address is not this machine's; correct bind in federation.toml"
    if code in (errno.EACCES, errno.EPERM):
        return "not permitted; ports below 1024 are for root, choose another"
    return f"{getattr(error, 'strerror', None) or 'not a usable name'}; correct bind in federation.toml"


def _resolves(client: Party) -> Verdict:
    """The server dials no client, but a name that nobody knows is a mistake in the file all parties share."""
    name = f"client {client.name}"
    try:
        infos = socket.getaddrinfo(client.host, client.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        advice = "the other clients must be able to resolve it: check federation.toml and DNS"
        return Verdict(name, WARN, f"{client.host} does not resolve here; {advice}")
    return Verdict(name, OK, f"{client.host} is {', '.join(dict.fromkeys(str(info[4][0]) for info in infos))}")
