"""The table of runs that `secfc demo` and `secfc result` show."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from secfc.commands import result
from secfc.commands.runstable import runs_table
from secfc.errors import Malformed

NAMES = ("silhouette", "calinski_harabasz", "davies_bouldin")


def run(k: int, start: int, inertia: float, silhouette: float | None) -> dict[str, Any]:
    return {"k": k, "start": start, "rounds": 7, "inertia": inertia, "indices": dict.fromkeys(NAMES, silhouette)}


def found(*silhouettes: float | None) -> dict[str, Any]:
    runs = [run(3, 0, 5.0, None), run(3, 1, 4.0, silhouettes[0]), run(1, 0, 9.5, silhouettes[1])]
    return {"runs": runs, "best_runs": [1, 2], "chosen_run": 1}


def told(wanted: dict[str, Any]) -> list[list[str]]:
    console = Console(width=120, file=io.StringIO(), record=True)
    console.print(runs_table(wanted))
    lines = console.export_text().splitlines()
    return [[cell.strip() for cell in line.strip("│ ").split("│")] for line in lines if line.startswith("│")]


def test_the_best_run_of_every_k() -> None:
    assert told(found(0.625, None)) == [["*3", "4", "7", "2 of 2", *["0.625"] * 3], ["1", "9.5", "7", "1 of 1", *"–––"]]


def test_without_distances_there_are_no_indices() -> None:
    assert told(found(None, None)) == [["*3", "4", "7", "2 of 2"], ["1", "9.5", "7", "1 of 1"]]


@pytest.mark.parametrize(
    "spoiled",
    [
        {"runs": 3},
        {"runs": [1, 2]},
        {"runs": found(None, None)["runs"]},
        {**found(None, None), "best_runs": [9]},
        {**found(None, None), "runs": [run(3, 0, "\x1b[2J", None)] * 3},  # type: ignore[arg-type]
    ],
)
def test_a_server_that_answers_something_else(spoiled: dict[str, Any]) -> None:
    with pytest.raises(Malformed, match="same version"):
        result.show_runs(spoiled)


def test_one_run_is_no_table(capsys: pytest.CaptureFixture[str]) -> None:
    result.show_runs({"runs": [run(3, 0, 4.0, None)], "best_runs": [0], "chosen_run": 0})
    result.show_runs({})
    assert capsys.readouterr().out == ""
