"""Open rounds, the paper's: the server sees every responder's coded distances, so it can tell who lies, and sees segments."""

from __future__ import annotations

from collections.abc import Sequence

from secfc.agreement.plan import Plan
from secfc.kmeans.decoding import Decoder
from secfc.kmeans.distances import CodedClusters, Pattern
from secfc.privacy.checking import Check
from secfc.protocol.messages import RoundRequest
from secfc.protocol.parcels import Body
from secfc.protocol.rounds.kinds import Holding, RoundKind
from secfc.protocol.rounds.uploads import UploadsClient, UploadsServer, body_of


def _decoder(plan: Plan, shape: Pattern, responders: Sequence[int]) -> Decoder:
    """R uploads are summed; with liars planned for, all are checked."""
    check = Check(plan.code, shape.layout, responders) if plan.wishes.liars else None
    return Decoder(shape, responders, plan.code.weights(responders[: plan.responders]), check)


def _upload(holding: Holding, clusters: CodedClusters, shape: Pattern, request: RoundRequest) -> Body:
    return body_of(clusters, shape)


KIND = RoundKind(
    server=lambda plan, rows, _session, _before: UploadsServer(plan, rows, _decoder),
    client=lambda holding: UploadsClient(holding, _upload),
    shows_segments=True,
)
