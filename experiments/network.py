"""Whole rounds over the network: client processes and a server on this machine, mutual TLS, masked and sealed.

Every client has one kernel thread, since they share the machine's cores. Rows are unstructured, so that all clusters
change and all columns travel in most rounds. A round's time is what the server sees from question to answer; in masked rounds
it is compute and transport of the responder that is done first, waiting for the others, and decoding.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from experiments.timing import quietness
from experiments.workload import Size
from secfc import local
from secfc.agreement import plan
from secfc.errors import SecfcError

KINDS = ("masked", "sealed")
TARGET_RATIO = 3.0  # sealed over masked
MOST_SECONDS = 600.0  # for one job
_PARTS = ("compute_seconds", "transport_seconds", "waiting_seconds", "decode_seconds")

Row = dict[str, Any]
Tick = Callable[[str], None]


@dataclass(frozen=True)
class Case:
    """A size, and n clients of whom t may collude."""

    size: Size
    clients: int
    privacy: int


CASES = (Case(Size(10000, 100, 4), 10, 3), Case(Size(16384, 100, 16), 16, 5))
QUICK = (Case(Size(1000, 20, 4), 5, 1),)


def measure(
    clients: int,
    privacy: int,
    rounds: int,
    tick: Tick,
    size: Size,
    rows: tuple[npt.NDArray[np.float64], float, int] | None = None,
    uploads: str = "masked",
    seeding: str = "random",
) -> Row:
    """Seconds of the Lloyd rounds of one job, and bytes by party; `rows` are values, bound and precision of its rows."""
    m, d, k = size.m, size.d, size.k
    normal = np.random.default_rng(0).normal(size=(m, d))
    values, bound, precision = (np.clip(normal, -8.0, 8.0), 8.0, 8) if rows is None else rows
    made = local.describe(
        clients,
        k=k,
        privacy=privacy,
        max_rows=m,
        max_rounds=rounds,
        features=d,
        bound=bound,
        precision=precision,
        seeding=seeding,
        uploads=uploads,
    )
    agreed = plan.of(made)
    with tempfile.TemporaryDirectory(prefix="secfc-speed-") as folder:
        site = local.Local(made, Path(folder), environment={"SECFC_THREADS": "1"})
        site.prepare(np.array_split(values, clients))
        with local.running(site):
            site.wait(MOST_SECONDS, lambda: tick(f"{size}, {clients} clients, {uploads}, {seeding}: {_last(site)}"))
        result = site.result()
    history = [step for step in result["history"] if step["step"] == "lloyd"]
    row: Row = {
        "uploads": uploads,
        "seeding": seeding,
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
        "first_round_s": history[0]["seconds"],
        "typical_round_s": median(step["seconds"] for step in history[1:] or history),
        "quickest_round_s": min(step["seconds"] for step in history),
        "seeding_s": sum(step["seconds"] for step in result["history"] if step["step"] == "seed"),
        "upload_bytes_per_round": _mean(history, "upload_bytes"),
        "sharing_s": result["seconds"]["sharing"],
    }
    requests = len(result["history"])
    for name in ("uploaded", "dealt"):  # by the busiest client, and from or to all of them
        counted = result["bytes"][name].values()
        row |= {f"{name}_bytes_most": max(counted) / requests, f"{name}_bytes": sum(counted) / requests}
    return row | {part.replace("econds", ""): _mean(history, part) for part in _PARTS}


def compare(case: Case, rounds: int, tick: Tick) -> list[Row]:
    """Masked and sealed rounds of one case: from a random start, and the first round after k-means++."""
    out = []
    for uploads in KINDS:
        quiet = quietness()
        args = (case.clients, case.privacy)
        row = measure(*args, rounds, tick, case.size, uploads=uploads)
        seeded = measure(*args, 2, tick, case.size, uploads=uploads, seeding="k-means++")
        row |= {"first_after_seeding_s": seeded["first_round_s"], "seeding_s": seeded["seeding_s"]}
        out.append(row | {"quiet": min(quiet, quietness())})
    masked = out[0]
    for row in out:
        for name in ("first_round", "typical_round", "first_after_seeding"):
            row[f"{name}_ratio"] = row[f"{name}_s"] / masked[f"{name}_s"]
    return out


def run(quick: bool, console: Console) -> list[Row]:
    """The rows of the table, one a case and kind of uploads. A case that fails or takes too long is left out."""
    rows: list[Row] = []
    with console.status("starting") as status:
        for case in QUICK if quick else CASES:
            try:
                rows += compare(case, 5 if quick else 8, status.update)
            except SecfcError as error:
                console.print(f"{case.size}, {case.clients} clients left out: {error}")
    return rows


def _last(site: local.Local) -> str:
    said = site.events("server")
    return str(said[-1]["event"]) if said else "starting"


def _mean(history: Sequence[Row], name: str) -> float | None:
    return float(np.mean([step[name] for step in history])) if history else None


def table(rows: list[Row]) -> Table:
    """For people."""
    out = Table(title="A Lloyd round over mutual TLS, all parties on this machine", title_justify="left")
    for name in (
        "",
        "uploads",
        "typical",
        "first, random start",
        "first after k-means++",
        "client sends",
        "server deals",
    ):
        out.add_column(name, justify="left" if name in ("", "uploads") else "right")
    for row in rows:
        cells = [_cell(row, name) for name in ("typical_round", "first_round", "first_after_seeding")]
        sizes = [f"{row[name] / 1e6:.2f} MB" for name in ("uploaded_bytes_most", "dealt_bytes")]
        what = f"m={row['m']} d={row['d']} k={row['k']}, n={row['n']} t={row['t']}"
        out.add_row(what, row["uploads"], *cells, *sizes)
    quiet = ", ".join(f"{row['quiet']:.2f}" for row in rows)
    out.caption = (
        "Bytes: on average of all requests, from the busiest client and to all. Typical: sealed is to take at most"
        f" {TARGET_RATIO:g} × masked. quiet (1: no other job ran): {quiet}"
    )
    return out


def _cell(row: Row, name: str) -> str:
    text = f"{1000 * row[f'{name}_s']:.0f} ms"
    return text if row["uploads"] == KINDS[0] else f"{text} ({row[f'{name}_ratio']:.1f} ×)"
