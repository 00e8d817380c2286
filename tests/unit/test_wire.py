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

from secfc.errors import Malformed
from secfc.net import wire
from secfc.protocol import messages, transfer
from secfc.protocol.messages import Phase
from secfc.protocol.parcels import Kind, Parcel, Whole, of_words
from secfc.v1 import secfc_pb2 as pb
from tests.unit.test_participant import introduced

calm = settings(deadline=None, max_examples=100)
count64 = st.integers(0, (1 << 64) - 1)
count32 = st.integers(0, (1 << 32) - 1)
text = st.text(st.characters(exclude_categories=["C", "Zl", "Zp", "Zs"]), max_size=40)
digest = st.binary(min_size=32, max_size=32)

introductions = st.builds(
    messages.Introduction,
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


parcels = st.builds(Parcel, session=digest, kind=st.sampled_from(Kind), name=st.binary(max_size=wire.MAX_NAME))


@st.composite
def pieces(draw: st.DrawFn) -> messages.Piece:
    data = draw(st.binary(max_size=50))
    offset = draw(st.integers(0, wire.MAX_BYTES - 51))
    total = draw(st.integers(offset + len(data), wire.MAX_BYTES))
    return messages.Piece(draw(parcels), offset, total, data)


all_events = st.one_of(
    st.builds(
        messages.Waiting,
        phase=st.sampled_from(Phase),
        missing=st.lists(text, max_size=5).map(tuple),
        unreachable_by=st.lists(text, max_size=5).map(tuple),
    ),
    st.builds(messages.Roster, members=st.lists(introductions, max_size=3).map(tuple)),
    st.builds(
        messages.Agreements,
        signatures=st.lists(st.binary(max_size=128), max_size=3).map(tuple),
        proofs=st.lists(st.sampled_from([b"", bytes(32)]), max_size=3).map(tuple),
    ),
    st.builds(messages.Reveals, coins=st.lists(digest, max_size=3).map(tuple)),
    pieces(),
    st.builds(
        messages.RoundRequest,
        number=count64,
        attempt=count32,
        responders=st.lists(count32, max_size=9).map(tuple),
        columns=st.lists(count32, max_size=9).map(tuple),
        assignment_digest=digest,
        past=st.booleans(),
        deadline_seconds=st.floats(0, 86400, exclude_min=True),
    ),
    st.builds(
        messages.Finished, version=count64, rounds=count64, converged=st.booleans(), inertia=st.floats(allow_nan=False)
    ),
    st.builds(messages.Failed, reason=text, again=st.booleans()),
)
reports = st.one_of(
    st.builds(
        messages.Held,
        share_sets_digest=digest,
        sent_bytes=count64,
        received_bytes=count64,
        seconds=st.floats(allow_nan=False, allow_infinity=False),
        coin=digest,
    ),
    st.builds(messages.Unreachable, peer=text, reason=text),
    st.builds(messages.Done),
    st.builds(messages.Stopped, reason=text),
    st.builds(messages.Refused, reason=text),
    st.builds(messages.Agreed, signature=st.binary(max_size=128), proofs=st.just((b"", bytes(32)))),
)


@calm
@given(all_events)
@example(messages.Waiting(Phase.JOINING, ()))
@example(messages.Roster(()))
@example(messages.Failed(""))
def test_events_survive(event: messages.Event) -> None:
    data = wire.event_to(event).SerializeToString()
    assert wire.event_from(pb.Event.FromString(data)) == event


@calm
@given(reports, st.binary(min_size=16, max_size=16))
@example(messages.Done(), bytes(16))
def test_reports_survive(report: messages.Report, instance: bytes) -> None:
    message = pb.ReportRequest.FromString(wire.report_to(report, instance).SerializeToString())
    assert message.instance == instance
    assert wire.report_from(message) == report


def test_an_inertia_that_is_no_number_survives() -> None:
    event = wire.event_from(wire.event_to(messages.Finished(1, 2, True, math.nan)))
    assert isinstance(event, messages.Finished)
    assert math.isnan(event.inertia)


joins = st.builds(
    messages.Join,
    agreed=digest,
    instance=st.binary(min_size=16, max_size=16),
    introduction=introductions,
    begun=st.booleans(),
)


@calm
@given(joins)
def test_joins_survive(join: messages.Join) -> None:
    assert wire.join_from(pb.JoinRequest.FromString(wire.join_to(join).SerializeToString())) == join


# --- pieces -----------------------------------------------------------------------------------------------------------


@calm
@given(pieces(), st.floats(allow_nan=False, allow_infinity=False))
def test_pieces_survive(piece: messages.Piece, seconds: float) -> None:
    sent = wire.piece_to(piece.parcel, piece.offset, piece.total, memoryview(piece.data), seconds)
    back = wire.arrived_from("a", pb.Piece.FromString(sent.SerializeToString()))
    assert (back.sender, back.parcel, back.offset, back.total, back.data, back.seconds) == (
        "a",
        piece.parcel,
        piece.offset,
        piece.total,
        piece.data,
        seconds,
    )


@pytest.mark.parametrize("carried", [70_000, 200_000, 1 << 20, 30 << 20])
def test_at_least_a_quarter_of_what_a_connection_carries_counts(carried: int) -> None:
    """What arrives of a piece that is not whole is lost, so the first pieces are small, and only then do they grow."""
    arrived, sizes = 0, []
    for _, data in transfer.pieces(Whole(bytes(1 << 25)), 17 * 8):
        sizes.append(len(data))
        if sum(sizes) <= carried:
            arrived = sum(sizes)
    assert arrived >= carried / 4
    assert sizes[0] == 32 << 10
    assert max(sizes) == transfer.PIECE_BYTES
    assert len(sizes) < 50  # few small ones: they cost time


def test_words_are_little_endian() -> None:
    assert bytes(of_words(np.array([1, 1 << 56], dtype=np.uint64)).data) == b"\1" + bytes(14) + b"\1"
    assert bytes(of_words(np.array([1], dtype=">u8")).data) == b"\1" + bytes(7)


PARCEL = {"session": bytes(32), "kind": pb.KIND_SHARES, "name": bytes(16)}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (
            {"data": bytes(transfer.PIECE_BYTES + 1), "total": 1 << 40},
            "a piece must have 0 to 1048576 bytes, not 1048577",
        ),
        ({"data": bytes(8), "total": wire.MAX_BYTES + 1}, "a parcel's bytes must be at most"),
        ({"data": bytes(16), "total": 8}, "beyond its total"),
        ({"data": bytes(10), "offset": 1, "total": 10}, "beyond its total"),
        ({"offset": 11, "total": 10}, "beyond its total"),
        ({"data": b"x", "offset": (1 << 64) - 1, "total": (1 << 64) - 1}, "at most"),
        ({"parcel": {"session": b""}}, "a session must have 32 bytes, not 0"),
        ({"parcel": {"kind": 0}}, "of a kind this version does not know"),
        ({"parcel": {"kind": 99}}, "of a kind this version does not know"),
        ({"parcel": {"name": bytes(wire.MAX_NAME + 1)}}, "a parcel's name must have 0 to 64 bytes, not 65"),
    ],
)
def test_malformed_pieces(fields: dict[str, Any], words: str) -> None:
    message = pb.Piece(**fields | {"parcel": pb.Parcel(**PARCEL | fields.get("parcel", {}))})
    with pytest.raises(Malformed, match=words):
        wire.arrived_from("a", message)
    with pytest.raises(Malformed, match=words):
        wire.event_from(pb.Event(piece=message))


