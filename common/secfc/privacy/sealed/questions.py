"""What can be asked in a sealed request, which columns that uploads, and what the answer is.

A question is public. All responders make the same `shape` of it; both halves bind its digest into every stream.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from secfc.coding.field import Field, Layout
from secfc.errors import InvalidInput
from secfc.framing import framed
from secfc.kmeans.distances import Labels, Shape
from secfc.privacy.sealed.context import numbers
from secfc.privacy.sealed.nearest import Bools
from secfc.privacy.sealed.rounds import Round
from secfc.privacy.sealed.seeding import Step
from secfc.privacy.sealed.terms import Terms

Sizes = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Lloyd:
    """The nearest live cluster of every row. `columns` are asked for now, the other live ones are kept.

    `changed[h]`: cluster h is another than in the last request that compared. `trusted[i]`: labels[i] is what that request
    found nearest (`trust`). With `separate` the answer is that of centre separation instead.
    """

    labels: Labels = field(repr=False)
    sizes: Sizes
    columns: tuple[int, ...]
    changed: Bools = field(repr=False)
    trusted: Bools = field(repr=False)
    separate: bool = False

    def digest(self) -> bytes:
        parts = (b"separate" if self.separate else b"lloyd", self.changed.tobytes(), self.trusted.tobytes())
        return hashlib.sha256(framed(b"secfc/v1/sealed/question", *parts, _common(self))).digest()

    def shape(self, terms: Terms) -> Shape:
        return columns_shape(terms, self.sizes, self.columns)

    def round(self, terms: Terms) -> Round:
        if len(self.labels) != terms.rows or len(self.sizes) != terms.clusters:
            raise InvalidInput("a question must be about the rows and clusters of its job")
        return Round(terms, self.labels, self.sizes, self.changed, self.trusted)


@dataclass(frozen=True)
class Seed:
    """Fold the candidates of seed `number` into D², then draw for every point (κ bits each), or `finish`: open the labels.

    Uploaded are the columns of the candidates, distinct rows, each a cluster of one. After a
    new epoch the seeds chosen so far are asked again, one after the other, each as the only candidate and without points.
    """

    number: int
    candidates: tuple[int, ...]
    points: tuple[int, ...] = ()
    finish: bool = False

    @property
    def columns(self) -> tuple[int, ...]:
        return tuple(range(len(self.candidates)))

    def labels(self, rows: int) -> Labels:
        """The assignment whose columns are asked for: the candidates alone, each in a cluster of its own."""
        out = np.full(rows, -1, dtype=np.int32)
        out[list(self.candidates)] = self.columns
        return out

    def digest(self) -> bytes:
        parts = (b"%d" % self.number, numbers(self.candidates), numbers(self.points), b"%d" % self.finish)
        return hashlib.sha256(framed(b"secfc/v1/sealed/question", b"seed", *parts)).digest()

    def shape(self, terms: Terms) -> Shape:
        return _shape(terms.field, terms.rows, dict.fromkeys(self.columns, terms.seed_lanes()))

    def step(self, terms: Terms) -> Step:
        return Step(terms, self.number, len(self.candidates), self.points, self.finish)


@dataclass(frozen=True)
class Inertia:
    """The total inertia of a partition to its own means; of the live columns those in `columns` are asked for."""

    labels: Labels = field(repr=False)
    sizes: Sizes
    columns: tuple[int, ...] = ()

    def digest(self) -> bytes:
        return hashlib.sha256(framed(b"secfc/v1/sealed/question", b"inertia", _common(self))).digest()

    def blur_context(self) -> bytes:
        """What the blur is bound to, besides K: the partition alone, so that every attempt shows the same number."""
        labels = self.labels.astype("<i4").tobytes()
        return hashlib.sha256(framed(b"secfc/v1/sealed/blur", labels, numbers(self.sizes.tolist()))).digest()

    def shape(self, terms: Terms) -> Shape:
        return columns_shape(terms, self.sizes, self.columns)


Asked = Lloyd | Seed | Inertia


@dataclass(frozen=True)
class Found:
    """What the server learns. Of a Lloyd round: labels. Of a seed: which candidate won, the next rows (none: ΣD² = 0, take
    the lowest row not chosen), at the end labels. Of an inertia: its total in quantised units."""

    labels: Labels | None = field(default=None, repr=False)
    winner: int | None = None
    rows: tuple[int, ...] = ()
    inertia: int | None = None


def _common(question: Lloyd | Inertia) -> bytes:
    labels = question.labels.astype("<i4").tobytes()
    return framed(labels, numbers(question.sizes.tolist()), numbers(question.columns))


def columns_shape(terms: Terms, sizes: Sizes, columns: Sequence[int]) -> Shape:
    """Columns of clusters, in the lanes that suffice for every later comparison."""
    if any(sizes[h] < 1 for h in columns):
        raise InvalidInput("the distance to an empty cluster does not exist; do not ask for its column")
    return _shape(terms.field, terms.rows, {h: terms.column_lanes(int(sizes[h])) for h in columns})


def _shape(ring: Field, rows: int, need: Mapping[int, int]) -> Shape:
    order = tuple(sorted(need, key=lambda h: (-need[h], h)))
    widths = tuple(sum(lanes > lane for lanes in need.values()) for lane in range(ring.lanes))
    return Shape(order, Layout(ring, rows, widths))


def places(shape: Shape) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Column and lane of every residue in a row of an upload."""
    widths = shape.layout.widths
    columns = [h for width in widths for h in shape.columns[:width]]
    return np.array(columns, dtype=np.int64), np.repeat(np.arange(len(widths)), widths).astype(np.int64)


def trust(answered: Labels, following: Labels) -> Bools:
    """Which labels may be trusted in the next round: those that the answer found nearest and nothing has moved since."""
    return np.asarray(answered == following)
