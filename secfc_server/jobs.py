"""The Jobs service: a thin adapter between gRPC and the hub, the machine that knows which jobs there are."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

from secfc.agreement.federation import Federation
from secfc.errors import Malformed, NoSuchJob, OutOfTurn, WrongSender
from secfc.net import jobs as wire
from secfc.net import rpc
from secfc.net.driver import Disk, Driver
from secfc.protocol.jobs import record
from secfc.protocol.jobs.hub import Cancelled, Decided, Hub, Submitted
from secfc.protocol.jobs.record import Record, State
from secfc.v1 import secfc_pb2 as pb
from secfc.v1 import secfc_pb2_grpc as grpc_stubs
from secfc_server.service import SIGN_OF_LIFE_SECONDS


class Jobs(grpc_stubs.JobsServicer):  # type: ignore[misc]
    """Feeds the hub with calls, and nodes with what it has for them."""

    def __init__(self, hub: Hub, driver: Driver, disk: Disk, federation: Federation) -> None:
        self._hub, self._driver, self._disk, self._federation = hub, driver, disk, federation
        self._changed = asyncio.Event()  # replaced with every change
        self._attending: Counter[str] = Counter()

    @property
    def attending(self) -> frozenset[str]:
        """Sites whose nodes are connected."""
        return frozenset(+self._attending)

    def notify(self) -> None:
        """Something may have changed."""
        self._changed.set()
        self._changed = asyncio.Event()

    def _caller(self, context: Any) -> str:
        return rpc.caller(context, self._federation.name)

    async def Submit(self, request: pb.SignedJob, context: Any) -> pb.JobReply:
        reply = pb.JobReply()
        async with rpc.refusing(context):
            sender = self._caller(context)
            if not rpc.submits(context):
                raise WrongSender(f"the certificate of {sender} lacks the right to submit jobs")
            job = wire.signed_from(request)
            await self._driver.take(Submitted(sender, job))
            known = self._hub.of_token(job.submitter, job.token)
            if known is not None:
                reply = self._told(known)
        return reply

    async def List(self, request: pb.ListRequest, context: Any) -> pb.ListReply:
        found: list[Record] = []
        async with rpc.refusing(context):
            await self._driver.settled()
            newest = sorted(self._hub.records.values(), key=lambda one: -one.number)[: wire.MOST_LISTED]
            found = [self._found(request.job)] if request.job else newest
        return pb.ListReply(jobs=[self._told(one) for one in found])

    async def Cancel(self, request: pb.JobRequest, context: Any) -> pb.JobReply:
        name = request.job
        async with rpc.refusing(context):
            name = self._found(name).digest.hex()
            await self._driver.take(Cancelled(self._caller(context), bytes.fromhex(name)))
        return self._told(self._found(name))

    async def Result(self, request: pb.JobRequest, context: Any) -> pb.ResultReply:
        result = b""
        async with rpc.refusing(context):
            one = self._found(request.job)
            kept = await asyncio.to_thread(self._disk.get, f"result/{one.digest.hex()}")
            if kept is None and not one.state.over:
                raise OutOfTurn(f"job {one.job.id} is {self._hub.state(one).value}; it has no result yet")
            if not isinstance(kept, bytes):
                raise NoSuchJob(f"job {one.job.id} has no result; it is {one.state.value}: {one.reason or 'no reason'}")
            result = kept
        return pb.ResultReply(result=result)

    async def Attend(self, request: pb.AttendRequest, context: Any) -> AsyncIterator[pb.Offers]:
        site = ""
        async with rpc.refusing(context):
            site = self._node(context)
        self._attending[site] += 1
        try:
            async with aclosing(self._offering(site)) as found:
                async for offers in found:
                    yield offers
        finally:
            self._attending[site] -= 1

    async def _offering(self, site: str) -> AsyncGenerator[pb.Offers, None]:
        """All jobs of a site, again and again."""
        told = None
        while True:
            changed = self._changed
            if not await self._driver.settled():  # what is told is kept
                return
            offers = self._offers(site)
            if offers != told:
                told = offers
                yield offers
                continue
            try:
                await asyncio.wait_for(changed.wait(), SIGN_OF_LIFE_SECONDS)
            except TimeoutError:
                yield offers

    async def Decide(self, request: pb.DecideRequest, context: Any) -> pb.DecideReply:
        async with rpc.refusing(context):
            if len(request.digest) != 32:
                raise Malformed("a job's digest must have 32 bytes")
            decision = wire.decision_from(request.decision)
            await self._driver.take(Decided(self._node(context), request.digest, decision))
        return pb.DecideReply()

    def _node(self, context: Any) -> str:
        site = self._caller(context)
        if site not in self._federation.roster:
            raise WrongSender(f"{site} is no client of this federation")
        return site

    def _found(self, name: str) -> Record:
        return record.find(self._hub.records.values(), name)

    def _offers(self, site: str) -> pb.Offers:
        made = pb.Offers()
        for one in self._hub.offers(site):
            offer = made.offers.add(signed=wire.signed_to(one.job), running=one.state is State.RUNNING)
            if site in one.decisions:
                offer.known.CopyFrom(wire.decision_to(site, one.decisions[site]))
        return made

    def _told(self, one: Record) -> pb.JobReply:
        waiting = () if one.state is not State.SUBMITTED else (*self._hub.silent(one), *self._hub.pending(one))
        return pb.JobReply(
            signed=wire.signed_to(one.job),
            state=self._hub.state(one).value,
            reason=one.reason,
            waiting_for=waiting,
            began=one.began,
            ended=one.ended,
            decisions=[wire.decision_to(site, said) for site, said in one.decisions.items()],
        )
