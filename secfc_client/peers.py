"""Shares from client to client: the ShareExchange service, and deliveries to everybody else.

"Send this to that client" is behind `Peers`, the one place to change for sites without inbound ports.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager, suppress
from functools import partial
from typing import Any

import numpy as np
from grpc import aio

from secfc import events, rpc, tlsprobe, wire
from secfc.errors import ConfigError, Malformed, OutOfTurn, SecfcError, StorageError, Unavailable
from secfc.kit import Kit
from secfc.logs import say
from secfc.v1 import secfc_pb2 as pb
from secfc.v1 import secfc_pb2_grpc as grpc_stubs
from secfc_client import threads, turns
from secfc_client.participant import Participant
from secfc_client.stages import Stage
from secfc_client.store import Store
from secfc_client.turns import Limit, Newest

log = logging.getLogger("secfc.client")
_PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")  # what gRPC looks at, in its order
CALL_SECONDS = 30.0
DELIVERY_SECONDS = 3600.0
AT_ONCE = 2  # deliveries under way: bounds memory, and two already fill a link
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0
_REFUSALS = 5
_FETCHES = 2  # calls per peer: one that is read, and one that hangs on a connection nobody knows to be dead


class GaveUp(Unavailable):
    """A deadline has passed for good: trying again in this process is pointless."""


class Patience:
    """A deadline that moves on as long as there is progress."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self._seen = seconds, -1
        self._deadline = time.monotonic() + seconds

    def left(self, progress: int, whom: str) -> float:
        """Seconds left until we give up on somebody; raises GaveUp if none are. `progress` is any number that grows."""
        now = time.monotonic()
        if progress != self._seen:
            self._seen, self._deadline = progress, now + self.seconds
        if now >= self._deadline:
            raise GaveUp(f"{whom} for {self.seconds:.0f} s; start the same command again to go on")
        return self._deadline - now


