"""Peers beside SecFC, in one run on the same rows, from the same start, for the same number of Lloyd iterations.

* scikit-learn's Lloyd: all rows in one place, the floor;
* k-FED: one shot, so its seconds and bytes are those of all of it; it starts by itself;
* SecFC in memory, with open and with masked uploads, and masked and sealed between processes over mutual TLS;
* SPU (`peer_spu`) and MPyC (`peer_mpyc`), each in the quickest form we know, where they are installed.

Seconds are those of all parties together on this machine's cores, since that is what SPU's simulator and MPyC's processes
give; all are allowed the same threads. SPU hides more than SecFC does: distances and assignment too.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import click
from rich.markup import escape
from rich.table import Table

from experiments import contest, foreign, output, plots
from experiments.accuracy import accuracy
from experiments.contest import Job
from experiments.output import Cells, Row
from experiments.timing import quietness
from experiments.workload import Size
from secfc.coding import parallel
from secfc.errors import SecfcError

SIZES, QUICK = (Size(10000, 100, 4), Size(16384, 100, 16)), (Size(600, 20, 4),)
ITERATIONS, QUICK_ITERATIONS = 3, 2
LEARNS = {
    "scikit-learn": "one party: all rows",
    "k-FED": "the server: every client's local centres",
    "SecFC open": "the server: distances by segment, and with any one client's help all rows; all: the assignment",
    "SecFC masked": "the server: distances; all: the assignment; t clients together: no more",
    "SecFC masked, TLS": "as SecFC masked",
    "SecFC sealed, TLS": "the server and one committee member together: distances; all: the assignment",
    "SPU": "nobody: anything before the result is opened; two of its three parties together: all rows",
    "MPyC": "one party: distances; all: the assignment; t parties together: no more",
}
OURS: dict[str, Callable[[Job], Row]] = {
    "scikit-learn": contest.scikit_learn,
    "k-FED": contest.k_fed,
    "SecFC open": lambda job: contest.secfc(job, "open"),
    "SecFC masked": lambda job: contest.secfc(job, "masked"),
    "SecFC masked, TLS": lambda job: contest.secfc_over_tls(job, "masked"),
    "SecFC sealed, TLS": lambda job: contest.secfc_over_tls(job, "sealed"),
}


def measure(size: Size, seed: int, quick: bool, python: str, step: output.Tick) -> Row:
    """All peers at one size, one after another; a peer that is not there is left out with the reason."""
    step(f"{size}: central Lloyd in exact integers")
    privacy = {"clients": 5, "privacy": 1} if quick else {}
    job = Job(size, seed, QUICK_ITERATIONS if quick else ITERATIONS, **privacy)
    rows = []
    for name, work in OURS.items():
        step(f"{size}: {name}")
        try:
            rows.append(_row(job, name, work))
        except SecfcError as error:
            rows.append(_left_out(job, name, str(error)))
    for peer in foreign.PEERS:
        step(f"{size}: {peer.name}")
        rows.append(_foreign_row(job, peer, python))
    return {"rows": rows}


def _foreign_row(job: Job, peer: foreign.Peer, python: str) -> Row:
    """A peer that is not installed, fails or takes too long is left out; the others are worth showing all the same."""
    reason = foreign.missing(peer, python)
    if reason is None and peer.largest is not None and job.size.m * job.size.d * job.size.k > peer.largest:
        reason = "not run at this size: it takes too long"
    if reason is None:
        try:
            return _row(job, peer.name, lambda job: foreign.run(peer, job, python))
        except RuntimeError as error:
            reason = str(error)
    return _left_out(job, peer.name, reason)


def _left_out(job: Job, name: str, reason: str) -> Row:
    click.echo(f"{name} left out: {reason}", err=True)
    return {"peer": name, "size": str(job.size), "seconds": None, "left_out": reason}


def _row(job: Job, name: str, work: Callable[[Job], Row]) -> Row:
    quiet = quietness()
    figures = work(job)
    labels = figures.pop("labels")
    row: Row = {"peer": name, "size": str(job.size), "iterations": job.iterations, "n": job.clients, "t": job.privacy}
    row |= {"seconds": figures["seconds"], "bytes": figures["bytes"], "learns": LEARNS[name]}
    row["accuracy"] = None if labels is None else accuracy(job.drawn.truth, labels)
    row["differ"] = None if labels is None or name == "k-FED" else int((labels != job.expected).sum())
    row |= {"quiet": min(quiet, quietness()), "threads": parallel.threads(), "version": figures.get("version")}
    return row


def run(seed: int, quick: bool, out: Path, python: str) -> Row:
    """Measure, write and draw."""
    output.say_seeds("peers", seed, 1)
    sizes, cells, rows = QUICK if quick else SIZES, Cells(out, "peers"), []
    present = [peer.name for peer in foreign.PEERS if foreign.missing(peer, python) is None]
    with output.progress("peers", len(sizes) * (1 + len(LEARNS))) as step:
        for size in sizes:
            asked: Row = {"size": str(size), "seed": seed, "quick": quick, "peers": present}
            name = f"m{size.m}-d{size.d}-k{size.k}"
            rows += cells.get(name, asked, lambda size=size: measure(size, seed, quick, python, step))["rows"]  # type: ignore[misc]
    result = output.write(out, "peers", {"seed": seed, "quick": quick, "sigma": contest.SIGMA}, rows)
    plots.peers(rows, out / "peers.png")
    return result


def table(result: Row) -> Table:
    """One line a peer and size."""
    rows = result["rows"]
    out = Table(title="Peers: an iteration, all parties on this machine", title_justify="left")
    for name in ("", "seconds", "bytes", "accuracy", "rows unlike Lloyd", "who learns what"):
        out.add_column(name, justify="left" if name in ("", "who learns what") else "right")
    for size in dict.fromkeys(row["size"] for row in rows):
        out.add_section()
        out.add_row(f"[bold]{size}[/]")
        for row in (row for row in rows if row["size"] == size):
            out.add_row(*(escape(text) for text in cells_of(row)))
    out.caption = "k-FED: all of it. quiet (1: no other job ran): " + ", ".join(
        f"{row['quiet']:.2f}" for row in rows if row["seconds"] is not None
    )
    return out


def cells_of(row: Row) -> list[str]:
    """A row as text."""
    if row["seconds"] is None:
        return [row["peer"], "–", "–", "–", "–", f"left out: {row['left_out']}"]
    accurate = "–" if row["accuracy"] is None else f"{row['accuracy']:.1f} %"
    differ = "–" if row["differ"] is None else str(row["differ"])
    size = "–" if row["bytes"] is None else f"{row['bytes'] / 1e6:.3g} MB"
    return [row["peer"], plots.seconds_text(row["seconds"]), size, accurate, differ, row["learns"]]


@click.command("peers")
@click.option(
    "--peers-python",
    default=sys.executable,
    help="Interpreter that has SPU and MPyC, e.g. of a virtual environment made for them; default: this one.",
)
@output.options()
def command(seed: int, quick: bool, out: Path, as_json: bool, peers_python: str) -> None:
    """Seconds and bytes an iteration, accuracy, and who learns what: scikit-learn, k-FED, SecFC, SPU and MPyC."""
    result = run(seed, quick, out, peers_python)
    output.show(result, table(result), as_json)
