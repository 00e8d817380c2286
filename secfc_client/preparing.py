"""A site's rows, read and checked for one job."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from secfc.agreement.federation import Federation
from secfc.errors import DataError
from secfc.kmeans import fixedpoint
from secfc.logs import say
from secfc.privacy.identifiers import Ids
from secfc_client import data, examine, naming
from secfc_client.data import Table
from secfc_client.datasets import preparation

log = logging.getLogger("secfc.client")


@dataclass(frozen=True, eq=False)
class Prepared:
    """Rows that fit a job."""

    table: Table
    rows: npt.NDArray[np.int64]  # quantised
    ids: Callable[[bytes], Ids] | None


def table_of(
    path: Path, federation: Federation, name: str, id_column: str | None, features: str | None = None
) -> Table:
    """The table that a client has for a job."""
    table = data.of_job(path, federation.job.of(name), id_column, features)
    if table.dropped:
        say(log, "rows with missing values take no part", level=logging.WARNING, rows=table.dropped, of=len(table.rows))
    say(log, "features", columns=table.feature_names)  # to be compared, should another site's differ
    return table


def prepared(table: Table, path: Path | None, federation: Federation, name: str, link_key: Path) -> Prepared:
    """Its rows as the job wants them; raises DataError if they do not fit. `path`: None for a client without rows."""
    job = federation.job
    values = preparation.scaled(job.of(name), table.features)
    data.check_bounds(table, values, job.bound)
    if len(table) > job.max_rows:
        raise DataError(f"{path}: {len(table)} rows exceed max_rows = {job.max_rows} of the job")
    own = fixedpoint.quantise(values, job.bound, job.precision, table.feature_names)
    for warning in examine.warnings(values, table.feature_names, job.precision, federation.uploads):
        say(log, warning, level=logging.WARNING)
    ids = naming.linked_ids(table, link_key) if job.ids == "linked" and path is not None else None
    return Prepared(table, preparation.widened(job, name, own), ids)
