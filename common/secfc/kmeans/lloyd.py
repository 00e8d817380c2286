"""Lloyd's algorithm with its seeding, as a machine that asks questions and is told answers; it does no I/O.

`Clustering` says what it wants to know next (`question`) and takes the answer (`absorb`): always an assignment, and the
inertia where the kind of round knows it. How an answer is found is a round kind's business; kinds that show the server
distances find it with `solve`. The rules that make the result identical to Lloyd's algorithm in exact arithmetic on the
quantised rows:

* a row goes to the cluster with the least d′/|S|², compared exactly; ties go to the lowest index;
* an empty cluster has no centre and is never compared; after the assignment the empty clusters, in index order, each take
  the row with the largest d′/|S|² to its new cluster among clusters of at least two rows, each row once, ties to the lowest;
* it stops when the assignment repeats, or after `max_rounds` Lloyd rounds.

In exact arithmetic the inertia never rises from one Lloyd round to the next: means are the best centres of an assignment, the
nearest centre is the best one of a row, and a row that fills an empty cluster costs nothing there. Distances with which it
rises are wrong, and end the job.

Steps: SEED (k-means++, one seed per request) → SEPARATE (if asked for) → LLOYD → MEASURE (where no round tells the inertia,
or distances that the indices need were left out) → DONE.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from enum import Enum
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from secfc.coding import kernels
from secfc.errors import DataError, InvalidInput, JobFailed
from secfc.kmeans import seeding
from secfc.kmeans.candidates import draw_labels, slots
from secfc.kmeans.coins import Coins
from secfc.kmeans.decoding import Distances
from secfc.kmeans.distances import UNASSIGNED, Labels
from secfc.kmeans.indices import Indices, indices
from secfc.kmeans.nearest import Sizes, fill_empty, nearest

STARTS = ("k-means++", "random", "separation")


class Step(Enum):
    """What a clustering does next."""

    SEED = "seed"
    SEPARATE = "separate"
    LLOYD = "lloyd"
    ASSIGN = "assign"
    MEASURE = "measure"
    DONE = "done"


@dataclass(frozen=True)
class Question:
    """What is to be found next, from the distances of all rows to the centres of an assignment (-1: in no cluster).

    SEED: the candidate of seed number `settled` that leaves the least ΣD², and a candidate of the next seed for each of
    `draws`, labels of the coins; without draws, with all k seeds chosen, the assignment to the nearest of them. Labels
    0 … settled−1 are the seeds chosen so far, the others candidates. SEPARATE: the rows that fit one centre only. LLOYD: the
    assignment to the nearest centres. ASSIGN: the same, to centres of other rows (`assigning`), where an empty cluster stays
    empty.
    MEASURE: the inertia of the assignment as it is, and its indices.
    `columns` are the clusters whose distances are not known from earlier questions.
    """

    number: int
    step: Step
    labels: Labels
    sizes: Sizes
    columns: tuple[int, ...]
    coins: Coins
    settled: int = 0
    draws: tuple[str, ...] = ()


@dataclass(frozen=True)
class Answer:
    """The assignment that follows. `inertia` is Σ_i min_h d(i, h), exact, in quantised units: of a LLOYD step, if known.
    `indices` are those of an assignment that repeats, if known; `partial`: they are not, but can be asked for."""

    labels: Labels
    inertia: Fraction | None = None
    indices: Indices | None = None
    partial: bool = False


@dataclass(frozen=True)
class Progress:
    """What one question brought."""

    step: Step
    changed: int
    inertia: Fraction | None


@dataclass(frozen=True)
class State:
    """What a clustering must not forget between requests; with it a restarted server goes on and ends the same."""

    step: str
    number: int
    rounds: int
    converged: bool
    labels: Labels
    inertia: str = ""  # of the last Lloyd round, exact, as numerator/denominator
    indices: tuple[float | None, ...] = ()  # of the final assignment, if it is one that repeats and they are known
    measured: bool = False  # whether the last request found out no assignment


def inertia(distances: Distances, sizes: Sizes, labels: Labels) -> Fraction:
    """Σ_i d(i, labels[i]), exactly, in quantised units."""
    totals = [0] * len(sizes)
    sums = np.zeros((distances.field.lanes, len(sizes)), dtype=np.int64)
    kernels.sum_digits(distances.digits, labels, 0, len(labels), sums)
    for lane in reversed(range(distances.field.lanes)):
        totals = [t * distances.field.primes[lane] + s for t, s in zip(totals, sums[lane].tolist(), strict=True)]
    return sum((Fraction(t, int(c) ** 2) for t, c in zip(totals, sizes, strict=True) if t), Fraction(0))


def solve(question: Question, distances: Distances, *, partial: bool = False) -> Answer:
    """The answer to a question, from distances. Pre-condition: columns that are not asked for stand as they were decoded.
    `partial`: some distances are not known (`bounds`), which cannot be the least of their row."""
    sizes = question.sizes
    if question.step is Step.SEED:
        return _seeded(question, distances)
    if question.step is Step.MEASURE:
        labels = question.labels
        return Answer(labels, inertia(distances, sizes, labels), indices(distances, sizes, labels))
    closest = nearest(distances, sizes)
    if question.step is Step.SEPARATE:
        return Answer(seeding.separate(distances, sizes, closest, question.labels))
    loss = inertia(distances, sizes, closest)
    if question.step is Step.ASSIGN:
        return Answer(closest, loss)
    filled = fill_empty(distances, sizes, closest)
    repeats = bool((filled == question.labels).all())
    if repeats and partial:
        return Answer(filled, loss, partial=True)
    return Answer(filled, loss, indices(distances, sizes, filled) if repeats else None)


def _seeded(question: Question, distances: Distances) -> Answer:
    """The winner's column takes its place after those of the seeds chosen before; other candidates' columns are done with."""
    field, digits, number = distances.field, distances.digits, question.settled
    squares = _squares(distances, number) if number else None
    candidates = range(number, int(question.labels.max()) + 1)
    winner, squares = seeding.least(field, squares, [digits[:, :, h] for h in candidates])
    digits[:, :, number] = digits[:, :, number + winner]
    if question.draws:
        drawn = seeding.draw(field, squares, question.coins, question.draws)
        return Answer(seeding.choose(question.labels, number, winner, drawn))
    closest = nearest(distances, _first(digits.shape[2], number + 1))
    return Answer(fill_empty(distances, np.ones(number + 1, dtype=np.int64), closest))


def _squares(distances: Distances, seeds: int) -> seeding.Digits:
    """D² of every row to the nearest of the first clusters, each a single row."""
    closest = nearest(distances, _first(distances.digits.shape[2], seeds))
    squares: seeding.Digits = distances.digits[:, np.arange(len(closest)), closest]
    return squares


def _first(clusters: int, count: int) -> Sizes:
    """Sizes where only the first clusters are there, with one row each."""
    return (np.arange(clusters) < count).astype(np.int64)


class Clustering:
    """Lloyd's algorithm with its seeding, as a machine that asks questions."""

    def __init__(
        self,
        rows: int,
        clusters: int,
        *,
        start: str = "k-means++",
        coins: Coins | None = None,
        initial: Labels | None = None,
        max_rounds: int = 300,
        candidates: int = 1,
    ) -> None:
        """`candidates` of a seed of k-means++, of which the best is taken; 1: plain k-means++."""
        if clusters < 1 or max_rounds < 1 or candidates < 1:
            raise InvalidInput("k, max_rounds and candidates must be at least 1")
        if rows < clusters:
            raise DataError(f"{rows} rows cannot make {clusters} clusters; lower k or bring more rows")
        self.rows, self.clusters, self.max_rounds = rows, clusters, max_rounds
        self.start, self._candidates = start, candidates
        self.coins = coins or Coins()
        self.number = 1
        self.rounds = 0
        self.converged = False
        self.measured = False  # whether the last request found out no assignment
        self.inertia: Fraction | None = None  # of the last Lloyd round, if known
        self.indices = Indices()  # of the final assignment, where they are known
        self.labels: Labels = np.full(rows, UNASSIGNED, dtype=np.int32)
        self.step = Step.LLOYD
        if start not in STARTS:
            raise InvalidInput(f"seeding must be one of {', '.join(STARTS)}, not {start!r}")
        if initial is not None:
            self.labels = _checked(initial, rows, clusters)
        elif start == "random":
            self.labels = self.coins.integers("random start", clusters, rows)
        else:
            self.step = Step.SEED
            self.labels[self.coins.below("k-means++ 0", rows)] = 0
        self.forget()

    @property
    def sizes(self) -> Sizes:
        """Rows of every cluster, and while seeding of every candidate."""
        labels = slots(self.clusters, self._candidates) if self.step is Step.SEED else self.clusters
        return np.bincount(self.labels[self.labels >= 0], minlength=labels)

    @property
    def question(self) -> Question:
        """What is to be found out now; the same until `absorb` is called."""
        if self.step is Step.DONE:
            raise JobFailed("the clustering is finished and asks for nothing more")
        sizes = self.sizes
        columns = tuple(h for h in np.flatnonzero(sizes).tolist() if h in self._stale)
        return Question(self.number, self.step, self.labels, sizes, columns, self.coins, self._settled, self._draws)

    @property
    def _settled(self) -> int:
        """Seeds chosen so far: every request chooses one, from the first on."""
        return self.number - 1 if self.step is Step.SEED else 0

    @property
    def _draws(self) -> tuple[str, ...]:
        """What the coins of the next seed's candidates are called."""
        following = self._settled + 1
        if self.step is not Step.SEED or following == self.clusters:
            return ()
        return draw_labels(following, self._candidates)

    def absorb(self, answer: Answer) -> Progress:
        """Advance by the answer to the question just asked."""
        step, settled, draws, before = self.step, self._settled, self._draws, self.labels
        match step:
            case Step.SEED:
                following = Step.SEPARATE if self.start == "separation" else Step.LLOYD
                self.labels, self.step = answer.labels, Step.SEED if draws else following
            case Step.SEPARATE:
                self.labels, self.step = answer.labels, Step.LLOYD
            case Step.LLOYD:
                self._lloyd(answer)
            case Step.MEASURE:
                self._measure(answer)
            case Step.ASSIGN | Step.DONE:
                raise JobFailed("the clustering is finished and takes no more answers")
        self._stale = self._touched(before, settled, draws)
        self.number += 1
        return Progress(step, int((before != self.labels).sum()), answer.inertia)

    def _touched(self, before: Labels, settled: int, draws: tuple[str, ...]) -> set[int]:
        """The clusters whose columns are not those of the question just answered."""
        if draws:  # the winner's column stays, under its number as a seed
            return set(range(settled + 1, int(self.labels.max()) + 1))
        if before.max() >= self.clusters:  # there were several candidates of the last seed: which won is not known here
            before = np.where(before >= settled, UNASSIGNED, before)
        moved = np.flatnonzero(before != self.labels)
        touched = np.zeros(self.clusters + 1, dtype=np.bool_)  # the last stands for UNASSIGNED, which is -1
        touched[before[moved]] = touched[self.labels[moved]] = True
        return set(np.flatnonzero(touched[:-1]).tolist())

    def forget(self) -> None:
        """The distances of earlier rounds are lost (a restart): ask for all columns again."""
        self._stale = set(range(slots(self.clusters, self._candidates)))

    def state(self) -> State:
        """Where it stands, between two requests."""
        loss = "" if self.inertia is None else str(self.inertia)
        known = astuple(self.indices) if self.step is Step.DONE else ()
        done = (self.rounds, self.converged, self.labels, loss, known, self.measured)
        return State(self.step.value, self.number, *done)

    def resume(self, state: State) -> None:
        """Go on from a state of the same job (rows, clusters, start, coins); all columns are asked for again."""
        if len(state.labels) != self.rows:
            raise InvalidInput(f"a state of {len(state.labels)} rows does not fit a job of {self.rows}")
        self.step, self.number = Step(state.step), state.number
        self.rounds, self.converged, self.labels = state.rounds, state.converged, state.labels.copy()
        self.inertia = Fraction(state.inertia) if state.inertia else None
        self.indices, self.measured = Indices(*state.indices), state.measured
        self.forget()

    def _lloyd(self, answer: Answer) -> None:
        if self.inertia is not None and answer.inertia is not None and answer.inertia > self.inertia:
            raise JobFailed(
                f"the inertia rises in Lloyd round {self.rounds + 1}, which cannot happen with exact distances: somebody"
                " computes with damaged or wrong shares, or sends wrong distances; start a new job (secfc-server --new)"
            )
        self.inertia, self.indices = answer.inertia, answer.indices or Indices()
        self.rounds += 1
        self.converged = bool((answer.labels == self.labels).all())
        if self.converged or self.rounds >= self.max_rounds:
            known = answer.inertia is not None and not (self.converged and answer.partial)
            self.step = Step.DONE if known else Step.MEASURE
        self.labels = answer.labels

    def _measure(self, answer: Answer) -> None:
        if self.inertia is not None and answer.inertia != self.inertia:
            raise JobFailed(
                "the same assignment has another inertia than before: somebody computes with damaged or wrong shares, or"
                " sends wrong distances; start a new job (secfc-server --new)"
            )
        self.inertia, self.indices = answer.inertia, answer.indices or Indices()
        self.step, self.measured = Step.DONE, True


def _checked(initial: npt.ArrayLike, rows: int, clusters: int) -> Labels:
    labels = np.asarray(initial)
    if labels.shape != (rows,) or labels.dtype.kind not in "iu":
        raise InvalidInput(f"initial labels must be {rows} whole numbers, one per row")
    if labels.min() < UNASSIGNED or labels.max() >= clusters or not (labels >= 0).any():
        raise InvalidInput(f"initial labels must lie in 0 … {clusters - 1} (-1: no cluster), and some row needs one")
    return labels.astype(np.int32)
