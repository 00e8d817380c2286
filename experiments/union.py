"""What private ID alignment costs: seconds of one client and of the server, and bytes per ID.

A client's compute is its table, the shares for all n clients, adding up the n shares it gets, and looking up its own IDs in
the list of all. IDs are dealt evenly, but little depends on that: a table has the same size whatever it holds.
"""

from __future__ import annotations

import json
import os
import sys
from statistics import median
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from experiments.timing import clock, quietness
from secfc.coding import parallel
from secfc.coding.field import Words
from secfc.errors import JobFailed
from secfc.privacy import identifiers
from secfc.privacy.identifiers import ID_BYTES, Ids
from secfc.privacy.union import IdUnion, Peeled, TableShape, peel, union_code

Row = dict[str, Any]
SIZES = (1_000, 10_000, 100_000, 1_000_000)
REFERENCE, CLIENT_SECONDS, SHARE_BYTES = 100_000, 1.0, 64  # the targets, at this size
STEPS = ("table_s", "encode_s", "add_s", "list_s", "open_s", "peel_s")


class Timed:
    """One alignment whose steps are timed: those of the first client, and the server's."""

    def __init__(self, clients: int, privacy: int, rows: int) -> None:
        self.ids = identifiers.fresh(rows, os.urandom(32))
        owners = [self.ids[j::clients] for j in range(clients)]
        self.union = IdUnion(union_code(clients, privacy), os.urandom(32), rows, rows)
        self.seconds = dict.fromkeys(STEPS, 0.0)
        self.share_bytes = 0
        while not self.union.finished:
            self._round(owners)
        if self.union.ids.tolist() != self.ids[identifiers.order(self.ids)].tolist():
            raise JobFailed("the union is not the set of all IDs")

    def _round(self, owners: list[Ids]) -> None:
        shape = self.union.shape
        self.share_bytes += 8 * shape.words
        sums = self._sums(shape, owners)
        opened = self._time("open_s", lambda: shape.opened(sums))
        peeled: Peeled = self._time("peel_s", lambda: peel(shape, opened))
        self._time("list_s", lambda: self._learn(peeled, owners[0]))

    def _sums(self, shape: TableShape, owners: list[Ids]) -> dict[int, Words]:
        everybody = range(len(owners))
        sums = [shape.sum() for _ in everybody]
        for i, own in enumerate(owners):
            step = self._time if i == 0 else _untimed
            table = step("table_s", lambda own=own: self.union.contribution(own, os.urandom(32)))
            shares = step("encode_s", lambda table=table: table.shares(everybody))
            for j in everybody:
                (self._time if j == 0 else _untimed)("add_s", lambda i=i, j=j, w=shares[j]: sums[j].add(i, w))
        packed = [self._time("add_s", sums[0].words), *(held.words() for held in sums[1:])]
        return dict(enumerate(packed))

    def _learn(self, peeled: Peeled, own: Ids) -> None:
        self.union.learn(peeled)
        if self.union.finished:
            self.union.slots(own)

    def _time(self, name: str, work: Any) -> Any:
        out: list[Any] = []
        self.seconds[name] += clock(lambda: out.append(work()))
        return out[0]


def _untimed(_name: str, work: Any) -> Any:
    return work()


def measure(clients: int, privacy: int, rows: int, repetitions: int) -> Row:
    """Medians over repetitions; bytes are of the tables that were really needed."""
    quiet = quietness()
    runs = [Timed(clients, privacy, rows) for _ in range(repetitions)]
    steps = {name: median(run.seconds[name] for run in runs) for name in STEPS}
    share_bytes = median(run.share_bytes for run in runs)
    return {
        "m": rows,
        "n": clients,
        "t": privacy,
        "threads": parallel.threads(),
        "client_s": sum(steps[name] for name in ("table_s", "encode_s", "add_s", "list_s")),
        "server_s": sum(steps[name] for name in ("open_s", "peel_s", "list_s")),
        "bytes_per_id_and_recipient": share_bytes / rows,
        "list_bytes_per_id": ID_BYTES,
        "tables": median(run.union.round - 1 for run in runs),
        "quiet": quiet,
    } | steps


def table(rows: list[Row]) -> Table:
    """Figures down, sizes across."""
    first = rows[0]
    out = Table(title=f"Private union of IDs (n={first['n']}, t={first['t']}, {first['threads']} threads)")
    out.add_column("")
    for row in rows:
        out.add_column(f"m={row['m']}", justify="right")
    for name, title in _TITLES.items():
        out.add_row(title, *(_cell(name, row) for row in rows))
    return out


_TITLES = {
    "client_s": "one client, in all",
    "table_s": "  its table",
    "encode_s": "  shares for all",
    "add_s": "  adding up n shares",
    "list_s": "  checking the list",
    "server_s": "server, in all",
    "open_s": "  opening the sum",
    "peel_s": "  peeling",
    "bytes_per_id_and_recipient": "bytes per ID and recipient",
    "list_bytes_per_id": "bytes per ID of the list",
    "tables": "tables",
    "quiet": "quiet (1: no other job)",
}


def _cell(name: str, row: Row) -> str:
    targets = {"client_s": CLIENT_SECONDS, "bytes_per_id_and_recipient": SHARE_BYTES}
    text = f"{row[name] * 1e3:.1f} ms" if name.endswith("_s") else f"{row[name]:.4g}"
    if name not in targets or row["m"] != REFERENCE:
        return text
    good = row[name] <= targets[name]
    return f"[{'green' if good else 'red'}]{text} ({'ok' if good else 'over'})[/]"


@click.command("union")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list of one object a size instead of the table.")
@click.option(
    "--rows", "-m", type=click.IntRange(1), multiple=True, default=SIZES, show_default=True, help="IDs in all."
)
@click.option("--clients", "-n", type=click.IntRange(2), default=10, show_default=True, help="Clients (n).")
@click.option("--privacy", "-t", type=click.IntRange(1), default=3, show_default=True, help="Privacy threshold (t).")
@click.option(
    "--repeat", type=click.IntRange(1), default=3, show_default=True, help="Repetitions, of which the median."
)
def command(as_json: bool, rows: tuple[int, ...], clients: int, privacy: int, repeat: int) -> None:
    """Time the private set union of row IDs, all parties in one process, and count the bytes of its messages."""
    console = Console(stderr=True)
    Timed(clients, privacy, 100)  # loads the kernels
    found = []
    for size in rows:
        found.append(measure(clients, privacy, size, repeat))
        console.print(f"m={size} done: {found[-1]['client_s']:.3f} s a client")
    if as_json:
        click.echo(json.dumps(found, indent=2))
    else:
        Console(width=None if sys.stdout.isatty() else 120).print(table(found))
