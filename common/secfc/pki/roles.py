"""Who may submit jobs: a right of its own in the certificate, given by the authority, to a site or to somebody who is none.

The right is a URI beside the party's names (`certificates.may_submit`). A submitter that is not in federation.toml has a kit
like any party, but takes no part: it has no address, brings no rows, and may call nothing but what a submitter needs
(`net.rpc`).
"""

from __future__ import annotations

from secfc.agreement import toml
from secfc.agreement.federation import RESERVED_NAMES, SERVER, Federation
from secfc.agreement.parties import Party
from secfc.errors import ConfigError

SUBMITTER = "submitter"


def party(federation: Federation, name: str, *, submits: bool) -> Party:
    """The party of that name: of the federation file, or, with the right, somebody besides."""
    if name == SERVER and submits:
        raise ConfigError(
            "the server cannot submit jobs: a site could not tell a job that people want from one it made up"
        )
    if not submits or name in (SERVER, *federation.roster):
        return federation.party(name)
    if name in RESERVED_NAMES:
        raise ConfigError(f'a submitter cannot be called "{name}", the name is reserved; choose another')
    return Party(toml.Table({"name": name}, "--as", "", ("name",)).label("name"), "", "")
