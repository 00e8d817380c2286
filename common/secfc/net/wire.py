"""Plain values to protobuf messages and back; the only module besides the services that knows the generated code.

Values and messages have the same names and fields, so one pair of functions translates them all. Everything that comes in is
hostile until checked: lengths, ranges and enumerations are refused by the rules below with `Malformed`; what depends on the
state of a job is checked by the machines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import isfinite
from typing import Any, TypeVar

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from secfc.agreement.job import MOST_RUNS
from secfc.errors import Malformed
from secfc.kmeans.rowsets import MOST_BYTES
from secfc.privacy import envelopes, keys
from secfc.privacy.envelopes import Envelope, Sort
from secfc.protocol import messages, transfer
from secfc.protocol.effects import Arrived
from secfc.protocol.messages import Phase, line
from secfc.protocol.parcels import Data, Kind, Parcel
from secfc.v1 import secfc_pb2 as pb

MAX_CLIENTS = 2047
MAX_CERTIFICATE = 16 << 10
MAX_SIGNATURE = 128
MAX_COLUMNS = 1 << 20
MAX_NAME = 64
MAX_DETAIL = 64 << 10
MAX_BYTES = 1 << 48  # of a parcel: beyond any job
MAX_SEALED = transfer.PIECE_BYTES + 1024  # a piece with its name, and the seal
MAX_ENVELOPE = MAX_SEALED + 1024

T = TypeVar("T")
Rule = Callable[[Any], Any]  # a field of a message to what it stands for; raises Malformed

_NUMBERS = {phase: pb.Phase.Value(f"PHASE_{phase.name}") for phase in Phase} | {
    kind: kind.value for kind in (*Kind, *Sort)
}


def _told(choice: Any) -> dict[str, type]:
    """Our type for every message that may be chosen."""
    return {field.name: getattr(messages, field.message_type.name) for field in choice.fields}


_EVENTS = _told(pb.Event.DESCRIPTOR.oneofs_by_name["kind"])
_REPORTS = _told(pb.ReportRequest.DESCRIPTOR.oneofs_by_name["kind"])
_FIELDS = {kind: name for name, kind in (_EVENTS | _REPORTS).items()}


# --- rules -------------------------------------------------------------------------------------------------------------


def _as_it_is(value: Any) -> Any:
    return value


def sized(what: str, sizes: Sequence[int]) -> Rule:
    """Bytes, or text, of one of these lengths."""
    shown = f"{sizes[0]} to {sizes[-1]}" if isinstance(sizes, range) else " or ".join(map(str, sizes))

    def check(data: Any) -> Any:
        if len(data) not in sizes:
            raise Malformed(f"{what} must have {shown} bytes, not {len(data)}")
        return data

    return check


def _number(what: str, most: int) -> Rule:
    def check(number: int) -> int:
        if number > most:
            raise Malformed(f"{what} must be at most {most}, not {number}")
        return number

    return check


def many(what: str, most: int, each: Rule = _as_it_is) -> Rule:
    """At most so many, each by a rule."""

    def check(items: Any) -> tuple[Any, ...]:
        if len(items) > most:
            raise Malformed(f"there are {len(items)} {what}; at most {most} are allowed")
        return tuple(map(each, items))

    return check


def _known(kinds: Iterable[Phase | Kind | Sort], what: str) -> Rule:
    by_number = {_NUMBERS[kind]: kind for kind in kinds}

    def check(number: int) -> Phase | Kind | Sort:
        if number not in by_number:
            raise Malformed(f"{what} this version does not know; install the same version everywhere")
        return by_number[number]

    return check


def lines(texts: Sequence[str], most: int = MAX_CLIENTS) -> tuple[str, ...]:
    """A peer's texts, each made safe to show; what there is beyond `most` is left out."""
    return tuple(line(text) for text in texts[:most])


def seconds(number: float) -> float:
    """A peer's measurement: nothing depends on it, and what is no number counts as none."""
    return number if isfinite(number) else 0.0


