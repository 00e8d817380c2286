"""Starts that need distances: k-means++ and the paper's centre separation, both exact.

k-means++ needs no machinery of its own: a chosen row is a cluster of one, and d′ to a cluster of one is the squared
distance to that row. It is greedy: of several candidates per seed, the one that leaves the least ΣD² is taken. While a
seed is chosen, labels 0 … c−1 are the seeds chosen so far and labels from c on its candidates.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from secfc.coding import kernels
from secfc.coding.field import Field
from secfc.errors import InvalidInput
from secfc.kmeans.coins import Coins
from secfc.kmeans.decoding import Distances
from secfc.kmeans.distances import UNASSIGNED, Labels

Digits = npt.NDArray[np.uint32]  # (lanes, rows): one d′ per row, as `Distances` has it

_BLOCK = 1024
DRAW_BITS = 64  # κ of a draw; fewer where a sealed job's field has no room for them


def draw_point(coins: Coins, label: str, total: int, bits: int = DRAW_BITS) -> int:
    """⌊u·T/2^κ⌋ for κ coins u: the draw is the first row whose running sum of D² exceeds it (docs/sealed.md, Section 6).

    Not a draw below T by rejection: with u known beforehand, 2^κ·P_i > u·T can be compared without anybody knowing T. A row's
    chance is off by less than 2^−κ.
    """
    return coins_of(coins, label, bits) * total >> bits


def coins_of(coins: Coins, label: str, bits: int) -> int:
    """u, the first κ of a draw's 64 coins: with fewer, a draw takes the same row but with a chance of rows/2^κ."""
    return coins.below(label, 1 << DRAW_BITS) >> (DRAW_BITS - bits)


def points_of(coins: Coins, labels: Sequence[str], bits: int) -> tuple[int, ...]:
    """u of every label."""
    return tuple(coins_of(coins, label, bits) for label in labels)


def draw(field: Field, squares: Digits, coins: Coins, labels: Sequence[str]) -> list[int]:
    """A row for every label, with probability D²/ΣD² (`draw_point`); none if ΣD² = 0."""
    digits = squares.astype(np.int64)
    blocks = _totals(field, np.add.reduceat(digits, np.arange(0, digits.shape[1], _BLOCK), axis=1))
    total, rows = sum(blocks), []
    for label in labels if total else ():
        block, point = _locate(blocks, draw_point(coins, label, total))
        first = block * _BLOCK
        offset, _ = _locate(_totals(field, digits[:, first : first + _BLOCK]), point)
        rows.append(first + offset)
    return rows


def least(field: Field, squares: Digits | None, columns: Sequence[Digits]) -> tuple[int, Digits]:
    """Which candidate's column leaves the least ΣD² (ties: the first), and the D² it leaves. `squares`: D² of the seeds
    chosen so far, if there are any."""
    best: tuple[int, int, Digits] | None = None
    for place, column in enumerate(columns):
        left = column if squares is None else _minimum(squares, column)
        [total] = _totals(field, left.sum(axis=1, dtype=np.int64, keepdims=True))
        if best is None or total < best[0]:
            best = total, place, left
    if best is None:
        raise InvalidInput("a seed is chosen from one candidate at least")
    return best[1:]


def _minimum(one: Digits, other: Digits) -> Digits:
    less = np.zeros(one.shape[1], dtype=np.bool_)
    for a, b in zip(one, other, strict=True):  # from the lowest digit up
        less = (b < a) | ((b == a) & less)
    return np.where(less, other, one)


def chosen_rows(labels: Labels) -> list[int]:
    """The single rows of an assignment by their labels: seeds, then candidates."""
    rows = np.flatnonzero(labels >= 0)
    in_order: list[int] = rows[np.argsort(labels[rows])].tolist()
    return in_order


def choose(labels: Labels, number: int, winner: int, drawn: Sequence[int]) -> Labels:
    """Candidate `winner` becomes seed `number`, and the drawn rows, each once, the next one's candidates; if nothing could be
    drawn (ΣD² = 0), the lowest row not chosen."""
    rows = chosen_rows(labels)
    seeds = [*rows[:number], rows[number + winner]]
    following = list(dict.fromkeys(drawn)) or [next(row for row in range(len(labels)) if row not in seeds)]
    out = np.full_like(labels, UNASSIGNED)
    out[seeds + following] = np.arange(len(seeds) + len(following))
    return out


def _locate(weights: list[int], point: int) -> tuple[int, int]:
    """The weight whose share of the line from 0 to their sum holds `point`, and how far into it."""
    index = 0
    while point >= weights[index]:
        point -= weights[index]
        index += 1
    return index, point


def _totals(field: Field, digits: npt.NDArray[np.int64]) -> list[int]:
    values = [0] * digits.shape[1]
    for lane in reversed(range(field.lanes)):
        values = [v * field.primes[lane] + d for v, d in zip(values, digits[lane].tolist(), strict=True)]
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
