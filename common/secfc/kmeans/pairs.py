"""Uploads of some pairs of a row and a column, where a request does not ask for all rows of its columns.

Pairs of columns that need the same number of lanes make a `Strip`: a matrix with one pair per row, in the order of the rows
and for each row of the columns. It has a layout like a whole upload, so masks, packing, checking and adding up are the same;
only where a pair's residues come from and where its distance goes are different. An upload is its strips one after the other,
those of more lanes first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from secfc.coding import kernels, parallel, prg
from secfc.coding.blocks import Blocks
from secfc.coding.field import Field, Layout, Residues, Words
from secfc.kmeans.blockwork import Pairs
from secfc.kmeans.distances import CodedDistances, Labels, Masks, Residue32
from secfc.kmeans.rowsets import Rows, Wanted


@dataclass(frozen=True, eq=False)
class Strip:
    """Pairs that need the same lanes; `places` says which of `columns` each is in."""

    columns: tuple[int, ...]
    layout: Layout
    rows: Rows = field(repr=False)
    places: npt.NDArray[np.int32] = field(repr=False)

    def columns_of(self, lane: int) -> tuple[int, ...]:
        return self.columns if self.layout.widths[lane] else ()

    def answer(self, coded: Blocks, factors: Sequence[Residues], masks: Masks) -> CodedDistances:
        return CodedPairs(coded, self, [np.ascontiguousarray(factor.T) for factor in factors], masks)

    def decode(self, flat: Residues, first: int, digits: Residue32) -> None:
        known, here = self.layout.field, slice(first, first + len(flat))
        columns = np.array(self.columns, dtype=np.int32)[self.places[here]]
        kernels.mixed_radix_pairs(flat, known.prime_floats, known.garner, self.rows[here], columns, digits)


def strips(
    known: Field, sizes: npt.NDArray[np.int64], wanted: Mapping[int, Wanted], labels: Labels, unit: int
) -> list[Strip]:
    """What an upload of these rows is made of. `unit` is that of `Shape.of`."""
    need = {h: known.lanes_for(int(sizes[h]) ** 2 * unit) for h in wanted}
    return [
        _strip(known, lanes, [h for h in sorted(wanted) if need[h] == lanes], wanted, labels)
        for lanes in sorted(set(need.values()), reverse=True)
    ]


def _strip(known: Field, lanes: int, columns: Sequence[int], wanted: Mapping[int, Wanted], labels: Labels) -> Strip:
    asked = np.zeros((len(labels), len(columns)), dtype=np.bool_)
    for place, h in enumerate(columns):
        wanted[h].mark(labels, h, asked[:, place])
    rows, places = (found.astype(np.int32) for found in np.nonzero(asked))
    widths = tuple(int(lane < lanes) for lane in range(known.lanes))
    return Strip(tuple(columns), Layout(known, len(rows), widths), rows, places)


@dataclass(frozen=True, eq=False)
class CodedPairs:
    """The packed coded distances of a strip. Residues of a block's pairs come from where the block is; what is left of them
    after whole words waits for those of the next block."""

    coded: Blocks
    strip: Strip
    factors: Sequence[Residues] = field(repr=False)
    masks: Masks = field(repr=False)

    @property
    def words(self) -> int:
        return self.strip.layout.words

    def pieces(self, first: int = 0) -> Iterator[tuple[int, Words]]:
        lanes, done = self.strip.layout.row_residues, 0
        left = np.empty((0, lanes), dtype=np.uint32)
        for found in self.coded.each(self._of_block):
            left = np.concatenate([left, found]) if len(left) else found
            last = done + len(left) == self.strip.layout.rows
            count = len(left) if last else len(left) - len(left) % parallel.ROW_GROUP
            at, end = done * lanes // 3, -(-(done + count) * lanes // 3)
            if count and end > first:
                words = self._packed(done, left[:count])
                yield max(at, first), words[max(first - at, 0) :]
            done, left = done + count, left[count:]

    def _of_block(self, row: int, end: int) -> Pairs | None:
        a, b = np.searchsorted(self.strip.rows, (row, end))
        if a == b:
            return None
        primes = self.strip.layout.field.primes
        return Pairs(self.strip.rows[a:b], self.strip.places[a:b], self.factors, primes)

    def _packed(self, done: int, flat: Residue32) -> Words:
        """Pairs from `done` on, a multiple of ROW_GROUP, masked and as words."""
        layout = Layout(self.strip.layout.field, len(flat), self.strip.layout.widths)
        words = np.empty(layout.words, dtype=np.uint64)
        block = prg.block_rows(layout)

        def work(begin: int, end: int) -> None:
            scratch = np.empty(block * layout.row_residues, dtype=np.int32)
            reader = prg.SumReader(self.masks, layout, done + begin, block) if self.masks else None
            for a in range(begin, end, block):
                part = flat[a : min(a + block, end)]
                if reader is not None:
                    kernels.add_masks(reader.next(len(part)), part, layout.prime_floats, scratch)
                kernels.pack(part.reshape(-1), layout.slice(words, a, a + len(part)))

        parallel.for_row_ranges(layout.rows, block, work)
        return words
