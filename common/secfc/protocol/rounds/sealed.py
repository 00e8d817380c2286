"""Sealed rounds: the server learns assignments, never distances. The server and one committee member together know what the
server knows in masked rounds (docs/sealed.md)."""

from __future__ import annotations

from secfc.protocol.rounds import sealing
from secfc.protocol.rounds.kinds import RoundKind
from secfc.protocol.rounds.sealed_client import SealedClient
from secfc.protocol.rounds.sealed_server import SealedServer

KIND = RoundKind(
    server=SealedServer,
    client=SealedClient,
    shows_segments=False,
    shows_distances=False,
    empties="largest",
    draw_bits=lambda plan: plan.sealed(1).draw_bits,
    committee=sealing.committee_of,
)
