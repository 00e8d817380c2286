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


def table(cells: Sequence[Cell]) -> str:
    """Markdown: a line a fault, a column a moment, and notes for what a cell cannot say in a word."""
    by_place = {(cell.fault, cell.moment): cell for cell in cells}
    lines = ["| fault | " + " | ".join(MOMENTS) + " |", "|---" * (len(MOMENTS) + 1) + "|"]
    for fault in FAULTS:
        found = [by_place.get((fault.name, moment)) for moment in MOMENTS]
        if any(found):
            shown = [_shown(cell, by_place.get((fault.without, cell.moment)) if cell else None) for cell in found]
            lines.append(f"| {fault.name} | " + " | ".join(shown) + " |")
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    head = f"Measured on {datetime.now(UTC):%Y-%m-%d} ({machine}) by `make faults`: {len(cells)} cells."
    return "\n".join([head, "", *lines, "", *_notes(cells)])


def _shown(cell: Cell | None, without: Cell | None) -> str:
    if cell is None:
        return NOT_RUN
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


def write(cells: Sequence[Cell], page: Path = PAGE) -> None:
    """Replace what stands between the markers."""
    text = page.read_text(encoding="utf-8")
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    assert tail, f"{page} has lost its markers"
    page.write_text(f"{head}{BEGIN}\n{table(cells)}\n{END}{tail}", encoding="utf-8")