@pytest.mark.parametrize("phase", [0, 99])
def test_an_unknown_phase(phase: int) -> None:
    with pytest.raises(Malformed, match="a phase this version does not know"):
        wire.event_from(pb.Event(waiting=pb.Waiting(phase=phase)))  # type: ignore[arg-type]


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
        ({"name": ""}, "a client's name must have 1 to 64 bytes, not 0"),
        ({"name": "x" * 65}, "a client's name must have 1 to 64 bytes, not 65"),
        ({"certificate": bytes(wire.MAX_CERTIFICATE + 1)}, "a certificate must have"),
        ({"signature": bytes(129)}, "a signature must have 0 to 128 bytes, not 129"),
        ({"rows": (1 << 31) + 1}, "rows of a client must be at most"),
        ({"rows": (1 << 64) - 1}, "rows of a client must be at most"),
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
        wire.join_from(pb.JoinRequest(instance=bytes(16), introduction=message))
    with pytest.raises(Malformed, match=words):
        wire.event_from(pb.Event(roster=pb.Roster(members=[pb.Introduction(**INTRODUCTION), message])))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"responders": range(wire.MAX_CLIENTS + 1)}, "there are 2048 responders; at most 2047"),
        ({"columns": [0] * (wire.MAX_COLUMNS + 1)}, "columns; at most"),
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


