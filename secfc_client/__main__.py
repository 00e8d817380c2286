"""`secfc-client`: run one client (site) of a federation."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from secfc import __version__, config, exits, fixedpoint, identifiers, kit, logs, plan, textfile
from secfc.centers import Opened
from secfc.errors import ConfigError, DataError, InvalidInput, Refused
from secfc.logs import say
from secfc_client import data, naming, policy
from secfc_client.guard import Guard
from secfc_client.opening import Opener
from secfc_client.participant import Participant
from secfc_client.policy import TO_NOBODY
from secfc_client.runner import NewJob, Runner, blame
from secfc_client.store import Store

log = logging.getLogger("secfc.client")


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--kit", "kit_path", required=True, type=click.Path(path_type=Path), help="This client's kit folder.")
@click.option("--data", "data_path", required=True, type=click.Path(path_type=Path), help="Rows: CSV or Parquet.")
@click.option(
    "--out", required=True, type=click.Path(path_type=Path), help="Where to write the rows with their cluster."
)
@click.option(
    "--id", "id_column", default=None, help="A column that names rows; kept, not clustered, never sent as it is."
)
@click.option(
    "--centers",
    "centers_path",
    type=click.Path(path_type=Path),
    default=None,
    help="Where to write the centres if they are opened (CSV); default: centers.csv beside --out.",
)
@click.option(
    "--open-centers",
    type=click.Choice(config.AUDIENCES),
    default=None,
    help="Whom this site lets see the centres, if federation.toml opens them; default: as policy.toml says.",
)
@click.option("--features", default=None, help="Columns to cluster by, comma-separated; default: federation.toml's.")
@click.option(
    "--policy",
    "policy_path",
    type=click.Path(path_type=Path),
    default=None,
    help="This site's rules; default: KIT/policy.toml, if there is one.",
)
@click.option(
    "--link-key", type=click.Path(path_type=Path), default=None, help='Key of ids = "linked"; default: KIT/link.key.'
)
@click.option(
    "--write-ids", is_flag=True, help="Private membership: write the rows' IDs in this job beside the labels."
)
@click.option("--publish-ids", is_flag=True, help="The same, and at the end tell the server which rows are ours.")
@click.option("--state", type=click.Path(path_type=Path), default=None, help="State folder; default: KIT/state.")
@click.option("--bind", default=None, help="Address to listen on; default: as federation.toml says.")
@click.option("--wait", type=float, default=600.0, show_default=True, help="Seconds to try to reach the server.")
@click.option("--log-format", type=click.Choice(logs.FORMATS), default="text", show_default=True)
@click.option("--quiet", is_flag=True, help="Warnings and errors only.")
@click.version_option(__version__, prog_name="secfc-client")
def command(
    kit_path: Path,
    data_path: Path,
    out: Path,
    centers_path: Path | None,
    open_centers: str | None,
    id_column: str | None,
    features: str | None,
    policy_path: Path | None,
    link_key: Path | None,
    write_ids: bool,
    publish_ids: bool,
    state: Path | None,
    bind: str | None,
    wait: float,
    log_format: str,
    quiet: bool,
) -> int:
    """Take part in one clustering job with the rows of FILE, and write them with their cluster. No row leaves this
    machine but as shares that fewer than t+1 clients cannot read. Exit codes: 0 done, 2 wrong usage, configuration or
    data, 3 the server could not be reached, 4 the job failed, 130 or 143 stopped by a signal."""
    logs.configure(log_format, quiet)
    loaded = kit.load(kit_path)
    if loaded.party_name == config.SERVER:
        raise ConfigError(f"{kit_path} is the server's kit; secfc-client needs a client's")
    if wait <= 0:
        raise InvalidInput("--wait must be a positive number of seconds")
    federation = loaded.federation
    rules = policy.of_kit(kit_path, policy_path)
    policy.check(rules, federation)
    made = plan.of(federation)
    data.preflight_output(out)
    target = centers_path or out.with_name("centers.csv")
    if federation.centers != TO_NOBODY:
        data.preflight_centers(target, out)
    table = data.load(
        data_path,
        feature_count=federation.features,
        feature_names=federation.feature_names,
        id_column=id_column,
        chosen=None if features is None else [name.strip() for name in features.split(",")],
    )
    data.preflight_output(out, table)
    data.check_bounds(table, federation.bound)
    if len(table) > federation.max_rows:
        raise DataError(f"{data_path}: {len(table)} rows exceed max_rows = {federation.max_rows} of federation.toml")
    rows = fixedpoint.quantise(table.features, federation.bound, federation.precision, table.feature_names)
    store = Store(state or kit_path / "state")
    if open_centers is not None:
        rules = replace(rules, open_centers=open_centers)
    if (write_ids or publish_ids) and not made.private:
        raise InvalidInput('rows have IDs only where membership = "private"; leave out --write-ids and --publish-ids')
    ids = naming.linked_ids(table, link_key or kit_path / config.LINK_KEY) if federation.ids == "linked" else None

    def prepare() -> tuple[Participant, Runner]:
        secrets = store.secrets(naming.subject(federation.digest(), table), rows)
        guard = Guard(federation, made, rules, store.given())
        verify = kit.verifier(loaded)
        participant = Participant(
            federation, made, loaded.party_name, rows, secrets, verify, ids, guard=guard, past=store.past()
        )
        address = bind or federation.client(loaded.party_name).bind
        return participant, Runner(loaded, participant, store, address, wait, publish=publish_ids)

    def write(participant: Participant) -> None:
        named = identifiers.texts(participant.ids) if write_ids or publish_ids else None
        data.write(table, participant.own_labels(), out, named)
        say(log, "labels written", file=out, column=data.cluster_column(table))

    def write_centers(opened: Opened) -> None:
        textfile.write(target, opened.table(table.feature_names), "choose another --centers")
        say(log, "centres written", file=target, clusters=len(opened.clusters))

    async def finish(participant: Participant) -> None:
        """The labels first: they do not depend on anybody's consent. Then the centres."""
        # labels written by an earlier process: it may have given its values, and for another assignment none are given
        mine = replace(rules, open_centers=TO_NOBODY) if store.written else rules
        await asyncio.to_thread(write, participant)
        store.note_written()
        if federation.centers != TO_NOBODY:
            textfile.remove(target, "choose another --centers")  # an earlier job's centres are not this one's
        await Opener(loaded, participant, mine).run(write_centers)

    keep = rules.keep_shares and not made.private  # slots are another order of rows in every job
    return asyncio.run(_run(prepare, finish, out, store, keep, (log_format, quiet)))


