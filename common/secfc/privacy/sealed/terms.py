"""What all parties of a sealed job agree on, as the steps need it, and the guards of docs/sealed.md, Section 1."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import isqrt, log2

import numpy as np
import numpy.typing as npt

from secfc.coding.field import Field
from secfc.errors import PlanError

U = 127  # the small prime of the digit test and of counts
MOST_LANES = 11  # 11L + 1 ≤ U − 1: sums over the positions of a comparison must not wrap around
LEAST_DRAW_BITS, MOST_DRAW_BITS = 32, 64
GROUPS_FROM = 9  # candidates; fewer are compared in all pairs
_PAIRS, _SEPARATED = 2, 18  # the factor of (s_a·s_b)²·unit that a comparison needs; 9 times as much with separation
_INERTIA = 1 << 24


@dataclass(frozen=True)
class Terms:
    """Public parameters of a sealed job: the field, m, k, unit = d·(2η)², and t+1 members.

    `separation` and `inertia` say that columns must be wide enough for those steps. `draw_bits` is κ of a draw (Section 6).
    `frozen` are the sizes of the clusters if they are those of other rows (docs/protocol.md, 3b).
    """

    field: Field
    rows: int
    clusters: int
    unit: int
    members: int
    separation: bool = False
    inertia: bool = False
    draw_bits: int = MOST_DRAW_BITS
    small: int = U
    frozen: tuple[int, ...] = ()

    @property
    def clustered(self) -> int:
        """Rows of all clusters together: those of the job, or of the job that the clusters are from."""
        return sum(self.frozen) if self.frozen else self.rows

    def sizes(self, labels: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
        """Of every cluster of an assignment."""
        if self.frozen:
            return np.array(self.frozen, dtype=np.int64)
        return np.bincount(labels[labels >= 0], minlength=self.clusters).astype(np.int64)

    def leading(self, lanes: int) -> Field:
        """The ring of the first lanes."""
        return self.field if lanes == self.field.lanes else self._leading[lanes - 1]

    @cached_property
    def _leading(self) -> list[Field]:
        return [Field(self.field.primes[: lanes + 1]) for lanes in range(self.field.lanes)]

    @property
    def bits(self) -> int:
        """The width of the widest prime; mixed-radix digits are cut into base-4 digits of that many bits in all."""
        return max(self.field.primes).bit_length()

    def thresholds(self, lanes: int) -> int:
        """Values dealt per comparison: 31 a lane of 21 bits."""
        return lanes * (3 * ((self.bits + 1) // 2) - 2 * (self.bits % 2))

    def places(self, lanes: int) -> int:
        """Positions tested per comparison: 11 a lane of 21 bits, and one."""
        return lanes * ((self.bits + 1) // 2) + 1

    def column_lanes(self, size: int) -> int:
        """Lanes of a column of `size` rows that suffice whatever its partners become.

        Groups compare E of two winners without anybody knowing whose it is, so all columns have the lanes of the widest pair.
        """
        factor = _SEPARATED if self.separation else _PAIRS
        rows = self.clustered
        reach = size * (rows - size) if self.clusters < GROUPS_FROM else rows**2 // 4
        need = factor * reach**2 * self.unit
        return self.field.lanes_for(max(need, _INERTIA * rows**2 * self.unit if self.inertia else 0))

    def seed_lanes(self) -> int:
        """Lanes of the column of a k-means++ candidate."""
        return self.field.lanes_for((2 << self.draw_bits) * self.rows * self.unit)


def draw_bits(modulus: int, rows: int, unit: int) -> int:
    """κ = min(64, ⌊log₂(Q/(2m·unit))⌋): bits of a k-means++ draw. Pre-condition: the guard on k-means++ holds."""
    return min(MOST_DRAW_BITS, (modulus // (2 * rows * unit)).bit_length() - 1)


@dataclass(frozen=True)
class Wanted:
    """What a plan asks of sealed rounds; `rows` is `max_rows`."""

    rows: int
    clusters: int
    unit: int
    privacy: int
    live: int
    seeding: str
    inertia: bool = True


def required(wanted: Wanted) -> int:
    """The least bound that Q must exceed for these wishes (Section 1)."""
    return max(bound for bound, _ in bounds(wanted))


def check(field: Field, wanted: Wanted) -> None:
    """Raise PlanError that names the inequality that fails; what would fit is the plan's to say."""
    _check_counts(wanted)
    for bound, name in bounds(wanted):
        if bound >= field.modulus:
            most = f", the most that they can compare (11L + 1 ≤ {U - 1})" if field.lanes == MOST_LANES else ""
            lanes = f"L = {field.lanes} lanes have 2^{log2(field.modulus):.1f}{most}"
            raise PlanError(f"sealed uploads need {name}, but it is 2^{log2(bound):.1f}, and {lanes}")
    if field.lanes > MOST_LANES:
        raise PlanError(f"sealed uploads need 11L + 1 ≤ {U - 1}, so at most {MOST_LANES} lanes, not L = {field.lanes}")