def _deadline(number: float) -> float:
    if not 0 < number <= 86400:
        raise Malformed("a round's deadline must lie between now and a day")
    return number


def read(kind: type[T], message: Any, rules: Mapping[str, Rule] | None = None) -> T:
    """The value that a message stands for, every field by its rule: those given, or those of its kind."""
    rules = _RULES.get(kind, {}) if rules is None else rules
    names: Iterable[str] = kind.__dataclass_fields__  # type: ignore[attr-defined]
    return kind(**{name: rules.get(name, _as_it_is)(getattr(message, name)) for name in names})


phase_from = _known(Phase, "the server is in a phase")
_SIGNATURE = sized("a signature", range(MAX_SIGNATURE + 1))
_PROOFS = many("proofs", MAX_CLIENTS, sized("a proof", (0, keys.PROOF_BYTES)))
_DIGEST = (32,)
_OF_A_RUN: dict[str, Rule] = {
    "columns": many("columns", MAX_COLUMNS),
    "assignment_digest": sized("an assignment's digest", _DIGEST),
    "detail": sized("what a round kind says besides", range(MAX_DETAIL + 1)),
    "rows": sized("the rows that are asked for", range(MOST_BYTES + 1)),
}
_RULES: dict[type, dict[str, Rule]] = {
    messages.Introduction: {
        "name": sized("a client's name", range(1, 65)),
        "rows": _number("the rows of a client", 1 << 31),
        "share_set": sized("a share set's id", (16,)),
        "x25519": sized("an X25519 key", (32,)),
        "nonce": sized("a nonce", (32,)),
        "commitment": sized("a coin's commitment", _DIGEST),
        "certificate": sized("a certificate", range(MAX_CERTIFICATE + 1)),
        "signature": _SIGNATURE,
        "features": sized("the digest of the features", _DIGEST),
    },
    messages.Waiting: {"phase": phase_from, "missing": lines, "unreachable_by": lines},
    messages.Roster: {"members": many("members", MAX_CLIENTS, partial(read, messages.Introduction))},
    messages.Agreements: {"signatures": many("signatures", MAX_CLIENTS, _SIGNATURE), "proofs": _PROOFS},
    messages.Scale: {"digest": sized("the digest of a scale", _DIGEST)},
    messages.Scaled: {"digest": sized("the digest of a scale", _DIGEST)},
    messages.Reveals: {"coins": many("coins", MAX_CLIENTS, sized("a coin", (32,)))},
    messages.RunRequest: _OF_A_RUN,
    messages.RoundRequest: _OF_A_RUN
    | {
        "responders": many("responders", MAX_CLIENTS),
        "deadline_seconds": _deadline,
        "more": many("further runs", MOST_RUNS - 1, partial(read, messages.RunRequest)),
    },
    messages.Failed: {"reason": line},
    messages.Agreed: {"signature": _SIGNATURE, "proofs": _PROOFS},
    messages.Held: {
        "share_sets_digest": sized("the digest of share sets", _DIGEST),
        "seconds": seconds,
        "coin": sized("a coin", (32,)),
    },
    messages.Unreachable: {"peer": line, "reason": line},
    messages.Stopped: {"reason": line},
    messages.Refused: {"reason": line},
    Parcel: {
        "session": sized("a session", (32,)),
        "kind": _known(Kind, "a parcel is of a kind"),
        "name": sized("a parcel's name", range(MAX_NAME + 1)),
    },
    messages.Piece: {
        "parcel": partial(read, Parcel),
        "total": _number("a parcel's bytes", MAX_BYTES),
        "data": sized("a piece", range(transfer.PIECE_BYTES + 1)),
    },
}


def to_message(value: Any) -> Any:
    """A value as its message; a field of one as protobuf takes it."""
    match value:
        case Phase() | Kind() | Sort():
            return _NUMBERS[value]
        case tuple():
            return [to_message(one) for one in value]
        case _ if hasattr(value, "__dataclass_fields__"):
            return getattr(pb, type(value).__name__)(**{name: to_message(one) for name, one in vars(value).items()})
    return value


