"""The other link: what goes from client to client is carried by the server, in sealed envelopes. One try, like `link.Link`.

It stays connected from the moment at which the session is known, and takes what other clients send this way.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, Protocol

from grpc import aio

from secfc.errors import Malformed, SecfcError, Unavailable
from secfc.logs import say
from secfc.net import admission, replies, rpc, turns, wire
from secfc.net.exchange import Takes, TakesParcels
from secfc.privacy.envelopes import Sort
from secfc.protocol import transfer
from secfc.protocol.courier import Answered, Asked, Broke, Courier, Met, Noticed, Outcome
from secfc.protocol.parcels import Body, Kind, Parcel
from secfc.protocol.server.relay import PAIR_BYTES
from secfc.v1 import secfc_pb2 as pb
from secfc.v1 import secfc_pb2_grpc as grpc_stubs

log = logging.getLogger("secfc.net.relay")
MEETING_SECONDS = 10.0  # for a client that is just connecting to the server
REPLY_SECONDS = 120.0  # in which nothing of what we asked a client is answered, over slow lines too
NUDGE_SECONDS = 3.0
WINDOW = 3  # pieces of one parcel under way
UNDER_WAY_BYTES = PAIR_BYTES - 2 * transfer.PIECE_BYTES  # to one client: the server has room for it and keeps reading
AT_ONCE = 48  # pieces of one client that are being taken
PAUSES = (0.2, 0.5, 1.0, 2.0, 5.0)  # between tries to connect
_NO_SERVER = "the server's relay is not connected"


class Sits(TakesParcels, Protocol):
    """A machine that knows, once there is a session, what it shares with each other client."""

    @property
    def session(self) -> bytes: ...

    @property
    def shared(self) -> dict[str, bytes]: ...


class _Peer:
    """What is under way to one client, and since when nothing has come of it."""

    def __init__(self) -> None:
        self.answered, self.nudged = 0.0, 0.0
        self.room = turns.Room(UNDER_WAY_BYTES)


class RelayLink:
    """See the module's docstring. `kept` waits until what was taken is on disk, `spawn` runs a task that is not forgotten."""

    def __init__(
        self,
        me: str,
        channel: Callable[[], admission.Channel],
        machine: Sits,
        take: Takes,
        kept: Callable[[], Awaitable[None]],
        spawn: Callable[[Coroutine[Any, Any, Any]], asyncio.Task[Any]],
    ) -> None:
        self._me, self._channel, self._machine = me, channel, machine
        self._take, self._kept, self._spawn = take, kept, spawn
        self._courier: Courier | None = None  # while we are connected
        self._outgoing: asyncio.Queue[pb.Envelope] = asyncio.Queue()
        self._open: dict[tuple[str, int], asyncio.Future[int]] = {}
        self._peers: defaultdict[str, _Peer] = defaultdict(_Peer)
        self._met = asyncio.Condition()
        self._arrived: dict[tuple[str, Parcel], int] = {}
        self._turns = turns.Limit(AT_ONCE)
        self._said: set[tuple[str, str]] = set()

    # --- sending ---------------------------------------------------------------------------------------------------------

    def reaches(self, peer: str) -> bool:
        """Whether the peer is connected to the server, as far as we know."""
        return self._courier is not None and self._courier.ready(peer)

    def arrived(self, to: str, parcel: Parcel) -> int:
        """How much of a parcel that did not get through had arrived, as far as is known."""
        return self._arrived.get((to, parcel), 0)

    async def deliver(self, to: str, parcel: Parcel, body: Body) -> int:
        """As `Link.deliver`."""
        await self._meet(to)
        known, key = 0, (to, parcel)
        if key in self._arrived or parcel.kind is Kind.SHARES:
            content = wire.to_message(parcel).SerializeToString()
            known = self._arrived[key] = await self._ask(to, Sort.ASK, 0, content)
        self._arrived.setdefault(key, 0)
        if known < body.total or not body.total:
            await self._pieces(to, parcel, body, known)
        self._arrived.pop(key, None)
        return max(body.total - known, 0)

    async def _pieces(self, to: str, parcel: Parcel, body: Body, known: int) -> None:
        cut, room = transfer.pieces(body, known), self._peers[to].room
        under_way: deque[asyncio.Task[int]] = deque()
        try:
            while (piece := await asyncio.to_thread(next, cut, None)) is not None:
                content = wire.piece_to(parcel, piece[0], body.total, piece[1]).SerializeToString()
                await room.enter(size := len(content))
                task = asyncio.ensure_future(self._ask(to, Sort.PIECE, body.total, content))
                task.add_done_callback(lambda _, size=size: room.leave(size))  # type: ignore[misc]
                under_way.append(task)
                await asyncio.sleep(0)  # it is sealed, and so numbered, before the next
                while len(under_way) >= WINDOW:
                    self._arrived[to, parcel] = await under_way.popleft()
            while under_way:
                self._arrived[to, parcel] = await under_way.popleft()
        finally:
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)

    async def _ask(self, to: str, sort: Sort, total: int, content: bytes) -> int:
        courier = self._courier
        if courier is None or not courier.ready(to):
            raise Unavailable(f"{to} is not connected to the server")
        key = to, courier.ask(to, sort, total, content)
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._open[key] = answer
        self._flush()
        try:
            return await self._nudged(courier, to, answer)
        finally:
            self._open.pop(key, None)

    async def _nudged(self, courier: Courier, to: str, answer: asyncio.Future[int]) -> int:
        """Wait for an answer. Meanwhile the peer is asked whether it is there: if a question or answer was lost, one of the
        two sees it by the next number. On a slow line, answers to earlier questions show that this one is on its way."""
        now, peer = asyncio.get_running_loop().time, self._peers[to]
        asked = now()
        while True:
            await asyncio.wait({answer}, timeout=NUDGE_SECONDS)
            if answer.done():
                return answer.result()
            if now() - max(asked, peer.answered) >= REPLY_SECONDS:
                why = f"{to} has not answered through the server for {REPLY_SECONDS:.0f} s"
                if self._courier is courier:
                    self._act(courier.give_up(to, why))
                    self._flush()
                raise Unavailable(why)
            if courier is self._courier and courier.ready(to) and now() - peer.nudged >= 0.9 * NUDGE_SECONDS:
                peer.nudged = now()
                courier.ask(to, Sort.ASK, 0, b"")
                self._flush()

    async def _meet(self, to: str) -> None:
        if self._courier is not None and not self._courier.ready(to):
            self._courier.greet(to)
            self._flush()
        try:
            async with asyncio.timeout(MEETING_SECONDS), self._met:
                await self._met.wait_for(lambda: self.reaches(to))
        except TimeoutError:
            raise Unavailable(f"{to} is not connected to the server" if self._courier else _NO_SERVER) from None

    # --- the connection --------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Stay connected, until cancelled."""
        tries = 0
        while True:
            if not self._machine.shared:
                await asyncio.sleep(0.02)
                continue
            began = asyncio.get_running_loop().time()
            try:
                await self._connected()
            except SecfcError as error:
                self._say_once("the server", f"the connection to its relay ended: {error}", logging.INFO)
            if asyncio.get_running_loop().time() - began > 30:
                tries = 0
            await asyncio.sleep(PAUSES[min(tries, len(PAUSES) - 1)])
            tries += 1

    async def _connected(self) -> None:
        courier = Courier(self._me, self._machine.session, self._machine.shared, os.urandom)
        self._outgoing = asyncio.Queue()
        stream = grpc_stubs.RelayStub(self._channel()).Carry(_drained(self._outgoing))
        self._courier = courier
        self._flush()
        try:
            while True:
                with rpc.link("the server"):
                    message = await stream.read()
                if message is aio.EOF:
                    raise Unavailable("the server ended it")
                self._act(self._carried(courier, message))
                self._flush()
                async with self._met:
                    self._met.notify_all()
        finally:
            stream.cancel()
            self._courier = None
            for future in self._open.values():
                if not future.done():
                    future.set_exception(Unavailable(_NO_SERVER))

    @staticmethod
    def _carried(courier: Courier, message: pb.Carried) -> list[Outcome]:
        if message.WhichOneof("kind") == "away":
            return courier.away(message.away.peer)
        return courier.take(wire.envelope_from(message.envelope))

    def _flush(self) -> None:
        if self._courier is not None:
            for envelope in self._courier.out:
                self._outgoing.put_nowait(wire.envelope_to(envelope))
            self._courier.out.clear()

    # --- what comes of it ------------------------------------------------------------------------------------------------

    def _act(self, outcomes: list[Outcome]) -> None:
        for one in outcomes:
            match one:
                case Asked():
                    self._spawn(self._answer(one))
                case Answered():
                    self._answered(one)
                case Broke():
                    self._fail(one)
                case Noticed():
                    level = logging.DEBUG if one.usual else logging.WARNING
                    self._say_once(one.peer, f"the server does not carry faithfully: {one.what}", level)
                case Met():
                    pass  # whoever waits looks for itself

    def _answered(self, one: Answered) -> None:
        future = self._open.get((one.peer, one.number))
        if future is None or future.done():
            return
        self._peers[one.peer].answered = asyncio.get_running_loop().time()
        try:
            future.set_result(replies.of(one.peer, one.content))
        except SecfcError as error:
            future.set_exception(error)

    def _fail(self, one: Broke) -> None:
        for (peer, _), future in self._open.items():
            if peer == one.peer and not future.done():
                future.set_exception(one.why)

    async def _answer(self, asked: Asked) -> None:
        courier = self._courier
        try:
            with self._turns.turn(asked.peer):
                content = replies.to(await self._taken(asked))
        except SecfcError as error:
            content = replies.to(0, error)
        if courier is not None and courier is self._courier:
            courier.answer(asked, content)
            self._flush()

    async def _taken(self, asked: Asked) -> int:
        if asked.sort is Sort.ASK and not asked.content:
            return 0  # it only wants to know whether we are there
        if asked.sort is Sort.ASK:
            here = self._machine.progress(asked.peer, wire.parcel_from(wire.content(pb.Parcel, asked.content)))
            await self._kept()
            return here
        piece = wire.arrived_from(asked.peer, wire.content(pb.Piece, asked.content))
        if piece.total != asked.total:
            raise Malformed("an envelope and the piece in it differ in their totals")
        await self._take(piece)
        return piece.offset + len(piece.data)

    def _say_once(self, about: str, text: str, level: int) -> None:
        if (about, text) not in self._said and len(self._said) < 1000:
            self._said.add((about, text))
            say(log, text, level=level)


async def _drained(queue: asyncio.Queue[pb.Envelope]) -> AsyncIterator[pb.Envelope]:
    while True:
        yield await queue.get()
