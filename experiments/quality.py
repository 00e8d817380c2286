"""How good are clusterings with default settings? SecFC beside scikit-learn's `KMeans()`, over many starts.

Both get the rows, k and a seed, nothing else. Inertia is that of the labels on the rows as they are, not quantised, so
that both are measured alike; the adjusted Rand index compares labels with the classes that the data come with, if they do.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
import numpy.typing as npt
from rich.table import Table
from sklearn import datasets
from sklearn.cluster import KMeans
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
    """Rows, k, and the classes that the rows have, if they have any."""

    rows: Floats
    k: int
    truth: npt.NDArray[Any] | None = None


def _bunch(load: Callable[[], Any], *, standardised: bool = False) -> Data:
    found = load()
    rows = StandardScaler().fit_transform(found.data) if standardised else found.data
    return Data(rows, len(np.unique(found.target)), found.target)


def _blobs() -> Data:
    """Twelve groups that lie apart: whoever merges two of them has begun badly."""
    rows, truth, *_ = datasets.make_blobs(1200, 2, centers=12, cluster_std=0.6, center_box=(-20, 20), random_state=3)
    return Data(rows, 12, truth)


SETS: dict[str, Callable[[], Data]] = {
    "iris": lambda: _bunch(datasets.load_iris),
    "iris, standardised": lambda: _bunch(datasets.load_iris, standardised=True),
    "wine": lambda: _bunch(datasets.load_wine),
    "wine, standardised": lambda: _bunch(datasets.load_wine, standardised=True),
    "breast cancer": lambda: _bunch(datasets.load_breast_cancer),
    "breast cancer, standardised": lambda: _bunch(datasets.load_breast_cancer, standardised=True),
    "digits": lambda: _bunch(datasets.load_digits),
    "digits, standardised": lambda: _bunch(datasets.load_digits, standardised=True),
    "diabetes, k = 8": lambda: Data(datasets.load_diabetes().data, 8),
    "twelve blobs": _blobs,
}
METHODS: dict[str, Callable[[int, int], Any]] = {
    "scikit-learn": lambda k, seed: KMeans(k, random_state=seed),
    "secfc": lambda k, seed: SecureKMeans(k, random_state=seed),
}


def loss(rows: Floats, labels: npt.NDArray[Any]) -> float:
    """Σ ‖x − mean of its cluster‖²."""
    return float(sum(((rows[labels == h] - rows[labels == h].mean(axis=0)) ** 2).sum() for h in np.unique(labels)))


def measure(names: tuple[str, ...], runs: int, seed: int, folder: Path) -> list[Row]:
    """One row per data set."""
    cells, rows = Cells(folder, "quality"), []
    with output.progress("quality", len(names) * runs * len(METHODS)) as step:
        for name in names:
            data = SETS[name]()
            row: Row = {"data": name, "m": len(data.rows), "d": data.rows.shape[1], "k": data.k}
            for method, make in METHODS.items():
                found = []
                for number in range(seed, seed + runs):
                    step(f"{name}, {method}, seed {number}")
                    key = {"data": name, "k": data.k, "seed": number, "method": method}
                    found.append(cells.get(f"{method}-seed{number}", key, partial(_fit, data, make, number)))
                losses = [one["inertia"] for one in found]
                row |= {f"{method} inertia": float(np.mean(losses)), f"{method} least": min(losses)}
                if data.truth is not None:
                    row[f"{method} index"] = float(np.mean([one["index"] for one in found]))
            rows.append(row | {"ratio": row["secfc inertia"] / row["scikit-learn inertia"]})
    return rows


def _fit(data: Data, make: Callable[[int, int], Any], seed: int) -> Row:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        labels = make(data.k, seed).fit_predict(data.rows)
    index = None if data.truth is None else float(adjusted_rand_score(data.truth, labels))
    return {"inertia": loss(data.rows, labels), "index": index}


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
    ):
        out.add_column(title, justify="right")
    for row in result["rows"]:
        indices = [f"{row[f'{m} index']:.3f}" if f"{m} index" in row else "–" for m in METHODS]
        losses = [f"{row[f'{m} inertia']:.6g}" for m in METHODS]
        out.add_row(row["data"], f"{row['m']} × {row['d']}, {row['k']}", *losses, f"{row['ratio']:.4f}", *indices)
    out.caption = "Index: adjusted Rand index against the data's own classes."
    return out


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
