"""`secfc-server`: run the server of a federation."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import click
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from secfc import __version__, exits, logs, textfile
from secfc.agreement.federation import SERVER
from secfc.agreement.uploads import DEFAULT, MEANING
from secfc.coding import kernels
from secfc.commands import options
from secfc.errors import ConfigError, InvalidInput, JobFailed, PeerError, Unavailable
from secfc.lock import Lock
from secfc.logs import say
from secfc.net import rpc
from secfc.net.driver import Driver
from secfc.net.exchange import Exchange
from secfc.pki import kit
from secfc.pki.kit import Kit
from secfc.protocol.effects import Put, Started
from secfc.protocol.messages import Phase
from secfc.protocol.server.coordinator import Coordinator
from secfc.protocol.server.inputs import CalledOff
from secfc.protocol.server.job import Deadlines
from secfc.protocol.server.snapshot import Snapshot
from secfc.v1 import secfc_pb2, secfc_pb2_grpc
from secfc.web import opening
from secfc.web.door import Door
from secfc_server import clusters, progress, result, view
from secfc_server.journal import Journal
from secfc_server.relay import Relay
from secfc_server.service import Service

log = logging.getLogger("secfc.server")
CENTERS_FILE = "centers.csv"
LINGER_SECONDS = 2.5  # after the end, so that clients and `secfc status --watch` hear of it
LATE_SECONDS = 10.0  # after a failure, for clients that are just coming back: they try at least every 6.5 s


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@options.path("--kit", "kit_path", required=True, help="The server's kit folder.")
@options.path("--out", help="Folder for result.json; default: the kit.")
@click.option(
    "--assign-from",
    metavar="NAME",
    help="Only assign new rows to the clusters of an earlier job of this name (result.json; last: the newest), in place of"
    " the kit's job; all parties say the same.",
)
@options.state
@click.option("--new", is_flag=True, help="Forget an earlier job, finished or not, and begin a new one.")
@options.bind
@options.web
@click.option("--join-timeout", default=600.0, show_default=True, help="Seconds to wait for all clients.")
@click.option("--share-timeout", default=3600.0, show_default=True, help="Seconds the exchange of shares may take.")
@click.option("--round-timeout", default=300.0, show_default=True, help="Seconds a round may take.")
@click.option("--reflection", "reflect", is_flag=True, help="Let tools such as grpcurl list the services.")
@options.logging
@options.as_json("Print the result as one JSON object on standard output.")
@click.version_option(__version__, prog_name="secfc-server")
def command(
    kit_path: Path,
    out: Path | None,
    assign_from: str | None,
    state: Path | None,
    new: bool,
    bind: str | None,
    web: str | None,
    join_timeout: float,
    share_timeout: float,
    round_timeout: float,
    reflect: bool,
    log_format: str,
    quiet: bool,
    as_json: bool,
) -> int:
    """Coordinate one clustering job: wait for every client of federation.toml, drive sharing and rounds, write
    result.json, and end. If it is killed, at any moment, the same command goes on with the job; a job that has
    finished is not run again. Exit codes: 0 done, 2 wrong usage or configuration, 3 a client was too late or a disk was
    full, 4 the job failed, 130 or 143 stopped by a signal."""
    logs.configure(log_format, quiet)
    loaded = kit.load(kit_path)
    if loaded.party_name != SERVER:
        raise ConfigError(f"{kit_path} is the kit of {loaded.party_name}; secfc-server needs the server's")
    if min(join_timeout, share_timeout, round_timeout) <= 0:
        raise InvalidInput("timeouts must be positive numbers of seconds")
    state = state or kit_path / "state"
    loaded, made = clusters.prepared(loaded, state, assign_from)
    folder = out or kit_path
    if not folder.is_dir():
        raise ConfigError(f"{folder}: no such folder; create it or choose another --out")
    for name in (result.FILE, result.PUBLISHED, CENTERS_FILE):
        textfile.preflight(folder / name, "choose another --out")
    # before anybody is waited for: compiling holds up every other thread
    kernels.warm()
    deadlines = replace(Deadlines(), join=join_timeout, share=share_timeout, round=round_timeout)
    lock = Lock(state, "secfc-server")  # before anything there is looked at, let alone removed
    if loaded.federation.uploads != DEFAULT:
        say(log, MEANING[loaded.federation.uploads], level=logging.WARNING)
    loaded.pins.remember(state)
    door = opening.prepared(web, loaded, state)
    journal = _open(state, loaded, new)
    now = time.monotonic()
    verify = kit.verifier(loaded)
    coordinator = Coordinator(loaded.federation, made, verify, kept=journal.kept(), deadlines=deadlines, now=now)
    job = _Job(
        loaded, coordinator, journal, folder, state, bind or loaded.federation.server.bind, log_format, quiet, door
    )
    code = asyncio.run(job.run(reflect))
    lock.release()
    if as_json:
        click.echo(json.dumps(job.described()))
    if code:
        logs.last_words("stopped; start the same command again to go on", code=code, error=False)
    elif coordinator.failure is not None:
        raise coordinator.failure
    return code


def _open(folder: Path, loaded: Kit, new: bool) -> Journal:
    before = Journal.remove(folder) if new else b""
    journal = Journal(folder, loaded.federation.agreed())
    if before:
        journal.put([Put("leakage", before)])
    return journal


def _tell_resumed(now: Snapshot) -> None:
    if now.phase is Phase.FINISHED:
        text = "this job is finished already; use --new for a new one"
        shown = result.describe(now, 0.0)
        fields = {name: shown[name] for name in ("rounds", "converged", "inertia", "cluster_sizes")}
        say(log, text, **fields, result=result.FILE, missing=now.missing)
    elif now.phase is not Phase.JOINING:
        version = now.outcome.version if now.outcome else 0
        say(log, "going on with an unfinished job", phase=now.phase.value, round=version)


class _Job:
    """The process around the machine: gRPC, signals, time and files."""

    def __init__(
        self,
        loaded: Kit,
        coordinator: Coordinator,
        journal: Journal,
        folder: Path,
        state: Path,
        bind: str,
        log_format: str,
        quiet: bool,
        door: Door | None,
    ) -> None:
        self._door = door
        self._kit, self._coordinator, self._folder, self._bind = loaded, coordinator, folder, bind
        self._journal, self._state = journal, state
        self._style = (log_format, quiet)
        self._started = time.monotonic()

    def _seen(self) -> Snapshot:
        return self._coordinator.snapshot(time.monotonic())

    def described(self) -> dict[str, object]:
        ending = self._coordinator.ending
        found = ending.clusters if ending is not None else None
        return result.describe(self._seen(), time.monotonic() - self._started, found.name if found else None)

    async def run(self, reflect: bool) -> int:
        driver = Driver(self._coordinator, self._journal, log, look=lambda: service.notify())  # noqa: PLW0108 - made next
        service = Service(self._coordinator, driver)
        with suppress(Unavailable):
            await driver.take(Started())
        if driver.broken is not None:  # what could not be kept, and why
            raise driver.broken
        _tell_resumed(self._seen())
        listener = rpc.server(self._kit)
        secfc_pb2_grpc.add_CoordinatorServicer_to_server(service, listener)
        exchange = Exchange(self._coordinator, driver, self._kit.federation.name)
        secfc_pb2_grpc.add_ExchangeServicer_to_server(exchange, listener)
        secfc_pb2_grpc.add_RelayServicer_to_server(Relay(self._kit.federation), listener)
        checks = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(checks, listener)
        if reflect:
            services = secfc_pb2.DESCRIPTOR.services_by_name
            names = [service.full_name for service in services.values()]
            reflection.enable_server_reflection([*names, health.SERVICE_NAME, reflection.SERVICE_NAME], listener)
        port = rpc.listen(listener, self._kit, self._bind)
        await listener.start()
        await checks.set("", health_pb2.HealthCheckResponse.SERVING)
        expires, roster = self._kit.expires.date(), self._kit.pins.describe()
        say(log, "listening", bind=self._bind, port=port, expires=expires, roster=roster)
        stopped = exits.stop_signals()
        ticking = driver.spawn(driver.ticking())
        try:
            async with opening.opened(self._door, lambda: view.view(self._seen())):
                return await self._drive(driver, service, stopped)
        finally:
            ticking.cancel()
            await checks.enter_graceful_shutdown()
            await listener.stop(grace=0.5 if stopped.done() else 2.0)
            driver.end()

    async def _drive(self, driver: Driver, service: Service, stopped: asyncio.Future[int]) -> int:
        monitor = progress.Monitor(self._seen())
        with logs.terminal(*self._style) as line:
            while not self._over():
                seen = self._seen()
                monitor.look(seen, driver.now())
                if line is not None:
                    line.update(progress.line(seen))
                await asyncio.wait({stopped}, timeout=0.1)
                if driver.broken is not None:  # like SIGTERM: followers lose the connection, and try again
                    raise driver.broken
                if stopped.done():
                    return await self._stop(driver, stopped.result())
            monitor.look(self._seen(), driver.now())
        self._save()
        if self._coordinator.ending is not None and (found := self._coordinator.ending.clusters) is not None:
            clusters.remember(self._state, found)
            say(log, "new rows can be assigned to these clusters later", clusters=found.name)
        if self._coordinator.phase is Phase.FINISHED:
            await self._wait_for_labels(driver, stopped)
            monitor.look(self._seen(), driver.now())
            self._save()
            self._open_centers()
        await asyncio.wait({stopped}, timeout=LINGER_SECONDS)
        if self._coordinator.failure is not None:
            await self._wait_for_the_late(driver, service, stopped)
        return 0

    async def _wait_for_the_late(self, driver: Driver, service: Service, stopped: asyncio.Future[int]) -> None:
        """Clients that take part, and were away when the job failed, would look for a server that is gone."""
        deadline = driver.now() + LATE_SECONDS - LINGER_SECONDS
        took_part = {client.name for client in self._seen().clients if client.joined}
        while took_part - service.informed and driver.now() < deadline and not stopped.done():
            await asyncio.wait({stopped}, timeout=0.05)

    async def _stop(self, driver: Driver, code: int) -> int:
        """Somebody at the keyboard (SIGINT) calls the job off, and followers hear it. Whatever runs us (SIGTERM: a service
        manager, a container engine) may start us again, so followers only lose the connection and come back."""
        if code == exits.INTERRUPTED:
            await driver.take(CalledOff(JobFailed("the server was stopped")))
            await asyncio.sleep(0.2)  # lets followers hear it
        return code

    def _over(self) -> bool:
        return self._coordinator.phase in (Phase.FINISHED, Phase.FAILED)

    async def _wait_for_labels(self, driver: Driver, stopped: asyncio.Future[int]) -> None:
        deadline = driver.now() + self._coordinator.job.deadlines.finish
        while self._seen().missing and driver.now() < deadline and not stopped.done():
            await asyncio.wait({stopped}, timeout=0.05)
            if driver.broken is not None:
                raise driver.broken
        if missing := self._seen().missing:
            say(log, "some clients have not fetched their labels", level=logging.WARNING, missing=missing)

    def _open_centers(self) -> None:
        """Write the centres if the job lets the server see them and enough clients have consented."""
        job, path, ending = self._kit.federation.job, self._folder / CENTERS_FILE, self._coordinator.ending
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


def main() -> None:
    """Entry point."""
    exits.run(command, "secfc-server")


if __name__ == "__main__":
    main()
