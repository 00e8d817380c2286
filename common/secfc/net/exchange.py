"""The Exchange service, run by every party: a thin adapter between gRPC and a machine that takes parcels."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Protocol

from secfc.errors import Unavailable
from secfc.net import rpc, turns, wire
from secfc.net.driver import Driver
from secfc.protocol.effects import Arrived
from secfc.protocol.parcels import Parcel
from secfc.v1 import secfc_pb2 as pb
from secfc.v1 import secfc_pb2_grpc as grpc_stubs

AT_ONCE = 16  # deliveries per peer
Takes = Callable[[Arrived], Awaitable[None]]


class TakesParcels(Protocol):
    """A machine that knows what is due from whom."""

    def progress(self, sender: str, parcel: Parcel) -> int: ...


class Exchange(grpc_stubs.ExchangeServicer):  # type: ignore[misc]
    """Feeds a machine with pieces of parcels."""

    def __init__(self, machine: TakesParcels, driver: Driver, federation: str) -> None:
        self._machine, self._driver, self._federation = machine, driver, federation
        self._turns, self._newest = turns.Limit(AT_ONCE), turns.Newest()

    async def Progress(self, request: pb.Parcel, context: Any) -> pb.Received:
        received = 0
        async with rpc.refusing(context):
            sender = rpc.caller(context, self._federation)
            received = self._machine.progress(sender, wire.parcel_from(request))
            await self._driver.kept()  # what we say is here does not come again
        return pb.Received(received=received)

    async def Hand(self, request: pb.Piece, context: Any) -> pb.Received:
        received = 0
        async with rpc.refusing(context):
            sender = rpc.caller(context, self._federation)
            with self._turns.turn(sender):
                piece = wire.arrived_from(sender, request)
                await self._driver.take(piece)
                received = piece.offset + len(piece.data)
        return pb.Received(received=received)

    async def Deliver(self, request_iterator: AsyncIterator[pb.Piece], context: Any) -> pb.Received:
        received = 0
        async with rpc.refusing(context):
            sender = rpc.caller(context, self._federation)
            with self._turns.turn(sender), self._newest.delivery() as delivery:
                async for message in turns.moving(aiter(request_iterator), delivery):
                    piece = wire.arrived_from(sender, message)
                    self._newest.begin((sender, piece.parcel), delivery)
                    await self._driver.take(piece)
                    received = piece.offset + len(piece.data)
        return pb.Received(received=received)


class CurrentExchange(grpc_stubs.ExchangeServicer):  # type: ignore[misc]
    """For a party that stays: parcels go to the job that is running now, if one is."""

    def __init__(self) -> None:
        self.now: Exchange | None = None

    async def _running(self, context: Any) -> Exchange:
        if self.now is None:
            async with rpc.refusing(context):
                raise Unavailable("no job is running here now")
        return self.now

    async def Progress(self, request: pb.Parcel, context: Any) -> pb.Received:
        return await (await self._running(context)).Progress(request, context)

    async def Hand(self, request: pb.Piece, context: Any) -> pb.Received:
        return await (await self._running(context)).Hand(request, context)

    async def Deliver(self, request_iterator: AsyncIterator[pb.Piece], context: Any) -> pb.Received:
        return await (await self._running(context)).Deliver(request_iterator, context)
