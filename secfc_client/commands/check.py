"""`secfc check`: what a site's administrator runs before the job, line by line what is in order and what is not."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from secfc.commands import options
from secfc_client.commands.checks.verdicts import FAIL, OK, SKIP, WARN, Verdict, failed

_MARKS = {OK: ("ok", "green"), WARN: ("WARN", "bold yellow"), FAIL: ("FAIL", "bold red"), SKIP: ("skip", "dim")}


@click.command("check")
@options.kit("This party's kit.")
@options.path("--data", metavar="FILE", help="This client's rows, CSV or Parquet.")
@click.option("--id", "id_column", metavar="COLUMN", help="The column that names rows and is not a feature.")
@click.option(
    "--features",
    metavar="A,B,C",
    help="The feature columns, if federation.toml gives only their number; the same at all sites.",
)
@options.path("--policy", metavar="FILE", help="This site's rules; default: the kit's.")
@options.timeout("How long to wait for other parties to answer.", 5.0)
@options.as_json('Print one JSON object: {"ok", "findings": [{name, status, detail}]}.')
@click.pass_context
def command(
    ctx: click.Context,
    kit_path: Path,
    data: Path | None,
    id_column: str | None,
    features: str | None,
    policy: Path | None,
    timeout: float,
    as_json: bool,
) -> None:
    """Check that this machine is ready for the job: the kit, the plan, the site's policy, the port, the data and the
    network.

    On a client's machine, the server must already be up; other clients may still be missing (WARN). Nothing is
    changed, and none of the data leaves this machine.

    \b
    Exit codes:
      0  nothing failed, though there may be warnings
      1  something failed; its line says what to do
      2  wrong usage

    \b
    Example:
      secfc check --kit kits/hospital-a --data rows.csv --id patient
    """
    from secfc_client.commands.checks import readiness  # loads pyarrow, which `secfc --help` can do without

    if data is None and (id_column is not None or features is not None):
        raise click.UsageError("--id and --features say how to read --data FILE; give that too")
    chosen = None if features is None else tuple(name.strip() for name in features.split(","))
    rows = None if data is None else readiness.Data(data, id_column, chosen)
    with Console(stderr=True).status("checking the kit and the network ..."):  # on a terminal only
        results = readiness.examine(kit_path, rows, timeout, policy)
    if as_json:
        findings = [dataclasses.asdict(result) for result in results]
        click.echo(json.dumps({"ok": not failed(results), "findings": findings}))
    else:
        _show(Console(highlight=False), results)
    if failed(results):
        ctx.exit(1)


def _show(console: Console, results: list[Verdict]) -> None:
    """A line each: on a terminal coloured and folded under its column, else whole."""
    width = max(len(result.name) for result in results)
    if not console.is_terminal:
        for result in results:
            click.echo(f"{_MARKS[result.status][0]:4}  {result.name:{width}}  {result.detail}")
        click.echo(_summary(results)[0])
        return
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for result in results:
        table.add_row(Text(*_MARKS[result.status]), Text(result.name), Text(result.detail))
    console.print(table)
    console.print(Text(*_summary(results)))


def _summary(results: list[Verdict]) -> tuple[str, str]:
    """The last line and its colour."""
    wrong, warned = len(failed(results)), sum(result.status == WARN for result in results)
    warnings = f"{warned} warning{'' if warned == 1 else 's'}"
    if wrong:
        also = f", {warnings}" if warned else ""
        return f"{wrong} of {len(results)} checks failed{also}: see FAIL above, fix it and check again", "bold red"
    if warned:
        return f"ready, with {warnings}: nothing failed", "bold yellow"
    return "ready: everything is in order", "bold green"
