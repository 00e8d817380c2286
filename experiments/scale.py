"""Whole jobs of growing size: a server and five clients as processes on this machine, over mutual TLS, from one start.

Seconds are those of the phases as the server counts them. Peak memory is the largest resident set of the server and of any
client; pages that they share are counted for each. Every label is compared with central Lloyd in exact arithmetic.
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

import click
import numpy as np
from rich.table import Table

from experiments import output
from experiments.output import Cells, Row
from experiments.timing import quietness
from secfc import local
from secfc.agreement import plan
from secfc.agreement.federation import SERVER
from secfc.errors import JobFailed
from secfc_client.commands.demonstration import outcome, rows

SIZES, QUICK = (10_000, 100_000, 1_000_000), (2_000,)
FEATURES, CLUSTERS, CLIENTS, PRIVACY, PRECISION = 20, 8, 5, 1, 8
UPLOADS = ("masked", "sealed")
PHASES = ("joining", "sharing", "rounds")
PATIENCE = 7200.0


def measure(m: int, uploads: str, seed: int) -> Row:
    """One job. Raises JobFailed if a label differs from central Lloyd's."""
    chosen = rows.mixture(m, FEATURES, CLUSTERS, seed)
    made = local.describe(
        CLIENTS,
        privacy=PRIVACY,
        uploads=uploads,
        k=CLUSTERS,
        starts=1,
        seed=f"scale {seed}",
        features=FEATURES,
        bound=chosen.bound,
        precision=PRECISION,
        max_rows=m,
    )
    peaks: dict[str, float] = {}
    quiet = quietness()
    with tempfile.TemporaryDirectory(prefix="secfc-scale-") as folder:
        site = local.Local(made, Path(folder))
        site.prepare(np.array_split(chosen.values, CLIENTS))
        with local.running(site):
            site.wait(PATIENCE, partial(_watch, site, peaks))
        found = outcome.compare(site, plan.of(made), chosen)
    if not found["identical_to_central"]:
        raise JobFailed(
            f"{m} rows, {uploads} uploads: labels differ from central Lloyd's; this must not happen, please report it"
        )
    seconds = {f"{phase}_s": found["seconds"].get(phase, 0.0) for phase in PHASES} | {
        "total_s": found["seconds"]["total"]
    }
    memory = {"server_mib": peaks.pop(SERVER, 0.0), "client_mib": max(peaks.values(), default=0.0)}
    return seconds | memory | {"lloyd_rounds": found["rounds"], "quiet": min(quiet, quietness())}


def _watch(site: local.Local, peaks: dict[str, float]) -> None:
    for name, process in site.processes.items():
        try:
            lines = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii").splitlines()
        except OSError:  # it has just ended
            continue
        peak = next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:")), 0.0)
        peaks[name] = max(peaks.get(name, 0.0), peak)


def run(seed: int, quick: bool, out: Path) -> Row:
    """Measure and write."""
    output.say_seeds("scale", seed, 1)
    sizes, cells, found = QUICK if quick else SIZES, Cells(out, "scale"), []
    with output.progress("scale", len(sizes) * len(UPLOADS)) as step:
        for m in sizes:
            for uploads in UPLOADS:
                step(f"{m:,} rows, {uploads}")
                asked: Row = {"m": m, "d": FEATURES, "k": CLUSTERS, "n": CLIENTS, "uploads": uploads, "seed": seed}
                found.append(asked | cells.get(f"m{m}-{uploads}", asked, partial(measure, m, uploads, seed)))
    return output.write(out, "scale", {"seed": seed, "quick": quick}, found)


def table(result: Row) -> Table:
    """One line a job."""
    title = f"{CLIENTS} clients and a server on this machine, d = {FEATURES}, k = {CLUSTERS}, one start"
    out = Table(title=title, title_justify="left")
    for name in ("rows", "uploads", *PHASES, "in all", "Lloyd rounds", "server's peak", "a client's peak", "quiet"):
        out.add_column(name, justify="left" if name == "uploads" else "right")
    for row in result["rows"]:
        times = [f"{row[f'{phase}_s']:.1f} s" for phase in (*PHASES, "total")]
        memory = [f"{row[name]:.0f} MiB" for name in ("server_mib", "client_mib")]
        out.add_row(f"{row['m']:,}", row["uploads"], *times, str(row["lloyd_rounds"]), *memory, f"{row['quiet']:.2f}")
    return out


@click.command("scale")
@output.options()
def command(seed: int, quick: bool, out: Path, as_json: bool) -> None:
    """Seconds by phase and memory of whole jobs with 10,000 to 1,000,000 rows, all parties on this machine."""
    result = run(seed, quick, out)
    output.show(result, table(result), as_json)
