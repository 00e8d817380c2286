"""`secfc cancel`: call a submitted job off."""

from __future__ import annotations

from pathlib import Path

import click

from secfc.commands import jobs as listing
from secfc.commands import options
from secfc.net import jobs
from secfc.pki import kit as kits


@click.command("cancel")
@listing.argument
@options.kit("The kit of who submitted it, or the server's.")
@options.as_json()
def command(name: str, kit_path: Path, as_json: bool) -> None:
    """Call a submitted job off, whether it waits or runs. What it has given away by then stays given away."""
    listing.show(jobs.cancel(kits.load(kit_path), name), as_json)
