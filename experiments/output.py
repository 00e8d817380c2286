"""What every experiment shares: its options, its folder of results, its seeds, and cells that are not run twice.

A result is `DIR/NAME.json` (what was asked for, the machine, one object a row), `DIR/NAME.csv` (the rows) and
`DIR/NAME.png`. Single measurements are cells, `DIR/cells/NAME/….json`; a cell that is there with the same parameters is
taken from there, so an experiment that was interrupted goes on where it was.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import platform
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from secfc import atomicfile
from secfc.coding import parallel

Row = dict[str, Any]
Tick = Callable[[str], None]
DEFAULT_FOLDER = Path("out/experiments")
WIDTH = 160  # of tables that go to a file
FORMAT = 2  # raised when a cell's meaning changes, so that old cells are not taken for new ones


def options(runs: int | None = None) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """--runs (if given a default), --seed, --quick, --out and --json."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        choices = [
            click.option("--json", "as_json", is_flag=True, help="Print the result as JSON instead of a table."),
            click.option(
                "--out",
                type=click.Path(file_okay=False, path_type=Path),
                default=DEFAULT_FOLDER,
                show_default=True,
                help="Folder for JSON, CSV, plots and finished cells.",
            ),
            click.option("--quick", is_flag=True, help="Small sizes and few runs, to see that everything works."),
            click.option(
                "--seed", type=click.IntRange(0), default=0, show_default=True, help="First seed; runs count up."
            ),
        ]
        if runs is not None:
            choices.append(click.option("--runs", type=click.IntRange(1), default=runs, show_default=True))
        for choice in choices:
            function = choice(function)
        return function

    return decorate


class Cells:
    """Finished measurements of one experiment, a file each."""

    def __init__(self, folder: Path, experiment: str) -> None:
        self.folder = folder / "cells" / experiment

    def get(self, name: str, parameters: Row, work: Callable[[], Row]) -> Row:
        """The cell's figures: from its file if it was measured with these parameters, else from `work`."""
        asked = json.loads(json.dumps({"format": FORMAT} | parameters))
        digest = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:8]
        path = self.folder / f"{name}-{digest}.json"
        if path.exists():
            kept = json.loads(path.read_text(encoding="utf-8"))
            if kept["parameters"] == asked:
                return dict(kept["figures"])
        figures = work()
        write_text(path, json.dumps({"parameters": asked, "figures": figures}, indent=2) + "\n")
        return figures


def write_text(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    atomicfile.write(path, [text.encode("utf-8")], mode=0o666)


def write_csv(path: Path, rows: Sequence[Row]) -> None:
    """One line per row, under the names of all their columns."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, fieldnames=list(dict.fromkeys(key for row in rows for key in row)))
    writer.writeheader()
    writer.writerows(rows)
    write_text(path, text.getvalue())


def write(folder: Path, name: str, asked: Row, rows: Sequence[Row]) -> Row:
    """DIR/NAME.json and DIR/NAME.csv; returns what the JSON holds."""
    day = datetime.now(UTC).date().isoformat()
    result: Row = {"experiment": name, "asked": asked, "measured": day, "machine": machine(), "rows": list(rows)}
    write_text(folder / f"{name}.json", json.dumps(result, indent=2, ensure_ascii=False) + "\n")
    write_csv(folder / f"{name}.csv", rows)
    return result


def read(folder: Path, name: str) -> Row | None:
    """A result written earlier, or None."""
    path = folder / f"{name}.json"
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None


def show(result: Row, shown: Table, as_json: bool) -> None:
    """The result on standard output, for machines or for people."""
    if as_json:
        click.echo(json.dumps(result, indent=2, ensure_ascii=False))
    else:
        Console(width=None if sys.stdout.isatty() else WIDTH).print(shown)


@contextmanager
def progress(title: str, total: int) -> Iterator[Callable[[str], None]]:
    """A bar on standard error; call what it yields with the name of the step that begins."""
    columns = (TextColumn("{task.fields[title]}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TextColumn("{task.description}"), console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=total, title=title)
        begun = 0

        def step(what: str) -> None:
            nonlocal begun
            bar.update(task, completed=begun, description=what)
            begun += 1

        yield step
        bar.update(task, completed=total, description="done")


def say_seeds(name: str, seed: int, runs: int) -> None:
    """Which seeds an experiment uses, on standard error."""
    seeds = f"seed {seed}" if runs == 1 else f"seeds {seed} … {seed + runs - 1}"
    click.echo(f"{name}: {runs} run{'s' * (runs > 1)}, {seeds}", err=True)


def machine() -> Row:
    """What the figures were measured on."""
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "threads": parallel.threads(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "libraries": {name: _version(name) for name in ("secfc-kmeans", "numpy", "scikit-learn", "scipy")},
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or "unknown"
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")
