"""What a firewall administrator must allow for one party, as one line per rule."""

from __future__ import annotations

from secfc.agreement.federation import SERVER, Federation
from secfc.agreement.parties import Party, split_address
from secfc.pki import proxies
from secfc_client.commands.checks.verdicts import OK, Verdict


def rules(federation: Federation, me: Party) -> list[Verdict]:
    """Every connection that this party makes or takes; nothing else is needed."""
    return [Verdict("firewall", OK, rule) for rule in (*_inbound(federation, me), *_outbound(federation, me))]


def _inbound(federation: Federation, me: Party) -> list[str]:
    if not federation.dialled(me.name):
        return ["inbound: nothing"]
    callers = "every client" if me.name == SERVER else "the other clients"
    return [f"inbound: allow TCP to port {split_address(me.bind)[1]} of this machine, from {callers}"]


def _outbound(federation: Federation, me: Party) -> list[str]:
    if me.name == SERVER:
        return ["outbound: nothing"]
    dialled = [client for client in federation.clients if client is not me and federation.dialled(client.name)]
    wanted = "" if federation.relay == "never" else " (if it is blocked, the server is used instead)"
    lines = [_to("server", federation.server), *(_to(client.name, client) + wanted for client in dialled)]
    return list(dict.fromkeys(lines))


def _to(name: str, party: Party) -> str:
    if (proxy := proxies.named(party.host)) is not None:
        return f"outbound: allow CONNECT to {party.host} port {party.port} ({name}) at the proxy of {proxy[0]}"
    return f"outbound: allow TCP to {party.host} port {party.port} ({name})"
