"""`secfc demo`: a federation of real processes on this machine, from provisioning to labels, compared with central Lloyd."""

from __future__ import annotations

import json
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from secfc import central, config, exits, federation, fixedpoint, local, plan
from secfc.centers import Opened, large_enough, rows_of_others
from secfc.coins import Coins
from secfc.commands.plan import size
from secfc.errors import InvalidInput
from secfc.plan import MEMBERSHIPS, UPLOADS


@dataclass(frozen=True)
class Rows:
    """What is clustered: rows in a public bound, and the true cluster of each where it is known."""

    values: npt.NDArray[np.float64]
    bound: float
    truth: npt.NDArray[np.int64] | None


@click.command("demo")
@click.option("--clients", type=click.IntRange(1), default=5, show_default=True, help="Client processes.")
@click.option(
    "--privacy",
    type=int,
    default=1,
    show_default=True,
    help="Clients that may pool their shares and learn nothing from them (t).",
)
@click.option("--uploads", type=click.Choice(UPLOADS), default="masked", show_default=True)
@click.option(
    "--membership",
    type=click.Choice(MEMBERSHIPS),
    default="public",
    show_default=True,
    help="Hide whose rows are whose.",
)
@click.option("--rows", type=click.IntRange(1), default=3000, show_default=True, help="Rows of the mixture.")
@click.option("--features", type=click.IntRange(1), default=10, show_default=True, help="Features of the mixture.")
@click.option("--clusters", type=click.IntRange(1), default=6, show_default=True, help="Clusters (k).")
@click.option("--seeding", type=click.Choice(["k-means++", "random", "separation"]), default="k-means++")
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
    chosen = _load(data, id_column, names) if data else mixture(rows, features, clusters, seed)
    made = local.describe(
        clients,
        name="demo",
        k=clusters,
        privacy=privacy,
        uploads=uploads,
        membership=membership,
        seeding=seeding,
        max_rows=len(chosen.values),
        features=chosen.values.shape[1],
        bound=chosen.bound,
        precision=fixedpoint.precision_for(chosen.bound, bits=16),
        seed=str(seed),
        centers="clients" if centers else "nobody",
    )
    agreed = plan.of(made)
    if plot is not None:
        _pyplot()
    with _folder(keep) as folder:
        own_ids = ["--write-ids"] if agreed.private else []  # in the clients' own files: the comparison needs the order
        site = local.Local(made, folder, client_options=["--open-centers", made.centers, *own_ids])
        site.prepare(np.array_split(chosen.values, clients))
        with _ended_by_sigterm(), local.running(site):
            _watch(site, timeout, quiet=as_json)
        outcome = _compare(site, agreed, chosen)
        if plot is not None:
            _draw(plot, chosen.values, site.labels(), outcome)
    if as_json:
        click.echo(json.dumps(outcome))
    else:
        _show(outcome, plot, keep)


def mixture(rows: int, features: int, clusters: int, seed: int) -> Rows:
    """A seeded Gaussian mixture with centres spread so that clusters touch but can be told apart."""
    rng = np.random.default_rng(seed)
    centres = rng.uniform(-5.0, 5.0, size=(clusters, features))
    truth = rng.integers(0, clusters, rows)
    values = centres[truth] + rng.normal(scale=2.0, size=(rows, features))
    return Rows(np.clip(values, -16.0, 16.0), 16.0, truth)


def _load(path: Path, id_column: str | None, chosen: list[str] | None) -> Rows:
    from secfc_client import data

    table = data.load(path, feature_count=None, id_column=id_column, chosen=chosen)
    largest = float(np.abs(table.features).max(initial=0.0)) or 1.0
    return Rows(table.features, 2.0 ** float(np.ceil(np.log2(largest))), None)


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
            said = site.events(config.SERVER)
            if said:
                status.update(f"{clients} clients and a server: {_sentence(said[-1])}")

        site.wait(timeout, look)


def _sentence(event: dict[str, Any]) -> str:
    text = str(event["event"])
    if event.get("missing"):
        text += f", waiting for {', '.join(event['missing'])}"
    if "inertia" in event:
        text += f", inertia {event['inertia']:.6g}, {event['changed']} points changed"
    return text


def _compare(site: local.Local, agreed: plan.Plan, chosen: Rows) -> dict[str, Any]:
    """The result, beside what central Lloyd finds on the pooled rows from the same start."""
    result, labels = site.result(), site.labels()
    made = site.federation
    quantised = fixedpoint.quantise(chosen.values, made.bound, made.precision)
    order = np.argsort(site.ids()) if agreed.private else np.arange(len(labels))
    coins = Coins(bytes.fromhex(result["seed"]))
    pooled = central.run(quantised[order], made.k, start=made.seeding, coins=coins, max_rounds=made.max_rounds)
    identical = bool((labels[order] == pooled.labels).all()) and result["rounds"] == pooled.rounds
    outcome = {
        "clients": made.n,
        "privacy": made.privacy,
        "segments": agreed.segments,
        "responders": agreed.responders,
        "lanes": agreed.field.lanes,
        "uploads": made.uploads,
        "membership": made.membership,
        "rows": len(labels),
        "features": made.features,
        "rounds": result["rounds"],
        "converged": result["converged"],
        "identical_to_central": identical,
        "inertia": result["inertia"],
        "central_inertia": federation.in_data_units(agreed, pooled.inertia),
        "cluster_sizes": result["cluster_sizes"],
        "seconds": result["seconds"],
        "bytes": _bytes(result),
        "history": [step["inertia"] for step in result["history"] if step["inertia"] is not None],
    }
    if made.centers != "nobody":
        outcome["centers"] = _opened(site, quantised, labels)
    if chosen.truth is not None:
        outcome["accuracy"] = accuracy(chosen.truth, labels, made.k)
    return outcome


