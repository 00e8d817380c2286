"""Tables 1 and 2 of the paper: Gaussian mixtures of d = 100 features with σ = 1 and σ = 20.

Every run has a mixture, a start and a deal of its own, all from the run's seed; so the spread includes that of the mixtures.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import click

from experiments import output, tables
from experiments.mixtures import BOX, mixture
from experiments.tables import Setting

RUNS, QUICK_RUNS = 10, 2
_SAME = ((100.0, 0.0),) * 3
PAPER: dict[tuple[float, int], dict[str, tuple[tuple[float, float], ...]]] = {
    (1.0, 4): {"central": _SAME, "kfed": ((75.0, 0.1), (99.7, 2.1), (25.8, 0.6)), "secfc": _SAME},
    (1.0, 16): {
        "central": ((88.2, 5.5),) * 3,
        "kfed": ((80.3, 5.3), (78.7, 3.7), (7.6, 0.1)),
        "secfc": ((86.0, 1.5),) * 3,
    },
    (20.0, 4): {
        "central": ((96.3, 0.1),) * 3,
        "kfed": ((46.7, 0.0), (86.6, 5.5), (25.6, 0.1)),
        "secfc": ((96.3, 0.0),) * 3,
    },
    (20.0, 16): {
        "central": ((84.0, 0.2),) * 3,
        "kfed": ((42.0, 2.2), (41.7, 1.2), (8.4, 0.1)),
        "secfc": ((84.0, 0.1),) * 3,
    },
}


def setting(m: int, d: int, k: int, n: int, t: int, sigma: float, most: tuple[int, ...]) -> Setting:
    """One half of a table."""
    parameters = {"m": m, "d": d, "k": k, "sigma": sigma, "box": BOX}
    paper = PAPER.get((sigma, k), {}) if d == 100 else {}
    return Setting(f"k = {k}", parameters, n, t, most, partial(mixture, m, d, k, sigma), paper)


def settings(sigma: float, quick: bool) -> list[Setting]:
    """The two halves of a table; t = ⌊n/3⌋."""
    if quick:
        return [setting(600, 20, 4, 5, 1, sigma, (1, 2, 4)), setting(900, 20, 9, 7, 2, sigma, (2, 3, 9))]
    return [setting(10000, 100, 4, 10, 3, sigma, (1, 2, 4)), setting(16384, 100, 16, 16, 5, sigma, (2, 4, 16))]


def run(name: str, sigma: float, runs: int, seed: int, quick: bool, out: Path) -> output.Row:
    """Table 1 (σ = 1) or Table 2 (σ = 20)."""
    asked: dict[str, Any] = {"runs": min(runs, QUICK_RUNS) if quick else runs, "seed": seed, "quick": quick}
    title = f"Gaussian mixtures, σ = {sigma:g}"
    return tables.run(name, title, settings(sigma, quick), asked, out)


@click.command("table1")
@output.options(RUNS)
def command(runs: int, seed: int, quick: bool, out: Path, as_json: bool) -> None:
    """Accuracy on Gaussian mixtures with σ = 1: central Lloyd, k-FED and SecFC beside the paper's figures."""
    result = run("table1", 1.0, runs, seed, quick, out)
    output.show(result, tables.table(result), as_json)
