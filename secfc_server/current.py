"""The Coordinator service of a server that stays: what the clients of a job call is answered by that job's own service."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from secfc.errors import OutOfTurn, Unavailable
from secfc.net import rpc
from secfc.v1 import secfc_pb2 as pb
from secfc.v1 import secfc_pb2_grpc as grpc_stubs
from secfc_server.run import ServerRun


class CurrentCoordinator(grpc_stubs.CoordinatorServicer):  # type: ignore[misc]
    """Calls go to the job that is running now, if one is."""

    def __init__(self) -> None:
        self.now: ServerRun | None = None
        self.last: ServerRun | None = None  # of which `secfc status` hears while nothing runs

    async def _running(self, context: Any) -> ServerRun:
        if self.now is None:
            async with rpc.refusing(context):
                raise Unavailable("no job is running now")
        return self.now

    async def Join(self, request: pb.JoinRequest, context: Any) -> pb.JoinReply:
        run = await self._running(context)
        async with rpc.refusing(context):
            if request.federation_digest != run.agreed:
                raise Unavailable("another job is running now")
        return await run.service.Join(request, context)

    async def Follow(self, request: pb.FollowRequest, context: Any) -> AsyncIterator[pb.Event]:
        run = await self._running(context)
        async with aclosing(run.service.Follow(request, context)) as events:  # type: ignore[type-var]
            async for event in events:
                yield event

    async def Report(self, request: pb.ReportRequest, context: Any) -> pb.ReportReply:
        return await (await self._running(context)).service.Report(request, context)

    async def Status(self, request: pb.StatusRequest, context: Any) -> pb.StatusReply:
        run = self.now or self.last
        if run is None:
            async with rpc.refusing(context):
                raise OutOfTurn("no job has run since this server was started; secfc jobs lists those it knows")
        return await run.service.Status(request, context)
