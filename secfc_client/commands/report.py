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
from secfc_client import budget, data, keptlabels, report

_CURE = "choose another --out"


@click.command("report")
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
@options.path("--out", default=Path("report.html"), show_default=True, help="The file to write.")
def command(
    kit_path: Path,
    data_path: Path | None,
    id_column: str | None,
    features: str | None,
    state: Path | None,
    result_path: Path | None,
    out: Path,
) -> None:
    """Write a report of the last finished job: what was asked and found, what a client's own rows are like by cluster, and
    what was given away. One HTML file that needs nothing else; a client's has its own rows in it, so keep it where they are.
    A client that gets the server's result.json (--result) has inertia, starts and indices in it too.

    \b
    Examples:
      secfc report --kit /etc/secfc/kit --data rows.csv --result result.json
      secfc report --kit kits/server
    """
    kit = kits.load(kit_path)
    if kit.party_name == SERVER:
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
