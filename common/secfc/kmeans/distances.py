"""A client's part of a round: coded centres and coded distances (paper, Section 4.1, "Coded center update").

With μ̃_h the sum of cluster h's shares and c = |S_h|, the coded distance of row i is

    ‖μ̃_h − c·x̃_i‖² = ‖μ̃_h‖² − 2c·⟨μ̃_h, x̃_i⟩ + c²·‖x̃_i‖²  =  (x̃_i, ‖x̃_i‖², 1) · (−2c·μ̃_h, c², ‖μ̃_h‖²),

one matrix product for all rows and clusters. Centre sums are kept as exact integers and updated by the rows that moved.
Since c is public, a column is computed and sent only in the lanes that c²·d·(2η)² needs: `Shape`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from secfc.coding import kernels, parallel, prg
from secfc.coding.field import EXACT_TERMS, Field, Layout, Residues, Words, exact_dot
from secfc.coding.sharing import CodedRows
from secfc.errors import InvalidInput

Labels = npt.NDArray[np.int32]
Residue32 = npt.NDArray[np.uint32]
UNASSIGNED = -1


class Pattern(Protocol):
    """Which distances an upload holds, and how they lie: of all rows to some columns (`Shape`), or of some pairs of a row and
    a column (`pairs.Strip`). What the layout calls a row is a row of the upload."""

    @property
    def columns(self) -> tuple[int, ...]: ...

    @property
    def layout(self) -> Layout: ...

    def columns_of(self, lane: int) -> tuple[int, ...]:
        """Those whose factors a lane needs."""

    def arranged(self, factor: Residues) -> Residues:
        """The factors of a lane, a column each, as `products` takes them."""

    def products(
        self, lane: int, share: Residues, factor: Residues, first: int, out: Residue32, scratch: Residue32
    ) -> None:
        """Write a lane of the upload's rows from `first` on, from the shares of all rows in that lane."""

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

    def arranged(self, factor: Residues) -> Residues:
        return factor

    def products(
        self, lane: int, share: Residues, factor: Residues, first: int, out: Residue32, scratch: Residue32
    ) -> None:
        product = _exact_product if factor.shape[0] > EXACT_TERMS else kernels.product
        p, offset, width = float(self.layout.field.primes[lane]), self.layout.offsets[lane], self.layout.widths[lane]
        product(share[first : first + len(out)], factor, p, out, offset, width, scratch)

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

    def __init__(self, coded: CodedRows, clusters: int, frozen: Frozen | None = None) -> None:
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
        rows = np.flatnonzero(labels != self.labels)
        self.move(rows, labels[rows])
        return len(rows)

    def move(self, rows: npt.NDArray[np.int64], labels: Labels) -> None:
        """Put some rows, each named once, into other clusters. Cost: the rows that move, not all rows."""
        clusters = len(self.sizes)
        if len(labels) != len(rows) or (len(labels) and not (labels.min() >= -1 and labels.max() < clusters)):
            raise InvalidInput(f"labels must be cluster numbers from 0 to {clusters - 1}")
        source, target = self.labels[rows].astype(np.int64), labels.astype(np.int64)
        for lane in range(self.coded.field.lanes):
            kernels.move_rows(self.coded.matrix[lane], rows, source, target, self._sums[lane])
        self.sizes += np.bincount(target[target >= 0], minlength=clusters)
        self.sizes -= np.bincount(source[source >= 0], minlength=clusters)
        self.labels[rows] = labels

    def upload(self, shape: Pattern, weights: Residues | None = None, masks: Sequence[tuple[bytes, int]] = ()) -> Words:
        """The packed coded distances of all rows to `shape.columns`, or of those that the shape has.

        `weights` (L,) is this client's interpolation weight a lane, applied before a masked upload; `masks` are the signed
        keys of `masks.signed_keys`.
        """
        layout, matrix = shape.layout, self.coded.matrix
        coefficients = self._coefficients(shape, weights)
        words = np.empty(layout.words, dtype=np.uint64)
        block = prg.block_rows(layout) if masks else parallel.block_rows(4 * layout.row_residues)
        long = self.coded.length + 2 > EXACT_TERMS

        def work(first: int, end: int) -> None:
            flat = np.empty((block, layout.row_residues), dtype=np.uint32)
            columns = np.empty((block, max(factor.shape[1] for factor in coefficients)), dtype=np.uint32)
            scratch = np.empty(flat.size, dtype=np.int32)
            reader = prg.SumReader(masks, layout, first, block) if masks else None
            for a in range(first, end, block):
                part = flat[: min(block, end - a)]
                for lane, factor in enumerate(coefficients):
                    shape.products(lane, matrix[lane], factor, a, part, columns)
                if reader is not None:
                    kernels.add_masks(reader.next(len(part)), part, layout.prime_floats, scratch)
                kernels.pack(part.reshape(-1), layout.slice(words, a, a + len(part)))

        if layout.residues:
            parallel.for_row_ranges(layout.rows, block, work, blas=long)
        return words

    def _coefficients(self, shape: Pattern, weights: Residues | None) -> list[Residues]:
        """Per lane the factors that turn a row of shares into its coded distances, as the shape wants them.

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
            out.append(shape.arranged(factor))
        return out

    def __repr__(self) -> str:
        return f"CodedClusters({len(self.labels)} rows, {len(self.sizes)} clusters)"


def _exact_product(
    share: Residues, factor: Residues, p: float, out: npt.NDArray[np.uint32], offset: int, width: int, _scratch: object
) -> None:
    """What kernels.product does, for shares longer than float64 adds up exactly."""
    values = np.empty((len(share), width))
    exact_dot(share, factor[:, :width], int(p), values)
    kernels.canonical(values, p, out, offset)
