"""`secfc-client`: run one client (site) of a federation."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import click
from click.core import ParameterSource

from secfc import __version__, exits, logs
from secfc.agreement import allowing, policy
from secfc.agreement import job as jobs
from secfc.agreement.federation import LINK_KEY, SERVER, Federation
from secfc.agreement.job import AUDIENCES, Job
from secfc.agreement.policy import TO_NOBODY, Policy
from secfc.auditfile import AuditFile
from secfc.coding import kernels
from secfc.commands import options
from secfc.errors import ConfigError, InvalidInput, NoSuchJob
from secfc.lock import Lock
from secfc.logs import say
from secfc.pki import kit
from secfc.pki.kit import Kit
from secfc.protocol.client.participant import Participant
from secfc.protocol.client.phases.base import Ended
from secfc.protocol.jobs.node import KEEP_JOBS
from secfc.protocol.messages import Phase
from secfc.web import opening
from secfc.web.door import Door
from secfc_client import data, keptclusters, profile, report
from secfc_client.driver import ClientDriver
from secfc_client.engines.engine import LOCAL, Wishes, bytes_of, check, cluster_of
from secfc_client.job import Files, SiteJob
from secfc_client.offering import Offering, datasets
from secfc_client.preparing import prepared, table_of
from secfc_client.progress import Progress
from secfc_client.standing import JOBS, StandingNode
from secfc_client.store import Store
from secfc_client.view import SiteView

log = logging.getLogger("secfc.client")
_GIVEN = ParameterSource.COMMANDLINE
_OF_NODES = (  # options that make sense with --dataset
    *("kit_path", "dataset_files", "out", "id_columns", "keep_jobs", "policy_path", "require_policy"),
    *("state", "bind", "web", "wait", "memory", "engine", "log_format", "quiet"),
)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@options.path("--kit", "kit_path", required=True, help="This client's kit folder.")
@options.path("--data", "data_path", help="Rows: CSV, Parquet or Arrow. Not for a helper, which holds no column.")
@click.option(
    "--dataset",
    "dataset_files",
    metavar="NAME=FILE",
    multiple=True,
    help="Stay, and offer these rows to submitted jobs under this name. May be repeated.",
)
@options.path("--out", help="Where to write the rows with their cluster; with --dataset a folder, by default KIT/jobs.")
@click.option(
    "--id",
    "id_columns",
    metavar="[NAME=]COLUMN",
    multiple=True,
    envvar="SECFC_ID",
    show_envvar=True,
    help="Column that names rows (of that dataset): kept in the output, not clustered, never sent as it is.",
)
@click.option(
    "--keep-jobs",
    default=KEEP_JOBS,
    show_default=True,
    type=click.IntRange(1),
    help="With --dataset: submitted jobs whose labels are kept; older ones are removed.",
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
@click.option(
    "--memory",
    metavar="SIZE",
    help="What this process may take, e.g. 2GiB: shares that would need more are held in files of the state folder.",
)
@click.option(
    "--engine",
    default=LOCAL,
    show_default=True,
    metavar="URL",
    help="Where shares are computed with: local, or dask://HOST:PORT (tls://HOST:PORT), a Dask cluster of this site.",
)
@click.option("--wait", default=600.0, show_default=True, help="Seconds to keep trying to reach the server.")
@options.logging
@click.version_option(__version__, prog_name="secfc-client")
def command(
    kit_path: Path,
    data_path: Path | None,
    dataset_files: tuple[str, ...],
    out: Path | None,
    centers_path: Path | None,
    profile_path: Path | None,
    report_path: Path | None,
    no_report: bool,
    open_centers: str | None,
    id_columns: tuple[str, ...],
    keep_jobs: int,
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
    memory: str | None,
    engine: str,
    wait: float,
    log_format: str,
    quiet: bool,
) -> int:
    """Take part in one clustering job with the rows of --data, and write them with their cluster to --out; or, with
    --dataset, stay and take part in jobs that are submitted and that this site allows (docs/operations.md, "Jobs"). Rows
    leave this machine only as shares, from which any t clients learn nothing. With sealed uploads, the default, the server
    and one committee member together can compute the rows; with masked and open ones the server alone can
    (docs/privacy.md). Exit codes: 0 done, 2 wrong usage, configuration or data, 3 the server could not be reached or a disk
    was full, 4 the job failed, 130 or 143 stopped by a signal."""
    logs.configure(log_format, quiet)
    loaded = kit.load(kit_path)
    if loaded.party_name not in loaded.federation.roster:
        whose = "the server" if loaded.party_name == SERVER else loaded.party_name
        raise ConfigError(f"{kit_path} is {whose}'s kit; secfc-client needs a client's")
    if wait <= 0:
        raise InvalidInput("--wait must be a positive number of seconds")
    wishes = Wishes(None if memory is None else bytes_of(memory), cluster_of(engine))
    if dataset_files:
        rules = _rules(kit_path, policy_path, require_policy, None)
        allowed = allowing.of_kit(kit_path, policy_path)
        offering = Offering(loaded.federation, datasets(dataset_files, id_columns), rules, allowed)
        folders = state or kit_path / "state", out or kit_path / JOBS
        return _stay(loaded, offering, *folders, keep_jobs, bind, web, wait, wishes)
    loaded, made, kept = keptclusters.prepared(loaded, state or kit_path / "state", assign_from)
    federation, name = loaded.federation, loaded.party_name
    rules = _rules(kit_path, policy_path, require_policy, open_centers)
    policy.check(rules, federation)
    paths = data_path, out, centers_path, profile_path, report_path
    files = None if _only_helps(federation, name, paths) else _files(federation.job, no_report, *paths)
    table = data.none() if files is None else _load(files, federation, name, _only(id_columns), features)
    if kept is not None:
        keptclusters.check_features(kept, table.feature_names)
    ready = prepared(table, data_path, federation, name, link_key or kit_path / LINK_KEY)
    if files is not None and len(table) < rules.least_rows:
        raise ConfigError(f"{policy.FILE}: least_rows = {rules.least_rows}, and {data_path} has {len(table)}")
    loaded.pins.remember(state or kit_path / "state")
    store = Store(state or kit_path / "state")
    if (write_ids or publish_ids) and not made.private:
        raise InvalidInput('rows have IDs only where membership = "private"; leave out --write-ids and --publish-ids')
    if publish_ids and federation.holders:
        raise InvalidInput("every holder has every row, so there is nothing to publish; leave out --publish-ids")
    address = _address(loaded, bind)
    rows, ids = ready.rows, ready.ids
    job = SiteJob(
        loaded, made, rules, table, rows, ids, store, files, wait, write_ids, publish_ids, all_k, kept, wishes=wishes
    )
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
        check(wishes.memory)
        door = opening.prepared(web, loaded, store.folder)
        return asyncio.run(_run(job, address, new, (log_format, quiet), door))


def _only(columns: tuple[str, ...]) -> str | None:
    if len(columns) > 1:
        raise InvalidInput("--id is given twice; name one column")
    return columns[0] if columns else None


def _address(loaded: Kit, bind: str | None) -> str:
    """Where this client listens; empty if nobody dials it."""
    federation = loaded.federation
    if bind and not federation.dialled(loaded.party_name):
        raise InvalidInput("nobody dials this client (it has no address, or relay is only); leave out --bind")
    return (bind or federation.client(loaded.party_name).bind) if federation.dialled(loaded.party_name) else ""


def _stay(
    loaded: Kit,
    offering: Offering,
    state: Path,
    out: Path,
    keep_jobs: int,
    bind: str | None,
    web: str | None,
    wait: float,
    wishes: Wishes,
) -> int:
    context = click.get_current_context()
    given = [one for one in context.command.params if context.get_parameter_source(str(one.name)) is _GIVEN]
    if wrong := [one.opts[0] for one in given if one.name not in _OF_NODES]:
        raise InvalidInput(f"{wrong[0]} is about one job, and --dataset stays for many; leave one of them out")
    if not loaded.federation.stays:
        raise ConfigError(
            "federation.toml has a [job] table: it is a federation for that one job; give --data and --out instead of"
            " --dataset, or remove the table at all parties"
        )
    address = _address(loaded, bind)
    loaded.pins.remember(state)
    with Lock(state, "secfc-client"):
        kernels.warm()
        check(wishes.memory)
        door = opening.prepared(web, loaded, state)
        code = asyncio.run(StandingNode(loaded, offering, state, out, keep_jobs, wait, door, wishes).run(address))
    logs.last_words("stopped; start the same command again to go on", code=code, error=False)
    return code


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


def _load(files: Files, federation: Federation, name: str, id_column: str | None, features: str | None) -> data.Table:
    table = table_of(files.rows, federation, name, id_column, features)
    data.preflight_output(files.labels, table)
    return table


async def _run(job: SiteJob, bind: str, new: bool, style: tuple[str, bool], door: Door | None = None) -> int:
    stopped = exits.stop_signals()
    participant, disk = job.prepare(new=new)
    job.hint()
    site, federation = SiteView(job.table), job.kit.federation
    ledger = AuditFile(job.store.folder, job.kit.party_name, federation.digest()).about(job=federation.agreed().hex())
    while True:
        leaving = participant.phase is Phase.FINISHED  # an earlier process was killed before it could end
        ledger.begins(jobs.dumps(federation.job))
        task = asyncio.create_task(ClientDriver(job.kit, participant, disk, bind, ledger=ledger).run(stopped))
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
    ledger.over(ended.error)
    if ended.error is not None:
        raise ended.error
    if not ended.untold:  # last of all: until the server knows, the same command must be able to go on
        job.store.finish(keep=job.keeps_shares)
    if leaving and job.files is not None:
        say(log, "the labels were written before; the job is over", file=job.files.labels)
    return 0


async def _watched(task: asyncio.Task[Ended], participant: Participant, style: tuple[str, bool]) -> Ended:
    """Until the task is done, with its progress on a terminal."""
    shown = Progress()
    with logs.terminal(*style) as line:
        while not task.done():
            await asyncio.wait({task}, timeout=0.2)
            if line is not None:
                line.update(shown.line(participant.snapshot(), time.monotonic()))
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
