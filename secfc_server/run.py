"""One job at the server, around the coordinator machine: time, files, and the services that its clients call."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from secfc import exits, logs, textfile
from secfc.agreement.clusters import Clusters
from secfc.agreement.federation import SERVER
from secfc.errors import JobFailed, PeerError, Unavailable
from secfc.logs import say
from secfc.net.driver import Driver, Ledger
from secfc.net.exchange import Exchange
from secfc.protocol.effects import Started
from secfc.protocol.messages import Phase
from secfc.protocol.server.coordinator import Coordinator
from secfc.protocol.server.inputs import CalledOff
from secfc.protocol.server.snapshot import Snapshot
from secfc_server import progress, result
from secfc_server.journal import Journal
from secfc_server.service import Service

log = logging.getLogger("secfc.server")
CENTERS_FILE = "centers.csv"
LINGER_SECONDS = 2.5  # after the end, so that clients and `secfc status --watch` hear of it
LATE_SECONDS = 10.0  # after a failure, for clients that are just coming back: they try at least every 6.5 s


class ServerRun:
    """Takes one coordinator through one job. `linger`: how long to stay for whoever asks how it ended. `remember`: notes that
    new rows can be assigned to the clusters that were found."""

    def __init__(
        self,
        coordinator: Coordinator,
        journal: Journal,
        folder: Path,
        style: tuple[str, bool],
        *,
        ledger: Ledger | None = None,
        linger: float = LINGER_SECONDS,
        remember: Callable[[Clusters], None] | None = None,
    ) -> None:
        self._coordinator, self._folder, self._style, self._linger = coordinator, folder, style, linger
        self._remember = remember
        self._federation = coordinator.job.federation
        self._started = time.monotonic()
        self.driver = Driver(coordinator, journal, log, ledger=ledger, look=self._look)
        self.service = Service(coordinator, self.driver)
        self.exchange = Exchange(coordinator, self.driver, self._federation.name)

    def _look(self) -> None:
        self.service.notify()

    @property
    def agreed(self) -> bytes:
        """Names the federation and the job."""
        return self._federation.agreed()

    def seen(self) -> Snapshot:
        """Where the job stands."""
        return self._coordinator.snapshot(time.monotonic())

    def described(self) -> dict[str, object]:
        """The result so far, as plain values."""
        found = self._clusters
        return result.describe(self.seen(), time.monotonic() - self._started, found.name if found else None)

    @property
    def _clusters(self) -> Clusters | None:
        ending = self._coordinator.ending
        return None if ending is None else ending.clusters

    async def begin(self) -> None:
        """Begin, or go on with what is kept; raises what cannot be kept."""
        with suppress(Unavailable):
            await self.driver.take(Started())
        if self.driver.broken is not None:  # what could not be kept, and why
            raise self.driver.broken
        _tell_resumed(self.seen())

    async def drive(self, stopped: asyncio.Future[int], called_off: Callable[[], str] = lambda: "") -> int:
        """Until the job is over and its clients know, or `stopped`: then its code, else 0. `called_off()` says why the job is
        to end, if it is."""
        driver = self.driver
        ticking = driver.spawn(driver.ticking())
        try:
            return await self._drive(stopped, called_off)
        finally:
            ticking.cancel()

    async def _drive(self, stopped: asyncio.Future[int], called_off: Callable[[], str]) -> int:
        driver, monitor = self.driver, progress.Monitor(self.seen())
        with logs.terminal(*self._style) as line:
            while not self._over():
                seen = self.seen()
                monitor.look(seen, driver.now())
                if line is not None:
                    line.update(progress.line(seen))
                await asyncio.wait({stopped}, timeout=0.1)
                if driver.broken is not None:  # like SIGTERM: followers lose the connection, and try again
                    raise driver.broken
                if stopped.done():
                    return await self._stop(stopped.result())
                if why := called_off():
                    await driver.take(CalledOff(JobFailed(why)))
            monitor.look(self.seen(), driver.now())
        self._save()
        if (found := self._clusters) is not None and self._remember is not None:
            self._remember(found)
            say(log, "new rows can be assigned to these clusters later", clusters=found.name)
        if self._coordinator.phase is Phase.FINISHED:
            await self._wait_for_labels(stopped)
            monitor.look(self.seen(), driver.now())
            self._save()
            self._open_centers()
        await asyncio.wait({stopped}, timeout=self._linger)
        if self._coordinator.failure is not None:
            await self._wait_for_the_late(stopped)
        return 0

    async def _wait_for_the_late(self, stopped: asyncio.Future[int]) -> None:
        """Clients that take part, and were away when the job failed, would look for a server that is gone."""
        deadline = self.driver.now() + LATE_SECONDS - self._linger
        took_part = {client.name for client in self.seen().clients if client.joined}
        while took_part - self.service.informed and self.driver.now() < deadline and not stopped.done():
            await asyncio.wait({stopped}, timeout=0.05)

    async def _stop(self, code: int) -> int:
        """Somebody at the keyboard (SIGINT) calls the job off, and followers hear it. Whatever runs us (SIGTERM: a service
        manager, a container engine) may start us again, so followers only lose the connection and come back."""
        if code == exits.INTERRUPTED and self._linger:
            await self.driver.take(CalledOff(JobFailed("the server was stopped")))
            await asyncio.sleep(0.2)  # lets followers hear it
        return code

    def _over(self) -> bool:
        return self._coordinator.phase in (Phase.FINISHED, Phase.FAILED)

    async def _wait_for_labels(self, stopped: asyncio.Future[int]) -> None:
        deadline = self.driver.now() + self._coordinator.job.deadlines.finish
        while self.seen().missing and self.driver.now() < deadline and not stopped.done():
            await asyncio.wait({stopped}, timeout=0.05)
            if self.driver.broken is not None:
                raise self.driver.broken
        if missing := self.seen().missing:
            say(log, "some clients have not fetched their labels", level=logging.WARNING, missing=missing)

    def _open_centers(self) -> None:
        """Write the centres if the job lets the server see them and enough clients have consented."""
        job, path, ending = self._federation.job, self._folder / CENTERS_FILE, self._coordinator.ending
        if job.centers != SERVER or ending is None:
            return
        try:
            opened = ending.opened_centers()
        except (JobFailed, PeerError) as error:
            textfile.remove(path, "choose another --out")  # an earlier job's centres are not this one's
            say(log, str(error), level=logging.WARNING)
            return
        names = job.feature_names or [f"x{f + 1}" for f in range(job.features)]
        textfile.write(path, opened.table(names, job.spread), "choose another --out")
        say(log, "centres written", file=path, clusters=len(opened.clusters))

    def _save(self) -> None:
        path = self._folder / result.FILE
        result.write(path, self.described())
        say(log, "result written", file=path)
        if published := result.write_published(self._folder / result.PUBLISHED, self._coordinator.ending):
            say(log, "published IDs written", file=self._folder / result.PUBLISHED, clients=published)


def _tell_resumed(now: Snapshot) -> None:
    if now.phase is Phase.FINISHED:
        text = "this job is finished already; use --new for a new one"
        shown = result.describe(now, 0.0)
        fields = {name: shown[name] for name in ("rounds", "converged", "inertia", "cluster_sizes")}
        say(log, text, **fields, result=result.FILE, missing=now.missing)
    elif now.phase is not Phase.JOINING:
        version = now.outcome.version if now.outcome else 0
        say(log, "going on with an unfinished job", phase=now.phase.value, round=version)
