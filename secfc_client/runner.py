"""The process around the participant machine: gRPC, retries, deadlines and threads.

Heavy work (shares, uploads) runs on threads; the event loop only moves messages, so that keepalive and other clients' calls
are answered all the time. Every wait has a deadline and says whom it waits for.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from grpc import aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from secfc import events, identifiers, rpc, wire
from secfc.config import SERVER
from secfc.errors import AlreadyJoined, JobFailed, Malformed, OutOfTurn, SecfcError, Unavailable
from secfc.field import Words
from secfc.identifiers import Ids
from secfc.kit import Kit
from secfc.logs import say
from secfc.v1 import secfc_pb2 as pb
from secfc.v1 import secfc_pb2_grpc as grpc_stubs
from secfc_client import threads
from secfc_client.budget import Account
from secfc_client.confirmer import LINGER_SECONDS, Confirmer
from secfc_client.participant import Participant, Phase
from secfc_client.peers import CALL_SECONDS, DELIVERY_SECONDS, Exchange, GaveUp, Patience, Peers, why_unreachable
from secfc_client.stages import Stage
from secfc_client.store import Store
from secfc_client.verifier import Verifier

log = logging.getLogger("secfc.client")
GOODBYE_SECONDS = 20.0
SILENCE_SECONDS = 40.0  # the server gives a sign of life every 10 s
_GAPS = 5
TAKEOVER_SECONDS = rpc.GONE_SECONDS + 10.0


class NewJob(Exception):
    """The server begins a job, but our secrets have served another: begin again with fresh ones."""


class Runner:
    """Takes one participant through one job."""

    def __init__(
        self,
        kit: Kit,
        participant: Participant,
        store: Store,
        bind: str,
        patience: float,
        *,
        account: Account | None = None,
    ) -> None:
        """`patience`: seconds to go on trying to reach the server before giving up; `account`: where what our rows give
        away is counted over all jobs."""
        self.publishes: Ids | None = None  # IDs of our rows to tell the server at the end
        self._kit, self._participant, self._bind, self._patience = kit, participant, bind, patience
        self._store, self._account = store, account
        self._instance = os.urandom(16)
        self._settled = asyncio.Event()
        self._restored = asyncio.Event()
        self._share_seconds = max(DELIVERY_SECONDS, patience)
        self._exchange = Exchange(participant, store, self._settled.set)
        self._peers = Peers(kit, participant, self._tell_link, self._share_seconds)
        self._confirmer = Confirmer(kit, participant, self._tell_link, self._keep_past)
        self._confirms = False
        self._kept_past = participant.past
        self._verifier = Verifier(participant, self._keep_past)
        self._sharing: asyncio.Task[None] | None = None
        self._delivering: asyncio.Task[None] | None = None
        self._stage: Stage | None = None
        self._held: events.Held | None = None
        self._lost: Unavailable | None = None  # why the server has to be joined again, as found by another task
        self._untold_since: float | None = None
        self._unreachable_by: tuple[str, ...] = ()
        self._keeping = threading.Lock()
        self._address = kit.federation.server.address
        self._refused_since: float | None = None
        self.line = "starting"  # for a terminal

    async def run(self, finish: Callable[[], Awaitable[None]] | None = None) -> None:
        """Join, share, compute until the job is finished; the labels are then in the participant.

        `finish` is what there is to do while other clients can still reach us.
        """
        listener = rpc.server(self._kit)
        grpc_stubs.add_ShareExchangeServicer_to_server(self._exchange, listener)
        checks = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(checks, listener)
        rpc.listen(listener, self._kit, self._bind)
        await listener.start()
        await checks.set("", health_pb2.HealthCheckResponse.SERVING)
        say(log, "listening", bind=self._bind, rows=self._participant.rows, roster=self._kit.pins.describe())
        try:
            async with rpc.channel(self._kit, SERVER, self._address) as channel:
                self._stub = grpc_stubs.CoordinatorStub(channel)
                await self._until_over()
            if finish is not None:
                await finish()
        finally:
            self._cancel_sharing()
            await listener.stop(grace=1.0)

    async def conclude(self) -> bool:
        """An earlier process wrote the labels: let a server that waits to hear it know. False: it runs another job."""
        deadline = time.monotonic() + GOODBYE_SECONDS
        async with rpc.channel(self._kit, SERVER, self._address) as channel:
            stub = grpc_stubs.CoordinatorStub(channel)
            while True:
                try:
                    status = await self._call(stub.Status(pb.StatusRequest(), timeout=5.0))
                    break
                except SecfcError as error:  # gone, most likely because the job is over for everybody
                    if time.monotonic() > deadline:
                        self._check_published(str(error))
                        return True
                await asyncio.sleep(0.5)
        if status.phase != Phase.FINISHED.value:
            return False
        await self.done()
        return True

    def _check_published(self, reason: str) -> None:
        """Raise if there are IDs that the server has not heard."""
        if self.publishes is not None:
            raise GaveUp(
                f"the labels are written, but our IDs are not published ({reason}); start the server, if it has ended, and "
                "the same command again"
            )

    async def done(self) -> bool:
        """Tell the server that our labels are written, for a while also to one that is just restarting. Raises if our IDs
        are to be published and it does not take them."""
        deadline = time.monotonic() + GOODBYE_SECONDS
        async with rpc.channel(self._kit, SERVER, self._address) as channel:
            self._stub = grpc_stubs.CoordinatorStub(channel)
            while True:
                try:
                    if self.publishes is not None:
                        await self._publish(self.publishes)
                    await self._call(self._stub.Report(wire.report_to(events.Done(), self._instance), timeout=5.0))
                    return True
                except SecfcError as error:
                    if time.monotonic() > deadline:
                        self._check_published(str(error))
                        say(log, "the server does not know that we are done", level=logging.WARNING, reason=str(error))
                        return False
                await asyncio.sleep(0.5)
                with contextlib.suppress(SecfcError):
                    await self._join()

    async def _publish(self, ids: Ids) -> None:
        data = ids[identifiers.order(ids)].astype("<u8").tobytes()
        chunks = (
            pb.IdChunk(
                instance=self._instance, offset=first, total=len(data), data=data[first : first + wire.CHUNK_BYTES]
            )
            for first in range(0, max(len(data), 1), wire.CHUNK_BYTES)
        )
        await self._call(self._stub.Publish(chunks, timeout=CALL_SECONDS))
        say(log, "our IDs are published", rows=len(ids))

    # --- the server --------------------------------------------------------------------------------------------------

    async def _until_over(self) -> None:
        """Join and follow, again after every lost connection, until the job is over or patience is."""
        deadline, pause, complained = time.monotonic() + self._patience, 0.2, ""
        while self._participant.phase not in (Phase.FINISHED, Phase.FAILED):
            try:
                await self._check_new_job()
                await self._join()
                deadline, pause, complained = time.monotonic() + self._patience, 0.2, ""
                await self._follow()
            except GaveUp:
                raise
            except Unavailable as error:
                complained = await self._explain(error, complained, deadline)
                if time.monotonic() > deadline:
                    raise Unavailable(f"gave up on the server after {self._patience:.0f} s: {complained}") from None
                await asyncio.sleep(min(pause * random.uniform(0.7, 1.3), max(deadline - time.monotonic(), 0)))
                pause = min(2 * pause, 5.0)
            except AlreadyJoined as error:
                await self._wait_for_takeover(error)
        if self._participant.phase is Phase.FAILED:
            if self._participant.failed_for_now:
                raise Unavailable(f"the job has stopped: {self._participant.failure}")
            raise JobFailed(f"the job has failed: {self._participant.failure}")

    async def _wait_for_takeover(self, error: AlreadyJoined) -> None:
        """A machine that lost its power has left a connection that the server takes for alive until a probe fails."""
        first = self._refused_since is None
        self._refused_since = self._refused_since or time.monotonic()
        waited = time.monotonic() - self._refused_since
        if not self._store.resumed or waited > TAKEOVER_SECONDS:
            raise error
        if first:
            text = "the server knows an earlier process of ours; waiting until it finds that one gone"
            say(log, text, level=logging.WARNING, seconds_left=round(TAKEOVER_SECONDS))
        await asyncio.sleep(2.0)

    async def _explain(self, error: Unavailable, complained: str, deadline: float) -> str:
        """Say what is really wrong with the link to the server, once for each reason."""
        reason = await why_unreachable(self._kit, SERVER, self._address) or str(error)
        if reason != complained:
            left = max(deadline - time.monotonic(), 0)
            say(
                log,
                "cannot reach the server; trying on",
                level=logging.WARNING,
                reason=reason,
                seconds_left=round(left),
            )
        self.line = f"trying to reach the server at {self._address}"
        return reason

    async def _check_new_job(self) -> None:
        """A server that still gathers clients begins a job, and one that has answered requests already gets a session of
        its own. Were it the old job after all, its server would only shut us out. What our rows have given away is counted
        on, whatever it says (`budget`)."""
        if not self._store.fresh and self._participant.used:
            status = await self._call(self._stub.Status(pb.StatusRequest(), timeout=CALL_SECONDS))
            if status.phase == Phase.JOINING.value:
                raise NewJob("our secrets have served another job")

    async def _join(self) -> None:
        introduction = self._participant.introduction(self._kit.certificate_pem, self._kit.sign)
        request = pb.JoinRequest(
            federation_digest=self._kit.federation.digest(),
            instance=self._instance,
            introduction=wire.introduction_to(introduction),
        )
        first = not self._store.begun
        await threads.whole(self._store.note_joined)  # from now on others may hold shares of ours
        try:
            await self._call(self._stub.Join(request, timeout=CALL_SECONDS))
        except Malformed:  # turned away at the door: no job is under way, and other rows may come
            if first:
                await threads.whole(self._store.forget_joined)
            raise
        say(log, "joined", server=self._address)

    async def _call(self, call: Any) -> Any:
        with rpc.link("the server"):
            return await call

    async def _follow(self) -> None:
        stream = self._stub.Follow(pb.FollowRequest(instance=self._instance))
        try:
            while self._participant.phase not in (Phase.FINISHED, Phase.FAILED):
                with rpc.link("the server"):
                    message = await self._next(stream)
                if message is aio.EOF:
                    raise Unavailable("the server ended the stream")
                await self._handle(wire.event_from(message))
        except TimeoutError:
            raise Unavailable(f"the server has said nothing for {SILENCE_SECONDS:.0f} s") from None
        finally:
            stream.cancel()

    async def _next(self, stream: Any) -> Any:
        """The stream's next message; raises what ended the exchange of shares, if that failed meanwhile."""
        self._check_sharing()
        read = asyncio.ensure_future(stream.read())
        try:
            while not read.done():
                waits: set[asyncio.Future[Any]] = {read}
                if self._sharing is not None and not self._sharing.done():
                    waits.add(self._sharing)
                done, _ = await asyncio.wait(waits, timeout=SILENCE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                if not done:
                    raise TimeoutError
                self._check_sharing()
            return read.result()
        finally:
            read.cancel()

    def _check_sharing(self) -> None:
        """Raise what ended the exchange of shares, or what it could not tell the server."""
        if self._sharing is not None and self._sharing.done():
            self._sharing.result()
        lost, self._lost = self._lost, None
        if lost is not None:
            raise lost

    async def _handle(self, event: events.Event) -> None:
        self._describe(event)
        if isinstance(event, events.Roster) and self._held is not None:
            await self._insist(self._held)  # the server may have restarted since it heard that
        if isinstance(event, events.RoundRequest | events.Finished):
            await self._sharing_done()
        if isinstance(event, events.RoundRequest):  # to be checked and counted, which takes a moment
            request = await asyncio.to_thread(self._participant.handle, event)
            self.line = f"round {event.number}, {self._participant.guard.text()}"
        else:
            request = self._participant.handle(event)
            self._keep_past()  # at once: nothing that follows from it may leave before
        if isinstance(event, events.Roster) and self._participant.phase is Phase.AGREEING:
            await self._insist(self._participant.agreement(self._kit.sign))
        self._begin_sharing(isinstance(event, events.Roster))
        if isinstance(event, events.Reveals):  # told once per connection, and not before the server can take it
            self._verifier.due()
        await self._verifier.give(self._stub)
        if request is not None:
            await self._answer(request)
        elif isinstance(event, events.RoundRequest | events.Finished):  # others have answered
            await threads.whole(self._keep_given)
        if isinstance(event, events.Finished | events.Failed) and self._participant.guard.text():
            say(log, self._participant.guard.text())

    def _begin_sharing(self, reconnected: bool) -> None:
        """A task for every stage; and once more the sum of a stage, if a restarted server may have forgotten it."""
        me = self._participant
        if me.phase not in (Phase.UNION, Phase.SHARING):
            return
        if me.confirms:
            if not self._confirms:
                self._confirms = True
                self._cancel_sharing()
                self._sharing = asyncio.create_task(self._confirm())
            return
        if self._stage is not me.stage:
            self._cancel_sharing()  # what is left of a stage that is over: nobody needs it any more
            self._restored.clear()
            self._stage, self._sharing = me.stage, asyncio.create_task(self._share(me.stage))
        elif reconnected and me.phase is Phase.UNION and self._sharing is not None and self._sharing.done():
            self._sharing = asyncio.create_task(self._or_rejoin(self._contribute()))

    def _describe(self, event: events.Event) -> None:
        match event:
            case events.Waiting():
                self.line = f"{event.phase}: waiting for {', '.join(event.missing) or 'the server'}"
                say(log, "waiting", phase=event.phase, missing=event.missing)
                self._describe_links(event.unreachable_by)
            case events.RoundRequest():
                self.line = f"round {event.number}"
                say(log, f"round {event.number}", attempt=event.attempt, columns=len(event.columns))
            case events.Finished():
                say(log, "finished", rounds=event.rounds, converged=event.converged, inertia=event.inertia)
                if not event.converged:
                    limit = self._kit.federation.max_rounds
                    say(log, f"stopped after max_rounds = {limit}; not converged", level=logging.WARNING)
            case events.Opened():
                if event.offset + len(event.data) == event.total:
                    found = {"rows": event.left} if event.step == 0 else {"ids": event.total // 16, "left": event.left}
                    say(log, "a sum over all clients was opened", step=event.step, **found)
            case events.Roster() | events.Agreements() | events.Reveals() | events.Assignment() | events.Failed():
                pass

    def _describe_links(self, unreachable_by: tuple[str, ...]) -> None:
        """Say, once for each change, who cannot reach us: a firewall shows nothing to those behind it."""
        if unreachable_by == self._unreachable_by:
            return
        self._unreachable_by, address = unreachable_by, self._kit.federation.client(self._participant.name).address
        if unreachable_by:
            text = "other clients cannot reach us; check the firewall and what listens at our address"
            say(log, text, level=logging.WARNING, clients=unreachable_by, address=address)
        else:
            say(log, "other clients reach us again", address=address)

    async def _tell(self, report: events.Report) -> None:
        """Report to the server if it can be reached; what matters is told again when the connection is back."""
        try:
            await self._call(self._stub.Report(wire.report_to(report, self._instance), timeout=CALL_SECONDS))
        except SecfcError as error:
            say(log, "report not taken", level=logging.WARNING, reason=str(error))

    async def _tell_link(self, peer: str, reason: str) -> None:
        await self._tell(events.Unreachable(peer, reason))

    async def stop(self, reason: str, *, refused: bool = False) -> None:
        """Tell the server, briefly, that we go away; `refused`: because our policy does not allow what it asked."""
        if hasattr(self, "_stub"):
            async with rpc.channel(self._kit, SERVER, self._address) as channel:
                report = events.Refused(reason) if refused else events.Stopped(reason)
                request = wire.report_to(report, self._instance)
                try:
                    await self._call(grpc_stubs.CoordinatorStub(channel).Report(request, timeout=2.0))
                except SecfcError:
                    say(log, "the server does not know that we stop")

    # --- shares --------------------------------------------------------------------------------------------------------

    def _cancel_sharing(self) -> None:
        for task in filter(None, (self._sharing, self._delivering)):
            task.cancel()

    async def _share(self, stage: Stage) -> None:
        """Deliver to all, wait for all, and tell the server: our share of a sum, or that we hold everybody's rows."""
        started = time.monotonic()
        self.line = "exchanging shares"
        async with asyncio.TaskGroup() as group:
            group.create_task(self._gather(stage))
            if self._store.resumed:  # the others may hold our shares already, and may even be done and gone
                self._delivering = asyncio.create_task(self._deliver_again())
                lacking = await self._exchange.restore()
                await self._exchange.keep_own(stage)
                self._restored.set()
                say(log, "going on after a restart", lacking=lacking)
                group.create_task(self._peers.fetch(self._exchange, lacking))
            else:
                group.create_task(self._peers.deliver_all())
        if self._participant.phase is Phase.UNION:
            await self._or_rejoin(self._contribute())
            return
        digest = await asyncio.to_thread(self._participant.holdings)
        seconds = time.monotonic() - started
        coin = self._participant.coin()
        await threads.whole(self._store.note_revealed, self._participant.session)
        held = events.Held(digest, self._peers.sent_bytes, self._exchange.received_bytes, seconds, coin)
        say(log, "all shares are here", seconds=round(seconds, 2), sent=held.sent_bytes, received=held.received_bytes)
        self._held = held
        await self._or_rejoin(self._insist(held))

        with contextlib.suppress(Unavailable):  # what ends this connection as well; the next one tries again
            await self._verifier.give(self._stub)

    def _keep_past(self) -> None:
        if self._participant.past != self._kept_past:
            self._store.keep_past(self._participant.past)
            self._kept_past = self._participant.past

    async def _confirm(self) -> None:
        """Confirm the list of all IDs with every other client; then go on to the rows, or break off as everybody does."""
        self.line = "confirming the list of row IDs with the other clients"
        try:
            await self._confirmer.run()
            self._participant.conclude_union()
        except JobFailed as error:
            if not self._participant.past.dead:
                raise  # somebody's word did not come
            self._keep_past()
            await self._tell(events.Refused(str(error)))
            await asyncio.sleep(LINGER_SECONDS)
            raise
        self._keep_past()
        self._stage = self._participant.stage
        await self._share(self._stage)

    async def _deliver_again(self) -> None:
        """In the background, to whoever lacks our shares; the job does not wait for it."""
        try:
            await self._peers.deliver_all()
        except* SecfcError as group:
            reason = str(blame(group))
            say(log, "some may still lack our shares", level=logging.WARNING, reason=reason)

    async def _gather(self, stage: Stage) -> None:
        """Until everybody's shares of a stage are here; as long as some arrive, without a limit."""
        await self._exchange.keep_own(stage)
        patience, names = Patience(self._share_seconds), self._kit.federation.roster
        while missing := stage.missing():
            lacking = ", ".join(names[j] for j in missing)
            left = patience.left(self._exchange.received_bytes, f"no shares have come from {lacking}")
            self._settled.clear()
            if stage.missing() == missing:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._settled.wait(), min(left, SILENCE_SECONDS))
            if self._exchange.failure is not None:
                raise self._exchange.failure

    async def _contribute(self) -> None:
        """Our share of the sum that is due. A server that says that it needs it no more has it open already."""
        context, words = await asyncio.to_thread(self._participant.contribution)
        with contextlib.suppress(OutOfTurn):  # opened meanwhile: the news of it is on its way
            known = await self._call(
                self._stub.Contributed(pb.ContributedRequest(context=context), timeout=CALL_SECONDS)
            )
            chunks = _sum_chunks(context, words, known.received)
            await self._call(self._stub.Contribute(chunks, timeout=DELIVERY_SECONDS))

    async def _insist(self, report: events.Report) -> None:
        """Tell the server what it must know. One that wants us to join first has restarted since we did: for us, the
        connection is broken, and is made again from the beginning."""
        try:
            await self._call(self._stub.Report(wire.report_to(report, self._instance), timeout=CALL_SECONDS))
            self._untold_since = None
        except OutOfTurn as error:
            now = time.monotonic()
            self._untold_since = self._untold_since or now
            if now - self._untold_since > self._patience:
                raise GaveUp(f"for {self._patience:.0f} s the server has not taken what we hold: {error}") from None
            raise Unavailable(str(error)) from None

    async def _or_rejoin(self, telling: Awaitable[None]) -> None:
        """What a task besides `_follow` tells the server; if it does not get through, `_follow` joins again."""
        try:
            await telling
        except Unavailable as error:
            self._lost = error

    async def _sharing_done(self) -> None:
        """With all shares here, what is left of the exchange is short: preparing the rounds, and telling the server. A
        restarted client first takes up the shares on its disk."""
        if self._sharing is None:
            return
        if self._store.resumed and not self._restored.is_set():
            taken_up = asyncio.ensure_future(self._restored.wait())
            waits: set[asyncio.Future[Any]] = {self._sharing, taken_up}
            await asyncio.wait(waits, timeout=CALL_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            taken_up.cancel()
        if not self._participant.missing():
            await self._sharing

    def restore_answers(self) -> None:
        """Take what others have answered an earlier process of ours about the centres."""
        self._exchange.restore_answers()

    # --- rounds --------------------------------------------------------------------------------------------------------

    async def _answer(self, request: events.RoundRequest) -> None:
        started = time.monotonic()
        keep = threads.whole(self._keep_given)  # on disk before anything leaves, and meanwhile we compute
        _, words = await asyncio.gather(keep, asyncio.to_thread(self._participant.answer, request))
        seconds = time.monotonic() - started
        try:
            stream = self._chunks(request, words, seconds)
            await self._call(self._stub.Upload(stream, timeout=request.deadline_seconds))
        except OutOfTurn:  # the round went on without us
            say(log, "upload came too late", round=request.number, attempt=request.attempt)

    def _keep_given(self) -> None:
        with self._keeping:  # a thread whose caller was cancelled must not put an older count over a newer one
            if self._account is not None:
                self._account.spend(self._participant.guard.ranks)
            self._store.keep_given(self._participant.guard.kept())

    async def _chunks(
        self, request: events.RoundRequest, words: Words, seconds: float
    ) -> AsyncIterator[pb.UploadChunk]:
        for chunk in wire.chunks(words, request.received):
            yield pb.UploadChunk(
                round=request.number,
                attempt=request.attempt,
                offset=chunk.offset,
                total=chunk.total,
                words=wire.word_bytes(chunk.words),
                compute_seconds=seconds,
                session=self._participant.session,
            )


async def _sum_chunks(context: bytes, words: Words, first: int) -> AsyncIterator[pb.SumChunk]:
    for chunk in wire.chunks(words, first):
        yield pb.SumChunk(context=context, offset=chunk.offset, total=chunk.total, words=wire.word_bytes(chunk.words))


def blame(error: BaseException) -> SecfcError | None:
    """The deliberate error behind what a task group raised, if there is one."""
    if isinstance(error, BaseExceptionGroup):
        return next(filter(None, map(blame, error.exceptions)), None)
    return error if isinstance(error, SecfcError) else None
