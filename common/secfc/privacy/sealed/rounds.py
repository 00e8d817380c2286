"""A chunk of a Lloyd round, and of separation, as scripts of both ends (docs/sealed.md, Section 4).

Stage 1 asks of a row with a label c whether a live cluster beats c. Clusters that are as they were in the last request,
like c, need not be asked: c was nearer then. That holds only for a label that the last request found *nearest*, so a row that
the rule for empty clusters moved, or that separation kept in place, is not `trusted`: it skips stage 1, and stage 2 compares
all live clusters.
Stage 2 asks of rows that move, and of those without a trusted label, where to.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from secfc.errors import Malformed
from secfc.kmeans.distances import UNASSIGNED, Labels
from secfc.privacy.sealed import nearest, remainders, sides, steps
from secfc.privacy.sealed.messages import Talk, octets
from secfc.privacy.sealed.nearest import Bools, contests
from secfc.privacy.sealed.remainders import Reduction
from secfc.privacy.sealed.sides import Side, Values
from secfc.privacy.sealed.steps import Duels, Index
from secfc.privacy.sealed.terms import Pairs, Terms

MOST_COMPARISONS = 1 << 16  # of the first step of a chunk
ROW_GROUP = 6  # a pad's stream can be read from every sixth row on


@dataclass(frozen=True)
class Round:
    """The public data of a Lloyd round: labels, sizes, which clusters changed since the last request, and which labels were
    found nearest in it. Where all clusters changed, `trusted` says only that asking whether a row stays is worth it."""

    terms: Terms
    labels: Labels
    sizes: npt.NDArray[np.int64]
    changed: Bools
    trusted: Bools

    @cached_property
    def live(self) -> Bools:
        return np.asarray(self.sizes > 0)

    @cached_property
    def pairs(self) -> Pairs:
        return Pairs(self.terms, self.sizes)

    @cached_property
    def reduction(self) -> Reduction | None:
        """How their comparisons can be shortened."""
        return Reduction.of(self.terms, self.sizes, self.pairs)

    def worth(self, first: int, end: int, rivals: Bools) -> bool:
        """Whether a chunk, whose stage 1 compares these, has enough comparisons to shorten them. Rows that stage 1 does not
        ask count as if it compared them with all."""
        live = int(self.live.sum())
        unasked = np.count_nonzero(~self.labelled(first, end))
        return worth(int(np.count_nonzero(rivals) + unasked * (live - 1)), live)

    @cached_property
    def strict(self) -> Pairs:
        """Those of separation: E = s_h²·v_s − 9·s_s²·v_h."""
        return Pairs(self.terms, self.sizes, 9)

    def labelled(self, first: int, end: int) -> Bools:
        """Rows that stage 1 asks."""
        return np.asarray((self.labels[first:end] >= 0) & self.trusted[first:end])

    def rivals(self, first: int, end: int) -> Bools:
        """(rows, k): the clusters that stage 1 compares a row's own with."""
        labels = self.labels[first:end]
        own = np.where(labels >= 0, labels, 0)
        out = self.live[None] & (self.changed[None] | self.changed[own][:, None])
        out[np.arange(len(labels)), own] = False
        out[~self.labelled(first, end)] = False
        return out

    def targets(self, rows: Index, first: int) -> Bools:
        """(n, k): where a row of stage 2 may go. `rows` count from `first`."""
        labels = self.labels[first + rows]
        asked = (labels >= 0) & self.trusted[first + rows]
        out = np.repeat(self.live[None], len(rows), axis=0)
        settled = asked & ~self.changed[labels]
        out[settled] &= self.changed
        out[asked, labels[asked]] = False
        return out

    def chunks(self) -> list[tuple[int, int]]:
        """Consecutive rows whose first step takes at most MOST_COMPARISONS (or that of six rows)."""
        asked = int(self.labelled(0, self.terms.rows).sum())
        step = chunk_rows(int(self.live.sum()), 2 * asked > self.terms.rows)
        return [(first, min(first + step, self.terms.rows)) for first in range(0, self.terms.rows, step)]


def chunk_rows(live: int, asked: bool) -> int:
    """Rows of a chunk with so many live clusters. Where stage 1 asks most rows, stage 2 gets those that move, which are few
    as a rule; should all of them move, one of its steps takes up to twice MOST_COMPARISONS."""
    stage_1, stage_2 = live - 1, max(nearest.duels(width) for width in range(max(live, 1) + 1))
    most = max(stage_1, -(-stage_2 // 2) if asked else stage_2, 1)
    return max(MOST_COMPARISONS // most // ROW_GROUP, 1) * ROW_GROUP


def worth(compared: int, live: int) -> bool:
    """Whether so many comparisons of a chunk are enough to shorten them."""
    return compared >= remainders.WORTH * (live * (live - 1) // 2)


def lloyd(side: Side, asked: Round, first: int, own: Values) -> Talk[Labels | None]:
    """The nearest live cluster of every row of a chunk, for the server; None at a member."""
    end = first + len(own)
    rivals, pairs = asked.rivals(first, end), asked.pairs
    if asked.worth(first, end, rivals) and asked.reduction is not None:
        pairs = yield from remainders.shorten(side, asked.reduction, own[0])
    moved = np.zeros(len(own), dtype=np.bool_)
    if rivals.any():
        stay = yield from _stage_1(side, asked.labels[first:end], pairs, own, rivals)
        told = None if stay is None else sides.pack_bits(~stay)
        moved = sides.unpack_bits((yield from side.tell(told, -(-len(own) // 8))), len(own))
        if (moved & ~rivals.any(axis=1)).any():
            raise Malformed("a row is said to move that was compared with nothing")
    rows = np.flatnonzero(moved | ~asked.labelled(first, end)).astype(np.int32)
    asked_rows = contests(rows, asked.targets(rows, first))
    found = yield from nearest.nearest(side, pairs, own, asked_rows)
    if found is None:
        return None
    labels = asked.labels[first:end].copy()
    for contest, winners in zip(asked_rows, found, strict=True):
        labels[contest.rows] = winners
    return labels


def _stage_1(side: Side, labels: Labels, pairs: Pairs, own: Values, rivals: Bools) -> Talk[Bools | None]:
    """Whether each row stays: the number of rivals that beat its own cluster is 0."""
    parts, tests = steps.own_against(rivals, labels).digits(side.terms, pairs, own)
    zeros = yield from side.zero((yield from side.compare(parts)), tests)
    if zeros is None:
        return None
    stay = np.ones(len(own), dtype=np.bool_)
    stay[rivals.any(axis=1)] = zeros
    return stay


def separate(side: Side, asked: Round, first: int, own: Values) -> Talk[Labels | None]:
    """The nearest cluster of every row where 9·d(i, h) ≤ d(i, s) for every other live s, else UNASSIGNED; for the server."""
    near = yield from lloyd(side, asked, first, own)
    told = None if near is None else octets(near.astype(np.uint8))
    labels = (yield from side.tell(told, len(own), len(asked.sizes))).astype(np.int32)
    others = np.repeat(asked.live[None], len(own), axis=0)
    others[np.arange(len(own)), labels] = False
    rows, other = (index.astype(np.int32) for index in np.nonzero(others))
    duels = Duels(np.stack([rows, labels[rows], other, rows, np.full_like(rows, -1)]), len(own))
    parts, tests = duels.digits(side.terms, asked.strict, own)
    fits = yield from side.zero((yield from side.compare(parts)), tests)
    return None if fits is None else np.where(fits, labels, UNASSIGNED).astype(np.int32)
