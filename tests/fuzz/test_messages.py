"""Whatever bytes a peer sends, at whatever moment: an answer, or a refusal of one line; never an internal error.

The bytes go through the very handlers that gRPC calls (`Service`, `Exchange`) and through a client's reading of events.
What protobuf itself cannot parse never gets there: gRPC answers it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import tracemalloc
from collections.abc import AsyncIterator, Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.message import DecodeError
from grpc import aio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from secfc.agreement import federation as federations
from secfc.errors import SecfcError
from secfc.net import wire
from secfc.net.driver import Driver
from secfc.net.exchange import Exchange
from secfc.protocol import messages
from secfc.protocol.client.inputs import Told
from secfc.protocol.client.participant import Participant
from secfc.protocol.effects import Drop, Load, Put, Worked
from secfc.protocol.parcels import Kind, Parcel, Whole, attempt_name
from secfc.v1 import secfc_pb2 as pb
from secfc_server.journal import Journal
from secfc_server.service import Service
from tests.fuzz.hostile import damaged
from tests.fuzz.trial import Trial

EXAMPLES = int(os.environ.get("SECFC_FUZZ", "15"))  # more of them find more; a quick look is part of every test run
calm = settings(deadline=None, max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
JOBS = pytest.mark.parametrize(
    ("uploads", "membership"), [("masked", "public"), ("open", "public"), ("masked", "private")]
)
LIMIT = 8 << 20  # bytes a small message may cost; a job of these sizes needs far less
log = logging.getLogger("secfc.fuzz")


class Caller:
    """A gRPC context whose peer has shown a client's certificate, and the status it is refused with."""

    def __init__(self, name: str) -> None:
        self._name = federations.identity("trial", name).encode()
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


