"""`docs/results.md`, written from the files of a run: `results.template.md` has the words, `sections` makes the figures."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from string import Template
from typing import Any

import click

from experiments import contest, figure1, output, sections
from experiments.mixtures import BOX
from secfc.errors import DataError

Row = dict[str, Any]
TEMPLATE = Path(__file__).with_name("results.template.md")
SECTIONS: dict[str, Callable[[Row, str], list[str]]] = {
    "table1": sections.accuracy,
    "table2": sections.accuracy,
    "table3": sections.accuracy,
    "kfed": sections.settings,
    "figure1": sections.run_times,
    "peers": sections.contest,
}


def write(folder: Path, docs: Path) -> Path:
    """docs/results.md and docs/results/*.png from what a folder holds; what it does not hold is said to be missing."""
    found = {name: output.read(folder, name) for name in SECTIONS}
    some = next((result for result in found.values() if result), None)
    if some is None:
        raise DataError(f"{folder} holds no results; run first: python -m experiments all --out {folder}")
    parts = {name: _part(name, result) for name, result in found.items()}
    setup = figure1.BASE | {
        "told": figure1.TOLD,
        "k": figure1.CLUSTERS,
        "box": f"{BOX:g}",
        "sigma": f"{contest.SIGMA:g}",
    }
    page = Template(TEMPLATE.read_text(encoding="utf-8"))
    text = page.substitute(
        parts,
        **setup,
        machine=_machine(some["machine"]),
        speed=_speed(folder),
        labels=_labels(folder),
        quality=_quality(folder),
    )
    for name in (name for name, result in found.items() if result):
        (docs / "results").mkdir(parents=True, exist_ok=True)
        shutil.copyfile(folder / f"{name}.png", docs / "results" / f"{name}.png")
    output.write_text(docs / "results.md", text.rstrip() + "\n")
    return docs / "results.md"


def _part(name: str, result: Row | None) -> str:
    return "Not part of this run.\n" if result is None else "\n".join(SECTIONS[name](result, f"results/{name}.png"))


def _speed(folder: Path) -> str:
    out: list[str] = []
    if (folder / "speed.json").exists():
        rows = json.loads((folder / "speed.json").read_text(encoding="utf-8"))
        out += ["## Speed against scikit-learn", ""]
        out += ["One round over one scikit-learn iteration on the same rows and threads.", "", *sections.speed(rows)]
    if (folder / "network.json").exists():
        rows = json.loads((folder / "network.json").read_text(encoding="utf-8"))
        out += ["Whole rounds over mutual TLS, all on this machine:", "", *sections.network(rows)]
    return "\n".join(out)


def _labels(folder: Path) -> str:
    if not (folder / "attacks.json").exists():
        return "Not part of this run.\n"
    rows = json.loads((folder / "attacks.json").read_text(encoding="utf-8"))
    return "\n".join(sections.labels([row for row in rows if "labels" in row]))


def _quality(folder: Path) -> str:
    result = output.read(folder, "quality")
    return "Not part of this run.\n" if result is None else "\n".join(sections.quality(result))


def _machine(machine: Row) -> str:
    libraries = ", ".join(f"{name} {version}" for name, version in machine["libraries"].items() if version)
    return (
        f"**Machine:** {machine['processor']}, {machine['cores']} cores, {machine['memory_bytes'] / 2**30:.0f} GiB, "
        f"{machine['system']}, Python {machine['python']}, {libraries}."
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
