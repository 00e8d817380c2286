"""Arithmetic modulo Q = p₁·…·p_L, every number held as its L residues ("lanes").

Why lanes of 21-bit primes and not one large prime: balanced residues are at most 2²⁰ in magnitude, so an inner product
of up to 8192 of them is below 2⁵³ and float64 BLAS computes it *exactly*. Each lane is a prime field of its own, and
every theorem of the paper holds lane by lane; by the Chinese remainder theorem the lanes together are one number
modulo Q. A job that needs more range takes one more lane.

Representation: a *residue array* is float64 of shape (L, …), holding balanced residues. `Layout` says how residues are
packed into bytes; `prg` makes uniform ones. numba is loaded when the first array is touched, galois never.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from math import isqrt, prod
from typing import Any

import numpy as np
import numpy.typing as npt

from secfc.coding import kernels, parallel
from secfc.errors import InvalidInput, Malformed, RangeError

Residues = npt.NDArray[np.float64]
Words = npt.NDArray[np.uint64]

RESIDUE_BITS = 21
MAX_LANES = 16
CHUNK_WORDS = 1 << 17  # packed words that travel together: 1 MiB
EXACT_TERMS = 1 << 13  # products of two balanced residues that float64 adds exactly: 2^13 · 2^20 · 2^20 = 2^53


@cache  # every field asks it of all its lanes
def _is_prime(number: int) -> bool:
    return number > 1 and all(number % divisor for divisor in range(2, isqrt(number) + 1))


@cache
def lane_primes(lanes: int) -> tuple[int, ...]:
    """The `lanes` largest primes below 2²¹, largest first."""
    found: list[int] = []
    candidate = (1 << RESIDUE_BITS) - 1
    while len(found) < lanes:
        if _is_prime(candidate):
            found.append(candidate)
        candidate -= 2
    return tuple(found)


def exact_dot(left: Residues, right: Residues, p: int, out: Residues) -> None:
    """out <- left @ right of balanced residues mod p, as exact integers of magnitude at most 2⁵³, for any inner length."""
    inner = left.shape[1]
    np.dot(left[:, :EXACT_TERMS], right[:EXACT_TERMS], out=out)
    for begin in range(EXACT_TERMS, inner, EXACT_TERMS - 1):
        kernels.balance(out, float(p))
        terms = slice(begin, begin + EXACT_TERMS - 1)  # what is carried on counts as one term
        out += left[:, terms] @ right[terms]


@dataclass(frozen=True)
class Field:
    """The ring of integers modulo the product of distinct primes below 2²¹, lane by lane."""

    primes: tuple[int, ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.primes) <= MAX_LANES:
            raise RangeError(
                f"a field has 1 to {MAX_LANES} lanes, not {len(self.primes)}; lower max_rows, bound or precision"
            )
        if len(set(self.primes)) != len(self.primes):
            raise InvalidInput("the primes of a field must differ from each other")
        for p in self.primes:
            if not (2 < p < 1 << RESIDUE_BITS and _is_prime(p)):
                raise InvalidInput(f"{p} is not an odd prime below 2^{RESIDUE_BITS}")

    @classmethod
    def of(cls, lanes: int) -> Field:
        """The field that federations use: the largest primes below 2²¹."""
        if not 1 <= lanes <= MAX_LANES:
            raise RangeError(f"a field has 1 to {MAX_LANES} lanes, not {lanes}; lower max_rows, bound or precision")
        return cls(lane_primes(lanes))

    @property
    def lanes(self) -> int:
        return len(self.primes)

    @cached_property
    def modulus(self) -> int:
        """Q, the product of the primes."""
        return prod(self.primes)

    def lanes_for(self, bound: int) -> int:
        """The fewest leading lanes whose product exceeds `bound`. Raises RangeError if all of them do not."""
        product = 1
        for lanes, p in enumerate(self.primes, start=1):
            product *= p
            if product > bound:
                return lanes
        raise RangeError(f"a value of {bound.bit_length()} bits does not fit into {self.lanes} lanes")

    # --- integers in and out ------------------------------------------------------------------------------------

    def from_ints(self, values: npt.ArrayLike) -> Residues:
        """Residues of an array of integers (int64, or Python integers in an object array)."""
        array = np.asarray(values)
        if array.dtype.kind not in "iuO":
            raise InvalidInput(f"integers are needed, not {array.dtype}")
        out = np.empty((self.lanes, *array.shape))
        for lane, p in enumerate(self.primes):
            residue = (array % p).astype(np.int64)
            out[lane] = np.where(residue > p // 2, residue - p, residue)
        return out

    def to_ints(self, residues: Residues) -> npt.NDArray[np.object_]:
        """The integers in [0, Q) with these residues (Chinese remainder theorem), as Python integers."""
        self._check_lanes(residues)
        total = np.zeros(residues.shape[1:], dtype=object)
        for lane, p in enumerate(self.primes):
            rest = self.modulus // p
            factor = rest * pow(rest, -1, p)
            total = (total + residues[lane].astype(np.int64).astype(object) * factor) % self.modulus
        return np.asarray(total, dtype=object)

    @cached_property
    def garner(self) -> Residues:
        """inverses[b, a] = p_b⁻¹ mod p_a, balanced, for b < a: what mixed-radix conversion needs."""
        table = np.zeros((self.lanes, self.lanes))
        for a, p in enumerate(self.primes):
            for b in range(a):
                inverse = pow(self.primes[b], -1, p)
                table[b, a] = inverse - p if inverse > p // 2 else inverse
        return table

    @cached_property
    def prime_floats(self) -> Residues:
        return np.array(self.primes, dtype=np.float64)

    # --- arithmetic -----------------------------------------------------------------------------------------------

    def reduce(self, values: Residues) -> Residues:
        """Balance exact integers of magnitude at most 2⁵³ − 2²⁰ in place, and return them."""
        self._check_lanes(values)
        if not values.flags.c_contiguous:
            raise InvalidInput("reduce works in place and needs a contiguous array")
        for lane, p in enumerate(self.primes):
            kernels.balance(values[lane].reshape(1, -1), float(p))
        return values

    def matmul(self, left: Residues, right: Residues) -> Residues:
        """Matrix product in every lane: (L, a, s) @ (L, s, b). Exact for any s; rows of `left` are spread over threads."""
        self._check_lanes(left)
        self._check_lanes(right)
        if left.ndim != 3 or right.ndim != 3 or left.shape[2] != right.shape[1]:
            raise InvalidInput(f"shapes {left.shape} and {right.shape} do not make a matrix product")
        rows, inner, columns = left.shape[1], left.shape[2], right.shape[2]
        out = np.empty((self.lanes, rows, columns))
        block = parallel.block_rows(8 * (columns + inner))

        def work(first: int, end: int) -> None:
            for a in range(first, end, block):
                part = slice(a, min(a + block, end))
                for lane, p in enumerate(self.primes):
                    exact_dot(left[lane, part], right[lane], p, out[lane, part])
                    kernels.balance(out[lane, part], float(p))

        parallel.for_row_ranges(rows, block, work, blas=True)
        return out

    def _check_lanes(self, array: Residues) -> None:
        if array.ndim < 1 or array.shape[0] != self.lanes or array.dtype != np.float64:
            raise InvalidInput(f"a residue array of {self.lanes} lanes is needed, not {array.dtype} {array.shape}")

    # --- bytes ----------------------------------------------------------------------------------------------------

    def pack(self, residues: Residues) -> Words:
        """Residues (L, rows, columns) as words, three to a word; row by row, in a row lane by lane."""
        self._check_lanes(residues)
        layout = Layout.uniform(self, residues.shape[1], residues.shape[2])
        return layout.pack([residues[lane] for lane in range(self.lanes)])

    def unpack(self, words: Words, rows: int, columns: int) -> Residues:
        """The inverse of `pack`. Raises Malformed for a wrong length or a residue that is not below its prime."""
        out = np.empty((self.lanes, rows, columns))
        Layout.uniform(self, rows, columns).unpack(words, list(out))
        return out


@dataclass(frozen=True)
class Layout:
    """How the residues of a matrix lie in a stream: row by row, in a row lane by lane; `widths[a]` columns in lane a."""

    field: Field
    rows: int
    widths: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.widths) != self.field.lanes or min(self.widths, default=0) < 0 or self.rows < 0:
            raise InvalidInput("a layout needs a row count and one width a lane, none negative")

    @classmethod
    def uniform(cls, field: Field, rows: int, columns: int) -> Layout:
        return cls(field, rows, (columns,) * field.lanes)

    @property
    def row_residues(self) -> int:
        return sum(self.widths)

    @property
    def residues(self) -> int:
        return self.rows * self.row_residues

    @property
    def words(self) -> int:
        return -(-self.residues // 3)

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """Where each lane starts in a row."""
        return tuple(sum(self.widths[:lane]) for lane in range(self.field.lanes))

    @cached_property
    def primes(self) -> npt.NDArray[np.uint32]:
        """The prime of every residue in a row."""
        return np.repeat(np.array(self.field.primes, dtype=np.uint32), self.widths)

    @cached_property
    def prime_floats(self) -> Residues:
        """The same as float64."""
        return self.primes.astype(np.float64)

    @property
    def ceiling(self) -> int:
        """Every residue below this is valid in any lane."""
        return min(self.field.primes)

    def check(self, words: Words, first_word: int) -> None:
        """Raise Malformed unless every residue of these consecutive words is below its prime and the padding is zero."""
        self.check_place(words, first_word)
        if len(words) and kernels.first_invalid(words, 3 * first_word, self.primes, np.uint32(self.ceiling)) >= 0:
            raise Malformed(f"a residue in words {first_word} to {first_word + len(words) - 1} is not below its prime")

    def check_place(self, words: Words, first_word: int) -> None:
        """Raise Malformed unless these words fit in and the padding, if it is among them, is zero."""
        if first_word < 0 or first_word + len(words) > self.words:
            raise Malformed(f"{len(words)} words at offset {first_word} do not fit into {self.words}")
        padding = 3 * (first_word + len(words)) - self.residues
        if len(words) and padding > 0 and int(words[-1]) >> RESIDUE_BITS * (3 - padding):
            raise Malformed("a field after the last residue is not below its prime, it must be zero")

    def pack(self, lanes: Sequence[Any]) -> Words:
        """Balanced (or any exact) residue matrices, one per lane, as packed words."""
        words = np.empty(self.words, dtype=np.uint64)
        block = parallel.block_rows(4 * self.row_residues)

        def work(first: int, end: int) -> None:
            flat = np.empty((block, self.row_residues), dtype=np.uint32)
            for a in range(first, end, block):
                part = flat[: min(block, end - a)]
                for lane, p in enumerate(self.field.primes):
                    kernels.canonical(lanes[lane][a : a + len(part)], float(p), part, self.offsets[lane])
                kernels.pack(part.reshape(-1), self.slice(words, a, a + len(part)))

        parallel.for_row_ranges(self.rows, block, work)
        return words

    def unpack(self, words: Words, lanes: Sequence[Any], *, add: bool = False) -> None:
        """Checked residues into one balanced matrix a lane, or added to what is there (mod p)."""
        if len(words) != self.words:
            raise Malformed(f"{self.words} words are needed for {self.rows} rows, not {len(words)}")
        self.check(words, 0)
        block = parallel.block_rows(4 * self.row_residues)

        def work(first: int, end: int) -> None:
            flat = np.empty((block, self.row_residues), dtype=np.uint32)
            for a in range(first, end, block):
                part = flat[: min(block, end - a)]
                kernels.unpack(self.slice(words, a, a + len(part)), part.reshape(-1))
                for lane, p in enumerate(self.field.primes):
                    kernels.spread(part, self.offsets[lane], float(p), lanes[lane][a : a + len(part)], add)

        parallel.for_row_ranges(self.rows, block, work)

    def slice(self, words: Words, first_row: int, end_row: int) -> Words:
        """The words of some rows. Pre-condition: first_row is a multiple of three (or six, for masks)."""
        return words[first_row * self.row_residues // 3 : -(-end_row * self.row_residues // 3)]
