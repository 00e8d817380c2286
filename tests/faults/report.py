"""The table in docs/reliability.md, from what was measured."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from tests.faults.cells import FAULTS
from tests.faults.matrix import ERROR, NO_SENSE, NOT_RUN, SAME, WRONG, Cell
from tests.faults.scene import MOMENTS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reliability.md"
BEGIN, END = "<!-- make faults: begin -->", "<!-- make faults: end -->"


def table(cells: Sequence[Cell], before: str = "") -> str:
    """Markdown: a line per fault, a column per moment, and notes for what a cell cannot say in a word. Cells that were not
    run stand as in the table `before`."""
    kept = _rows(before)
    by_place = {(cell.fault, cell.moment): cell for cell in cells}
    lines = ["| fault | " + " | ".join(MOMENTS) + " |", "|---" * (len(MOMENTS) + 1) + "|"]
    for fault in FAULTS:
        found = [by_place.get((fault.name, moment)) for moment in MOMENTS]
        if any(found) or fault.name in kept:
            shown = [
                _shown(cell, by_place.get((fault.without, cell.moment))) if cell else old
                for cell, old in zip(found, kept.get(fault.name, [NOT_RUN] * len(MOMENTS)), strict=True)
            ]
            lines.append(f"| {fault.name} | " + " | ".join(shown) + " |")
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    head = f"Measured on {datetime.now(UTC):%Y-%m-%d} ({machine}) by `make faults`: {len(cells)} cells."
    if kept:
        head += " The others are from earlier runs."
    return "\n".join([head, "", *lines, "", *_notes_left(before, set(by_place)), *_notes(cells)])


def _rows(before: str) -> dict[str, list[str]]:
    """What an earlier table shows, by fault."""
    lines = [line.strip("| ").split(" | ") for line in before.splitlines() if line.startswith("| ")]
    return {name: shown for name, *shown in lines[1:] if len(shown) == len(MOMENTS)}


def _notes_left(before: str, measured: set[tuple[str, str]]) -> list[str]:
    """Its notes, without those about cells that have been run again."""
    again = {f"{fault} ({moment})" for fault, moment in measured}
    left: list[str] = []
    for line in filter(lambda line: line.startswith("- "), before.splitlines()):
        what, dash, where = line.rpartition(" — ")
        places = [place for place in where.split("; ") if place not in again] if dash else []
        if places or not dash:
            left.append(f"{what} — {'; '.join(places)}" if dash else line)
    return left


def _shown(cell: Cell, without: Cell | None) -> str:
    if cell.ending not in (SAME, ERROR):
        return cell.ending
    if cell.fault.startswith("none"):
        return f"{cell.seconds:.0f} s in all"
    if without is None or without.ending != SAME:
        return cell.ending
    return f"{cell.ending}, {max(cell.seconds - without.seconds, 0.0):+.0f} s"


def _notes(cells: Sequence[Cell]) -> list[str]:
    said: dict[str, list[str]] = {}
    for cell in cells:
        if cell.ending in (NO_SENSE, NOT_RUN, WRONG) or cell.ending == ERROR:
            said.setdefault(f"{cell.ending}: {_plain(cell.note)}", []).append(f"{cell.fault} ({cell.moment})")
    return [f"- {what} — {'; '.join(where)}" for what, where in said.items()]


def _plain(note: str) -> str:
    """Without the folders of the machine it was measured on."""
    words = [
        "…/" + word.rsplit("/", 1)[1] if word.startswith("/") and "/" in word[1:] else word for word in note.split()
    ]
    return " ".join(words).replace("|", "/")


def write(cells: Sequence[Cell], page: Path = PAGE, *, add: bool = False) -> None:
    """Replace what stands between the markers; with `add`, only the cells that were run."""
    text = page.read_text(encoding="utf-8")
    head, _, rest = text.partition(BEGIN)
    before, _, tail = rest.partition(END)
    assert tail, f"{page} has lost its markers"
    page.write_text(f"{head}{BEGIN}\n{table(cells, before if add else '')}\n{END}{tail}", encoding="utf-8")
