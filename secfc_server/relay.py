"""The Relay service: a thin adapter between gRPC streams and the switchboard."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from secfc.agreement.federation import Federation
from secfc.errors import Malformed, OutOfTurn, Unavailable
from secfc.net import rpc, turns, wire
from secfc.protocol.server.relay import Line, Switchboard
from secfc.v1 import secfc_pb2 as pb
from secfc.v1 import secfc_pb2_grpc as grpc_stubs

SILENT_STREAMS, SILENT_SECONDS = 4, 30.0  # of one client that have said nothing yet, and for how long


class Relay(grpc_stubs.RelayServicer):  # type: ignore[misc]
    """Hands envelopes from one client's stream to another's."""

    def __init__(self, federation: Federation) -> None:
        self._federation = federation
        self._board: Switchboard[pb.Envelope] = Switchboard(federation.roster)
        self._news: dict[Line[pb.Envelope], asyncio.Event] = {}  # there is something to hand over
        self._room = asyncio.Condition()
        self._silent = turns.Limit(SILENT_STREAMS)

    async def Carry(self, request_iterator: AsyncIterator[pb.Envelope], context: Any) -> AsyncIterator[pb.Carried]:
        async with rpc.refusing(context):
            if self._federation.relay == "never":
                raise OutOfTurn('this federation has relay = "never": clients dial each other')
            sender = rpc.caller(context, self._federation.name)
            if (first := await self._first(sender, request_iterator)) is None:
                return  # somebody who only tries whether it gets here
            line = self._board.connect(sender)
        self._news[line] = asyncio.Event()
        self._wake(*self._news)
        reading = asyncio.ensure_future(self._read(line, first, request_iterator))
        reading.add_done_callback(lambda _: self._wake(line))
        try:
            async for message in self._handed(line, reading):
                yield message
            async with rpc.refusing(context):
                await reading
        finally:
            reading.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):  # said above, if there was anybody to hear it
                await reading
            del self._news[line]
            self._wake(*self._board.disconnect(line))
            async with self._room:
                self._room.notify_all()

    async def _first(self, sender: str, envelopes: AsyncIterator[pb.Envelope]) -> pb.Envelope | None:
        with self._silent.turn(sender):
            try:
                async with asyncio.timeout(SILENT_SECONDS):
                    return await anext(envelopes, None)
            except TimeoutError:
                raise Unavailable(f"nothing has come for {SILENT_SECONDS:.0f} s; connect again") from None

    def _wake(self, *lines: Line[pb.Envelope]) -> None:
        for line in lines:
            if line in self._news:
                self._news[line].set()

    async def _read(self, line: Line[pb.Envelope], first: pb.Envelope, others: AsyncIterator[pb.Envelope]) -> None:
        """Until the client ends its stream. Where there is no room, nothing is read, and so in the end nothing sent."""
        await self._post(line, first)
        async for message in others:
            await self._post(line, message)

    async def _post(self, line: Line[pb.Envelope], message: pb.Envelope) -> None:
        size = message.ByteSize()
        if size > wire.MAX_ENVELOPE:
            raise Malformed(f"an envelope has at most {wire.MAX_ENVELOPE} bytes, not {size}")
        to, message.peer = message.peer, line.name
        while (waits_at := self._board.post(line, to, message, size)) is None:
            async with self._room:
                await self._room.wait()
        self._wake(waits_at)

    async def _handed(self, line: Line[pb.Envelope], reading: asyncio.Task[None]) -> AsyncIterator[pb.Carried]:
        news = self._news[line]
        while self._board.connected(line):
            news.clear()
            while line.away:
                yield pb.Carried(away=pb.Away(peer=line.away.popleft()))
            if (found := line.next()) is not None:
                yield pb.Carried(envelope=found)
                async with self._room:
                    self._room.notify_all()
            elif reading.done():
                return
            else:
                await news.wait()
