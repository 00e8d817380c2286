"""A job's runs as a table for people: what helps to choose k."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table

INDICES = {
    "silhouette": "silhouette",
    "calinski_harabasz": "Calinski–\nHarabasz",
    "davies_bouldin": "Davies–\nBouldin",
}


def runs_table(result: Mapping[str, Any]) -> Table:
    """The best run of every k, as `result.json` has them, and the indices where the server knows them. Raises ValueError,
    TypeError, KeyError or IndexError for anything else."""
    table = Table(title="The best run of every k (* was taken)", title_justify="left")
    runs = result["runs"]
    best = [runs[number] for number in result["best_runs"]]
    known = [name for name in INDICES if any(run["indices"][name] is not None for run in best)]
    for name in ("k", "inertia", "rounds", "start", *(INDICES[name] for name in known)):
        table.add_column(name, justify="right")
    for number, run in zip(result["best_runs"], best, strict=True):
        starts = sum(other["k"] == run["k"] for other in runs)
        k = f"*{run['k']:d}" if number == result["chosen_run"] else f"{run['k']:d}"
        values = [_text(run["indices"][name]) for name in known]
        table.add_row(k, f"{run['inertia']:.6g}", f"{run['rounds']:d}", f"{run['start'] + 1:d} of {starts}", *values)
    return table


def _text(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"
