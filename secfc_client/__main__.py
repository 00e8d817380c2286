"""`secfc-client`: run one client (site) of a federation."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from secfc import __version__, config, exits, fixedpoint, kernels, kit, logs, plan
from secfc.config import Federation
from secfc.errors import ConfigError, DataError, InvalidInput, Refused, WentBack, told
from secfc.lock import Lock
from secfc.logs import say
from secfc_client import data, examine, naming, policy
from secfc_client.job import Files, Job
from secfc_client.policy import TO_NOBODY, Policy
from secfc_client.runner import NewJob, Runner, blame
from secfc_client.store import Store

log = logging.getLogger("secfc.client")


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--kit", "kit_path", required=True, type=click.Path(path_type=Path), help="This client's kit folder.")
@click.option("--data", "data_path", required=True, type=click.Path(path_type=Path), help="Rows: CSV or Parquet.")
@click.option(
    "--out",
    required=True,
    type=click.Path(readable=False, path_type=Path),
    help="Where to write the rows with their cluster.",
)
@click.option(
    "--id", "id_column", default=None, help="A column that names rows; kept, not clustered, never sent as it is."
)
@click.option(
    "--centers",
    "centers_path",
    type=click.Path(readable=False, path_type=Path),
    default=None,
    help="Where to write the centres if they are opened (CSV); default: centers.csv beside --out.",
)
@click.option(
    "--open-centers",
    type=click.Choice(config.AUDIENCES),
    default=None,
    help="Whom this site lets see the centres, if federation.toml opens them; default: as policy.toml says.",
)
@click.option(
    "--features",
    default=None,
    help="Columns to cluster by, comma-separated, if federation.toml gives only their number; the same at all sites.",
)
@click.option(
    "--policy",
    "policy_path",
    type=click.Path(path_type=Path),
    default=None,
    help="This site's rules; default: KIT/policy.toml, if there is one.",
)
@click.option("--require-policy", is_flag=True, help="Do not start without a policy file; an empty one will do.")
@click.option(
    "--link-key", type=click.Path(path_type=Path), default=None, help='Key of ids = "linked"; default: KIT/link.key.'
)
@click.option(
    "--write-ids", is_flag=True, help="Private membership: write the rows' IDs in this job beside the labels."
)
@click.option("--publish-ids", is_flag=True, help="The same, and at the end tell the server which rows are ours.")
@click.option("--state", type=click.Path(path_type=Path), default=None, help="State folder; default: KIT/state.")
@click.option("--new", is_flag=True, help="Give up an unfinished job that is kept here, and begin a new one.")
@click.option(
    "--again", is_flag=True, help="Write the labels of the last finished job on these rows again; needs no server."
)
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
    require_policy: bool,
    link_key: Path | None,
    write_ids: bool,
    publish_ids: bool,
    state: Path | None,
    new: bool,
    again: bool,
    bind: str | None,
    wait: float,
    log_format: str,
    quiet: bool,
) -> int:
    """Take part in one clustering job with the rows of FILE, and write them with their cluster. No row leaves this
    machine but as shares that fewer than t+1 clients cannot read; the server can compute the rows from the distances
    it gets (docs/privacy.md). Exit codes: 0 done, 2 wrong usage, configuration or
    data, 3 the server could not be reached or a disk was full, 4 the job failed, 130 or 143 stopped by a signal."""
    logs.configure(log_format, quiet)
    loaded = kit.load(kit_path)
    if loaded.party_name == config.SERVER:
        raise ConfigError(f"{kit_path} is the server's kit; secfc-client needs a client's")
    if wait <= 0:
        raise InvalidInput("--wait must be a positive number of seconds")
    federation = loaded.federation
    rules = _rules(kit_path, policy_path, require_policy, open_centers)
    policy.check(rules, federation)
    made = plan.of(federation)
    data.preflight_output(out)
    target = centers_path or out.with_name("centers.csv")
    if federation.centers != TO_NOBODY:
        data.preflight_centers(target, out)
    table = _load(data_path, federation, id_column, features)
    data.preflight_output(out, table)
    data.check_bounds(table, federation.bound)
    if len(table) > federation.max_rows:
        raise DataError(f"{data_path}: {len(table)} rows exceed max_rows = {federation.max_rows} of federation.toml")
    rows = fixedpoint.quantise(table.features, federation.bound, federation.precision, table.feature_names)
    loaded.pins.remember(state or kit_path / "state")
    for warning in examine.warnings(table.features, table.feature_names, federation.precision, federation.uploads):
        say(log, warning, level=logging.WARNING)
    store = Store(state or kit_path / "state")
    if (write_ids or publish_ids) and not made.private:
        raise InvalidInput('rows have IDs only where membership = "private"; leave out --write-ids and --publish-ids')
    ids = naming.linked_ids(table, link_key or kit_path / config.LINK_KEY) if federation.ids == "linked" else None

    address = bind or federation.client(loaded.party_name).bind
    files = Files(data_path, out, target)
    job = Job(loaded, made, rules, table, rows, ids, store, files, address, wait, write_ids, publish_ids)
    if again and (new or publish_ids):
        raise InvalidInput("--again only writes labels once more; leave out --new and --publish-ids")
    if again:
        job.write_again()
        return 0
    with Lock(store.folder, "secfc-client"):  # before anything there is changed
        kernels.warm()  # before anybody waits for us: compiling holds up every other thread, and links seem broken
        return asyncio.run(_run(job, new, (log_format, quiet)))


def _rules(kit_path: Path, chosen: Path | None, required: bool, open_centers: str | None) -> Policy:
    """This site's rules. The log says which hold, so that a policy that got lost on its way here is noticed."""
    rules = policy.of_kit(kit_path, chosen, required=required)
    if open_centers is not None:
        rules = replace(rules, open_centers=open_centers)
    path = policy.source(kit_path, chosen)
    if path is None:
        say(log, f"no {policy.FILE} in the kit", rules=rules.describe())
    else:
        say(log, "policy in force", file=path, rules=rules.describe())
    return rules


