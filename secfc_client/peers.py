"""Shares from client to client: the ShareExchange service, and deliveries to everybody else.

"Send this to that client" is behind `Peers`, the one place to change for sites without inbound ports.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import numpy as np
from grpc import aio

from secfc import events, rpc, tlsprobe, wire
from secfc.errors import ConfigError, Malformed, OutOfTurn, SecfcError, Unavailable
from secfc.field import Words
from secfc.kit import Kit
from secfc.logs import say
from secfc.v1 import secfc_pb2 as pb
from secfc.v1 import secfc_pb2_grpc as grpc_stubs
from secfc_client.participant import Participant
from secfc_client.store import Store

log = logging.getLogger("secfc.client")
_PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")  # what gRPC looks at, in its order
CALL_SECONDS = 30.0
DELIVERY_SECONDS = 3600.0
AT_ONCE = 2  # deliveries under way: bounds memory, and two already fill a link
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0
_REFUSALS = 5


class Exchange(grpc_stubs.ShareExchangeServicer):  # type: ignore[misc]
    """Takes in the shares that others deliver."""

    def __init__(self, participant: Participant, store: Store, settled: Callable[[], None]) -> None:
        self._participant, self._store, self._settled = participant, store, settled
        self._settling = asyncio.Lock()
        self.received_bytes = 0
        self.failure: ConfigError | None = None  # why shares cannot be kept; it ends this client, not their owner

    async def Progress(self, request: pb.ProgressRequest, context: Any) -> pb.ProgressReply:
        received = 0
        async with rpc.refusing(context):
            owner = rpc.caller(context, self._participant.federation.name)
            received = self._participant.progress(owner, request.session, request.share_set)
            if not received and self._store.resumed:  # they may be on our disk
                await self._restore(owner)
                received = self._participant.progress(owner, request.session, request.share_set)
            await self._settle_delivered(owner)  # an earlier delivery may have broken after its last word
        return pb.ProgressReply(received=received)

    async def Deliver(self, request_iterator: AsyncIterator[pb.ShareChunk], context: Any) -> pb.ShareReceipt:
        received = 0
        async with rpc.refusing(context):
            owner = rpc.caller(context, self._participant.federation.name)
            async for message in request_iterator:
                chunk = wire.chunk_from(message)
                received = self.take(owner, message.session, message.share_set, chunk)
            await self._settle_delivered(owner)
        return pb.ShareReceipt(received=received)

    async def Fetch(self, request: pb.FetchRequest, context: Any) -> AsyncIterator[pb.ShareChunk]:
        words = np.empty(0, dtype=np.uint64)
        async with rpc.refusing(context):
            receiver = rpc.caller(context, self._participant.federation.name)
            self._participant.asked(receiver, request.session, request.share_set)
            stage = self._participant.stage
            words = await asyncio.to_thread(stage.outgoing, self._participant.peer(receiver))
        for chunk in wire.chunks(words, request.offset):
            yield share_chunk(request.session, request.share_set, chunk)

    async def Confirm(self, request: pb.Confirmation, context: Any) -> pb.Confirmation:
        reply = None
        async with rpc.refusing(context):
            sender = rpc.caller(context, self._participant.federation.name)
            reply = self._participant.confirm(sender, wire.confirmed_from(request))
        return wire.confirmed_to(reply) if reply else pb.Confirmation()

    async def OpenCenters(self, request_iterator: AsyncIterator[pb.CentersChunk], context: Any) -> pb.CentersReceipt:
        async with rpc.refusing(context):
            sender = rpc.caller(context, self._participant.federation.name)
            async for message in request_iterator:
                self._participant.take_centers(sender, wire.centers_from(message))
        return pb.CentersReceipt()

    def take(self, owner: str, session: bytes, share_set: bytes, chunk: events.Chunk) -> int:
        """A piece of an owner's shares, delivered or fetched."""
        received = self._participant.receive(owner, session, share_set, chunk)
        self.received_bytes += chunk.words.nbytes
        return received

    async def settle(self, owner: str) -> None:
        """If an owner's shares are complete: on disk first, then into use."""
        async with self._settling:
            me = self._participant
            stage, j = me.stage, me.peer(owner)  # the stage may change while we wait for the disk
            words = stage.complete(j)
            if words is not None:
                await self._keep(stage.ids[j], owner, words)
                await asyncio.to_thread(stage.settle, j, words)
        self._settled()

    async def keep_own(self) -> None:
        """Our own shares; not while others' are put to use, since they may be added to the same sum."""
        async with self._settling:
            await asyncio.to_thread(self._participant.stage.keep_own)
        self._settled()

    async def _keep(self, share_set: bytes, owner: str, words: Words) -> None:
        try:
            await asyncio.to_thread(self._store.keep_shares, share_set, owner, words)
        except ConfigError as error:
            self.failure = error
            self._settled()
            raise

    async def _settle_delivered(self, owner: str) -> None:
        """`settle`, where the owner hears how it went: it has done nothing wrong, and tries again when we are back."""
        try:
            await self.settle(owner)
        except ConfigError:
            raise Unavailable("it cannot keep shares on its disk, and stops; its log says why") from None

    async def restore(self) -> list[str]:
        """Take what an earlier process of this client received; returns whose shares are lacking."""
        me = self._participant
        for owner in me.missing():
            if owner != me.name:
                await self._restore(owner)
        self._settled()
        return [owner for owner in me.missing() if owner != me.name]

    async def _restore(self, owner: str) -> None:
        """Put an owner's shares to use that are on our disk, whole."""
        stage, j = self._participant.stage, self._participant.peer(owner)
        async with self._settling:
            words = await asyncio.to_thread(self._store.shares, stage.ids[j], owner, stage.due(j))
            if words is not None:
                await asyncio.to_thread(stage.settle, j, words)


