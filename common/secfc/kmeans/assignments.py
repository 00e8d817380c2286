"""Assignments as bytes: compact, and after the first only what changed.

    full    0x00, then label+1 of every row, b bits each
    change  0x01, count (4 bytes), gap bits g (1 byte), then `count` gaps between changed rows, g bits each, then their new
            label+1, b bits each; the first gap is the first row itself

b is the number of bits of k, all integers little-endian, bit streams filled from the lowest bit. Label 0 stands for -1.

With several runs, the assignments of some of them follow each other, each after its run (2 bytes) and its length (4 bytes).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from secfc.errors import Malformed
from secfc.kmeans.bits import pack, unpack
from secfc.kmeans.distances import Labels

Assignments = dict[int, Labels]  # by run
_FULL, _CHANGE = 0, 1
_HEADER = 6
_RUN = struct.Struct("<HI")


def encode(labels: Labels, clusters: int, base: Labels | None = None) -> bytes:
    """The assignment, or what makes it from `base`, whichever is shorter (a change only if a base is given)."""
    bits = clusters.bit_length()
    if base is not None:
        rows = np.flatnonzero(labels != base)
        gaps = np.diff(rows, prepend=0)
        gap_bits = int(gaps.max(initial=0)).bit_length()
        if _HEADER + len(rows) * (gap_bits + bits) // 8 < len(labels) * bits // 8:
            head = bytes([_CHANGE]) + len(rows).to_bytes(4, "little") + bytes([gap_bits])
            return head + pack(gaps, gap_bits) + pack(labels[rows] + 1, bits)
    return bytes([_FULL]) + pack(labels + 1, bits)


def is_change(data: bytes) -> bool:
    """Whether these bytes need a base."""
    return data[:1] == bytes([_CHANGE])


def largest(rows: int, clusters: int) -> int:
    """Bytes of the longest honest encoding."""
    return _HEADER + -(-rows * clusters.bit_length() // 8) + 2


def decode(data: bytes, rows: int, clusters: int, base: Labels | None) -> Labels:
    """The labels. Raises Malformed for anything `encode` does not make."""
    bits = clusters.bit_length()
    if data[:1] == bytes([_FULL]):
        return _labels(unpack(data[1:], rows, bits), clusters)
    if not is_change(data) or len(data) < _HEADER or base is None:
        raise Malformed("an assignment is neither whole nor a change of one we hold")
    count, gap_bits = int.from_bytes(data[1:5], "little"), data[5]
    if count > rows or gap_bits > 32:
        raise Malformed("an assignment changes more rows than there are")
    middle = _HEADER + -(-count * gap_bits // 8)
    gaps = unpack(data[_HEADER:middle], count, gap_bits)
    at = np.cumsum(gaps, dtype=np.int64)
    if count and ((gaps[1:] == 0).any() or at[-1] >= rows):
        raise Malformed("an assignment changes a row twice or one that does not exist")
    labels = base.copy()
    labels[at] = _labels(unpack(data[middle:], count, bits), clusters)
    return labels


def encode_all(labels: Assignments, slots: Mapping[int, int], base: Assignments) -> tuple[bytes, bool]:
    """The assignments of some runs, and whether a base is needed to read them. `slots`: how many labels an assignment of each
    run of the job may have."""
    parts = {run: encode(one, slots[run], base.get(run)) for run, one in labels.items()}
    changes = any(map(is_change, parts.values()))
    if len(slots) == 1:
        return parts[0], changes
    return b"".join(_RUN.pack(run, len(data)) + data for run, data in parts.items()), changes


def largest_of_all(rows: int, slots: Mapping[int, int]) -> int:
    """Bytes of the longest honest encoding of all runs."""
    head = _RUN.size if len(slots) > 1 else 0
    return sum(head + largest(rows, most) for most in slots.values())


def decode_all(data: bytes, rows: int, slots: Mapping[int, int], base: Assignments) -> Assignments:
    """The inverse of `encode_all`. Raises Malformed for anything that it does not make."""
    if len(slots) == 1:
        return {0: decode(data, rows, slots[0], base.get(0))}
    out: Assignments = {}
    while data:
        run, size = _RUN.unpack_from(data) if len(data) >= _RUN.size else (-1, 0)
        if run not in slots or run <= max(out, default=-1) or len(data) < _RUN.size + size:
            raise Malformed("assignments of several runs must be of runs of the job, whole, and in order")
        out[run] = decode(data[_RUN.size : _RUN.size + size], rows, slots[run], base.get(run))
        data = data[_RUN.size + size :]
    return out


def _labels(values: npt.NDArray[np.uint32], clusters: int) -> Labels:
    if len(values) and values.max() > clusters:
        raise Malformed(f"an assignment names a cluster beyond {clusters - 1}")
    return values.astype(np.int32) - np.int32(1)
