"""New rows to the clusters of an earlier job: one question, and it is done. A machine like `lloyd.Clustering`, as pure.

The clusters are frozen: what is known of them are their sizes, and at every client its share of each cluster's sum. No row is
in a cluster before the answer, and every row is in that of its nearest centre after it, ties to the lowest index; a cluster
that no row is near to stays empty.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from secfc.errors import InvalidInput, JobFailed
from secfc.kmeans.coins import Coins
from secfc.kmeans.distances import UNASSIGNED, Labels
from secfc.kmeans.indices import Indices
from secfc.kmeans.lloyd import Answer, Clustering, Progress, Question, Step
from secfc.kmeans.nearest import Sizes


class Assigning(Clustering):
    """See the module's docstring. Of what a clustering has, rounds stay 0 and indices unknown."""

    def __init__(self, rows: int, sizes: Sequence[int], coins: Coins | None = None) -> None:
        """`sizes` of the frozen clusters."""
        if rows < 1 or not any(size > 0 for size in sizes):
            raise InvalidInput("to assign rows there must be a row, and a cluster that is not empty")
        self._sizes = np.array(sizes, dtype=np.int64)
        self.rows, self.clusters, self.max_rounds = rows, len(sizes), 0
        self.start, self.coins, self._candidates = "random", coins or Coins(), 1
        self.number, self.rounds, self.converged, self.measured = 1, 0, False, False
        self.inertia, self.indices = None, Indices()
        self.labels: Labels = np.full(rows, UNASSIGNED, dtype=np.int32)
        self.step = Step.ASSIGN

    @property
    def sizes(self) -> Sizes:
        return self._sizes

    @property
    def question(self) -> Question:
        if self.step is Step.DONE:
            raise JobFailed("all rows are assigned, and nothing more is asked")
        columns = tuple(np.flatnonzero(self._sizes).tolist())
        return Question(self.number, self.step, self.labels, self._sizes, columns, self.coins)

    def absorb(self, answer: Answer) -> Progress:
        """Every row has its cluster."""
        self.labels, self.inertia, self.converged = answer.labels, answer.inertia, True
        self.step, self.number = Step.DONE, self.number + 1
        return Progress(Step.ASSIGN, len(self.labels), answer.inertia)

    def forget(self) -> None:
        """Nothing is known of earlier questions."""
