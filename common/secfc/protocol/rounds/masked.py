"""Masked rounds: uploads are weighted and masked, and the server sees their sum, the distances d′, alone."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from secfc.agreement.plan import Plan
from secfc.framing import framed
from secfc.kmeans.decoding import Decoder
from secfc.kmeans.distances import CodedClusters, Pattern
from secfc.privacy import masks
from secfc.protocol.messages import RoundRequest
from secfc.protocol.parcels import Body
from secfc.protocol.rounds.kinds import Holding, RoundKind
from secfc.protocol.rounds.uploads import UploadsClient, UploadsServer, body_of


def _decoder(plan: Plan, shape: Pattern, responders: Sequence[int]) -> Decoder:
    return Decoder(shape, responders, None)


def _upload(holding: Holding, clusters: CodedClusters, shape: Pattern, request: RoundRequest) -> Body:
    plan, responders = holding.plan, request.responders
    weights = plan.code.weights(responders)[:, responders.index(holding.index)]
    return body_of(clusters, shape, weights, signed_keys(holding, shape, request))


def signed_keys(holding: Holding, shape: Pattern, request: RoundRequest) -> list[tuple[bytes, int]]:
    """The signed keys of this client's masks for one attempt."""
    context = masks.MaskContext(
        holding.session,
        holding.plan.digest,
        request.number,
        request.attempt,
        request.responders,
        request.assignment_digest,
        shape.columns,
        _rows_digest(request),
    )
    return masks.signed_keys(holding.index, holding.plan.wishes.privacy, context, holding.pairs)


def _rows_digest(request: RoundRequest) -> bytes:
    """What stands for some rows of columns. Which column an entry is about, only the columns of the whole request say."""
    columns = b",".join(b"%d" % h for h in request.columns)
    return hashlib.sha256(framed(columns, request.rows)).digest() if request.rows else b""


KIND = RoundKind(
    server=lambda plan, rows, _session, _before: UploadsServer(plan, rows, _decoder),
    client=lambda holding: UploadsClient(holding, _upload),
    shows_segments=False,
)