class Exchange(grpc_stubs.ShareExchangeServicer):  # type: ignore[misc]
    """Takes in the shares that others deliver."""

    def __init__(self, participant: Participant, store: Store, settled: Callable[[], None]) -> None:
        self._participant, self._store, self._settled = participant, store, settled
        self._settling = asyncio.Lock()
        self._deliveries, self._fetches = Newest(), Limit(_FETCHES)
        self.received_bytes = 0
        self.failure: SecfcError | None = None  # why shares cannot be kept; it ends this client, not their owner

    async def Progress(self, request: pb.ProgressRequest, context: Any) -> pb.ProgressReply:
        received = 0
        async with rpc.refusing(context):
            owner = rpc.caller(context, self._participant.federation.name)
            received = self._participant.progress(owner, request.session, request.share_set)
            with self._blameless():
                if not received and self._store.resumed:  # they may be on our disk
                    await self._restore(owner)
                    received = self._participant.progress(owner, request.session, request.share_set)
                await self.settle(owner)  # an earlier delivery may have broken after its last word
        return pb.ProgressReply(received=received)

    async def Deliver(self, request_iterator: AsyncIterator[pb.ShareChunk], context: Any) -> pb.ShareReceipt:
        received = 0
        async with rpc.refusing(context):
            owner = rpc.caller(context, self._participant.federation.name)
            async with aclosing(self._deliveries.messages(owner, request_iterator)) as messages:
                async for message in messages:
                    chunk = wire.chunk_from(message)
                    received = self.take(owner, message.session, message.share_set, chunk)
            with self._blameless():
                await self.settle(owner)
        return pb.ShareReceipt(received=received)

    async def Fetch(self, request: pb.FetchRequest, context: Any) -> None:
        async with rpc.refusing(context):
            receiver = rpc.caller(context, self._participant.federation.name)
            self._participant.asked(receiver, request.session, request.share_set)
            stage, j = self._participant.stage, self._participant.peer(receiver)
            with self._fetches.turn(receiver), suppress(aio.InternalError):  # a write fails: the receiver is gone
                async for chunk in outgoing(stage, j, request.offset):
                    await turns.written(context.write(share_chunk(request.session, request.share_set, chunk)))

    async def Confirm(self, request: pb.Confirmation, context: Any) -> pb.Confirmation:
        reply = None
        async with rpc.refusing(context):
            sender = rpc.caller(context, self._participant.federation.name)
            reply = self._participant.confirm(sender, wire.confirmed_from(request))
        return wire.confirmed_to(reply) if reply else pb.Confirmation()

    async def OpenCenters(self, request_iterator: AsyncIterator[pb.CentersChunk], context: Any) -> pb.CentersReceipt:
        async with rpc.refusing(context):
            sender = rpc.caller(context, self._participant.federation.name)
            answer: list[bytes] = []
            known = self._has_answered(sender)
            async for message in request_iterator:
                over = self._has_answered(sender)
                self._participant.take_centers(sender, wire.centers_from(message))
                if not over and (message.words or not answer):  # those that say nothing new need no room
                    answer = [*(answer if message.offset else []), message.SerializeToString()]
            if not known and self._has_answered(sender):
                with self._blameless():
                    await self._keep_answer(sender, answer)
        return pb.CentersReceipt()

    def _has_answered(self, sender: str) -> bool:
        return self._participant.peer(sender) in self._participant.centers().answered

    async def _keep_answer(self, sender: str, answer: Sequence[bytes]) -> None:
        """On disk before the receipt: the sender does not come again, even if we are killed before the centres are open."""
        await threads.whole(self._store.keep_answer, sender, self._participant.session, answer)

    def restore_answers(self) -> None:
        """Take what an earlier process of this client was answered about the centres of the same final assignment."""
        for sender, messages in self._store.answers(self._participant.session).items():
            try:
                for message in map(pb.CentersChunk.FromString, messages):  # sealed, so they are whole
                    self._participant.take_centers(sender, wire.centers_from(message))
            except SecfcError as error:
                say(log, "a kept answer is of no use", level=logging.WARNING, client=sender, reason=str(error))

    def take(self, owner: str, session: bytes, share_set: bytes, chunk: events.Chunk) -> int:
        """A piece of an owner's shares, delivered or fetched."""
        received = self._participant.receive(owner, session, share_set, chunk)
        self.received_bytes += chunk.words.nbytes
        return received

    async def settle(self, owner: str) -> None:
        """If an owner's shares are complete: on disk first, then into use."""
        stage, j = self._participant.stage, self._participant.peer(owner)  # the stage may change while we wait
        async with self._settling:
            words = stage.complete(j)
            if words is not None:
                keep = partial(self._store.keep_shares, lasting=self._participant.may_keep(owner))
                await threads.whole(keep, stage.ids[j], owner, words)
                await threads.whole(stage.settle, j, words)
        self._settled()

    async def keep_own(self, stage: Stage) -> None:
        """Our own shares of a stage; not while others' are put to use, since they may be added to the same sum."""
        async with self._settling:
            await threads.whole(stage.keep_own)
        self._settled()

    @contextmanager
    def _blameless(self) -> Iterator[None]:
        """Around what we do with our own disk while a peer waits: if it fails, we end. The peer has done nothing wrong,
        and tries again when we are back."""
        try:
            yield
        except (ConfigError, StorageError) as error:
            self.failure = error
            self._settled()
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
            words = await threads.whole(self._store.shares, stage.ids[j], owner, stage.due(j))
            if not self._participant.may_keep(owner):
                await threads.whole(self._store.forget_after_job, owner)
            if words is not None:
                await threads.whole(stage.settle, j, words)


