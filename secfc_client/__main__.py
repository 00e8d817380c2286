"""`secfc-client`: run one client (site) of a federation."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import click

from secfc import __version__, exits, logs
from secfc.agreement import policy
from secfc.agreement.federation import LINK_KEY, SERVER, Federation
from secfc.agreement.job import AUDIENCES, Job
from secfc.agreement.policy import TO_NOBODY, Policy
from secfc.coding import kernels
from secfc.commands import options
from secfc.errors import ConfigError, DataError, InvalidInput, NoSuchJob
from secfc.kmeans.standard import Unscaled
from secfc.lock import Lock
from secfc.logs import say
from secfc.pki import kit
from secfc.protocol.client.participant import Participant
from secfc.protocol.client.phases.base import Ended
from secfc.protocol.messages import Phase
from secfc.web import opening
from secfc.web.door import Door
from secfc_client import data, examine, keptclusters, naming, profile, report
from secfc_client.datasets import preparation
from secfc_client.driver import ClientDriver
from secfc_client.job import Files, SiteJob
from secfc_client.store import Store
from secfc_client.view import SiteView

log = logging.getLogger("secfc.client")


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@options.path("--kit", "kit_path", required=True, help="This client's kit folder.")
@options.path("--data", "data_path", help="Rows: CSV, Parquet or Arrow. Not for a helper, which holds no column.")
@options.path("--out", help="Where to write the rows with their cluster. Not for a helper.")
@click.option(
    "--id",
    "id_column",
    envvar="SECFC_ID",
    show_envvar=True,
    help="Column that names rows: kept in the output, not clustered, never sent as it is.",
)
@options.path(
    "--centers",
    "centers_path",
    help="Where to write the centres if they are opened (CSV); default: centers.csv beside --out.",
)
@click.option(
    "--profile",
    "profile_path",
    type=click.Path(readable=False, path_type=Path),
    default=None,
    help="Where to write size, means and deviations of this site's own rows by cluster (CSV); default: beside --out, e.g."
    " labels.profile.csv.",
)
@options.path("--report", "report_path", help="Where to write a report of the job (HTML); default: beside --out.")
@click.option("--no-report", is_flag=True, help="Write no report.")
@click.option(
    "--open-centers",
    type=click.Choice(AUDIENCES),
    help="Who may see the centres with this site's consent, if federation.toml opens them; default: as in policy.toml.",
)
@click.option(
    "--features",
    help="Columns to cluster by, comma-separated, if federation.toml gives only their number; the same at all sites.",
)
@options.path("--policy", "policy_path", help="This site's rules; default: KIT/policy.toml, if there is one.")
@click.option("--require-policy", is_flag=True, help="Do not start without a policy file; an empty one will do.")
@options.path("--link-key", help='Key for ids = "linked"; default: KIT/link.key.')
@click.option(
    "--write-ids", is_flag=True, help="Private membership: write the rows' IDs in this job beside the labels."
)
@click.option(
    "--publish-ids", is_flag=True, help="Like --write-ids, and tell the server at the end which rows are ours."
)
@click.option("--all-k", is_flag=True, help="If the job tries several k: write one more column for each of the others.")
@click.option(
    "--assign-from",
    metavar="NAME",
    help="Only assign the rows of --data to the clusters of an earlier job, kept here under this name (secfc clusters; last:"
    " the newest), in place of the kit's job; all parties say the same.",
)
@options.state
@click.option("--new", is_flag=True, help="Give up the unfinished job that is kept here, and begin a new one.")
@click.option(
    "--again", is_flag=True, help="Write the labels of the last finished job on these rows again; needs no server."
)
@options.bind
@options.web
@click.option("--wait", default=600.0, show_default=True, help="Seconds to keep trying to reach the server.")
@options.logging
@click.version_option(__version__, prog_name="secfc-client")
def command(
    kit_path: Path,
    data_path: Path | None,
    out: Path | None,
    centers_path: Path | None,
    profile_path: Path | None,
    report_path: Path | None,
    no_report: bool,
    open_centers: str | None,
    id_column: str | None,
    features: str | None,
    policy_path: Path | None,
    require_policy: bool,
    link_key: Path | None,
    write_ids: bool,
    publish_ids: bool,
    all_k: bool,
    assign_from: str | None,
    state: Path | None,
    new: bool,
    again: bool,
    bind: str | None,
    web: str | None,
    wait: float,
    log_format: str,
    quiet: bool,
) -> int:
    """Take part in one clustering job with the rows of --data, and write them with their cluster to --out. Rows leave
    this machine only as shares, from which any t clients learn nothing. With sealed uploads, the default, the server and one
    committee member together can compute the rows; with masked and open ones the server alone can (docs/privacy.md).
    Exit codes: 0 done, 2 wrong usage, configuration or data, 3 the server could not be reached or a disk was full, 4
    the job failed, 130 or 143 stopped by a signal."""
    logs.configure(log_format, quiet)
    loaded = kit.load(kit_path)
    if loaded.party_name == SERVER:
        raise ConfigError(f"{kit_path} is the server's kit; secfc-client needs a client's")
    if wait <= 0:
        raise InvalidInput("--wait must be a positive number of seconds")
    loaded, made, kept = keptclusters.prepared(loaded, state or kit_path / "state", assign_from)
    federation, name = loaded.federation, loaded.party_name
    rules = _rules(kit_path, policy_path, require_policy, open_centers)
    policy.check(rules, federation)
    paths = data_path, out, centers_path, profile_path, report_path
    files = None if _only_helps(federation, name, paths) else _files(federation.job, no_report, *paths)
    own = federation.job.of(name)
    table = data.none() if files is None else _load(files, own, id_column, features)
    if kept is not None:
        keptclusters.check_features(kept, table.feature_names)
    rows = data.rows_for(table, own)
    if not isinstance(rows, Unscaled):
        rows = preparation.widened(federation.job, name, rows)
    if len(table) > federation.job.max_rows:
        raise DataError(
            f"{data_path}: {len(table)} rows exceed max_rows = {federation.job.max_rows} of federation.toml"
        )
    loaded.pins.remember(state or kit_path / "state")
    values = preparation.scaled(own, table.features)
    for warning in examine.warnings(values, table.feature_names, federation.job.precision, federation.uploads):
        say(log, warning, level=logging.WARNING)
    store = Store(state or kit_path / "state")
    if (write_ids or publish_ids) and not made.private:
        raise InvalidInput('rows have IDs only where membership = "private"; leave out --write-ids and --publish-ids')
    if publish_ids and federation.holders:
        raise InvalidInput("every holder has every row, so there is nothing to publish; leave out --publish-ids")
    linked = federation.job.ids == "linked" and files is not None
    ids = naming.linked_ids(table, link_key or kit_path / LINK_KEY) if linked else None

    if bind and not federation.dialled(name):
        raise InvalidInput("nobody dials this client (it has no address, or relay is only); leave out --bind")
    address = (bind or federation.client(name).bind) if federation.dialled(name) else ""
    job = SiteJob(loaded, made, rules, table, rows, ids, store, files, wait, write_ids, publish_ids, all_k, kept)
    if again and (new or publish_ids):
        raise InvalidInput("--again only writes the labels again; leave out --new and --publish-ids")
    if again and files is None:
        raise InvalidInput("a client that holds no column has no labels to write; leave out --again")
    if again:
        job.write_again()
        return 0
    with Lock(store.folder, "secfc-client"):  # before anything there is changed
        # before anybody waits for us: compiling holds up every other thread, and links seem broken
        kernels.warm()
        door = opening.prepared(web, loaded, store.folder)
        return asyncio.run(_run(job, address, new, (log_format, quiet), door))


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


def _only_helps(federation: Federation, name: str, paths: Sequence[Path | None]) -> bool:
    """Whether this client holds no column; then it has no files either."""
    whom = ", ".join(federation.holders)
    if not federation.helps(name):
        return False
    if any(paths):
        raise InvalidInput(
            f"{name} holds no feature of federation.toml, so it only computes for {whom}; leave out --data, --out and other"
            " files"
        )
    say(log, "this client holds no column and only computes for others", holders=federation.holders)
    return True


def _files(
    job: Job,
    no_report: bool,
    rows: Path | None,
    out: Path | None,
    centers: Path | None,
    about: Path | None,
    told: Path | None,
) -> Files:
    """Where results go. Fails now, not after a long job, if they could not be written."""
    if rows is None or out is None:
        raise InvalidInput("--data FILE with this client's rows and --out FILE for their clusters are needed")
    data.preflight_output(out)
    target = centers or out.with_name("centers.csv")
    if job.centers != TO_NOBODY:
        data.preflight_centers(target, out)
    about = about or profile.beside(out)
    profile.preflight(about, out, target, rows)
    if no_report and told is not None:
        raise InvalidInput("--report and --no-report contradict each other; leave one out")
    told = None if no_report else told or report.beside(out)
    if told is not None:
        report.preflight(told, out, target, about, rows)
    return Files(rows, out, target, about, told)


def _load(files: Files, job: Job, id_column: str | None, features: str | None) -> data.Table:
    table = data.of_job(files.rows, job, id_column, features)
    data.preflight_output(files.labels, table)
    if table.dropped:
        say(log, "rows with missing values take no part", level=logging.WARNING, rows=table.dropped, of=len(table.rows))
    say(log, "features", columns=table.feature_names)  # to be compared, should another site's differ
    return table


async def _run(job: SiteJob, bind: str, new: bool, style: tuple[str, bool], door: Door | None = None) -> int:
    stopped = exits.stop_signals()
    participant, disk = job.prepare(new=new)
    job.hint()
    site = SiteView(job.table)
    while True:
        leaving = participant.phase is Phase.FINISHED  # an earlier process was killed before it could end
        task = asyncio.create_task(ClientDriver(job.kit, participant, disk, bind).run(stopped))
        async with opening.opened(door, partial(site.of_machine, participant)):
            ended = await _watched(task, participant, style)
        if stopped.done() and ended.error is not None:
            logs.last_words("stopped; start the same command again to go on", code=stopped.result(), error=False)
            return stopped.result()
        if not isinstance(ended.error, NoSuchJob):
            break
        if leaving and job.publish_ids:
            say(log, "the server runs another job; the IDs of the last one are not published", level=logging.WARNING)
        say(log, "the server begins a new job", shares="kept" if job.keeps_shares else "fresh")
        job.store.finish(keep=job.keeps_shares)
        participant, disk = job.prepare()
    if ended.error is not None:
        raise ended.error
    if not ended.untold:  # last of all: until the server knows, the same command must be able to go on
        job.store.finish(keep=job.keeps_shares)
    if leaving and job.files is not None:
        say(log, "the labels were written before; the job is over", file=job.files.labels)
    return 0


async def _watched(task: asyncio.Task[Ended], participant: Participant, style: tuple[str, bool]) -> Ended:
    """Until the task is done, with its progress on a terminal."""
    with logs.terminal(*style) as line:
        while not task.done():
            await asyncio.wait({task}, timeout=0.2)
            if line is not None:
                line.update(participant.line())
    return task.result()


class _WithoutPandas:
    """pyarrow loads pandas, where it is installed, to see whether it is given some: half a second of every start."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("secfc-client does without", name=name)


def main() -> None:
    """Entry point."""
    sys.meta_path.insert(0, _WithoutPandas())
    exits.run(command, "secfc-client")


if __name__ == "__main__":
    main()
