"""`secfc sign`: the authority's answer to `secfc enroll`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from secfc.agreement import federation as federations
from secfc.commands import options, passphrases
from secfc.pki import authority as authorities
from secfc.pki import certificates, enrolment, signedroster
from secfc.pki.provision import authority_fingerprint


@click.command("sign")
@options.federation
@click.argument("request_file", metavar="REQUEST.PEM", type=options.PATH)
@options.authority
@click.option(
    "--fingerprint", required=True, metavar="HEX", help="As the site told you; spaces and case do not matter."
)
@options.role("Grant the right to submit jobs, which the request must ask for.")
@options.new_folder()
@options.days("How long the certificate lasts.")
@passphrases.option
@options.as_json()
def command(
    federation_file: Path,
    request_file: Path,
    ca: Path,
    fingerprint: str,
    role: str | None,
    out: Path,
    days: int,
    passphrase_file: Path | None,
    as_json: bool,
) -> None:
    """Answer a site's request: DIR gets cert.pem, ca.pem, roster.json and federation.toml, a kit without its key.

    Names and addresses in the certificate are those of FEDERATION.TOML; of the request only the key is used. The
    fingerprint must come from the site itself, over a channel on which you know who is speaking. The certificate replaces one
    that the party had before: that is how one certificate is renewed. The next version of the signed roster, in which it is
    in force, is in the answer and in the authority's folder; all parties need it.

    \b
    Example:
      secfc provision federation.toml --out authority --ca-only
      secfc sign federation.toml request.pem --ca authority/ca --fingerprint "1a2b ..." --out answer
    """
    federation = federations.load(federation_file)
    request = enrolment.read_request(certificates.read_pem(request_file), federation)
    authority = authorities.load(ca, federation.name, lambda: passphrases.of_key(passphrase_file))
    certificate = enrolment.sign(
        authority, ca, federation, request, fingerprint, out, days=days, submits=role is not None
    )
    name, expires, spoken = (
        request.party.name,
        certificate.not_valid_after_utc,
        authority_fingerprint(authority.certificate),
    )
    if as_json:
        told = {"party": name, "answer": str(out), "expires": expires.isoformat(), "authority_fingerprint": spoken}
        click.echo(json.dumps(told))
        return
    click.echo(f"{out}: the answer for {name}, valid until {expires:%Y-%m-%d}. It holds no secret; send it.")
    click.echo(
        f"Read the authority's fingerprint out to {name} over the telephone; `secfc accept` asks for it:\n\n  {spoken}\n"
    )
    click.echo(f"When all parties have certificates, send {ca / signedroster.FILE} to every party, for its kit.")
