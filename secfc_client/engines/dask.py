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
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
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
_GONE = ("closing", "closed")  # what Dask says of a client that has given up
_LOOPBACK = re.compile(r"(127\.[\d.]+|localhost|\[::1\]):\d+$")


class Cluster:
    """A connection to a scheduler, and the workers that it has."""

    def __init__(self, url: str) -> None:
        """`url`: dask://HOST:PORT, or tls://HOST:PORT with what Dask's own configuration says about certificates."""
        try:
            distributed: Any = importlib.import_module("distributed")
        except ModuleNotFoundError:
            raise ConfigError("--engine dask://… needs Dask: pip install 'secfc-kmeans[dask]'") from None
        self._lost = (distributed.client.FutureCancelledError, distributed.KilledWorker, CancelledError, OSError)
        self.url, self._told, self._new = url, 0.0, distributed.Client
        self.client = self._connected()

    def _connected(self) -> Any:
        scheme, _, place = self.url.partition("://")
        address = f"{SCHEMES[scheme]}://{place}"
        try:
            client = self._new(address, timeout=_CONNECT_SECONDS, set_as_default=False)
            client.wait_for_workers(1, timeout=_CONNECT_SECONDS)
        except (OSError, ValueError, TypeError) as error:
            raise Unavailable(f"--engine: no Dask cluster with a worker answers at {self.url} ({error})") from None
        if not all(map(_guarded, (address, *self._check(client)))):
            text = "shares travel to the Dask workers unencrypted; use tls://"
            say(log, text, level=logging.WARNING, scheduler=self.url)
        return client

    def revive(self) -> None:
        """Connect again if an earlier job has lost the scheduler: a node has one cluster for all its jobs (heavy)."""
        if self.client.status in _GONE:
            self.client = self._connected()

    def _check(self, client: Any) -> Iterable[str]:
        """Addresses of the workers. Raises ConfigError if one has another version: it would compute something else, or
        nothing."""
        try:
            found: dict[str, str] = client.run(_version)
        except self._lost as error:
            raise Unavailable(f"--engine: the Dask cluster at {self.url} does not answer ({error})") from None
        except Exception as error:
            text = f"--engine: the workers at {self.url} cannot run SecFC ({error}); install the same version there"
            raise ConfigError(text) from None
        if wrong := {version for version in found.values() if version != secfc.__version__}:
            raise ConfigError(
                f"--engine: workers at {self.url} have SecFC {', '.join(sorted(wrong))}, and this is {secfc.__version__}"
            )
        say(log, "computing on a Dask cluster", scheduler=self.url, workers=len(found))
        return found

    def place(self, words: Words, layout: Layout) -> Any:
        """A block, sent to some worker."""
        with self._reaching():
            block = self.client.scatter(words, hash=False)
            return self.client.submit(_unpacked, secfc.__version__, block, pickle.dumps(layout), pure=False)

    def ask(self, operation: Operation[T], first: int, block: Any) -> Any:
        """An operation on it, to be done where it is."""
        with self._reaching():
            return self.client.submit(_done, secfc.__version__, pickle.dumps(operation), first, block, pure=False)

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        """What a lost cluster raises comes out as Unavailable."""
        try:
            yield
        except Exception as error:
            if not self._is_lost(error):
                raise
            raise self._unavailable(error) from None

    def _is_lost(self, error: Exception) -> bool:
        """Whether the cluster is why. Without its scheduler Dask raises whatever it stumbles over."""
        return isinstance(error, self._lost) or self.client.status != "running"

    def _unavailable(self, error: Exception) -> Unavailable:
        if self.client.status in _GONE:
            return Unavailable(f"the Dask scheduler at {self.url} is gone; start the same command again to go on")
        return Unavailable(
            f"the Dask cluster at {self.url} has lost its workers ({type(error).__name__}); start the same command again to"
            " go on"
        )

    def result(self, asked: Any, again: Callable[[], Any]) -> Any:
        """What was asked; if its worker is lost, `again` sends what it takes and asks once more."""
        since = None
        while True:
            try:
                return self._waited(asked)
            except Exception as error:
                if not self._is_lost(error):
                    raise
                now, before = time.monotonic(), since
                since = now if before is None else before
                if now - since > PATIENCE_SECONDS or self.client.status in _GONE:
                    raise self._unavailable(error) from None
                self._tell_lost(error, now)
            if before is not None:
                time.sleep(_PAUSE_SECONDS)
            with suppress(Unavailable):  # nobody may be there to send it to: what was lost fails once more
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
        """How many operations may run at a time; 1 if nobody says: whoever asks for one hears that the cluster is lost."""
        with suppress(Unavailable), self._reaching():
            return max(sum(int(one) for one in self.client.nthreads().values()), 1)
        return 1


def _guarded(address: str) -> bool:
    """Whether what goes there is encrypted, or stays on this machine."""
    return address.startswith("tls://") or _LOOPBACK.match(address.partition("://")[2]) is not None


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
        self._cluster.revive()
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


def _match(version: str) -> None:
    """Of the client; a worker may have come after it looked."""
    if version != secfc.__version__:
        raise ConfigError(f"--engine: a worker has SecFC {secfc.__version__}, and the client {version}")


def _unpacked(version: str, words: Words, layout: bytes) -> Residues:
    _match(version)
    return unpacked(np.require(words, requirements=["C", "A", "W"]), pickle.loads(layout))  # noqa: S301 - from the client whose workers these are


def _done(version: str, operation: bytes, first: int, block: Residues) -> Any:
    _match(version)
    return pickle.loads(operation)(first, np.require(block, requirements=["C", "A", "W"]))  # noqa: S301
