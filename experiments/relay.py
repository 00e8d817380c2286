"""Sharing through the server against sharing directly: seconds, CPU, and the server's peak memory meanwhile.

A server and clients as processes on this machine; the job is ended once all shares have arrived. All of them use the same
cores and the loopback device, so this compares computing, not lines: between real sites, relayed shares go through the
server's line twice.
"""

from __future__ import annotations

import json
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from experiments.processes import cpu_seconds, peak_mib
from experiments.timing import quietness
from secfc import local
from secfc.agreement import plan
from secfc.agreement.federation import SERVER
from secfc.errors import JobFailed, Unavailable

WAYS = {"direct": "never", "relayed": "only"}
PATIENCE = 1800.0

Row = dict[str, Any]


@click.command()
@click.option("--rows", default=1_000_000, show_default=True, help="Of all clients together.")
@click.option("--features", default=20, show_default=True)
@click.option("--clients", default=5, show_default=True)
@click.option("--repeat", default=1, show_default=True, help="How often, direct and relayed in turn.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
def command(rows: int, features: int, clients: int, repeat: int, as_json: bool) -> None:
    """Measure sharing over direct and over relayed links."""
    found = [_measured(way, rows, features, clients) for _ in range(repeat) for way in WAYS]
    if as_json:
        click.echo(json.dumps({"rows": rows, "features": features, "clients": clients, "runs": found}))
    else:
        Console().print(_table(found, f"Sharing {rows:,} × {features} between {clients} clients, all on this machine"))


def _measured(way: str, rows: int, features: int, clients: int) -> Row:
    made = local.describe(
        clients, k=2, privacy=1, max_rows=rows, features=features, bound=8.0, precision=8, relay=WAYS[way]
    )
    values = np.clip(np.random.default_rng(0).normal(size=(rows, features)), -8.0, 8.0)
    agreed, quiet = plan.of(made), quietness()
    with tempfile.TemporaryDirectory(prefix="secfc-relay-") as folder:
        site = local.Local(made, Path(folder), environment={"SECFC_THREADS": "1"})
        site.prepare(np.array_split(values, clients))
        with local.running(site):
            before = _used(site, _until(site, "sharing"))
            after = _used(site, _until(site, "checking"))
    return {
        "way": way,
        "seconds": after["at"] - before["at"],
        "server_cpu_s": after["server_cpu_s"] - before["server_cpu_s"],
        "clients_cpu_s": after["clients_cpu_s"] - before["clients_cpu_s"],
        "server_before_mib": before["server_peak_mib"],
        "server_peak_mib": after["server_peak_mib"],
        "segments": agreed.segments,
        "quiet": min(quiet, quietness()),
    }


def _until(site: local.Local, event: str) -> float:
    """When the server says this."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if found := [line for line in site.events(SERVER) if line["event"] == event]:
            return datetime.fromisoformat(found[0]["time"]).timestamp()
        if ended := [name for name, process in site.processes.items() if process.poll() is not None]:
            raise JobFailed(f"{ended[0]} has ended: {site.last_words(ended[0])}")
        time.sleep(0.05)
    raise Unavailable(f"after {PATIENCE:.0f} s the server has not said {event!r}: {site.last_words(SERVER)}")


def _used(site: local.Local, at: float) -> Row:
    """What the processes have used so far (Linux)."""
    cpu = {name: cpu_seconds(process.pid) for name, process in site.processes.items()}
    return {
        "at": at,
        "server_cpu_s": cpu[SERVER],
        "clients_cpu_s": sum(cpu.values()) - cpu[SERVER],
        "server_peak_mib": peak_mib(site.processes[SERVER].pid),
    }


def _table(found: list[Row], title: str) -> Table:
    out = Table(title=title, title_justify="left")
    for name in ("", "sharing", "CPU, server", "CPU, clients", "server's memory before", "peak"):
        out.add_column(name, justify="right" if name else "left")
    for row in found:
        seconds = [f"{row[name]:.1f} s" for name in ("seconds", "server_cpu_s", "clients_cpu_s")]
        memory = [f"{row[name]:.0f} MiB" for name in ("server_before_mib", "server_peak_mib")]
        out.add_row(row["way"], *seconds, *memory)
    out.caption = "quiet (1: no other job ran): " + ", ".join(f"{row['quiet']:.2f}" for row in found)
    return out