def bounds(w: Wanted) -> list[tuple[int, str]]:
    """What Q must exceed, each with the inequality it stands in."""
    factor = _SEPARATED if w.seeding == "separation" else _PAIRS
    bounds = [(factor * (w.rows**2 // 4) ** 2 * w.unit, f"{factor}·⌊m²/4⌋²·d·(2η)² < Q")]
    if w.seeding != "random":
        bounds.append(((2 << LEAST_DRAW_BITS) * w.rows * w.unit, "2³³·m·d·(2η)² < Q"))
    if w.inertia:
        bounds.append((_INERTIA * w.rows**2 * w.unit, "2²⁴·m²·d·(2η)² < Q"))
    return bounds


def guards(field: Field, w: Wanted) -> dict[str, str]:
    """Every guard, and how near these wishes are to it."""
    room = f"2^{log2(field.modulus):.1f}"
    found = {name: f"2^{log2(bound or 1):.1f} < {room}" for bound, name in bounds(w)}
    return found | {f"L ≤ {MOST_LANES}": f"{field.lanes}", f"k ≤ {U}": f"{w.clusters}", "m < 2²⁰": f"{w.rows}"}


def _check_counts(w: Wanted) -> None:
    if w.clusters > U:
        raise PlanError(f"sealed uploads need k ≤ {U}, not k = {w.clusters}")
    if w.privacy < 1:
        raise PlanError("sealed uploads need t ≥ 1, a committee of at least two")
    if w.live < w.privacy + 1:
        raise PlanError(f"sealed uploads need t + 1 = {w.privacy + 1} live clients, not {w.live}")
    if w.rows >= 1 << 20:
        raise PlanError(f"sealed uploads need m < 2²⁰ rows, not max_rows = {w.rows}")


class Pairs:
    """Public tables of the comparisons of clusters: E = (s_a/g)²·v_b − factor·(s_b/g)²·v_a, and the lanes it needs.

    `less` is what `remainders` takes off: one end's half of a secret, and 0 where nothing is.
    """

    def __init__(self, terms: Terms, sizes: npt.NDArray[np.int64], factor: int = 1) -> None:
        sizes = np.maximum(sizes.astype(np.int64), 1)  # an empty cluster is never compared
        common = np.gcd.outer(sizes, sizes)
        scaled = (sizes[:, None] // common) ** 2  # below 2^40
        primes = np.array(terms.field.primes, dtype=np.int64)
        self.left = np.ascontiguousarray((scaled[:, :, None] % primes).astype(np.float64))
        right = scaled.T[:, :, None] % primes * factor % primes
        self.right = np.ascontiguousarray(right.astype(np.float64))
        self.less = np.zeros_like(self.left)
        self.multiples = np.multiply.outer(sizes, sizes) // common  # s_a·s_b/g
        self.lanes = np.minimum(lanes_of_square(terms, self.multiples, 2 * factor), terms.field.lanes)


def lanes_of_square(terms: Terms, values: npt.NDArray[np.int64], factor: int) -> npt.NDArray[np.int64]:
    """λ(factor·value²·unit) of every value; a lane more than the field has if that is not enough."""
    return _lanes(values, [isqrt((modulus - 1) // (factor * terms.unit)) for modulus in _moduli(terms)])


def lanes_of_product(terms: Terms, values: npt.NDArray[np.int64], factor: int) -> npt.NDArray[np.int64]:
    """λ(factor·value) of every value, likewise."""
    return _lanes(values, [(modulus - 1) // factor for modulus in _moduli(terms)])


def _moduli(terms: Terms) -> list[int]:
    return [terms.leading(lanes).modulus for lanes in range(1, terms.field.lanes + 1)]


def _lanes(values: npt.NDArray[np.int64], most: list[int]) -> npt.NDArray[np.int64]:
    """1 and the number of bounds that a value exceeds."""
    out = np.ones(values.shape, dtype=np.int64)
    for bound in most:
        out += values > min(bound, 1 << 62)
    return out
