"""`secfc demo`: a federation of real processes on this machine, from provisioning to labels, compared with central Lloyd."""

from __future__ import annotations

import json
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console

from secfc import exits, local
from secfc.agreement import plan
from secfc.agreement.features import CLIP, Feature
from secfc.agreement.federation import RELAYS, SERVER
from secfc.agreement.job import MEMBERSHIPS, MOST_RUNS, SPLITS, STARTS
from secfc.agreement.uploads import DEFAULT, MEANING, UPLOADS
from secfc.commands import options
from secfc.errors import InvalidInput
from secfc.kmeans import fixedpoint
from secfc.kmeans.candidates import MOST_CANDIDATES
from secfc.kmeans.indices import CHOICES
from secfc_client import report
from secfc_client.commands.demonstration.outcome import compare, show
from secfc_client.commands.demonstration.plot import draw, pyplot
from secfc_client.commands.demonstration.rows import load, mixture
from secfc_client.commands.report import command as reporting
from secfc_client.engines import trial


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
    help="sealed: server plus one committee member see distances, server assignments; masked (faster): distances; open: all.",
)
@click.option(
    "--membership",
    type=click.Choice(MEMBERSHIPS),
    default="public",
    show_default=True,
    help="private: hide which row is whose.",
)
@click.option(
    "--split",
    type=click.Choice(SPLITS),
    default=SPLITS[0],
    show_default=True,
    help="columns: clients have different columns of the same rows, instead of different rows (membership is then private).",
)
@click.option(
    "--relay",
    type=click.Choice(RELAYS),
    default=RELAYS[0],
    show_default=True,
    help="only: no client listens on any port; what clients say to each other goes through the server, encrypted.",
)
@click.option(
    "--scale",
    type=click.Choice(["none", "standard"]),
    default="none",
    show_default=True,
    help="standard: every column in deviations from its mean over all clients, which they add up privately.",
)
@click.option("--rows", type=click.IntRange(1), default=3000, show_default=True, help="Rows of the mixture.")
@click.option("--features", type=click.IntRange(1), default=10, show_default=True, help="Features of the mixture.")
@click.option(
    "--k",
    "--clusters",
    "clusters",
    default="6",
    show_default=True,
    help="Clusters (k); several, comma-separated, are all tried (see --choose).",
)
@click.option(
    "--starts",
    type=click.IntRange(1, MOST_RUNS),
    default=STARTS,
    show_default=True,
    help="Starts of every k, side by side; the best is taken.",
)
@click.option(
    "--choose",
    type=click.Choice(CHOICES),
    default=CHOICES[0],
    show_default=True,
    help="Which of several k is taken: the first, or the one with the best index (not with sealed uploads).",
)
@click.option("--seeding", type=click.Choice(["k-means++", "random", "separation"]), default="k-means++")
@click.option(
    "--candidates",
    type=click.IntRange(1, MOST_CANDIDATES),
    help="Candidate rows per seed of k-means++; 1: plain k-means++. Default: 2 + ⌊ln k⌋.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the mixture and of the start.")
