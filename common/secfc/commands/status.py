"""`secfc status`: the progress of the job, for any party of the federation."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import click
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from secfc.commands import options
from secfc.errors import JobFailed, Unavailable
from secfc.net import inquiry
from secfc.net.inquiry import Status
from secfc.pki import kit as kits
from secfc.pki.kit import Kit
from secfc.wording import few


@click.command("status")
@options.kit("Any party's kit.")
@click.option("--watch", is_flag=True, help="Refresh every second until the job ends.")
@options.as_json("Print one JSON object; with --watch one per line, at every change.")
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
            _once(inquiry.ask(kit, inquiry.DEADLINE), as_json)
    except Unavailable as error:
        notes = getattr(error, "__notes__", ())
        raise Unavailable("; ".join((inquiry.diagnose(kit, str(error)), *notes))) from error


def _once(status: Status, as_json: bool) -> None:
    if as_json:
        click.echo(_json(status))
    else:
        Console(highlight=False).print(_picture(status))


def _watch(kit: Kit, as_json: bool) -> None:
    console, complain = Console(highlight=False), partial(click.echo, err=True)
    if as_json or not console.is_terminal:
        status = asyncio.run(inquiry.follow(kit, _Lines(_json if as_json else _line), complain))
    else:
        with Live(console=console, auto_refresh=False) as live:
            follow = inquiry.follow(kit, lambda now: live.update(_picture(now), refresh=True), complain)
            status = asyncio.run(follow)
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
    moving = f", {status.moving} of {status.runs} runs still move" if status.runs > 1 else ""
    return f"{status.round}{step}: {inertia}, {status.changed} rows changed cluster{moving}"


def _given(status: Status) -> str:
    directions = f"{status.directions} of {status.of_directions} directions of distances to the server"
    return f"{directions}; {status.assignments} assignments of all rows"


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
    if status.of_directions:
        facts.add_row("given away", Text(_given(status)))
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
