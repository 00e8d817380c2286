"""Plain values to protobuf messages and back; the only module besides the services that knows the generated code.

Everything that comes in is hostile until checked: lengths, ranges and enumerations are refused here with `Malformed`; what
depends on the state of a job is checked by the machines.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Any

from secfc.errors import Malformed
from secfc.privacy import keys
from secfc.protocol import messages, transfer
from secfc.protocol.effects import Arrived
from secfc.protocol.messages import Phase, line
from secfc.protocol.parcels import Kind, Parcel
from secfc.v1 import secfc_pb2 as pb

MAX_CLIENTS = 2047
MAX_CERTIFICATE = 16 << 10
MAX_SIGNATURE = 128
MAX_COLUMNS = 1 << 20
MAX_NAME = 64
MAX_DETAIL = 64 << 10
MAX_BYTES = 1 << 48  # of a parcel: beyond any job

_PHASES = {phase: f"PHASE_{phase.name}" for phase in Phase}
_PHASE_OF = {pb.Phase.Value(name): phase for phase, name in _PHASES.items()}
_KINDS = {kind.value: kind for kind in Kind}
# What has the same fields on the wire as here.
_EVENTS: dict[type, tuple[str, Any]] = {
    messages.Agreements: ("agreements", pb.Agreements),
    messages.Reveals: ("reveals", pb.Reveals),
    messages.RoundRequest: ("round", pb.RoundRequest),
    messages.Finished: ("finished", pb.Finished),
    messages.Failed: ("failed", pb.Failed),
}
_REPORTS: dict[type, tuple[str, Any]] = {
    messages.Agreed: ("agreed", pb.Agreed),
    messages.Held: ("held", pb.Held),
    messages.Unreachable: ("unreachable", pb.Unreachable),
    messages.Done: ("done", pb.Done),
    messages.Stopped: ("stopped", pb.Stopped),
    messages.Refused: ("refused", pb.Refused),
}


def exactly(data: bytes, size: int, what: str) -> bytes:
    """`data` if it has that many bytes."""
    if len(data) != size:
        raise Malformed(f"{what} must have {size} bytes, not {len(data)}")
    return data


# --- introductions and rosters ---------------------------------------------------------------------------------------


def introduction_to(value: messages.Introduction) -> pb.Introduction:
    return pb.Introduction(**vars(value))


def introduction_from(message: pb.Introduction) -> messages.Introduction:
    if (
        not 0 < len(message.name) <= 64
        or len(message.certificate) > MAX_CERTIFICATE
        or len(message.signature) > MAX_SIGNATURE
    ):
        raise Malformed("an introduction has a name, certificate or signature of impossible length")
    if message.rows > 1 << 31:
        raise Malformed("an introduction claims more than 2^31 rows")
    return messages.Introduction(
        name=message.name,
        rows=message.rows,
        share_set=exactly(message.share_set, 16, "a share set's id"),
        x25519=exactly(message.x25519, 32, "an X25519 key"),
        nonce=exactly(message.nonce, 32, "a nonce"),
        commitment=exactly(message.commitment, 32, "a coin's commitment"),
        certificate=message.certificate,
        keeps=message.keeps,
        signature=message.signature,
        features=exactly(message.features, 32, "the digest of the features"),
    )


def join_to(value: messages.Join) -> pb.JoinRequest:
    return pb.JoinRequest(
        federation_digest=value.agreed,
        instance=value.instance,
        introduction=introduction_to(value.introduction),
        begun=value.begun,
    )


def join_from(message: pb.JoinRequest) -> messages.Join:
    instance = exactly(message.instance, 16, "an instance id")
    return messages.Join(message.federation_digest, instance, introduction_from(message.introduction), message.begun)


# --- events ----------------------------------------------------------------------------------------------------------


def event_to(value: messages.Event) -> pb.Event:
    match value:
        case messages.Waiting():
            waiting = pb.Waiting(phase=_PHASES[value.phase], missing=value.missing, unreachable_by=value.unreachable_by)
            return pb.Event(waiting=waiting)
        case messages.Roster():
            return pb.Event(roster=pb.Roster(members=[introduction_to(m) for m in value.members]))
        case messages.Piece():
            return pb.Event(piece=piece_to(value.parcel, value.offset, value.total, value.data))
        case _:
            name, made = _EVENTS[type(value)]
            return pb.Event(**{name: made(**vars(value))})


def event_from(message: pb.Event) -> messages.Event:
    kind = message.WhichOneof("kind")
    if kind is None:
        raise Malformed("the server sent an event this version does not know; install the same version everywhere")
    readers: dict[str, Any] = {
        "waiting": _waiting,
        "roster": _roster,
        "agreements": lambda m: messages.Agreements(_signatures(m.signatures), _proofs(m.proofs)),
        "reveals": _reveals,
        "piece": _piece,
        "round": _round,
        "finished": _finished,
        "failed": lambda m: messages.Failed(line(m.reason), m.again),
    }
    event: messages.Event = readers[kind](getattr(message, kind))
    return event


def _waiting(message: pb.Waiting) -> messages.Waiting:
    missing, by = ([line(name) for name in names[:MAX_CLIENTS]] for names in (message.missing, message.unreachable_by))
    return messages.Waiting(phase_from(message.phase), tuple(missing), tuple(by))


def _roster(message: pb.Roster) -> messages.Roster:
    if len(message.members) > MAX_CLIENTS:
        raise Malformed("a roster has too many members")
    return messages.Roster(tuple(introduction_from(m) for m in message.members))


def _signatures(given: Sequence[bytes]) -> tuple[bytes, ...]:
    if len(given) > MAX_CLIENTS or any(len(one) > MAX_SIGNATURE for one in given):
        raise Malformed("there are more signatures than clients, or one of impossible length")
    return tuple(given)


def _proofs(given: Sequence[bytes]) -> tuple[bytes, ...]:
    if len(given) > MAX_CLIENTS or any(len(one) not in (0, keys.PROOF_BYTES) for one in given):
        raise Malformed("there are more proofs than clients, or one of impossible length")
    return tuple(given)


def _reveals(message: pb.Reveals) -> messages.Reveals:
    if len(message.coins) > MAX_CLIENTS:
        raise Malformed("there are more coins than clients")
    return messages.Reveals(tuple(exactly(coin, 32, "a coin") for coin in message.coins))


def _round(message: pb.RoundRequest) -> messages.RoundRequest:
    if len(message.responders) > MAX_CLIENTS or len(message.columns) > MAX_COLUMNS:
        raise Malformed("a round names too many responders or columns")
    if len(message.detail) > MAX_DETAIL:
        raise Malformed(f"what a round kind says besides has at most {MAX_DETAIL} bytes")
    seconds = message.deadline_seconds
    if not (isfinite(seconds) and 0 < seconds <= 86400):
        raise Malformed("a round's deadline must lie between now and a day")
    return messages.RoundRequest(
        number=message.number,
        attempt=message.attempt,
        responders=tuple(message.responders),
        columns=tuple(message.columns),
        assignment_digest=exactly(message.assignment_digest, 32, "an assignment's digest"),
        deadline_seconds=seconds,
        past=message.past,
        detail=message.detail,
    )


def _finished(message: pb.Finished) -> messages.Finished:
    return messages.Finished(message.version, message.rounds, message.converged, message.inertia)


# --- parcels -----------------------------------------------------------------------------------------------------------


def parcel_to(value: Parcel) -> pb.Parcel:
    return pb.Parcel(session=value.session, kind=pb.Kind.Name(value.kind.value), name=value.name)


def parcel_from(message: pb.Parcel) -> Parcel:
    if message.kind not in _KINDS:
        raise Malformed("a parcel is of a kind this version does not know; install the same version everywhere")
    if len(message.name) > MAX_NAME:
        raise Malformed(f"a parcel's name has at most {MAX_NAME} bytes")
    return Parcel(exactly(message.session, 32, "a session"), _KINDS[message.kind], message.name)


def piece_to(parcel: Parcel, offset: int, total: int, data: bytes | memoryview, seconds: float = 0.0) -> pb.Piece:
    return pb.Piece(parcel=parcel_to(parcel), offset=offset, total=total, data=bytes(data), compute_seconds=seconds)


def arrived_from(sender: str, message: pb.Piece) -> Arrived:
    """Checked for length and fit; what the bytes mean is checked by who takes them."""
    seconds = message.compute_seconds if isfinite(message.compute_seconds) else 0.0
    piece = _piece(message)
    return Arrived(sender, piece.parcel, piece.offset, piece.total, piece.data, seconds)


def _piece(message: pb.Piece) -> messages.Piece:
    data = message.data  # protobuf copies it whenever it is read
    if len(data) > max(transfer.PIECE_BYTES, 1 << 20) or message.total > MAX_BYTES:
        raise Malformed(f"a piece has at most {transfer.PIECE_BYTES} bytes, of a parcel of at most {MAX_BYTES}")
    if message.offset + len(data) > message.total:
        raise Malformed("a piece reaches beyond its total")
    return messages.Piece(parcel_from(message.parcel), message.offset, message.total, data)


def phase_from(number: int) -> Phase:
    if number not in _PHASE_OF:
        raise Malformed("the server is in a phase this version does not know; install the same version everywhere")
    return _PHASE_OF[number]


def phase_to(phase: Phase) -> str:
    return _PHASES[phase]


# --- reports -----------------------------------------------------------------------------------------------------------


def report_to(value: messages.Report, instance: bytes) -> pb.ReportRequest:
    name, made = _REPORTS[type(value)]
    return pb.ReportRequest(instance=instance, **{name: made(**vars(value))})


def report_from(message: pb.ReportRequest) -> messages.Report:
    match message.WhichOneof("kind"):
        case "agreed":
            (signature,) = _signatures([message.agreed.signature])
            return messages.Agreed(signature, _proofs(message.agreed.proofs))
        case "held":
            held = message.held
            seconds = held.seconds if isfinite(held.seconds) else 0.0
            digest = exactly(held.share_sets_digest, 32, "the digest of share sets")
            coin = exactly(held.coin, 32, "a coin")
            return messages.Held(digest, held.sent_bytes, held.received_bytes, seconds, coin)
        case "unreachable":
            return messages.Unreachable(line(message.unreachable.peer), line(message.unreachable.reason))
        case "done":
            return messages.Done()
        case "stopped":
            return messages.Stopped(line(message.stopped.reason))
        case "refused":
            return messages.Refused(line(message.refused.reason))
        case _:
            raise Malformed("a report says nothing this version knows; install the same version everywhere")
