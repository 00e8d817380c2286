"""The server's part of a round, second half: from exact distances to the next assignment.

`Clustering` is the whole algorithm as a machine that does no I/O: it says which distances it wants (`request`) and is told
them (`absorb`). Its rules, which make the result identical to Lloyd's algorithm in exact arithmetic on the quantised rows:

* a row goes to the cluster with the least d′/|S|², compared exactly; ties go to the lowest index;
* an empty cluster has no centre and is never compared; after the assignment the empty clusters, in index order, each take
  the row with the largest d′/|S|² to its new cluster among clusters of at least two rows, each row once, ties to the lowest;
* it stops when the assignment repeats, or after `max_rounds` Lloyd rounds.

In exact arithmetic the inertia never rises from one Lloyd round to the next: means are the best centres of an assignment, the
nearest centre is the best one of a row, and a row that fills an empty cluster costs nothing there. Distances with which it
rises are wrong, and end the job.

Phases: SEED (k-means++, one column a request) → SEPARATE (if asked for) → LLOYD → DONE.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from secfc import kernels, parallel, seeding
from secfc.coins import Coins
from secfc.decoding import Distances
from secfc.distances import UNASSIGNED, Labels
from secfc.errors import DataError, InvalidInput, JobFailed

Sizes = npt.NDArray[np.int64]
STARTS = ("k-means++", "random", "separation")


class Phase(Enum):
    """Where a clustering stands."""

    SEED = "seed"
    SEPARATE = "separate"
    LLOYD = "lloyd"
    DONE = "done"


@dataclass(frozen=True)
class Request:
    """The distances wanted next: of all rows to the centres of some clusters of an assignment (-1: in no cluster)."""

    number: int
    labels: Labels
    sizes: Sizes
    columns: tuple[int, ...]


@dataclass(frozen=True)
class Progress:
    """What one request brought. `inertia` is Σ_i min_h d(i, h), exact, in quantised units; None while seeding."""

    phase: Phase
    changed: int
    inertia: Fraction | None


@dataclass(frozen=True)
class State:
    """What a clustering must not forget between requests; with it a restarted server goes on and ends the same."""

    phase: str
    number: int
    rounds: int
    converged: bool
    labels: Labels
    inertia: str = ""  # of the last Lloyd round, exact, as numerator/denominator


def nearest(distances: Distances, sizes: Sizes) -> Labels:
    """Every row's nearest centre, exactly; ties to the lowest index."""
    if not (sizes > 0).any():
        raise InvalidInput("there is no centre to be near to: every cluster is empty")
    digits, primes, size = distances.digits, distances.field.prime_floats, distances.limbs(sizes)
    labels = np.empty(digits.shape[1], dtype=np.int32)
    block = parallel.block_rows(4 * len(sizes) * distances.field.lanes)
    parallel.for_row_ranges(len(labels), block, lambda a, b: kernels.nearest(digits, primes, sizes, size, a, b, labels))
    return labels


def fill_empty(distances: Distances, sizes: Sizes, labels: Labels) -> Labels:
    """Give every empty cluster a row, by the rule above. `sizes` are those of the centres the distances belong to."""
    clusters = len(sizes)
    counts = np.bincount(labels, minlength=clusters)
    if (counts > 0).all():
        return labels
    size = distances.limbs(sizes)
    nearest_labels, labels = labels, labels.copy()
    unmoved = np.ones(len(labels), dtype=np.bool_)
    for h in np.flatnonzero(counts == 0):
        movable = unmoved & (counts[labels] >= 2)
        row = kernels.furthest(distances.digits, distances.field.prime_floats, sizes, size, nearest_labels, movable)
        if row < 0:
            raise DataError(f"{len(labels)} rows cannot fill {clusters} clusters; lower k")
        counts[labels[row]] -= 1
        counts[h] += 1
        labels[row] = h
        unmoved[row] = False
    return labels


def inertia(distances: Distances, sizes: Sizes, labels: Labels) -> Fraction:
    """Σ_i d(i, labels[i]), exactly, in quantised units."""
    totals = [0] * len(sizes)
    sums = np.zeros((distances.field.lanes, len(sizes)), dtype=np.int64)
    kernels.sum_digits(distances.digits, labels, 0, len(labels), sums)
    for lane in reversed(range(distances.field.lanes)):
        totals = [t * distances.field.primes[lane] + s for t, s in zip(totals, sums[lane].tolist(), strict=True)]
    return sum((Fraction(t, int(c) ** 2) for t, c in zip(totals, sizes, strict=True) if t), Fraction(0))


