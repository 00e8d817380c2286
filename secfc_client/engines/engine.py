"""What a site computes with: in memory, beyond a limit with blocks on its disk (`stored`), or on a cluster (`dask`)."""

from __future__ import annotations

import logging
import os
import re
import resource
from dataclasses import dataclass
from pathlib import Path

from secfc.coding.blocks import Blocks, Packed
from secfc.coding.field import Field
from secfc.coding.sharing import CodedRows
from secfc.errors import InvalidInput
from secfc.logs import say
from secfc_client.engines.dask import SCHEMES, Cluster, DaskRows
from secfc_client.engines.stored import StoredRows
from secfc_client.store import Store

log = logging.getLogger("secfc.client")
LOCAL = "local"
_UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_LEAST_ROOM = 32 << 20  # beside what the process takes before there are shares
_LEAST_BLOCK, _MOST_BLOCK = 1 << 20, 16 << 20  # bytes
_BLOCKS = 8  # that the room is thought to hold
_BLOCKS_PER_THREAD = 4  # of a cluster, so that none is idle for long


@dataclass(frozen=True)
class Wishes:
    """What a user asks for. `memory`: bytes that this process may take; None: as many as it needs."""

    memory: int | None = None
    cluster: Cluster | None = None  # on whose workers shares are, if not here


AS_NEEDED = Wishes()


def bytes_of(text: str) -> int:
    """A size such as 2GiB."""
    found = re.fullmatch(r"(\d{1,12})\s*([KMGT]iB)", text)
    if found is None or not int(found[1]):
        raise InvalidInput(f"--memory must be a size such as 512MiB or 2GiB, not {text[:60]!a}")
    return int(found[1]) * _UNITS[found[2]]


class Engine:
    """Decides where the shares of one job are."""

    def __init__(self, wishes: Wishes, store: Store, row_bytes: int) -> None:
        """`row_bytes`: of all that is sent of a row in one request."""
        self._wishes, self._store, self._row_bytes = wishes, store, row_bytes
        self._streamed = False

    def hold(self, field: Field, rows: int, length: int) -> Blocks:
        """Where the shares of so many rows go. The limit is for the whole process: what it has already counts."""
        if self._wishes.cluster is not None:
            self._begin_streaming()
            cluster = self._wishes.cluster
            fair = 8 * field.lanes * (length + 2) * rows // (_BLOCKS_PER_THREAD * cluster.threads)
            block = max(min(_MOST_BLOCK, fair), _LEAST_BLOCK)
            return DaskRows(self._store.folder, field, rows, length, block, self._store.spool, cluster)
        if self._wishes.memory is None:
            return CodedRows(field, rows, length)
        room = self._wishes.memory - taken()
        held, arriving = 8 * field.lanes * (length + 2), 8 * field.lanes * length // 3
        needed = rows * (held + arriving + self._row_bytes)
        if needed <= room:
            return CodedRows(field, rows, length)
        self._begin_streaming()
        block = max(min(_MOST_BLOCK, room // _BLOCKS), _LEAST_BLOCK)
        say(log, "shares are held on disk", needed=_mebibytes(needed), room=_mebibytes(room), state=self._store.folder)
        return StoredRows(self._store.folder, field, rows, length, block, self._store.spool)

    def _begin_streaming(self) -> None:
        self._streamed = True
        self._store.forget_spools()

    def get(self, key: str) -> bytes | Packed | None:
        """Shares that are kept."""
        return self._store.packed(key) if self._streamed else self._store.get(key)


def cluster_of(engine: str) -> Cluster | None:
    """What --engine names, connected; None for this machine."""
    if engine == LOCAL:
        return None
    if not re.fullmatch(rf"({'|'.join(SCHEMES)})://\S+:\d{{1,5}}", engine):
        raise InvalidInput(f"--engine must be {LOCAL}, dask://HOST:PORT or tls://HOST:PORT, not {engine[:60]!a}")
    return Cluster(engine)


def check(memory: int | None) -> None:
    """Raise InvalidInput for a limit that this process has reached before any shares are there."""
    if memory is not None and memory < (least := taken() + _LEAST_ROOM):
        raise InvalidInput(f"--memory: this client and its rows need {_mebibytes(least)} before any shares are there")


def taken() -> int:
    """Bytes of memory that this process takes now."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:  # not Linux: what it took at the most
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _mebibytes(size: int) -> str:
    return f"{-(-size // (1 << 20))}MiB"
