"""`secfc enroll`: a party's key, made where it stays, and the request for its certificate."""

from __future__ import annotations

import json
from pathlib import Path

import click

from secfc.agreement import federation as federations
from secfc.commands import options
from secfc.pki import enrolment, kit


@click.command("enroll")
@options.federation
@click.option("--as", "name", required=True, metavar="NAME", help='Which party you are: a client\'s name, or "server".')
@options.role("Ask for the right to submit jobs; NAME need not be in FEDERATION.TOML then.")
@options.new_folder("New or empty folder: your kit.")
@options.as_json()
def command(federation_file: Path, name: str, role: str | None, out: Path, as_json: bool) -> None:
    """Make a key that never leaves this machine, and a request (DIR/request.pem) that holds no secret.

    Send the request to whoever keeps the federation's authority, and tell them its fingerprint over a channel on which
    they know you, such as the telephone. They answer with `secfc sign` and tell you the authority's fingerprint in the same
    way; with `secfc accept` DIR becomes your kit.

    \b
    Example:
      secfc enroll federation.toml --as hospital-a --out kit
      secfc enroll federation.toml --as analyst --role submitter --out kit
    """
    request = enrolment.enrol(federations.load(federation_file), name, out, submits=role is not None)
    path = out / kit.REQUEST
    if as_json:
        click.echo(json.dumps({"party": name, "request": str(path), "fingerprint": request.fingerprint}))
        return
    click.echo(f"{path}: send this to whoever keeps the authority. Tell them its fingerprint over the telephone:")
    click.echo(f"\n  {request.fingerprint}\n")
    click.echo(f"{out / 'key.pem'}: never leaves this machine.")
    click.echo("Have them read out the authority's fingerprint to you in turn. When their answer has arrived:\n")
    click.echo(f"  secfc accept --kit {out} --answer DIR --authority-fingerprint HEX")