class Peers:
    """Deliveries to every other client, each retried until it is done."""

    def __init__(self, kit: Kit, participant: Participant, tell: Callable[[str, str], Awaitable[None]]) -> None:
        """`tell(peer, reason)` reports a broken link to the server; an empty reason: it is back."""
        self._kit, self._participant, self._tell = kit, participant, tell
        self._slots = asyncio.Semaphore(AT_ONCE)
        self.sent_bytes = 0

    async def deliver_all(self) -> None:
        """Deliver our shares to everybody; returns when all have them, and never gives up by itself."""
        others = [name for name in self._participant.federation.roster if name != self._participant.name]
        random.shuffle(others)  # so that not all clients begin with the same one
        async with asyncio.TaskGroup() as group:
            for name in others:
                group.create_task(self._deliver(name))

    async def fetch(self, exchange: Exchange, owners: Sequence[str]) -> None:
        """Ask owners for shares that we lack; each as soon as it can be reached. Returns when all are here."""
        async with asyncio.TaskGroup() as group:
            for owner in owners:
                group.create_task(self._fetch(exchange, owner))

    async def _fetch(self, exchange: Exchange, owner: str) -> None:
        me, pause = self._participant, _FIRST_PAUSE
        address = me.federation.client(owner).address
        share_set = me.share_id(owner)
        async with rpc.channel(self._kit, owner, address) as channel:
            stub = grpc_stubs.ShareExchangeStub(channel)
            while owner in me.missing():
                try:
                    offset = me.progress(owner, me.session, share_set)
                    request = pb.FetchRequest(session=me.session, share_set=share_set, offset=offset)
                    async for message in stub.Fetch(request, timeout=DELIVERY_SECONDS):
                        exchange.take(owner, message.session, message.share_set, wire.chunk_from(message))
                    await exchange.settle(owner)
                except aio.AioRpcError as error:
                    refused = rpc.error_of(error, owner)
                    if not isinstance(refused, OutOfTurn | Unavailable):
                        raise refused from None
                except Malformed:  # the owner delivers them by itself at the same time
                    say(log, "shares come by another way", owner=owner)
                await asyncio.sleep(pause * random.uniform(0.7, 1.3))
                pause = min(2 * pause, _LONGEST_PAUSE)

    async def _deliver(self, peer: str) -> None:
        address = self._participant.federation.client(peer).address
        pause, told, refusals = _FIRST_PAUSE, "", 0
        async with rpc.channel(self._kit, peer, address) as channel:
            stub = grpc_stubs.ShareExchangeStub(channel)
            while True:
                try:
                    async with self._slots:
                        await self._attempt(stub, peer)
                    break
                except OutOfTurn:  # it does not know the roster yet
                    pause = _FIRST_PAUSE
                except Malformed:  # it has restarted and fetches the same words at the same time
                    refusals += 1
                    if refusals > _REFUSALS:
                        raise
                except Unavailable as error:
                    told = await self._complain(peer, address, error, told)
                await asyncio.sleep(pause * random.uniform(0.7, 1.3))
                pause = min(2 * pause, _LONGEST_PAUSE)
        if told:
            say(log, "link is back", peer=peer)
            await self._tell(peer, "")

    async def _attempt(self, stub: Any, peer: str) -> None:
        """One delivery, from where the last one stopped."""
        me = self._participant
        try:
            stage = me.stage
            request = pb.ProgressRequest(session=me.session, share_set=stage.id)
            known = await stub.Progress(request, timeout=CALL_SECONDS, wait_for_ready=False)
            words = await asyncio.to_thread(stage.outgoing, me.peer(peer))
            if known.received < len(words) or not len(words):
                chunks = self._chunks(me.session, stage.id, words, known.received)
                await stub.Deliver(chunks, timeout=DELIVERY_SECONDS)
        except aio.AioRpcError as error:
            raise rpc.error_of(error, peer) from None

    async def _chunks(self, session: bytes, share_set: bytes, words: Words, first: int) -> AsyncIterator[pb.ShareChunk]:
        for chunk in wire.chunks(words, first):
            self.sent_bytes += chunk.words.nbytes
            yield share_chunk(session, share_set, chunk)

    async def _complain(self, peer: str, address: str, error: SecfcError, told: str) -> str:
        """Say, once for each reason, here and to the server, which link is broken and why."""
        reason = await why_unreachable(self._kit, peer, address) or str(error)
        if reason != told:
            say(log, "cannot reach a client", level=logging.WARNING, peer=peer, address=address, reason=reason)
            await self._tell(peer, reason)
        return reason


def share_chunk(session: bytes, share_set: bytes, chunk: events.Chunk) -> pb.ShareChunk:
    """A piece of shares as a message."""
    return pb.ShareChunk(
        session=session,
        share_set=share_set,
        offset=chunk.offset,
        total=chunk.total,
        words=wire.word_bytes(chunk.words),
    )


async def why_unreachable(kit: Kit, party: str, address: str) -> str:
    """What a plain TLS connection finds wrong, where gRPC only says that it failed; empty if it finds nothing."""
    findings = await asyncio.to_thread(tlsprobe.probe, kit, party, address)
    wrong = next((finding.detail for finding in findings if not finding.ok), "")
    proxy = next((name for name in _PROXIES if os.environ.get(name)), "")
    if not wrong and proxy:
        return f"a direct connection works, but gRPC goes through {proxy}; add {address} to no_proxy"
    return wrong
