"""`secfc wait`: until a submitted job is over."""

from __future__ import annotations

from pathlib import Path

import click

from secfc.commands import jobs, options
from secfc.pki import kit as kits


@click.command("wait")
@jobs.argument
@options.kit("Any party's or submitter's kit.")
@click.option("--timeout", type=click.FloatRange(0), metavar="SECONDS", help="Give up after so long; default: never.")
@options.as_json()
def command(name: str, kit_path: Path, timeout: float | None, as_json: bool) -> None:
    """Wait until a submitted job is over, and show it.

    \b
    Exit codes:
      0  it has finished
      3  it is not over in time, or the server cannot be reached
      4  it failed, was refused or cancelled, or has expired
    """
    one = jobs.awaited(kits.load(kit_path), name, timeout, quiet=as_json)
    jobs.show(one, as_json)
    jobs.check_finished(one)
