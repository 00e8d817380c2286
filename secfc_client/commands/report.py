"""`secfc report`: one HTML file about a finished job, for people."""

from __future__ import annotations

from pathlib import Path

import click

from secfc import __version__, textfile
from secfc.agreement.federation import SERVER
from secfc.commands import options
from secfc.errors import ConfigError, InvalidInput
from secfc.pki import kit as kits
from secfc.pki.kit import Kit
from secfc.web import jobreport
from secfc.web.document import Document
from secfc_client import budget, data, keptlabels, report, submittedreport
from secfc_client.standing import JOBS

_CURE = "choose another --out"


@click.command("report")
@click.argument("name", metavar="[JOB]", required=False)
@options.kit("The kit of the party whose report it is.")
@options.path("--data", "data_path", help="A client's rows, as they were clustered.")
@click.option("--id", "id_column", help="As given to secfc-client.")
@click.option("--features", help="As given to secfc-client.")
@options.state
@options.path(
    "--result",
    "result_path",
    help="The server's result.json; a client can do without. Default: that of a server's kit.",
)
@options.path("--jobs", "jobs_path", help="JOB, at a site: the folder that its node writes jobs to. Default: KIT/jobs.")
@options.path("--out", default=Path("report.html"), show_default=True, help="The file to write.")
def command(
    name: str | None,
    kit_path: Path,
    data_path: Path | None,
    id_column: str | None,
    features: str | None,
    state: Path | None,
    result_path: Path | None,
    jobs_path: Path | None,
    out: Path,
) -> None:
    """Write a report of the last finished job, or of a submitted JOB: what was asked and found, what a client's own rows are
    like by cluster, and what was given away. One HTML file that needs nothing else; a client's has its own rows in it, so
    keep it where they are. A client that gets the server's result.json (--result) has inertia, starts and indices in it too;
    of a submitted job the server is asked for it.

    \b
    Examples:
      secfc report --kit /etc/secfc/kit --data rows.csv --result result.json
      secfc report --kit kits/server
      secfc report 3fa4 --kit kits/analyst
    """
    kit = kits.load(kit_path)
    if name is not None:
        if data_path or id_column or features:
            raise InvalidInput("a submitted job names its data itself; leave out --data, --id and --features")
        _submitted(kit, name, (state or kit_path / "state", jobs_path or kit_path / JOBS, result_path), out)
    elif jobs_path is not None:
        raise InvalidInput("--jobs is about a submitted job; name it")
    elif kit.federation.stays:
        raise InvalidInput("jobs of this federation are submitted; name the one to report on, as secfc jobs lists them")
    elif kit.party_name == SERVER:
        if data_path is not None:
            raise InvalidInput(f"{kit_path} is the server's kit, and a server has no rows; leave out --data")
        textfile.write(out, _of_server(kit, result_path or kit_path / "result.json"), _CURE)
    elif kit.federation.helps(kit.party_name):
        raise InvalidInput(f"{kit.party_name} holds no column, so it has no rows to report on")
    else:
        if data_path is None:
            raise InvalidInput("a client's report is about its rows; give --data")
        report.preflight(out, data_path)
        table = data.of_job(data_path, kit.federation.job.of(kit.party_name), id_column, features)
        report.write(out, _of_client(kit, table, state or kit_path / "state", result_path))
    click.echo(f"report written: {out}")


def _submitted(kit: Kit, name: str, paths: tuple[Path, Path, Path | None], out: Path) -> None:
    state, folder, result_path = paths
    report.preflight(out)
    if kit.party_name in kit.federation.roster:
        report.write(out, submittedreport.of_site(kit, name, state, folder, result_path))
    else:
        textfile.write(out, submittedreport.of_all(kit, name, result_path), _CURE)


def _of_server(kit: Kit, path: Path) -> str:
    result = jobreport.load(path, kit.federation.agreed().hex())
    document = Document(f"{kit.federation.name}: a clustering of {kit.federation.n} sites")
    jobreport.sections(document, result)
    document.section("Versions and digests")
    return document.facts([("SecFC", __version__), ("federation and job", kit.federation.agreed().hex())]).html()


def _of_client(kit: Kit, table: data.Table, state: Path, result_path: Path | None) -> str:
    kept = keptlabels.latest(state, keptlabels.table_key(table))
    if kept is None:
        raise ConfigError(f"{state}: no labels of these rows, in this order, are kept there; was the job finished?")
    result = jobreport.load(result_path, kit.federation.agreed().hex()) if result_path is not None else None
    given = budget.read(state).get(budget.key_of(table.feature_names, table.features))
    table, kept = kept.taken(table)
    return report.report(kit.federation, kit.party_name, kept.session, table, kept.labels, given, result)
