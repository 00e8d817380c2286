"""Looks on at a job in one process: notes what every request brought, and shows or changes what goes by."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from secfc.coding.field import Words
from secfc.kmeans.distances import Labels
from secfc.kmeans.lloyd import Question, Step
from secfc.kmeans.runs import Runs
from secfc.protocol.effects import Send
from secfc.protocol.parcels import Kind, Parcel, Whole, of_words, to_words
from secfc.protocol.server.asking import RequestRecord
from secfc.protocol.server.attempt import Attempt

if TYPE_CHECKING:
    from secfc.protocol.memory import Memory

Uploads = dict[int, Words]


@dataclass(frozen=True)
class Answered:
    """One finished request: its number and step, who responded, and the assignment that follows from it; of the first run."""

    number: int
    step: Step
    responders: tuple[int, ...]
    columns: tuple[int, ...]
    labels: Labels
    changed: int
    inertia: float | None
    attempts: int = 1
    exact: Fraction | None = None  # the inertia in quantised units


class Watch:
    """Looks on: notes every finished request, and shows or changes what goes by."""

    def __init__(
        self,
        memory: Memory,
        choose: Callable[[int], Sequence[int]] | None,
        observe: Callable[[Answered], None] | None,
        tap: Callable[[Question, Uploads], None] | None,
        lie: Callable[[int, Question, Words], Words] | None,
    ) -> None:
        self._memory, self._choose, self._observe, self._tap, self._lie = memory, choose, observe, tap, lie
        self.history: list[Answered] = []
        self._attempt: Attempt | None = None
        self._uploads: Uploads = {}
        memory.alter, memory.asked, memory.finished = self._alter, self._asked, self._finished
        self._prefer(1)

    def _prefer(self, number: int) -> None:
        """The quick are asked first, so whom to ask first is made the quickest."""
        order = list(self._choose(number)) if self._choose else []
        for j, member in enumerate(self._memory.server.job.members.values()):
            member.pace = float(order.index(j) if j in order else len(order) + j) if order else 0.0

    def _asked(self, attempt: Attempt) -> None:
        self._attempt, self._uploads = attempt, {}

    def _alter(self, sender: str, send: Send) -> Send:
        attempt = self._attempt
        if attempt is None or not isinstance(send.message, Parcel) or send.message.kind is not Kind.UPLOAD:
            return send
        client, body = self._memory.federation.roster.index(sender), send.body or Whole(b"")
        words = to_words(body.data if isinstance(body, Whole) else b"".join(data for _, data in body.pieces(0)))
        if self._lie is not None:
            words = self._lie(client, attempt.question, words)
        self._uploads[client] = words
        if self._tap is not None and len(self._uploads) == len(attempt.responders):
            self._tap(attempt.question, dict(sorted(self._uploads.items())))
        return replace(send, body=of_words(words))

    def _finished(self, runs: Runs, record: RequestRecord) -> None:
        clustering = runs.all[0]
        exact = clustering.inertia if record.inertia is not None else None
        columns = self._attempt.question.columns if self._attempt is not None else ()
        done = Answered(
            record.number,
            Step(record.step),
            record.responders,
            columns,
            clustering.labels.copy(),
            record.changed,
            record.inertia,
            record.attempts,
            exact,
        )
        self.history.append(done)
        self._prefer(record.number + 1)
        if self._observe:
            self._observe(done)