@click.option("--data", type=click.Path(path_type=Path), help="Cluster this CSV or Parquet file instead of a mixture.")
@click.option("--id", "id_column", help="A column of --data that names rows and is not clustered.")
@click.option("--columns", help="Columns of --data to cluster by, comma-separated; default: all but --id.")
@click.option("--centers", is_flag=True, help="Open the centres to the clients at the end, and check them.")
@click.option("--plot", type=click.Path(path_type=Path), help="Draw the clusters and the inertia to this PNG.")
@click.option(
    "--keep", type=click.Path(path_type=Path), help="Keep kits, logs, labels, reports and result in this new folder."
)
@click.option(
    "--engine",
    type=click.Choice(trial.ENGINES),
    default=trial.ENGINES[0],
    show_default=True,
    help="dask: start a Dask scheduler and two workers, which all clients' shares are computed with.",
)
@click.option("--timeout", type=float, default=600.0, show_default=True, help="Seconds the whole demo may take.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def command(
    clients: int,
    privacy: int,
    uploads: str,
    membership: str,
    split: str,
    relay: str,
    scale: str,
    rows: int,
    features: int,
    clusters: str,
    starts: int,
    choose: str,
    seeding: str,
    candidates: int | None,
    seed: int,
    data: Path | None,
    id_column: str | None,
    columns: str | None,
    centers: bool,
    plot: Path | None,
    keep: Path | None,
    engine: str,
    timeout: float,
    as_json: bool,
) -> None:
    """Run one server and several clients as separate processes with mutual TLS on this machine, cluster a seeded
    mixture (or a file, dealt over the clients), and compare the labels with central Lloyd in exact arithmetic."""
    names = None if columns is None else [name.strip() for name in columns.split(",")]
    k, *other_k = options.numbers(clusters, "--k")
    chosen = load(data, id_column, names) if data else mixture(rows, features, k, seed)
    bound = CLIP if scale == "standard" else chosen.bound
    made = local.describe(
        clients,
        name="demo",
        k=k,
        other_k=tuple(other_k),
        starts=starts,
        choose=choose,
        privacy=privacy,
        uploads=uploads,
        relay=relay,
        seeding=seeding,
        candidates=candidates,
        max_rows=len(chosen.values),
        scale=scale,
        clip=CLIP if scale == "standard" else None,
        bound=bound,
        precision=fixedpoint.precision_for(bound, bits=16),
        seed=str(seed),
        centers="clients" if centers else "nobody",
        **_dealt(split, membership, clients, chosen.values.shape[1]),
    )
    agreed = plan.of(made)
    if plot is not None:
        pyplot()
    if uploads != DEFAULT:
        click.echo(f"warning: {MEANING[uploads]}", err=True)
    with _folder(keep) as folder, _ended_by_signals(), trial.options(engine) as chosen_engine:
        own_ids = ["--write-ids"] if agreed.private else []  # in the clients' own files: the comparison needs the order
        site = local.Local(made, folder, client_options=["--open-centers", made.job.centers, *own_ids, *chosen_engine])
        whole = [chosen.values] * len(made.holders)
        site.prepare(whole or np.array_split(chosen.values, clients))
        with local.running(site):
            _watch(site, timeout, quiet=as_json)
        outcome = compare(site, agreed, chosen)
        if keep is not None:
            _reports(site)
        if plot is not None:
            draw(plot, chosen.values, site.labels(), outcome)
    if as_json:
        click.echo(json.dumps(outcome))
    else:
        show(outcome, plot, keep)


def _dealt(split: str, membership: str, clients: int, features: int) -> dict[str, Any]:
    """What the job says of who has what: rows of all columns, or columns of all rows, as evenly as it can be."""
    if split == "rows":
        return {"membership": membership, "features": features}
    parts = np.array_split(np.arange(features), clients)
    agreed = tuple(Feature(f"x{f + 1}", holder=f"client-{j + 1}") for j, part in enumerate(parts) for f in part)
    return {"split": split, "features": features, "agreed": agreed}


def _reports(site: local.Local) -> None:
    """Every client's report with the server's result in it; those the clients wrote themselves do without."""
    for client in site.sites:
        call = ["--kit", str(site.kit(client)), "--data", str(site.data_file(client))]
        call += ["--id", local.ID_COLUMN] if site.federation.holders else []
        files = ["--result", str(site.result_file), "--out", str(report.beside(site.labels_file(client)))]
        with redirect_stdout(StringIO()):
            reporting.main([*call, *files], standalone_mode=False)


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
def _ended_by_signals() -> Iterator[None]:
    """Let SIGTERM, and a terminal that closes, unwind the stack as Ctrl-C does, so that the processes are ended."""

    def interrupt(*_: Any) -> None:
        raise click.exceptions.Exit(exits.TERMINATED)

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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
    if "changed" in event and "seconds" in event:  # a round
        text += f", {event['changed']} rows moved, {event['seconds']:.2g} s"
    if event.get("missing"):
        text += f", waiting for {', '.join(event['missing'])}"
    if "inertia" in event:
        text += f", inertia {event['inertia']:.6g}"
    return text