class Clustering:
    """Lloyd's algorithm with its seeding, as a machine that asks for distances."""

    def __init__(
        self,
        rows: int,
        clusters: int,
        *,
        start: str = "k-means++",
        coins: Coins | None = None,
        initial: Labels | None = None,
        max_rounds: int = 300,
    ) -> None:
        if clusters < 1 or max_rounds < 1:
            raise InvalidInput("k and max_rounds must be at least 1")
        if rows < clusters:
            raise DataError(f"{rows} rows cannot make {clusters} clusters; lower k or bring more rows")
        self.rows, self.clusters, self.max_rounds = rows, clusters, max_rounds
        self.start = start
        self.coins = coins or Coins()
        self.number = 1
        self.rounds = 0
        self.converged = False
        self._inertia: Fraction | None = None  # of the last Lloyd round
        self.labels: Labels = np.full(rows, UNASSIGNED, dtype=np.int32)
        self.phase = Phase.LLOYD
        if start not in STARTS:
            raise InvalidInput(f"seeding must be one of {', '.join(STARTS)}, not {start!r}")
        if initial is not None:
            self.labels = _checked(initial, rows, clusters)
        elif start == "random":
            self.labels = self.coins.integers("random start", clusters, rows)
        else:
            self.phase = Phase.SEED
            self._choose(self.coins.below("k-means++ 0", rows))
        self._stale = set(range(clusters))

    @property
    def sizes(self) -> Sizes:
        return np.bincount(self.labels[self.labels >= 0], minlength=self.clusters)

    @property
    def request(self) -> Request:
        """The distances wanted now; the same until `absorb` is called."""
        if self.phase is Phase.DONE:
            raise JobFailed("the clustering is finished and wants no more distances")
        sizes = self.sizes
        columns = tuple(h for h in sorted(self._stale) if sizes[h] > 0)
        return Request(self.number, self.labels, sizes, columns)

    def absorb(self, distances: Distances) -> Progress:
        """Advance by the distances just asked for. Pre-condition: columns asked for earlier are still in place."""
        phase = self.phase
        step = {Phase.SEED: self._seed, Phase.SEPARATE: self._separate, Phase.LLOYD: self._lloyd}
        if phase not in step:
            raise JobFailed("the clustering is finished and takes no more distances")
        before = self.labels
        loss = step[phase](distances)
        moved = np.flatnonzero(before != self.labels)
        touched = np.zeros(self.clusters + 1, dtype=np.bool_)  # the last stands for UNASSIGNED, which is -1
        touched[before[moved]] = touched[self.labels[moved]] = True
        self._stale = set(np.flatnonzero(touched[:-1]).tolist())
        self.number += 1
        return Progress(phase, len(moved), loss)

    def forget(self) -> None:
        """The distances of earlier rounds are lost (a restart): ask for all columns again."""
        self._stale = set(range(self.clusters))

    def state(self) -> State:
        """Where it stands, between two requests."""
        loss = "" if self._inertia is None else str(self._inertia)
        return State(self.phase.value, self.number, self.rounds, self.converged, self.labels, loss)

    def resume(self, state: State) -> None:
        """Go on from a state of the same job (rows, clusters, start, coins); all columns are asked for again."""
        if len(state.labels) != self.rows:
            raise InvalidInput(f"a state of {len(state.labels)} rows does not fit a job of {self.rows}")
        self.phase, self.number = Phase(state.phase), state.number
        self.rounds, self.converged, self.labels = state.rounds, state.converged, state.labels.copy()
        self._inertia = Fraction(state.inertia) if state.inertia else None
        self.forget()

    def _choose(self, row: int) -> None:
        labels = self.labels.copy()  # a request handed out keeps its own
        labels[row] = labels.max() + 1
        self.labels = labels

    def _seed(self, distances: Distances) -> None:
        chosen = int(self.labels.max()) + 1
        sizes = self.sizes
        if chosen < self.clusters:
            closest = nearest(distances, sizes)
            self._choose(seeding.draw(distances, closest, self.labels >= 0, self.coins, f"k-means++ {chosen}"))
            return
        self.labels = fill_empty(distances, sizes, nearest(distances, sizes))
        self.phase = Phase.SEPARATE if self.start == "separation" else Phase.LLOYD

    def _separate(self, distances: Distances) -> None:
        self.labels = seeding.separate(distances, self.sizes, nearest(distances, self.sizes), self.labels)
        self.phase = Phase.LLOYD

    def _lloyd(self, distances: Distances) -> Fraction:
        sizes = self.sizes
        labels = nearest(distances, sizes)
        loss = inertia(distances, sizes, labels)
        if self._inertia is not None and loss > self._inertia:
            raise JobFailed(
                f"the inertia rises in Lloyd round {self.rounds + 1}, which exact distances cannot make it do: somebody"
                " computes with damaged or wrong shares, or sends wrong distances; start a new job (secfc-server --new)"
            )
        self._inertia = loss
        labels = fill_empty(distances, sizes, labels)
        self.rounds += 1
        self.converged = bool((labels == self.labels).all())
        if self.converged or self.rounds >= self.max_rounds:
            self.phase = Phase.DONE
        self.labels = labels
        return loss


def _checked(initial: npt.ArrayLike, rows: int, clusters: int) -> Labels:
    labels = np.asarray(initial)
    if labels.shape != (rows,) or labels.dtype.kind not in "iu":
        raise InvalidInput(f"initial labels must be {rows} whole numbers, one per row")
    if labels.min() < UNASSIGNED or labels.max() >= clusters or not (labels >= 0).any():
        raise InvalidInput(f"initial labels must lie in 0 … {clusters - 1} (-1: no cluster), and some row needs one")
    return labels.astype(np.int32)
