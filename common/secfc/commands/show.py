"""`secfc show`: one submitted job."""

from __future__ import annotations

from pathlib import Path

import click

from secfc.commands import jobs as listing
from secfc.commands import options
from secfc.net import jobs
from secfc.pki import kit as kits


@click.command("show")
@listing.argument
@options.kit("Any party's or submitter's kit.")
@options.as_json()
def command(name: str, kit_path: Path, as_json: bool) -> None:
    """Show one submitted job: where it stands, whom it waits for, and what each site says of it.

    \b
    Example:
      secfc show 3fa4 --kit kits/analyst
    """
    listing.show(jobs.named(kits.load(kit_path), name), as_json)
