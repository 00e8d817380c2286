"""`secfc result`: what a submitted job found."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from secfc.commands import jobs as listing
from secfc.commands import options
from secfc.commands.runstable import runs_table
from secfc.errors import Malformed
from secfc.net import jobs
from secfc.pki import kit as kits


@click.command("result")
@listing.argument
@options.kit("Any party's or submitter's kit.")
@options.as_json("Print the whole result.json.")
def command(name: str, kit_path: Path, as_json: bool) -> None:
    """Show what a finished job found: sizes, inertia, and the best start of every k with what helps to choose one. Never
    labels: those are with their owners, each in its own folder OUT/JOB.

    \b
    Example:
      secfc result 3fa4 --kit kits/analyst --json
    """
    found = read(jobs.result(kits.load(kit_path), name))
    if as_json:
        click.echo(json.dumps(found))
        return
    for key in ("job", "state", "reason", "k", "rows", "rounds", "converged", "inertia", "cluster_sizes", "clusters"):
        if found.get(key) is not None:
            click.echo(f"{key.replace('_', ' '):14} {ascii(found[key]).strip(chr(39))}")
    show_runs(found)


def show_runs(found: Mapping[str, Any]) -> None:
    """A table of the best run of every k, if there were several runs."""
    try:
        if len(found.get("runs") or ()) > 1:
            Console(highlight=False).print(runs_table(found))
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        raise Malformed("the server's result is not as it should be; install the same version everywhere") from None


def read(content: bytes) -> dict[str, object]:
    """The server's JSON."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise Malformed("the server's result is not JSON; install the same version everywhere")
    return found
