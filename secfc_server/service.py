"""The Coordinator service: a thin adapter between gRPC and the coordinator machine."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from secfc import config, events, rpc, wire
from secfc.errors import ConfigError, JobFailed, SecfcError, Unavailable, WrongSender
from secfc.logs import say
from secfc.v1 import secfc_pb2 as pb
from secfc.v1 import secfc_pb2_grpc as grpc_stubs
from secfc_server.coordinator import Coordinator, Cursor
from secfc_server.journal import Journal
from secfc_server.rounds import Work

log = logging.getLogger("secfc.server")
SIGN_OF_LIFE_SECONDS = 10.0


class Service(grpc_stubs.CoordinatorServicer):  # type: ignore[misc]
    """Feeds the machine with calls and its followers with news; runs its heavy work on a thread."""

    def __init__(self, coordinator: Coordinator, journal: Journal) -> None:
        self.coordinator, self._journal = coordinator, journal
        self._change = asyncio.Event()
        self._seen = -1
        self._followers: dict[str, object] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._started = time.monotonic()

    # --- calls -----------------------------------------------------------------------------------------------------

    async def Join(self, request: pb.JoinRequest, context: Any) -> pb.JoinReply:
        async with rpc.refusing(context):
            introduction = wire.introduction_from(request.introduction)
            instance = wire.exactly(request.instance, 16, "an instance id")
            self.coordinator.join(self._caller(context), request.federation_digest, instance, introduction, self.now())
            roster = self.coordinator.roster()
            if roster:
                await self._keep(self._journal.joined, roster)
        self.notify()
        return pb.JoinReply()

    async def Follow(self, request: pb.FollowRequest, context: Any) -> AsyncIterator[pb.Event]:
        async with rpc.refusing(context):
            sender = self._caller(context)
            self.coordinator.connected(sender, request.instance, self.now())
        self.notify()
        mark = self._followers[sender] = object()
        try:
            async for event in self._news(sender):
                yield wire.event_to(event)
        finally:
            if self._followers.get(sender) is mark:  # a newer stream of the same client may have taken over
                del self._followers[sender]
                self.coordinator.disconnected(sender, request.instance, self.now())
                self.notify()

    async def _news(self, sender: str) -> AsyncIterator[events.Event]:
        cursor = Cursor()
        while not cursor.ended:
            change = self._change
            news = self.coordinator.news(sender, cursor, self.now())
            for event in news:
                yield event
            if news:
                continue
            try:
                await asyncio.wait_for(change.wait(), SIGN_OF_LIFE_SECONDS)
            except TimeoutError:
                yield events.Waiting(self.coordinator.phase.value, self.coordinator.missing())

    async def Upload(self, request_iterator: AsyncIterator[pb.UploadChunk], context: Any) -> pb.UploadReply:
        received = 0
        async with rpc.refusing(context):
            sender = self._caller(context)
            async for message in request_iterator:
                chunk = wire.chunk_from(message)
                name = (message.round, message.attempt)
                self.coordinator.upload(sender, name, chunk, message.compute_seconds, self.now())
                received = chunk.offset + len(chunk.words)
            self.work_if_ready()
        return pb.UploadReply(received=received)

    async def Report(self, request: pb.ReportRequest, context: Any) -> pb.ReportReply:
        async with rpc.refusing(context):
            sender, report = self._caller(context), wire.report_from(request)
            self.coordinator.report(sender, request.instance, report, self.now())
            if isinstance(report, events.Done):
                await self._keep(self._journal.done, sender)
            if isinstance(report, events.Unreachable):
                self._tell_link(sender, report)
            if isinstance(report, events.Stopped):
                say(log, "a client stopped", level=logging.WARNING, client=sender, reason=report.reason)
        self.notify()
        return pb.ReportReply()

    async def Status(self, request: pb.StatusRequest, context: Any) -> pb.StatusReply:
        async with rpc.refusing(context):
            name = self._caller(context)
            if name not in (config.SERVER, *self.coordinator.members):
                raise WrongSender("only the server and the clients of the roster may ask how the job goes")
        return status(self.coordinator, time.monotonic() - self._started)

    async def _keep(self, write: Callable[[Any], None], what: Any) -> None:
        """Write to the journal. If that fails the server ends, not the caller: what is not kept must not be relied on."""
        try:
            await asyncio.to_thread(write, what)
        except ConfigError as error:
            self.coordinator.fail(error, self.now())
            self.notify()
            raise Unavailable("the server cannot keep its journal, and stops; its log says why") from None

    # --- driving -----------------------------------------------------------------------------------------------------

    @staticmethod
    def _tell_link(sender: str, report: events.Unreachable) -> None:
        if report.reason:
            level = logging.WARNING
            say(log, "broken link", level=level, client=sender, peer=report.peer, reason=report.reason)
        else:
            say(log, "link is back", client=sender, peer=report.peer)

    @staticmethod
    def now() -> float:
        return time.monotonic()

    def _caller(self, context: Any) -> str:
        return rpc.caller(context, self.coordinator.federation.name)

    def notify(self) -> None:
        """Wake followers if there is something new."""
        if self.coordinator.changes != self._seen:
            self._seen = self.coordinator.changes
            self._change.set()
            self._change = asyncio.Event()

    def work_if_ready(self) -> None:
        """Start decoding on a thread when a round's uploads are complete."""
        work = self.coordinator.take_work()
        if work is not None:
            task = asyncio.create_task(self._work(work))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _work(self, work: Work) -> None:
        started = self.now()
        try:
            progress = await asyncio.to_thread(work.run)
            record = self.coordinator.record(progress, self.now() - started, self.now())
            await asyncio.to_thread(self._journal.advanced, work.clustering.state(), record)
            self.coordinator.complete(record, self.now())
        except SecfcError as error:
            self.coordinator.fail(error, self.now())
        except (ArithmeticError, MemoryError, RuntimeError, ValueError) as error:
            say(log, "decoding failed", level=logging.ERROR, error=repr(error))
            self.coordinator.fail(
                JobFailed(f"the server could not decode a round ({type(error).__name__})"), self.now()
            )
        self.notify()

    def tick(self) -> None:
        """Let time pass."""
        self.coordinator.tick(self.now())
        self.work_if_ready()  # the last stream of a round may have broken after its last word
        self.notify()


def status(coordinator: Coordinator, seconds: float) -> pb.StatusReply:
    """What the server is doing, for anybody of the federation."""
    rounds = coordinator.rounds
    last = rounds.records[-1] if rounds and rounds.records else None
    reply = pb.StatusReply(
        federation=coordinator.federation.name,
        federation_digest=coordinator.federation.digest(),
        phase=coordinator.phase.value,
        clients=[
            pb.ClientStatus(
                name=name,
                joined=member.introduction is not None,
                connected=member.connected,
                holds_shares=member.held is not None,
                done=member.done,
            )
            for name, member in coordinator.members.items()
        ],
        round=last.number if last else 0,
        attempt=rounds.tries if rounds else 0,
        changed=last.changed if last else 0,
        seconds=seconds,
        reason=str(coordinator.failure or ""),
        rows=coordinator.rows,
        step=last.step if last else "",
        broken_links=coordinator.broken_links(),
    )
    if last is not None and last.inertia is not None:
        reply.inertia = last.inertia
    return reply
