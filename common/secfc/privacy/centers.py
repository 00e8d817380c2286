"""Opening the centres (paper, Section 6): the exact means of the final clusters, with the consent of ℓ+t clients.

Client j holds μ̃_{h,j} = Σ_{i∈S_h} x̃_{i,j}, the value at α_j of a polynomial of degree ℓ+t−1 whose values at β₁ … β_ℓ are the
segments of Σ_{i∈S_h} x_i. So ℓ+t of these values give the sum, and any further one must lie on the same polynomial. With
fewer, nothing can be said about the sum (t of them are uniform).

A sum is at most |S_h|·η in magnitude, far below Q/2, so its residues determine it; divided by |S_h|·λ it is the mean of the
quantised rows, in the units of the data, rounded once.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import inf

import numpy as np
import numpy.typing as npt

from secfc.agreement.plan import Plan
from secfc.coding.field import Layout, Residues, Words
from secfc.coding.lagrange import Code, basis
from secfc.errors import InvalidInput, Malformed
from secfc.kmeans.distances import CodedClusters

Sizes = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Centers:
    """The centres of some clusters: `sums[i]` are the d exact sums of cluster `clusters[i]`, in quantised units."""

    clusters: tuple[int, ...]
    sizes: tuple[int, ...]
    sums: tuple[tuple[int, ...], ...]
    precision: int

    def means(self) -> npt.NDArray[np.float64]:
        """sum/|S_h|/λ, each the float64 nearest to the exact value."""
        scale = Fraction(2) ** -self.precision
        rows = zip(self.sums, self.sizes, strict=True)
        return np.array([[_nearest(Fraction(x, size) * scale) for x in sums] for sums, size in rows], dtype=np.float64)

    def table(self, names: Sequence[str], spread: Sequence[tuple[float, float]] = ()) -> str:
        """CSV: cluster, size (secfc_… if a feature has that name), and a column for each feature; every number is exactly
        the float64 it stands for. `spread`: (shift, unit) by which each column was scaled, which is undone."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow([*(f"secfc_{own}" if own in names else own for own in ("cluster", "size")), *names])
        means = self.means()
        if spread:
            shift, unit = np.array(spread).T
            means = means * unit + shift
        for cluster, size, row in zip(self.clusters, self.sizes, means.tolist(), strict=True):
            writer.writerow([cluster, size, *map(repr, row)])
        return out.getvalue()


def large_enough(sizes: Sizes, smallest: int) -> tuple[int, ...]:
    """Clusters of at least `smallest` rows; an empty cluster has no centre."""
    return tuple(np.flatnonzero(sizes >= max(smallest, 1)).tolist())


def rows_of_others(counts: Sizes, privacy: int) -> Sizes:
    """Of each cluster, the rows that are left without those of the t sites (at least one) that have most in it.

    `counts` is (sites, clusters). Whoever sees a sum can take its own rows out of it, and t sites may do so together; no t of
    them leave fewer rows than this, whichever they are and whatever rows they bring.
    """
    most = max(privacy, 1)
    return np.asarray(np.sort(counts, axis=0)[: max(len(counts) - most, 0)].sum(axis=0), dtype=np.int64)


def layout(plan: Plan, clusters: Sequence[int]) -> Layout:
    """How one client's values for these clusters lie in a message: one row per cluster."""
    return Layout.uniform(plan.field, len(clusters), plan.length)


def values(plan: Plan, coded: CodedClusters, clusters: Sequence[int]) -> Words:
    """One client's μ̃ of these clusters, packed: what it gives away if it consents."""
    return layout(plan, clusters).pack(list(np.ascontiguousarray(coded.sums[:, list(clusters)])))


def needed(code: Code) -> int:
    """ℓ+t: how many clients must consent."""
    return code.segments + code.privacy


def decode(
    plan: Plan, clusters: Sequence[int], sizes: Sizes, given: Mapping[int, Words]
) -> tuple[tuple[int, ...], ...]:
    """The exact sums of these clusters from the packed values of at least ℓ+t clients, by their number in the roster.

    Raises Malformed if values beyond ℓ+t do not lie on the polynomial of the others, or a sum is larger than any can be.
    """
    code, order = plan.code, sorted(given)
    if len(order) < needed(code):
        raise InvalidInput(f"values of {needed(code)} clients are needed, not of {len(order)}")
    placed = [plan.field.unpack(given[j], len(clusters), plan.length) for j in order]
    flat = np.stack(placed, axis=1).reshape(plan.field.lanes, len(order), -1)
    segments = _interpolated(code, order, flat)
    joined = segments.reshape(plan.field.lanes, code.segments, len(clusters), plan.length).transpose(0, 2, 1, 3)
    whole = plan.field.to_ints(np.ascontiguousarray(joined).reshape(plan.field.lanes, len(clusters), -1))
    modulus = plan.field.modulus
    sums = [[x - modulus if x > modulus // 2 else x for x in row] for row in whole.tolist()]
    for row, h in zip(sums, clusters, strict=True):
        padding = row[plan.wishes.features :]
        if max(map(abs, row)) > int(sizes[h]) * plan.eta or any(padding):
            raise Malformed("the clients' values for the centres do not make centres; at least one of them is wrong")
    return tuple(tuple(row[: plan.wishes.features]) for row in sums)


def _interpolated(code: Code, order: Sequence[int], flat: Residues) -> Residues:
    """(L, ℓ, …): the values at β₁ … β_ℓ, from the first ℓ+t of (L, clients, …); the other clients' values are checked."""
    least = needed(code)
    tables = []
    for p, betas, alphas in zip(code.field.primes, code.betas, code.alphas, strict=True):
        nodes, rest = [alphas[j] for j in order[:least]], [alphas[j] for j in order[least:]]
        table = np.array(basis(p, nodes, [*betas[: code.segments], *rest]), dtype=np.int64)
        tables.append(np.where(table > p // 2, table - p, table).astype(np.float64))
    found = code.field.matmul(np.stack(tables), np.ascontiguousarray(flat[:, :least]))
    primes = code.field.prime_floats[:, None, None]
    if np.mod(found[:, code.segments :] - flat[:, least:], primes).any():
        raise Malformed("the clients' values for the centres do not fit together; at least one of them is wrong")
    return found[:, : code.segments]


def _nearest(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return inf if value > 0 else -inf
