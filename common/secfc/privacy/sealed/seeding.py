"""A step of k-means++ as a script of both ends (docs/sealed.md, Section 6): D² and the nearest seed's index stay hidden.

The candidates of a seed were uploaded as columns of single rows. Each makes a tentative D², the least total wins (ties: the
first), then the next candidates are searched in the winner's D². The first seed has one candidate and nothing to compare.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import isqrt

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


@dataclass(frozen=True)
class Split:
    """One end's half of D² (m, lanes) and of the nearest seed's index (m, 1)."""

    squares: Residues32 = field(repr=False)
    index: Residues32 = field(repr=False)


@dataclass(frozen=True)
class Step:
    """What is public: the seed's number, and the points of the next draws (κ bits each). Without points nothing is drawn;
    `finish` opens the indices."""

    terms: Terms
    number: int
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


def seed(side: Side, asked: Step, own: Values, state: Split | None) -> Talk[Outcome]:
    """Fold the candidates' columns own (m, columns, lanes) into D²; draw, or open the labels."""
    lanes = side.terms.leading(side.terms.seed_lanes())
    if state is None:
        winner, state = 0, Split(np.ascontiguousarray(own[:, 0, : lanes.lanes]), np.zeros((len(own), 1), np.uint32))
    else:
        winner, state = yield from _fold(side, lanes, asked, own, state)
    rows = yield from _draws(side, lanes, asked.points, state.squares)
    labels = None
    if asked.finish:
        opened = yield from side.open(side.terms.leading(1), state.index)
        labels = None if opened is None else opened[:, 0].astype(np.int32)
    return Outcome(state, winner, rows, labels)


def _fold(side: Side, lanes: Field, asked: Step, own: Values, state: Split) -> Talk[tuple[int, Split]]:
    bits, tentative = yield from _closer(side, lanes, own[:, :, : lanes.lanes], state.squares)
    winner = yield from _least(side, lanes, tentative)
    index = yield from _renumbered(side, asked.number, np.ascontiguousarray(bits[:, winner]), state.index)
    return winner, Split(np.ascontiguousarray(tentative[:, winner]), index)


def _closer(side: Side, lanes: Field, columns: Values, squares: Residues32) -> Talk[tuple[Bytes, Residues32]]:
    """[d_new < D²] (m, candidates) of every row and candidate, and D² + b·(d_new − D²) (m, candidates, lanes)."""
    short = side.terms.leading(side.terms.field.lanes_for(2 * side.terms.unit))
    shape = columns.shape
    width = max(rounds.MOST_COMPARISONS // shape[1], 1)
    bits, out = [], []
    for first in range(0, len(columns), width):
        part = slice(first, first + width)
        before = np.repeat(squares[part], shape[1], axis=0)
        difference = steps.minus(lanes, np.ascontiguousarray(columns[part]).reshape(-1, lanes.lanes), before)
        mine = yield from side.compare([digits_of(short, difference[:, : short.lanes])])
        chosen = yield from side.select(lanes, mine, difference)
        bits.append(mine)
        out.append(steps.plus(lanes, before, chosen))
    return np.concatenate(bits).reshape(shape[:2]), np.concatenate(out).reshape(shape)


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


def _sum(lanes: Field, values: Residues32) -> Residues32:
    primes = np.array(lanes.primes, dtype=np.uint64)
    return np.asarray(values.sum(axis=0, dtype=np.uint64) % primes, dtype=np.uint32)


def _least(side: Side, lanes: Field, tentative: Values) -> Talk[int]:
    """Which candidate's total is the least, told to everybody; ties to the first."""
    if tentative.shape[1] == 1:
        return 0
    wide = side.terms.leading(side.terms.field.lanes_for(2 * side.terms.rows * side.terms.unit))
    totals = _sum(lanes, tentative)[:, : wide.lanes]
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
    primes = np.array(lanes.primes, dtype=np.uint64)
    prefix = (np.cumsum(squares, axis=0, dtype=np.uint64) % primes).astype(np.uint32)
    width = max(isqrt(len(prefix)), 1)
    ends = np.append(np.arange(width, len(prefix), width), len(prefix))
    blocks = yield from _first_beyond(side, lanes, points, prefix, [ends - 1] * len(points))
    if all(block == len(ends) for block in blocks):
        return ()
    parts = [np.arange(block * width, min((block + 1) * width, len(prefix))) for block in blocks]
    inside = yield from _first_beyond(side, lanes, points, prefix, parts)
    if any(found >= len(part) for found, part in zip(inside, parts, strict=True)):
        raise JobFailed("a draw of k-means++ finds no row in its block, so a member computes wrongly; start a new job")
    return tuple(int(part[found]) for found, part in zip(inside, parts, strict=True))


def _first_beyond(
    side: Side, lanes: Field, points: Sequence[int], prefix: Residues32, rows: Sequence[npt.NDArray[np.int64]]
) -> Talk[list[int]]:
    """For every point the place of the first of its rows with E = u·T − 2^κ·P_i < 0, told to everybody; their number if there
    is none."""
    scaled = [steps.times(lanes, 1 << side.terms.draw_bits, prefix[part]) for part in rows]
    values = [
        steps.minus(lanes, steps.times(lanes, u, prefix[-1:]), part) for u, part in zip(points, scaled, strict=True)
    ]
    bits = yield from side.compare([digits_of(lanes, np.concatenate(values))])
    beyond = yield from side.reveal(bits)
    told = None if beyond is None else octets(np.array(_places(beyond, rows), dtype="<u4"))
    found: list[int] = (yield from side.tell(told, 4 * len(points))).view("<u4").tolist()
    if any(place > len(part) for place, part in zip(found, rows, strict=True)):
        raise JobFailed("the server names a row that was not compared")
    return found


def _places(beyond: npt.NDArray[np.bool_], rows: Sequence[npt.NDArray[np.int64]]) -> list[int]:
    """How many rows of each part are not beyond its point."""
    parts = np.split(beyond, np.cumsum([len(part) for part in rows])[:-1])
    if any((np.diff(part.astype(np.int8)) < 0).any() for part in parts):
        raise JobFailed("the sums of k-means++ fall, so a member computes wrongly; start a new job")
    return [len(part) - int(part.sum()) for part in parts]
