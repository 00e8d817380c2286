"""Figure 1 of the paper: run time against n (with t = ⌈n/3⌉), d and m, for a client, the server and k-FED.

From k = 4, n = 10, m = 1000, d = 20 one parameter is varied at a time. SecFC's times are of one iteration, on all threads of
this machine as in the paper's setup: a client's work on its shares of all rows, with open uploads (the paper's) and with
masked ones; the server's decoding and assignment. k-FED's time is all of it: the slowest client's clustering, then the
server's, as if every client had a machine; clients are told k′ = 2. Seconds are those of the quickest repetition, since what
disturbs a measurement only ever adds to it; `quiet` is that of the most disturbed one.

The paper leaves the network out. Here are also whole rounds of real client processes and a server over mutual TLS on this
machine. All processes share its cores, so that is a round's total work rather than its latency on machines of their own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.table import Table
from threadpoolctl import threadpool_limits

from experiments import kmeans_fed, network, output, plots
from experiments.mixtures import deal, mixture
from experiments.output import Cells, Row
from experiments.timing import Action, Seconds, clock, interleaved
from experiments.workload import Parties, Size, Workload
from secfc.coding import parallel

PAPER_SECONDS = 16.0
BASE = {"n": 10, "d": 20, "m": 1000}
CLUSTERS, TOLD = 4, 2
SWEEPS = {"n": (5, 10, 20, 30, 40, 50), "d": (20, 50, 100, 200, 500), "m": (1000, 2000, 5000, 10000, 20000, 50000)}
QUICK = {"n": (5, 10), "d": (20, 40), "m": (1000, 2000)}
NETWORK = {"n": (5, 10, 16), "d": (20, 100, 500), "m": (1000, 5000, 20000)}
QUICK_NETWORK = {"n": (3,)}
PARTS = {
    "client_round_s": "client",
    "client_masked_round_s": "client, masked",
    "server_s": "server",
    "kfed_s": "k-FED, all of it",
    "network_round_s": "a round over TLS",
}


def parties(n: int) -> Parties:
    """t = ⌈n/3⌉ as in the paper and ℓ as large as fits."""
    return Parties(n, -(-n // 3), None)


class Kfed:
    """One job of k-FED, to be run again and again."""

    def __init__(self, size: Size, n: int, seed: int) -> None:
        rows = mixture(size.m, size.d, size.k, 1.0, seed)
        self.parts = [rows.values[at] for at in deal(rows.truth, n, TOLD, seed)]
        self.k, self.random = size.k, np.random.default_rng((3, seed))

    def kfed(self) -> Seconds:
        """The slowest client, then the server."""
        sent: list[Any] = []
        with threadpool_limits(1):  # a client's part is too small for more to help
            seconds = [clock(lambda rows=rows: sent.append(self._client(rows))) for rows in self.parts]  # type: ignore[misc]
            centres = np.concatenate(sent)
            last = clock(lambda: kmeans_fed.server(centres, TOLD, self.k, self.random, "far apart"))
        return {"kfed_s": max(seconds) + last}

    def _client(self, rows: Any) -> Any:
        return kmeans_fed.client(rows, TOLD, self.random, "separation")[0]


def compute(n: int, size: Size, seed: int, repetitions: int) -> Row:
    """The seconds of one point, without the network."""
    job, other = Workload(size, seed, parties(n)), Kfed(size, n, seed)
    job.check()
    parts: list[Action] = [job.client, job.client_masked, job.server, other.kfed]
    samples = interleaved({part.__name__: part for part in parts}, repetitions, lambda _what: None)
    figures: Row = {name: min(sample[name] for sample in samples) for name in samples[0]}
    figures |= {"segments": job.plan.segments, "responders": job.plan.responders, "lanes": job.plan.field.lanes}
    return figures | {"upload_bytes": 8 * job.shape.layout.words, "threads": parallel.threads()}


def over_network(n: int, size: Size, rounds: int) -> Row:
    """A round over TLS and its parts."""
    row = network.measure(n, parties(n).t, rounds, lambda _what: None, size)
    return {"network_round_s": row["quickest_round_s"]} | {
        name: row[name] for name in ("transport_s", "waiting_s", "rounds")
    }


def measure(seed: int, quick: bool, folder: Path) -> list[Row]:
    """One row a point of a sweep."""
    sweeps, networked = (QUICK, QUICK_NETWORK) if quick else (SWEEPS, NETWORK)
    points = [(name, value) for name in SWEEPS for value in sorted({*sweeps[name], *networked.get(name, ())})]
    cells, rows = Cells(folder, "figure1"), []
    with output.progress("figure1", len(points)) as step:
        for name, value in points:
            step(f"{name} = {value}")
            at = BASE | {name: value}
            rows.append({"sweep": name} | _point(cells, at, seed, quick, value in networked.get(name, ())))
    return rows


def _point(cells: Cells, at: dict[str, int], seed: int, quick: bool, networked: bool) -> Row:
    size, n = Size(at["m"], at["d"], CLUSTERS), at["n"]
    asked: Row = at | {"t": parties(n).t, "k": CLUSTERS, "seed": seed, "repetitions": 2 if quick else 12}
    name = "-".join(f"{key}{value}" for key, value in at.items())
    row = asked | {"network_round_s": None}
    row |= cells.get(name, asked, lambda: compute(n, size, seed, asked["repetitions"]))
    if networked:
        rounds = 3 if quick else 20
        row |= cells.get(f"network-{name}", asked | {"rounds": rounds}, lambda: over_network(n, size, rounds))
    return row


def table(result: Row) -> Table:
    """One line a point."""
    rows = result["rows"]
    out = Table(title="Run time (ms): SecFC an iteration, k-FED all of it", title_justify="left")
    for name in ("varied", "n", "t", "d", "m", *PARTS.values(), "upload", "quiet"):
        out.add_column(name, justify="right")
    for row in rows:
        times = ["–" if row.get(name) is None else f"{1000 * row[name]:.2f}" for name in PARTS]
        size = f"{row['upload_bytes'] / 2**20:.2f} MiB"
        out.add_row(row["sweep"], *(str(row[name]) for name in "ntdm"), *times, size, f"{row['quiet']:.2f}")
    worst = max(row[name] for row in rows for name in PARTS if row.get(name) is not None)
    out.caption = f"The slowest: {worst:.2f} s; the paper: under {PAPER_SECONDS:g} s. quiet: 1 if no other job ran."
    return out


@click.command("figure1")
@output.options()
def command(seed: int, quick: bool, out: Path, as_json: bool) -> None:
    """Run time against n, d and m: client, server and k-FED as in the paper, and whole rounds over the network."""
    result = run(seed, quick, out)
    output.show(result, table(result), as_json)


def run(seed: int, quick: bool, out: Path) -> Row:
    """Measure, write and draw Figure 1."""
    output.say_seeds("figure1", seed, 1)
    rows = measure(seed, quick, out)
    result = output.write(out, "figure1", {"seed": seed, "quick": quick, "k": CLUSTERS, "told": TOLD} | BASE, rows)
    plots.run_times(rows, PARTS, PAPER_SECONDS, out / "figure1.png")
    return result
