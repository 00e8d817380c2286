"""`secfc jobs`: the jobs of a federation that stays; and how all commands about jobs show one."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from secfc.commands import options
from secfc.errors import JobFailed, Unavailable
from secfc.net import jobs
from secfc.net.jobs import Listed
from secfc.pki import kit as kits
from secfc.pki.kit import Kit
from secfc.pki.provision import spoken
from secfc.wording import few

argument = click.argument("name", metavar="JOB")
INTERVAL = 1.0
PATIENCE = 60.0  # a server that is gone for longer is given up by who waits


@click.command("jobs")
@options.kit("Any party's or submitter's kit.")
@options.as_json("Print a JSON list.")
def command(kit_path: Path, as_json: bool) -> None:
    """List the jobs that were submitted to a federation, the newest first.

    \b
    Example:
      secfc jobs --kit kits/analyst
    """
    found = jobs.listed(kits.load(kit_path))
    if as_json:
        click.echo(json.dumps([one.plain() for one in found]))
        return
    table = Table()
    for heading in ("job", "state", "submitter", "dataset", "k", "submitted"):
        table.add_column(heading, overflow="fold")
    for one in found:
        clusters = ", ".join(map(str, one.job.wanted.job.ks))
        cells = (
            one.job.id,
            status(one),
            one.job.submitter,
            one.job.wanted.dataset,
            clusters,
            moment(one.job.submitted),
        )
        table.add_row(*map(Text, cells))
    Console(highlight=False).print(table if found else "No job was submitted yet.")


def status(one: Listed) -> str:
    """Where a job stands, in a few words."""
    if one.state == "waiting":
        return f"waiting for approval of {few(one.waiting_for)}"
    if one.state == "submitted" and one.waiting_for:
        return f"submitted; no answer yet from {few(one.waiting_for)}"
    return f"{one.state}: {one.reason}" if one.reason else one.state


def moment(seconds: int) -> str:
    """A time for people."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC" if seconds else "–"


def lines(one: Listed) -> Iterable[str]:
    """All there is to say about a job."""
    yield f"job        {one.job.id}"
    yield f"digest     {spoken(one.job.digest)}"
    yield f"state      {status(one)}"
    yield f"submitter  {one.job.submitter}, token {one.job.token}"
    sites = one.job.wanted.sites
    yield f"dataset    {one.job.wanted.dataset}, at {few(sites) if sites else 'all sites'}"
    yield f"submitted  {moment(one.job.submitted)}; expires {moment(one.job.expires)}"
    yield f"ran        {moment(one.began)} to {moment(one.ended)}"
    for site, verdict, why in one.decisions:
        yield f"           {site}: {verdict}{', ' + why if why else ''}"


def show(one: Listed, as_json: bool) -> None:
    """Print one job."""
    click.echo(json.dumps(one.plain()) if as_json else "\n".join(lines(one)))


def awaited(kit: Kit, name: str, timeout: float | None, quiet: bool = False) -> Listed:
    """A job once it is over; Unavailable if that takes longer, naming whom it waits for. A server that is gone for a while is
    waited for."""
    deadline, seen, said = None if timeout is None else time.monotonic() + timeout, time.monotonic(), ""
    while True:
        try:
            one, seen = jobs.named(kit, name), time.monotonic()
        except Unavailable:
            if time.monotonic() - seen > PATIENCE:
                raise
        else:
            if one.over:
                return one
            if status(one) != said and not quiet:
                said = status(one)
                click.echo(f"{one.job.id}: {said}", err=True)
            if deadline is not None and time.monotonic() > deadline:
                raise Unavailable(f"job {one.job.id} is not over after {timeout:g} s: it is {status(one)}")
        time.sleep(INTERVAL)


def check_finished(one: Listed) -> None:
    """Raise unless the job has a result."""
    if one.state != "finished":
        raise JobFailed(f"job {one.job.id} is {status(one)}")
