"""`secfc accept`: the end of an enrolment, at the site."""

from __future__ import annotations

import json
from pathlib import Path

import click

from secfc.commands import options
from secfc.pki import acceptance


@click.command("accept")
@options.kit("What `secfc enroll` made, or a kit whose certificate is renewed.")
@options.path("--answer", required=True, metavar="DIR", help="What `secfc sign` made for it.")
@click.option(
    "--authority-fingerprint",
    "fingerprint",
    default=None,
    metavar="HEX",
    help="As the authority's holder read it out; may be left out if this kit trusts that authority already.",
)
@options.as_json()
def command(kit_path: Path, answer: Path, fingerprint: str | None, as_json: bool) -> None:
    """Check the authority's answer and make the kit complete.

    Whoever carried the answer could have swapped all of it. So have the authority's holder read out the fingerprint that
    `secfc provision` and `secfc sign` show, over a channel on which you know who is speaking. The answer is accepted if its
    ca.pem has that fingerprint, and its cert.pem and roster.json are that authority's, for this kit's own key. Otherwise
    nothing is changed, and secfc-client and secfc-server refuse the kit.

    \b
    Example:
      secfc accept --kit kit --answer answer --authority-fingerprint "9f8e ..."
    """
    name = acceptance.accept(kit_path, answer, fingerprint)
    if as_json:
        click.echo(json.dumps({"party": name, "kit": str(kit_path)}))
        return
    click.echo(f"{kit_path}: complete, the kit of {name}. Next:  secfc check --kit {kit_path}")