def test_too_large_a_roster() -> None:
    members = [pb.Introduction(**INTRODUCTION)] * (wire.MAX_CLIENTS + 1)
    with pytest.raises(Malformed, match="there are 2048 members; at most 2047"):
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
    assert report == messages.Held(bytes(32), 0, 0, 0.0, bytes(32))


@pytest.mark.parametrize("ugly", ["\x1b[31m", "a\nb", "\x00", "\u2028", "\u202e", "x" * 10_000])
def test_texts_for_people_are_one_printable_line(ugly: str) -> None:
    found = [
        wire.event_from(pb.Event(failed=pb.Failed(reason=ugly))).reason,  # type: ignore[union-attr]
        wire.event_from(pb.Event(waiting=pb.Waiting(phase=pb.PHASE_ROUNDS, missing=[ugly]))).missing[0],  # type: ignore[union-attr]
        wire.event_from(pb.Event(waiting=pb.Waiting(phase=pb.PHASE_ROUNDS, unreachable_by=[ugly]))).unreachable_by[0],  # type: ignore[union-attr]
        wire.report_from(pb.ReportRequest(stopped=pb.Stopped(reason=ugly))).reason,  # type: ignore[union-attr]
        wire.report_from(pb.ReportRequest(unreachable=pb.Unreachable(peer=ugly))).peer,  # type: ignore[union-attr]
        wire.report_from(pb.ReportRequest(unreachable=pb.Unreachable(reason=ugly))).reason,  # type: ignore[union-attr]
    ]
    for line in found:
        assert line.isprintable()
        assert len(line) <= messages.MAX_TEXT


def test_huge_claims_allocate_nothing() -> None:
    """2⁴⁷ bytes are claimed; the machines refuse them by what is due."""
    clients = introduced()
    owner, me = clients[0], clients[2]
    shares, huge = owner.shares(me).message, 1 << 47
    assignment = Parcel(me.machine.session, Kind.ASSIGNMENT, bytes(16))
    tracemalloc.start()
    try:
        for offset in (0, huge >> 1):
            with pytest.raises(Malformed, match="are due"):
                me.give(wire.arrived_from("c0", wire.piece_to(shares, offset, huge, bytes(8))))
        me.hear(wire.event_from(pb.Event(piece=wire.piece_to(assignment, 0, huge, b"x"))))
        assert me.machine.ended is not None
        assert isinstance(me.machine.ended.error, Malformed)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


READERS: list[tuple[Any, Callable[[Any], object]]] = [
    (pb.Event, wire.event_from),
    (pb.ReportRequest, wire.report_from),
    (pb.JoinRequest, wire.join_from),
    (pb.Parcel, wire.parcel_from),
    (pb.Piece, lambda message: wire.arrived_from("a", message)),
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
