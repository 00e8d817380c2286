"""`secfc result`: what a submitted job found."""

from __future__ import annotations

import json
from pathlib import Path

import click

from secfc.commands import jobs as listing
from secfc.commands import options
from secfc.errors import Malformed
from secfc.net import jobs
from secfc.pki import kit as kits


@click.command("result")
@listing.argument
@options.kit("Any party's or submitter's kit.")
@options.as_json("Print the whole result.json.")
def command(name: str, kit_path: Path, as_json: bool) -> None:
    """Show what a finished job found: sizes, inertia, and what it cost. Never labels: those are with their owners, each in
    its own folder OUT/JOB.

    \b
    Example:
      secfc result 3fa4 --kit kits/analyst --json
    """
    found = read(jobs.result(kits.load(kit_path), name))
    if as_json:
        click.echo(json.dumps(found))
        return
    for key in ("job", "state", "reason", "k", "rows", "rounds", "converged", "inertia", "cluster_sizes"):
        if found.get(key) is not None:
            click.echo(f"{key.replace('_', ' '):14} {ascii(found[key]).strip(chr(39))}")


def read(content: bytes) -> dict[str, object]:
    """The server's JSON."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise Malformed("the server's result is not JSON; install the same version everywhere")
    return found
