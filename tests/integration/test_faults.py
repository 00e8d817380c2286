"""Cells of the fault matrix that no other test covers, and the table it writes. `make faults` runs all cells."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults import matrix, report
from tests.faults.cells import FAULTS
from tests.faults.matrix import ERROR, NO_SENSE, NOT_RUN, SAME, WRONG, Cell
from tests.faults.scene import MOMENTS

BY_NAME = {fault.name: fault for fault in FAULTS}
CELLS = [
    ("client: kill −9, started again", "re-ask", SAME),
    ("client: stopped and started again", "sharing", SAME),
    ("links: 2 s late, for 10 s", "round", SAME),
    ("client: disk full", "sharing", ERROR),
    ("client: disk full", "finishing", ERROR),
    ("client: clock jumps −1 h", "round", SAME),
    ("server: disk full", "round", ERROR),
    ("client and server: kill −9 together, started again", "sharing", SAME),
    ("links: down for 5 s, client killed and started again meanwhile", "round", SAME),
    ("sealed: leader kill −9, started again", "round", SAME),
    ("sealed: member kill −9, started again", "re-ask", SAME),
    ("sealed: member frozen for 30 s", "round", SAME),
    ("sealed: links: cut in a message", "round", SAME),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "moment", "ending"), CELLS)
def test_a_cell(name: str, moment: str, ending: str) -> None:
    cell = matrix.run(BY_NAME[name], moment)
    if cell.ending == NOT_RUN:
        pytest.skip(cell.note)
    assert cell.ending == ending, cell


def test_every_cell_is_run_or_has_a_reason() -> None:
    assert len(BY_NAME) == len(FAULTS)
    for fault in FAULTS:
        assert set(fault.never) < set(MOMENTS), "it makes sense in some moment"
        assert all(fault.never.values())
        assert fault.without in BY_NAME


def test_the_table_says_what_was_measured(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n", encoding="utf-8")
    kill, full, liar = "client: kill −9, started again", "client: disk full", "liar: random values"
    cells = [
        Cell("none", "round", SAME, 10.0),
        Cell("none", "finishing", SAME, 20.0),
        Cell(kill, "round", SAME, 13.4),
        Cell(kill, "finishing", SAME, 19.0),
        Cell(full, "round", NO_SENSE, note="nothing is written"),
        Cell(full, "finishing", ERROR, 25.0, "error: /a/b/state: cannot keep state there"),
        Cell(liar, "round", NOT_RUN, note="not in this version"),
    ]
    report.write(cells, page)
    text = page.read_text(encoding="utf-8")
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert f"| {kill} | not run | not run | same, +3 s | not run | same, +0 s |" in text
    assert f"| {full} | not run | not run | – | not run | error, then same, +5 s |" in text
    assert "| none | not run | not run | 10 s in all | not run | 20 s in all |" in text
    assert "/a/b" not in text, "no folder of the machine"
    assert "- –: nothing is written — client: disk full (round)" in text


def test_a_part_of_the_matrix_leaves_the_other_cells_as_they_were(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"{report.BEGIN}\n{report.END}\n", encoding="utf-8")
    full, kill = "client: disk full", "client: kill −9, started again"
    report.write([Cell(full, moment, ERROR, 9.0, "error: full") for moment in ("round", "finishing")], page)
    page.write_text(page.read_text(encoding="utf-8").replace(report.END, f"- by hand; as it is\n{report.END}"), "utf-8")
    report.write([Cell(kill, "round", SAME, 9.0), Cell(full, "round", WRONG, 9.0, "hangs")], page, add=True)
    text = page.read_text(encoding="utf-8")
    assert f"| {full} | not run | not run | WRONG | not run | error, then same |" in text
    assert f"| {kill} | not run | not run | same | not run | not run |" in text
    assert "- error, then same: error: full — client: disk full (finishing)\n" in text
    assert "- by hand; as it is\n" in text
    assert "- WRONG: hangs — client: disk full (round)\n" in text


def test_a_job_that_never_ends_is_a_cell_that_went_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    def hangs(*_: object) -> None:
        raise AssertionError("hangs: client-1 still run after 1 s")

    monkeypatch.setattr(matrix, "_run", hangs)
    cell = matrix.run(BY_NAME["none"], "round")
    assert (cell.ending, "hangs" in cell.note) == (WRONG, True)
