"""From process start to the first round: a server and five clients with a few rows each, started at once on this machine.

Nothing in such a job takes time but loading programs and connecting them. CPU seconds are those of all processes together,
from start to end of the job; on two cores no job can be quicker than half of them.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from experiments.timing import quietness
from secfc import local
from secfc.agreement.federation import SERVER

CLIENTS, ROWS, FEATURES, K = 5, 20, 4, 3
KINDS = ("masked", "sealed")
TARGETS = {"first_round_s": 1.0, "help_s": 0.25, "status_s": 0.6}
_PROGRAM = "from secfc_client.cli import main; main()"

Row = dict[str, Any]


@click.command()
@click.option("--repeat", default=5, show_default=True, help="How often; the median counts.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of tables.")
def command(repeat: int, as_json: bool) -> None:
    """Measure how long a tiny job and the quick commands take to start."""
    quiet = quietness()
    jobs = [_typical(uploads, [_job(uploads) for _ in range(repeat)]) for uploads in KINDS]
    commands = _commands(repeat)
    found = {"jobs": jobs, "commands": commands, "quiet": min(quiet, quietness()), "targets": TARGETS}
    if as_json:
        click.echo(json.dumps(found))
    else:
        Console().print(_table(found))


def _typical(uploads: str, rows: list[Row]) -> Row:
    return {"uploads": uploads} | {name: median(row[name] for row in rows) for name in rows[0]}


def _job(uploads: str) -> Row:
    made = local.describe(
        CLIENTS, k=K, privacy=1, max_rows=CLIENTS * ROWS, features=FEATURES, bound=8.0, precision=8, uploads=uploads
    )
    rows = np.clip(np.random.default_rng(0).normal(size=(CLIENTS, ROWS, FEATURES)), -8.0, 8.0)
    with tempfile.TemporaryDirectory(prefix="secfc-startup-") as folder:
        site = local.Local(made, Path(folder), environment={"SECFC_THREADS": "1"})
        site.prepare(list(rows))
        before, began = _cpu(), time.time()
        with local.running(site):
            site.wait(300.0)
        whole = time.time() - began
        used = _cpu() - before
        stages = {event["event"]: _at(event) - began for event in reversed(site.events(SERVER))}
        listening = max(_at(site.events(client)[0]) for client in made.roster) - began
    return {
        "clients_listen_s": listening,
        "joined_s": stages["agreeing"],
        "first_round_s": stages["round 1"],
        "whole_s": whole,
        "cpu_s": used,
    }


def _at(event: Row) -> float:
    return datetime.fromisoformat(event["time"]).timestamp()


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _commands(repeat: int) -> Row:
    """Seconds of `secfc --help`, and of `secfc status` while the server waits for clients."""
    made = local.describe(3, k=2, privacy=1, max_rows=9, features=2, bound=1.0, precision=4)
    with tempfile.TemporaryDirectory(prefix="secfc-startup-") as folder:
        site = local.Local(made, Path(folder))
        site.prepare([np.zeros((1, 2))] * 3)
        try:
            site.start(SERVER)
            deadline = time.monotonic() + 60.0
            while not site.events(SERVER) and time.monotonic() < deadline:
                time.sleep(0.1)
            status = [_seconds("status", "--kit", str(site.kit(SERVER))) for _ in range(repeat)]
        finally:
            site.stop()
    return {"help_s": median(_seconds("--help") for _ in range(repeat)), "status_s": median(status)}


def _seconds(*arguments: str) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", _PROGRAM, *arguments], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def _table(found: Row) -> Table:
    out = Table(title=f"Start-up: {CLIENTS} clients with {ROWS} rows each and a server", title_justify="left")
    for name in ("uploads", "clients listen", "all have joined", "first round done", "job done", "CPU, all processes"):
        out.add_column(name, justify="left" if name == "uploads" else "right")
    for row in found["jobs"]:
        names = ("clients_listen_s", "joined_s", "first_round_s", "whole_s", "cpu_s")
        out.add_row(row["uploads"], *(f"{row[name]:.2f} s" for name in names))
    commands = found["commands"]
    out.caption = (
        f"secfc --help {commands['help_s']:.2f} s (target {TARGETS['help_s']:g}), secfc status {commands['status_s']:.2f} s"
        f" (target {TARGETS['status_s']:g}); first round: target {TARGETS['first_round_s']:g} s;"
        f" quiet (1: no other job ran): {found['quiet']:.2f}"
    )
    return out
