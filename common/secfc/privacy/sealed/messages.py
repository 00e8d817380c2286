"""What the server and the members of a committee tell each other during one request."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from secfc.errors import InvalidInput
from secfc.privacy.sealed.streams import Bytes

SERVER = -1  # as a sender or receiver; members are 0 … t in the committee's order
_T = TypeVar("_T")


class Kind(Enum):
    """Kinds of messages (docs/sealed.md, Section 4)."""

    DIGITS = "digits"  # S → last: shares of ρ's digits
    TEST = "test"  # M → S: blinded positions
    BITS = "bits"  # S → last: shares of g
    COUNTS = "counts"  # M → S: blinded counts
    TOLD = "told"  # S → all M: what the server has learnt and members need (moves, labels, a winner, a row)
    SELECT = "select"  # S → last: shares for SELECT and for picking among groups
    SELECTED = "selected"  # M → S: blinded residues
    WINNERS = "winners"  # S → M₀: the winning group of each row
    TURNS = "turns"  # M₀ → S: by how much that group was turned
    BETA = "beta"  # M₀ → S: REVEAL
    VALUE = "value"  # M₀ → S: OPEN


OF_MEMBERS = frozenset({Kind.TEST, Kind.COUNTS, Kind.SELECTED, Kind.TURNS, Kind.BETA, Kind.VALUE})
OF_THE_SERVER = frozenset(Kind) - OF_MEMBERS


@dataclass(frozen=True)
class Message:
    """One message of a request; (stage, chunk, step) say where it belongs."""

    kind: Kind
    stage: int
    chunk: int
    step: int
    data: Bytes = field(repr=False)

    @property
    def name(self) -> tuple[int, int, int, Kind]:
        return self.chunk, self.stage, self.step, self.kind


@dataclass(frozen=True)
class Said:
    """A message and whom it goes to: a member's place in the committee, or SERVER."""

    to: int
    message: Message


@dataclass(frozen=True)
class Wait:
    """What a conversation needs to go on: a message of this kind, length and range from each of these senders."""

    kind: Kind
    senders: tuple[int, ...]
    size: int
    below: int = 256


Talk = Generator[Wait, list[Bytes], _T]


def known(value: _T | None) -> _T:
    """A value that this end of a conversation must have; its absence is a mistake of ours."""
    if value is None:
        raise InvalidInput("this end of the conversation does not know what it is asked for")
    return value


def octets(array: npt.NDArray[Any]) -> Bytes:
    """The bytes of an array."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
