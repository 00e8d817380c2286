"""The arithmetic of COMPARE, ZERO and SELECT with every coin an argument (docs/sealed.md, Section 3).

Where the coins come from is `referee` (the server) and `comparer` (a member). Nothing here is tied to U = 127 or to 21-bit
lanes: in tiny rings all coins can be enumerated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from secfc.coding import kernels
from secfc.coding.field import Field
from secfc.privacy.sealed.streams import Bytes, Residues32
from secfc.privacy.sealed.terms import Pairs, Terms

Index = npt.NDArray[np.int32]
Table = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Digits:
    """One party's side of N comparisons of l lanes: mixed-radix digits (l, N) of its 2E mod Q_l, and their parity."""

    digits: npt.NDArray[np.uint32] = field(repr=False)
    parity: Bytes = field(repr=False)

    @property
    def lanes(self) -> int:
        return int(self.digits.shape[0])

    def __len__(self) -> int:
        return int(self.digits.shape[1])

    def part(self, first: int, end: int) -> Digits:
        return Digits(np.ascontiguousarray(self.digits[:, first:end]), self.parity[first:end])


def digits_of(field: Field, values: Residues32) -> Digits:
    """Digits of 2v for residues v (N, l) of the field's l lanes."""
    out, parity = np.empty((field.lanes, len(values)), dtype=np.uint32), np.empty(len(values), dtype=np.uint8)
    kernels.value_digits(np.ascontiguousarray(values), field.prime_floats, field.garner, out, parity)
    return Digits(out, parity)


@dataclass(frozen=True)
class Counts:
    """Counts to be tested for zero: comparison n adds b to count up[n] and 1 − b to count down[n]; -1 is none."""

    up: Index
    down: Index
    count: int


@dataclass(frozen=True)
class Duels:
    """Public list of comparisons of clusters: b beats a iff E < 0, and where that counts in one of `tests` tests.

    `table` (5, N): row (from the chunk's first), a, b, and the tests that count wins of b and of a, or -1.
    """

    table: Table
    tests: int

    def digits(self, terms: Terms, pairs: Pairs, values: npt.NDArray[np.uint32]) -> tuple[list[Digits], Counts]:
        """This party's digits of `values` (rows, k, L), grouped by lanes, and the counts of the list in that order."""
        amounts = np.empty(terms.field.lanes + 1, dtype=np.int64)
        kernels.count_lanes(self.table, pairs.lanes, amounts)
        kinds = np.flatnonzero(amounts).tolist()
        ends, table = np.cumsum(amounts), self.table
        if len(kinds) > 1:
            table = np.empty_like(table)
            kernels.sort_by_lanes(self.table, pairs.lanes, ends - amounts, table)
        starts = ends - amounts
        parts = [self._digits(terms, pairs, values, table[:3, starts[n] : ends[n]], n) for n in kinds]
        return parts, Counts(table[3], table[4], self.tests)

    @staticmethod
    def _digits(terms: Terms, pairs: Pairs, values: npt.NDArray[np.uint32], some: Table, lanes: int) -> Digits:
        count = some.shape[1]
        out, parity = np.empty((lanes, count), dtype=np.uint32), np.empty(count, dtype=np.uint8)
        primes, inverses = terms.field.prime_floats, terms.field.garner
        tables = pairs.left, pairs.right, pairs.less
        kernels.pair_digits(values, some[0], some[1], some[2], *tables, primes, inverses, out, parity)
        return Digits(out, parity)


def own_against(rivals: npt.NDArray[np.bool_], labels: Index) -> Duels:
    """Every row's own cluster against each of its rivals (n, k): a test of the rivals' wins for every row that has one."""
    table = np.empty((5, np.count_nonzero(rivals)), dtype=np.int32)
    return Duels(table, kernels.list_rivals(rivals, np.ascontiguousarray(labels, dtype=np.int32), table))


# --- COMPARE ---------------------------------------------------------------------------------------------------------


def deal_digits(terms: Terms, digits: Digits, streams: Bytes, out: Bytes | None = None) -> Bytes:
    """The share of T_{q,θ} = [ρ_q ≥ θ] that is left when the others' shares are `streams` (others, ≥ N·thresholds)."""
    out = np.empty(len(digits) * terms.thresholds(digits.lanes), dtype=np.uint8) if out is None else out
    kernels.deal_digits(digits.digits, streams, terms.bits, np.uint8(terms.small), out)
    return out


def answer_tests(
    terms: Terms,
    digits: Digits,
    shares: Bytes,
    factors: Bytes,
    zero: tuple[Bytes, Bytes],
    direction: Bytes,
    turn: Bytes,
    first: bool,
    out: Bytes | None = None,
) -> Bytes:
    """A member's message: s_q·c_q plus zero[0] less zero[1] (empty: none), turned. `first` is M₀, who adds constants."""
    out = np.empty(len(digits) * terms.places(digits.lanes), dtype=np.uint8) if out is None else out
    one, u = np.uint8(first), np.uint8(terms.small)
    kernels.answer_tests(digits.digits, shares, factors, *zero, direction, turn, terms.bits, one, u, out)
    return out


