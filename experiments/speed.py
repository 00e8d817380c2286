"""Speed against peers, all in one run on the same threads: what DESIGN calls "what good is, measured".

The yardstick is one iteration of scikit-learn's Lloyd on the same rows in the clear. `workload` says what is run, `timing`
how it is repeated. Memory is the peak that tracemalloc sees, which is every numpy array and every Python object allocated
by that part (not the interpreter, its libraries, nor BLAS's own buffers): exact, repeatable and comparable with the
arrays that `Plan.cost` counts.
"""

from __future__ import annotations

import json
import sys
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from experiments import network as over_network
from experiments import output
from experiments.timing import Action, Seconds, clock, interleaved, ratio, typical
from experiments.workload import CLIENTS, PRIVACY, Size, Workload
from secfc.agreement import costs
from secfc.coding import parallel
from secfc.kmeans.distances import CodedClusters

SIZES = (Size(1000, 20, 4), Size(10000, 100, 4), Size(16384, 100, 16), Size(23832, 784, 4), Size(100000, 100, 16))
REFERENCE = Size(16384, 100, 16)
QUICK = SIZES[:2]
QUIET = 0.8  # below, another job ran on these cores
TARGETS = {"client_round_ratio": 2.0, "mask_over_aes": 2.0, "server_ratio": 2.5, "server_after_last_ratio": 1.0}

_RATIOS = {
    "client_round_ratio": ("client_round_s", "sklearn_iteration_s"),
    "client_first_round_ratio": ("client_first_round_s", "sklearn_iteration_s"),
    "client_masked_round_ratio": ("client_masked_round_s", "sklearn_iteration_s"),
    "server_ratio": ("server_s", "sklearn_iteration_s"),
    "server_after_last_ratio": ("server_after_last_s", "sklearn_iteration_s"),
    "server_open_ratio": ("server_open_s", "sklearn_iteration_s"),
    "server_open_after_last_ratio": ("server_open_after_last_s", "sklearn_iteration_s"),
    "mask_over_aes": ("masks_s", "aes_s"),
    "checked_over_open": ("server_checked_s", "server_open_s"),
}
_COLUMNS = {
    "sklearn_iteration_s": "scikit-learn iteration",
    "client_round_s": "client round",
    "client_round_ratio": "… over scikit-learn",
    "client_first_round_s": "first round",
    "client_masked_round_s": "masked round",
    "masks_s": "masks",
    "mask_over_aes": "… over bare AES-CTR",
    "server_s": "server",
    "server_ratio": "… over scikit-learn",
    "server_after_last_ratio": "… after the last chunk",
    "server_open_ratio": "… with open uploads",
    "checked_over_open": "open and checked over open",
    "sharing_s_per_row": "sharing a row",
    "client_memory_bytes": "client memory",
    "server_memory_bytes": "server memory",
}

Row = dict[str, Any]


def measure(size: Size, repetitions: int, tick: Callable[[str], None]) -> Row:
    """All figures of one size."""
    tick("setting up")
    job = Workload(size)
    tick("checking the decoded distances")
    job.check()
    parts: list[Action] = [job.sklearn, job.client, job.server, job.masks, job.aes]
    parts += [job.client_first, job.client_masked, job.server_open, job.server_checked]
    samples = interleaved({part.__name__: part for part in parts}, repetitions, tick)
    tick("sharing")
    shares = interleaved({"sharing": job.sharing}, 3, tick)
    tick("memory")
    return _parameters(job) | _times(samples) | _sharing(job, shares) | _memory(job)


def _parameters(job: Workload) -> Row:
    size, plan = job.size, job.plan
    return {
        "m": size.m,
        "d": size.d,
        "k": size.k,
        "n": CLIENTS,
        "t": PRIVACY,
        "segments": plan.segments,
        "responders": plan.responders,
        "lanes": plan.field.lanes,
        "precision": plan.wishes.precision,
        "threads": parallel.threads(),
        "upload_bytes": 8 * job.shape.layout.words,
        "sklearn_iterations": job.sklearn_iterations,
    }


def _times(samples: Sequence[Seconds]) -> Row:
    seconds = {name: typical(samples, name) for name in samples[0]}
    return seconds | {name: ratio(samples, *pair) for name, pair in _RATIOS.items()}


def _sharing(job: Workload, samples: Sequence[Seconds]) -> Row:
    rows = len(job.owners[0])
    seconds = typical(samples, "sharing_s")
    return {"sharing_rows": rows, "sharing_s": seconds, "sharing_s_per_row": seconds / rows}


def _memory(job: Workload) -> Row:
    cost = costs.of(job.plan)

    def client() -> None:
        clusters = CodedClusters(job.receive(), job.size.k)
        job.round(clusters, job.labels, masked=True)
        job.round(clusters, job.moved, masked=True)

    return {
        "client_memory_bytes": _peak(client),
        "client_memory_planned_bytes": cost["client_memory_bytes"],
        "server_memory_bytes": _peak(job.server),
        "server_memory_planned_bytes": cost["server_memory_bytes"],
        "sharing_memory_bytes": _peak(job.sharing),
        "sharing_sent_bytes": cost["sharing_bytes_per_client"],
    }


