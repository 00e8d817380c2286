"""The server's half of a sealed request: it takes sums of uploads and members' messages, and ends with an answer.

    half = DealerHalf(terms, question, context, seeds, kept)
    send(half.begin())
    send(half.feed(first_row, sums))     as uploads arrive, block of rows by block of rows
    send(half.take(member, message))     until half.done; then half.answer, and half.kept serves the epoch's next request

Of an attempt that fails, `kept` is not taken over: the next attempt gets what the last answered request left.

Memory: ρ of all columns (`Kept`), and a few chunks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import numpy.typing as npt

from secfc.coding import kernels
from secfc.coding.field import Residues
from secfc.errors import InvalidInput, OutOfTurn
from secfc.kmeans.distances import Labels
from secfc.privacy.sealed import inertia, rounds, seeding
from secfc.privacy.sealed.context import Context, Line, Purse
from secfc.privacy.sealed.halves import Half
from secfc.privacy.sealed.messages import OF_MEMBERS, Message, Said, Talk
from secfc.privacy.sealed.questions import Asked, Found, Inertia, Lloyd, Seed, places
from secfc.privacy.sealed.referee import Referee
from secfc.privacy.sealed.seeding import Outcome, Split
from secfc.privacy.sealed.sides import Side
from secfc.privacy.sealed.terms import Terms


@dataclass
class Kept:
    """What the server keeps during an epoch: ρ of every cluster's column (m, k, L), and its half of D² while seeding.

    An attempt writes only the columns that it asks for; if it fails, they are asked for again.
    """

    columns: npt.NDArray[np.uint32] = field(repr=False)
    seeds: Split | None = field(default=None, repr=False)

    @classmethod
    def of(cls, terms: Terms) -> Kept:
        return cls(np.zeros((terms.rows, terms.clusters, terms.field.lanes), dtype=np.uint32))


class DealerHalf(Half):
    """One attempt at one question, at the server. `seeds[j]` is what it shares with member j in this epoch."""

    _senders = OF_MEMBERS

    def __init__(self, terms: Terms, question: Asked, context: Context, seeds: Sequence[bytes], kept: Kept) -> None:
        super().__init__(terms, question, context)
        if len(seeds) != terms.members:
            raise InvalidInput(f"the server shares a seed with each of {terms.members} members")
        self._seeds = [Purse(seed, context.session) for seed in seeds]
        self.kept = kept
        self.shape = question.shape(terms)
        self._columns, self._lanes = places(self.shape)
        self._primes = self.shape.layout.prime_floats
        self.fed = 0  # rows whose sums are here
        self._target = kept.columns
        if isinstance(question, Seed):
            self._target = np.zeros((terms.rows, len(question.candidates), terms.field.lanes), dtype=np.uint32)
        self._labels: Labels = np.empty(terms.rows, dtype=np.int32)
        self._answer: Found | None = None

    @property
    def answer(self) -> Found:
        """What the server has learnt. Pre-condition: `done`."""
        if self._answer is None:
            raise OutOfTurn("the request has not been answered yet")
        return self._answer

    def wants(self, rows: int) -> bool:
        """Whether the sums of the first so many rows would complete another chunk."""
        return any(self.fed < end <= rows for _, end in self.chunks)

    def feed(self, first_row: int, sums: Residues) -> list[Said]:
        """Take the sums of all uploads (rows, residues a row) of the next rows, exact and not reduced (`Decoder.sums`)."""
        if first_row != self.fed or first_row + len(sums) > self.terms.rows or sums.shape[1] != len(self._columns):
            raise InvalidInput(f"sums of rows from {self.fed} on are due, {len(self._columns)} residues each")
        if len(self._columns):
            given = np.ascontiguousarray(sums)
            kernels.keep_negated(given, self._columns, self._lanes, self._primes, first_row, self._target)
        self.fed += len(sums)
        return self.begin()

    def take(self, member: int, message: Message) -> list[Said]:
        """Take one message of one member."""
        if not 0 <= member < self.terms.members:
            raise OutOfTurn(f"{member} is not a member of the committee")
        return self._take(member, message)

    def _ready(self, rows: int) -> bool:
        return not len(self._columns) or self.fed >= rows

    def _start(self, chunk: int) -> tuple[Side, Talk[object]]:
        side = Referee(self.terms, Line(self.context.digest, chunk), self.context.request, self._seeds)
        first, end = self.chunks[chunk]
        own = self._target[first:end]
        if self._round is not None and isinstance(self.question, Lloyd):
            script = rounds.separate if self.question.separate else rounds.lloyd
            return side, script(side, self._round, first, own)
        if isinstance(self.question, Seed):
            state = seeding.state_for(self.question.number, self.kept.seeds)
            return side, seeding.seed(side, self.question.step(self.terms), lambda a, b: own[a:b], state)
        asked = cast("Inertia", self.question)
        totals = np.zeros((self.terms.clusters, self.terms.field.lanes), dtype=np.uint64)
        inertia.cluster_sums(self.terms, asked.labels, own, 0, totals)
        return side, inertia.total(side, asked.sizes, totals)

    def _finish(self, chunk: int, result: object) -> None:
        if isinstance(result, Outcome):
            self.kept = Kept(self.kept.columns, None if result.labels is not None else result.state)
            self._answer = Found(result.labels, result.winner, result.rows)
        elif isinstance(result, int):
            self._answer = Found(inertia=result)
        else:
            first, end = self.chunks[chunk]
            self._labels[first:end] = cast("Labels", result)
            if self.done:
                self._answer = Found(labels=self._labels)
