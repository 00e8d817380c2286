"""`secfc revoke`: revoke a party's certificate."""

from __future__ import annotations

import json
from pathlib import Path

import click

from secfc.commands import options, passphrases
from secfc.pki import authority as authorities
from secfc.pki import signedroster


@click.command("revoke")
@click.argument("name", metavar="NAME")
@options.authority
@passphrases.option
@options.as_json()
def command(name: str, ca: Path, passphrase_file: Path | None, as_json: bool) -> None:
    """Revoke the certificate of party NAME, for example because its key was stolen.

    Writes the next version of the signed roster to the authority's folder. Send it to every party, to
    replace roster.json in its kit; running programs obey it within seconds. A party that does not get it does not know of
    it. To get a new certificate, NAME enrols again with a new key.

    \b
    Example:
      secfc revoke hospital-a --ca authority/ca
    """
    federation = authorities.federation_of(ca)
    authorities.current(ca, federation)  # before anybody is asked for a passphrase
    authority = authorities.load(ca, federation, lambda: passphrases.of_key(passphrase_file))
    authorities.revoke(authority, ca, federation, name)
    path, version = ca / signedroster.FILE, authorities.current(ca, federation).version
    if as_json:
        click.echo(json.dumps({"party": name, "roster": str(path), "version": version}))
        return
    click.echo(f"{path}: version {version}, in which the certificate of {name} is revoked. It holds no secret.")
    click.echo("Send it to every party, to replace roster.json in its kit; running programs obey it within seconds.")
