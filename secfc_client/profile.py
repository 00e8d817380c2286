"""What a site's own rows look like, cluster by cluster: for the people there. It is computed and stays at this site."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import numpy.typing as npt

from secfc import atomicfile, limits
from secfc.errors import DataError
from secfc_client.data import Table, preflight_output
from secfc_client.datasets.formats import suffix_of

_CURE = "make room there or choose another --profile"


def beside(out: Path) -> Path:
    """Where it goes if nobody says otherwise: labels.csv has its profile in labels.profile.csv."""
    return out.with_name(out.name[: -len(suffix_of(out))] + ".profile.csv")


def preflight(path: Path, *others: Path) -> None:
    """Fail now, not after a long job, if the profile could not be written."""
    if not path.name.lower().endswith(".csv"):
        raise DataError(f"{path}: the profile is written as CSV; choose a --profile file that ends with .csv")
    preflight_output(path)
    if path.resolve() in [other.resolve() for other in others]:
        raise DataError(f"{path}: another result is written to this file; choose another --profile")


def write(path: Path, table: Table, labels: npt.NDArray[np.int32]) -> None:
    """Replace the file; like the labels, it is for its owner only."""
    try:
        atomicfile.write(path, [profile(table, labels).encode()])
    except OSError as error:
        raise limits.failure(error, f"{path}: cannot be written", _CURE) from None


def profile(table: Table, labels: npt.NDArray[np.int32]) -> str:
    """CSV text: for each cluster that has rows here their number, and each feature's mean and standard deviation."""
    clusters, own = np.unique(labels, return_inverse=True)
    sizes = np.bincount(own, minlength=len(clusters))
    columns = [np.stack(_mean_and_deviation(column, own, sizes), axis=1) for column in table.filled.T]
    names = [f"{name} {what}" for name in table.feature_names for what in ("mean", "deviation")]
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(["cluster", "rows", *names])
    for cluster, size, values in zip(clusters.tolist(), sizes.tolist(), np.concatenate(columns, axis=1), strict=True):
        lines.writerow([cluster, size, *(f"{value:.10g}" for value in values)])
    return text.getvalue()


def means_by_cluster(
    features: npt.NDArray[np.float64], labels: npt.NDArray[np.int32]
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.intp], npt.NDArray[np.float64]]:
    """The clusters that have rows here, how many, and their means (clusters, d)."""
    clusters, own = np.unique(labels, return_inverse=True)
    sizes = np.bincount(own, minlength=len(clusters))
    return clusters, sizes, np.stack([_mean_and_deviation(column, own, sizes)[0] for column in features.T], axis=1)


def _mean_and_deviation(
    column: npt.NDArray[np.float64], own: npt.NDArray[np.intp], sizes: npt.NDArray[np.intp]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Of every cluster; the deviation is that of these rows, not an estimate for others (it divides by their number)."""
    largest = np.abs(column).max(initial=0.0) or 1.0  # squares of what any float can hold must not overflow
    scaled = column / largest
    means = np.bincount(own, weights=scaled, minlength=len(sizes)) / sizes
    squares = np.bincount(own, weights=(scaled - means[own]) ** 2, minlength=len(sizes)) / sizes
    return means * largest, np.sqrt(squares) * largest
