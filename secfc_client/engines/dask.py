"""Shares as blocks of rows on the workers of a Dask cluster that a site has.

What arrives is gathered and kept on this machine as in `stored`, packed; once all of it is there, every block goes to a
worker, which computes with it. A worker that is lost loses nothing that cannot be sent again: its blocks go to others, and
what was asked of them is asked again. Operations are values, so the result is the same.
"""

from __future__ import annotations

import importlib
import logging
import pickle
import re
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

import secfc
from secfc.coding.blocks import Ask, Operation, Spool, T
from secfc.coding.field import Field, Layout, Residues, Words
from secfc.errors import ConfigError, Unavailable
from secfc.logs import say
from secfc_client.engines.stored import StoredRows, unpacked

log = logging.getLogger("secfc.client")
SCHEMES = {"dask": "tcp", "tls": "tls"}  # of --engine, and of what Dask calls them
_CONNECT_SECONDS = 60.0
PATIENCE_SECONDS, _PAUSE_SECONDS = 120.0, 2.0  # for workers to come back
_LOOK_SECONDS = 10.0
_LOOPBACK = re.compile(r"(127\.[\d.]+|localhost|\[::1\]):\d+$")


class Cluster:
    """A connection to a scheduler, and the workers that it has."""

    def __init__(self, url: str) -> None:
        """`url`: dask://HOST:PORT, or tls://HOST:PORT with what Dask's own configuration says about certificates."""
        try:
            distributed: Any = importlib.import_module("distributed")
        except ModuleNotFoundError:
            raise ConfigError("--engine dask://… needs Dask: pip install 'secfc-kmeans[dask]'") from None
        scheme, _, place = url.partition("://")
        self._lost = (distributed.client.FutureCancelledError, distributed.KilledWorker, CancelledError, OSError)
        self.url, self._told = url, 0.0
        try:
            address = f"{SCHEMES[scheme]}://{place}"
            self.client = distributed.Client(address, timeout=_CONNECT_SECONDS, set_as_default=False)
            self.client.wait_for_workers(1, timeout=_CONNECT_SECONDS)
        except (OSError, ValueError, TypeError) as error:
            raise Unavailable(f"--engine: no Dask cluster with a worker answers at {url} ({error})") from None
        self._check()
        if scheme != "tls" and not _LOOPBACK.match(place):
            say(log, "shares travel to the Dask workers unencrypted; use tls://", level=logging.WARNING, scheduler=url)

    def _check(self) -> None:
        """Raise ConfigError if a worker has another version: it would compute something else, or nothing."""
        found = self.client.run(_version)
        if wrong := {version for version in found.values() if version != secfc.__version__}:
            raise ConfigError(
                f"--engine: workers at {self.url} have SecFC {', '.join(sorted(wrong))}, and this is {secfc.__version__}"
            )
        say(log, "computing on a Dask cluster", scheduler=self.url, workers=len(found))

    def place(self, words: Words, layout: Layout) -> Any:
        """A block, sent to some worker."""
        return self.client.submit(_unpacked, self.client.scatter(words, hash=False), pickle.dumps(layout), pure=False)

    def ask(self, operation: Operation[T], first: int, block: Any) -> Any:
        """An operation on it, to be done where it is."""
        return self.client.submit(_done, pickle.dumps(operation), first, block, pure=False)

    def result(self, asked: Any, again: Callable[[], Any]) -> Any:
        """What was asked; if its worker is lost, `again` sends what it takes and asks once more."""
        since = None
        while True:
            try:
                return self._waited(asked)
            except self._lost as error:
                now, before = time.monotonic(), since
                since = now if before is None else before
                if now - since > PATIENCE_SECONDS:
                    raise Unavailable(
                        f"the Dask cluster at {self.url} has lost its workers ({type(error).__name__}); start the same"
                        " command again to go on"
                    ) from None
                self._tell_lost(error, now)
            if before is not None:
                time.sleep(_PAUSE_SECONDS)
            with suppress(*self._lost):  # nobody may be there to send it to: what was lost fails once more
                asked = again()

    def _tell_lost(self, error: Exception, now: float) -> None:
        """Once for all blocks that a worker had."""
        if now - self._told > _PAUSE_SECONDS:
            say(log, "a Dask worker was lost; asking again", level=logging.WARNING, error=type(error).__name__)
        self._told = now

    def _waited(self, asked: Any) -> Any:
        """Its result, however long that takes, as long as there are workers."""
        while True:
            try:
                return asked.result(timeout=_LOOK_SECONDS)
            except TimeoutError:
                if asked.done() or not self.client.nthreads():
                    raise

    @property
    def threads(self) -> int:
        """How many operations may run at a time."""
        return max(sum(int(one) for one in self.client.nthreads().values()), 1)


class DaskRows(StoredRows):
    """A client's share of every row, on the workers of a cluster; see `blocks.Blocks`."""

    def __init__(
        self,
        folder: Path,
        field: Field,
        rows: int,
        length: int,
        block_bytes: int,
        spool: Callable[[str], Spool],
        cluster: Cluster,
    ) -> None:
        super().__init__(folder, field, rows, length, block_bytes, spool)
        self._cluster = cluster
        self._placed: dict[int, Any] = {}

    def finish(self) -> None:
        """Send all blocks to workers; there they stay."""
        for index in range(self.blocks):
            self._place(index)

    def _place(self, index: int) -> Any:
        words, layout = self.packed(index)
        self._placed[index] = self._cluster.place(words.copy(), layout)
        return self._placed[index]

    def each(self, ask: Ask[T]) -> Iterator[T]:
        """See `blocks.Blocks`. A few blocks ahead of what is taken, and in order."""
        asked: deque[tuple[int, Operation[T], Any]] = deque()
        ahead = 2 * self._cluster.threads
        for index in range(self.blocks):
            first, end = self.edges(index)
            operation = ask(first, end)
            if operation is not None:
                asked.append((index, operation, self._cluster.ask(operation, first, self._placed[index])))
            if len(asked) > ahead:
                yield self._result(*asked.popleft())
        while asked:
            yield self._result(*asked.popleft())

    def _result(self, index: int, operation: Operation[T], asked: Any) -> T:
        first, _ = self.edges(index)
        found: T = self._cluster.result(asked, lambda: self._cluster.ask(operation, first, self._place(index)))
        return found


# --- on the workers: what Dask has moved may be read-only, or begin anywhere in memory, and kernels take no such arrays -----


def _version() -> str:
    return secfc.__version__


def _unpacked(words: Words, layout: bytes) -> Residues:
    return unpacked(np.require(words, requirements=["C", "A", "W"]), pickle.loads(layout))  # noqa: S301 - from the client whose workers these are


def _done(operation: bytes, first: int, block: Residues) -> Any:
    return pickle.loads(operation)(first, np.require(block, requirements=["C", "A", "W"]))  # noqa: S301
