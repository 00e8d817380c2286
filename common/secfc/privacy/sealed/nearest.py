"""Which of its candidates a row is nearest to (docs/sealed.md, Section 4, stage 2 and groups), as a script of both ends.

Up to eight candidates are compared in all pairs. More are cut, in index order, into groups; inside a group the winner's place
is turned by a secret number, so the server sees a uniform place; for every pair of groups E of the two winners is picked from
what both ends hold, without either knowing whose it is; then the groups are compared like candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, combinations, pairwise

import numpy as np
import numpy.typing as npt

from secfc.coding import kernels
from secfc.errors import JobFailed
from secfc.privacy.sealed import terms
from secfc.privacy.sealed.messages import Talk, known
from secfc.privacy.sealed.sides import Side, Values
from secfc.privacy.sealed.steps import Counts, Crossings, Duels, Index, Table, digits_of
from secfc.privacy.sealed.streams import Bytes
from secfc.privacy.sealed.terms import Pairs

Bools = npt.NDArray[np.bool_]


@cache
def groups(candidates: int) -> tuple[int, ...]:
    """The edges of the groups: 0, …, candidates; as many as cost least, and of nearly equal sizes."""
    if candidates < terms.GROUPS_FROM:
        return 0, candidates
    return min((_edges(candidates, count) for count in range(2, candidates)), key=_cost)


def _cost(edges: tuple[int, ...]) -> int:
    """Bytes dealt in a lane, in thirds: 31 per comparison, and 16/3 per pair of places of two groups to pick from."""
    groups, widest = len(edges) - 1, max(b - a for a, b in pairwise(edges))
    return 3 * 31 * _duels(edges) + 16 * widest**2 * (groups * (groups - 1) // 2)


def _edges(candidates: int, count: int) -> tuple[int, ...]:
    return tuple(-(-candidates * g // count) for g in range(count + 1))


def _duels(edges: tuple[int, ...]) -> int:
    inside = sum((b - a) * (b - a - 1) // 2 for a, b in pairwise(edges))
    return inside + (len(edges) - 1) * (len(edges) - 2) // 2


def duels(candidates: int) -> int:
    """Comparisons that one row with so many candidates takes."""
    return _duels(groups(candidates)) if candidates > 1 else 0


@dataclass(frozen=True)
class Contest:
    """Rows (counted from the chunk's first) with the same number of candidates (n, w), ascending in each row."""

    rows: Index
    candidates: Index

    @property
    def edges(self) -> tuple[int, ...]:
        return groups(self.candidates.shape[1])

    def duels(self) -> int:
        """How many comparisons the groups take inside."""
        return len(self.rows) * len(_pairs_inside(self.edges))

    def list_duels(self, turns: Bytes | None, test: int, column: int, table: Table) -> None:
        """List all pairs inside the groups from a column on; candidate x of row n counts in test + n·w + its turned place."""
        tests = test + np.arange(self.candidates.size, dtype=np.int32).reshape(self.candidates.shape)
        if turns is not None:
            for g, (a, b) in enumerate(pairwise(self.edges)):
                turned = (np.arange(b - a, dtype=np.uint8) + turns[:, g : g + 1]) % np.uint8(b - a)
                tests[:, a:b] = tests[:, a : a + 1] + turned
        kernels.list_pairs(self.rows, self.candidates, tests, _pairs_inside(self.edges), column, table)


@cache
def _pairs_inside(edges: tuple[int, ...]) -> Table:
    pairs = [pair for a, b in pairwise(edges) for pair in combinations(range(a, b), 2)]
    return np.array(pairs, dtype=np.int32).reshape(-1, 2)


def contests(rows: Index, allowed: Bools) -> list[Contest]:
    """Rows and which clusters (n, k) each may go to, sorted by how many those are."""
    counts = allowed.sum(axis=1)
    out = []
    for width in np.unique(counts).tolist():
        mine = np.flatnonzero(counts == width)
        table = np.nonzero(allowed[mine])[1].astype(np.int32).reshape(len(mine), width)
        out.append(Contest(np.ascontiguousarray(rows[mine], dtype=np.int32), table))
    return out


def nearest(side: Side, pairs: Pairs, own: Values, asked: Sequence[Contest]) -> Talk[list[Index] | None]:
    """The winner of every row of every contest, for the server; None at a member. `own` (rows, k, L) is one end's half."""
    open_ = [contest for contest in asked if contest.candidates.shape[1] > 1]
    turns = [_turns(side, contest) for contest in open_]
    counted = yield from _inside(side, pairs, own, open_, turns)
    found = []
    for contest, turn, zeros in zip(open_, turns, counted, strict=True):
        found.append((yield from _between(side, pairs, own, contest, turn, zeros)))
    if not side.serves:
        return None
    winners = iter(found)
    return [c.candidates[:, 0] if c.candidates.shape[1] == 1 else known(next(winners)) for c in asked]


def _turns(side: Side, contest: Contest) -> Bytes | None:
    """(n, groups): by how much a member turns every group of every row; None at the server, or if there is one group."""
    edges, n = contest.edges, len(contest.rows)
    if len(edges) == 2:
        return None
    columns = [side.turns(b - a, n) for a, b in pairwise(edges)]
    return None if side.serves else np.stack([column for column in columns if column is not None], axis=1)


def _inside(
    side: Side, pairs: Pairs, own: Values, asked: Sequence[Contest], turns: Sequence[Bytes | None]
) -> Talk[list[Bools | None]]:
    """Compare inside all groups, and count; which (turned) place of each candidate counts 0, for the server."""
    tests = [0, *accumulate(contest.candidates.size for contest in asked)]
    columns = [0, *accumulate(contest.duels() for contest in asked)]
    table = np.empty((5, columns[-1]), dtype=np.int32)
    for contest, turn, test, column in zip(asked, turns, tests[:-1], columns[:-1], strict=True):
        contest.list_duels(turn, test, column, table)
    parts, counts = Duels(table, tests[-1]).digits(side.terms, pairs, own)
    zeros = yield from side.zero((yield from side.compare(parts)), counts)
    if zeros is None:
        return [None] * len(asked)
    shapes = [contest.candidates.shape for contest in asked]
    return [zeros[a:b].reshape(shape) for (a, b), shape in zip(pairwise(tests), shapes, strict=True)]


def _between(
    side: Side, pairs: Pairs, own: Values, contest: Contest, turns: Bytes | None, zeros: Bools | None
) -> Talk[Index | None]:
    """Compare the groups' winners, and learn the winning group's turn."""
    edges, n = contest.edges, len(contest.rows)
    places = None if zeros is None else np.stack([_single(zeros[:, a:b]) for a, b in pairwise(edges)], axis=1)
    if len(edges) == 2:
        return None if places is None else contest.candidates[np.arange(n), places[:, 0]]
    at = known(turns) if places is None else places.astype(np.uint8)
    couples = list(combinations(range(len(edges) - 1), 2))
    present = np.flatnonzero(np.bincount(contest.candidates.reshape(-1)))
    field = side.terms.leading(int(pairs.lanes[np.ix_(present, present)].max()))
    split = yield from side.pick(field, pairs, _crossings(contest, couples), own, at[:, couples].reshape(-1, 2))
    bits = yield from side.compare([digits_of(field, split)])
    x, y = np.array(couples, dtype=np.int32).T
    first = (np.arange(n, dtype=np.int32) * (len(edges) - 1))[:, None]
    tests = Counts((first + x).reshape(-1), (first + y).reshape(-1), n * (len(edges) - 1))
    best = yield from side.zero(bits, tests)
    won = None if best is None else _single(best.reshape(n, -1))
    back = yield from side.winning_turns(None if won is None else won.astype(np.uint8), turns, n)
    if won is None or places is None or back is None:
        return None
    start, size = np.array(edges[:-1])[won], np.diff(edges)[won]
    chosen = start + (places[np.arange(n), won] - back.astype(np.int64)) % size
    return np.asarray(contest.candidates[np.arange(n), chosen])


def _single(zeros: Bools) -> npt.NDArray[np.int64]:
    """The one place that counts 0 in every row."""
    if not (zeros.sum(axis=1) == 1).all():
        raise JobFailed("a row has no single nearest cluster, so a member computes wrongly; start a new job")
    return np.asarray(zeros.argmax(axis=1))


def _crossings(contest: Contest, couples: Sequence[tuple[int, int]]) -> Crossings:
    """Every pair of groups of every row, row by row."""
    edges, n = contest.edges, len(contest.rows)
    sizes = np.diff(edges)
    padded = np.full((n, len(sizes), sizes.max()), -1, dtype=np.int32)
    for g, (a, b) in enumerate(pairwise(edges)):
        padded[:, g, : b - a] = contest.candidates[:, a:b]
    one, two = np.array(couples).T
    first, second = (np.ascontiguousarray(padded[:, part].reshape(-1, padded.shape[2])) for part in (one, two))
    both = np.tile(sizes[np.array(couples)], (n, 1)).astype(np.int32)
    return Crossings(np.repeat(contest.rows, len(couples)), first, second, both)
