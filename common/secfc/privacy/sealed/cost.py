"""What a sealed Lloyd round makes its parties send, before anybody starts (docs/sealed.md, Section 4).

Bytes are those of parcels' contents, without frames and TLS. `of_chunk` counts what the scripts of `rounds` and `nearest` say
in one chunk; `first_round` and `usual_round` are whole rounds of clusters of m/k rows each, whose sizes have no common
factor.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from secfc.coding.field import Layout
from secfc.privacy.sealed import sides
from secfc.privacy.sealed.nearest import groups
from secfc.privacy.sealed.rounds import chunk_rows
from secfc.privacy.sealed.terms import Terms

MOVED = 0.05  # of the rows: what `usual_round` takes for granted


@dataclass(frozen=True)
class Traffic:
    """Bytes and messages of comparing. The member that is dealt to changes from chunk to chunk; M₀ says a little more."""

    dealt: int = 0  # S → one member of each chunk
    told: int = 0  # S → every member, or to M₀ alone
    answered: int = 0  # every member → S
    single: int = 0  # M₀ → S, besides
    server_messages: int = 0  # of the server to all members
    member_messages: int = 0  # of every member
    single_messages: int = 0  # of M₀, besides

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(*(getattr(self, name) + getattr(other, name) for name in Traffic.__dataclass_fields__))

    def __mul__(self, times: int) -> Traffic:
        return Traffic(*(getattr(self, name) * times for name in Traffic.__dataclass_fields__))


@dataclass(frozen=True)
class Load:
    """What is compared in a chunk of `rows`, in `lanes` lanes: stage 1 asks `asked` rows, each with `rivals` clusters; stage
    2 finds the nearest of `candidates` clusters for `placed` rows."""

    rows: int
    asked: int
    rivals: int
    placed: int
    candidates: int
    lanes: int


def of_chunk(terms: Terms, load: Load) -> Traffic:
    """What one chunk makes everybody say."""
    total = Traffic()
    if load.asked and load.rivals:
        pairs = load.asked * load.rivals
        total += _compared(terms, pairs, load.lanes) + _counted(pairs, load.asked)
        total += _told(terms, -(-load.rows // 8))
    if load.placed and load.candidates > 1:
        total += _nearest(terms, load)
    return total


def _nearest(terms: Terms, load: Load) -> Traffic:
    edges = groups(load.candidates)
    widths = [b - a for a, b in pairwise(edges)]
    inside = load.placed * sum(width * (width - 1) // 2 for width in widths)
    total = _compared(terms, inside, load.lanes) + _counted(inside, load.placed * load.candidates)
    if len(widths) == 1:
        return total
    couples = load.placed * (len(widths) * (len(widths) - 1) // 2)
    ring = terms.leading(load.lanes)
    dealt = sides.packed_size(ring, 2 * max(widths) ** 2 * couples)
    picked = Traffic(dealt=dealt, answered=sides.packed_size(ring, couples), server_messages=1, member_messages=1)
    won = Traffic(told=load.placed, single=load.placed, server_messages=1, single_messages=1)
    return total + picked + _compared(terms, couples, load.lanes) + _counted(couples, load.placed * len(widths)) + won


def _compared(terms: Terms, pairs: int, lanes: int) -> Traffic:
    return Traffic(pairs * terms.thresholds(lanes), 0, pairs * terms.places(lanes), 0, 1, 1)


def _counted(bits: int, tests: int) -> Traffic:
    return Traffic(bits, 0, tests, 0, 1, 1)


def _told(terms: Terms, size: int) -> Traffic:
    return Traffic(told=size * terms.members, server_messages=terms.members)


def comparison_lanes(terms: Terms) -> int:
    """Lanes of a comparison of two clusters of m/k rows without a common factor."""
    share = max(terms.rows // terms.clusters, 1)
    return terms.field.lanes_for(2 * share**4 * terms.unit)


def upload_bytes(terms: Terms) -> int:
    """An upload of all columns, of clusters of m/k rows each."""
    lanes = terms.column_lanes(max(terms.rows // terms.clusters, 1))
    widths = tuple(terms.clusters if lane < lanes else 0 for lane in range(terms.field.lanes))
    return 8 * Layout(terms.field, terms.rows, widths).words


def first_round(terms: Terms) -> Traffic:
    """The first Lloyd round of a job, or of an epoch: all rows are compared with all clusters."""
    return _whole(terms, asked=0.0, placed=1.0, candidates=terms.clusters)


def usual_round(terms: Terms, moved: float = MOVED) -> Traffic:
    """A round in which every cluster has changed, and that share of the rows moves."""
    return _whole(terms, asked=1.0, placed=moved, candidates=terms.clusters - 1)


def _whole(terms: Terms, asked: float, placed: float, candidates: int) -> Traffic:
    step, lanes = min(chunk_rows(terms.clusters), terms.rows), comparison_lanes(terms)
    full, rest = divmod(terms.rows, step)

    def chunk(rows: int) -> Traffic:
        load = Load(rows, round(asked * rows), terms.clusters - 1, round(placed * rows), candidates, lanes)
        return of_chunk(terms, load)

    return chunk(step) * full + chunk(rest)
