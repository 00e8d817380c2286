"""The Coordinator service: a thin adapter between gRPC and the coordinator machine."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from secfc import config, events, limits, rpc, wire
from secfc.errors import ConfigError, JobFailed, Malformed, SecfcError, StorageError, Unavailable, WrongSender, told
from secfc.logs import say
from secfc.v1 import secfc_pb2 as pb
from secfc.v1 import secfc_pb2_grpc as grpc_stubs
from secfc_server.alignment import Opening
from secfc_server.coordinator import Coordinator, Cursor
from secfc_server.journal import Journal
from secfc_server.rounds import Lies, RoundRecord, Work
from secfc_server.verifying import Comparison

log = logging.getLogger("secfc.server")
SIGN_OF_LIFE_SECONDS = 10.0


class Service(grpc_stubs.CoordinatorServicer):  # type: ignore[misc]
    """Feeds the machine with calls and its followers with news; runs its heavy work on a thread."""

    def __init__(self, coordinator: Coordinator, journal: Journal) -> None:
        self.coordinator, self._journal = coordinator, journal
        self._change = asyncio.Event()
        self._seen = -1
        self._followers: dict[str, object] = {}
        self._uploading: dict[str, object] = {}  # each client's latest upload
        self._tasks: set[asyncio.Task[None]] = set()
        self._started = time.monotonic()
        self.broken: StorageError | None = None  # why this process must end, and can go on when it is started again

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
        # Words of an upload whose connection broke may still be waiting to be read: dropped, since the client is told next
        # how many have arrived, and goes on from there.
        self._uploading.pop(sender, None)
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
                yield self.coordinator.waiting(sender)

    async def Upload(self, request_iterator: AsyncIterator[pb.UploadChunk], context: Any) -> pb.UploadReply:
        received = 0
        async with rpc.refusing(context):
            sender = self._caller(context)
            mark = self._uploading[sender] = object()
            async for message in request_iterator:
                if self._uploading.get(sender) is not mark:
                    raise Unavailable("you have connected again since; follow the job for what is due")
                self.coordinator.check_session(sender, message.session)
                name = (message.round, message.attempt)
                try:
                    chunk = wire.chunk_from(message)
                    self.coordinator.upload(sender, name, chunk, message.compute_seconds, self.now())
                except Malformed:
                    if self.coordinator.was_due(sender, name, message.offset):
                        await self._leave_out(sender)
                    raise
                received = chunk.offset + len(chunk.words)
            self.work_if_ready()
        return pb.UploadReply(received=received)

    async def Contributed(self, request: pb.ContributedRequest, context: Any) -> pb.UploadReply:
        received = 0
        async with rpc.refusing(context):
            received = self.coordinator.contributed(self._caller(context), request.context)
        return pb.UploadReply(received=received)

    async def Contribute(self, request_iterator: AsyncIterator[pb.SumChunk], context: Any) -> pb.UploadReply:
        received = 0
        async with rpc.refusing(context):
            sender = self._caller(context)
            async for message in request_iterator:
                received = self.coordinator.contribute(sender, message.context, wire.chunk_from(message), self.now())
            self.notify()
            self.work_if_ready()
        return pb.UploadReply(received=received)

    async def Publish(self, request_iterator: AsyncIterator[pb.IdChunk], context: Any) -> pb.UploadReply:
        data = b""
        async with rpc.refusing(context):
            sender, instance = self._caller(context), b""
            async for message in request_iterator:
                data = self.coordinator.published_piece(sender, data, message.offset, message.total, message.data)
                instance = message.instance
            ids = self.coordinator.publish(sender, instance, data)
            await self._keep(self._journal.published, sender, ids)
        self.notify()
        return pb.UploadReply(received=len(data))

    async def Report(self, request: pb.ReportRequest, context: Any) -> pb.ReportReply:
        async with rpc.refusing(context):
            sender, report = self._caller(context), wire.report_from(request)
            if isinstance(report, events.Agreed):  # kept before anybody is told that all agree
                self.coordinator.check_agreement(sender, report)
                await self._keep(self._journal.agreed, sender, report)
            if isinstance(report, events.Held):  # its coin is kept before anything can depend on it
                self.coordinator.check_coin(self.coordinator.process(sender, request.instance), report.coin)
                await self._keep(self._journal.revealed, sender, report.coin)
            self.coordinator.report(sender, request.instance, report, self.now())
            if isinstance(report, events.Done):
                await self._keep(self._journal.done, sender)
            if isinstance(report, events.Unreachable):
                self._tell_link(sender, report)
            if isinstance(report, events.Stopped) and self.coordinator.failure is None:  # or it stops because we failed
                say(log, "a client stopped", level=logging.WARNING, client=sender, reason=report.reason)
        self.notify()
        return pb.ReportReply()

    async def OpenCenters(self, request_iterator: AsyncIterator[pb.CentersChunk], context: Any) -> pb.CentersReceipt:
        async with rpc.refusing(context):
            sender, whole = self._caller(context), None
            async for message in request_iterator:
                whole = self.coordinator.open_centers(sender, wire.centers_from(message))
            if whole is not None:  # a receipt is given for what a restart does not lose
                await self._keep(self._journal.answered, sender, whole)
        return pb.CentersReceipt()

    async def Status(self, request: pb.StatusRequest, context: Any) -> pb.StatusReply:
        async with rpc.refusing(context):
            name = self._caller(context)
            if name not in (config.SERVER, *self.coordinator.members):
                raise WrongSender("only the server and the clients of the roster may ask how the job goes")
        return status(self.coordinator, time.monotonic() - self._started)

    async def _keep(self, write: Callable[..., None], *what: Any) -> None:
        """Write to the journal. If that fails the server ends, not the caller: what is not kept must not be relied on."""
        try:
            await asyncio.to_thread(write, *what)
        except (ConfigError, StorageError) as error:
            self._end(error)
            raise Unavailable("the server cannot keep its journal, and stops; its log says why") from None

    def _end(self, error: SecfcError) -> None:
        """What this machine lacks ends this process and not the job: clients try on until it is started again."""
        if isinstance(error, StorageError):
            self.broken = self.broken or error
        else:
            self.coordinator.fail(error, self.now())
            self.notify()

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
        """Start decoding on a thread when a round's uploads are complete, or opening or checking a sum when all is here."""
        if (work := self.coordinator.take_work()) is not None:
            self._spawn(self._decode(work))
        if (opening := self.coordinator.take_opening()) is not None:
            self._spawn(self._open(opening))
        if (comparison := self.coordinator.take_comparison()) is not None:
            self._spawn(self._compare(comparison))

    def _spawn(self, due: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(self._work(due))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _decode(self, work: Work) -> None:
        started = self.now()
        found = await asyncio.to_thread(work.run)
        if isinstance(found, Lies):
            await self._discard(found)
            return
        record = self.coordinator.record(found, self.now() - started, self.now())
        await asyncio.to_thread(self._write_down, work, record)
        self.coordinator.complete(record, self.now())

    async def _open(self, opening: Opening) -> None:
        result = await asyncio.to_thread(opening.run)
        step = self.coordinator.alignment.step if self.coordinator.alignment else 0
        await asyncio.to_thread(self._journal.opened, step, result)
        self.coordinator.opened(result, self.now())

    async def _compare(self, comparison: Comparison) -> None:
        await asyncio.to_thread(comparison.run)
        await asyncio.to_thread(self._journal.verified)
        self.coordinator.compared(self.now())

    async def _work(self, due: Coroutine[Any, Any, None]) -> None:
        try:
            await due
        except SecfcError as error:
            self._end(error)
        except OSError as error:
            self._end(limits.failure(error, "the server's machine cannot go on", "see what is wrong with it"))
        except MemoryError:
            self._end(
                StorageError("the server is out of memory; make room, then start the same command again to go on")
            )
        except (ArithmeticError, RuntimeError, ValueError) as error:
            say(log, "decoding failed", level=logging.ERROR, error=repr(error))
            self.coordinator.fail(
                JobFailed(f"the server could not decode a round ({type(error).__name__})"), self.now()
            )
        self.notify()

    async def _discard(self, lies: Lies) -> None:
        names = [self.coordinator.federation.roster[j] for j in lies.clients]
        await asyncio.to_thread(self._journal.liars, self.coordinator.suspects(names))
        self.coordinator.discard(lies, self.now())

    async def _leave_out(self, sender: str) -> None:
        """One that sends what cannot be an upload is a liar, if the plan allows for one more; else it counts as lost."""
        if self.coordinator.suspects([sender]) != self.coordinator.liars:
            await self._keep(self._journal.liars, self.coordinator.suspects([sender]))
            self.coordinator.leave_out([sender], self.now())
            self.notify()

    def _write_down(self, work: Work, record: RoundRecord) -> None:
        self._journal.advanced(work.clustering.state(), record, self.coordinator.kept_leakage(work))

    def tick(self) -> None:
        """Let time pass."""
        self.coordinator.tick(self.now())
        self.work_if_ready()  # the last stream of a round may have broken after its last word
        self.notify()


def status(coordinator: Coordinator, seconds: float) -> pb.StatusReply:
    """What the server is doing, for anybody of the federation."""
    rounds = coordinator.rounds
    last = rounds.records[-1] if rounds and rounds.records else None
    missing = coordinator.missing()
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
                liar=name in coordinator.liars,
                shares_checked=rounds is not None or (coordinator.verifying is not None and name not in missing),
            )
            for name, member in coordinator.members.items()
        ],
        round=last.number if last else 0,
        attempt=rounds.tries if rounds else 0,
        changed=last.changed if last else 0,
        seconds=seconds,
        reason=told(coordinator.failure) if coordinator.failure else "",
        rows=coordinator.rows,
        step=last.step if last else "",
        broken_links=coordinator.broken_links(),
        missing=coordinator.waits_for(),
    )
    if last is not None and last.inertia is not None:
        reply.inertia = last.inertia
    return reply
