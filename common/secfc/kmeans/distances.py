"""A client's part of a round: coded centres and coded distances (paper, Section 4.1, "Coded center update").

With μ̃_h the sum of cluster h's shares and c = |S_h|, the coded distance of row i is

    ‖μ̃_h − c·x̃_i‖² = ‖μ̃_h‖² − 2c·⟨μ̃_h, x̃_i⟩ + c²·‖x̃_i‖²  =  (x̃_i, ‖x̃_i‖², 1) · (−2c·μ̃_h, c², ‖μ̃_h‖²),

one matrix product for all rows and clusters. Centre sums are kept as exact integers and updated by the rows that moved.
Since c is public, a column is computed and sent only in the lanes that c²·d·(2η)² needs: `Shape`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from secfc.coding import kernels
from secfc.coding.blocks import Blocks
from secfc.coding.field import Field, Layout, Residues, Words
from secfc.errors import InvalidInput
from secfc.kmeans.blockwork import Answer, Moves

Labels = npt.NDArray[np.int32]
Residue32 = npt.NDArray[np.uint32]
Masks = Sequence[tuple[bytes, int]]  # signed keys
UNASSIGNED = -1
_STEP = 1 << 20  # rows of an assignment that are looked at together


class Pattern(Protocol):
    """Which distances an upload holds, and how they lie: of all rows to some columns (`Shape`), or of some pairs of a row and
    a column (`pairs.Strip`). What the layout calls a row is a row of the upload."""

    @property
    def columns(self) -> tuple[int, ...]: ...

    @property
    def layout(self) -> Layout: ...

    def columns_of(self, lane: int) -> tuple[int, ...]:
        """Those whose factors a lane needs."""

    def answer(self, coded: Blocks, factors: Sequence[Residues], masks: Masks) -> CodedDistances:
        """What is uploaded, from shares and, per lane, factors that turn a row of shares into its distances."""

    def decode(self, flat: Residues, first: int, digits: Residue32) -> None:
        """Write the digits of the upload's rows from `first` on, from sums of their residues."""


@dataclass(frozen=True)
class Shape:
    """Which columns an upload holds, and how they lie: clusters that need more lanes first, so lane a is a prefix."""

    columns: tuple[int, ...]
    layout: Layout

    @classmethod
    def of(cls, field: Field, rows: int, sizes: npt.NDArray[np.int64], columns: Sequence[int], unit: int) -> Shape:
        """`unit` is d·(2η)², the largest d′ to a single row; a column of size c reaches c²·unit."""
        if len(set(columns)) != len(columns) or not all(0 <= h < len(sizes) for h in columns):
            raise InvalidInput("columns must be distinct clusters")
        if any(sizes[h] < 1 for h in columns):
            raise InvalidInput("the distance to an empty cluster does not exist; do not ask for its column")
        need = {h: field.lanes_for(int(sizes[h]) ** 2 * unit) for h in columns}
        order = tuple(sorted(columns, key=lambda h: (-need[h], h)))
        widths = tuple(sum(need[h] > lane for h in columns) for lane in range(field.lanes))
        return cls(order, Layout(field, rows, widths))

    def columns_of(self, lane: int) -> tuple[int, ...]:
        return self.columns[: self.layout.widths[lane]]

    def answer(self, coded: Blocks, factors: Sequence[Residues], masks: Masks) -> CodedDistances:
        return CodedColumns(coded, Answer(self.layout, factors, tuple(masks)))

    def decode(self, flat: Residues, first: int, digits: Residue32) -> None:
        widths, columns = np.array(self.layout.widths, dtype=np.int64), np.array(self.columns, dtype=np.int64)
        known = self.layout.field
        kernels.mixed_radix(flat, widths, known.prime_floats, known.garner, columns, digits, first)


@dataclass(frozen=True, eq=False)
class Frozen:
    """What a client holds of the clusters of an earlier job: its share of each cluster's sum (L, k, s), and their sizes."""

    sums: Residues
    sizes: npt.NDArray[np.int64]

    def __repr__(self) -> str:
        return f"Frozen({len(self.sizes)} clusters)"


