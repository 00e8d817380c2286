"""Before one job begins: this site's rules, its rows, and whether what comes of them can be written."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from secfc.agreement import policy
from secfc.agreement.federation import Federation
from secfc.agreement.job import Job
from secfc.agreement.policy import TO_NOBODY, Policy
from secfc.errors import InvalidInput
from secfc.logs import say
from secfc_client import data, profile, report
from secfc_client.job import Files
from secfc_client.preparing import table_of

log = logging.getLogger("secfc.client")


def rules(kit_path: Path, chosen: Path | None, required: bool, open_centers: str | None) -> Policy:
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


def only_helps(federation: Federation, name: str, paths: Sequence[Path | None]) -> bool:
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


def files(
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


def load(files: Files, federation: Federation, name: str, id_column: str | None, features: str | None) -> data.Table:
    table = table_of(files.rows, federation, name, id_column, features)
    data.preflight_output(files.labels, table)
    return table
