"""What a site should know about its own columns before it takes part: pure, used by `secfc check` and by the client.

* `coarse`: columns whose spread is few quantisation steps, so that rounding to the agreed precision changes the clustering;
* `dominant`: a column that carries nearly all of the variance, and so decides the clusters alone;
* `few_values`: columns with few distinct values, e.g. yes/no, which are the easiest for the server to compute from distances.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, log2

import numpy as np
import numpy.typing as npt

from secfc.wording import few

LEAST_STEPS = 8.0  # a standard deviation of fewer quantisation steps is too coarse
FEW = 16  # distinct values that are few
LEAST_ROWS = 10  # fewer say nothing about variances
MOST_SHARE = 0.95  # of the variance in one column is nearly all of it
_WHO = {  # can compute values from distances
    "open": "the server, alone or with one client,",
    "masked": "the server",
    "sealed": "the server together with a member of the committee",
}

Features = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Coarse:
    """A column that the agreed precision rounds too much: its deviation in steps, and the precision that would do."""

    name: str
    steps: float
    enough: int


def coarse(features: Features, names: Sequence[str], precision: int) -> list[Coarse]:
    """Columns (of finite values) that vary, lose something by rounding down to 2^-precision, and whose standard deviation is
    less than `LEAST_STEPS` such steps."""
    found = []
    for name, column in zip(names, features.T, strict=True):
        deviation = float(column.std()) if len(column) and column.min() < column.max() else 0.0
        scaled = np.ldexp(column, precision)
        steps = float(np.ldexp(deviation, precision))
        if deviation > 0.0 and steps < LEAST_STEPS and (scaled != np.floor(scaled)).any():
            found.append(Coarse(name, steps, ceil(log2(LEAST_STEPS / deviation))))
    return found


def dominant(features: Features, names: Sequence[str]) -> tuple[str, float] | None:
    """The column that carries nearly all of the variance, if one does, and its share."""
    if len(features) < LEAST_ROWS or len(names) < 2:
        return None
    largest = float(np.abs(features).max()) or 1.0
    variances = (features / largest).var(axis=0)
    share = float(variances.max() / variances.sum()) if variances.sum() > 0 else 0.0
    return (names[int(variances.argmax())], share) if share > MOST_SHARE else None


def few_values(features: Features, names: Sequence[str]) -> dict[str, int]:
    """Columns with 2 to `FEW` distinct values, each on average held by two rows or more; and how many values."""
    counts = {name: len(np.unique(column)) for name, column in zip(names, features.T, strict=True)}
    return {name: count for name, count in counts.items() if 2 <= count <= FEW and 2 * count <= len(features)}


def coarse_text(found: Sequence[Coarse], precision: int) -> str:
    """One line for people: which columns, by how much, and what to do."""
    what = few([f"{one.name} ({one.steps:.2g})" for one in found])
    enough = max(one.enough for one in found)
    return (
        f"precision = {precision} is too coarse for {what}: standard deviation in quantisation steps, which should be"
        f" {LEAST_STEPS:g} or more; agree on precision = {enough} in federation.toml or rescale the column, or rounding"
        " will change the clusters"
    )


def dominant_text(name: str, share: float) -> str:
    """One line for people: which column, how much, and what to do."""
    return (
        f"{name} carries {100 * share:.1f} % of the variance of these rows, so clusters follow it; agree on ranges"
        ' (scale = "range" in federation.toml) or on scale = "standard"'
    )


def few_values_text(found: dict[str, int], uploads: str) -> str:
    """One line for people: which columns, how many values, and what it means."""
    what = few([f"{name} ({count})" for name, count in found.items()])
    return (
        f"few distinct values: {what}; with {uploads} uploads {_WHO[uploads]} can compute such values of every row from"
        " very few requests; take part only if they may know them (docs/privacy.md)"
    )


def warnings(features: Features, names: Sequence[str], precision: int, uploads: str) -> list[str]:
    """Everything that is worth a warning, one line each."""
    rough, values = coarse(features, names, precision), few_values(features, names)
    lines = [coarse_text(rough, precision)] if rough else []
    lines += [few_values_text(values, uploads)] if values else []
    found = dominant(features, names)
    return lines + ([dominant_text(*found)] if found else [])
