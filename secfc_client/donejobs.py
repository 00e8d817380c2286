"""Jobs that a node has finished, read back from what it has written: the signed job, the rows and their clusters."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from secfc import textfile
from secfc.agreement.federation import Federation
from secfc.errors import ConfigError, JobFailed
from secfc.kmeans.distances import Labels
from secfc.pki.kit import Kit
from secfc.protocol.jobs import record
from secfc.protocol.jobs.record import Record, State
from secfc_client import data, describing
from secfc_client.data import Table
from secfc_client.jobfiles import JobFiles
from secfc_client.standing import JOBS

_MOST_RESULT = 1 << 26


@dataclass(frozen=True, eq=False)
class DoneJob:
    """One finished job of a site: what was asked, and its own rows with their clusters."""

    record: Record
    federation: Federation  # that ran it
    table: Table
    labels: Labels = field(repr=False)
    why: str  # the site allowed it

    @property
    def origin(self) -> list[tuple[str, str]]:
        """Who asked for what, and why the site took part."""
        return describing.origin(self.record, self.why)


def find(kit: Kit, state: Path, out: Path, name: str) -> DoneJob:
    """The job of this name. `out`: the folder that the node writes jobs to. Raises SecfcError if there is nothing to read."""
    records = [record.parse(value) for value in JobFiles(state / JOBS).kept().values()]
    one = record.find(records, name)
    said = one.decisions[kit.party_name]
    if one.state is not State.FINISHED:
        raise JobFailed(f"job {one.job.id} is {one.state.value} at this site; only finished jobs have a report")
    path = out / one.job.id / "labels.csv"
    if not path.exists():
        raise ConfigError(f"{path}: not there; give the folder that the node writes jobs to (--jobs), if it is another")
    federation = one.job.within(kit.federation)
    wanted = federation.job.of(kit.party_name)
    chosen = None if wanted.feature_names or wanted.agreed else _features(path.with_name("result.json"))
    table = data.of_job(path, wanted, None, chosen)
    labels = _labels(table, path)[table.used]
    return DoneJob(one, federation, table.only(labels >= 0), labels[labels >= 0], said.why)


def _features(path: Path) -> list[str]:
    """The columns that were clustered, of a job that gives only their number: labels.csv has those of clusters too."""
    try:
        names = json.loads(textfile.read_small_file(path, _MOST_RESULT))["features"]
    except (ValueError, RecursionError, KeyError, TypeError):
        names = None
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise ConfigError(f"{path}: does not say which columns were clustered; run the job again")
    return names


def _labels(table: Table, path: Path) -> Labels:
    """The last column, which the node has added; -1 where a row took no part."""
    column = table.rows.column(table.rows.num_columns - 1).to_pylist()
    try:
        return np.array([-1 if text in (None, "") else int(text) for text in column], dtype=np.int32)
    except (ValueError, OverflowError):
        raise ConfigError(f"{path}: its last column is not the one that the node wrote; run the job again") from None
