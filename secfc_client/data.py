"""A client's rows: read from a file, checked, and written back with their cluster.

CSV columns are read as text and kept as they stand ("007" stays "007"); only the features are converted.
"""

from __future__ import annotations

import difflib
import itertools
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from secfc import atomicfile, limits
from secfc.agreement.features import Feature
from secfc.agreement.job import Job
from secfc.errors import DataError
from secfc.kmeans import fixedpoint, standard
from secfc_client.datasets import formats, preparation
from secfc_client.datasets.columns import HINT, cell_error, checked_ids, is_numeric
from secfc_client.datasets.formats import suffix_of
from secfc_client.datasets.formats.base import as_text, check_names, reason, shown

ID_COLUMN = "secfc_id"
_CURE = "make room there or choose another --out"
_LARGER = "agree on a larger bound in federation.toml, or rescale the data"


@dataclass(frozen=True, eq=False)
class Table:
    """One client's rows. Printing it shows where they are from, never a value."""

    path: Path
    features: NDArray[np.float64] = field(repr=False)  # (m_j, d), C-contiguous, not scaled, finite; NaN: to be the mean
    feature_names: tuple[str, ...]
    ids: Any = field(repr=False)  # pa.ChunkedArray of distinct ids (text, if from CSV), or None
    rows: Any = field(repr=False)  # pa.Table: every column as it stood in the file
    used: NDArray[np.intp] = field(repr=False)  # which rows of the file take part, in order

    def __len__(self) -> int:
        return len(self.features)

    def only(self, taken: NDArray[np.bool_]) -> Table:
        """The same without some of its rows, which then take no part."""
        if taken.all():
            return self
        ids = self.ids if self.ids is None else self.ids.filter(pa.array(taken))
        return replace(self, features=np.ascontiguousarray(self.features[taken]), ids=ids, used=self.used[taken])

    @property
    def filled(self) -> NDArray[np.float64]:
        """The features for people to look at: what is to be the mean over all sites is the mean of this one's values."""
        gone = np.isnan(self.features)
        if not gone.any():
            return self.features
        largest = np.abs(self.features).max(
            initial=1.0, where=~gone
        )  # sums of what any float can hold must not overflow
        sums = np.sum(self.features / largest, axis=0, where=~gone)
        means = sums / np.maximum(np.sum(~gone, axis=0), 1) * largest
        return np.where(gone, means, self.features)

    @property
    def dropped(self) -> int:
        """Rows of the file that do not take part: a value is missing, or another holder does not have them."""
        return int(self.rows.num_rows) - len(self.used)


def load(
    path: Path,
    *,
    feature_count: int | None,
    feature_names: Sequence[str] | None = None,
    id_column: str | None = None,
    chosen: Sequence[str] | None = None,
    agreed: Sequence[Feature] = (),
    missing: str = "error",
    scale: str = "none",
) -> Table:
    """Read and check a client's rows; DataError for everything that is wrong with them.

    The features are `feature_names` (the federation's), found by name wherever they stand. A federation that has agreed
    on no names leaves them to `chosen` (the user's list), else they are every column but `id_column` in the file's
    order; clients compare the names when they join. There must be exactly `feature_count` columns to cluster (None: any
    number). `agreed` says more about each feature, `missing` and `scale` what becomes of missing values. A file without rows
    is fine.
    """
    if agreed:
        feature_names, feature_count = [one.name for one in agreed], None
    _check_agreed(chosen, feature_names)
    rows = formats.read(path)
    wanted = chosen if feature_names is None else feature_names
    _check_header(path, rows.column_names, [*(wanted or ()), *(() if id_column is None else (id_column,))])
    names = list(wanted) if wanted is not None else [n for n in rows.column_names if n != id_column]
    _check_choice(path, rows, names, len(names) if feature_count is None else feature_count, id_column)
    found = preparation.prepared(path, rows, agreed or [Feature(name) for name in names], missing, scale)
    ids = None if id_column is None else checked_ids(path, id_column, rows[id_column])
    ids = ids if ids is None or len(found.used) == rows.num_rows else ids.take(pa.array(found.used))
    return Table(path, found.values, found.names, ids, rows, found.used)


def none() -> Table:
    """Of a client that holds no column, and so brings no row."""
    return Table(Path(), np.empty((0, 0)), (), None, pa.table({}), np.empty(0, dtype=np.intp))


