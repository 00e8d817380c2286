"""Reports on submitted jobs: a site's, with its own rows; and anybody else's, with what the server tells of the job."""

from __future__ import annotations

from pathlib import Path

import click

from secfc import __version__
from secfc.agreement.federation import Federation
from secfc.commands.jobs import moment, status
from secfc.errors import SecfcError
from secfc.net import jobs
from secfc.pki.kit import Kit
from secfc.web import jobreport
from secfc.web.document import Document
from secfc.web.jobreport import Result
from secfc_client import budget, donejobs, report


def of_site(kit: Kit, name: str, state: Path, folder: Path, result_path: Path | None) -> str:
    """HTML. `folder`: where the node writes jobs. What the server has to say is left out if it cannot be asked."""
    done = donejobs.find(kit, state, folder, name)
    given = budget.read(state).get(budget.dataset_key(done.record.job.wanted.dataset))
    try:
        result = _result(kit, done.record.digest.hex(), done.federation, result_path)
    except SecfcError as error:
        if result_path is not None:
            raise
        click.echo(f"warning: without the server's part: {error}", err=True)
        result = None
    return report.report(done.federation, kit.party_name, b"", done.table, done.labels, given, result, done.origin)


def of_all(kit: Kit, name: str, result_path: Path | None) -> str:
    """HTML, without any site's rows."""
    one = jobs.named(kit, name)
    federation, wanted = one.job.within(kit.federation), one.job.wanted
    result = _result(kit, one.job.digest.hex(), federation, result_path)
    document = Document(f"{kit.federation.name}: job {one.job.id}, a clustering of {federation.n} sites")
    document.paragraph(f"Written by SecFC {__version__} from what the server tells. It has no site's rows in it.")
    document.section("What was asked").facts(
        [
            ("submitted by", f"{one.job.submitter}, {moment(one.job.submitted)}"),
            ("dataset", f"{wanted.dataset}, at {', '.join(federation.roster)}"),
            ("clusters", ", ".join(map(str, wanted.job.ks)) + f"; {wanted.job.starts} start(s) each"),
            ("features", ", ".join(wanted.job.feature_names or ()) or str(wanted.job.features)),
            ("privacy", f"t = {federation.privacy}; uploads {federation.uploads}; membership {wanted.job.membership}"),
            ("ran", f"{moment(one.began)} to {moment(one.ended)}; {status(one)}"),
        ]
    )
    document.section("What the sites said").table(["Site", "Verdict", "Why"], one.decisions)
    jobreport.sections(document, result)
    document.section("Versions and digests").facts(
        [
            ("SecFC", __version__),
            ("submission", one.job.digest.hex()),
            ("federation and job", federation.agreed().hex()),
            ("job", federation.job.digest().hex()),
        ]
    )
    return document.html()


def _result(kit: Kit, digest: str, federation: Federation, path: Path | None) -> Result:
    agreed = federation.agreed().hex()
    if path is not None:
        return jobreport.load(path, agreed)
    return jobreport.read(jobs.result(kit, digest), "the server's result", agreed)
