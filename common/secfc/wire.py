"""Plain values to protobuf messages and back; the only module besides the services that knows the generated code.

Everything that comes in is hostile until checked: lengths, ranges and enumerations are refused here with `Malformed`; what
depends on the state of a job is checked by the machines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite
from typing import Any

import numpy as np

from secfc import confirming, events, keys
from secfc.errors import Malformed
from secfc.field import CHUNK_WORDS, Words
from secfc.v1 import secfc_pb2 as pb

CHUNK_BYTES = 8 * CHUNK_WORDS
FIRST_WORDS = 1 << 12  # of a stream's first pieces: 32 KiB
MAX_CLIENTS = 2047
MAX_TEXT = 500
MAX_CERTIFICATE = 16 << 10
MAX_SIGNATURE = 128
MAX_COLUMNS = 1 << 20


def exactly(data: bytes, size: int, what: str) -> bytes:
    """`data` if it has that many bytes."""
    if len(data) != size:
        raise Malformed(f"{what} must have {size} bytes, not {len(data)}")
    return data


def line(text: str) -> str:
    """A peer's text for a person: one printable line, not too long."""
    return "".join(c if c.isprintable() else " " for c in text[:MAX_TEXT])


# --- introductions and rosters ---------------------------------------------------------------------------------------


def introduction_to(value: events.Introduction) -> pb.Introduction:
    return pb.Introduction(
        name=value.name,
        rows=value.rows,
        share_set=value.share_set,
        x25519=value.x25519,
        nonce=value.nonce,
        commitment=value.commitment,
        certificate=value.certificate,
        keeps=value.keeps,
        signature=value.signature,
        features=value.features,
    )