def find_zeros(terms: Terms, messages: Bytes, lanes: int, out: Bytes) -> int:
    """out <- w = [some position of the messages' sum is 0] for each comparison; returns the most zeros found in one."""
    return int(kernels.find_zeros(messages, terms.places(lanes), np.uint8(terms.small), out))


# --- ZERO ------------------------------------------------------------------------------------------------------------


def deal_bits(small: int, bits: Bytes, streams: Sequence[Bytes]) -> Bytes:
    """The share of g that is left when the others' shares are `streams`."""
    total = bits.astype(np.int16)
    for stream in streams:
        total -= stream
    return (total % small).astype(np.uint8)


def answer_counts(
    small: int, shares: Bytes, blinds: Bytes, tests: Counts, factors: Bytes, zero: tuple[Bytes, Bytes], first: bool
) -> Bytes:
    """A member's message: s·τ_j plus zero[0] less zero[1]."""
    totals = np.zeros(tests.count, dtype=np.int64)
    kernels.count_shares(shares, blinds, tests.up, tests.down, int(first), small, totals)
    totals = totals % small * factors
    if len(zero[0]):
        totals += zero[0]
    if len(zero[1]):
        totals -= zero[1]
    return (totals % small).astype(np.uint8)


# --- SELECT ----------------------------------------------------------------------------------------------------------


def selection(field: Field, bits: Bytes, values: Residues32) -> Residues32:
    """What the server deals for SELECT: (N, 3, l) of g, gρ, (1 − g)ρ."""
    out = np.zeros((len(values), 3, field.lanes), dtype=np.uint32)
    chosen = bits.astype(bool)
    out[chosen, 0] = 1
    out[chosen, 1] = values[chosen]
    out[~chosen, 2] = values[~chosen]
    return out


def answer_selection(
    field: Field, values: Residues32, blinds: Bytes, dealt: Residues32, pad: Residues32, zero: Residues32, first: bool
) -> Residues32:
    """A member's message for SELECT, written over its zero-share."""
    primes = np.array(field.primes, dtype=np.uint64)
    kernels.select_shares(np.ascontiguousarray(values), blinds, dealt, pad, zero, primes, first)
    return zero


def negated_sum(field: Field, messages: Sequence[Residues32]) -> Residues32:
    """ρ′ = −Σ messages."""
    primes = np.array(field.primes, dtype=np.uint64)
    total = np.zeros(messages[0].shape, dtype=np.uint64)
    for message in messages:
        total += primes - message
    return (total % primes).astype(np.uint32)


def plus(field: Field, one: Residues32, two: Residues32) -> Residues32:
    """one + two, lane by lane."""
    primes = np.array(field.primes, dtype=np.uint32)
    total = one + two
    return np.where(total >= primes, total - primes, total)


def minus(field: Field, one: Residues32, two: Residues32) -> Residues32:
    """one − two, lane by lane."""
    primes = np.array(field.primes, dtype=np.uint32)
    return np.where(one >= two, one - two, one + primes - two)


def times(field: Field, factor: int, values: Residues32) -> Residues32:
    """factor·values, lane by lane."""
    primes = np.array(field.primes, dtype=np.uint64)
    factors = np.array([factor % p for p in field.primes], dtype=np.uint64)
    return (values.astype(np.uint64) * factors % primes).astype(np.uint32)


# --- picking the winners of two groups ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Crossings:
    """Pairs of groups of a row: candidates one (N, w) and two (N, w), -1 beyond a group's size, and both sizes (N, 2)."""

    rows: Index
    one: Index
    two: Index
    sizes: Index

    def forms(self, field: Field, pairs: Pairs, values: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
        """(N, w², l): this party's E of all pairs of candidates."""
        out = np.empty((len(self.rows), self.one.shape[1] ** 2, field.lanes), dtype=np.uint32)
        tables = pairs.left, pairs.right, pairs.less
        kernels.cross_forms(values, self.rows, self.one, self.two, *tables, field.prime_floats, out)
        return out


def pick(forms: npt.NDArray[np.uint32], places: Index, sizes: Index) -> npt.NDArray[np.uint32]:
    """What the server deals: (N, 2, w², l), the one-hot at its places and its forms under every turn."""
    out = np.empty((len(forms), 2, *forms.shape[1:]), dtype=np.uint32)
    kernels.turned_masks(forms, places, sizes, out)
    return out


def answer_pick(
    field: Field,
    forms: npt.NDArray[np.uint32],
    turns: Index,
    sizes: Index,
    dealt: npt.NDArray[np.uint32],
    pad: Residues32,
    zero: Residues32,
    first: bool,
) -> Residues32:
    """A member's message, written over its zero-share."""
    primes = np.array(field.primes, dtype=np.uint64)
    kernels.pick_shares(forms, turns, sizes, np.ascontiguousarray(dealt), pad, primes, first, zero)
    return zero
