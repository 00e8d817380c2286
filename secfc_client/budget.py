"""What a site's rows have given away over all jobs, in a file that only a person at that site resets.

The leak belongs to the rows, not to a session: whatever the server says of a new job, however often it restarts, whether
shares are fresh or kept, what was counted before is counted on. Rows are known by a digest of their values and feature names,
in whatever order the file has them; the federation, the session and the noise are no part of it. Two sessions may have told
the same directions; since nobody can know, they are added up. Rows of which one has changed are other rows: they have an
entry of their own, and begin at zero.

Counted are ranks of the meter (`leakage`), of which r make r − 1 directions known, assignments of all rows, and opened
inertias. An entry is on disk before an answer leaves. A damaged file is an error, never a zero.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from secfc.errors import ConfigError
from secfc.framing import framed
from secfc.privacy.leakage import Tally
from secfc_client import statefiles

FILE = "budget.json"
_VERSION = 1
_RESET = "restore a copy of it, or decide to count from zero: secfc budget --kit KIT --reset"


@dataclass(frozen=True)
class Entry:
    """What the rows of one file have given away."""

    ranks: int
    holder: str  # whose count is the latest part of it: names a seed of shares
    rows: int
    features: int
    file: str  # for people
    assignments: int = 0
    inertias: int = 0

    @property
    def tally(self) -> Tally:
        return Tally(self.ranks, self.assignments, self.inertias)

    @property
    def directions(self) -> int:
        return min(max(self.ranks - 1, 0), self.features)


def key_of(names: tuple[str, ...], features: npt.NDArray[np.float64]) -> str:
    """Names rows by their values, whatever the order of rows and columns in their file."""
    order = sorted(range(len(names)), key=lambda j: names[j])
    values = np.ascontiguousarray(features[:, order] + 0.0, dtype="<f8")  # -0.0 is 0.0
    lines = np.sort(values.view(np.dtype((np.void, values.dtype.itemsize * values.shape[1]))).ravel())
    head = framed(b"secfc/v1/budget", b"%d,%d" % values.shape, *(names[j].encode() for j in order))
    return hashlib.sha256(head + lines.tobytes()).hexdigest()


def read(folder: Path) -> dict[str, Entry]:
    """All entries of a state folder; none if nothing was ever given away."""
    path = folder / FILE
    text = statefiles.read(path)
    if text is None:
        return {}
    try:
        whole = json.loads(text)
        entries = {key: Entry(**fields) for key, fields in whole["entries"].items()}
        if whole["version"] != _VERSION or whole["seal"] != _seal(whole["entries"]):
            raise ValueError
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ConfigError(f"{path}: damaged, so what these rows have given away is not known; {_RESET}") from None
    return entries


def write(folder: Path, entries: Mapping[str, Entry]) -> None:
    """Replace all entries of a state folder."""
    fields: dict[str, Any] = {key: asdict(entry) for key, entry in entries.items()}
    content = json.dumps({"version": _VERSION, "seal": _seal(fields), "entries": fields}, indent=1)
    statefiles.write(folder / FILE, [content.encode()])


class Account:
    """The entry of one client's rows. `holder` names the seed of the shares that are used now."""

    def __init__(self, folder: Path, key: str, new: Entry) -> None:
        """`new`: the entry to begin with, of nothing given away, if these rows have none."""
        self._folder, self._key, self._new = folder, key, new
        self._before, self._kept = Tally(), read(folder).get(key, new)

    def before(self, holder: str, counted: Tally) -> Tally:
        """What was given away besides that which a guard of this holder has counted itself. Call it once for every guard."""
        entry = self._kept
        self._before = entry.tally - counted if entry.holder == holder else entry.tally
        self._new = replace(self._new, holder=holder)
        return self._before

    def spend(self, counted: Tally) -> None:
        """Put on disk what the guard has counted by now; before the answer leaves."""
        total = self._before + counted
        total += self._kept.tally - total  # the larger of both, number by number
        entry = replace(self._new, **asdict(total))
        if entry != self._kept:
            write(self._folder, read(self._folder) | {self._key: entry})
            self._kept = entry


def dataset_key(name: str) -> str:
    """Names a dataset of a node: whatever rows and features of it a job is about, it counts for this entry too."""
    return hashlib.sha256(framed(b"secfc/v1/budget-dataset", name.encode())).hexdigest()


def _seal(entries: Mapping[str, Mapping[str, Any]]) -> str:
    """Tells a whole file from a damaged one."""
    lines = (json.dumps([key, fields], sort_keys=True).encode() for key, fields in sorted(entries.items()))
    return hashlib.sha256(framed(b"secfc/v1/budget-file", *lines)).hexdigest()