def introduction_from(message: pb.Introduction) -> events.Introduction:
    if (
        not 0 < len(message.name) <= 64
        or len(message.certificate) > MAX_CERTIFICATE
        or len(message.signature) > MAX_SIGNATURE
    ):
        raise Malformed("an introduction has a name, certificate or signature of impossible length")
    if message.rows > 1 << 31:
        raise Malformed("an introduction claims more than 2^31 rows")
    return events.Introduction(
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


# --- events ----------------------------------------------------------------------------------------------------------


def event_to(value: events.Event) -> pb.Event:
    match value:
        case events.Waiting():
            waiting = pb.Waiting(phase=value.phase, missing=value.missing, unreachable_by=value.unreachable_by)
            return pb.Event(waiting=waiting)
        case events.Roster():
            return pb.Event(roster=pb.Roster(members=[introduction_to(m) for m in value.members]))
        case events.Agreements():
            return pb.Event(agreements=pb.Agreements(signatures=value.signatures, proofs=value.proofs))
        case events.Opened():
            return pb.Event(
                opened=pb.Opened(
                    step=value.step, left=value.left, offset=value.offset, total=value.total, data=value.data
                )
            )
        case events.Reveals():
            return pb.Event(reveals=pb.Reveals(coins=value.coins))
        case events.Assignment():
            return pb.Event(
                assignment=pb.AssignmentChunk(
                    version=value.version, base=value.base, offset=value.offset, total=value.total, data=value.data
                )
            )
        case events.RoundRequest():
            return pb.Event(
                round=pb.RoundRequest(
                    number=value.number,
                    attempt=value.attempt,
                    responders=value.responders,
                    columns=value.columns,
                    assignment_digest=value.assignment_digest,
                    received=value.received,
                    deadline_seconds=value.deadline_seconds,
                    past=value.past,
                )
            )
        case events.Finished():
            return pb.Event(
                finished=pb.Finished(
                    version=value.version, rounds=value.rounds, converged=value.converged, inertia=value.inertia
                )
            )
        case events.Failed():
            return pb.Event(failed=pb.Failed(reason=value.reason, again=value.again))


def event_from(message: pb.Event) -> events.Event:
    kind = message.WhichOneof("kind")
    if kind is None:
        raise Malformed("the server sent an event this version does not know; install the same version everywhere")
    readers: dict[str, Any] = {
        "waiting": _waiting,
        "roster": _roster,
        "agreements": lambda m: events.Agreements(_signatures(m.signatures), _proofs(m.proofs)),
        "opened": _opened,
        "reveals": _reveals,
        "assignment": _assignment,
        "round": _round,
        "finished": _finished,
        "failed": lambda m: events.Failed(line(m.reason), m.again),
    }
    event: events.Event = readers[kind](getattr(message, kind))
    return event


def _waiting(message: pb.Waiting) -> events.Waiting:
    missing, by = ([line(name) for name in names[:MAX_CLIENTS]] for names in (message.missing, message.unreachable_by))
    return events.Waiting(line(message.phase), tuple(missing), tuple(by))


def _roster(message: pb.Roster) -> events.Roster:
    if len(message.members) > MAX_CLIENTS:
        raise Malformed("a roster has too many members")
    return events.Roster(tuple(introduction_from(m) for m in message.members))


def _signatures(given: Sequence[bytes]) -> tuple[bytes, ...]:
    if len(given) > MAX_CLIENTS or any(len(one) > MAX_SIGNATURE for one in given):
        raise Malformed("there are more signatures than clients, or one of impossible length")
    return tuple(given)


def _proofs(given: Sequence[bytes]) -> tuple[bytes, ...]:
    if len(given) > MAX_CLIENTS or any(len(one) not in (0, keys.PROOF_BYTES) for one in given):
        raise Malformed("there are more proofs than clients, or one of impossible length")
    return tuple(given)


def _opened(message: pb.Opened) -> events.Opened:
    if len(message.data) > CHUNK_BYTES or message.offset + len(message.data) > message.total or message.total % 16:
        raise Malformed("a piece of an opened sum does not fit its total")
    if message.left > 1 << 31:
        raise Malformed("an opened sum leaves more than 2^31 rows")
    return events.Opened(message.step, message.left, message.offset, message.total, message.data)


def _reveals(message: pb.Reveals) -> events.Reveals:
    if len(message.coins) > MAX_CLIENTS:
        raise Malformed("there are more coins than clients")
    return events.Reveals(tuple(exactly(coin, 32, "a coin") for coin in message.coins))


def _assignment(message: pb.AssignmentChunk) -> events.Assignment:
    if len(message.data) > CHUNK_BYTES or message.offset + len(message.data) > message.total:
        raise Malformed("a piece of an assignment does not fit its total")
    return events.Assignment(message.version, message.base, message.offset, message.total, message.data)


def _round(message: pb.RoundRequest) -> events.RoundRequest:
    if len(message.responders) > MAX_CLIENTS or len(message.columns) > MAX_COLUMNS:
        raise Malformed("a round names too many responders or columns")
    seconds = message.deadline_seconds
    if not (isfinite(seconds) and 0 < seconds <= 86400):
        raise Malformed("a round's deadline must lie between now and a day")
    return events.RoundRequest(
        number=message.number,
        attempt=message.attempt,
        responders=tuple(message.responders),
        columns=tuple(message.columns),
        assignment_digest=exactly(message.assignment_digest, 32, "an assignment's digest"),
        received=message.received,
        deadline_seconds=seconds,
        past=message.past,
    )


def _finished(message: pb.Finished) -> events.Finished:
    return events.Finished(message.version, message.rounds, message.converged, message.inertia)


# --- chunks ------------------------------------------------------------------------------------------------------------


def chunks(words: Words, first: int = 0) -> Iterator[events.Chunk]:
    """Words from `first` on; one empty piece if there are none, so that the total is told.

    Pieces begin small and double after every second one, up to CHUNK_BYTES: what has arrived whole is kept when a stream
    breaks, so at least half of what a connection carries counts, however soon it breaks; and small pieces cost time only
    at the beginning."""
    total, offset, size, second = len(words), first, min(FIRST_WORDS, CHUNK_WORDS), False
    if first >= total:
        yield events.Chunk(total, total, words[:0])
    while offset < total:
        yield events.Chunk(offset, total, words[offset : offset + size])
        offset, size, second = offset + size, min(2 * size, CHUNK_WORDS) if second else size, not second


def chunk_from(message: pb.UploadChunk | pb.ShareChunk | pb.SumChunk | pb.CentersChunk) -> events.Chunk:
    """Checked for length and fit; residues are checked by who knows the layout."""
    if len(message.words) > CHUNK_BYTES or len(message.words) % 8:
        raise Malformed(f"a chunk holds whole 64-bit words, at most {CHUNK_BYTES} bytes")
    if message.offset + len(message.words) // 8 > message.total:
        raise Malformed("a chunk reaches beyond its total")
    words = np.frombuffer(message.words, dtype="<u8")
    return events.Chunk(message.offset, message.total, words)


def centers_to(value: events.CentersPart) -> pb.CentersChunk:
    return pb.CentersChunk(
        session=value.session,
        assignment_digest=value.digest,
        consents=value.consents,
        smallest=value.smallest,
        offset=value.chunk.offset,
        total=value.chunk.total,
        words=word_bytes(value.chunk.words),
    )


def centers_from(message: pb.CentersChunk) -> events.CentersPart:
    session = exactly(message.session, 32, "a session")
    digest = exactly(message.assignment_digest, 32, "an assignment's digest")
    if message.smallest > 1 << 31:
        raise Malformed("a size floor is beyond 2^31 rows")
    return events.CentersPart(session, digest, message.consents, message.smallest, chunk_from(message))


def confirmed_to(value: events.Confirmed) -> pb.Confirmation:
    words = word_bytes(value.words)
    return pb.Confirmation(session=value.session, union_digest=value.digest, commitment=value.commitment, words=words)


def confirmed_from(message: pb.Confirmation) -> events.Confirmed:
    """Checked for length; residues are checked by who adds them up."""
    session = exactly(message.session, 32, "a session")
    digest = exactly(message.union_digest, 32, "the digest of a union")
    commitment = exactly(message.commitment, 32, "a commitment")
    words = exactly(message.words, 8 * confirming.LAYOUT.words, "a confirmation") if message.words else b""
    return events.Confirmed(session, digest, commitment, np.frombuffer(words, dtype="<u8"))


def word_bytes(words: Words) -> bytes:
    return words.astype("<u8", copy=False).tobytes()


# --- reports -----------------------------------------------------------------------------------------------------------


def report_to(value: events.Report, instance: bytes) -> pb.ReportRequest:
    match value:
        case events.Agreed():
            agreed = pb.Agreed(signature=value.signature, proofs=value.proofs)
            return pb.ReportRequest(instance=instance, agreed=agreed)
        case events.Held():
            held = pb.Held(
                share_sets_digest=value.digest,
                sent_bytes=value.sent_bytes,
                received_bytes=value.received_bytes,
                seconds=value.seconds,
                coin=value.coin,
            )
            return pb.ReportRequest(instance=instance, held=held)
        case events.Unreachable():
            link = pb.Unreachable(peer=value.peer, reason=value.reason)
            return pb.ReportRequest(instance=instance, unreachable=link)
        case events.Done():
            return pb.ReportRequest(instance=instance, done=pb.Done())
        case events.Stopped():
            return pb.ReportRequest(instance=instance, stopped=pb.Stopped(reason=value.reason))
        case events.Refused():
            return pb.ReportRequest(instance=instance, refused=pb.Refused(reason=value.reason))


def report_from(message: pb.ReportRequest) -> events.Report:
    match message.WhichOneof("kind"):
        case "agreed":
            (signature,) = _signatures([message.agreed.signature])
            return events.Agreed(signature, _proofs(message.agreed.proofs))
        case "held":
            held = message.held
            seconds = held.seconds if isfinite(held.seconds) else 0.0
            digest = exactly(held.share_sets_digest, 32, "the digest of share sets")
            coin = exactly(held.coin, 32, "a coin")
            return events.Held(digest, held.sent_bytes, held.received_bytes, seconds, coin)
        case "unreachable":
            return events.Unreachable(line(message.unreachable.peer), line(message.unreachable.reason))
        case "done":
            return events.Done()
        case "stopped":
            return events.Stopped(line(message.stopped.reason))
        case "refused":
            return events.Refused(line(message.refused.reason))
        case _:
            raise Malformed("a report says nothing this version knows; install the same version everywhere")
