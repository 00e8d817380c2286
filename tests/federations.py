"""Small federations for tests: a job described by plain values, and the protocol run on it in memory."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import isqrt

import numpy as np
import numpy.typing as npt

from secfc.agreement import plan
from secfc.coding.field import Field, Words
from secfc.coding.sharing import CodedRows, ShareSet
from secfc.kmeans.coins import Coins
from secfc.kmeans.decoding import Decoder, Distances
from secfc.kmeans.lloyd import Answer, Clustering, Progress, Question
from secfc.privacy import masks
from secfc.protocol import memory
from secfc.protocol.messages import RoundRequest
from secfc.protocol.parcels import Whole, to_words
from secfc.protocol.rounds import kind_of
from secfc.protocol.rounds.kinds import Holding
from tests import reference


def largest_eta(lanes: int, max_rows: int, features: int) -> int:
    """The largest η with m²·d·(2η)² < Q for that many lanes (docs/protocol.md, Section 1), at most 2⁵³."""
    room = (Field.of(lanes).modulus - 1) // (max_rows**2 * features)
    return min(isqrt(room) // 2, 1 << 53)


@dataclass(frozen=True)
class Job:
    """A clustering job. `rows` are quantised; `owners[i]` says which client brings row i."""

    rows: tuple[tuple[int, ...], ...]
    clusters: int
    owners: tuple[int, ...]
    clients: int = 5
    privacy: int = 1
    segments: int = 1
    uploads: str = "masked"
    eta: int = 0
    precision: int = 0
    start: str = "k-means++"
    initial: tuple[int, ...] | None = None
    seed: int = 0
    max_rounds: int = 300

    @property
    def features(self) -> int:
        return len(self.rows[0])

    def plan(self) -> plan.Plan:
        eta = self.eta or max((abs(x) for row in self.rows for x in row), default=0) or 1
        return plan.make(
            plan.Wishes(
                clients=self.clients,
                privacy=self.privacy,
                clusters=self.clusters,
                features=self.features,
                max_rows=len(self.rows),
                bound=eta * 2.0**-self.precision,
                precision=self.precision,
                uploads=self.uploads,
                segments=self.segments,
            )
        )

    def coins(self) -> Coins:
        return Coins(b"job %d" % self.seed)

    def parts(self) -> tuple[list[npt.NDArray[np.int64]], list[npt.NDArray[np.int64]]]:
        """Rows and positions of every client, each client's in an order of its own."""
        shuffle = random.Random(self.seed)
        rows, positions = [], []
        for j in range(self.clients):
            mine = [i for i, owner in enumerate(self.owners) if owner == j]
            shuffle.shuffle(mine)
            positions.append(np.array(mine, dtype=np.int64))
            rows.append(np.array([self.rows[i] for i in mine], dtype=np.int64).reshape(len(mine), self.features))
        return rows, positions

    def clustering(self) -> Recording:
        initial = None if self.initial is None else np.array(self.initial, dtype=np.int32)
        return Recording(
            len(self.rows),
            self.clusters,
            start=self.start,
            coins=self.coins(),
            initial=initial,
            max_rounds=self.max_rounds,
        )

    def expected(self) -> list[reference.Step]:
        return reference.run(self.rows, self.clusters, self.start, self.coins(), self.initial, self.max_rounds)


class Recording(Clustering):
    """A clustering that remembers what every request brought, the exact inertia included."""

    def absorb(self, answer: Answer) -> Progress:
        progress = super().absorb(answer)
        if not hasattr(self, "steps"):
            self.steps: list[reference.Step] = []
        self.steps.append(reference.Step(progress.step.value, self.labels.tolist(), progress.inertia))
        return progress


def run(job: Job) -> tuple[memory.Result, list[reference.Step]]:
    """The whole protocol on a job, R random responders per round."""
    agreed = job.plan()
    rows, positions = job.parts()
    machine = job.clustering()

    def choose(number: int) -> Sequence[int]:
        return random.Random(job.seed * 1009 + number).sample(range(job.clients), agreed.responders)

    result = memory.run(agreed, rows, lambda _: machine, positions=positions, choose=choose)
    return result, machine.steps


def check(job: Job) -> memory.Result:
    """Run a job and compare every round with the reference: labels and exact inertia."""
    result, steps = run(job)
    expected = job.expected()
    for number, (got, wanted) in enumerate(zip(steps, expected, strict=False), start=1):
        assert got == wanted, f"request {number}: {got} instead of {wanted}"
    assert len(steps) == len(expected)
    assert result.labels.tolist() == expected[-1].labels
    last = expected[-1].inertia
    assert last is not None
    assert result.inertia == float(last / Fraction(4) ** job.precision)
    return result


# --- one request, without a job around it --------------------------------------------------------------------------------


class Holder:
    """A client that holds its shares of all rows: the client's half of the plan's round kind."""

    def __init__(self, agreed: plan.Plan, index: int, coded: CodedRows) -> None:
        self._plan, self.index, self._coded = agreed, index, coded

    def answer(self, question: Question, session: bytes, responders: tuple[int, ...], attempt: int) -> Words:
        """Its upload for one attempt."""
        others = (o for o in range(self._plan.wishes.clients) if o != self.index)
        pairs = {o: bytes(sorted((self.index, o))) * 16 for o in others}
        half = kind_of(self._plan).client(Holding(self._plan, self.index, session, self._coded, pairs))
        digest = masks.assignment_digest(question.labels.astype("<i4").tobytes())
        request = RoundRequest(question.number, attempt, responders, question.columns, digest, 1.0)
        [upload] = half.answer(request, question.labels).begin()
        assert isinstance(upload.body, Whole)
        return to_words(upload.body.data)


def holders(
    agreed: plan.Plan, rows: Sequence[npt.NDArray[np.int64]], positions: Sequence[npt.NDArray[np.int64]]
) -> list[Holder]:
    """All clients after sharing."""
    everybody = range(agreed.wishes.clients)
    shares = [ShareSet(agreed.code, part, bytes([j]) * 32).shares(everybody) for j, part in enumerate(rows)]
    out = []
    for j in everybody:
        coded = CodedRows(agreed.field, sum(map(len, rows)), agreed.length)
        for at, words in zip(positions, shares, strict=True):
            coded.put(at, words[j])
        coded.finish()
        out.append(Holder(agreed, j, coded))
    return out


def decoded(
    agreed: plan.Plan, question: Question, uploads: dict[int, Words], distances: Distances | None = None
) -> Distances:
    """What the server makes of masked uploads."""
    rows = len(question.labels)
    decoder = Decoder(agreed.shape(rows, question.sizes, question.columns), list(uploads), None)
    for j, words in uploads.items():
        decoder.add(j, 0, words)
    found = Distances(agreed.field, rows, agreed.wishes.clusters) if distances is None else distances
    decoder.finish(found)
    return found
