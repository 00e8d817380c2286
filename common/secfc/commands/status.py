"""`secfc status`: the progress of the job, for any party of the federation."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import isfinite
from pathlib import Path
from typing import TypeVar

import click
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from secfc.agreement.federation import SERVER
from secfc.commands import options
from secfc.errors import JobFailed, Malformed, Unavailable
from secfc.net import admission, rpc, wire
from secfc.pki import kit as kits
from secfc.pki import probe
from secfc.pki.kit import Kit
from secfc.protocol import messages
from secfc.v1 import secfc_pb2 as pb
from secfc.v1.secfc_pb2_grpc import CoordinatorStub

DEADLINE = 10.0  # of one call, as the wire definition says
PATIENCE = 15.0  # --watch tolerates a server that is gone for this long, for example while it restarts
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


@click.command("status")
@options.kit("Any party's kit.")
@click.option("--watch", is_flag=True, help="Refresh every second until the job ends.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object; with --watch one per line, at every change.")
def command(kit_path: Path, watch: bool, as_json: bool) -> None:
    """Show what the server is doing: phase, round, clients, whom it waits for, broken links, and why a job failed.

    \b
    Exit codes:
      0  the server has answered (with --watch: the job has finished)
      2  the kit is not in order
      3  the server cannot be reached; the message says at which step it fails
      4  the server refuses or cannot answer (with --watch: or the job has failed)

    \b
    Example:
      secfc status --kit kits/hospital-a --watch
    """
    kit = kits.load(kit_path)
    try:
        if watch:
            _watch(kit, as_json)
        else:
            _once(ask(kit, DEADLINE), as_json)
    except Unavailable as error:
        notes = getattr(error, "__notes__", ())
        raise Unavailable("; ".join((diagnose(kit, str(error)), *notes))) from error


# --- asking ----------------------------------------------------------------------------------------------------------


def ask(kit: Kit, timeout: float) -> Status:
    """The server's status now; Unavailable or PeerError if it does not tell before the deadline."""

    async def call() -> Status:
        async with _channel(kit) as channel:
            return await _ask(channel, timeout)

    return asyncio.run(call())


async def follow(kit: Kit, show: Callable[[Status], None]) -> Status:
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
                    click.echo(f"no answer, trying for {PATIENCE:g} s: {error}", err=True)
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
        return _from_reply(await CoordinatorStub(channel).Status(pb.StatusRequest(), timeout=timeout))


def _from_reply(reply: pb.StatusReply) -> Status:
    if len(reply.clients) > wire.MAX_CLIENTS:
        raise Malformed("the server's status names more clients than there can be")
    clients = (
        ClientStatus(messages.line(c.name), c.joined, c.connected, c.holds_shares, c.done, c.liar, c.shares_checked)
        for c in reply.clients
    )
    known = reply.HasField("inertia") and isfinite(reply.inertia)
    return Status(
        federation=messages.line(reply.federation),
        federation_digest=reply.federation_digest.hex(),
        job_digest=reply.job_digest.hex(),
        phase=wire.phase_from(reply.phase).value,
        step=messages.line(reply.step),
        rows=reply.rows,
        round=reply.round,
        attempt=reply.attempt,
        inertia=reply.inertia if known else None,
        changed=reply.changed,
        seconds=min(max(reply.seconds, 0.0), 1e9) if isfinite(reply.seconds) else 0.0,
        clients=tuple(clients),
        broken_links=tuple(messages.line(link) for link in reply.broken_links[:_MAX_LINKS]),
        reason=messages.line(reply.reason),
        missing=tuple(messages.line(name) for name in reply.missing[: wire.MAX_CLIENTS]),
        committee=tuple(messages.line(name) for name in reply.committee[: wire.MAX_CLIENTS]),
    )


# --- showing ---------------------------------------------------------------------------------------------------------


def _once(status: Status, as_json: bool) -> None:
    if as_json:
        click.echo(_json(status))
    else:
        Console(highlight=False).print(_picture(status))


def _watch(kit: Kit, as_json: bool) -> None:
    console = Console(highlight=False)
    if as_json or not console.is_terminal:
        status = asyncio.run(follow(kit, _Lines(_json if as_json else _line)))
    else:
        with Live(console=console, auto_refresh=False) as live:
            status = asyncio.run(follow(kit, lambda now: live.update(_picture(now), refresh=True)))
    if status.phase == "failed":
        raise JobFailed(f"the job has failed: {status.reason or 'the server gives no reason'}")


class _Lines:
    """Prints a status if it differs from the one before in more than seconds."""

    def __init__(self, render: Callable[[Status], str]) -> None:
        self._render = render
        self._last: Status | None = None

    def __call__(self, status: Status) -> None:
        timeless = dataclasses.replace(status, seconds=0.0)
        if timeless != self._last:
            click.echo(self._render(status))
        self._last = timeless


def _json(status: Status) -> str:
    return json.dumps(dataclasses.asdict(status))


def _line(status: Status) -> str:
    joined = sum(client.joined for client in status.clients)
    connected = sum(client.connected for client in status.clients)
    parts = [status.phase or "unknown phase"]
    parts += [f"{joined} of {len(status.clients)} clients joined, {connected} connected"]
    parts += [f"round {_last_round(status)}"] if status.round else []
    if status.missing:
        parts.append(f"waiting for {few(status.missing)}")
    parts += [f"{len(status.broken_links)} broken links"] if status.broken_links else []
    parts += [status.reason] if status.reason else []
    return f"{datetime.now():%H:%M:%S} {'; '.join(parts)}"


def _last_round(status: Status) -> str:
    step = f" ({status.step})" if status.step else ""
    inertia = "no inertia yet" if status.inertia is None else f"inertia {status.inertia:.10g}"
    return f"{status.round}{step}: {inertia}, {status.changed} rows changed cluster"


def few(names: tuple[str, ...]) -> str:
    """The first five names."""
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


_COLOURS = {"finished": "bold green", "failed": "bold red"}


def _picture(status: Status) -> Group:
    """All of it, for people. Texts are never taken as markup: the server wrote them."""
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column(overflow="fold")
    facts.add_row("federation", Text(status.federation))
    facts.add_row("phase", Text(status.phase or "unknown phase", _COLOURS.get(status.phase, "bold")))
    facts.add_row("running", Text(f"{timedelta(seconds=round(status.seconds))}"))
    facts.add_row("rows", Text(f"{status.rows} of all clients that have joined"))
    if status.round:
        facts.add_row("last round", Text(_last_round(status)))
    if status.phase == "rounds" and status.attempt > 1:
        facts.add_row("this round", Text(f"attempt {status.attempt}, because a client was lost or slow", "yellow"))
    if status.missing:
        facts.add_row("waiting for", Text(few(status.missing)))
    if status.committee:
        facts.add_row("committee", Text(few(status.committee)))
    if liars := tuple(client.name for client in status.clients if client.liar):
        facts.add_row("liars", Text(f"{few(liars)}: wrong distances, not asked again", "red"))
    for number, link in enumerate(status.broken_links):
        facts.add_row("" if number else "broken links", Text(link, "yellow"))
    if status.reason:
        facts.add_row("reason", Text(status.reason, "red"))
    return Group(facts, _table(status))


def _table(status: Status) -> Table:
    table = Table()
    table.add_column("client", overflow="fold")
    for heading in ("joined", "connected", "holds shares", "done"):
        table.add_column(heading, justify="center")
    for client in status.clients:
        marks = (client.joined, client.connected, client.holds_shares, client.done)
        table.add_row(Text(client.name), *(Text("yes", "green") if mark else Text("–", "dim") for mark in marks))
    return table
