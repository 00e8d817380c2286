"""Sealed rounds: the server and one committee member together know what the server knows in masked rounds; without a member's
help it learns assignments and the final inertia, no distances (docs/sealed.md)."""

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
    opens_inertia=lambda request: not request.past and sealing.Detail.from_bytes(request.detail).opens_inertia,
    empties="largest",
    members=lambda plan: plan.wishes.privacy + 1,
    draw_bits=lambda plan: plan.sealed(1).draw_bits,
    committee=sealing.committee_of,
)
