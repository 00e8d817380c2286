"""What sealed questions make their parties send, before anybody starts (docs/sealed.md, Section 4).

Bytes are those of parcels' contents, without frames and TLS. `of_chunk` counts what the scripts of `rounds` and `nearest` say
in one chunk, `of_seed` what that of `seeding` says; `first_round` and `usual_round` are whole rounds of clusters of m/k rows
each, whose sizes have no common factor. `most_said` and `most_dealt` bound what honest parties have waiting at a receiver.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from math import isqrt

import numpy as np

from secfc.coding.field import Field, Layout
from secfc.privacy.sealed import rounds, sides
from secfc.privacy.sealed.halves import WINDOW
from secfc.privacy.sealed.nearest import groups
from secfc.privacy.sealed.questions import Asked, Lloyd, Seed
from secfc.privacy.sealed.remainders import shortened
from secfc.privacy.sealed.rounds import chunk_rows, worth
from secfc.privacy.sealed.seeding import part_rows
from secfc.privacy.sealed.terms import Terms, lanes_of_product

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
    2 finds the nearest of `candidates` clusters for `placed` rows. Before, remainders of so many `pairs` are found, compared
    in `short` lanes."""

    rows: int
    asked: int
    rivals: int
    placed: int
    candidates: int
    lanes: int
    pairs: int = 0
    short: int = 0


