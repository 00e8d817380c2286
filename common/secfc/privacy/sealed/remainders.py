"""Shorter comparisons: what two clusters have in common for all rows is taken off E first (docs/sealed.md, Section 4).

With n = s_a·s_b/g, all that depends on the row in E = (s_a/g)²·v_b − (s_b/g)²·v_a is a multiple of n. So E leaves the same
remainder r modulo n for every row, and F = (E − r)/n is negative exactly if E is. It has about half the bits, so often fewer
lanes. r says something about the centres and stays a split value; that takes three steps per chunk for all pairs together.

From any row: E′ = E + n²·unit is not negative, so 2E′ = Y − ρ + w·Q as whole numbers, and w = lsb(Y) ⊕ lsb(ρ), since 2E′ is
even and Q odd. T = (Y mod 2n) − (ρ mod 2n) + w·(Q mod 2n) lies in (−2n, 4n), and 2r = T − 2n + 2n·([T < 0] + [T < 2n]).
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from secfc.coding.field import Field
from secfc.privacy.sealed import steps
from secfc.privacy.sealed.messages import Talk
from secfc.privacy.sealed.sides import Side
from secfc.privacy.sealed.steps import Digits, digits_of
from secfc.privacy.sealed.streams import Residues32
from secfc.privacy.sealed.terms import Pairs, Terms, lanes_of_product, lanes_of_square

WORTH = 16  # first comparisons of a chunk per pair of clusters, from which on this is done
Numbers = npt.NDArray[np.int64]


def shortened(terms: Terms, multiples: Numbers, columns: Numbers) -> tuple[Numbers, Numbers, npt.NDArray[np.bool_]]:
    """For pairs with these n whose columns have so many lanes: λ(4n²·unit), in which r is found; λ(2n·unit), in which F is
    compared; and whether r can be found, and F takes fewer lanes than E."""
    wide, narrow = lanes_of_square(terms, multiples, 4), lanes_of_product(terms, multiples, 2 * terms.unit)
    return wide, narrow, (wide <= columns) & (narrow < lanes_of_square(terms, multiples, 2))


@dataclass(frozen=True)
class Reduction:
    """Public data: the pairs a < b that can be shortened, n and λ(4n²·unit) of each; all pairs' tables before (`plain`) and
    after (`scaled`: those of F, but for r)."""

    terms: Terms
    plain: Pairs
    scaled: Pairs
    one: Numbers
    two: Numbers
    n: Numbers
    wide: Numbers
    inverses: npt.NDArray[np.uint64]  # of n, (P, L)
    ring: Field  # in which halves of r are needed: that of the widest comparison that is left

    @classmethod
    def of(cls, terms: Terms, sizes: Numbers, plain: Pairs) -> Reduction | None:
        """None if no pair can be shortened."""
        live = np.flatnonzero(sizes > 0)
        one, two = (live[part] for part in np.triu_indices(len(live), 1))
        columns = np.zeros(len(sizes), dtype=np.int64)
        columns[live] = [terms.column_lanes(int(sizes[h])) for h in live]
        wide, narrow, fits = shortened(terms, plain.multiples[one, two], np.minimum(columns[one], columns[two]))
        if not fits.any():
            return None
        one, two, wide, narrow = one[fits], two[fits], wide[fits], narrow[fits]
        n = plain.multiples[one, two]
        inverses = np.array([[pow(x, -1, p) for p in terms.field.primes] for x in n.tolist()], dtype=np.uint64)
        scaled = _scaled(terms, plain, one, two, narrow, inverses)
        ring = terms.leading(int(scaled.lanes[np.ix_(live, live)].max()))
        return cls(terms, plain, scaled, one, two, n, wide, inverses, ring)

    def __len__(self) -> int:
        return len(self.n)

    @cached_property
    def short(self) -> Field:
        """In which T is compared: |T| and |T − 2n| are below 4n."""
        return self.terms.leading(int(lanes_of_product(self.terms, self.n, 8).max()))

    def half(self, numbers: Numbers, serves: bool) -> Residues32:
        """One end's half of public numbers: constants are added to Y."""
        primes = np.array(self.ring.primes, dtype=np.int64)
        return np.asarray(numbers[:, None] % primes * (not serves), dtype=np.uint32)

    def rest(self, own: npt.NDArray[np.uint32], serves: bool) -> tuple[Residues32, npt.NDArray[np.uint8], Numbers]:
        """Of one end's 2E′ mod Q, from its half (k, L) of a row: itself mod 2n, and its parity; and Q mod 2n."""
        rests, around = np.empty_like(self.n), np.empty_like(self.n)
        odd = np.empty(len(self), dtype=np.uint8)
        for lanes in np.unique(self.wide).tolist():
            mine = np.flatnonzero(self.wide == lanes)
            digits = digits_of(self.terms.leading(lanes), self._shifted(own, mine, lanes, serves))
            odd[mine] = digits.parity
            rests[mine], around[mine] = _modulo(digits, self.terms.field, 2 * self.n[mine])
        primes = np.array(self.ring.primes, dtype=np.int64)
        return (rests[:, None] % primes).astype(np.uint32), odd, around

    def _shifted(self, own: npt.NDArray[np.uint32], mine: Numbers, lanes: int, serves: bool) -> Residues32:
        """One end's half of E′ of some pairs."""
        one, two, n = self.one[mine], self.two[mine], self.n[mine]
        out = np.empty((len(mine), lanes), dtype=np.uint32)
        for lane, p in enumerate(self.terms.field.primes[:lanes]):
            left, right = (t[one, two, lane].astype(np.int64) for t in (self.plain.left, self.plain.right))
            e = own[two, lane] * left - own[one, lane] * right
            shift = 0 if serves else (n % p) ** 2 % p * (self.terms.unit % p)
            out[:, lane] = (e + shift) % p
        return out

    def less(self, doubled: Residues32) -> Pairs:
        """All pairs' tables at one end, given its half of 2r."""
        primes = np.array(self.ring.primes, dtype=np.uint64)
        halves = np.array([(p + 1) // 2 for p in self.ring.primes], dtype=np.uint64)  # of 1
        found = copy.copy(self.scaled)
        found.less = np.zeros_like(found.left)
        lanes = self.ring.lanes
        found.less[self.one, self.two, :lanes] = doubled * halves % primes * self.inverses[:, :lanes] % primes
        return found


def _scaled(
    terms: Terms, plain: Pairs, one: Numbers, two: Numbers, narrow: Numbers, inverses: npt.NDArray[np.uint64]
) -> Pairs:
    """The coefficients of E/n, and the lanes of F."""
    primes = np.array(terms.field.primes, dtype=np.uint64)
    found = copy.copy(plain)
    found.left, found.right, found.lanes = plain.left.copy(), plain.right.copy(), plain.lanes.copy()
    for table in (found.left, found.right):
        table[one, two] = table[one, two].astype(np.uint64) * inverses % primes
    found.lanes[one, two] = found.lanes[two, one] = narrow
    return found


def _modulo(digits: Digits, field: Field, moduli: Numbers) -> tuple[Numbers, Numbers]:
    """Numbers given by mixed-radix digits, and Q, modulo each one's modulus below 2^41."""
    total, weight = np.zeros_like(moduli), np.ones_like(moduli)
    for lane in range(digits.lanes):
        total = (total + digits.digits[lane] * weight) % moduli
        weight = weight * field.primes[lane] % moduli
    return total, weight


def shorten(side: Side, asked: Reduction, own: npt.NDArray[np.uint32]) -> Talk[Pairs]:
    """All pairs' tables at this end, from its half (k, L) of any row. Three steps."""
    ring, serves = asked.ring, side.serves
    rest, odd, around = asked.rest(own, serves)
    wrapped = yield from side.select(ring, odd, asked.half(around, serves))
    t = steps.plus(ring, rest, wrapped)
    twice = asked.half(2 * asked.n, serves)
    both = np.concatenate([t, steps.minus(ring, t, twice)])
    bits = yield from side.compare([digits_of(asked.short, both[:, : asked.short.lanes])])
    added = yield from side.select(ring, bits, np.concatenate([twice, twice]))
    more = steps.plus(ring, added[: len(asked)], added[len(asked) :])
    return asked.less(steps.minus(ring, steps.plus(ring, t, more), twice))
