"""`secfc approve`: a person at a site allows a submitted job; and how jobs are shown before somebody decides."""

from __future__ import annotations

import getpass
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from secfc.commands import options
from secfc.errors import InvalidInput
from secfc_client import describing, desk


@click.command("approve")
@click.argument("name", metavar="[JOB]", required=False)
@options.kit("This site's kit folder.")
@options.state
@click.option("--yes", is_flag=True, help="Do not ask.")
@options.as_json()
def command(name: str | None, kit_path: Path, state: Path | None, yes: bool, as_json: bool) -> None:
    """Allow a submitted job that waits for a person at this site, after showing what it does and gives away; without JOB,
    list the jobs that this site knows.

    It talks to the node (`secfc-client --dataset …`) that runs on this machine, as the account that runs it. The digest is
    the same at all sites: to be sure that you speak of the same job, compare it over the telephone.

    \b
    Examples:
      secfc approve --kit /etc/secfc/kit
      secfc approve 3fa4 --kit /etc/secfc/kit
    """
    folder = state or kit_path / "state"
    if name is None:
        _list(desk.ask(folder, do="list"), as_json)
        return
    (one,) = desk.ask(folder, do="list", job=name)
    if not as_json:
        click.echo("\n".join(lines(one)))
    if not yes:
        if as_json:
            raise InvalidInput("--json does not ask; add --yes to approve the job")
        click.confirm("\nTake part in this job?", abort=True)
    answer = desk.ask(folder, do="approve", job=one["digest"], who=getpass.getuser())
    click.echo(json.dumps(answer) if as_json else f"{answer['job']}: {answer['why']}")


def lines(one: dict[str, Any]) -> Iterable[str]:
    """All that a person should know before deciding."""
    for name, text in describing.facts(one):
        first, *more = text.split("\n")
        if more or len(name) > len("parameters"):
            yield name
            yield from (f"           {line}" for line in (first, *more))
        else:
            yield f"{name:<11}{first}"


def _list(found: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(found))
        return
    for one in found:
        asked = f"{one['submitter']} on {one['dataset']}"
        click.echo(f"{one['job']}  {asked}, {one['state']}; here {one['verdict']}: {one['why']}")
    if not found:
        click.echo("This site knows of no job.")
