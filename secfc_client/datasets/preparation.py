"""From columns of a file to what is clustered: numbers as they are, categories as zeros and ones, missing values as agreed,
and then each column scaled by what is agreed about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from secfc.agreement.features import Feature
from secfc.agreement.job import Job
from secfc.errors import DataError
from secfc.kmeans import standard
from secfc.wording import few
from secfc_client.datasets import columns
from secfc_client.datasets.formats.base import commas_are_decimal, shown

Values = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Prepared:
    """The rows that take part, and which of the file they are."""

    names: tuple[str, ...]
    values: Values = field(repr=False)  # (rows, columns), C-contiguous, finite but for what `prepared` says
    used: NDArray[np.intp] = field(repr=False)


def prepared(path: Path, rows: pa.Table, features: Sequence[Feature], missing: str, scale: str) -> Prepared:
    """The columns of all features, not scaled. Raises DataError for everything that does not fit what is agreed. With
    standard scaling, nobody knows yet what stands for a missing number: it stays NaN."""
    names = tuple(name for one in features for name in one.columns)
    values = np.empty((rows.num_rows, len(names)))
    comma = _decimal_commas(path, rows, features)
    at = 0
    for one in features:
        width = len(one.columns)
        values[:, at : at + width] = _columns(path, one, rows[one.name], comma)
        at += width
    gone = np.isnan(values)
    used = np.arange(rows.num_rows)
    if missing == "mean":
        unknown = [scale == "standard" and not one.levels for one in features]
        stand_ins = [np.nan if not_yet else one.middle for one, not_yet in zip(features, unknown, strict=True)]
        middles = np.array([value for one, value in zip(features, stand_ins, strict=True) for _ in one.columns])
        values = np.where(gone, middles, values)
    elif missing == "drop":
        used = np.flatnonzero(~gone.any(axis=1))
        values = values[used] if len(used) < rows.num_rows else values
    elif gone.any():
        raise _missing(path, features, gone)
    return Prepared(names, np.ascontiguousarray(values), used)


def scaled(job: Job, values: Values) -> Values:
    """What is clustered, within ±bound; with standard scaling as it would be if these rows were all there are."""
    if job.standard:
        return standard.scaled(values, standard.own_spread(values, job.numeric), job.clip)
    if not job.spread:
        return values
    shift, unit = np.array(job.spread).T
    within: Values = np.clip((values - shift) / unit, -1.0, 1.0)  # rounding may lead a little beyond
    return within


def widened(job: Job, client: str, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Quantised rows with zeros in the columns of others, if columns are split over the clients."""
    if not job.holders:
        return rows
    wide = np.zeros((len(rows), job.features), dtype=np.int64)
    wide[:, list(job.columns_of(client))] = rows
    return wide


def _columns(path: Path, feature: Feature, column: pa.ChunkedArray, comma: bool) -> Values:
    """(rows, columns of this feature), NaN where the value is missing."""
    if not feature.levels:
        found = columns.numbers(path, feature.name, column, comma)
        _check_range(path, feature, found)
        return (_logarithms(path, feature, found) if feature.log else found)[:, None]
    places = columns.codes(path, feature.name, column, feature.levels)
    hot = np.eye(len(feature.levels))[places]
    hot[places < 0] = np.nan
    return hot


def _logarithms(path: Path, feature: Feature, values: Values) -> Values:
    outside = np.flatnonzero(values <= 0)
    if len(outside):
        what = "the value has no logarithm; correct it, or agree on this feature without log = true"
        raise columns.cells_error(path, (outside[:3].tolist(), len(outside)), feature.name, what)
    logs: Values = np.clip(np.log(values), *(feature.ends or (-np.inf, np.inf)))  # rounding may lead a little beyond
    return logs


def _check_range(path: Path, feature: Feature, values: Values) -> None:
    if feature.range is None:
        return
    low, high = feature.range
    outside = np.flatnonzero((values < low) | (values > high))
    if len(outside):
        what = f"the value is outside the agreed range from {low:g} to {high:g}; correct it, or agree on another range"
        raise columns.cells_error(path, (outside[:3].tolist(), len(outside)), feature.name, what)


def _decimal_commas(path: Path, rows: pa.Table, features: Sequence[Feature]) -> bool:
    """Whether numbers have decimal commas. Points in another column might separate thousands, so they must not be mixed."""
    numeric = [one.name for one in features if not one.levels]
    commas = [name for name in numeric if columns.decimal_commas(rows[name])] if commas_are_decimal(rows) else []
    points = [name for name in numeric if columns.decimal_points(rows[name])] if commas else []
    if points:
        raise DataError(
            f"{path}: column {shown(commas[0])} has decimal commas and column {shown(points[0])} has points; write all"
            " numbers the same way"
        )
    return bool(commas)


def _missing(path: Path, features: Sequence[Feature], gone: NDArray[np.bool_]) -> DataError:
    """The first of them, and how many there are of every feature, whose columns all lack it or none."""
    gone = gone[:, np.cumsum([0, *(len(one.columns) for one in features[:-1])])]
    names, counts = [one.name for one in features], gone.sum(axis=0)
    row, column = divmod(int(np.argmax(gone)), gone.shape[1])
    total = few([f"{shown(name)} {count}" for name, count in zip(names, counts.tolist(), strict=True) if count])
    what = f"the value is missing (missing in all: {total}); fill it in or leave out the row, or agree on what becomes"
    return columns.cell_error(path, row, names[column], f'{what} of such rows: missing = "drop" in federation.toml')
