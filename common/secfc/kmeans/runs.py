"""All runs of a job side by side: several starts of every k, from one sharing. A machine above `lloyd.Clustering`, as pure.

Runs are numbered from 0: all starts of the first k, then those of the next. They go in step: every run that still moves takes
part in every request, so the number of a run's question is that of the request. A run that is done is asked about no more,
and the job is done when all are. Of the runs of one k the one with the least inertia is the best, compared exactly, ties to
the lowest number; runs that converge to the same partition tie. Of the best runs of all k, that of the first k is chosen, or
the one with the best index (`indices`), ties to the first; where no index is known, the first. A run draws from coins of its
own (`Coins.of_run`), so it is what it would be alone, whatever runs beside it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import inf

import numpy as np

from secfc.errors import InvalidInput, JobFailed
from secfc.kmeans.candidates import candidates_per_seed
from secfc.kmeans.coins import Coins
from secfc.kmeans.distances import Labels
from secfc.kmeans.indices import CHOICES
from secfc.kmeans.lloyd import Answer, Clustering, Progress, Question, State, Step


class Runs:
    """See the module's docstring."""

    def __init__(self, clusterings: Sequence[Clustering], choose: str = CHOICES[0]) -> None:
        """Runs of the same rows, none of which has begun; those of one k stand together."""
        if not clusterings or len({one.rows for one in clusterings}) > 1:
            raise InvalidInput("a job has at least one run, and all are of the same rows")
        self.all, self._choose = tuple(clusterings), choose
        self._partitions: dict[int, bytes] = {}  # what names those that runs have converged to

    @classmethod
    def of(
        cls,
        rows: int,
        clusters: Sequence[int],
        coins: Coins,
        *,
        start: str = "k-means++",
        max_rounds: int = 300,
        candidates: int | None = None,
        initial: Labels | None = None,
        choose: str = CHOICES[0],
    ) -> Runs:
        """`clusters` of every run, by its number; `candidates` of a seed as in a job."""
        return cls(
            [
                Clustering(
                    rows,
                    k,
                    start=start,
                    coins=coins.of_run(run),
                    initial=initial,
                    max_rounds=max_rounds,
                    candidates=candidates_per_seed(k, start, candidates),
                )
                for run, k in enumerate(clusters)
            ],
            choose,
        )

    @property
    def rows(self) -> int:
        return self.all[0].rows

    @property
    def moving(self) -> dict[int, Clustering]:
        """The runs that are not done."""
        return {run: one for run, one in enumerate(self.all) if one.step is not Step.DONE}

    @property
    def done(self) -> bool:
        return not self.moving

    @property
    def number(self) -> int:
        """The number of the next request, or of the one that would be."""
        return max(one.number for one in self.all)

    @property
    def questions(self) -> dict[int, Question]:
        """What is to be found out now, by run; the same until `absorb` is called."""
        return {run: one.question for run, one in self.moving.items()}

    def absorb(self, answers: Mapping[int, Answer]) -> dict[int, Progress]:
        """Advance by the answers to all questions just asked."""
        moving = self.moving
        if set(answers) != set(moving):
            raise JobFailed("every run that moves takes part in every request")
        return {run: one.absorb(answers[run]) for run, one in moving.items()}

    # --- what comes of it ------------------------------------------------------------------------------------------------

    @property
    def best(self) -> tuple[int, ...]:
        """The best run of every k so far: that with the least inertia; one that has none yet comes last. Runs that
        converge to the same partition tie, though inertias that are known up to a blur (sealed rounds) may differ."""
        found: dict[int, int] = {}
        seen: set[tuple[int, bytes]] = set()
        for run, one in enumerate(self.all):
            ended = (one.clusters, self._partition(run)) if one.step is Step.DONE and one.converged else None
            if ended in seen:
                continue
            if ended is not None:
                seen.add(ended)
            if one.clusters not in found or _less(one.inertia, self.all[found[one.clusters]].inertia):
                found[one.clusters] = run
        return tuple(found.values())

    def _partition(self, run: int) -> bytes:
        """Names the partition that a run has converged to, however its clusters are numbered."""
        if run not in self._partitions:
            labels = self.all[run].labels
            first = np.empty(self.all[run].clusters, dtype=np.int64)
            first[labels[::-1]] = np.arange(len(labels))[::-1]  # a cluster's first row is written last
            order = np.argsort(np.argsort(first)).astype("<i4")
            self._partitions[run] = hashlib.sha256(order[labels].tobytes()).digest()
        return self._partitions[run]

    @property
    def chosen(self) -> int:
        """The best run of the first k, or of the k with the best index."""
        best = self.best
        if self._choose == CHOICES[0]:
            return best[0]
        merits = {run: self.all[run].indices.merit(self._choose) for run in best}
        return max(best, key=lambda run: -inf if (merit := merits[run]) is None else merit)

    @property
    def published(self) -> dict[int, Labels]:
        """The assignments that everybody is told now, by run: of those that move; at the end, of the best of every k."""
        told = self.best if self.done else self.moving
        return {run: self.all[run].labels for run in told}

    # --- keeping -----------------------------------------------------------------------------------------------------------

    def states(self) -> dict[int, State]:
        """Where every run stands, between two requests."""
        return {run: one.state() for run, one in enumerate(self.all)}

    def resume(self, states: Mapping[int, State]) -> None:
        """Go on from the states of the same job; all columns are asked for again."""
        if set(states) != set(range(len(self.all))):
            raise InvalidInput(f"states of {len(states)} runs do not fit a job of {len(self.all)}")
        for run, one in enumerate(self.all):
            one.resume(states[run])
        if len({one.number for one in self.moving.values()}) > 1:
            raise InvalidInput("runs that move stand at the same request")


def _less(one: Fraction | None, other: Fraction | None) -> bool:
    return one is not None and (other is None or one < other)
