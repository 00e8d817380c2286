"""The total inertia of a finished partition (docs/sealed.md, Section 8): one number is opened, its low bits blurred.

V_h = Σ_{i∈S_h} v_ih is a multiple of s_h, so W_h = V_h/s_h is exact in every lane; inertia = Σ W_h/s_h ≈ 2^−f·Σ ω_h·W_h with
ω_h = round(2^f/s_h). What is opened is Σ ω_h·W_h + ε, ε uniform in [0, 2^f): without it the low bits are an equation in
the k sums.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from secfc.coding.field import Field
from secfc.errors import PlanError
from secfc.kmeans.distances import Labels
from secfc.privacy.sealed.messages import Talk
from secfc.privacy.sealed.sides import Side, Values
from secfc.privacy.sealed.streams import Residues32
from secfc.privacy.sealed.terms import Terms

Sizes = npt.NDArray[np.int64]


def fraction_bits(field: Field, rows: int, unit: int) -> int:
    """f = min(⌊log₂(Q/(m·unit))⌋ − 2, ⌈log₂ m⌉ + 30)."""
    room = (field.modulus // (rows * unit)).bit_length() - 3
    if room < 1:
        raise PlanError("2²⁴·m²·d·(2η)² < Q fails, so no inertia can be opened; use one lane more, or ask for none")
    return min(room, (rows - 1).bit_length() + 30)


def weights(sizes: Sizes, bits: int) -> list[int]:
    """ω_h = round(2^f/s_h); 0 for an empty cluster."""
    return [((2 << bits) + size) // (2 * size) if size else 0 for size in sizes.tolist()]


def cluster_sums(terms: Terms, labels: Labels, own: Values, first: int, totals: npt.NDArray[np.uint64]) -> None:
    """Add one end's half of v_{i, label} of rows from `first` to totals (k, L); below 2^41, so not reduced."""
    mine = labels[first : first + len(own)]
    rows = np.flatnonzero(mine >= 0)
    np.add.at(totals, mine[rows], own[rows, mine[rows]].astype(np.uint64))


def common_lanes(terms: Terms, sizes: Sizes) -> Field:
    """The ring of the column with the fewest lanes."""
    return terms.leading(min(terms.column_lanes(int(size)) for size in sizes.tolist() if size))


def total(side: Side, sizes: Sizes, totals: npt.NDArray[np.uint64]) -> Talk[int | None]:
    """⌊(Σ ω_h·W_h + ε)/2^f⌋, for the server: the total within one quantised unit and a relative error of max s_h/2^{f+1}."""
    field = common_lanes(side.terms, sizes)
    bits = fraction_bits(field, side.terms.rows, side.terms.unit)
    opened = yield from blurred(side, field, sizes, totals, bits)
    return None if opened is None else opened >> bits


def blurred(side: Side, field: Field, sizes: Sizes, totals: npt.NDArray[np.uint64], bits: int) -> Talk[int | None]:
    """Σ ω_h·W_h + ε, for the server."""
    value = _weighted(field, sizes, totals, bits)
    blur = side.blur(bits)
    primes = np.array(field.primes, dtype=np.uint64)
    added = np.array([blur % p for p in field.primes], dtype=np.uint64)
    opened = yield from side.open(field, ((value + added) % primes).astype(np.uint32)[None])
    return None if opened is None else integer(field, opened[0])


def _weighted(field: Field, sizes: Sizes, totals: npt.NDArray[np.uint64], bits: int) -> npt.NDArray[np.uint64]:
    out = np.zeros(field.lanes, dtype=np.uint64)
    for lane, p in enumerate(field.primes):
        terms = zip(weights(sizes, bits), sizes.tolist(), totals[:, lane].tolist(), strict=True)
        out[lane] = sum(omega * pow(size, -1, p) * v for omega, size, v in terms if size) % p
    return out


def integer(field: Field, residues: Residues32) -> int:
    """The integer in [0, Q) with these residues."""
    rests = [field.modulus // p for p in field.primes]
    lanes = zip(residues.tolist(), rests, field.primes, strict=True)
    total: int = sum(r * rest * pow(rest, -1, p) for r, rest, p in lanes)
    return total % field.modulus
