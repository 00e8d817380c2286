"""Which rows of which columns a request asks for, as bytes and back; nothing stands for all rows of all columns.

One entry per column, in the order of the columns: a byte that says how the rows are named, then

    0   nothing: all rows
    1   one bit for every row, from the lowest
    2   count (4 bytes), gap bits g (1 byte), then so many gaps between rows, g bits each; the first gap is the first row

Bit 2 of that byte (4) says that the rows in this cluster are asked for too; they are not named then. Integers are
little-endian. Whichever of 1 and 2 is shorter is taken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from secfc.errors import Malformed
from secfc.kmeans import bits
from secfc.kmeans.distances import Labels

Rows = npt.NDArray[np.int32]  # ascending
MOST_BYTES = 2 << 20  # of all runs of a request; it has to fit into one message
_ALL, _BITMAP, _GAPS, _OWN = 0, 1, 2, 4
_WHAT = "the rows that are asked for"


@dataclass(frozen=True)
class Wanted:
    """Some rows of a column: those that are named and, if `own`, those in the cluster. `others` None: all rows."""

    others: Rows | None = field(default=None, repr=False)
    own: bool = False

    def count(self, rows: int, size: int) -> int:
        """How many rows that is, of so many, in a cluster of that size."""
        return rows if self.others is None else len(self.others) + self.own * size

    def mark(self, labels: Labels, cluster: int, out: npt.NDArray[np.bool_]) -> None:
        """Set what stands for each of them."""
        if self.own:
            np.equal(labels, cluster, out=out)
        out[slice(None) if self.others is None else self.others] = True

    def rows(self, labels: Labels, cluster: int) -> Rows:
        """All of them, ascending."""
        marked = np.zeros(len(labels), dtype=np.bool_)
        self.mark(labels, cluster, marked)
        return np.flatnonzero(marked).astype(np.int32)


def encode(wanted: Mapping[int, Wanted], rows: int) -> bytes:
    """As bytes, the columns in ascending order; empty if all rows of all columns are asked for."""
    if all(one.others is None for one in wanted.values()):
        return b""
    return b"".join(_encoded(wanted[column], rows) for column in sorted(wanted))


def _encoded(one: Wanted, rows: int) -> bytes:
    if one.others is None:
        return bytes([_ALL])
    own = _OWN * one.own
    gaps = np.diff(one.others, prepend=0)
    size = int(gaps.max(initial=0)).bit_length()
    if 5 + -(-len(gaps) * size // 8) < -(-rows // 8):
        return bytes([own | _GAPS]) + len(gaps).to_bytes(4, "little") + bytes([size]) + bits.pack(gaps, size)
    named = np.zeros(rows, dtype=np.bool_)
    named[one.others] = True
    return bytes([own | _BITMAP]) + np.packbits(named, bitorder="little").tobytes()


def decode(data: bytes, columns: Sequence[int], labels: Labels) -> dict[int, Wanted]:
    """The inverse, for these columns of an assignment. Raises Malformed for anything that `encode` does not make."""
    if not data:
        return {column: Wanted() for column in columns}
    found, at = {}, 0
    for column in columns:
        found[column], at = _decoded(data, at, len(labels))
        others = found[column].others
        if others is None:
            continue
        if found[column].own and (labels[others] == column).any():
            raise Malformed(f"{_WHAT} of cluster {column} name rows of the cluster twice")
        if not len(others) and not (found[column].own and (labels == column).any()):
            raise Malformed(f"{_WHAT} of cluster {column} are none")
    if at != len(data) or all(one.others is None for one in found.values()):
        raise Malformed(f"{_WHAT} have the wrong length")
    return found


def _decoded(data: bytes, at: int, rows: int) -> tuple[Wanted, int]:
    """The entry at a place, and where the next one begins."""
    kind = data[at] if at < len(data) else -1
    if kind == _ALL:
        return Wanted(), at + 1
    own, at = bool(kind & _OWN), at + 1
    if kind & ~_OWN == _BITMAP:
        end = at + -(-rows // 8)
        others = np.flatnonzero(bits.unpack(data[at:end], rows, 1, _WHAT))
    elif kind & ~_OWN == _GAPS and len(data) >= at + 5:
        count, size = int.from_bytes(data[at : at + 4], "little"), data[at + 4]
        if count > rows or size > 31:
            raise Malformed(f"{_WHAT} are more than there are")
        end = at + 5 + -(-count * size // 8)
        gaps = bits.unpack(data[at + 5 : end], count, size, _WHAT)
        others = np.cumsum(gaps, dtype=np.int64)
        if count and ((gaps[1:] == 0).any() or others[-1] >= rows):
            raise Malformed(f"{_WHAT} come twice or do not exist")
    else:
        raise Malformed(f"{_WHAT} are named in a way this version does not know")
    return Wanted(others.astype(np.int32), own), end
