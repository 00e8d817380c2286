"""A step of k-means++ as a script of both ends (docs/sealed.md, Section 6): D² and the nearest seed's index stay hidden.

The candidates of a seed were uploaded as columns of single rows. Each makes a tentative D², the least total wins (ties: the
first), then the next candidates are searched in the winner's D². The first seed has one candidate and nothing to compare.

A member holds D² of no candidate: it adds their totals up part by part, and makes the winner's again from streams.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import isqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from secfc.coding.field import Field
from secfc.errors import JobFailed, OutOfTurn
from secfc.privacy.sealed import rounds, steps
from secfc.privacy.sealed.messages import Talk, octets
from secfc.privacy.sealed.nearest import _single
from secfc.privacy.sealed.sides import Side, Values
from secfc.privacy.sealed.steps import Counts, digits_of
from secfc.privacy.sealed.streams import Bytes, Residues32
from secfc.privacy.sealed.terms import Terms

Rows = Callable[
    [int, int], Values
]  # one end's half of the candidates' columns (rows, candidates, L), from row … to row …


@dataclass(frozen=True)
class Split:
    """One end's half of D² (m, lanes) and of the nearest seed's index (m, 1)."""

    squares: Residues32 = field(repr=False)
    index: Residues32 = field(repr=False)


@dataclass(frozen=True)
class Step:
    """What is public: the seed's number, how many candidates it has, and the points of the next draws (κ bits each). Without
    points nothing is drawn; `finish` opens the indices."""

    terms: Terms
    number: int
    candidates: int = 1
    points: tuple[int, ...] = ()
    finish: bool = False


@dataclass(frozen=True)
class Outcome:
    """The new state, and for the server: which candidate won, the next rows (none: ΣD² = 0), and the labels at the end."""

    state: Split
    winner: int = 0
    rows: tuple[int, ...] = ()
    labels: npt.NDArray[np.int32] | None = field(default=None, repr=False)


def state_for(number: int, kept: Split | None) -> Split | None:
    """The state that seed `number` goes on from: none for the first."""
    if number and kept is None:
        raise OutOfTurn("the seeds chosen so far must be asked again in this epoch before the next one")
    return kept if number else None


def part_rows(candidates: int) -> int:
    """Rows of a part, which is compared at once; a pad's stream can be read from every sixth row on."""
    return max(rounds.MOST_COMPARISONS // candidates // rounds.ROW_GROUP, 1) * rounds.ROW_GROUP


def _parts(rows: int, candidates: int) -> Iterator[slice]:
    width = part_rows(candidates)
    return (slice(first, min(first + width, rows)) for first in range(0, rows, width))


def seed(side: Side, asked: Step, own: Rows, state: Split | None) -> Talk[Outcome]:
    """Fold the candidates' columns into D²; draw, or open the labels."""
    lanes = side.terms.leading(side.terms.seed_lanes())
    if state is None:
        winner, state = 0, _first(side.terms.rows, lanes, own)
    else:
        winner, state = yield from _fold(side, lanes, asked, own, state)
    rows = yield from _draws(side, lanes, asked.points, state.squares)
    labels = None
    if asked.finish:
        opened = yield from side.open(side.terms.leading(1), state.index)
        labels = None if opened is None else opened[:, 0].astype(np.int32)
    return Outcome(state, winner, rows, labels)


def _first(rows: int, lanes: Field, own: Rows) -> Split:
    squares = np.empty((rows, lanes.lanes), dtype=np.uint32)
    for part in _parts(rows, 1):
        squares[part] = own(part.start, part.stop)[:, 0, : lanes.lanes]
    return Split(squares, np.zeros((rows, 1), np.uint32))


@dataclass(frozen=True)
class _Compared:
    """What one end keeps of a part (n, candidates): its half of [d_new < D²], eight a byte; and how to get that of
    b·(d_new − D²)."""

    rows: slice
    bits: Bytes = field(repr=False)
    chosen: Callable[[], Residues32] = field(repr=False)


def _fold(side: Side, lanes: Field, asked: Step, own: Rows, state: Split) -> Talk[tuple[int, Split]]:
    totals, compared = yield from _closer(side, lanes, asked.candidates, own, state.squares)
    winner = yield from _least(side, totals)
    bits, squares = np.empty(len(state.squares), dtype=np.uint8), np.empty_like(state.squares)
    for part in compared:
        before = state.squares[part.rows]
        count = len(before) * asked.candidates
        bits[part.rows] = np.unpackbits(part.bits, count=count)[winner :: asked.candidates]
        squares[part.rows] = steps.plus(lanes, before, part.chosen()[winner :: asked.candidates])
    index = yield from _renumbered(side, asked.number, bits, state.index)
    return winner, Split(squares, index)


def _closer(
    side: Side, lanes: Field, candidates: int, own: Rows, squares: Residues32
) -> Talk[tuple[Residues32, list[_Compared]]]:
    """Totals of D² + b·(d_new − D²) (candidates, lanes), b = [d_new < D²] of every row and candidate; and its parts."""
    short = side.terms.leading(side.terms.field.lanes_for(2 * side.terms.unit))
    primes = np.array(lanes.primes, dtype=np.uint64)
    totals, out = np.zeros((candidates, lanes.lanes), dtype=np.uint64), []
    for part in _parts(len(squares), candidates):
        before = np.repeat(squares[part], candidates, axis=0)
        columns = own(part.start, part.stop)[:, :, : lanes.lanes]
        difference = steps.minus(lanes, np.ascontiguousarray(columns).reshape(-1, lanes.lanes), before)
        del columns
        mine = yield from side.compare([digits_of(short, difference[:, : short.lanes])])
        chosen = yield from side.select(lanes, mine, difference)
        after = steps.plus(lanes, before, chosen).reshape(-1, candidates, lanes.lanes)
        totals = (totals + after.sum(axis=0, dtype=np.uint64)) % primes
        out.append(_Compared(part, np.packbits(mine), side.again(lanes, chosen)))
    return totals.astype(np.uint32), out


def _renumbered(side: Side, number: int, bits: Bytes, index: Residues32) -> Talk[Residues32]:
    """index + b·(number − index); the constant is added to Y."""
    one = side.terms.leading(1)
    out = []
    for first in range(0, len(index), rounds.MOST_COMPARISONS):
        part = index[first : first + rounds.MOST_COMPARISONS]
        constant = np.full_like(part, 0 if side.serves else number % one.primes[0])
        chosen = yield from side.select(one, bits[first : first + len(part)], steps.minus(one, constant, part))
        out.append(steps.plus(one, part, chosen))
    return np.concatenate(out)


def _least(side: Side, totals: Residues32) -> Talk[int]:
    """Which candidate's total is the least, told to everybody; ties to the first."""
    if len(totals) == 1:
        return 0
    wide = side.terms.leading(side.terms.field.lanes_for(2 * side.terms.rows * side.terms.unit))
    totals = totals[:, : wide.lanes]
    pairs = list(combinations(range(len(totals)), 2))
    values = np.stack([steps.minus(wide, totals[b], totals[a]) for a, b in pairs])
    bits = yield from side.compare([digits_of(wide, values)])
    a, b = (np.ascontiguousarray(part) for part in np.array(pairs, dtype=np.int32).T)
    zeros = yield from side.zero(bits, Counts(a, b, len(totals)))
    told = None if zeros is None else _single(zeros[None]).astype(np.uint8)
    return int((yield from side.tell(told, 1, len(totals)))[0])


def _draws(side: Side, lanes: Field, points: Sequence[int], squares: Residues32) -> Talk[tuple[int, ...]]:
    """For every point u the least row i with 2^κ·P_i > u·T, by blocks of ⌊√m⌋ rows, then inside the blocks; none if T = 0."""
    if not points:
        return ()
    width = max(isqrt(len(squares)), 1)
    sums = np.add.reduceat(squares, np.arange(0, len(squares), width), axis=0, dtype=np.uint64)
    ends = _running(lanes, sums, np.zeros(lanes.lanes, dtype=np.uint32))
    blocks = yield from _first_beyond(side, lanes, points, ends[-1:], [ends] * len(points))
    if all(block == len(ends) for block in blocks):
        return ()
    before = np.concatenate([np.zeros_like(ends[:1]), ends])
    parts = [_running(lanes, squares[block * width : (block + 1) * width], before[block]) for block in blocks]
    inside = yield from _first_beyond(side, lanes, points, ends[-1:], parts)
    if any(found >= len(part) for found, part in zip(inside, parts, strict=True)):
        raise JobFailed("a draw of k-means++ finds no row in its block, so a member computes wrongly; start a new job")
    return tuple(block * width + found for block, found in zip(blocks, inside, strict=True))


def _running(lanes: Field, values: npt.NDArray[Any], before: Residues32) -> Residues32:
    """Running sums, on top of what came before."""
    primes = np.array(lanes.primes, dtype=np.uint64)
    return ((np.cumsum(values, axis=0, dtype=np.uint64) + before) % primes).astype(np.uint32)


def _first_beyond(
    side: Side, lanes: Field, points: Sequence[int], total: Residues32, sums: Sequence[Residues32]
) -> Talk[list[int]]:
    """For every point the place of the first of its running sums with E = u·T − 2^κ·P_i < 0, told to everybody; their number
    if there is none."""
    scaled = [steps.times(lanes, 1 << side.terms.draw_bits, part) for part in sums]
    values = [steps.minus(lanes, steps.times(lanes, u, total), part) for u, part in zip(points, scaled, strict=True)]
    bits = yield from side.compare([digits_of(lanes, np.concatenate(values))])
    beyond = yield from side.reveal(bits)
    told = None if beyond is None else octets(np.array(_places(beyond, sums), dtype="<u4"))
    found: list[int] = (yield from side.tell(told, 4 * len(points))).view("<u4").tolist()
    if any(place > len(part) for place, part in zip(found, sums, strict=True)):
        raise JobFailed("the server names a row that was not compared")
    return found


def _places(beyond: npt.NDArray[np.bool_], sums: Sequence[Residues32]) -> list[int]:
    """How many running sums of each part are not beyond its point."""
    parts = np.split(beyond, np.cumsum([len(part) for part in sums])[:-1])
    if any((np.diff(part.astype(np.int8)) < 0).any() for part in parts):
        raise JobFailed("the sums of k-means++ fall, so a member computes wrongly; start a new job")
    return [len(part) - int(part.sum()) for part in parts]
