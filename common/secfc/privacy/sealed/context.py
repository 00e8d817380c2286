"""What every stream of a request is bound to, and the keys of the streams (docs/sealed.md, Section 2)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from secfc.framing import framed
from secfc.privacy import keys


def numbers(values: Sequence[int]) -> bytes:
    """Whole numbers as text, for hashing."""
    return b",".join(b"%d" % value for value in values)


@dataclass(frozen=True)
class Context:
    """One attempt at one question; whatever changes a plaintext is in here. `committee` are clients in the members' order."""

    session: bytes
    plan: bytes
    epoch: int
    committee: tuple[int, ...]
    request: int
    attempt: int
    responders: tuple[int, ...]
    assignment: bytes
    columns: tuple[int, ...]
    question: bytes = b""

    @property
    def digest(self) -> bytes:
        """C."""
        parts = (
            self.session,
            self.plan,
            b"%d" % self.epoch,
            numbers(self.committee),
            b"%d" % self.request,
            b"%d" % self.attempt,
            numbers(self.responders),
            self.assignment,
            numbers(self.columns),
            self.question,
        )
        return hashlib.sha256(framed(b"secfc/v1/sealed/context", *parts)).digest()

    @property
    def leader(self) -> int | None:
        """The lowest responder that is a member: its upload carries the pad. None if there is none."""
        return min(set(self.responders) & set(self.committee), default=None)


class Purse:
    """A secret (K, or the seed of one member) from which streams get their keys."""

    __slots__ = ("_extracted", "_session")

    def __init__(self, secret: bytes, session: bytes) -> None:
        self._session = session
        self._extracted = keys.extract(secret, session)  # once: a chunk takes dozens of keys

    def key(self, purpose: str, context: bytes, stage: int, chunk: int, step: int) -> bytes:
        """Key(P, C, stage, chunk, step)."""
        place = (b"%d" % stage, b"%d" % chunk, b"%d" % step)
        return keys.expand(self._extracted, self._session, b"sealed", purpose.encode(), context, *place)

    def __repr__(self) -> str:
        return "Purse(secret)"


def pad_key(purse: Purse, context: Context) -> bytes:
    """The key of the stream that the leader subtracts from its upload, and members expand to Y."""
    return purse.key("pad", context.digest, 0, 0, 0)


def leader_pad(purse: Purse, context: Context) -> tuple[bytes, int]:
    """What the leader adds to `masks.signed_keys` of its upload."""
    return pad_key(purse, context), -1


class Line:
    """Where a conversation stands: the names of its steps. Whatever the server tells is bound into all that follows."""

    def __init__(self, context: bytes, chunk: int) -> None:
        self.context, self.chunk, self.stage, self.step = context, chunk, 1, 0

    def next(self) -> int:
        self.step += 1
        return self.step

    def bind(self, told: bytes) -> None:
        """Begin the next stage, after something public was told."""
        self.context = hashlib.sha256(framed(b"secfc/v1/sealed/told", self.context, b"%d" % self.chunk, told)).digest()
        self.stage, self.step = self.stage + 1, 0
