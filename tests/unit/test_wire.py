"""Plain values to protobuf and back, and what a hostile peer may put in between: only Malformed comes of it."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import example, given, settings
from hypothesis import strategies as st

from secfc import events, wire
from secfc.errors import Malformed
from secfc.v1 import secfc_pb2 as pb
from tests.protocol.joined import deal, introduced, make_federation

calm = settings(deadline=None, max_examples=100)
count64 = st.integers(0, (1 << 64) - 1)
count32 = st.integers(0, (1 << 32) - 1)
text = st.text(st.characters(exclude_categories=["C", "Zl", "Zp", "Zs"]), max_size=40)
digest = st.binary(min_size=32, max_size=32)

introductions = st.builds(
    events.Introduction,
    name=text.filter(bool),
    rows=st.integers(0, 1 << 31),
    share_set=st.binary(min_size=16, max_size=16),
    x25519=digest,
    nonce=digest,
    commitment=digest,
    certificate=st.binary(max_size=100),
    signature=st.binary(max_size=128),
    features=digest,
)


@st.composite
def pieces(draw: st.DrawFn) -> events.Assignment:
    data = draw(st.binary(max_size=50))
    offset = draw(st.integers(0, (1 << 63) - 51))
    total = draw(st.integers(offset + len(data), (1 << 63) - 1))
    return events.Assignment(draw(count64), draw(count64), offset, total, data)


all_events = st.one_of(
    st.builds(
        events.Waiting,
        phase=text,
        missing=st.lists(text, max_size=5).map(tuple),
        unreachable_by=st.lists(text, max_size=5).map(tuple),
    ),
    st.builds(events.Roster, members=st.lists(introductions, max_size=3).map(tuple)),
    st.builds(events.Reveals, coins=st.lists(digest, max_size=3).map(tuple)),
    pieces(),
    st.builds(
        events.RoundRequest,
        number=count64,
        attempt=count32,
        responders=st.lists(count32, max_size=9).map(tuple),
        columns=st.lists(count32, max_size=9).map(tuple),
        assignment_digest=digest,
        received=count64,
        deadline_seconds=st.floats(0, 86400, exclude_min=True),
    ),
    st.builds(
        events.Finished, version=count64, rounds=count64, converged=st.booleans(), inertia=st.floats(allow_nan=False)
    ),
    st.builds(events.Failed, reason=text, again=st.booleans()),
)
reports = st.one_of(
    st.builds(
        events.Held,
        digest=digest,
        sent_bytes=count64,
        received_bytes=count64,
        seconds=st.floats(allow_nan=False, allow_infinity=False),
        coin=digest,
    ),
    st.builds(events.Unreachable, peer=text, reason=text),
    st.builds(events.Done),
    st.builds(events.Stopped, reason=text),
)


@calm
@given(all_events)
@example(events.Waiting("", ()))
@example(events.Roster(()))
@example(events.Failed(""))
def test_events_survive(event: events.Event) -> None:
    data = wire.event_to(event).SerializeToString()
    assert wire.event_from(pb.Event.FromString(data)) == event


@calm
@given(reports, st.binary(min_size=16, max_size=16))
@example(events.Done(), bytes(16))
def test_reports_survive(report: events.Report, instance: bytes) -> None:
    message = pb.ReportRequest.FromString(wire.report_to(report, instance).SerializeToString())
    assert message.instance == instance
    assert wire.report_from(message) == report


@calm
@given(introductions)
def test_introductions_survive(introduction: events.Introduction) -> None:
    data = wire.introduction_to(introduction).SerializeToString()
    assert wire.introduction_from(pb.Introduction.FromString(data)) == introduction


def test_an_inertia_that_is_no_number_survives() -> None:
    event = wire.event_from(wire.event_to(events.Finished(1, 2, True, math.nan)))
    assert isinstance(event, events.Finished)
    assert math.isnan(event.inertia)


# --- chunks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("total", [0, 1, 5, wire.CHUNK_WORDS, wire.CHUNK_WORDS + 1])
@pytest.mark.parametrize("first", [0, 1, 5])
def test_chunks_cover_the_rest(total: int, first: int) -> None:
    words = np.arange(total, dtype=np.uint64)
    found = []
    for chunk in wire.chunks(words, first):
        data = wire.word_bytes(chunk.words)
        assert len(data) <= wire.CHUNK_BYTES
        message = pb.UploadChunk(round=1, attempt=1, offset=chunk.offset, total=chunk.total, words=data)
        back = wire.chunk_from(pb.UploadChunk.FromString(message.SerializeToString()))
        assert (back.offset, back.total) == (chunk.offset, total)
        assert back.words.tolist() == chunk.words.tolist()
        found += back.words.tolist()
    assert found == list(range(first, total))


@pytest.mark.parametrize("carried", [70_000, 200_000, 1 << 20, 30 << 20])
def test_at_least_a_quarter_of_what_a_connection_carries_counts(carried: int) -> None:
    """What arrives of a piece that is not whole is lost, so the first pieces are small, and only then do they grow."""
    words = np.zeros(1 << 22, np.uint64)
    arrived, sizes = 0, []
    for chunk in wire.chunks(words, 17):
        sizes.append(8 * len(chunk.words))
        if sum(sizes) <= carried:
            arrived = sum(sizes)
    assert arrived >= carried / 4
    assert sizes[0] == 32 << 10
    assert max(sizes) == wire.CHUNK_BYTES
    assert len(sizes) < 50  # few small ones: they cost time


def test_nothing_left_is_told_by_one_empty_chunk() -> None:
    for words, first in ((np.zeros(0, np.uint64), 0), (np.zeros(4, np.uint64), 4), (np.zeros(4, np.uint64), 1 << 62)):
        [chunk] = wire.chunks(words, first)
        assert (chunk.offset, chunk.total, len(chunk.words)) == (len(words), len(words), 0)


def test_words_are_little_endian() -> None:
    assert wire.word_bytes(np.array([1, 1 << 56], dtype=np.uint64)) == b"\1" + bytes(14) + b"\1"
    assert wire.word_bytes(np.array([1], dtype=">u8")) == b"\1" + bytes(7)


@pytest.mark.parametrize("kind", [pb.UploadChunk, pb.ShareChunk])
@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"words": b"1234567", "total": 9}, "whole 64-bit words"),
        ({"words": bytes(wire.CHUNK_BYTES + 8), "total": 1 << 62}, "at most"),
        ({"words": bytes(16), "total": 1}, "beyond its total"),
        ({"words": bytes(16), "offset": 8, "total": 9}, "beyond its total"),
        ({"offset": 10, "total": 9}, "beyond its total"),
        ({"words": bytes(8), "offset": (1 << 64) - 1, "total": (1 << 64) - 1}, "beyond its total"),
    ],
)
def test_malformed_chunks(kind: Any, fields: dict[str, Any], words: str) -> None:
    with pytest.raises(Malformed, match=words):
        wire.chunk_from(kind(**fields))


# --- hostile events -------------------------------------------------------------------------------------------------------

INTRODUCTION = {
    "name": "c0",
    "rows": 3,
    "share_set": bytes(16),
    "x25519": bytes(32),
    "nonce": bytes(32),
    "commitment": bytes(32),
    "features": bytes(32),
}
ROUND = {"number": 1, "attempt": 1, "assignment_digest": bytes(32), "deadline_seconds": 5.0}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"name": ""}, "impossible length"),
        ({"name": "x" * 65}, "impossible length"),
        ({"certificate": bytes(wire.MAX_CERTIFICATE + 1)}, "impossible length"),
        ({"signature": bytes(129)}, "impossible length"),
        ({"rows": (1 << 31) + 1}, "more than 2\\^31 rows"),
        ({"rows": (1 << 64) - 1}, "more than 2\\^31 rows"),
        ({"share_set": bytes(15)}, "a share set's id must have 16 bytes, not 15"),
        ({"share_set": b""}, "a share set's id"),
        ({"x25519": bytes(31)}, "an X25519 key must have 32 bytes, not 31"),
        ({"nonce": bytes(33)}, "a nonce must have 32 bytes, not 33"),
        ({"commitment": b""}, "a coin's commitment must have 32 bytes, not 0"),
        ({"features": b""}, "the digest of the features must have 32 bytes, not 0"),
        ({"features": bytes(31)}, "the digest of the features must have 32 bytes, not 31"),
    ],
)
def test_malformed_introductions(changes: dict[str, Any], words: str) -> None:
    message = pb.Introduction(**INTRODUCTION | changes)
    with pytest.raises(Malformed, match=words):
        wire.introduction_from(message)
    with pytest.raises(Malformed, match=words):
        wire.event_from(pb.Event(roster=pb.Roster(members=[pb.Introduction(**INTRODUCTION), message])))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"responders": range(wire.MAX_CLIENTS + 1)}, "too many responders or columns"),
        ({"columns": [0] * (wire.MAX_COLUMNS + 1)}, "too many responders or columns"),
        ({"assignment_digest": b""}, "an assignment's digest must have 32 bytes, not 0"),
        ({"assignment_digest": bytes(33)}, "an assignment's digest"),
        ({"deadline_seconds": math.nan}, "between now and a day"),
        ({"deadline_seconds": math.inf}, "between now and a day"),
        ({"deadline_seconds": -math.inf}, "between now and a day"),
        ({"deadline_seconds": 0.0}, "between now and a day"),
        ({"deadline_seconds": -1.0}, "between now and a day"),
        ({"deadline_seconds": 86400.5}, "between now and a day"),
    ],
)
def test_malformed_rounds(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(Malformed, match=words):
        wire.event_from(pb.Event(round=pb.RoundRequest(**ROUND | changes)))


@pytest.mark.parametrize(
    "fields",
    [
        {"data": bytes(10), "total": 9},
        {"data": bytes(10), "offset": 1, "total": 10},
        {"offset": 11, "total": 10},
        {"data": bytes(wire.CHUNK_BYTES + 1), "total": 1 << 40},
        {"data": b"x", "offset": (1 << 64) - 1, "total": (1 << 64) - 1},
    ],
)
def test_malformed_pieces_of_an_assignment(fields: dict[str, Any]) -> None:
    with pytest.raises(Malformed, match="does not fit its total"):
        wire.event_from(pb.Event(assignment=pb.AssignmentChunk(**fields)))


def test_too_large_a_roster() -> None:
    members = [pb.Introduction(**INTRODUCTION)] * (wire.MAX_CLIENTS + 1)
    with pytest.raises(Malformed, match="too many members"):
        wire.event_from(pb.Event(roster=pb.Roster(members=members)))


def test_unknown_kinds() -> None:
    unknown = b"\xfa\x01\x02\x08\x01"  # field 31, of some later version
    for data in (b"", unknown):
        with pytest.raises(Malformed, match="install the same version everywhere"):
            wire.event_from(pb.Event.FromString(data))
        with pytest.raises(Malformed, match="install the same version everywhere"):
            wire.report_from(pb.ReportRequest.FromString(data))


@pytest.mark.parametrize("size", [0, 31, 33])
def test_a_digest_of_share_sets_of_another_length(size: int) -> None:
    with pytest.raises(Malformed, match=f"32 bytes, not {size}"):
        wire.report_from(pb.ReportRequest(held=pb.Held(share_sets_digest=bytes(size))))


@pytest.mark.parametrize("seconds", [math.nan, math.inf, -math.inf])
def test_times_that_are_no_numbers_are_dropped(seconds: float) -> None:
    report = wire.report_from(
        pb.ReportRequest(held=pb.Held(share_sets_digest=bytes(32), seconds=seconds, coin=bytes(32)))
    )
    assert report == events.Held(bytes(32), 0, 0, 0.0, bytes(32))


@pytest.mark.parametrize("ugly", ["\x1b[31m", "a\nb", "\x00", "\u2028", "\u202e", "x" * 10_000])
def test_texts_for_people_are_one_printable_line(ugly: str) -> None:
    found = [
        wire.event_from(pb.Event(failed=pb.Failed(reason=ugly))).reason,  # type: ignore[union-attr]
        wire.event_from(pb.Event(waiting=pb.Waiting(phase=ugly))).phase,  # type: ignore[union-attr]
        wire.event_from(pb.Event(waiting=pb.Waiting(missing=[ugly]))).missing[0],  # type: ignore[union-attr]
        wire.event_from(pb.Event(waiting=pb.Waiting(unreachable_by=[ugly]))).unreachable_by[0],  # type: ignore[union-attr]
        wire.report_from(pb.ReportRequest(stopped=pb.Stopped(reason=ugly))).reason,  # type: ignore[union-attr]
        wire.report_from(pb.ReportRequest(unreachable=pb.Unreachable(peer=ugly))).peer,  # type: ignore[union-attr]
        wire.report_from(pb.ReportRequest(unreachable=pb.Unreachable(reason=ugly))).reason,  # type: ignore[union-attr]
    ]
    for line in found:
        assert line.isprintable()
        assert len(line) <= wire.MAX_TEXT


def test_huge_claims_allocate_nothing() -> None:
    """2⁶³ words or bytes are claimed; the machines refuse them by what is due."""
    owner, me, _ = introduced(make_federation(3), deal(1, [3, 4, 5]))
    tracemalloc.start()
    try:
        chunk = wire.chunk_from(pb.ShareChunk(offset=0, total=1 << 63, words=bytes(8)))
        with pytest.raises(Malformed, match="words of shares are due"):
            me.receive(owner.name, owner.session, owner.share_set.id, chunk)
        late = wire.chunk_from(pb.ShareChunk(offset=1 << 62, total=1 << 63, words=bytes(8)))
        with pytest.raises(Malformed, match="words of shares are due"):
            me.receive(owner.name, owner.session, owner.share_set.id, late)
        piece = wire.event_from(pb.Event(assignment=pb.AssignmentChunk(version=1, total=1 << 63, data=b"x")))
        with pytest.raises(Exception, match="too long"):
            me.handle(piece)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


READERS: list[tuple[Any, Callable[[Any], object]]] = [
    (pb.Event, wire.event_from),
    (pb.ReportRequest, wire.report_from),
    (pb.Introduction, wire.introduction_from),
    (pb.UploadChunk, wire.chunk_from),
    (pb.ShareChunk, wire.chunk_from),
]


def check_reading(data: bytes) -> None:
    for kind, reader in READERS:
        try:
            message = kind.FromString(data)
        except (DecodeError, UnicodeDecodeError):
            continue
        try:
            reader(message)
        except Malformed as error:
            assert str(error).isprintable()  # noqa: PT017


@calm
@given(st.binary(max_size=80))
def test_arbitrary_bytes(data: bytes) -> None:
    check_reading(data)


@calm
@given(st.one_of(all_events.map(wire.event_to), reports.map(lambda r: wire.report_to(r, bytes(16)))), st.data())
def test_damaged_messages(message: Any, data: st.DataObject) -> None:
    raw = bytearray(message.SerializeToString())
    for _ in range(data.draw(st.integers(1, 4))):
        if raw:
            raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    check_reading(bytes(raw))
