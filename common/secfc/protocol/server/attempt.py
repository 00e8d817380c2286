"""One attempt at a request, and how its assignments are named and told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from secfc.kmeans.lloyd import Question
from secfc.privacy import masks
from secfc.protocol import messages, parcels
from secfc.protocol.parcels import Kind, Parcel
from secfc.protocol.rounds.several_server import Exchange
from secfc.protocol.transfer import pieces


@dataclass
class Attempt:
    """One request to its responders."""

    questions: Mapping[int, Question]  # by run
    number: int
    responders: tuple[int, ...]
    digests: Mapping[int, bytes]  # of every run's assignment
    exchange: Exchange
    started: float
    went_on: float  # when it began, or something of what had arrived was last read
    compute: dict[int, float] = field(default_factory=dict)  # seconds, as each responder reports
    arrived: dict[int, float] = field(default_factory=dict)  # when all of a responder's messages were here

    @property
    def question(self) -> Question:
        """That of the first run that moves."""
        return next(iter(self.questions.values()))

    @property
    def name(self) -> tuple[int, int]:
        return self.question.number, self.number


def digests(questions: Mapping[int, Question]) -> dict[int, bytes]:
    """What names every run's assignment."""
    return {run: masks.assignment_digest(one.labels.astype("<i4").tobytes()) for run, one in questions.items()}


def told_parcel(session: bytes, kind: Kind, name: tuple[int, int], data: bytes) -> Iterator[messages.Piece]:
    """A parcel that the server tells, in pieces."""
    parcel = Parcel(session, kind, parcels.pair_name(*name))
    return (messages.Piece(parcel, offset, len(data), piece) for offset, piece in pieces(parcels.Whole(data)))
