"""What a follower should know: derived from where the job stands and what it has been told, never queued."""

from __future__ import annotations

from dataclasses import dataclass

from secfc.errors import SecfcError, Unavailable, told
from secfc.protocol import messages, parcels, transfer
from secfc.protocol.messages import Phase
from secfc.protocol.parcels import Kind, Parcel
from secfc.protocol.server.asking import Asking
from secfc.protocol.server.attempt import Attempt, told_parcel
from secfc.protocol.server.phases.base import Failed, JobPhase
from secfc.protocol.server.phases.finished import Finished
from secfc.protocol.server.phases.rounds import RoundsPhase

_BEFORE_ROUNDS = (Phase.JOINING, Phase.AGREEING, Phase.SCALING, Phase.UNION, Phase.SHARING, Phase.CHECKING)


@dataclass
class Cursor:
    """What one follower has been told."""

    roster: bool = False
    agreements: bool = False
    scale: bool = False
    opened: int = 0
    reveals: bool = False
    version: int = 0
    began: bool = False  # whether it was told the first request
    asked: tuple[int, int] = (0, 0)
    steps: int = 0  # further messages of that attempt
    waiting: messages.Waiting | None = None
    ended: bool = False


def news(phase: JobPhase, sender: str, cursor: Cursor, now: float) -> list[messages.Event]:
    """What this client has not been told yet; moves the cursor."""
    out: list[messages.Event] = []
    if isinstance(phase, Failed):
        if not cursor.ended:
            cursor.ended = True
            out.append(_failed(phase.error))
        return out
    if phase.met is not None and not cursor.roster:
        cursor.roster = True
        out.append(messages.Roster(phase.met.introductions))
    if phase.phase not in (Phase.JOINING, Phase.AGREEING) and not cursor.agreements:
        cursor.agreements = True
        out.append(_agreements(phase, sender))
    if phase.job.scale and not cursor.scale and phase.job.members[sender].scaled:
        cursor.scale = True
        out.append(messages.Scale(phase.job.scale))
    if cursor.scale or not phase.job.federation.job.standard:  # one that has restarted first scales its rows
        out += _beyond(phase, sender, cursor, now)
    if (phase.phase in _BEFORE_ROUNDS or phase.short) and (now_waiting := waiting(phase, sender)) != cursor.waiting:
        cursor.waiting = now_waiting
        out.append(now_waiting)
    return out


def _beyond(phase: JobPhase, sender: str, cursor: Cursor, now: float) -> list[messages.Event]:
    """What is told when rows are ready to be shared."""
    out = _opened(phase, cursor)
    if phase.tossed is not None and phase.phase is not Phase.SHARING and not cursor.reveals:
        cursor.reveals = True
        out.append(messages.Reveals(tuple(member.coin for member in phase.job.members.values())))
    if phase.asking is not None:
        out += _of_rounds(phase, phase.asking, sender, cursor, now)
    if isinstance(phase, Finished) and not cursor.ended:
        cursor.ended = True
        out.append(phase.told())
    return out


def waiting(phase: JobPhase, sender: str) -> messages.Waiting:
    """Where the job stands, for one client; who is behind a firewall hears it from here only."""
    unreachable_by = tuple(name for name, member in phase.job.members.items() if sender in member.broken)
    return messages.Waiting(phase.phase, phase.missing(), unreachable_by)


def _agreements(phase: JobPhase, receiver: str) -> messages.Agreements:
    given = [member.agreed for member in phase.job.members.values() if member.agreed is not None]
    at = phase.job.index(receiver)
    return messages.Agreements(tuple(one.signature for one in given), tuple(one.proofs[at] for one in given))


def _opened(phase: JobPhase, cursor: Cursor) -> list[messages.Event]:
    """What was opened while IDs were aligned."""
    out: list[messages.Event] = []
    if phase.union is None or phase.met is None:
        return out
    for step in range(cursor.opened, phase.union.step):
        shown = phase.union.opened[step]
        data = shown.ids.astype("<u8").tobytes()
        out += told_parcel(phase.met.session, Kind.OPENED, (step, shown.left), data)
    cursor.opened = phase.union.step
    return out


def _of_rounds(phase: JobPhase, machine: Asking, sender: str, cursor: Cursor, now: float) -> list[messages.Event]:
    out: list[messages.Event] = []
    if phase.met is None:
        return out
    attempt = machine.attempt if isinstance(phase, RoundsPhase) else None
    if isinstance(phase, RoundsPhase) and attempt is not None and machine.version > 1 and not cursor.began:
        out += phase.beginning()
        cursor.began, cursor.version = True, 1
    if cursor.version != machine.version:
        out += machine.assignment(phase.met.session, cursor.version)
        cursor.version = machine.version
    if attempt is None or phase.job.members[sender].held is None:  # one that has restarted first takes up its shares
        return out
    if attempt.name != cursor.asked:
        left = phase.job.deadlines.round - (now - attempt.started)
        request = machine.request(left)
        if request is None:
            return out
        out.append(request)
        cursor.asked, cursor.began, cursor.steps = attempt.name, True, 0
    steps = _steps(phase.met.session, attempt, phase.job.index(sender), cursor)
    phase.job.members[sender].told_bytes += sum(len(piece.data) for piece in steps)
    return [*out, *steps]


def _steps(session: bytes, attempt: Attempt, client: int, cursor: Cursor) -> list[messages.Piece]:
    """Further messages of the attempt to this client."""
    out: list[messages.Piece] = []
    for one in attempt.exchange.told(client)[cursor.steps :]:
        cursor.steps += 1
        if one is None:
            continue
        parcel = Parcel(session, Kind.STEP, parcels.attempt_name(*attempt.name) + one.name)
        total = one.body.total
        out += [
            messages.Piece(parcel, at, total, data) for at, data in transfer.pieces(one.body, size=transfer.PIECE_BYTES)
        ]
    return out


def _failed(failure: SecfcError) -> messages.Failed:
    return messages.Failed(told(failure), again=isinstance(failure, Unavailable))
