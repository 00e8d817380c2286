"""Table 2 of the paper; see `table1`."""

from __future__ import annotations

from pathlib import Path

import click

from experiments import output, table1, tables


@click.command("table2")
@output.options(table1.RUNS)
def command(runs: int, seed: int, quick: bool, out: Path, as_json: bool) -> None:
    """Accuracy on Gaussian mixtures with σ = 20: central Lloyd, k-FED and SecFC beside the paper's figures."""
    result = table1.run("table2", 20.0, runs, seed, quick, out)
    output.show(result, tables.table(result), as_json)
