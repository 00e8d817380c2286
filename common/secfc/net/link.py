"""One try at getting a message to another party, directly over gRPC. Trying again is the outbox's business.

Who a party is, is its certificate, whatever way a message takes: another link may carry the same messages another way.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

from grpc import aio

from secfc.agreement.federation import SERVER
from secfc.errors import SecfcError, Unavailable
from secfc.net import admission, rpc, wire
from secfc.pki import probe
from secfc.pki.kit import Kit
from secfc.protocol import messages, transfer
from secfc.protocol.parcels import Body, Data, Kind, Parcel, Whole
from secfc.protocol.transfer import FIRST_BYTES
from secfc.v1 import secfc_pb2 as pb
from secfc.v1 import secfc_pb2_grpc as grpc_stubs

CALL_SECONDS = 30.0
DELIVERY_SECONDS = 3600.0
SILENCE_SECONDS = 40.0  # the server gives a sign of life every 10 s


class Link:
    """One connection to each party, opened when it is first needed."""

    def __init__(self, kit: Kit) -> None:
        self._kit = kit
        self._channels: dict[str, admission.Channel] = {}
        self._arrived: dict[tuple[str, Parcel], int] = {}  # bytes of what did not get through at the first try
        self._smooth: set[str] = set()  # parties that the last delivery got through to

    def _channel(self, party: str) -> admission.Channel:
        if party not in self._channels:
            self._channels[party] = rpc.channel(self._kit, party, self._address(party))
        return self._channels[party]

    def server(self) -> admission.Channel:
        """The connection to the server."""
        return self._channel(SERVER)

    def _address(self, party: str) -> str:
        return self._kit.federation.party(party).address

    async def close(self) -> None:
        for channel in self._channels.values():
            await channel.close()
        self._channels = {}

    # --- parcels -----------------------------------------------------------------------------------------------------------

    async def deliver(self, to: str, parcel: Parcel, body: Body) -> int:
        """All of a parcel, from where an earlier try stopped; returns how many bytes went. Raises one of our errors; a broken
        link as Unavailable."""
        stub = grpc_stubs.ExchangeStub(self._channel(to))
        known, key = 0, (to, parcel)
        try:
            with rpc.link(whom(to)):
                if key in self._arrived or parcel.kind is Kind.SHARES:  # which may be there from an earlier job
                    reply = await stub.Progress(wire.to_message(parcel), timeout=CALL_SECONDS)
                    known = self._arrived[key] = reply.received
                self._arrived.setdefault(key, 0)
                await _carry(stub, parcel, body, known, transfer.PIECE_BYTES if to in self._smooth else FIRST_BYTES)
        except SecfcError:
            self._smooth.discard(to)
            raise
        self._arrived.pop(key, None)
        self._smooth.add(to)
        return max(body.total - known, 0)

    def arrived(self, to: str, parcel: Parcel) -> int:
        """How much of a parcel that did not get through had arrived, as far as is known."""
        return self._arrived.get((to, parcel), 0)

    # --- the server ------------------------------------------------------------------------------------------------------

    async def report(self, report: messages.Report, instance: bytes) -> None:
        stub = grpc_stubs.CoordinatorStub(self._channel(SERVER))
        with rpc.link(whom(SERVER)):
            await stub.Report(wire.report_to(report, instance), timeout=CALL_SECONDS)

    async def join(self, join: messages.Join) -> None:
        stub = grpc_stubs.CoordinatorStub(self._channel(SERVER))
        with rpc.link(whom(SERVER)):
            await stub.Join(wire.join_to(join), timeout=CALL_SECONDS)

    async def follow(self, instance: bytes) -> AsyncIterator[messages.Event]:
        """What the server says, until the stream ends; raises Unavailable if it breaks or falls silent."""
        stub = grpc_stubs.CoordinatorStub(self._channel(SERVER))
        stream = stub.Follow(pb.FollowRequest(instance=instance))
        try:
            while True:
                with rpc.link(whom(SERVER)):
                    async with asyncio.timeout(SILENCE_SECONDS):
                        message = await stream.read()
                if message is aio.EOF:
                    raise Unavailable("the server ended the stream")
                yield wire.event_from(message)
        except TimeoutError:
            raise Unavailable(f"the server has said nothing for {SILENCE_SECONDS:.0f} s") from None
        finally:
            stream.cancel()

    async def explained(self, party: str, error: Unavailable) -> Unavailable:
        """The same with what is really wrong with the link, as far as a plain TLS connection finds it."""
        address = self._address(party)
        findings = await asyncio.to_thread(probe.probe, self._kit, party, address)
        wrong = next((finding.detail for finding in findings if not finding.ok), "")
        return Unavailable(wrong) if wrong else error


def whom(party: str) -> str:
    return "the server" if party == SERVER else party


async def _carry(stub: grpc_stubs.ExchangeStub, parcel: Parcel, body: Body, known: int, size: int) -> None:
    """All bytes that are not `known`, in one call; pieces begin with `size` bytes."""
    if isinstance(body, Whole) and not known and body.total <= size:
        await stub.Hand(wire.piece_to(parcel, 0, body.total, body.data, body.seconds), timeout=DELIVERY_SECONDS)
    elif known < body.total or not body.total:
        cut = transfer.pieces(body, known, size)
        await stub.Deliver(_pieces(parcel, body, cut), timeout=DELIVERY_SECONDS)


async def _pieces(parcel: Parcel, body: Body, cut: Iterator[tuple[int, Data]]) -> AsyncIterator[pb.Piece]:
    seconds = body.seconds if isinstance(body, Whole) else 0.0
    ready = isinstance(body, Whole)
    while (piece := next(cut, None) if ready else await asyncio.to_thread(_next, cut)) is not None:
        yield wire.piece_to(parcel, piece[0], body.total, piece[1], seconds)


def _next(cut: Any) -> Any:
    return next(cut, None)
