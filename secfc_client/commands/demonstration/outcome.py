"""What came of the demo, beside what central Lloyd finds on the pooled rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from secfc import local
from secfc.agreement import plan
from secfc.agreement.uploads import SEES
from secfc.commands.plan import size
from secfc.commands.runstable import runs_table
from secfc.kmeans import central, fixedpoint, standard
from secfc.kmeans.coins import Coins
from secfc.kmeans.standard import Spread
from secfc.privacy.centers import Centers, large_enough, rows_of_others
from secfc.protocol.rounds import kind_of
from secfc_client.commands.demonstration.rows import Rows

_RELAYED = "through the server, end-to-end encrypted; no client listens on any port"


def compare(site: local.Local, agreed: plan.Plan, chosen: Rows) -> dict[str, Any]:
    """The result, beside what central Lloyd finds on the pooled rows from the same start."""
    result, labels = site.result(), site.labels()
    made = site.federation
    spread = standard.own_spread(chosen.values, made.job.numeric) if made.job.standard else ()
    values = standard.scaled(chosen.values, spread, made.job.clip) if spread else chosen.values
    quantised = fixedpoint.quantise(values, made.job.bound, made.job.precision)
    order = np.argsort(site.ids()) if agreed.private else np.arange(len(labels))
    coins = Coins(bytes.fromhex(result["seed"]))
    kind = kind_of(agreed)
    runs = central.runs(
        quantised[order],
        made.job.runs,
        start=made.job.seeding,
        coins=coins,
        max_rounds=made.job.max_rounds,
        empties=kind.empties,
        draw_bits=kind.draw_bits(agreed),
        candidates=made.job.candidates,
    )
    pooled = runs[result["chosen_run"]]
    rounds = [run["rounds"] for run in result["runs"]]
    identical = bool((labels[order] == pooled.labels).all()) and rounds == [run.rounds for run in runs]
    outcome = {
        "clients": made.n,
        "privacy": made.privacy,
        "segments": agreed.segments,
        "responders": agreed.responders,
        "lanes": agreed.field.lanes,
        "uploads": made.uploads,
        "relay": made.relay,
        "membership": made.job.membership,
        "split": made.job.split,
        "holders": list(made.holders),
        "scale": made.job.scale,
        "rows": len(labels),
        "features": made.job.features,
        "rounds": result["rounds"],
        "converged": result["converged"],
        "identical_to_central": identical,
        "inertia": result["inertia"],
        "central_inertia": fixedpoint.in_data_units(pooled.inertia, agreed.wishes.precision),
        "cluster_sizes": result["cluster_sizes"],
        "runs": result["runs"],
        "best_runs": result["best_runs"],
        "chosen_run": result["chosen_run"],
        "seconds": result["seconds"],
        "bytes": _bytes(result),
        "history": [step["inertia"] for step in result["history"] if step["inertia"] is not None],
    }
    if made.job.centers != "nobody":
        outcome["centers"] = _opened(site, quantised, labels, spread)
    if chosen.truth is not None:
        outcome["accuracy"] = accuracy(chosen.truth, labels)
    return outcome


def _opened(
    site: local.Local, quantised: npt.NDArray[np.int64], labels: npt.NDArray[np.int32], spread: Spread
) -> dict[str, Any]:
    """The centres as each client wrote them, and whether they are the exact means of the clusters above the floor."""
    made, clusters = site.federation, int(labels.max()) + 1
    counts = np.stack([np.bincount(part, minlength=clusters) for part in np.array_split(labels, made.n)])
    above = large_enough(rows_of_others(counts, made.privacy), made.job.centers_smallest)
    sums = tuple(tuple(quantised[labels == h].sum(axis=0).tolist()) for h in above)
    names = [f"x{f + 1}" for f in range(made.job.features)]
    expected = Centers(above, tuple(counts.sum(axis=0)[list(above)].tolist()), sums, made.job.precision)
    files = [site.centers_file(name) for name in made.roster]
    text = expected.table(names, spread) if above else None
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


def accuracy(truth: npt.NDArray[np.int64], labels: npt.NDArray[np.int32]) -> float | None:
    """Share of rows whose cluster is their true one under the best matching of names (Hungarian method)."""
    try:
        from scipy.optimize import linear_sum_assignment
    except ImportError:
        return None
    table = np.zeros((int(truth.max()) + 1, int(labels.max()) + 1), dtype=np.int64)
    np.add.at(table, (truth, labels), 1)
    rows, columns = linear_sum_assignment(-table)
    return float(table[rows, columns].sum() / len(truth))


def show(outcome: dict[str, Any], plot: Path | None, keep: Path | None) -> None:
    """A table for people."""
    seconds, sent = outcome["seconds"], outcome["bytes"]
    table = Table(title="Secure federated k-means", title_justify="left", show_header=False)
    how = "" if outcome["converged"] else " (stopped before it converged)"
    rows = [
        ("parties", f"{outcome['clients']} clients and a server, each its own process, mutual TLS"),
        *([("between clients", _RELAYED)] if outcome["relay"] == "only" else []),
        ("rows", f"{outcome['rows']} × {outcome['features']} features"),
        (
            "privacy",
            f"{outcome['privacy']} client(s) may collude and learn nothing from their shares",
        ),
        (f"{outcome['uploads']} uploads", SEES[outcome["uploads"]]),
        _who_has_what(outcome),
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
        for name in ("joining", "agreeing", "scaling", "union", "sharing", "checking", "rounds")
        if name in seconds
    )
    rows += [
        ("time", phases),
        (
            "sent",
            f"{size(sent['per_client_link'])} per link between clients, {size(sent['client_to_server'])} to the server",
        ),
    ]
    for path in filter(None, (plot, keep)):
        rows.append(("written", str(path)))
    for row in rows:
        table.add_row(*row)
    Console().print(table)
    if len(outcome["runs"]) > 1:
        Console().print(runs_table(outcome))


def _who_has_what(outcome: dict[str, Any]) -> tuple[str, str]:
    if outcome["split"] == "columns":
        return "columns", f"split over {len(outcome['holders'])} clients, which have the same rows"
    hidden = outcome["membership"] == "private"
    return "whose rows are whose", "hidden from the server and any t clients" if hidden else "known to all"
