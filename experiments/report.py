"""`docs/results.md`, written from the files of a run: `results.template.md` has the words, `sections` makes the figures.

A section says when and how it was measured. What a run does not hold stays as the page has it, with its own date, so one
experiment can be measured again without all others.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from string import Template
from typing import Any

import click

from experiments import contest, figure1, output, sections
from experiments.mixtures import BOX
from secfc.errors import DataError

Row = dict[str, Any]
TEMPLATE = Path(__file__).with_name("results.template.md")
DRAWN: dict[str, Callable[[Row, str], list[str]]] = {
    "table1": sections.accuracy,
    "table2": sections.accuracy,
    "table3": sections.accuracy,
    "kfed": sections.settings,
    "figure1": sections.run_times,
    "peers": sections.contest,
}
TOLD: dict[str, Callable[[Row], list[str]]] = {"quality": sections.quality}
LISTED: dict[str, Callable[[list[Row]], list[str]]] = {
    "speed": sections.speed,
    "network": sections.network,
    "labels": lambda rows: sections.labels([row for row in rows if "labels" in row]),
}


def write(folder: Path, docs: Path) -> Path:
    """docs/results.md and its plots from what a folder holds; the rest of the page stays, or is said to be missing."""
    page = docs / "results.md"
    before = page.read_text(encoding="utf-8") if page.exists() else ""
    found = {name: _section(folder, name) for name in (*DRAWN, *TOLD, *LISTED)}
    if not any(found.values()):
        raise DataError(f"{folder} holds no results; run first: python -m experiments all --out {folder}")
    parts = {name: _marked(name, text or _kept(before, name)) for name, text in found.items()}
    setup = figure1.BASE | {
        "told": figure1.TOLD,
        "k": figure1.CLUSTERS,
        "box": f"{BOX:g}",
        "sigma": f"{contest.SIGMA:g}",
    }
    text = Template(TEMPLATE.read_text(encoding="utf-8")).substitute(parts, **setup, quiet=f"{sections.QUIET:g}")
    for name in (name for name in DRAWN if found[name] and f"results/{name}.png" in parts[name]):
        (docs / "results").mkdir(parents=True, exist_ok=True)
        shutil.copyfile(folder / f"{name}.png", docs / "results" / f"{name}.png")
    output.write_text(page, text.rstrip() + "\n")
    return page


def _marked(name: str, text: str) -> str:
    return f"<!-- {name} -->\n{text.strip()}\n<!-- /{name} -->"


def _kept(page: str, name: str) -> str:
    found = re.search(f"<!-- {name} -->\n(.*?)\n<!-- /{name} -->", page, re.DOTALL)
    return found[1] if found else "*Not measured.*"


def _section(folder: Path, name: str) -> str | None:
    """A section with its provenance, or None if the folder does not hold it."""
    path = folder / f"{'attacks' if name == 'labels' else name}.json"
    if not path.exists():
        return None
    result = json.loads(path.read_text(encoding="utf-8"))
    if name in LISTED:  # its file is a list of rows
        lines, asked = LISTED[name](result), {}
        day = datetime.fromtimestamp(path.stat().st_mtime, UTC).date().isoformat()
    else:
        lines = DRAWN[name](result, f"results/{name}.png") if name in DRAWN else TOLD[name](result)
        day, asked = result["measured"], result["asked"]
    machine = output.machine() if name in LISTED else result["machine"]
    return "\n".join([*lines, f"<sub>`{_command(name, asked)}`, {day}, {_machine(machine)}</sub>"])


def _command(name: str, asked: Row) -> str:
    named = {"network": "speed --network", "labels": "attacks", "table3": "table3 --mnist FOLDER"}.get(name, name)
    options = [f"--{key} {asked[key]}" for key in ("runs", "seed") if key in asked] + ["--quick"] * bool(
        asked.get("quick")
    )
    return " ".join(["python -m experiments", named, *options, "--out DIR"])


def _machine(machine: Row) -> str:
    libraries = ", ".join(f"{name} {version}" for name, version in machine["libraries"].items() if version)
    return (
        f"{machine['processor']}, {machine['cores']} cores, {machine['memory_bytes'] / 2**30:.0f} GiB, "
        f"{machine['system']}, Python {machine['python']}, {libraries}"
    )


@click.command("report")
@click.option(
    "--out",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=output.DEFAULT_FOLDER,
    show_default=True,
    help="Folder that the experiments wrote to.",
)
@click.option("--docs", type=click.Path(file_okay=False, path_type=Path), default=Path("docs"), show_default=True)
def command(folder: Path, docs: Path) -> None:
    """Write results.md and its plots from the files of a run."""
    click.echo(write(folder, docs))
