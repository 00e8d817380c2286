"""How good are clusterings with default settings? SecFC beside scikit-learn's `KMeans()`, over many starts.

Both get the rows, k and a seed, nothing else. Inertia is that of the labels on the rows as they are, not quantised, so
that both are measured alike; the adjusted Rand index compares labels with the classes that the data come with, if they do.
What quantisation changes is measured apart: both then have the same start, and scikit-learn goes on until nothing moves.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
import numpy.typing as npt
from rich.table import Table
from sklearn import datasets
from sklearn.cluster import KMeans, kmeans_plusplus
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score
from sklearn.preprocessing import StandardScaler

from experiments import output
from experiments.output import Cells, Row
from secfc.estimator import SecureKMeans

RUNS, QUICK_RUNS = 20, 3
QUICK = ("iris", "wine, standardised")
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Data:
    """Rows as scikit-learn gets them, k, and the classes that the rows have, if they have any. SecFC gets `given` instead,
    and `settings`, where it is to scale them itself."""

    rows: Floats
    k: int
    truth: npt.NDArray[Any] | None = None
    given: Floats | None = None
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def ours(self) -> Floats:
        return self.rows if self.given is None else self.given


def _bunch(load: Callable[[], Any], *, standardised: bool = False, by_job: bool = False) -> Data:
    found = load()
    rows = StandardScaler().fit_transform(found.data) if standardised else found.data
    scaling: Row = {"given": found.data, "settings": {"scale": "standard"}} if by_job else {}
    return Data(rows, len(np.unique(found.target)), found.target, **scaling)


def _blobs() -> Data:
    """Twelve groups that lie apart: whoever merges two of them has begun badly."""
    rows, truth, *_ = datasets.make_blobs(1200, 2, centers=12, cluster_std=0.6, center_box=(-20, 20), random_state=3)
    return Data(rows, 12, truth)


CLASSIC = {
    "iris": datasets.load_iris,
    "wine": datasets.load_wine,
    "breast cancer": datasets.load_breast_cancer,
    "digits": datasets.load_digits,
}
SCALED = "scaled by the job"
SETS: dict[str, Callable[[], Data]] = {
    **{name: partial(_bunch, load) for name, load in CLASSIC.items()},
    **{f"{name}, standardised": partial(_bunch, load, standardised=True) for name, load in CLASSIC.items()},
    **{f"{name}, {SCALED}": partial(_bunch, load, standardised=True, by_job=True) for name, load in CLASSIC.items()},
    "diabetes, k = 8": lambda: Data(datasets.load_diabetes().data, 8),
    "twelve blobs": _blobs,
}
METHODS: dict[str, Callable[[Data, int], Any]] = {
    "scikit-learn": lambda data, seed: KMeans(data.k, random_state=seed).fit_predict(data.rows),
    "secfc": lambda data, seed: SecureKMeans(data.k, random_state=seed, **data.settings).fit_predict(data.ours),
}


def loss(rows: Floats, labels: npt.NDArray[Any]) -> float:
    """Σ ‖x − mean of its cluster‖²."""
    return float(sum(((rows[labels == h] - rows[labels == h].mean(axis=0)) ** 2).sum() for h in np.unique(labels)))


def measure(names: tuple[str, ...], runs: int, seed: int, folder: Path) -> list[Row]:
    """One row per data set."""
    cells, rows = Cells(folder, "quality"), []
    with output.progress("quality", len(names) * runs * (len(METHODS) + 1)) as step:
        for name in names:
            data = SETS[name]()

            def each(method: str, work: Callable[[int], Row], name: str = name, data: Data = data) -> list[Row]:
                found = []
                for number in range(seed, seed + runs):
                    step(f"{name}, {method}, seed {number}")
                    key = {"data": name, "k": data.k, "seed": number, "method": method}
                    found.append(cells.get(f"{method}-seed{number}", key, partial(work, number)))
                return found

            rows.append(_row(name, data, each))
    return rows


def _row(name: str, data: Data, each: Callable[[str, Callable[[int], Row]], list[Row]]) -> Row:
    """Means over the seeds that `each` calls for."""
    row: Row = {"data": name, "m": len(data.rows), "d": data.rows.shape[1], "k": data.k}
    for method, fit in METHODS.items():
        found = each(method, partial(_fit, data, fit))
        losses = [one["inertia"] for one in found]
        row |= {f"{method} inertia": float(np.mean(losses)), f"{method} least": min(losses)}
        if data.truth is not None:
            row[f"{method} index"] = float(np.mean([one["index"] for one in found]))
    row["ratio"] = row["secfc inertia"] / row["scikit-learn inertia"]
    unlike = each("same start", partial(_same_start, data))
    return row | {f"{what} unlike": float(np.mean([one[what] for one in unlike])) for what in ("rows", "inertia")}


def _fit(data: Data, fit: Callable[[Data, int], Any], seed: int) -> Row:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        labels = fit(data, seed)
    index = None if data.truth is None else float(adjusted_rand_score(data.truth, labels))
    return {"inertia": loss(data.rows, labels), "index": index}


def _same_start(data: Data, seed: int) -> Row:
    """What quantisation (and where the job scales, its limit to values) changes: the share of rows that are labelled
    otherwise than by Lloyd on floating-point numbers from the same start, and the relative difference in inertia."""
    seeds, _ = kmeans_plusplus(data.rows, data.k, random_state=seed)
    start = np.argmin([((data.rows - one) ** 2).sum(axis=1) for one in seeds], axis=0)
    ours = SecureKMeans(data.k, **data.settings).fit(data.ours, initial_labels=start).labels_
    means = np.stack([data.rows[start == h].mean(axis=0) for h in range(data.k)])
    floats = KMeans(data.k, init=means, n_init=1, tol=0).fit(data.rows).labels_
    return {
        "rows": float(np.mean(ours != floats)),
        "inertia": loss(data.rows, ours) / loss(data.rows, floats) - 1,
    }


def table(result: Row) -> Table:
    """Data sets down; means over all seeds."""
    runs = result["asked"]["runs"]
    out = Table(title=f"Default settings, means over {runs} seeds", title_justify="left")
    out.add_column("", no_wrap=True)
    for title in (
        "m × d, k",
        "inertia of\nKMeans()",
        "inertia\nof SecFC",
        "ratio",
        "index of\nKMeans()",
        "index\nof SecFC",
        "same start:\nother rows",
        "same start:\ninertia",
    ):
        out.add_column(title, justify="right")
    for row in result["rows"]:
        out.add_row(*cells_of(row))
    out.caption = "Index: adjusted Rand index against the data's own classes. Same start: beside Lloyd on floats."
    return out


def cells_of(row: Row) -> list[str]:
    """A data set's figures as text."""
    losses = [f"{row[f'{m} inertia']:.6g}" for m in METHODS]
    indices = [f"{row[f'{m} index']:.3f}" if f"{m} index" in row else "–" for m in METHODS]
    what = [row["data"], f"{row['m']} × {row['d']}, {row['k']}"]
    unlike = [f"{row['rows unlike']:.2%}", f"{row['inertia unlike']:+.1e}" if row["inertia unlike"] else "0"]
    return [*what, *losses, f"{row['ratio']:.4f}", *indices, *unlike]


@click.command("quality")
@output.options(RUNS)
def command(runs: int, seed: int, quick: bool, out: Path, as_json: bool) -> None:
    """Inertia and adjusted Rand index with default settings, beside scikit-learn's KMeans()."""
    result = run(runs, seed, quick, out)
    output.show(result, table(result), as_json)


def run(runs: int, seed: int, quick: bool, out: Path) -> Row:
    """Measure and write."""
    asked = {"runs": min(runs, QUICK_RUNS) if quick else runs, "seed": seed, "quick": quick}
    output.say_seeds("quality", seed, asked["runs"])
    return output.write(out, "quality", asked, measure(QUICK if quick else tuple(SETS), asked["runs"], seed, out))
