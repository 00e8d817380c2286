"""Submitted jobs on the wire: what the Jobs service says, as plain values, and the calls that a submitter and a node make."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from grpc import aio

from secfc.agreement import submission
from secfc.agreement.federation import SERVER
from secfc.agreement.submission import Submission
from secfc.errors import Malformed, Unavailable
from secfc.net import admission, inquiry, rpc, wire
from secfc.net.link import CALL_SECONDS, SILENCE_SECONDS
from secfc.pki.kit import Kit
from secfc.protocol.jobs.hub import MOST_OPEN
from secfc.protocol.jobs.node import Decide, Offer
from secfc.protocol.jobs.record import Decision, Verdict
from secfc.protocol.messages import line
from secfc.v1 import secfc_pb2 as pb
from secfc.v1.secfc_pb2_grpc import JobsStub

T = TypeVar("T")
MOST_LISTED = 64
MAX_CERTIFICATE = 4 << 10
MAX_RESULT = 3 << 20  # gRPC takes messages of 4 MiB


@dataclass(frozen=True)
class Listed:
    """A job as the server tells of it. Only the job itself is signed; that the rest is true, the server says."""

    job: Submission
    state: str
    reason: str
    waiting_for: tuple[str, ...]
    began: int
    ended: int
    decisions: tuple[tuple[str, str, str], ...]  # site, verdict, why

    @property
    def over(self) -> bool:
        return self.state not in ("submitted", "waiting", "queued", "running")

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        wanted = self.job.wanted
        return {
            "job": self.job.id,
            "digest": self.job.digest.hex(),
            "state": self.state,
            "reason": self.reason,
            "waiting_for": list(self.waiting_for),
            "submitter": self.job.submitter,
            "token": self.job.token,
            "dataset": wanted.dataset,
            "sites": list(wanted.sites),
            "k": list(wanted.job.ks),
            "starts": wanted.job.starts,
            "features": list(wanted.job.feature_names or []) or wanted.job.features,
            "submitted": self.job.submitted,
            "expires": self.job.expires,
            "began": self.began,
            "ended": self.ended,
            "decisions": {site: {"verdict": verdict, "why": why} for site, verdict, why in self.decisions},
        }


# --- messages ----------------------------------------------------------------------------------------------------------


def signed_to(job: Submission) -> pb.SignedJob:
    return pb.SignedJob(body=job.body, certificate=job.certificate, signature=job.signature)


def signed_from(message: pb.SignedJob) -> Submission:
    """Its form is checked; its signature is not."""
    if len(message.certificate) > MAX_CERTIFICATE or len(message.signature) > wire.MAX_SIGNATURE:
        raise Malformed("a job's certificate or signature is too long")
    return submission.read(message.body, message.certificate, message.signature)


def decision_to(site: str, one: Decision) -> pb.SiteDecision:
    return pb.SiteDecision(site=site, verdict=one.verdict.value, why=one.why)


def decision_from(message: pb.SiteDecision) -> Decision:
    if message.verdict not in {one.value for one in Verdict}:
        raise Malformed("a verdict this version does not know; install the same version everywhere")
    return Decision(Verdict(message.verdict), line(message.why))


def offers_from(message: pb.Offers) -> list[Offer]:
    """What a server that stays has for a node."""
    if len(message.offers) > MOST_OPEN:
        raise Malformed(f"the server offers {len(message.offers)} jobs; at most {MOST_OPEN} are allowed")
    return [
        Offer(signed_from(one.signed), one.running, decision_from(one.known) if one.known.verdict else None)
        for one in message.offers
    ]


def listed_from(message: pb.JobReply) -> Listed:
    decisions = message.decisions[: wire.MAX_CLIENTS]
    return Listed(
        signed_from(message.signed),
        line(message.state),
        line(message.reason),
        wire.lines(message.waiting_for),
        message.began,
        message.ended,
        tuple((line(one.site), line(one.verdict), line(one.why)) for one in decisions),
    )


# --- calls of a submitter ----------------------------------------------------------------------------------------------


def submit(kit: Kit, job: Submission) -> Listed:
    """Hand a job to the server: the job that it is known by there, which is an earlier one if the token has submitted it."""
    return listed_from(_asked(kit, lambda stub: stub.Submit(signed_to(job), timeout=CALL_SECONDS)))


def cancel(kit: Kit, name: str) -> Listed:
    return listed_from(_asked(kit, lambda stub: stub.Cancel(pb.JobRequest(job=name), timeout=CALL_SECONDS)))


def listed(kit: Kit, name: str = "") -> list[Listed]:
    """All jobs, the newest first; with a name, that one."""
    reply = _asked(kit, lambda stub: stub.List(pb.ListRequest(job=name), timeout=CALL_SECONDS))
    return [listed_from(one) for one in reply.jobs[:MOST_LISTED]]


def named(kit: Kit, name: str) -> Listed:
    """The job whose digest begins so. Raises Malformed if the server tells of another one, or of none."""
    found, digits = listed(kit, name), "".join(name.split()).lower()
    if len(found) != 1 or not found[0].job.digest.hex().startswith(digits):
        raise Malformed("the server tells of another job than was asked for, or of none")
    return found[0]


def result(kit: Kit, name: str) -> bytes:
    """What a job found, as JSON."""
    reply = _asked(kit, lambda stub: stub.Result(pb.JobRequest(job=name), timeout=CALL_SECONDS))
    return bytes(reply.result)


def _asked(kit: Kit, call: Callable[[Any], Awaitable[T]]) -> T:
    async def asked() -> T:
        async with _channel(kit) as channel:
            with rpc.link("the server"):
                return await call(JobsStub(channel))

    try:
        return asyncio.run(asked())
    except Unavailable as error:
        raise Unavailable(inquiry.diagnose(kit, str(error))) from error


def _channel(kit: Kit) -> admission.Channel:
    return rpc.channel(kit, SERVER, kit.federation.server.address)


# --- calls of a node ---------------------------------------------------------------------------------------------------


class Attendance:
    """A node's connection to the server between jobs and during them."""

    def __init__(self, kit: Kit) -> None:
        self._channel = _channel(kit)

    async def close(self) -> None:
        await self._channel.close()

    async def offers(self) -> AsyncIterator[list[Offer]]:
        """What the server has for us, until the stream ends; raises Unavailable if it breaks or falls silent."""
        stream = JobsStub(self._channel).Attend(pb.AttendRequest())
        try:
            while True:
                with rpc.link("the server"):
                    async with asyncio.timeout(SILENCE_SECONDS):
                        message = await stream.read()
                if message is aio.EOF:
                    raise Unavailable("the server ended the stream")
                yield offers_from(message)
        except TimeoutError:
            raise Unavailable(f"the server has said nothing for {SILENCE_SECONDS:.0f} s") from None
        finally:
            stream.cancel()

    async def decide(self, one: Decide) -> None:
        said = decision_to("", dataclasses.replace(one.decision, why=line(one.decision.why)))
        with rpc.link("the server"):
            await JobsStub(self._channel).Decide(
                pb.DecideRequest(digest=one.digest, decision=said), timeout=CALL_SECONDS
            )