def of_job(path: Path, job: Job, id_column: str | None, chosen: str | Sequence[str] | None) -> Table:
    """The rows as a job wants them; `chosen`: columns, or their names with commas between them, as the user gives them."""
    return load(
        path,
        feature_count=job.features,
        feature_names=job.feature_names,
        agreed=job.agreed,
        missing=job.missing,
        scale=job.scale,
        id_column=id_column,
        chosen=[name.strip() for name in chosen.split(",")] if isinstance(chosen, str) else chosen,
    )


def rows_for(table: Table, job: Job) -> NDArray[np.int64] | standard.Unscaled:
    """What a client shares: scaled and quantised, or with standard scaling as far as it gets before it has met the others.
    Raises DataError for values that cannot be."""
    if job.standard:
        check_bounds(table, table.features, np.nextafter(standard.LARGEST, 0), "write it in other units")
        return standard.Unscaled(table.features, np.array(job.numeric), table.used + 1)
    values = preparation.scaled(job, table.features)
    check_bounds(table, values, job.bound)
    return fixedpoint.quantise(values, job.bound, job.precision, table.feature_names)


def check_bounds(table: Table, values: NDArray[np.float64], bound: float, cure: str = _LARGER) -> None:
    """Every |x| must be at most the federation's public `bound`; what is missing is no value."""
    outside = np.abs(values) > bound
    if count := int(np.count_nonzero(outside)):
        row, column = divmod(int(np.argmax(outside)), outside.shape[1])
        what = f"the value is outside ±{bound:g} ({count} such values in all)"
        raise cell_error(table.path, int(table.used[row]), table.feature_names[column], f"{what}; {cure}")


def cluster_column(table: Table, suffix: str = "") -> str:
    """What `write` calls the labels: `cluster`, if that is taken `secfc_cluster`, then `secfc_cluster_2`..."""
    more = (f"secfc_cluster{suffix}_{i}" for i in itertools.count(2))
    names = itertools.chain((f"cluster{suffix}", f"secfc_cluster{suffix}"), more)
    return next(name for name in names if name not in table.rows.column_names)


def write(
    table: Table,
    labels: NDArray[np.integer[Any]],
    out: Path,
    ids: Sequence[str] | None = None,
    others: Mapping[int, NDArray[np.integer[Any]]] | None = None,
) -> None:
    """Write the rows, every column as it was read, and last the column `cluster` (int32); before it, if wanted, the rows'
    IDs in the job as `secfc_id`, and the `others`, by their k, as `cluster_k4` and so on.

    If the rows have a column `cluster` already, ours is `secfc_cluster` (see `cluster_column`). The format
    follows `out`'s suffix: in CSV, text goes back unchanged; from CSV to Parquet, features become float64 and
    the rest stays text. Rows that took no part have no cluster: an empty cell. The file appears whole or not at all,
    readable by its owner only.
    """
    if labels.shape != (len(table),) or not np.issubdtype(labels.dtype, np.integer):
        raise DataError(f"{out}: {len(table)} integer labels are needed, not {labels.dtype} {labels.shape}")
    rows = table.rows if ids is None else _with_ids(table, ids)
    for k, more in (others or {}).items():
        rows = rows.append_column(cluster_column(table, f"_k{k}"), _placed(table, pa.array(more.astype(np.int32))))
    rows = rows.append_column(cluster_column(table), _placed(table, pa.array(labels.astype(np.int32))))
    suffix = _output_suffix(out)
    if formats.named(out).typed:
        rows = _typed(rows, table)
    try:
        with limits.telling(f"{out}: cannot be written", _CURE), atomicfile.replacing(out) as file:
            formats.write(rows, suffix, file)
    except pa.ArrowException as error:
        raise DataError(f"{out}: cannot be written ({reason(error)}); {_CURE}") from None


def _placed(table: Table, values: pa.Array) -> pa.Array:
    """Values of the rows that took part, beside the rows of the file; null for the others."""
    if not table.dropped:
        return values
    places = np.full(table.rows.num_rows, -1)
    places[table.used] = np.arange(len(table.used))
    return values.take(pa.array(places, mask=places < 0))


def _with_ids(table: Table, ids: Sequence[str]) -> pa.Table:
    """The column replaces one of the same name: it is an earlier job's."""
    rows = table.rows
    kept = rows.drop_columns([ID_COLUMN]) if ID_COLUMN in rows.column_names else rows
    return kept.append_column(ID_COLUMN, _placed(table, pa.array(ids, pa.string())))


