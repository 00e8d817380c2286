"""Uploads of some pairs of a row and a column, where a request does not ask for all rows of its columns.

Pairs of columns that need the same number of lanes make a `Strip`: a matrix with one pair per row, column after column and
in a column in the order of the rows. It has a layout like a whole upload, so masks, packing, checking and adding up are the
same; only where a pair's residues come from and where its distance goes are different. An upload is its strips one after the
other, those of more lanes first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from secfc.coding import kernels
from secfc.coding.field import EXACT_TERMS, Field, Layout, Residues, exact_dot
from secfc.kmeans.distances import Labels, Residue32
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

    def arranged(self, factor: Residues) -> Residues:
        return np.ascontiguousarray(factor.T)

    def products(
        self, lane: int, share: Residues, factor: Residues, first: int, out: Residue32, scratch: Residue32
    ) -> None:
        end, p = first + len(out), self.layout.field.primes[lane]
        if factor.shape[1] <= EXACT_TERMS:
            kernels.product_of_pairs(share, self.rows, self.places, first, end, factor, float(p), out, lane)
            return
        rows, places = self.rows[first:end], self.places[first:end]
        for place in np.unique(places):
            here = np.flatnonzero(places == place)
            values = np.empty((len(here), 1))
            exact_dot(share[rows[here]], factor[place, :, None], p, values)
            residues = np.empty(values.shape, dtype=np.uint32)
            kernels.canonical(values, float(p), residues, 0)
            out[here, lane] = residues[:, 0]

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
    rows = [wanted[h].rows(labels, h) for h in columns]
    places = np.repeat(np.arange(len(columns), dtype=np.int32), [len(part) for part in rows])
    widths = tuple(int(lane < lanes) for lane in range(known.lanes))
    return Strip(tuple(columns), Layout(known, len(places), widths), np.concatenate(rows), places)
