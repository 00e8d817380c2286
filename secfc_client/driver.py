"""The process around the participant machine: gRPC, threads and time. What is to be done, the machine says."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Any

from grpc import aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from secfc.errors import OWN_FILES, SecfcError, Unavailable
from secfc.logs import say
from secfc.net import rpc
from secfc.net.driver import Disk, Driver, Ledger
from secfc.net.exchange import CurrentExchange, Exchange
from secfc.net.link import Link
from secfc.net.relay import RelayLink
from secfc.net.routes import Routes
from secfc.pki.kit import Kit
from secfc.protocol import messages
from secfc.protocol.client.inputs import Linked, Lost, Sent, Stop, Told, Unsent
from secfc.protocol.client.participant import Participant
from secfc.protocol.client.phases.base import Ended
from secfc.protocol.effects import Send, Started
from secfc.protocol.parcels import Parcel, Watched, Whole
from secfc.v1 import secfc_pb2_grpc as grpc_stubs

log = logging.getLogger("secfc.client")


async def listen(kit: Kit, bind: str, exchange: Exchange | CurrentExchange) -> aio.Server:
    """A port for the other clients, which deliver to us there."""
    listener = rpc.server(kit)
    grpc_stubs.add_ExchangeServicer_to_server(exchange, listener)
    checks = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(checks, listener)
    rpc.listen(listener, kit, bind)
    await listener.start()
    await checks.set("", health_pb2.HealthCheckResponse.SERVING)
    return listener


class ClientDriver:
    """Takes one participant through one job. Without `bind` it does not listen; a node that stays has a port of its own, and
    gives its `port`."""

    def __init__(
        self,
        kit: Kit,
        participant: Participant,
        disk: Disk,
        bind: str,
        port: CurrentExchange | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        self._kit, self._participant, self._bind = kit, participant, bind
        self._link = Link(kit)
        self._over = asyncio.Event()
        self._driver = driver = Driver(participant, disk, log, ledger=ledger, transmit=self._transmit, look=self._look)
        doing = driver.take, driver.kept, driver.spawn
        self._relay = RelayLink(kit.party_name, self._link.server, participant, *doing)
        self._routes = Routes(kit.federation, self._link, self._relay)
        self._following: asyncio.Task[Any] | None = None
        self._port = port

    async def run(self, stopped: asyncio.Future[int]) -> Ended:
        """Until the job is over for us, or `stopped` says that this process is to end. Raises what our own machine lacks."""
        listener = await self._listen() if self._bind else None
        rows, roster = len(self._participant.site.rows), self._kit.pins.describe()
        if self._port is not None:
            self._port.now = Exchange(self._participant, self._driver, self._kit.federation.name)
        elif listener is None:
            say(log, "dialling out only", rows=rows, roster=roster)
        else:
            say(log, "listening", bind=self._bind, rows=rows, roster=roster)
        if self._kit.federation.relay != "never":
            self._driver.spawn(self._relay.run())
        ticking = self._driver.spawn(self._driver.ticking())
        try:
            with suppress(Unavailable):  # what could not be kept is told, and raised, below
                await self._driver.take(Started())
            return await self._until_over(stopped)
        finally:
            ticking.cancel()
            if self._port is not None:
                self._port.now = None
            self._driver.end()
            if listener is not None:
                await listener.stop(grace=1.0)
            await self._link.close()

    async def _listen(self) -> aio.Server:
        return await listen(self._kit, self._bind, Exchange(self._participant, self._driver, self._kit.federation.name))

    async def _until_over(self, stopped: asyncio.Future[int]) -> Ended:
        while True:
            over = asyncio.ensure_future(self._over.wait())
            waits: set[asyncio.Future[Any]] = {over, stopped}
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            over.cancel()
            if self._driver.broken is not None:
                await self._farewell(self._driver.broken)
                raise self._driver.broken
            ended = self._participant.ended
            if ended is not None and self._participant.over(self._driver.now()):
                return ended
            if stopped.done() and ended is None:
                await self._driver.take(Stop("stopped by its operator"))
            await asyncio.sleep(0.05)
            self._over.clear()
            self._look()

    async def _farewell(self, error: SecfcError) -> None:
        """Nothing may leave any more but why we go."""
        try:
            async with asyncio.timeout(2.0):
                await self._link.report(messages.Stopped(OWN_FILES), self._participant.site.instance)
        except (SecfcError, TimeoutError):
            say(log, "could not tell the server that we are stopping", error=type(error).__name__)

    def _look(self) -> None:
        if self._driver.broken is not None or self._participant.ended is not None:
            self._over.set()

    # --- sending -----------------------------------------------------------------------------------------------------------

    def _transmit(self, send: Send) -> None:
        if isinstance(send.message, messages.Join):
            if self._following is not None:
                self._following.cancel()
            self._following = self._driver.spawn(self._follow(send.message))
        else:
            self._driver.spawn(self._send(send))

    async def _send(self, send: Send) -> None:
        if isinstance(send.message, Parcel):
            await self._deliver(send, send.message)
            return
        try:
            await self._link.report(send.message, self._participant.site.instance)
        except SecfcError as error:
            await self._driver.take(Unsent(send, error, progressed=False))
        else:
            await self._driver.take(Sent(send, None))

    async def _deliver(self, send: Send, parcel: Parcel) -> None:
        """A body that cannot be made is no link that breaks: nobody would ever get it."""
        before, made = self._routes.arrived(send.to, parcel), None
        body = send.body or Whole(b"")
        if not isinstance(body, Whole):
            body = made = Watched(body)
        try:
            carried = await self._routes.deliver(send.to, parcel, body)
        except Exception as error:
            if made is not None and made.failure is not None:
                await self._driver.failed((parcel.kind.name.lower(),), made.failure)
            elif isinstance(error, SecfcError):
                await self._unsent(send, parcel, error, before)
            else:
                raise
        else:
            await self._driver.take(Sent(send, carried))

    async def _unsent(self, send: Send, parcel: Parcel, error: SecfcError, before: int) -> None:
        after = self._routes.arrived(send.to, parcel)
        if isinstance(error, Unavailable):
            error = await self._routes.explained(send.to, error)
        await self._driver.take(Unsent(send, error, progressed=after > before))

    async def _follow(self, join: messages.Join) -> None:
        """Join and follow; what ends it goes to the machine, which says when to try again."""
        try:
            await self._link.join(join)
            await self._driver.take(Linked())
            async for event in self._link.follow(join.instance):
                await self._driver.take(Told(event))
        except SecfcError as error:
            known = await self._link.explained("server", error) if isinstance(error, Unavailable) else error
            await self._driver.take(Lost(known))