def preflight_output(out: Path, table: Table | None = None) -> None:
    """Fail now, not after a long job, if `out` could not be written.

    With `table`, also if `out` is the input file itself or cannot hold a column (CSV has no lists, say).
    """
    _output_suffix(out)
    try:
        with tempfile.TemporaryFile(dir=out.parent):
            pass
        overwrites = table is not None and out.exists() and out.samefile(table.path)
    except OSError as error:
        raise DataError(f"{out}: cannot write in the folder {out.parent} ({reason(error)})") from None
    if overwrites:
        raise DataError(f"{out}: is the input file itself; choose another name for the output")
    if table is not None and not formats.named(out).typed:
        for name in table.rows.column_names:
            as_text(name, table.rows[name])


def preflight_centers(path: Path, out: Path) -> None:
    """The same for the file of the centres, which is CSV and not the labels' file."""
    if not path.name.lower().endswith(".csv"):
        raise DataError(f"{path}: the centres are written as CSV; choose a --centers file that ends with .csv")
    preflight_output(path)
    if path.resolve() == out.resolve():
        raise DataError(f"{path}: is also the file of the labels; choose another --centers")


def _check_agreed(chosen: Sequence[str] | None, agreed: Sequence[str] | None) -> None:
    """Columns that one client takes in another order, or others, would be taken for the rest's."""
    if chosen is None or agreed is None or list(chosen) == list(agreed):
        return
    how = "in another order than" if sorted(chosen) == sorted(agreed) else "which are not"
    names = ", ".join(map(shown, agreed))
    raise DataError(
        f"--features names {', '.join(map(shown, chosen))}, {how} the features of federation.toml, {names}; leave out"
        " --features: columns are found by name, in any order (rename columns of the file that have other names)"
    )


def _check_header(path: Path, names: list[str], wanted: list[str]) -> None:
    found = bool(wanted) and set(wanted) <= set(names)
    if not found and not formats.named(path).typed and _looks_like_data(names):  # values, then: not to be shown
        cure = "add a header line (or, if it is one, list its names with --features)"
        raise DataError(f"{path}: the first line looks like data, not like column names; {cure}")
    check_names(path, names)
    for name in wanted:
        if name not in names:
            close = ", ".join(map(shown, difflib.get_close_matches(name, names)))
            hint = f"; did you mean {close}?" if close else ""
            raise DataError(f"{path}: there is no column {shown(name)}{hint}")


def _looks_like_data(names: list[str]) -> bool:
    """A decimal number among the names, or nothing but integers (though 0, 1, 2... or 1, 2, 3... are names)."""
    number = re.compile(r"\s*+[+-]?(\d++(\.\d*+)?|\.\d++)([eE][+-]?\d++)?\s*+")  # never tries a long name twice
    if any(number.fullmatch(name) and not name.isdecimal() for name in names):
        return True
    counted = [[str(i) for i in range(first, first + len(names))] for first in (0, 1)]
    return all(name.isdecimal() for name in names) and names not in counted


def _check_choice(path: Path, rows: pa.Table, names: list[str], count: int, id_column: str | None) -> None:
    if id_column in names:
        raise DataError(f"{path}: {shown(str(id_column))} is the id column and cannot be a feature too")
    if len(set(names)) < len(names):
        raise DataError(f"{path}: the list of features names a column twice")
    if len(names) != count:
        text = ", ".join([shown(name) for name in names if not is_numeric(rows[name])][:5])
        hint = f"; not numeric: {text} ({HINT})" if text else ""
        raise DataError(f"{path}: {len(names)} feature columns, but the federation has {count} features{hint}")


def _output_suffix(out: Path) -> str:
    suffix = suffix_of(out)
    if not os.path.isdir(out.parent):
        raise DataError(f"{out}: the folder {out.parent} does not exist; create it first")
    if os.path.isdir(out):
        raise DataError(f"{out}: is a folder; give a file name")
    return suffix


def _typed(rows: pa.Table, table: Table) -> pa.Table:
    """Features that were read as text become the numbers they stand for; categories stay text."""
    for j, name in enumerate(table.feature_names):
        if name in rows.column_names and pa.types.is_string(rows[name].type):
            values = _placed(table, pa.array(np.ascontiguousarray(table.features[:, j])))
            rows = rows.set_column(rows.column_names.index(name), name, values)
    return rows