class Peers:
    """Deliveries to every other client, each retried until it is done or nothing has moved for a long time."""

    def __init__(
        self,
        kit: Kit,
        participant: Participant,
        tell: Callable[[str, str], Awaitable[None]],
        seconds: float = DELIVERY_SECONDS,
    ) -> None:
        """`tell(peer, reason)` reports a broken link to the server; an empty reason: it is back. `seconds`: how long to go
        on without any progress."""
        self._kit, self._participant, self._tell, self._seconds = kit, participant, tell, seconds
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._arrived: dict[str, int] = {}  # words of ours that a peer says it has
        self.sent_bytes = 0

    async def deliver_all(self) -> None:
        """Deliver our shares to everybody; returns when all have them."""
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
        me, pause, arrived, patience = self._participant, _FIRST_PAUSE, 0, Patience(self._seconds)
        address, stage, share_set = me.federation.client(owner).address, me.stage, me.share_id(owner)
        async with rpc.channel(self._kit, owner, address) as channel:
            stub = grpc_stubs.ShareExchangeStub(channel)
            while me.peer(owner) in stage.missing():
                patience.left(stage.progress(me.peer(owner)), f"no shares could be had from {owner}")
                try:
                    offset = me.progress(owner, me.session, share_set)
                    if offset > arrived:  # as for deliveries
                        arrived, pause = offset, _FIRST_PAUSE
                    request = pb.FetchRequest(session=me.session, share_set=share_set, offset=offset)
                    with rpc.link(owner):
                        async for message in stub.Fetch(request, timeout=DELIVERY_SECONDS):
                            exchange.take(owner, message.session, message.share_set, wire.chunk_from(message))
                    await exchange.settle(owner)
                except (OutOfTurn, Unavailable):
                    pass  # it does not know the roster yet, or is away
                except Malformed:  # the owner delivers them by itself at the same time
                    say(log, "shares come by another way", owner=owner)
                await asyncio.sleep(pause * random.uniform(0.7, 1.3))
                pause = min(2 * pause, _LONGEST_PAUSE)

    async def _deliver(self, peer: str) -> None:
        address = self._participant.federation.client(peer).address
        pause, told, refusals, arrived, patience = _FIRST_PAUSE, "", 0, 0, Patience(self._seconds)
        async with rpc.channel(self._kit, peer, address) as channel:
            stub = grpc_stubs.ShareExchangeStub(channel)
            while True:
                patience.left(self._arrived.get(peer, 0), f"our shares could not be delivered to {peer}")
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
                    if (
                        self._arrived.get(peer, 0) > arrived
                    ):  # a link that breaks often, but carries something in between
                        arrived, pause, refusals = self._arrived[peer], _FIRST_PAUSE, 0
                await asyncio.sleep(pause * random.uniform(0.7, 1.3))
                pause = min(2 * pause, _LONGEST_PAUSE)
        if told:
            say(log, "link is back", peer=peer)
            await self._tell(peer, "")

    async def _attempt(self, stub: Any, peer: str) -> None:
        """One delivery, from where the last one stopped."""
        me, stage = self._participant, self._participant.stage
        with rpc.link(peer):
            request = pb.ProgressRequest(session=me.session, share_set=stage.id)
            known = await stub.Progress(request, timeout=CALL_SECONDS, wait_for_ready=False)
            self._arrived[peer] = known.received
            if known.received < stage.size or not stage.size:
                chunks = self._chunks(me.session, stage, me.peer(peer), known.received)
                await stub.Deliver(chunks, timeout=DELIVERY_SECONDS)

    async def _chunks(self, session: bytes, stage: Stage, receiver: int, first: int) -> AsyncIterator[pb.ShareChunk]:
        async for chunk in outgoing(stage, receiver, first):
            self.sent_bytes += chunk.words.nbytes
            yield share_chunk(session, stage.id, chunk)

    async def _complain(self, peer: str, address: str, error: SecfcError, told: str) -> str:
        """Say, once for each reason, here and to the server, which link is broken and why."""
        reason = await why_unreachable(self._kit, peer, address) or str(error)
        if reason != told:
            say(log, "cannot reach a client", level=logging.WARNING, peer=peer, address=address, reason=reason)
            await self._tell(peer, reason)
        return reason


async def outgoing(stage: Stage, receiver: int, first: int) -> AsyncIterator[events.Chunk]:
    """Our shares for a client from word `first` on, made while they are sent: what nobody reads is not made."""
    if first >= stage.size:
        yield events.Chunk(stage.size, stage.size, np.empty(0, dtype=np.uint64))  # so that the total is told
    pieces = stage.pieces(receiver, first)
    while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
        offset, words = piece
        for chunk in wire.chunks(words):
            yield events.Chunk(offset + chunk.offset, stage.size, chunk.words)


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