# --- messages ------------------------------------------------------------------------------------------------------------


def join_to(value: messages.Join) -> pb.JoinRequest:
    fields = {name: to_message(one) for name, one in vars(value).items()}
    return pb.JoinRequest(federation_digest=fields.pop("agreed"), **fields)


def join_from(message: pb.JoinRequest) -> messages.Join:
    instance = sized("an instance id", (16,))(message.instance)
    introduction = read(messages.Introduction, message.introduction)
    names = many("names on the committee", MAX_CLIENTS)(message.committee)
    return messages.Join(message.federation_digest, instance, introduction, message.begun, names)


def event_to(value: messages.Event) -> pb.Event:
    if not isinstance(value, messages.Piece):
        return pb.Event(**{_FIELDS[type(value)]: to_message(value)})
    event = pb.Event()
    _fill(event.piece, value.parcel, value.offset, value.total, value.data)
    return event


def event_from(message: pb.Event) -> messages.Event:
    kind = message.WhichOneof("kind")
    if kind is None:
        raise Malformed("the server sent an event this version does not know; install the same version everywhere")
    if kind == "piece":
        return _piece(message.piece)
    event: messages.Event = read(_EVENTS[kind], getattr(message, kind))
    return event


def report_to(value: messages.Report, instance: bytes) -> pb.ReportRequest:
    return pb.ReportRequest(instance=instance, **{_FIELDS[type(value)]: to_message(value)})


def report_from(message: pb.ReportRequest) -> messages.Report:
    kind = message.WhichOneof("kind")
    if kind is None:
        raise Malformed("a report says nothing this version knows; install the same version everywhere")
    report: messages.Report = read(_REPORTS[kind], getattr(message, kind))
    return report


def envelope_to(value: Envelope) -> pb.Envelope:
    fields = {name: to_message(one) for name, one in vars(value).items()}
    return pb.Envelope(epoch=fields.pop("ours"), peer_epoch=fields.pop("yours"), **fields)


def envelope_from(message: pb.Envelope) -> Envelope:
    """Only its shape is checked: whose it is, its seal says."""
    epoch = sized("an epoch", (envelopes.EPOCH_BYTES,))(message.epoch)
    other = sized("a peer's epoch", (0, envelopes.EPOCH_BYTES))(message.peer_epoch)
    sealed = sized("what is sealed", range(envelopes.TAG_BYTES, MAX_SEALED + 1))(message.sealed)
    sort = _known(Sort, "an envelope is of a sort")(message.sort)
    return Envelope(line(message.peer), sort, message.number, message.total, epoch, other, sealed)


def content(kind: type[T], data: bytes) -> T:
    """The message that an envelope holds."""
    try:
        return kind.FromString(data)  # type: ignore[attr-defined,no-any-return]
    except DecodeError:
        raise Malformed(f"an envelope does not hold a {kind.__name__}") from None


def parcel_from(message: pb.Parcel) -> Parcel:
    return read(Parcel, message)


def piece_to(parcel: Parcel, offset: int, total: int, data: Data, compute_seconds: float = 0.0) -> pb.Piece:
    piece = pb.Piece(compute_seconds=compute_seconds)
    _fill(piece, parcel, offset, total, data)
    return piece


def _fill(piece: pb.Piece, parcel: Parcel, offset: int, total: int, data: Data) -> None:
    """In place: protobuf copies a message that it is given for a field, with all its bytes."""
    piece.parcel.CopyFrom(to_message(parcel))
    piece.offset, piece.total, piece.data = offset, total, bytes(data)


def arrived_from(sender: str, message: pb.Piece) -> Arrived:
    """Checked for length and fit; what the bytes mean is checked by who takes them."""
    piece = _piece(message)
    return Arrived(sender, piece.parcel, piece.offset, piece.total, piece.data, seconds(message.compute_seconds))


def _piece(message: pb.Piece) -> messages.Piece:
    piece = read(messages.Piece, message)
    if piece.offset + len(piece.data) > piece.total:
        raise Malformed("a piece reaches beyond its total")
    return piece
