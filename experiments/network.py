"""A whole round over the network: client processes and a server on this machine, with mutual TLS, at the reference size.

Every client has one kernel thread, since they share the machine's cores. Rows are unstructured, so that all clusters
change and all columns travel in most rounds. A round's time, as the server sees it, is: compute and transport of the
responder that is done first, waiting for the others, and decoding.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from experiments.workload import Size
from secfc import local
from secfc.agreement import plan

REFERENCE = Size(16384, 100, 16)
FEDERATIONS = ((5, 1), (16, 5))  # clients, privacy
TARGET_SECONDS = 0.25
_PARTS = ("compute_seconds", "transport_seconds", "waiting_seconds", "decode_seconds")

Row = dict[str, Any]


def measure(
    clients: int,
    privacy: int,
    rounds: int,
    tick: Callable[[str], None],
    size: Size = REFERENCE,
    rows: tuple[npt.NDArray[np.float64], float, int] | None = None,
) -> Row:
    """Mean seconds of a Lloyd round over one job, and its parts; `rows` are values, bound and precision of its rows."""
    m, d, k = size.m, size.d, size.k
    normal = np.random.default_rng(0).normal(size=(m, d))
    values, bound, precision = (np.clip(normal, -8.0, 8.0), 8.0, 9) if rows is None else rows
    made = local.describe(
        clients,
        k=k,
        privacy=privacy,
        max_rows=m,
        max_rounds=rounds,
        features=d,
        bound=bound,
        precision=precision,
        seeding="random",
    )
    agreed = plan.of(made)
    with tempfile.TemporaryDirectory(prefix="secfc-speed-") as folder:
        site = local.Local(made, Path(folder), environment={"SECFC_THREADS": "1"})
        site.prepare(np.array_split(values, clients))
        with local.running(site):
            site.wait(600.0, lambda: tick(f"{clients} clients: {_last(site)}"))
        result = site.result()
    history = result["history"]
    row: Row = {
        "m": m,
        "d": d,
        "k": k,
        "n": clients,
        "t": privacy,
        "segments": agreed.segments,
        "responders": agreed.responders,
        "lanes": agreed.field.lanes,
        "rounds": len(history),
        "round_s": _mean(history, "seconds"),
        "quickest_round_s": min(step["seconds"] for step in history),
        "full_rounds": sum(step["columns"] == k for step in history),
        "full_round_s": _mean([step for step in history if step["columns"] == k], "seconds"),
        "upload_bytes_per_round": _mean(history, "upload_bytes"),
        "sharing_s": result["seconds"]["sharing"],
    }
    return row | {part.replace("econds", ""): _mean(history, part) for part in _PARTS}


def run(quick: bool, console: Console) -> list[Row]:
    """The rows of the table, one a federation."""
    with console.status("starting") as status:
        federations = FEDERATIONS[:1] if quick else FEDERATIONS
        return [measure(clients, privacy, 5 if quick else 20, status.update) for clients, privacy in federations]


def _last(site: local.Local) -> str:
    said = site.events("server")
    return str(said[-1]["event"]) if said else "starting"


def _mean(history: list[dict[str, Any]], name: str) -> float | None:
    return float(np.mean([step[name] for step in history])) if history else None


def table(rows: list[Row]) -> Table:
    """For people."""
    out = Table(title=f"A round over mutual TLS, {REFERENCE}, masked", title_justify="left")
    names = (
        "clients",
        "responders",
        "rounds",
        "a round",
        "all columns",
        "compute",
        "transport",
        "waiting",
        "decode",
        "uploads",
    )
    for name in names:
        out.add_column(name, justify="right")
    for row in rows:
        seconds = [
            row[name] for name in ("round_s", "full_round_s", "compute_s", "transport_s", "waiting_s", "decode_s")
        ]
        if row["n"] == FEDERATIONS[-1][0]:
            good = row["round_s"] <= TARGET_SECONDS
            out.caption = (
                f"{row['n']} clients, a round: at most {1000 * TARGET_SECONDS:.0f} ms {'ok' if good else 'over'}"
            )
        texts = ["–" if value is None else f"{1000 * value:.1f} ms" for value in seconds]
        size = f"{row['upload_bytes_per_round'] / 2**20:.1f} MiB"
        out.add_row(str(row["n"]), str(row["responders"]), str(row["rounds"]), *texts, size)
    return out
