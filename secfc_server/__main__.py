"""`secfc-server`: run the server of a federation."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from dataclasses import replace
from pathlib import Path

import click
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from secfc import __version__, config, exits, kernels, kit, logs, plan, rpc, textfile
from secfc.errors import ConfigError, InvalidInput, JobFailed, PeerError
from secfc.kit import Kit
from secfc.lock import Lock
from secfc.logs import say
from secfc.v1 import secfc_pb2, secfc_pb2_grpc
from secfc_server import progress, result
from secfc_server.coordinator import Coordinator, Deadlines, Phase
from secfc_server.journal import Journal
from secfc_server.service import Service

log = logging.getLogger("secfc.server")
CENTERS_FILE = "centers.csv"
LINGER_SECONDS = 2.5  # after the end, so that clients and `secfc status --watch` hear of it


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--kit", "kit_path", required=True, type=click.Path(path_type=Path), help="The server's kit folder.")
@click.option("--out", type=click.Path(path_type=Path), default=None, help="Folder for result.json; default: the kit.")
@click.option(
    "--state", type=click.Path(path_type=Path), default=None, help="Folder of the journal; default: KIT/state."
)
@click.option("--new", is_flag=True, help="Forget an earlier job, finished or not, and begin a new one.")
@click.option("--bind", default=None, help="Address to listen on; default: as federation.toml says.")
@click.option("--join-timeout", type=float, default=600.0, show_default=True, help="Seconds to wait for all clients.")
@click.option("--share-timeout", type=float, default=3600.0, show_default=True, help="Seconds the exchange may take.")
@click.option("--round-timeout", type=float, default=300.0, show_default=True, help="Seconds a round may take.")
@click.option("--reflection", "reflect", is_flag=True, help="Let tools such as grpcurl list the services.")
@click.option("--log-format", type=click.Choice(logs.FORMATS), default="text", show_default=True)
@click.option("--quiet", is_flag=True, help="Warnings and errors only.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object on standard output.")
@click.version_option(__version__, prog_name="secfc-server")
def command(
    kit_path: Path,
    out: Path | None,
    state: Path | None,
    new: bool,
    bind: str | None,
    join_timeout: float,
    share_timeout: float,
    round_timeout: float,
    reflect: bool,
    log_format: str,
    quiet: bool,
    as_json: bool,
) -> int:
    """Coordinate one clustering job: wait for every client of federation.toml, drive sharing and rounds, write
    result.json, and end. Killed at any moment, the same command goes on with the
    job; a finished job says so. Exit codes: 0 done, 2 wrong usage or configuration, 3 a client could not be waited for
    any longer, 4 the job failed, 130 or 143 stopped by a signal."""
    logs.configure(log_format, quiet)
    loaded = kit.load(kit_path)
    if loaded.party_name != config.SERVER:
        raise ConfigError(f"{kit_path} is the kit of {loaded.party_name}; secfc-server needs the server's")
    if min(join_timeout, share_timeout, round_timeout) <= 0:
        raise InvalidInput("timeouts must be positive numbers of seconds")
    made = plan.of(loaded.federation)
    folder = out or kit_path
    if not folder.is_dir():
        raise ConfigError(f"{folder}: no such folder; create it or choose another --out")
    for name in (result.FILE, result.PUBLISHED, CENTERS_FILE):
        textfile.preflight(folder / name, "choose another --out")
    kernels.warm()  # before anybody is waited for: compiling holds up every other thread
    deadlines = replace(Deadlines(), join=join_timeout, share=share_timeout, round=round_timeout)
    state = state or kit_path / "state"
    lock = Lock(state, "secfc-server")  # before anything there is looked at, let alone removed
    loaded.pins.remember(state)
    journal = _open(state, loaded, new)
    kept = journal.begin()
    coordinator = Coordinator(
        loaded.federation,
        made,
        kit.verifier(loaded),
        deadlines=deadlines,
        now=time.monotonic(),
    )
    now = time.monotonic()
    coordinator.resume(
        kept.introductions,
        kept.done,
        kept.state,
        kept.records,
        kept.epoch - 1,
        now,
        leakage=kept.leakage,
        agreed=kept.agreed,
        coins=kept.coins,
        opened=kept.opened,
        published=kept.published,
        centers=kept.centers,
        liars=kept.liars,
        verified=kept.verified,
    )
    _tell_resumed(coordinator)
    job = _Job(loaded, coordinator, journal, folder, bind or loaded.federation.server.bind, log_format, quiet)
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
    digest = loaded.federation.digest()
    before = Journal.remove(folder) if new else b""
    journal = Journal(folder, digest)
    if before:
        journal.carry(before)
    return journal


def _tell_resumed(coordinator: Coordinator) -> None:
    if coordinator.phase is Phase.FINISHED:
        text = "this job is finished already; use --new for a new one"
        shown = result.describe(coordinator, 0.0)
        fields = {name: shown[name] for name in ("rounds", "converged", "inertia", "cluster_sizes")}
        say(log, text, **fields, result=result.FILE, missing=coordinator.missing())
    elif coordinator.phase is not Phase.JOINING:
        rounds = coordinator.rounds
        say(
            log, "going on with an unfinished job", phase=coordinator.phase.value, round=rounds.version if rounds else 0
        )


class _Job:
    """The process around the machine: gRPC, signals, time and files."""

    def __init__(
        self,
        loaded: Kit,
        coordinator: Coordinator,
        journal: Journal,
        folder: Path,
        bind: str,
        log_format: str,
        quiet: bool,
    ) -> None:
        self._kit, self._coordinator, self._folder, self._bind = loaded, coordinator, folder, bind
        self._journal = journal
        self._style = (log_format, quiet)
        self._started = time.monotonic()

    def described(self) -> dict[str, object]:
        return result.describe(self._coordinator, time.monotonic() - self._started)

    async def run(self, reflect: bool) -> int:
        service = Service(self._coordinator, self._journal)
        listener = rpc.server(self._kit)
        secfc_pb2_grpc.add_CoordinatorServicer_to_server(service, listener)
        checks = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(checks, listener)
        if reflect:
            names = [secfc_pb2.DESCRIPTOR.services_by_name["Coordinator"].full_name, health.SERVICE_NAME]
            reflection.enable_server_reflection([*names, reflection.SERVICE_NAME], listener)
        port = rpc.listen(listener, self._kit, self._bind)
        await listener.start()
        await checks.set("", health_pb2.HealthCheckResponse.SERVING)
        expires, roster = self._kit.expires.date(), self._kit.pins.describe()
        say(log, "listening", bind=self._bind, port=port, expires=expires, roster=roster)
        stopped = exits.stop_signals()
        try:
            return await self._drive(service, stopped)
        finally:
            await checks.enter_graceful_shutdown()
            await listener.stop(grace=0.5 if stopped.done() else 2.0)

    async def _drive(self, service: Service, stopped: asyncio.Future[int]) -> int:
        monitor = progress.Monitor(self._coordinator)
        with logs.terminal(*self._style) as line:
            while not self._over():
                service.tick()
                monitor.look(service.now())
                if line is not None:
                    line.update(monitor.line())
                await asyncio.wait({stopped}, timeout=0.1)
                if service.broken is not None:  # like SIGTERM: followers lose the connection, and try on
                    raise service.broken
                if stopped.done():
                    return await self._stop(service, stopped.result())
            monitor.look(service.now())
        self._save()
        if self._coordinator.phase is Phase.FINISHED:
            await self._wait_for_labels(service, stopped)
            monitor.look(service.now())
            self._save()
            self._open_centers()
        await asyncio.wait({stopped}, timeout=LINGER_SECONDS)
        return 0

    async def _stop(self, service: Service, code: int) -> int:
        """Somebody at the keyboard (SIGINT) calls the job off, and followers hear it. Whatever runs us (SIGTERM: a service
        manager, a container engine) may start us again, so followers only lose the connection and come back."""
        if code == exits.INTERRUPTED:
            self._coordinator.fail(JobFailed("the server was stopped"), service.now())
            service.notify()
            await asyncio.sleep(0.2)  # lets followers hear it
        return code

    def _over(self) -> bool:
        return self._coordinator.phase in (Phase.FINISHED, Phase.FAILED)

    async def _wait_for_labels(self, service: Service, stopped: asyncio.Future[int]) -> None:
        deadline = service.now() + self._coordinator.deadlines.finish
        while self._coordinator.missing() and service.now() < deadline and not stopped.done():
            await asyncio.wait({stopped}, timeout=0.05)
            if service.broken is not None:
                raise service.broken
        if self._coordinator.missing():
            say(log, "labels not fetched", level=logging.WARNING, missing=self._coordinator.missing())

    def _open_centers(self) -> None:
        """Write the centres if the federation lets the server see them and enough clients have consented."""
        federation, path = self._kit.federation, self._folder / CENTERS_FILE
        if federation.centers != config.SERVER:
            return
        try:
            opened = self._coordinator.opened_centers()
        except (JobFailed, PeerError) as error:
            textfile.remove(path, "choose another --out")  # an earlier job's centres are not this one's
            say(log, str(error), level=logging.WARNING)
            return
        names = federation.feature_names or [f"x{f + 1}" for f in range(federation.features)]
        textfile.write(path, opened.table(names), "choose another --out")
        say(log, "centres written", file=path, clusters=len(opened.clusters))

    def _save(self) -> None:
        path = self._folder / result.FILE
        result.write(path, self.described())
        say(log, "result written", file=path)
        if published := result.write_published(self._folder / result.PUBLISHED, self._coordinator):
            say(log, "published IDs written", file=self._folder / result.PUBLISHED, clients=published)


def main() -> None:
    """Entry point."""
    exits.run(command, "secfc-server")


if __name__ == "__main__":
    main()