def _opened(site: local.Local, quantised: npt.NDArray[np.int64], labels: npt.NDArray[np.int32]) -> dict[str, Any]:
    """The centres as each client wrote them, and whether they are the exact means of the clusters above the floor."""
    made = site.federation
    counts = np.stack([np.bincount(part, minlength=made.k) for part in np.array_split(labels, made.n)])
    above = large_enough(rows_of_others(counts, made.privacy), made.centers_smallest)
    sums = tuple(tuple(quantised[labels == h].sum(axis=0).tolist()) for h in above)
    names = [f"x{f + 1}" for f in range(made.features)]
    expected = Opened(above, tuple(counts.sum(axis=0)[list(above)].tolist()), sums, made.precision)
    files = [site.centers_file(name) for name in made.roster]
    text = expected.table(names) if above else None
    same = all((file.read_text(encoding="utf-8") if file.exists() else None) == text for file in files)
    return {"exact": same, "opened": len(above), "means": expected.means().tolist() if same and above else None}


def _bytes(result: dict[str, Any]) -> dict[str, Any]:
    counted = result["bytes"]
    links = len(counted["sharing_sent"]) * max(len(counted["sharing_sent"]) - 1, 1)
    return {
        "client_to_client": sum(counted["sharing_sent"].values()),
        "client_to_server": sum(counted["uploaded"].values()),
        "per_client_link": sum(counted["sharing_sent"].values()) // links,
        "per_server_link": counted["uploaded"],
    }


def accuracy(truth: npt.NDArray[np.int64], labels: npt.NDArray[np.int32], clusters: int) -> float | None:
    """Share of rows whose cluster is their true one under the best matching of names (Hungarian method)."""
    try:
        from scipy.optimize import linear_sum_assignment
    except ImportError:
        return None
    table = np.zeros((clusters, clusters), dtype=np.int64)
    np.add.at(table, (truth, labels), 1)
    rows, columns = linear_sum_assignment(-table)
    return float(table[rows, columns].sum() / len(truth))


def _show(outcome: dict[str, Any], plot: Path | None, keep: Path | None) -> None:
    seconds, sent = outcome["seconds"], outcome["bytes"]
    table = Table(title="Secure federated k-means", title_justify="left", show_header=False)
    how = "" if outcome["converged"] else " (stopped before it converged)"
    rows = [
        ("parties", f"{outcome['clients']} clients and a server, each its own process, mutual TLS"),
        ("rows", f"{outcome['rows']} × {outcome['features']} features"),
        (
            "privacy",
            f"{outcome['privacy']} client(s) may pool their shares and learn nothing from them; {outcome['uploads']} uploads",
        ),
        (
            "whose rows are whose",
            "hidden from the server and any t clients" if outcome["membership"] == "private" else "known to all",
        ),
        ("rounds", f"{outcome['rounds']}{how}"),
        ("cluster sizes", ", ".join(map(str, outcome["cluster_sizes"]))),
        ("inertia", f"{outcome['inertia']:.6g}"),
        ("identical to central Lloyd", "yes" if outcome["identical_to_central"] else "NO"),
    ]
    if "centers" in outcome:
        opened = f"{outcome['centers']['opened']} of {len(outcome['cluster_sizes'])}"
        exact = "the exact means" if outcome["centers"]["exact"] else "NOT the means"
        rows.append(("centres, opened to clients", f"{opened}, {exact}"))
    if outcome.get("accuracy") is not None:
        rows.append(("accuracy", f"{100 * outcome['accuracy']:.1f} % of rows in their true cluster"))
    phases = ", ".join(
        f"{name} {seconds[name]:.2f} s"
        for name in ("joining", "agreeing", "union", "sharing", "checking", "rounds")
        if name in seconds
    )
    rows += [
        ("time", phases),
        (
            "sent",
            f"{size(sent['per_client_link'])} a link between clients, {size(sent['client_to_server'])} to the server",
        ),
    ]
    for path in filter(None, (plot, keep)):
        rows.append(("written", str(path)))
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def _pyplot() -> Any:
    try:
        import matplotlib
    except ImportError:
        raise InvalidInput("--plot needs matplotlib; install it with: pip install matplotlib") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def _draw(path: Path, values: Any, labels: Any, outcome: dict[str, Any]) -> None:
    """Clusters in two principal components, beside inertia by round."""
    pyplot = _pyplot()
    centred = values - values.mean(axis=0)
    axes_of_variance = np.linalg.svd(centred, full_matrices=False)[2][:2]
    flat = centred @ axes_of_variance.T
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4.5), layout="constrained")
    second = flat[:, 1] if flat.shape[1] > 1 else np.zeros(len(flat))
    left.scatter(flat[:, 0], second, c=labels, cmap="tab10" if labels.max() < 10 else "nipy_spectral", s=8, alpha=0.7)
    left.set(
        title=f"{len(labels)} rows in {len(outcome['cluster_sizes'])} clusters", xlabel="first principal component"
    )
    left.set_ylabel("second principal component")
    history = outcome["history"]
    right.plot(range(1, len(history) + 1), history, marker="o")
    right.set(title="Inertia by Lloyd round", xlabel="round", ylabel="inertia")
    right.xaxis.get_major_locator().set_params(integer=True)
    right.grid(alpha=0.3)
    try:
        figure.savefig(path, dpi=120)
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{path}: the plot cannot be written ({error})") from None
    finally:
        pyplot.close(figure)
