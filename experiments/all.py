"""Every experiment in turn, then the claims that must hold. What an earlier run has finished in DIR is not run again."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from experiments import claims, figure1, kfed, network, output, peers, quality, speed, table1, table3, tables
from experiments.output import Row
from secfc.errors import JobFailed

Shown = tuple[Callable[[], Row], Callable[[Row], Any]]


def _speed(quick: bool, out: Path) -> Row:
    rows = speed.run(quick, Console(stderr=True))
    speed.write(rows, out, "speed")
    return {"rows": rows}


def _network(out: Path) -> Row:
    rows = network.run(False, Console(stderr=True))
    speed.write(rows, out, "network")
    return {"rows": rows}


def plan(
    runs: int, seed: int, quick: bool, out: Path, folder: Path | None, openml: bool, python: str
) -> dict[str, Shown]:
    """What is run, and how it is shown. Without MNIST Table 3 is left out, unless it is the quick one."""
    wanted: dict[str, Shown] = {
        "table1": (lambda: table1.run("table1", 1.0, runs, seed, quick, out), tables.table),
        "table2": (lambda: table1.run("table2", 20.0, runs, seed, quick, out), tables.table),
    }
    if quick or folder is not None or openml:
        wanted["table3"] = (lambda: table3.run(runs, seed, quick, out, folder, openml), tables.table)
    else:
        click.echo("table3 left out: it needs MNIST, say --mnist FOLDER or --openml", err=True)
    wanted |= {
        "kfed": (lambda: kfed.run(min(runs, kfed.RUNS), seed, quick, out), kfed.table),
        "quality": (lambda: quality.run(quality.RUNS, seed, quick, out), quality.table),
        "figure1": (lambda: figure1.run(seed, quick, out), figure1.table),
        "peers": (lambda: peers.run(seed, quick, out, python), peers.table),
        "speed": (lambda: _speed(quick, out), lambda result: speed.table(result["rows"])),
    }
    if not quick:
        wanted["network"] = (lambda: _network(out), lambda result: network.table(result["rows"]))
    return wanted


@click.command("all")
@click.option("--mnist", "folder", type=click.Path(path_type=Path), help="Folder with MNIST's original idx files.")
@click.option("--openml", is_flag=True, help="Fetch MNIST from OpenML instead.")
@click.option("--peers-python", default=sys.executable, help="Interpreter that has SPU and MPyC; default: this one.")
@output.options(table1.RUNS)
def command(
    runs: int, seed: int, quick: bool, out: Path, as_json: bool, folder: Path | None, openml: bool, peers_python: str
) -> None:
    """All experiments, then the claims that must hold; ends with an error if one does not. --quick: under 3 minutes."""
    results: dict[str, Row] = {}
    for name, (work, table) in plan(runs, seed, quick, out, folder, openml, peers_python).items():
        results[name] = work()
        if not as_json:
            Console(width=None if sys.stdout.isatty() else output.WIDTH).print(table(results[name]))
    verdicts = claims.check(results)
    if as_json:
        click.echo(json.dumps(results | {"claims": [vars(one) for one in verdicts]}, indent=2, ensure_ascii=False))
    for one in verdicts:
        click.echo(f"{'holds' if one.holds else 'FAILS'}  {one.claim} ({one.cases} cases)", err=True)
    if not all(one.holds for one in verdicts):
        raise JobFailed("a claim does not hold; see above")
