"""`secfc refuse`: a person at a site refuses a submitted job."""

from __future__ import annotations

import json
from pathlib import Path

import click

from secfc.commands import options
from secfc_client import desk


@click.command("refuse")
@click.argument("name", metavar="JOB")
@options.kit("This site's kit folder.")
@options.state
@click.option("--why", required=True, metavar="TEXT", help="The submitter and all sites read it.")
@options.as_json()
def command(name: str, kit_path: Path, state: Path | None, why: str, as_json: bool) -> None:
    """Refuse a submitted job, for good: it ends for all sites. A job that is running here is left.

    \b
    Example:
      secfc refuse 3fa4 --kit /etc/secfc/kit --why "not covered by our ethics approval"
    """
    answer = desk.ask(state or kit_path / "state", do="refuse", job=name, why=why)
    click.echo(json.dumps(answer) if as_json else f"{answer['job']}: refused")
