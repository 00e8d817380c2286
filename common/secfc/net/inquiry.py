"""Asking the server what it is doing: once, or every second; and where the way to it breaks, if it does not answer."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from math import isfinite
from typing import TypeVar

from secfc.agreement.federation import SERVER
from secfc.errors import Unavailable
from secfc.net import admission, rpc, wire
from secfc.pki import probe
from secfc.pki.kit import Kit
from secfc.protocol.messages import line
from secfc.v1 import secfc_pb2 as pb
from secfc.v1.secfc_pb2_grpc import CoordinatorStub, RelayStub

DEADLINE = 10.0  # of one call, as the wire definition says
PATIENCE = 15.0  # `follow` tolerates a server that is gone for this long, for example while it restarts
INTERVAL = 1.0
_ENDED = ("finished", "failed")
_PROBE_SECONDS = 5.0
_MAX_LINKS = 1000

T = TypeVar("T")


@dataclass(frozen=True)
class ClientStatus:
    """One client as the server sees it."""

    name: str
    joined: bool
    connected: bool
    holds_shares: bool
    done: bool
    liar: bool = False
    shares_checked: bool = False


@dataclass(frozen=True)
class Status:
    """The server's answer, made safe to show. `round`, `step`, `inertia` and `changed` are of the last finished round,
    `attempt` is of the one that is asked for now; `seconds` since the server started."""

    federation: str
    federation_digest: str  # of federation and job, hexadecimal; empty if the server does not tell
    job_digest: str  # of the job alone
    phase: str
    step: str
    rows: int
    round: int
    attempt: int
    inertia: float | None
    changed: int
    seconds: float
    clients: tuple[ClientStatus, ...]
    broken_links: tuple[str, ...]
    reason: str
    missing: tuple[str, ...]  # clients the job cannot go on without
    committee: tuple[str, ...] = ()  # who compares, in sealed rounds
    directions: int = 0  # of distances, given to the server so far
    of_directions: int = 0  # that there are; 0 before the rounds
    assignments: int = 0  # of all rows, given out so far
    runs: int = 0  # of the job; 0 before the rounds
    moving: int = 0  # of these


_RULES: dict[str, wire.Rule] = {
    "federation": line,
    "federation_digest": bytes.hex,
    "job_digest": bytes.hex,
    "phase": lambda number: wire.phase_from(number).value,
    "step": line,
    "seconds": lambda number: min(max(wire.seconds(number), 0.0), 1e9),
    "clients": wire.many("clients", wire.MAX_CLIENTS, partial(wire.read, ClientStatus, rules={"name": line})),
    "broken_links": partial(wire.lines, most=_MAX_LINKS),
    "reason": line,
    "missing": wire.lines,
    "committee": wire.lines,
}


def ask(kit: Kit, timeout: float) -> Status:
    """The server's status now; Unavailable or PeerError if it does not tell before the deadline."""

    async def call() -> Status:
        async with _channel(kit) as channel:
            return await _ask(channel, timeout)

    return asyncio.run(call())


def try_relay(kit: Kit, timeout: float) -> None:
    """Open a stream to the server's relay and end it, which changes nothing there; raises what is in its way."""

    async def call() -> None:
        async with _channel(kit) as channel:
            with rpc.link("the server"):
                await RelayStub(channel).Carry(_nothing(), timeout=timeout).read()

    asyncio.run(call())


async def _nothing() -> AsyncIterator[pb.Envelope]:
    nothing: tuple[pb.Envelope, ...] = ()
    for one in nothing:
        yield one


async def follow(kit: Kit, show: Callable[[Status], None], complain: Callable[[str], None]) -> Status:
    """Ask every second and show what comes, until the job has ended; the first answer must come at once."""
    answered, silent, phase = None, False, ""
    async with _channel(kit) as channel:
        while True:
            try:
                status = await _ask(channel, DEADLINE)
            except Unavailable as error:
                if answered is None:
                    raise
                if time.monotonic() - answered > PATIENCE:
                    error.add_note(f"last seen in phase {phase}: if the job has ended since, the server's log says how")
                    raise
                if not silent:
                    complain(f"no answer; trying for {PATIENCE:g} s: {error}")
                silent = True
            else:
                answered, silent, phase = time.monotonic(), False, status.phase
                show(status)
                if status.phase in _ENDED:
                    return status
            await asyncio.sleep(INTERVAL)


def diagnose(kit: Kit, symptom: str) -> str:
    """One line on why the server does not answer: the first step on the way that fails, else the symptom."""
    address = kit.federation.server.address
    try:
        found = in_background(lambda: probe.probe(kit, SERVER, address, _PROBE_SECONDS)).result(DEADLINE)
    except TimeoutError:
        return f"the server at {address} cannot be reached, and finding out why takes too long; check DNS and network"
    for finding in found:
        if not finding.ok:
            return finding.detail
    return f"the server at {address} is up and accepts our certificate, but SecFC does not answer there ({symptom})"


def in_background(call: Callable[[], T]) -> Future[T]:
    """Call it in a thread that can be given up: a resolver may hang far longer than any timeout of ours, and a
    pool of threads would wait for it even when the process ends."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # raised again where the result is awaited
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def _channel(kit: Kit) -> admission.Channel:
    return rpc.channel(kit, SERVER, kit.federation.server.address)


async def _ask(channel: admission.Channel, timeout: float) -> Status:
    with rpc.link("the server"):
        return from_reply(await CoordinatorStub(channel).Status(pb.StatusRequest(), timeout=timeout))


def from_reply(reply: pb.StatusReply) -> Status:
    """The server's answer, made safe to show."""
    status = wire.read(Status, reply, _RULES)
    return status if reply.HasField("inertia") and isfinite(reply.inertia) else replace(status, inertia=None)