async def _run(
    prepare: Callable[[], tuple[Participant, Runner]],
    finish: Callable[[Participant], Awaitable[None]],
    out: Path,
    store: Store,
    keep: bool,
    style: tuple[str, bool],
) -> int:
    stopped = exits.stop_signals()
    participant, runner = prepare()
    if store.written and out.exists():  # an earlier process was killed before it could end
        over = asyncio.create_task(runner.conclude())
        if not await _wait(over, stopped, runner, style):
            return stopped.result()
        store.finish(keep=keep)
        if over.result():
            say(log, "the labels were written before; the job is over", file=out)
            return 0
        participant, runner = prepare()
    while True:
        job = asyncio.create_task(runner.run(partial(finish, participant)))
        if not await _wait(job, stopped, runner, style):
            await runner.stop("stopped by its operator")
            click.echo("stopped; start the same command again to go on", err=True)
            return stopped.result()
        error = job.exception()
        if not isinstance(error, NewJob):
            break
        say(log, "the server begins a new job", shares="kept" if keep else "fresh")
        store.finish(keep=keep)
        participant, runner = prepare()
    if error is not None:
        known = blame(error)
        await runner.stop(str(known) if known else "an unexpected error", refused=isinstance(known, Refused))
        raise known or error
    if await runner.done():
        store.finish(keep=keep)  # not before: until the server knows, the same command must be able to go on
    return 0


async def _wait(task: asyncio.Task[Any], stopped: asyncio.Future[int], runner: Runner, style: tuple[str, bool]) -> bool:
    """Until the task is done, with its progress on a terminal; False: a signal came first, and it is cancelled."""
    with logs.terminal(*style) as line:
        while not task.done() and not stopped.done():
            waits: set[asyncio.Future[Any]] = {task, stopped}
            await asyncio.wait(waits, timeout=0.2, return_when=asyncio.FIRST_COMPLETED)
            if line is not None:
                line.update(runner.line)
    if not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=5.0)
        return False
    return True


def main() -> None:
    """Entry point."""
    exits.run(command, "secfc-client")


if __name__ == "__main__":
    main()
