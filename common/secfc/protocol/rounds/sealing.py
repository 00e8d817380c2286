"""What both ends of a sealed round make of a request alike: its terms, its committee, and its questions one after the other.

A request is usually one question. While seeding, a new epoch asks for the seeds chosen so far once more, each as a question
of its own, before the one that is due.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from secfc.agreement.plan import Plan
from secfc.errors import Malformed
from secfc.kmeans.distances import Labels
from secfc.kmeans.seeding import chosen_rows
from secfc.privacy import masks
from secfc.privacy.sealed.context import Context
from secfc.privacy.sealed.epochs import Epoch
from secfc.privacy.sealed.messages import Kind, Message
from secfc.privacy.sealed.questions import Asked, Inertia, Lloyd, Seed
from secfc.privacy.sealed.streams import Bytes
from secfc.privacy.sealed.terms import Terms
from secfc.protocol.messages import RoundRequest
from secfc.protocol.parcels import Whole

_NAME = struct.Struct(">BBHII")  # which question, kind, stage, chunk, step
_LENGTH = struct.Struct(">I")
BUNDLE_BYTES = 1 << 22  # of messages that travel together; a longer one travels alone
_KINDS = list(Kind)
KEY, CHECK = b"K", b"C"  # a member's part of K; a value that shows that all have the same
SEED, DONE = b"S", b"D"  # what the server shares with a member; that a member is through with a question
UPLOAD = b"U"  # for questions after the first


def committee_of(plan: Plan, request: RoundRequest) -> tuple[int, ...]:
    """Who compares, as a request says. Raises Malformed unless these are t+1 distinct responders; of a request that is over
    nothing is said."""
    if request.past:
        return ()
    detail, wishes = Detail.from_bytes(request.detail), plan.wishes
    Epoch(b"", plan.digest, detail.epoch, detail.committee).check(wishes.clients, wishes.privacy)
    if not set(detail.committee) <= set(request.responders):
        raise Malformed("a committee's members are among the responders")
    return detail.committee


@dataclass(frozen=True)
class Detail:
    """What a sealed request says besides, to everybody: who is on the committee in which epoch, what is asked, and whether
    the server knows already that all members have one key."""

    epoch: int
    committee: tuple[int, ...]
    asked: tuple[dict[str, Any], ...]
    agreed: bool = False

    def to_bytes(self) -> bytes:
        fields = {"epoch": self.epoch, "committee": self.committee, "asked": self.asked, "agreed": self.agreed}
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Detail:
        """Raises Malformed for anything that `to_bytes` does not make."""
        try:
            fields = json.loads(data)
            committee = tuple(int(member) for member in fields["committee"])
            asked = tuple(dict(one) for one in fields["asked"])
            return cls(int(fields["epoch"]), committee, asked, bool(fields["agreed"]))
        except (ValueError, OverflowError, KeyError, TypeError, RecursionError):  # json reads 1e999 as infinity
            raise Malformed("a sealed request does not say who compares what") from None

    @property
    def opens_inertia(self) -> bool:
        """Whether the answer is an inertia and no assignment."""
        return any("seed" not in one and "changed" not in one for one in self.asked)

    def questions(self, labels: Labels, columns: tuple[int, ...], terms: Terms, most: int) -> list[Asked]:
        """What is asked, for an assignment of all rows; a seed has at most so many candidates."""
        if len(self.asked) != 1 and not (self.asked and all("seed" in one for one in self.asked)):
            raise Malformed("a sealed request asks one thing, or for several seeds")
        try:
            out = [_question(one, labels, columns, terms) for one in self.asked]
            _check_seeds([one for one in out if isinstance(one, Seed)], terms, most)
            return out
        except (ValueError, OverflowError, KeyError, TypeError, IndexError):
            raise Malformed("a sealed request asks something that cannot be") from None


def _check_seeds(seeds: Sequence[Seed], terms: Terms, most: int) -> None:
    """Raise ValueError unless these are seeds chosen before, one after the other, and the one that is due. A seed that is
    asked for twice would be folded into two D² under one set of streams; more points than candidates tell more of D²."""
    for one, following in pairwise(seeds):
        if one.points or one.finish or len(one.candidates) > 1 or following.number != one.number + 1:
            raise ValueError
    for due in seeds[-1:]:
        ends = due.number == terms.clusters - 1
        drawn = len(due.points) <= most and all(0 <= point < 1 << terms.draw_bits for point in due.points)
        if seeds[0].number < 0 or due.finish != ends or bool(due.points) == ends or not drawn:
            raise ValueError


def seed_fields(question: Seed) -> dict[str, Any]:
    return {"seed": question.number, "rows": question.candidates, "points": question.points, "finish": question.finish}


def lloyd_fields(question: Lloyd) -> dict[str, Any]:
    changed = np.flatnonzero(question.changed).tolist()
    doubted = np.flatnonzero(~question.trusted).tolist()
    every = len(doubted) == len(question.trusted)
    return {"changed": changed, "doubted": "all" if every else doubted, "separate": question.separate}


def _question(fields: dict[str, Any], labels: Labels, columns: tuple[int, ...], terms: Terms) -> Asked:
    if "seed" in fields:
        rows, number = tuple(int(row) for row in fields["rows"]), int(fields["seed"])
        known = chosen_rows(labels)  # what the client's guard has looked at
        if not rows or rows not in (tuple(known[number : number + 1]), tuple(known[number:])):
            raise ValueError
        return Seed(number, rows, tuple(int(point) for point in fields["points"]), bool(fields["finish"]))
    sizes = terms.sizes(labels)
    if "changed" not in fields:
        return Inertia(labels, sizes, columns)
    changed, trusted = np.zeros(terms.clusters, dtype=np.bool_), np.ones(len(labels), dtype=np.bool_)
    changed[[int(h) for h in fields["changed"]]] = True
    trusted[slice(None) if fields["doubted"] == "all" else [int(row) for row in fields["doubted"]]] = False
    return Lloyd(labels, sizes, columns, changed, trusted, bool(fields["separate"]))


def labels_of(question: Asked, rows: int) -> Labels:
    """The assignment whose columns a question asks for."""
    return question.labels(rows) if isinstance(question, Seed) else question.labels


def digest_of(labels: Labels) -> bytes:
    return masks.assignment_digest(labels.astype("<i4").tobytes())


def context_of(
    plan: Plan,
    session: bytes,
    detail: Detail,
    number: int,
    attempt: int,
    responders: Sequence[int],
    question: Asked,
    rows: int,
) -> Context:
    """Everything that the streams of one question of one attempt are bound to."""
    return Context(
        session,
        plan.digest,
        detail.epoch,
        detail.committee,
        number,
        attempt,
        tuple(responders),
        digest_of(labels_of(question, rows)),
        tuple(question.columns),
        question.digest(),
    )


def upload_name(place: int) -> bytes:
    """Names a responder's upload for a question."""
    return UPLOAD + bytes([place]) if place else b""


