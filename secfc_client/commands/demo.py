"""`secfc demo`: a federation of real processes on this machine, from provisioning to labels, compared with central Lloyd."""

from __future__ import annotations

import json
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console

from secfc import exits, local
from secfc.agreement import plan
from secfc.agreement.federation import SERVER
from secfc.agreement.job import MEMBERSHIPS
from secfc.agreement.uploads import DEFAULT, MEANING, UPLOADS
from secfc.errors import InvalidInput
from secfc.kmeans import fixedpoint
from secfc.kmeans.candidates import MOST_CANDIDATES
from secfc_client.commands.demonstration.outcome import compare, show
from secfc_client.commands.demonstration.plot import draw, pyplot
from secfc_client.commands.demonstration.rows import load, mixture


@click.command("demo")
@click.option("--clients", type=click.IntRange(1), default=5, show_default=True, help="Client processes.")
@click.option(
    "--privacy",
    type=int,
    default=1,
    show_default=True,
    help="t: any t clients may collude and learn nothing about others' rows from their shares.",
)
@click.option(
    "--uploads",
    type=click.Choice(UPLOADS),
    default=DEFAULT,
    show_default=True,
    help="sealed: the server sees assignments, with a committee member distances; masked (faster): distances; open: all.",
)
@click.option(
    "--membership",
    type=click.Choice(MEMBERSHIPS),
    default="public",
    show_default=True,
    help="private: hide which row is whose.",
)
@click.option("--rows", type=click.IntRange(1), default=3000, show_default=True, help="Rows of the mixture.")
@click.option("--features", type=click.IntRange(1), default=10, show_default=True, help="Features of the mixture.")
@click.option("--clusters", type=click.IntRange(1), default=6, show_default=True, help="Clusters (k).")
@click.option("--seeding", type=click.Choice(["k-means++", "random", "separation"]), default="k-means++")
@click.option(
    "--candidates",
    type=click.IntRange(1, MOST_CANDIDATES),
    help="Rows each seed of k-means++ is chosen from; 1: plain k-means++. Default: 2 + ⌊ln k⌋.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the mixture and of the start.")
@click.option("--data", type=click.Path(path_type=Path), help="Cluster this CSV or Parquet file instead of a mixture.")
@click.option("--id", "id_column", help="A column of --data that names rows and is not clustered.")
@click.option("--columns", help="Columns of --data to cluster by, comma-separated; default: all but --id.")
@click.option("--centers", is_flag=True, help="Open the centres to the clients at the end, and check them.")
@click.option("--plot", type=click.Path(path_type=Path), help="Draw the clusters and the inertia to this PNG.")
@click.option("--keep", type=click.Path(path_type=Path), help="Keep kits, logs, labels and result in this new folder.")
@click.option("--timeout", type=float, default=600.0, show_default=True, help="Seconds the whole demo may take.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def command(
    clients: int,
    privacy: int,
    uploads: str,
    membership: str,
    rows: int,
    features: int,
    clusters: int,
    seeding: str,
    candidates: int | None,
    seed: int,
    data: Path | None,
    id_column: str | None,
    columns: str | None,
    centers: bool,
    plot: Path | None,
    keep: Path | None,
    timeout: float,
    as_json: bool,
) -> None:
    """Run one server and several clients as separate processes with mutual TLS on this machine, cluster a seeded
    mixture (or a file, dealt over the clients), and compare the labels with central Lloyd in exact arithmetic."""
    names = None if columns is None else [name.strip() for name in columns.split(",")]
    chosen = load(data, id_column, names) if data else mixture(rows, features, clusters, seed)
    made = local.describe(
        clients,
        name="demo",
        k=clusters,
        privacy=privacy,
        uploads=uploads,
        membership=membership,
        seeding=seeding,
        candidates=candidates,
        max_rows=len(chosen.values),
        features=chosen.values.shape[1],
        bound=chosen.bound,
        precision=fixedpoint.precision_for(chosen.bound, bits=16),
        seed=str(seed),
        centers="clients" if centers else "nobody",
    )
    agreed = plan.of(made)
    if plot is not None:
        pyplot()
    if uploads != DEFAULT:
        click.echo(f"warning: {MEANING[uploads]}", err=True)
    with _folder(keep) as folder:
        own_ids = ["--write-ids"] if agreed.private else []  # in the clients' own files: the comparison needs the order
        site = local.Local(made, folder, client_options=["--open-centers", made.job.centers, *own_ids])
        site.prepare(np.array_split(chosen.values, clients))
        with _ended_by_sigterm(), local.running(site):
            _watch(site, timeout, quiet=as_json)
        outcome = compare(site, agreed, chosen)
        if plot is not None:
            draw(plot, chosen.values, site.labels(), outcome)
    if as_json:
        click.echo(json.dumps(outcome))
    else:
        show(outcome, plot, keep)


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="secfc-demo-") as name:
            yield Path(name)
        return
    try:
        keep.mkdir(parents=True)
    except OSError as error:
        raise InvalidInput(f"{keep}: cannot be made ({error.strerror}); --keep needs a new folder") from None
    yield keep


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM unwind the stack as Ctrl-C does, so that the processes are ended."""

    def interrupt(*_: Any) -> None:
        raise click.exceptions.Exit(exits.TERMINATED)

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _watch(site: local.Local, timeout: float, quiet: bool) -> None:
    """Show the server's progress until everybody is done."""
    console = Console(stderr=True, quiet=quiet or not sys.stderr.isatty())
    clients = site.federation.n
    with console.status("starting") as status:

        def look() -> None:
            said = site.events(SERVER)
            if said:
                status.update(f"{clients} clients and a server: {_sentence(said[-1])}")

        site.wait(timeout, look)


def _sentence(event: dict[str, Any]) -> str:
    text = str(event["event"])
    if event.get("missing"):
        text += f", waiting for {', '.join(event['missing'])}"
    if "inertia" in event:
        text += f", inertia {event['inertia']:.6g}, {event['changed']} rows changed cluster"
    return text
