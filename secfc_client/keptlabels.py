"""The labels of finished jobs, in the state folder: whoever lost the output file has it written again, without the server.

One sealed file per session. They outlive the job and everything else that is cleared with it; a person removes them.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from secfc.errors import ConfigError
from secfc.framing import framed
from secfc.kmeans.distances import Labels
from secfc.privacy.identifiers import ID_BYTES, Ids
from secfc_client import statefiles
from secfc_client.data import Table

_PREFIX, _SUFFIX = "labels-", ".kept"
_KIND = b"secfc/v1/kept-labels"


@dataclass(frozen=True)
class KeptLabels:
    """The labels of one table's rows in one session (-1: took no part), and with private membership the rows' IDs there."""

    session: bytes
    table: str
    labels: Labels = field(repr=False)
    ids: Ids | None = field(repr=False)
    others: Mapping[int, Labels] = field(default_factory=dict, repr=False)  # of every other k

    def taken(self, table: Table) -> tuple[Table, KeptLabels]:
        """The rows that have taken part, and their labels: where columns are split, another holder may not have all."""
        taken = self.labels >= 0
        ids = None if self.ids is None else self.ids[taken]
        others = {k: labels[taken] for k, labels in self.others.items()}
        return table.only(taken), replace(self, labels=self.labels[taken], ids=ids, others=others)


def table_key(table: Table) -> str:
    """Names a table by the values of its rows, in their order: labels belong to rows by their place."""
    values = np.ascontiguousarray(table.features, dtype="<f8")
    names = (name.encode() for name in table.feature_names)
    head = framed(b"secfc/v1/table", b"%d,%d" % values.shape, *names)
    return hashlib.sha256(head + values.tobytes()).hexdigest()


def keep(folder: Path, kept: KeptLabels) -> None:
    """Put labels on disk."""
    fields = {"session": kept.session.hex(), "table": kept.table, "rows": len(kept.labels), "when": time.time()}
    head = json.dumps(fields | {"ids": kept.ids is not None, "others": list(kept.others)}).encode()
    ids = b"" if kept.ids is None else kept.ids.astype("<u8").tobytes()
    others = b"".join(labels.astype("<i4").tobytes() for labels in kept.others.values())
    content = len(head).to_bytes(4, "big") + head + kept.labels.astype("<i4").tobytes() + ids + others
    statefiles.keep(_path(folder, kept.session), content, _KIND)


def of_session(folder: Path, session: bytes) -> KeptLabels | None:
    """The labels of one session, if they are here."""
    path = _path(folder, session)
    return _read(path)[1] if path.exists() else None


def latest(folder: Path, table: str) -> KeptLabels | None:
    """The labels of the last job on this very table, if there is one."""
    found = [_read(path) for path in folder.glob(f"{_PREFIX}*{_SUFFIX}")]
    mine = [one for one in found if one[1].table == table]
    return max(mine, key=lambda one: one[0])[1] if mine else None


def _path(folder: Path, session: bytes) -> Path:
    return folder / f"{_PREFIX}{session.hex()[:32]}{_SUFFIX}"


def _read(path: Path) -> tuple[float, KeptLabels]:
    """When these labels were kept, and they themselves."""
    content = statefiles.kept(path, _KIND)
    try:
        if content is None:
            raise ValueError
        end = 4 + int.from_bytes(content[:4], "big")
        head = json.loads(content[4:end])
        rows, clusters = int(head["rows"]), [int(k) for k in head.get("others", [])]
        middle = end + 4 * rows
        last = middle + ID_BYTES * rows * bool(head["ids"])
        labels = np.frombuffer(content[end:middle], "<i4").astype(np.int32)
        ids = np.frombuffer(content[middle:last], "<u8").astype(np.uint64).reshape(-1, ID_BYTES // 8)
        more = np.frombuffer(content[last:], "<i4").astype(np.int32).reshape(len(clusters), rows)
        others = dict(zip(clusters, more, strict=True))
        names = bytes.fromhex(head["session"]), str(head["table"])
        return float(head["when"]), KeptLabels(*names, labels, ids if head["ids"] else None, others)
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ConfigError(f"{path}: damaged, so its labels are lost here; remove it") from None
