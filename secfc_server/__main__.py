"""`secfc-server`: run the server of a federation."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import click

from secfc import __version__, exits, logs, textfile
from secfc.agreement import job as jobs
from secfc.agreement.federation import SERVER
from secfc.agreement.uploads import DEFAULT, MEANING
from secfc.auditfile import AuditFile
from secfc.coding import kernels
from secfc.commands import options
from secfc.errors import ConfigError, InvalidInput
from secfc.lock import Lock
from secfc.logs import say
from secfc.pki import kit
from secfc.pki.kit import Kit
from secfc.protocol.effects import Put
from secfc.protocol.jobs.hub import KEEP_JOBS
from secfc.protocol.server.coordinator import Coordinator
from secfc.protocol.server.job import Deadlines
from secfc.web import opening
from secfc.web.door import Door
from secfc_server import clusters, result, view
from secfc_server.journal import Journal
from secfc_server.listening import listening
from secfc_server.run import CENTERS_FILE, ServerRun
from secfc_server.standing import JOBS, Standing

log = logging.getLogger("secfc.server")


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@options.path("--kit", "kit_path", required=True, help="The server's kit folder.")
@options.path("--out", help="Folder for result.json; default: the kit, or KIT/jobs if jobs are submitted.")
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
@click.option(
    "--keep-jobs",
    default=KEEP_JOBS,
    show_default=True,
    type=click.IntRange(1),
    help="Submitted jobs whose results are kept; older ones are removed.",
)
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
    keep_jobs: int,
    reflect: bool,
    log_format: str,
    quiet: bool,
    as_json: bool,
) -> int:
    """Coordinate one clustering job: wait for every client of federation.toml, drive sharing and rounds, write
    result.json, and end. If it is killed, at any moment, the same command goes on with the job; a job that has
    finished is not run again. If federation.toml has no [job] table, stay, take jobs that are submitted (`secfc submit`),
    and run them one after the other, each with a folder of its own below --out. Exit codes: 0 done, 2 wrong usage or
    configuration, 3 a client was too late or a disk was full, 4 the job failed, 130 or 143 stopped by a signal."""
    logs.configure(log_format, quiet)
    loaded = kit.load(kit_path)
    if loaded.party_name != SERVER:
        raise ConfigError(f"{kit_path} is the kit of {loaded.party_name}; secfc-server needs the server's")
    if min(join_timeout, share_timeout, round_timeout) <= 0:
        raise InvalidInput("timeouts must be positive numbers of seconds")
    state, folder = state or kit_path / "state", out or kit_path
    deadlines = replace(Deadlines(), join=join_timeout, share=share_timeout, round=round_timeout)
    if loaded.federation.stays and (new or as_json or assign_from is not None):
        raise InvalidInput(
            "--new, --json and --assign-from are about one job, and federation.toml has no [job]; leave them out"
        )
    made = None
    if not loaded.federation.stays:
        loaded, made = clusters.prepared(loaded, state, assign_from)
    federation = loaded.federation
    if not folder.is_dir():
        raise ConfigError(f"{folder}: no such folder; create it or choose another --out")
    for name in () if made is None else (result.FILE, result.PUBLISHED, CENTERS_FILE):
        textfile.preflight(folder / name, "choose another --out")
    # before anybody is waited for: compiling holds up every other thread
    kernels.warm()
    lock = Lock(state, "secfc-server")  # before anything there is looked at, let alone removed
    if federation.uploads != DEFAULT:
        say(log, MEANING[federation.uploads], level=logging.WARNING)
    loaded.pins.remember(state)
    bind = bind or federation.server.bind
    door = opening.prepared(web, loaded, state)
    if made is None:
        standing = Standing(loaded, state, out or kit_path / JOBS, deadlines, keep_jobs, (log_format, quiet))
        code = asyncio.run(standing.run(bind, reflect, door))
        logs.last_words("stopped; start the same command again to go on", code=code, error=False)
        return code
    journal = _open(state, loaded, new)
    now = time.monotonic()
    verify = kit.verifier(loaded)
    coordinator = Coordinator(federation, made, verify, kept=journal.kept(), deadlines=deadlines, now=now)
    ledger = AuditFile(state, loaded.party_name, federation.digest()).about(job=federation.agreed().hex())
    ledger.begins(jobs.dumps(federation.job))
    style, remember = (log_format, quiet), partial(clusters.remember, state)
    run = ServerRun(coordinator, journal, folder, style, ledger=ledger, remember=remember)
    code = asyncio.run(_one_job(loaded, run, bind, door, reflect))
    if not code:
        ledger.over(coordinator.failure)
    lock.release()
    if as_json:
        click.echo(json.dumps(run.described()))
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


async def _one_job(loaded: Kit, run: ServerRun, bind: str, door: Door | None, reflect: bool) -> int:
    """The process of a server with one job: gRPC, signals and the page."""
    await run.begin()
    stopped = exits.stop_signals()
    services = (("Coordinator", run.service), ("Exchange", run.exchange))
    try:
        async with (
            listening(loaded, bind, services, stopped, reflect=reflect),
            opening.opened(door, lambda: view.view(run.seen())),
        ):
            return await run.drive(stopped)
    finally:
        run.driver.end()


def main() -> None:
    """Entry point."""
    exits.run(command, "secfc-server")


if __name__ == "__main__":
    main()
