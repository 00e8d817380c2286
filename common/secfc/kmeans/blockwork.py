"""What a client computes of a block of its shares: sums by cluster, and coded distances (`distances` says why these)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from secfc.coding import kernels, parallel, prg
from secfc.coding.field import EXACT_TERMS, Layout, Residues, Words, exact_dot

Rows = npt.NDArray[np.int64]
_PAIRS = 1 << 12  # computed by a thread at least


@dataclass(frozen=True, eq=False)
class Moves:
    """How the sums of clusters change when rows, by their numbers among all, leave `source` for `target` (-1: no cluster)."""

    rows: Rows
    source: Rows
    target: Rows
    clusters: int

    def __call__(self, first: int, matrix: Residues) -> Residues:
        """(L, k, s), as exact integers that are not reduced."""
        sums = np.zeros((len(matrix), self.clusters, matrix.shape[2] - 2))
        rows = self.rows - first if first else self.rows
        for lane, shares in enumerate(matrix):
            kernels.move_rows(shares, rows, self.source, self.target, sums[lane])
        return sums


@dataclass(frozen=True, eq=False)
class Answer:
    """What one request asks: the packed coded distances of rows. Per lane, `factors` turn a row of shares into its distances;
    `masks` are signed keys. The same request gives the same words, whatever the blocks are."""

    layout: Layout  # of all rows
    factors: Sequence[Residues] = field(repr=False)
    masks: Sequence[tuple[bytes, int]] = field(repr=False)

    def __call__(self, first: int, matrix: Residues) -> Words:
        """Pre-condition: `first` is a multiple of ROW_GROUP."""
        layout = Layout(self.layout.field, matrix.shape[1], self.layout.widths)
        words = np.empty(layout.words, dtype=np.uint64)
        if not layout.residues:
            return words
        block = prg.block_rows(layout) if self.masks else parallel.block_rows(4 * layout.row_residues)
        long = matrix.shape[2] > EXACT_TERMS
        primes = layout.field.prime_floats.tolist()
        product = _exact_product if long else kernels.product

        def work(begin: int, end: int) -> None:
            flat = np.empty((block, layout.row_residues), dtype=np.uint32)
            columns = np.empty((block, max(factor.shape[1] for factor in self.factors)), dtype=np.uint32)
            scratch = np.empty(flat.size, dtype=np.int32)
            reader = prg.SumReader(self.masks, layout, first + begin, block) if self.masks else None
            for a in range(begin, end, block):
                part = flat[: min(block, end - a)]
                for lane, factor in enumerate(self.factors):
                    share = matrix[lane, a : a + len(part)]
                    p, offset, width = primes[lane], layout.offsets[lane], layout.widths[lane]
                    product(share, factor, p, part, offset, width, columns)
                if reader is not None:
                    kernels.add_masks(reader.next(len(part)), part, layout.prime_floats, scratch)
                kernels.pack(part.reshape(-1), layout.slice(words, a, a + len(part)))

        parallel.for_row_ranges(layout.rows, block, work, blas=long)
        return words


@dataclass(frozen=True, eq=False)
class Pairs:
    """The coded distances of some pairs of a row, by its number among all, and one of the columns: `factors` have a row for
    each column, per lane."""

    rows: npt.NDArray[np.int32] = field(repr=False)  # ascending
    places: npt.NDArray[np.int32] = field(repr=False)
    factors: Sequence[Residues] = field(repr=False)
    primes: tuple[int, ...]

    def __call__(self, first: int, matrix: Residues) -> npt.NDArray[np.uint32]:
        """(pairs, lanes), reduced, neither masked nor packed."""
        rows = self.rows - np.int32(first) if first else self.rows
        out = np.empty((len(rows), len(self.factors)), dtype=np.uint32)
        product = _exact_pairs if matrix.shape[2] > EXACT_TERMS else kernels.product_of_pairs

        def work(begin: int, end: int) -> None:
            for lane, factor in enumerate(self.factors):
                p, part = float(self.primes[lane]), out[begin:end]
                product(matrix[lane], rows, self.places, begin, end, factor, p, part, lane)

        parallel.for_row_ranges(len(rows), _PAIRS, work)
        return out


def _exact_pairs(
    share: Residues,
    rows: npt.NDArray[np.int32],
    places: npt.NDArray[np.int32],
    first: int,
    end: int,
    factor: Residues,
    p: float,
    out: npt.NDArray[np.uint32],
    lane: int,
) -> None:
    """What kernels.product_of_pairs does, for shares longer than float64 adds up exactly."""
    for place in np.unique(places[first:end]):
        here = np.flatnonzero(places[first:end] == place)
        values, residues = np.empty((len(here), 1)), np.empty((len(here), 1), dtype=np.uint32)
        exact_dot(share[rows[first + here]], factor[place, :, None], int(p), values)
        kernels.canonical(values, p, residues, 0)
        out[here, lane] = residues[:, 0]


def _exact_product(
    share: Residues, factor: Residues, p: float, out: npt.NDArray[np.uint32], offset: int, width: int, _scratch: object
) -> None:
    """What kernels.product does, for shares longer than float64 adds up exactly."""
    values = np.empty((len(share), width))
    exact_dot(share, factor[:, :width], int(p), values)
    kernels.canonical(values, p, out, offset)
