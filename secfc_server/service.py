"""The Coordinator service: a thin adapter between gRPC and the coordinator machine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

from secfc.errors import told
from secfc.net import rpc, wire
from secfc.net.driver import Driver
from secfc.protocol import messages
from secfc.protocol.server.coordinator import Coordinator
from secfc.protocol.server.inputs import Followed, Joined, Reported, Unfollowed
from secfc.protocol.server.news import Cursor
from secfc.protocol.server.snapshot import Client, Snapshot
from secfc.v1 import secfc_pb2 as pb
from secfc.v1 import secfc_pb2_grpc as grpc_stubs

SIGN_OF_LIFE_SECONDS = 10.0


class _Follower:
    """One stream of news."""

    def __init__(self) -> None:
        self.change = asyncio.Event()  # there may be something new
        self.steps = 0  # as many of an attempt's further messages as it has been told


class Service(grpc_stubs.CoordinatorServicer):  # type: ignore[misc]
    """Feeds the machine with calls and its followers with news."""

    def __init__(self, coordinator: Coordinator, driver: Driver) -> None:
        self._coordinator, self._driver = coordinator, driver
        self._seen = (-1, -1)
        self._followers: dict[str, _Follower] = {}
        self._started = time.monotonic()
        self.informed: set[str] = set()  # clients that know how the job has ended, or have left it

    def notify(self) -> None:
        """Wake those followers for whom there is something new."""
        changes = self._coordinator.changes
        everybody = changes[0] != self._seen[0]
        if changes == self._seen:
            return
        self._seen = changes
        for sender, follower in self._followers.items():
            if everybody or self._coordinator.steps(sender) != follower.steps:
                follower.change.set()

    def _caller(self, context: Any) -> str:
        return rpc.caller(context, self._coordinator.job.federation.name)

    async def Join(self, request: pb.JoinRequest, context: Any) -> pb.JoinReply:
        async with rpc.refusing(context):
            sender = self._caller(context)
            if self._coordinator.failure is not None:  # with which it is refused
                self.informed.add(sender)
            await self._driver.take(Joined(sender, wire.join_from(request)))
        return pb.JoinReply()

    async def Follow(self, request: pb.FollowRequest, context: Any) -> AsyncIterator[pb.Event]:
        async with rpc.refusing(context):
            sender = self._caller(context)
            await self._followed(sender, request.instance)
        follower = self._followers[sender] = _Follower()
        try:
            async for event in self._news(sender, follower):
                yield wire.event_to(event)
        finally:
            if self._followers.get(sender) is follower:  # a newer stream of the same client may have taken over
                del self._followers[sender]
                await self._driver.take(Unfollowed(sender, request.instance))

    async def _followed(self, sender: str, instance: bytes) -> None:
        before = self._followers.get(sender)
        try:
            await self._driver.take(Followed(sender, instance))
        except asyncio.CancelledError:  # it has gone away while the disk was busy, and counts as connected by now
            if self._followers.get(sender) is before:
                await self._driver.take(Unfollowed(sender, instance))
            raise

    async def _news(self, sender: str, follower: _Follower) -> AsyncIterator[messages.Event]:
        cursor = Cursor()
        while not cursor.ended:
            follower.change.clear()
            if not await self._driver.settled():  # what is told is kept
                return
            news = self._coordinator.news(sender, cursor, self._driver.now())
            follower.steps = self._coordinator.steps(sender)
            for event in news:
                yield event
            if news:
                continue
            try:
                await asyncio.wait_for(follower.change.wait(), SIGN_OF_LIFE_SECONDS)
            except TimeoutError:
                yield self._coordinator.waiting(sender)
        self.informed.add(sender)

    async def Report(self, request: pb.ReportRequest, context: Any) -> pb.ReportReply:
        async with rpc.refusing(context):
            sender, report = self._caller(context), wire.report_from(request)
            await self._driver.take(Reported(sender, request.instance, report))
            if isinstance(report, messages.Stopped | messages.Refused):
                self.informed.add(sender)
        return pb.ReportReply()

    async def Status(self, request: pb.StatusRequest, context: Any) -> pb.StatusReply:
        return status(self._coordinator.snapshot(self._driver.now()), time.monotonic() - self._started)


def status(now: Snapshot, seconds: float) -> pb.StatusReply:
    """What the server is doing, for anybody of the federation."""
    last = now.records[-1] if now.records else None
    reply = pb.StatusReply(
        federation=now.federation.name,
        federation_digest=now.federation.agreed(),
        job_digest=now.federation.job.digest(),
        phase=wire.to_message(now.phase),
        clients=[_client(client) for client in now.clients],
        round=last.number if last else 0,
        attempt=now.outcome.tries if now.outcome else 0,
        changed=last.changed if last else 0,
        seconds=seconds,
        reason=told(now.failure) if now.failure else "",
        rows=now.rows,
        step=last.step if last else "",
        broken_links=now.broken_links,
        missing=now.waits_for,
        committee=now.outcome.committee if now.outcome else (),
        directions=now.outcome.directions if now.outcome else 0,
        of_directions=now.outcome.of_directions if now.outcome else 0,
        assignments=now.outcome.given.assignments if now.outcome else 0,
        runs=len(now.outcome.runs) if now.outcome else 0,
        moving=sum(not run.done for run in now.outcome.runs) if now.outcome else 0,
    )
    if last is not None and last.inertia is not None:
        reply.inertia = last.inertia
    return reply


def _client(client: Client) -> pb.ClientStatus:
    return pb.ClientStatus(
        name=client.name,
        joined=client.joined,
        connected=client.connected,
        holds_shares=client.held is not None,
        done=client.done,
        liar=client.liar,
        shares_checked=client.checked,
    )
