"""Which distances a Lloyd round can do without: those that cannot be the least of their row, whatever they are exactly.

Once a round is answered, the server knows for every row i and centre μ_h a number that ‖x_i − μ_h‖ is not below, and exactly
the distance of every row to the centre of its own cluster. When rows come and go, μ_h with c rows becomes μ′_h with c′, and
from c′·μ′_h = c·μ_h + Σ_in x − Σ_out x follows

    μ′_h − μ_h = (Σ_in (x − μ_h) − Σ_out (x − μ_h)) / c′,  so  ‖μ′_h − μ_h‖ ≤ (Σ_in ‖x − μ_h‖ + Σ_out ‖x − μ_h‖) / c′ = δ_h.

Distances of rows that leave are those to their own cluster, and of rows that come those that made them come: all are known
exactly. So ‖x_i − μ′_h‖ ≥ lower(i, h) − δ_h, and with a the cluster of row i, ‖x_i − μ′_a‖ ≤ ‖x_i − μ_a‖ + δ_a. A pair (i, h)
is left out if the first, for h, is *strictly* above the second: then h is not the nearest centre of i, nor tied with it.

Everything is rounded outward: `_OUT` is far above the rounding of the float64 operations it makes up for (a root of a sum of
at most 16 terms, all positive), and sums over n rows get n·2⁻⁵² besides.

**What is always asked for**: every row's distance to its own centre, if that moved. So the inertia of every round is exact,
and so is every distance that the rule for empty clusters compares: a row's new cluster is its old one or one of those asked.
Columns that stood still are known as far as they were ever asked for; what is not known of a column has the digit `UNKNOWN`,
which is larger than any distance's, so that comparing whole rows finds the same as comparing what is known.

Pure: no I/O. What it knows is lost with the process; then everything is asked for, and the result is the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from secfc.kmeans.decoding import Distances
from secfc.kmeans.distances import Labels
from secfc.kmeans.lloyd import Question, Step
from secfc.kmeans.nearest import Sizes
from secfc.kmeans.rowsets import Wanted

Floats = npt.NDArray[np.float64]
UNKNOWN = np.uint32((1 << 31) - 1)  # in the highest lane; a digit is below 2^21
WORTH = 1 << 12  # pairs that must be saved for a request to name rows: a round of fewer takes no time anyway
MOST = 0.6  # of the pairs: if more are left open, whole columns are computed as quickly
_OUT = 2.0**-44
_BLOCK = 1 << 14


@dataclass(frozen=True, eq=False)
class Prepared:
    """What the question of a number asks for."""

    number: int
    wanted: Mapping[int, Wanted]


class Bounds:
    """What is known of all distances to the centres of a clustering, and what is therefore asked for next."""

    def __init__(self, distances: Distances) -> None:
        self._distances = distances
        self._lower: Floats | None = (
            None  # (rows, clusters): what no distance to the centres of the last answer is below
        )
        self._prepared: Prepared | None = None
        self._gaps = False  # whether columns that stood still may have unknown distances

    def wanted(self, question: Question) -> Mapping[int, Wanted]:
        """The rows of every column that are asked for; the same until the question is answered."""
        if self._prepared is not None and self._prepared.number == question.number:
            return self._prepared.wanted
        whole = np.flatnonzero(question.sizes).tolist() if self._gaps else question.columns
        self.forget()
        return dict.fromkeys(whole, Wanted())

    def forget(self) -> None:
        """Ask for all rows next: nothing is prepared, and whole columns will be asked for where something may be unknown."""
        self._lower = self._prepared = None

    def partial(self, question: Question) -> bool:
        """Whether some distance to the centres of a question that is answered is not known."""
        top = self._distances.digits[-1]
        return self._gaps and any((top[:, h] == UNKNOWN).any() for h in np.flatnonzero(question.sizes))

    def learn(self, question: Question, following: Labels) -> None:
        """The question is answered with this assignment, and all that it asked for is decoded: prepare the next."""
        wanted = self.wanted(question)
        self._prepared = None
        if question.step is not Step.LLOYD:
            self._lower = None
            return
        self._take(question, wanted)
        if (following == question.labels).all():
            self._prepared = self._rest(question)
        else:
            self._prepared = self._next(question, following)

    def _take(self, question: Question, wanted: Mapping[int, Wanted]) -> None:
        """The distances that were asked for are lower bounds of themselves."""
        if self._lower is None:
            self._lower = np.zeros((len(question.labels), len(question.sizes)))
            self._gaps = False
            wanted = dict.fromkeys(np.flatnonzero(question.sizes).tolist(), Wanted())
        for h, one in wanted.items():
            rows = slice(None) if one.others is None else one.rows(question.labels, h)
            self._lower[rows, h] = self._roots(rows, h, question.sizes) * (1 - _OUT)

    def _roots(self, rows: Any, clusters: Any, sizes: Sizes) -> Floats:
        """Distances of some rows to some clusters, nearly; infinite where they are not known, or where there is no centre."""
        digits, primes = self._distances.digits, self._distances.field.primes
        total = digits[-1, rows, clusters].astype(np.float64)
        unknown = total == UNKNOWN
        for lane in reversed(range(len(primes) - 1)):
            total = total * primes[lane] + digits[lane, rows, clusters]
        count = sizes[clusters].astype(np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(unknown | (count == 0), np.inf, np.sqrt(total) / count)

    # --- the next question -------------------------------------------------------------------------------------------------

    def _rest(self, question: Question) -> Prepared | None:
        """The assignment repeats: what is unknown, for the indices of the partition; nothing if all is known."""
        if not self._gaps:
            return None
        top, found = self._distances.digits[-1], {}
        for h in np.flatnonzero(question.sizes).tolist():
            unknown = np.flatnonzero(top[:, h] == UNKNOWN).astype(np.int32)
            if len(unknown):
                found[h] = Wanted(unknown)
        return Prepared(question.number + 1, self._worth(found, question.sizes)) if found else None

    def _next(self, question: Question, following: Labels) -> Prepared:
        clusters, sizes = len(question.sizes), np.bincount(following, minlength=len(question.sizes))
        moved = np.flatnonzero(question.labels != following)
        touched = np.zeros(clusters + 1, dtype=np.bool_)  # the last stands for rows that were in none
        touched[question.labels[moved]] = touched[following[moved]] = True
        near = self._roots(np.arange(len(following)), following, question.sizes)
        drift = self._drift(question, following, moved, near)
        upper = (near * (1 + _OUT) + drift[following]) * (1 + _OUT)
        open_ = self._open(drift, upper)
        return Prepared(question.number + 1, self._chosen(following, sizes, touched[:-1], open_))

    def _drift(self, question: Question, following: Labels, moved: npt.NDArray[np.int64], near: Floats) -> Floats:
        """δ of every cluster; infinite where it was empty, or nobody knows how far the rows that came were away."""
        clusters = len(question.sizes)
        left = moved[question.labels[moved] >= 0]
        old, new = question.labels[left], following[moved]
        away = self._roots(left, old, question.sizes)
        sums = np.bincount(new, near[moved], clusters) + np.bincount(old, away, clusters)
        sizes = np.bincount(following, minlength=clusters)
        drift = np.full(clusters, np.inf)
        np.divide(sums, sizes, out=drift, where=(sizes > 0) & (question.sizes > 0))
        return drift * (1 + _OUT + (len(moved) + 8) * 2.0**-51)

    def _open(self, drift: Floats, upper: Floats) -> npt.NDArray[np.bool_]:
        """Whether a row's distance to a cluster may be no larger than that to its own; the bounds move on."""
        lower = self._lower
        if lower is None:
            raise ValueError("nothing is known yet")
        out = np.empty(lower.shape, dtype=np.bool_)
        for first in range(0, len(lower), _BLOCK):
            part = lower[first : first + _BLOCK]
            np.subtract(part, drift, out=part)
            np.maximum(part, 0.0, out=part)
            part *= 1 - _OUT
            np.less_equal(part, upper[first : first + _BLOCK, None], out=out[first : first + _BLOCK])
        return out

    def _chosen(
        self, following: Labels, sizes: Sizes, touched: npt.NDArray[np.bool_], open_: npt.NDArray[np.bool_]
    ) -> dict[int, Wanted]:
        """The rows that are asked for, unless there are so many that whole columns are no more work. What is left out of a
        column that has changed becomes unknown."""
        top, rows = self._distances.digits[-1], len(following)
        found: dict[int, Wanted] = {}
        for h in np.flatnonzero(sizes).tolist():
            others = open_[:, h] & (following != h)
            if not touched[h]:
                others &= top[:, h] == UNKNOWN
            if touched[h] or others.any():
                found[h] = Wanted(np.flatnonzero(others).astype(np.int32), own=bool(touched[h]))
        found = self._worth(found, sizes)
        for h, one in found.items():
            if one.own:
                unknown = np.ones(rows, dtype=np.bool_)
                unknown[one.rows(following, h)] = False
                top[unknown, h] = UNKNOWN
                self._gaps = True
        return found

    def _worth(self, found: dict[int, Wanted], sizes: Sizes) -> dict[int, Wanted]:
        """These rows, or whole columns if that is as quick."""
        rows = self._distances.digits.shape[1]
        asked, whole = sum(one.count(rows, int(sizes[h])) for h, one in found.items()), rows * len(found)
        few = not self._gaps and whole - asked < WORTH
        return {h: Wanted() for h in found} if few or asked > MOST * whole else found
