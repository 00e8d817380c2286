"""`secfc provision`: a certificate authority and one kit per party."""

from __future__ import annotations

import json
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from secfc.agreement import federation as federations
from secfc.agreement.federation import Federation
from secfc.agreement.parties import IDENTITY_DOMAIN
from secfc.agreement.uploads import DEFAULT, MEANING
from secfc.commands import options, passphrases
from secfc.errors import InvalidInput
from secfc.pki import roles
from secfc.pki.provision import Provisioned, provision, subject_names


@click.command("provision")
@options.federation
@options.new_folder()
@options.days("How long the parties' certificates last.")
@click.option(
    "--submitter",
    "submitters",
    metavar="NAME",
    multiple=True,
    help="Who may submit jobs: a client, or somebody besides, who gets a kit too. May be repeated.",
)
@click.option("--ca-only", is_flag=True, help="Only the authority: parties make their keys with `secfc enroll`.")
@passphrases.option
@click.option("--no-passphrase", is_flag=True, help="Leave ca.key unencrypted: whoever copies it can use it.")
@options.as_json("Print one JSON object instead of a table.")
def command(
    federation_file: Path,
    out: Path,
    days: int,
    submitters: tuple[str, ...],
    ca_only: bool,
    passphrase_file: Path | None,
    no_passphrase: bool,
    as_json: bool,
) -> None:
    """Make a certificate authority and one kit (folder) for the server and for each client.

    \b
    DIR/ca/       the authority's certificate, its key, and the signed roster
    DIR/server/   the server's kit: federation.toml, ca.pem, cert.pem, key.pem, roster.json
    DIR/NAME/     the same for each client

    A kit is all a party needs to prove who it is, so whoever has a kit can act as that party.
    Existing kits are never overwritten. The authority's key is encrypted with a passphrase, which is asked for twice.

    \b
    Example:
      secfc provision federation.toml --out kits
    """
    federation = federations.load(federation_file)
    passphrase = passphrases.of_new_key(passphrase_file, no_passphrase)
    if ca_only and submitters:
        raise InvalidInput(
            "with --ca-only nobody gets a kit; leave out --submitter, and grant the role with secfc sign"
        )
    made = provision(
        federation, out, days=days, ca_only=ca_only, passphrase=passphrase, submitters=tuple(dict.fromkeys(submitters))
    )
    if as_json:
        click.echo(json.dumps(_report(federation, made)))
    elif ca_only:
        click.echo(f"{made.ca}: the authority. Keep it offline: whoever has ca.key can pretend to be anybody.")
        click.echo(f"Its fingerprint, to be read out to every party over the telephone:\n\n  {made.authority}\n")
        click.echo(f"Next: each party runs `secfc enroll`; answer with  secfc sign ... --ca {made.ca}")
    else:
        _show(federation, made)
    if federation.uploads != DEFAULT:
        click.echo(f"warning: {MEANING[federation.uploads]}", err=True)
    if no_passphrase:
        click.echo(
            f"{made.ca / 'ca.key'} is NOT encrypted, as --no-passphrase says: whoever copies it can use it.", err=True
        )


def _report(federation: Federation, made: Provisioned) -> dict[str, object]:
    """What was made, for machines."""
    return {
        "federation": federation.name,
        "digest": federation.agreed().hex(),
        "ca": str(made.ca),
        "authority_fingerprint": made.authority,
        "expires": made.expires.isoformat(),
        "kits": [{"party": kit.name, "path": str(kit), "names": list(_names(federation, kit))} for kit in made.kits],
    }


def _names(federation: Federation, kit: Path) -> tuple[str, ...]:
    submits = kit.name not in (federations.SERVER, *federation.roster)
    return subject_names(federation.name, roles.party(federation, kit.name, submits=submits))


def _show(federation: Federation, made: Provisioned) -> None:
    """What was made, for people, and what they should do with it."""
    table = Table(title=f"Kits of {federation.name}", title_justify="left")
    for heading in ("party", "kit", "addresses in the certificate", "expires"):
        table.add_column(heading, overflow="fold")
    for kit in made.kits:
        names = "\n".join(name for name in _names(federation, kit) if not name.endswith(IDENTITY_DOMAIN))
        table.add_row(kit.name, str(kit), names, made.expires.strftime("%Y-%m-%d"))
    console = Console(highlight=False, markup=False)
    console.print(table)
    console.print(
        "Next:\n"
        "  1. Copy each kit to its party's machine over a secure channel, and delete it here; it holds a key.\n"
        f"  2. Keep {made.ca} offline: whoever has ca.key can pretend to be anybody in this federation.\n"
        "  3. Start  secfc-server --kit DIR  and, on each client,\n"
        f"     secfc-client --kit DIR {'--dataset NAME=FILE' if federation.stays else '--data FILE --out FILE'}",
        soft_wrap=True,
    )
