"""How time, bytes and memory grow with the number of rows and with the number of clients: real processes on this machine.

One job per size, with a given number of rounds. All processes share the same cores, so seconds grow with the work of all
parties together; bytes and memory are those of one party. Of every series the exponent b of the fit a·xᵇ over the larger half
of its sizes is given: what a job costs however small it is would make it look smaller.
"""

from __future__ import annotations

import json
import tempfile
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from experiments import plots
from experiments.processes import cpu_seconds, peak_mib
from experiments.timing import quietness
from secfc import local
from secfc.agreement.federation import SERVER
from secfc.commands import options

FEATURES, K, ROUNDS = 20, 8, 4
FIGURES = {
    "sharing_s": "sharing, s",
    "round_s": "a round, s",
    "cpu_s": "CPU of all, s",
    "client_sent_mb": "a client sends to share, MB",
    "client_upload_mb": "and uploads per round, MB",
    "client_peak_mib": "memory of a client, MiB",
    "server_peak_mib": "of the server, MiB",
}

Row = dict[str, Any]


@click.command()
@click.option("--rows", default="10000,100000,1000000", show_default=True, help="Rows of all clients, with 5 clients.")
@click.option("--clients", default="3,5,10,20,50", show_default=True, help="Clients, with 20000 rows.")
@click.option("--uploads", type=click.Choice(["masked", "sealed"]), default="masked", show_default=True)
@click.option("--timeout", default=3600.0, show_default=True, help="Seconds that one job may take.")
@click.option("--plot", type=click.Path(path_type=Path), help="Draw the series to this PNG.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of tables.")
def command(rows: str, clients: str, uploads: str, timeout: float, plot: Path | None, as_json: bool) -> None:
    """Measure how a job grows with its rows and with its clients."""
    series = {
        "rows": [_measured(m, 5, uploads, timeout) for m in options.numbers(rows, "--rows")],
        "clients": [_measured(20_000, n, uploads, timeout) for n in options.numbers(clients, "--clients")],
    }
    fits = {
        by: {name: exponent([row[by] for row in found], [row[name] for row in found]) for name in FIGURES}
        for by, found in series.items()
    }
    found = {"features": FEATURES, "k": K, "uploads": uploads, "series": series, "exponents": fits}
    if plot is not None:
        plots.growth(series, FIGURES, plot)
    if as_json:
        click.echo(json.dumps(found))
        return
    for by, table in series.items():
        Console().print(_table(by, table, fits[by]))


def exponent(sizes: list[int], values: list[float]) -> float | None:
    """b of a·xᵇ over the larger half of the sizes; None for fewer than two, or for what is not there."""
    half = sorted(zip(sizes, values, strict=True))[(len(sizes) - 1) // 2 :]
    if len(half) < 2 or min(value for _, value in half) <= 0:
        return None
    x, y = np.log(np.array(half, dtype=float)).T
    return float(np.polyfit(x, y, 1)[0])


def _measured(rows: int, clients: int, uploads: str, timeout: float) -> Row:
    made = local.describe(
        clients,
        k=K,
        privacy=1,
        max_rows=rows,
        features=FEATURES,
        bound=8.0,
        precision=8,
        uploads=uploads,
        seeding="random",
        max_rounds=ROUNDS,
    )
    values = np.clip(np.random.default_rng(0).normal(size=(rows, FEATURES)), -8.0, 8.0)
    quiet, peaks, cpu = quietness(), dict[str, float](), dict[str, float]()
    with tempfile.TemporaryDirectory(prefix="secfc-scale-") as folder:
        site = local.Local(made, Path(folder), client_options=["--no-report"])
        site.prepare(np.array_split(values, clients))

        def look() -> None:
            for name, process in site.processes.items():
                with suppress(OSError, StopIteration):  # it has just ended
                    peaks[name], cpu[name] = peak_mib(process.pid), cpu_seconds(process.pid)

        with local.running(site):
            site.wait(timeout, look)
        result = site.result()
    requests = result["history"]
    return {
        "rows": rows,
        "clients": clients,
        "rounds": len(requests),
        "sharing_s": max(result["sharing_seconds"].values()),
        "round_s": median(one["seconds"] for one in requests),
        "cpu_s": sum(cpu.values()),
        "client_sent_mb": max(result["bytes"]["sharing_sent"].values()) / 1e6,
        "client_upload_mb": max(result["bytes"]["uploaded"].values()) / 1e6 / len(requests),
        "client_peak_mib": max(peak for name, peak in peaks.items() if name != SERVER),
        "server_peak_mib": peaks[SERVER],
        "quiet": min(quiet, quietness()),
    }


def _table(by: str, found: list[Row], fits: dict[str, float | None]) -> Table:
    other = f"{found[0]['clients']} clients" if by == "rows" else f"{found[0]['rows']:,} rows"
    out = Table(title=f"By {by}: k = {K}, {FEATURES} features, {other}", title_justify="left")
    for name in (by, *FIGURES.values(), "quiet"):
        out.add_column(name, justify="right")
    for row in found:
        out.add_row(f"{row[by]:,}", *(f"{row[name]:.4g}" for name in FIGURES), f"{row['quiet']:.2f}")
    shown = ("–" if fits[name] is None else f"{fits[name]:.2f}" for name in FIGURES)
    out.add_row("exponent", *shown, "")
    return out