class Dictionary:
    """A disk for a client."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}

    def put(self, keep: Sequence[Put | Drop]) -> None:
        self._values |= {one.key: bytes(one.value) for one in keep if isinstance(one, Put)}

    def get(self, key: str) -> bytes | None:
        return self._values.get(key)


Handler = Callable[[Any, Any], Any]
Serve = Callable[[Driver], Handler]  # what answers, given what carries out the effects


async def call(serve: Serve, machine: Any, disk: Any, message: Any, caller: Caller, *, many: bool) -> None:
    driver = Driver(machine, disk, log)
    try:
        async with asyncio.timeout(20.0):
            answer = serve(driver)(one(message, message) if many else message, caller)
            if hasattr(answer, "__aiter__"):
                async for _ in answer:
                    break
                await answer.aclose()
            else:
                await answer
    except aio.AbortError:
        pass
    while driver._tasks:  # what it wants computed
        await asyncio.wait(set(driver._tasks))
    assert driver.broken is None, driver.broken
    caller.check()


def answer(serve: Serve, machine: Any, disk: Any, kind: Any, data: bytes, caller: str, *, many: bool = False) -> None:
    """Let a handler answer these bytes; an internal error, a hang or a great deal of memory fails the test."""
    try:
        message = kind.FromString(data)
    except (DecodeError, UnicodeDecodeError):
        return
    tracemalloc.start()
    try:
        asyncio.run(call(serve, machine, disk, message, Caller(caller), many=many))
        assert tracemalloc.get_traced_memory()[1] < LIMIT
    finally:
        tracemalloc.stop()


@cache
def whole(uploads: str, membership: str) -> tuple[int, list[bytes]]:
    """How many steps such a job has, and what c0 hears from the server in it."""
    job = Trial(uploads, membership).after(100_000)
    assert job.over
    assert job.server.ending is not None
    return job.steps, job.heard


# --- to the server -----------------------------------------------------------------------------------------------------


def parcels_to_the_server(job: Trial, name: str) -> list[tuple[Parcel, int]]:
    """What a client may deliver at some moment or other, and how many bytes it has."""
    session, request, client = job.clients[name].session or bytes(32), job.asks(), job.clients[name]
    asked = attempt_name(request.number, request.attempt) if request else attempt_name(1, 1)
    sizes = {job.plan.share_layout(12).words * 8, 24}
    attempt = job.server.attempt
    if attempt is not None and client.site.index in attempt.responders:
        shape = job.plan.shape(len(attempt.question.labels), attempt.question.sizes, attempt.question.columns)
        sizes.add(8 * shape.layout.words)
    aligned = job.server._phase.union
    named = [(Kind.UPLOAD, asked), (Kind.STEP, asked + b"x"), (Kind.IDS, b""), (Kind.CENTERS, bytes(32))]
    named.append((Kind.SUM, aligned.context if aligned is not None and not aligned.finished else bytes(32)))
    return [(Parcel(session, kind, of), size) for kind, of in named for size in sorted(sizes)]


def said_to_the_server(job: Trial, name: str) -> list[tuple[str, Any, bytes, bool]]:
    """What this client might honestly say now: method, message, bytes, whether it is a stream."""
    site = job.clients[name].site
    join = wire.join_to(messages.Join(job.federation.agreed(), site.instance, site.introduction()))
    out: list[tuple[str, Any, Any, bool]] = [
        ("Join", pb.JoinRequest, join, False),
        ("Follow", pb.FollowRequest, pb.FollowRequest(instance=site.instance), False),
        ("Status", pb.StatusRequest, pb.StatusRequest(), False),
    ]
    reports: list[messages.Report] = [
        messages.Agreed(b"", tuple(b"" if other == name else bytes(32) for other in job.clients)),
        messages.Held(bytes(32), 1, 2, 0.5, site.secrets.coin),
        messages.Unreachable("c1", "no"),
        messages.Done(),
        messages.Stopped("x"),
    ]
    reports += [send.message for send in job.said[name] if not isinstance(send.message, Parcel)]
    out += [("Report", pb.ReportRequest, wire.report_to(report, site.instance), False) for report in reports]
    for send in job.said[name][-3:]:
        if isinstance(send.message, Parcel) and isinstance(send.body, Whole):
            whole = wire.piece_to(send.message, 0, send.body.total, send.body.data)
            out.append(("Deliver", pb.Piece, whole, True))
    for parcel, size in parcels_to_the_server(job, name):
        out.append(("Progress", pb.Parcel, wire.to_message(parcel), False))
        out.append(("Deliver", pb.Piece, wire.piece_to(parcel, 0, size, bytes(size)), True))
        out.append(("Hand", pb.Piece, wire.piece_to(parcel, 0, size, bytes(size)), False))
    return [(method, kind, message.SerializeToString(), many) for method, kind, message, many in out]


@JOBS
@calm
@given(st.data())
def test_the_server_answers_or_refuses_anything(
    tmp_path: Path, uploads: str, membership: str, data: st.DataObject
) -> None:
    job = Trial(uploads, membership).after(data.draw(st.integers(0, whole(uploads, membership)[0])))
    Journal.remove(tmp_path)
    journal = Journal(tmp_path, bytes(32))
    for _ in range(data.draw(st.integers(1, 4))):
        name = data.draw(st.sampled_from([*job.federation.roster, "server", "mallory"]))
        honest = said_to_the_server(job, name if name in job.clients else "c0")
        method, kind, good, many = data.draw(st.sampled_from(honest))
        raw = data.draw(st.one_of(damaged(good), st.just(good), st.binary(max_size=60)))

        def serve(driver: Driver, method: str = method) -> Handler:
            of: Any = Exchange(job.server, driver, "trial") if method in ("Progress", "Deliver", "Hand") else None
            return getattr(of or Service(job.server, driver), method)  # type: ignore[no-any-return]

        answer(serve, job.server, journal, kind, raw, name, many=many)
    journal.close()


# --- to a client: other clients -------------------------------------------------------------------------------------------


@JOBS
@calm
@given(st.data())
def test_a_client_answers_or_refuses_anything_that_clients_send(
    uploads: str, membership: str, data: st.DataObject
) -> None:
    job = Trial(uploads, membership).after(data.draw(st.integers(0, whole(uploads, membership)[0])))
    me, disk = job.me, Dictionary()
    owner = job.clients["c1"].site
    session = me.session or bytes(32)
    size = 8 * job.plan.share_layout(len(owner.rows)).words
    names = [owner.share_set.id, me.site.share_set.id, bytes(32)]
    aligned = getattr(me._phase, "_union", None)
    if aligned is not None:
        names += [aligned.stage.ids[1], aligned.context]
    parcels = [Parcel(session, kind, name) for kind in Kind for name in names]
    for _ in range(data.draw(st.integers(1, 4))):
        parcel, total = data.draw(st.sampled_from(parcels)), data.draw(st.sampled_from([0, 16, 24, 32, size]))
        delivered = wire.piece_to(parcel, 0, total, bytes(total)).SerializeToString()
        method, kind, good, many = data.draw(
            st.sampled_from(
                [
                    ("Deliver", pb.Piece, delivered, True),
                    ("Hand", pb.Piece, delivered, False),
                    ("Progress", pb.Parcel, wire.to_message(parcel).SerializeToString(), False),
                ]
            )
        )
        raw = data.draw(st.one_of(damaged(good), st.just(good), st.binary(max_size=60)))
        sender = data.draw(st.sampled_from(["c1", "c2", "c0", "server", "mallory"]))
        ended = me.ended

        def serve(driver: Driver, method: str = method) -> Handler:
            return getattr(Exchange(me, driver, "trial"), method)  # type: ignore[no-any-return]

        answer(serve, me, disk, kind, raw, sender, many=many)
        assert ended is not None or me.ended is None or sender == "c1", "only an expected sender ends us"


# --- to a client: the server ------------------------------------------------------------------------------------------------


def hear(me: Participant, data: bytes) -> None:
    """As the driver does, with a `SecfcError` as the only way out."""
    try:
        message = pb.Event.FromString(data)
    except (DecodeError, UnicodeDecodeError):
        return
    try:
        inputs: list[Any] = [Told(wire.event_from(message))]
        while inputs:
            effects = me.handle(inputs.pop(0), 1.0)
            inputs += [worked(work) for work in effects.work]
    except SecfcError as error:
        assert str(error).isprintable()  # noqa: PT017
    if me.ended is not None and me.ended.error is not None:
        assert str(me.ended.error).isprintable()


def worked(work: Any) -> Worked:
    try:
        return Worked(work.name, None if isinstance(work, Load) else work.run())
    except SecfcError as error:
        return Worked(work.name, error=error)


@JOBS
@calm
@given(st.data())
def test_a_client_takes_or_refuses_anything_that_the_server_says(
    uploads: str, membership: str, data: st.DataObject
) -> None:
    steps, heard = whole(uploads, membership)
    me = Trial(uploads, membership).after(data.draw(st.integers(0, steps))).me
    tracemalloc.start()
    try:
        for _ in range(data.draw(st.integers(1, 5))):
            good = data.draw(st.sampled_from(heard))
            hear(me, data.draw(st.one_of(damaged(good), st.just(good), st.binary(max_size=60))))
        assert tracemalloc.get_traced_memory()[1] < LIMIT
    finally:
        tracemalloc.stop()