def _peak(work: Callable[[], object]) -> int:
    """Bytes allocated at the worst moment of a call, over those at its beginning."""
    tracemalloc.start(1)
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def galois_round(job: Workload, tick: Callable[[str], None]) -> Row:
    """The same client round with galois arrays, a GF(p) for every lane: the formula of `distances`, word for word."""
    import galois

    tick("galois")
    rows = np.flatnonzero(job.labels != job.moved)
    sizes = job.sizes.astype(np.int64)
    total = 0.0
    for lane, p in enumerate(job.plan.field.primes):
        field = galois.GF(p)
        shares = field(job.coded.matrix[lane].astype(np.int64) % p)
        sums = field.Zeros((job.size.k, job.plan.length))
        counts = field(sizes % p)

        def work(field: Any = field, shares: Any = shares, sums: Any = sums, counts: Any = counts, p: int = p) -> Any:
            for i in rows:
                sums[job.labels[i]] -= shares[i, :-2]
                sums[job.moved[i]] += shares[i, :-2]
            inner = -(sums * (field(2) * counts)[:, None])
            norms = np.sum(sums * sums, axis=1)
            factor = np.concatenate([inner, (counts * counts)[:, None], norms[:, None]], axis=1).view(field)
            return shares @ factor.T

        work()  # compiles
        total += min(clock(work) for _ in range(2))
    return {"galois_round_s": total}


def run(quick: bool, console: Console) -> list[Row]:
    """The rows of the table, one a size."""
    rows = []
    with console.status("speed") as status:
        for size in QUICK if quick else SIZES:

            def tick(what: str, size: Size = size) -> None:
                status.update(f"{size}: {what}")

            row = measure(size, 4 if quick else 20, tick) | {"galois_round_s": None, "galois_ratio": None}
            if size == SIZES[0]:
                row |= galois_round(Workload(size), tick)
                row["galois_ratio"] = row["galois_round_s"] / row["client_round_s"]
            rows.append(row)
            console.print(f"{size} done: client round {row['client_round_ratio']:.2f} × one scikit-learn iteration")
    return rows


def write(rows: Sequence[Row], folder: Path, name: str) -> None:
    """The rows as JSON and CSV."""
    output.write_text(folder / f"{name}.json", json.dumps(rows, indent=2) + "\n")
    output.write_csv(folder / f"{name}.csv", rows)


def table(rows: Sequence[Row]) -> Table:
    """Figures down, sizes across; the reference size carries the targets."""
    first = rows[0]
    out = Table(
        title=f"One round against one scikit-learn iteration (n={first['n']}, t={first['t']}, ℓ={first['segments']}, "
        f"R={first['responders']}, {first['threads']} threads)"
    )
    out.add_column("")
    for row in rows:
        out.add_column(f"m={row['m']}\nd={row['d']} k={row['k']}\nL={row['lanes']}", justify="right")
    for name, title in _COLUMNS.items():
        out.add_row(title, *(_cell(name, row) for row in rows))
    if first["galois_ratio"] is not None:
        out.add_row("galois client round", f"{first['galois_ratio']:.0f} ×", *[""] * (len(rows) - 1))
    out.add_row(
        "quiet (1: no other job)",
        *(f"[{'red' if row['quiet'] < QUIET else 'default'}]{row['quiet']:.2f}[/]" for row in rows),
    )
    if any(row["quiet"] < QUIET for row in rows):
        out.caption = "Another job was running: scikit-learn suffers most from that, so ratios are too good to be true."
    return out


def _cell(name: str, row: Row) -> str:
    value = row[name]
    if name.endswith("_bytes"):
        planned = row[name.replace("_bytes", "_planned_bytes")]
        return f"{value / 2**20:.1f} MiB\n(plan {planned / 2**20:.1f})"
    if name.endswith("_s_per_row"):
        return f"{value * 1e6:.2f} µs"
    if name.endswith("_s"):
        return f"{value * 1e3:.2f} ms"
    if name in TARGETS and Size(row["m"], row["d"], row["k"]) == REFERENCE:
        good = value <= TARGETS[name]
        return f"[{'green' if good else 'red'}]{value:.2f} × (≤ {TARGETS[name]:g} {'ok' if good else 'over'})[/]"
    return f"{value:.2f} ×"


@click.command("speed")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list of one object a size instead of the table.")
@click.option("--network", is_flag=True, help="Whole rounds of client processes and a server over mutual TLS instead.")
@click.option("--quick", is_flag=True, help="The two smallest sizes with few repetitions (under 30 s).")
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), help="Also write the figures here, as JSON and CSV."
)
def command(as_json: bool, network: bool, quick: bool, out: Path | None) -> None:
    """Time one round of client and server against one scikit-learn iteration on the same rows and threads.

    Ratios are medians over repetitions in which everything compared runs side by side. SECFC_THREADS sets the threads.
    """
    rows = over_network.run(quick, Console(stderr=True)) if network else run(quick, Console(stderr=True))
    if out is not None:
        write(rows, out, "network" if network else "speed")
    if as_json:
        click.echo(json.dumps(rows, indent=2))
    else:
        shown = over_network.table(rows) if network else table(rows)
        Console(width=None if sys.stdout.isatty() else 120).print(shown)