def of_chunk(terms: Terms, load: Load) -> Traffic:
    """What one chunk makes everybody say."""
    total = _remainders(terms, load) if load.pairs else Traffic()
    if load.asked and load.rivals:
        pairs = load.asked * load.rivals
        total += _compared(terms, pairs, load.lanes) + _counted(pairs, load.asked)
        total += _told(terms, -(-load.rows // 8))
    if load.placed and load.candidates > 1:
        total += _nearest(terms, load)
    return total


def _remainders(terms: Terms, load: Load) -> Traffic:
    ring = terms.leading(load.lanes)
    selected = _selected(ring, load.pairs) + _selected(ring, 2 * load.pairs)
    return selected + _compared(terms, 2 * load.pairs, load.short)


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


def comparison_lanes(terms: Terms, compared: int) -> tuple[int, int]:
    """Lanes of a comparison of two clusters of m/k rows without a common factor, in a chunk of so many; if it is shortened,
    also those in which remainders are compared, else 0."""
    share = max(terms.rows // terms.clusters, 1)
    multiple = np.array([share**2])
    _, narrow, fits = shortened(terms, multiple, np.array([terms.column_lanes(share)]))
    if fits[0] and worth(compared, terms.clusters):
        return int(narrow[0]), int(lanes_of_product(terms, multiple, 8)[0])
    return terms.field.lanes_for(2 * share**4 * terms.unit), 0


def upload_bytes(terms: Terms) -> int:
    """An upload of all columns, of clusters of m/k rows each."""
    lanes = terms.column_lanes(max(terms.rows // terms.clusters, 1))
    widths = tuple(terms.clusters if lane < lanes else 0 for lane in range(terms.field.lanes))
    return 8 * Layout(terms.field, terms.rows, widths).words


def first_round(terms: Terms) -> Traffic:
    """The first Lloyd round after a random start: all rows are compared with all clusters, in groups if there are many."""
    return _whole(terms, asked=0.0, placed=1.0, candidates=terms.clusters)


def usual_round(terms: Terms, moved: float = MOVED) -> Traffic:
    """A round in which every cluster has changed, and that share of the rows moves."""
    return _whole(terms, asked=1.0, placed=moved, candidates=terms.clusters - 1)


def _whole(terms: Terms, asked: float, placed: float, candidates: int) -> Traffic:
    step, others = min(chunk_rows(terms.clusters, asked > 0.5), terms.rows), terms.clusters - 1
    full, rest = divmod(terms.rows, step)

    def chunk(rows: int) -> Traffic:
        lanes, short = comparison_lanes(terms, rows * others)
        pairs = terms.clusters * others // 2 if short else 0
        load = Load(rows, round(asked * rows), others, round(placed * rows), candidates, lanes, pairs, short)
        return of_chunk(terms, load)

    return chunk(step) * full + (chunk(rest) if rest else Traffic())


# --- seeding -----------------------------------------------------------------------------------------------------------


def of_seed(terms: Terms, question: Seed, parts: int | None = None) -> Traffic:
    """What a question about a seed makes everybody say; of steps that are cut into parts of the rows at most so many."""
    points, finish = len(question.points), question.finish
    total = _folded(terms, len(question.candidates), parts) if question.number else Traffic()
    ring, width = terms.leading(terms.seed_lanes()), max(isqrt(terms.rows), 1)
    for rows in (-(-terms.rows // width), width) if points else ():  # ends of blocks, then the rows of a block
        total += _compared(terms, points * rows, ring.lanes) + _told(terms, 4 * points)
        total += Traffic(single=-(-points * rows // 8), single_messages=1)
    opened = sides.packed_size(terms.leading(1), terms.rows) if finish else 0
    return total + Traffic(single=opened, single_messages=int(finish))


def seeding(terms: Terms, candidates: int) -> Traffic:
    """All requests of k-means++ with so many candidates per seed, all of them distinct."""
    total = Traffic()
    for number in range(terms.clusters):
        rows, ends = candidates if number else 1, number == terms.clusters - 1
        points = () if ends else (0,) * candidates
        total += of_seed(terms, Seed(number, tuple(range(rows)), points, ends))
    return total


def _folded(terms: Terms, candidates: int, parts: int | None) -> Traffic:
    """Every row against every candidate, the totals, and the index of the nearest seed."""
    ring, short = terms.leading(terms.seed_lanes()), terms.field.lanes_for(2 * terms.unit)

    def compared(rows: int) -> Traffic:
        return _compared(terms, rows * candidates, short) + _selected(ring, rows * candidates)

    total = _in_parts(terms.rows, part_rows(candidates), parts, compared)
    if candidates > 1:
        wide, duels = terms.field.lanes_for(2 * terms.rows * terms.unit), candidates * (candidates - 1) // 2
        total += _compared(terms, duels, wide) + _counted(duels, candidates) + _told(terms, 1)
    return total + _in_parts(terms.rows, rounds.MOST_COMPARISONS, parts, partial(_selected, terms.leading(1)))


def _in_parts(rows: int, step: int, parts: int | None, part: Callable[[int], Traffic]) -> Traffic:
    full, rest = divmod(rows, step)
    counted = full if parts is None else min(full, parts)
    return part(step) * counted + (part(rest) if rest else Traffic())


def _selected(ring: Field, count: int) -> Traffic:
    sizes = sides.packed_size(ring, 3 * count), sides.packed_size(ring, count)
    return Traffic(dealt=sizes[0], answered=sizes[1], server_messages=1, member_messages=1)


def seeding_memory(terms: Terms, candidates: int) -> tuple[int, int]:
    """Bytes that a question about a seed takes at a member and at the server, at most: D² and the indices before and after,
    the part that is compared, bits, and what is said (a member can say all of it before the server reads any); at the
    server besides the columns of the candidates, and their tentative D²."""
    if terms.clusters == 1:
        return 0, 0
    question = Seed(1, tuple(range(candidates)), (0,) * candidates)
    said, dealt = of_seed(terms, question), of_seed(terms, question, 1).dealt
    lanes, pairs = terms.seed_lanes(), candidates * terms.rows
    part = min(candidates * part_rows(candidates), pairs)
    state = 8 * terms.rows * (lanes + 1) + pairs + 4 * part * (terms.field.lanes + 6 * lanes)
    answered = said.answered + said.single
    columns = 4 * pairs * (terms.field.lanes + lanes)
    return state + 2 * answered + dealt, state + columns + terms.members * answered + 2 * dealt


# --- what may wait at a receiver ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Limit:
    """Chunks of a question, names that a sender may use for it, and its bytes that may wait without having been read."""

    chunks: int
    names: int
    size: int


def most_said(terms: Terms, question: Asked) -> Limit:
    """Of one member at the server. A member that is dealt to in every (t+1)st chunk can be WINDOW such chunks ahead."""
    ahead = WINDOW + (WINDOW + 1) * terms.members
    most, chunks = _largest(terms, question)
    return Limit(chunks, _names(terms, question) * chunks, (most.answered + most.single) * min(ahead, chunks))


def most_dealt(terms: Terms, question: Asked) -> Limit:
    """Of the server at one member: it deals WINDOW chunks at a time, each as far as the members have answered."""
    most, chunks = _largest(terms, question)
    if isinstance(question, Seed):
        most = of_seed(terms, question, 1)
    return Limit(chunks, _names(terms, question) * chunks, (most.dealt + most.told) * min(WINDOW + 1, chunks))


def _names(terms: Terms, question: Asked) -> int:
    """Messages of a chunk, of one sender: stages, and four steps for every number of candidates that rows may have; while
    seeding one or two for every part of the rows."""
    parts = 4 * (terms.rows * len(question.candidates) // rounds.MOST_COMPARISONS) if isinstance(question, Seed) else 0
    return 16 + 4 * terms.clusters + parts


def _largest(terms: Terms, question: Asked) -> tuple[Traffic, int]:
    """What no chunk of a question exceeds, and the number of chunks."""
    if isinstance(question, Seed):
        return of_seed(terms, question), 1
    lanes = terms.field.lanes
    if not isinstance(question, Lloyd):
        return Traffic(single=sides.packed_size(terms.field, 1), single_messages=1), 1
    live, chunks = int((question.sizes > 0).sum()), question.round(terms).chunks()
    rows = max(end - first for first, end in chunks)
    pairs = live * (live - 1) // 2
    loads = [Load(rows, rows, live - 1, rows, width, lanes, pairs, lanes) for width in range(live + 1)]
    found = [of_chunk(terms, load) for load in loads]
    most = Traffic(*(max(getattr(one, name) for one in found) for name in Traffic.__dataclass_fields__))
    if question.separate:
        pairs = rows * (live - 1)
        most += _compared(terms, pairs, lanes) + _counted(pairs, rows) + _told(terms, rows)
    return most, len(chunks)
