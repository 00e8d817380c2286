"""Round kinds: how the server comes by an answer. Each is a pair of halves, one for the server and one for the clients."""

from __future__ import annotations

from secfc.agreement.plan import Plan
from secfc.protocol.rounds import masked, open, sealed
from secfc.protocol.rounds.kinds import RoundKind

KINDS: dict[str, RoundKind] = {"open": open.KIND, "masked": masked.KIND, "sealed": sealed.KIND}


def kind_of(plan: Plan) -> RoundKind:
    """The kind that the federation has agreed on."""
    return KINDS[plan.wishes.uploads]