def _load(path: Path, federation: Federation, id_column: str | None, features: str | None) -> data.Table:
    table = data.load(
        path,
        feature_count=federation.features,
        feature_names=federation.feature_names,
        id_column=id_column,
        chosen=None if features is None else [name.strip() for name in features.split(",")],
    )
    say(log, "features", columns=table.feature_names)  # to be compared, should another site's differ
    return table


async def _run(job: Job, new: bool, style: tuple[str, bool]) -> int:
    stopped, store = exits.stop_signals(), job.store
    participant, runner = job.prepare(new=new)
    job.hint()
    if store.written and job.only_goodbye_left(runner):  # an earlier process was killed before it could end
        over = asyncio.create_task(runner.conclude())
        if not await _wait(over, stopped, runner, style):
            return stopped.result()
        ended = over.result()
        store.finish(keep=job.keeps_shares)
        if ended:
            say(log, "the labels were written before; the job is over", file=job.files.labels)
            return 0
        if runner.publishes is not None:
            say(log, "the server runs another job; the IDs of the last one are not published", level=logging.WARNING)
        participant, runner = job.prepare()
    while True:
        task = asyncio.create_task(runner.run(partial(job.finish, participant, runner)))
        if not await _wait(task, stopped, runner, style):
            await runner.stop("stopped by its operator")
            logs.last_words("stopped; start the same command again to go on", code=stopped.result(), error=False)
            return stopped.result()
        error = task.exception()
        if not isinstance(error, NewJob):
            break
        if store.written:
            say(log, "the server has forgotten the last job; what was left of it is not done", level=logging.WARNING)
        say(log, "the server begins a new job", shares="kept" if job.keeps_shares else "fresh")
        store.finish(keep=job.keeps_shares)
        participant, runner = job.prepare()
    if error is not None:
        known = blame(error)
        refused = isinstance(known, Refused | WentBack)
        await runner.stop(told(known) if known else "an unexpected error", refused=refused)
        raise known or error
    if await runner.done():
        store.finish(
            keep=job.keeps_shares
        )  # last of all: until the server knows, the same command must be able to go on
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