class CodedClusters:
    """One client's view of the assignment: labels, sizes and coded centre sums."""

    def __init__(self, coded: Blocks, clusters: int, frozen: Frozen | None = None) -> None:
        """`frozen`: sums and sizes of clusters of other rows, to begin with."""
        self.coded = coded
        self.labels: Labels = np.full(coded.rows, UNASSIGNED, dtype=np.int32)
        self.sizes = np.zeros(clusters, dtype=np.int64)
        self._sums = np.zeros((coded.field.lanes, clusters, coded.length))
        if frozen is not None:
            if frozen.sums.shape != self._sums.shape or frozen.sizes.shape != self.sizes.shape:
                raise InvalidInput("frozen clusters must have the lanes, the clusters and the features of the job")
            self._sums += frozen.sums
            self.sizes += frozen.sizes

    @property
    def sums(self) -> Residues:
        """(L, k, s): the coded centre sums, as exact integers that are not reduced."""
        return self._sums

    def assign(self, labels: Labels) -> int:
        """Take over a whole assignment (-1: in no cluster); returns how many rows moved."""
        if labels.shape != self.labels.shape:
            raise InvalidInput(f"an assignment of {len(self.labels)} rows is needed, not {labels.shape}")
        moved = 0
        for a in range(0, len(labels), _STEP):
            rows = a + np.flatnonzero(labels[a : a + _STEP] != self.labels[a : a + _STEP])
            self.move(rows, labels[rows])
            moved += len(rows)
        return moved

    def move(self, rows: npt.NDArray[np.int64], labels: Labels) -> None:
        """Put some rows, each named once and in order, into other clusters. Cost: the rows that move, not all rows."""
        clusters = len(self.sizes)
        if len(labels) != len(rows) or (len(labels) and not (labels.min() >= -1 and labels.max() < clusters)):
            raise InvalidInput(f"labels must be cluster numbers from 0 to {clusters - 1}")
        source, target = self.labels[rows].astype(np.int64), labels.astype(np.int64)
        for sums in self.coded.each(lambda first, end: _moves(rows, source, target, clusters, first, end)):
            self._sums += sums
        self.sizes += np.bincount(target[target >= 0], minlength=clusters)
        self.sizes -= np.bincount(source[source >= 0], minlength=clusters)
        self.labels[rows] = labels

    def upload(self, shape: Pattern, weights: Residues | None = None, masks: Masks = ()) -> Words:
        """The packed coded distances of all rows to `shape.columns`, or of those that the shape has.

        `weights` (L,) is this client's interpolation weight a lane, applied before a masked upload; `masks` are the signed
        keys of `masks.signed_keys`.
        """
        parts = list(self.answer(shape, weights, masks).pieces())
        return parts[0][1] if len(parts) == 1 else np.concatenate([words for _, words in parts])

    def answer(self, shape: Pattern, weights: Residues | None = None, masks: Masks = ()) -> CodedDistances:
        """The same, made block by block when it is read; later moves do not change it."""
        return shape.answer(self.coded, self._coefficients(shape, weights), masks)

    def _coefficients(self, shape: Pattern, weights: Residues | None) -> list[Residues]:
        """Per lane the matrix (s+2, columns) that turns a row of shares into its coded distances.

        Lanes without columns are left out; columns are filled up with zeros to a multiple of four.
        """
        out = []
        for lane in range(shape.layout.field.lanes):
            columns = np.array(shape.columns_of(lane), dtype=np.int64)
            if not len(columns):
                break
            weight = 1 if weights is None else int(weights[lane])
            factor = np.empty((self.coded.length + 2, -(-len(columns) // 4) * 4))
            p = self.coded.field.primes[lane]
            kernels.coefficients(self._sums[lane], self.sizes, columns, p, weight, factor)
            out.append(factor)
        return out

    def __repr__(self) -> str:
        return f"CodedClusters({len(self.labels)} rows, {len(self.sizes)} clusters)"


class CodedDistances(Protocol):
    """Packed coded distances, as one request asks for them."""

    @property
    def words(self) -> int:
        """How many words there are in all."""

    def pieces(self, first: int = 0) -> Iterator[tuple[int, Words]]:
        """The words from `first` on, with the place of each piece (heavy, block by block)."""


@dataclass(frozen=True, eq=False)
class CodedColumns:
    """Those of all rows to some columns."""

    coded: Blocks
    operation: Answer

    @property
    def words(self) -> int:
        return self.operation.layout.words

    def pieces(self, first: int = 0) -> Iterator[tuple[int, Words]]:
        layout, places = self.operation.layout, deque[int]()

        def ask(row: int, end: int) -> Answer | None:
            at = row * layout.row_residues // 3
            if first and end * layout.row_residues <= 3 * first:
                return None
            places.append(at)
            return self.operation

        for words in self.coded.each(ask):
            at = places.popleft()
            yield max(at, first), words[max(first - at, 0) :]


def _moves(
    rows: npt.NDArray[np.int64],
    source: npt.NDArray[np.int64],
    target: npt.NDArray[np.int64],
    clusters: int,
    first: int,
    end: int,
) -> Moves | None:
    """Those moves that are of a block's rows."""
    a, b = np.searchsorted(rows, (first, end))
    return Moves(rows[a:b], source[a:b], target[a:b], clusters) if a < b else None
