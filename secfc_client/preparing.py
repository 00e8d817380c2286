"""A site's rows, read and checked for one job."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from secfc.agreement.federation import Federation
from secfc.errors import DataError
from secfc.kmeans.standard import Rows, Unscaled
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
    rows: Rows | Unscaled
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
    rows = data.rows_for(table, job.of(name))
    if not isinstance(rows, Unscaled):
        rows = preparation.widened(job, name, rows)
    if len(table) > job.max_rows:
        raise DataError(f"{path}: {len(table)} rows exceed max_rows = {job.max_rows} of the job")
    values = preparation.scaled(job.of(name), table.features)
    for warning in examine.warnings(values, table.feature_names, job.precision, federation.uploads):
        say(log, warning, level=logging.WARNING)
    ids = naming.linked_ids(table, link_key) if job.ids == "linked" and path is not None else None
    return Prepared(table, rows, ids)
