"""Whatever bytes a peer sends, at whatever moment: an answer, or a refusal of one line; never an internal error.

The bytes go through the very handlers that gRPC calls (`Service`, `Exchange`) and through a client's reading of events.
What protobuf itself cannot parse never gets there: gRPC answers it.
"""

from __future__ import annotations

import asyncio
import os
import tracemalloc
from collections.abc import AsyncIterator, Callable
from functools import cache
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.message import DecodeError
from grpc import aio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from secfc import config, events, wire
from secfc.errors import SecfcError
from secfc.v1 import secfc_pb2 as pb
from secfc_client.participant import Participant
from secfc_client.peers import Exchange, share_chunk
from secfc_client.store import Store
from secfc_server.coordinator import Phase
from secfc_server.journal import Journal
from secfc_server.service import Service
from tests.fuzz.hostile import damaged
from tests.protocol.joined import Joined, deal, introduced, make_federation, share_chunks, small_chunks

EXAMPLES = int(os.environ.get("SECFC_FUZZ", "25"))  # more of them find more; a quick look is part of every test run
calm = settings(deadline=None, max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
ROWS = [3, 4, 0, 5]
AFTER = [0, 3, 6, 40, 90, 160, 300, 500, 5000]  # steps of a job: from before the first join to after the end
CENTERS = pb.CentersChunk(
    session=bytes(32), assignment_digest=bytes(32), consents=True, smallest=1, offset=0, total=3, words=bytes(24)
)
LIMIT = 8 << 20  # bytes a small message may cost; a job of these sizes needs far less


class Caller:
    """A gRPC context whose peer has shown a client's certificate, and the status it is refused with."""

    def __init__(self, name: str) -> None:
        self._name = config.identity("trial", name).encode()
        self.code: Any = None
        self.text = ""

    def auth_context(self) -> dict[str, list[bytes]]:
        return {"x509_subject_alternative_name": [self._name], "x509_common_name": [self._name]}

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"

    async def write(self, message: Any) -> None:
        assert message.SerializeToString()

    async def abort(self, code: Any, text: str) -> None:
        self.code, self.text = code, text
        raise aio.AbortError(text)

    def check(self) -> None:
        assert self.code is not grpc.StatusCode.INTERNAL, "an unexpected error while answering"
        assert self.text.isprintable()


async def one(*messages: Any) -> AsyncIterator[Any]:
    for message in messages:
        yield message


async def call(handler: Callable[..., Any], message: Any, caller: Caller, *, many: bool) -> None:
    try:
        async with asyncio.timeout(20.0):
            answer = handler(one(message, message) if many else message, caller)
            if hasattr(answer, "__aiter__"):
                async for _ in answer:
                    break
            else:
                await answer
    except aio.AbortError:
        pass
    caller.check()


def answer(handler: Callable[..., Any], kind: Any, data: bytes, caller: str, *, many: bool = False) -> None:
    """Let a handler answer these bytes; an internal error, a hang or a great deal of memory fails the test."""
    try:
        message = kind.FromString(data)
    except (DecodeError, UnicodeDecodeError):
        return
    tracemalloc.start()
    try:
        asyncio.run(call(handler, message, Caller(caller), many=many))
        assert tracemalloc.get_traced_memory()[1] < LIMIT
    finally:
        tracemalloc.stop()


# --- to the server -----------------------------------------------------------------------------------------------------


def job_after(steps: int, uploads: str) -> Joined:
    job = Joined(make_federation(4, uploads=uploads, dropouts=1), deal(7, ROWS), seed=steps)
    with small_chunks():
        while job.steps < steps and not job.over:
            job.step()
    return job


def said_to_the_server(job: Joined, name: str) -> list[tuple[str, Any, bytes, bool]]:
    """What this client might honestly say now: method, message, bytes, whether it is a stream."""
    site = job.sites[name]
    introduction = wire.introduction_to(site.introduction())
    digest = job.federation.digest()
    join = pb.JoinRequest(federation_digest=digest, instance=site.instance, introduction=introduction)
    out: list[tuple[str, Any, Any, bool]] = [
        ("Join", pb.JoinRequest, join, False),
        ("Follow", pb.FollowRequest, pb.FollowRequest(instance=site.instance), False),
        ("Status", pb.StatusRequest, pb.StatusRequest(), False),
    ]
    reports = [
        events.Held(bytes(32), 1, 2, 0.5, bytes(32)),
        events.Unreachable("c1", "no"),
        events.Done(),
        events.Stopped("x"),
    ]
    out += [("Report", pb.ReportRequest, wire.report_to(report, site.instance), False) for report in reports]
    rounds = job.coordinator.rounds
    attempt = rounds.attempt if rounds and job.coordinator.phase is Phase.ROUNDS else None
    words, asked = (attempt.decoder.shape.layout.words, attempt.name) if attempt else (9, (1, 1))
    at = attempt.decoder.received(site.participant.index) if attempt else 0
    upload = pb.UploadChunk(
        session=site.participant.session,
        round=asked[0],
        attempt=asked[1],
        offset=at,
        total=words,
        words=bytes(8 * (words - at)),
    )
    out.append(("Upload", pb.UploadChunk, upload, True))
    ids = pb.IdChunk(instance=site.instance, offset=0, total=32, data=bytes(32))
    out += [
        ("Contribute", pb.SumChunk, pb.SumChunk(context=bytes(32), offset=0, total=3, words=bytes(24)), True),
        ("Publish", pb.IdChunk, ids, True),
        ("OpenCenters", pb.CentersChunk, CENTERS, True),
    ]
    return [(method, kind, message.SerializeToString(), many) for method, kind, message, many in out]


@pytest.mark.parametrize("uploads", ["masked", "open"])
@calm
@given(st.data())
def test_the_server_answers_or_refuses_anything(tmp_path: Path, uploads: str, data: st.DataObject) -> None:
    job = job_after(data.draw(st.sampled_from(AFTER)), uploads)
    journal = Journal(tmp_path, bytes(32))
    service = Service(job.coordinator, journal)
    service.now = lambda: job.now  # type: ignore[method-assign]
    for _ in range(data.draw(st.integers(1, 4))):
        name = data.draw(st.sampled_from([*job.federation.roster, "server", "mallory"]))
        honest = said_to_the_server(job, name if name in job.sites else "c0")
        method, kind, whole, many = data.draw(st.sampled_from(honest))
        raw = data.draw(st.one_of(damaged(whole), st.binary(max_size=60)))
        answer(getattr(service, method), kind, raw, name, many=many)
    journal.close()


# --- to a client: other clients -------------------------------------------------------------------------------------------


@calm
@given(st.data())
def test_a_client_answers_or_refuses_anything_that_clients_send(tmp_path: Path, data: st.DataObject) -> None:
    owner, me, *_ = introduced(make_federation(4), deal(3, ROWS))
    exchange = Exchange(me, Store(tmp_path), lambda: None)
    words = owner.outgoing(me.name)
    whole = share_chunk(owner.session, owner.share_set.id, events.Chunk(0, len(words), words)).SerializeToString()
    progress = pb.ProgressRequest(session=owner.session, share_set=owner.share_set.id).SerializeToString()
    fetch = pb.FetchRequest(session=owner.session, share_set=me.share_set.id, offset=1).SerializeToString()
    honest: list[tuple[Any, Any, bytes, bool]] = [
        (exchange.Deliver, pb.ShareChunk, whole, True),
        (exchange.Progress, pb.ProgressRequest, progress, False),
        (exchange.Fetch, pb.FetchRequest, fetch, False),
        (exchange.OpenCenters, pb.CentersChunk, CENTERS.SerializeToString(), True),
    ]
    for _ in range(data.draw(st.integers(1, 4))):
        handler, kind, good, many = data.draw(st.sampled_from(honest))
        raw = data.draw(st.one_of(damaged(good), st.binary(max_size=60)))
        answer(handler, kind, raw, data.draw(st.sampled_from(["c0", "c2", me.name, "mallory"])), many=many)


# --- to a client: the server ------------------------------------------------------------------------------------------------


@cache
def conversation(uploads: str) -> tuple[list[bytes], list[bytes]]:
    """What c0 hears from the server in a whole job, and the shares the others give it."""
    heard: list[bytes] = []

    class Listening(Joined):
        def read(self, site: Any) -> None:
            if site.name == "c0":
                heard.append(site.stream.queue[0])
            super().read(site)

    job = Listening(make_federation(4, uploads=uploads, dropouts=1), deal(7, ROWS), seed=1)
    job.run()
    c0 = job.sites["c0"].participant
    others = [site.participant for name, site in job.sites.items() if name != "c0"]
    shares = [data for owner in others for data in share_chunks(owner, owner.outgoing(c0.name), 0)]
    return heard, shares


def hear(me: Participant, data: bytes) -> None:
    """As the runner does, with a `SecfcError` as the only way out."""
    try:
        message = pb.Event.FromString(data)
    except (DecodeError, UnicodeDecodeError):
        return
    try:
        request = me.handle(wire.event_from(message))
        if request is not None:
            me.answer(request)
    except SecfcError as error:
        assert str(error).isprintable()  # noqa: PT017


@pytest.mark.parametrize("uploads", ["masked", "open"])
@calm
@given(st.data())
def test_a_client_takes_or_refuses_anything_that_the_server_says(uploads: str, data: st.DataObject) -> None:
    heard, shares = conversation(uploads)
    job = Joined(make_federation(4, uploads=uploads, dropouts=1), deal(7, ROWS), seed=1)
    me = job.sites["c0"].participant  # the same seed: the same client
    until = data.draw(st.integers(0, len(heard)))
    for raw in heard[:until]:
        hear(me, raw)
        if me.missing():
            share(me, shares)
    tracemalloc.start()
    try:
        for _ in range(data.draw(st.integers(1, 5))):
            whole = data.draw(st.sampled_from(heard))
            hear(me, data.draw(st.one_of(damaged(whole), st.just(whole), st.binary(max_size=60))))
        assert tracemalloc.get_traced_memory()[1] < LIMIT
    finally:
        tracemalloc.stop()


def share(me: Participant, shares: list[bytes]) -> None:
    for raw in shares:
        message = pb.ShareChunk.FromString(raw)
        owner = next((m for m in me.members if m.share_set == message.share_set), None)
        if owner is None:
            return
        me.receive(owner.name, message.session, message.share_set, wire.chunk_from(message))
        words = me.complete(owner.name)
        if words is not None:
            me.settle(owner.name, words)
    me.keep_own()
    me.holdings()