def body_of(message: Message) -> Whole:
    """What of a message travels."""
    return Whole(memoryview(np.ascontiguousarray(message.data)))  # type: ignore[arg-type]


def message_name(place: int, message: Message) -> bytes:
    return _NAME.pack(place, _KINDS.index(message.kind), message.stage, message.chunk, message.step)


def message_of(
    name: bytes, data: bytes | bytearray | Bytes, due: frozenset[Kind] = frozenset(Kind)
) -> tuple[int, Message]:
    """Which question a message is about, and the message. Raises Malformed unless it is of a kind that is due."""
    if len(name) != _NAME.size:
        raise Malformed("a sealed step has a name of 12 bytes")
    place, kind, stage, chunk, step = _NAME.unpack(name)
    if kind >= len(_KINDS) or _KINDS[kind] not in due:
        raise Malformed("a sealed step is of a kind that is not due; install the same version everywhere")
    return place, Message(_KINDS[kind], stage, chunk, step, np.frombuffer(data, dtype=np.uint8))


def bundles(messages: Sequence[Message]) -> list[list[Message]]:
    """What travels together. While seeding, a member that need not wait may say more at once than a receiver takes."""
    out: list[list[Message]] = []
    room = 0
    for message in messages:
        if not out or len(message.data) > room:
            out, room = [*out, []], BUNDLE_BYTES
        out[-1].append(message)
        room -= len(message.data)
    return out


def bundle_of(place: int, messages: Sequence[Message]) -> Whole:
    """What a member says at once about a question travels as one parcel, named by its first message: a call costs more than
    most messages. Each is preceded by its length, and all but the first by their names."""
    parts: list[bytes | memoryview] = []
    for message in messages:
        name = message_name(place, message) if parts else b""
        parts += [name, _LENGTH.pack(len(message.data)), memoryview(np.ascontiguousarray(message.data))]  # type: ignore[arg-type]
    return Whole(b"".join(parts))


def messages_of(name: bytes, data: bytearray, due: frozenset[Kind]) -> list[tuple[int, Message]]:
    """The messages of a bundle, each with the question it is about. Raises Malformed for what is none."""
    out: list[tuple[int, Message]] = []
    flat, at = np.frombuffer(data, dtype=np.uint8), 0
    while at < len(flat) or not out:
        if out:
            name, at = bytes(data[at : at + _NAME.size]), at + _NAME.size
        if at + _LENGTH.size > len(flat):
            raise Malformed("sealed steps that travel together end before their end")
        (size,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        if at + size > len(flat):
            raise Malformed("sealed steps that travel together end before their end")
        out.append(message_of(name, flat[at : at + size], due))
        at += size
    if len({place for place, _ in out}) > 1:
        raise Malformed("sealed steps that travel together are about one question")
    return out
