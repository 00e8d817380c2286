"""What the demo clusters: a seeded mixture, or a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Rows:
    """What is clustered: rows in a public bound, and the true cluster of each where it is known."""

    values: npt.NDArray[np.float64]
    bound: float
    truth: npt.NDArray[np.int64] | None


def mixture(rows: int, features: int, clusters: int, seed: int) -> Rows:
    """A seeded Gaussian mixture with centres spread so that clusters touch but can be told apart."""
    rng = np.random.default_rng(seed)
    centres = rng.uniform(-5.0, 5.0, size=(clusters, features))
    truth = rng.integers(0, clusters, rows)
    values = centres[truth] + rng.normal(scale=2.0, size=(rows, features))
    return Rows(np.clip(values, -16.0, 16.0), 16.0, truth)


def load(path: Path, id_column: str | None, chosen: list[str] | None) -> Rows:
    """The rows of a CSV or Parquet file, in the smallest power of two that bounds them."""
    from secfc_client import data  # loads pyarrow

    table = data.load(path, feature_count=None, id_column=id_column, chosen=chosen)
    largest = float(np.abs(table.features).max(initial=0.0)) or 1.0
    return Rows(table.features, 2.0 ** float(np.ceil(np.log2(largest))), None)
