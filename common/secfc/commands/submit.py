"""`secfc submit`: ask a federation that stays for a clustering."""

from __future__ import annotations

import json
import secrets
import time
from pathlib import Path

import click

from secfc.agreement import plan, submission
from secfc.commands import options
from secfc.commands.jobs import awaited, check_finished, show, status
from secfc.net import jobs
from secfc.pki import kit as kits
from secfc.pki import submitting


@click.command("submit")
@click.argument("job_file", metavar="JOB.TOML", type=options.PATH)
@options.kit("The kit of somebody who may submit jobs.")
@click.option(
    "--token", default=None, metavar="TEXT", help="Submits once, however often it is tried; default: a random one."
)
@click.option(
    "--hours",
    default=submitting.HOURS,
    show_default=True,
    type=click.FloatRange(0, submission.MOST_HOURS, min_open=True),
    help="So long the job may wait before it begins.",
)
@click.option("--wait", is_flag=True, help="Wait until the job is over.")
@options.as_json()
def command(job_file: Path, kit_path: Path, token: str | None, hours: float, wait: bool, as_json: bool) -> None:
    """Sign a job and submit it. Every site checks the signature and decides for itself whether it takes part.

    \b
    Exit codes:
      0  the job was submitted (with --wait: it has finished)
      2  the job file or the kit is not in order, or no such job can be computed
      3  the server cannot be reached
      4  the server refuses it (with --wait: or the job did not finish)

    \b
    Example:
      secfc submit job.toml --kit kits/analyst --wait
    """
    kit = kits.load(kit_path)
    wanted = submission.load(job_file)
    signed = submitting.sign(kit, wanted, token or secrets.token_hex(16), hours=hours, clock=time.time())
    plan.of(signed.within(kit.federation))
    one = jobs.submit(kit, signed)
    if wait:
        one = awaited(kit, one.job.digest.hex(), None, quiet=as_json)
    if as_json:
        click.echo(json.dumps(one.plain()))
    elif wait:
        show(one, as_json)
    else:
        click.echo(f"{one.job.id}: {status(one)}")
    if wait:
        check_finished(one)
