"""Starts that need distances: k-means++ draws and the paper's centre separation, both exact.

k-means++ needs no machinery of its own: a chosen row is a cluster of one, and d′ to a cluster of one is the squared
distance to that row.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from secfc.coding import kernels
from secfc.kmeans.coins import Coins
from secfc.kmeans.decoding import Distances
from secfc.kmeans.distances import UNASSIGNED, Labels

_BLOCK = 1024
DRAW_BITS = 64  # κ of a draw; fewer where a sealed job's field has no room for them


def draw_point(coins: Coins, label: str, total: int, bits: int = DRAW_BITS) -> int:
    """⌊u·T/2^κ⌋ for κ coins u: the draw is the first row whose running sum of D² exceeds it (docs/sealed.md, Section 6).

    Not a draw below T by rejection: with u known beforehand, 2^κ·P_i > u·T can be compared without anybody knowing T. A row's
    chance is off by less than 2^−κ.
    """
    return coins.below(label, 1 << bits) * total >> bits


def draw(
    distances: Distances,
    closest: Labels,
    chosen: npt.NDArray[np.bool_],
    coins: Coins,
    label: str,
    bits: int = DRAW_BITS,
) -> int:
    """The next row: with probability D²/ΣD² (`draw_point`); if ΣD² = 0, the lowest row not chosen yet."""
    rows = np.arange(len(closest))
    digits = distances.digits[:, rows, closest].astype(np.int64)
    blocks = _totals(distances, np.add.reduceat(digits, np.arange(0, len(closest), _BLOCK), axis=1))
    total = sum(blocks)
    if total == 0:
        return int(np.flatnonzero(~chosen)[0])
    point = draw_point(coins, label, total, bits)
    block, point = _locate(blocks, point)
    first = block * _BLOCK
    offset, _ = _locate(_totals(distances, digits[:, first : first + _BLOCK]), point)
    return first + offset


def _locate(weights: list[int], point: int) -> tuple[int, int]:
    """The weight whose share of the line from 0 to their sum holds `point`, and how far into it."""
    index = 0
    while point >= weights[index]:
        point -= weights[index]
        index += 1
    return index, point


def _totals(distances: Distances, digits: npt.NDArray[np.int64]) -> list[int]:
    values = [0] * digits.shape[1]
    for lane in reversed(range(distances.field.lanes)):
        values = [v * distances.field.primes[lane] + d for v, d in zip(values, digits[lane].tolist(), strict=True)]
    return values


def separate(distances: Distances, sizes: npt.NDArray[np.int64], closest: Labels, labels: Labels) -> Labels:
    """Centre separation: S′_h = {i : 9·d(i, h) ≤ d(i, s) for all s ≠ h} with squared d; other rows are in no cluster.

    Only a row's nearest cluster (ties to the lowest) can fit. An empty S′_h keeps its S_h whole; rows it keeps leave
    the S′ they had fitted, and if one of those is empty then, it keeps its S as well.
    """
    fits = np.empty(len(closest), dtype=np.bool_)
    kernels.separated(distances.digits, distances.field.prime_floats, sizes, distances.limbs(sizes), closest, fits)
    return fold_separated(np.where(fits, closest, UNASSIGNED).astype(np.int32), sizes, labels)


def fold_separated(fitting: Labels, sizes: npt.NDArray[np.int64], labels: Labels) -> Labels:
    """Which S′ rows end up in, from those they fit into (-1: none): an empty S′_h keeps its S_h whole."""
    out = fitting.copy()
    kept: set[int] = set()
    while True:
        counts = np.bincount(out[out >= 0], minlength=len(sizes))
        empty = {int(h) for h in np.flatnonzero((counts == 0) & (sizes > 0))} - kept
        if not empty:
            return out
        kept |= empty
        for h in empty:
            out[labels == h] = h
