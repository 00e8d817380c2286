"""Lagrange coding: the public points, the encoding matrix and the decoding weights, in every lane.

The polynomial of a row (paper, eq. 2) takes its ℓ segments at β₁…β_ℓ and t noise segments at β_{ℓ+1}…β_{ℓ+t};
client j gets its value at α_j. A coded distance φ(α_j) is the value of a polynomial of degree 2(ℓ+t−1), so R = 2ℓ+2t−1
of them determine it, and d′ = Σ_{u≤ℓ} φ(β_u) is a weighted sum of those R values with public weights.

All of this is a few thousand operations on Python integers: milliseconds, once a job (weights: once a responder set).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from secfc.coding.field import Field, Residues
from secfc.errors import InvalidInput, PlanError


def points(p: int, count: int, label: bytes) -> tuple[int, ...]:
    """`count` distinct non-zero residues, pseudo-random and the same for everybody.

    Not 1, 2, 3, …: at consecutive points several clients adding the same lie to their uploads could cancel in the check
    for liars, because a constant times a run of binomial coefficients is a low-degree codeword.
    """
    if count >= p:
        raise PlanError(f"{count} distinct points do not fit into the prime field of {p}")
    found: dict[int, None] = {}
    counter = 0
    while len(found) < count:
        digest = hashlib.sha256(b"secfc/v1/points|%d|%s|%d" % (p, label, counter)).digest()
        candidate = int.from_bytes(digest, "big") % p
        if candidate:
            found.setdefault(candidate)
        counter += 1
    return tuple(found)


@dataclass(frozen=True)
class Code:
    """A Lagrange code for n clients: ℓ data segments and t noise segments a row."""

    field: Field
    clients: int
    segments: int
    privacy: int

    def __post_init__(self) -> None:
        if self.segments < 1 or self.privacy < 0 or self.clients < 1:
            raise InvalidInput("a code needs at least one client, one segment and privacy ≥ 0")

    @property
    def responders(self) -> int:
        """R: how many uploads determine φ."""
        return 2 * self.segments + 2 * self.privacy - 1

    @cached_property
    def betas(self) -> tuple[tuple[int, ...], ...]:
        """β of every lane: ℓ for the data, then t for the noise."""
        return tuple(lane[: self.segments + self.privacy] for lane in self._points)

    @cached_property
    def alphas(self) -> tuple[tuple[int, ...], ...]:
        """α of every lane, one per client."""
        return tuple(lane[self.segments + self.privacy :] for lane in self._points)

    @cached_property
    def _points(self) -> tuple[tuple[int, ...], ...]:
        label = b"%d,%d,%d" % (self.clients, self.segments, self.privacy)
        count = self.segments + self.privacy + self.clients
        return tuple(points(p, count, label) for p in self.field.primes)

    @cached_property
    def encoding(self) -> Residues:
        """(L, n, ℓ+t): entry (j, u) is Π_{v≠u} (α_j − β_v)/(β_u − β_v), the coefficient in eq. 2."""
        lanes = zip(self.field.primes, self.betas, self.alphas, strict=True)
        return _balanced(self.field, [basis(p, betas, alphas) for p, betas, alphas in lanes])

    def weights(self, responders: Sequence[int]) -> Residues:
        """(L, R): w_j such that Σ_j w_j φ(α_j) = Σ_{u≤ℓ} φ(β_u), for exactly R distinct clients, in the given order."""
        return _weights(self, tuple(responders))

    def opening(self, clients: Sequence[int]) -> Residues:
        """(L, ℓ, ℓ+t): row u weighs the shares of exactly ℓ+t clients, in the given order, so that Σ_j f(α_j) = f(β_u)."""
        if not len(set(clients)) == len(clients) == self.segments + self.privacy:
            raise InvalidInput(f"exactly {self.segments + self.privacy} distinct shares open a row, not {len(clients)}")
        if not all(0 <= j < self.clients for j in clients):
            raise InvalidInput(f"a share belongs to none of the {self.clients} clients")
        lanes = zip(self.field.primes, self.betas, self.alphas, strict=True)
        rows = [basis(p, [alphas[j] for j in clients], betas[: self.segments]) for p, betas, alphas in lanes]
        return _balanced(self.field, rows)

    def check_responders(self, responders: Sequence[int], spare: int = 0) -> None:
        """Raise InvalidInput unless these are exactly R distinct clients of the roster, or up to `spare` more."""
        distinct, least = len(set(responders)), self.responders
        if len(responders) != distinct or not least <= distinct <= least + spare:
            count = f"{least} to {least + spare}" if spare else f"exactly {least}"
            raise InvalidInput(f"{count} distinct responders are needed, not {distinct}")
        if not all(0 <= j < self.clients for j in responders):
            raise InvalidInput(f"a responder is not among the {self.clients} clients")


@lru_cache(maxsize=64)
def _weights(code: Code, responders: tuple[int, ...]) -> Residues:
    code.check_responders(responders)
    rows = []
    for p, betas, alphas in zip(code.field.primes, code.betas, code.alphas, strict=True):
        at_betas = basis(p, [alphas[j] for j in responders], betas[: code.segments])
        rows.append([sum(column) % p for column in zip(*at_betas, strict=True)])
    result = _balanced(code.field, rows)
    result.flags.writeable = False
    return result


def duals(p: int, nodes: Sequence[int]) -> list[int]:
    """1/Π_{v≠u} (u − v) mod p for every node u. Pre-condition: nodes are distinct."""
    scale = []
    for i, u in enumerate(nodes):
        denominator = 1
        for j, v in enumerate(nodes):
            if i != j:
                denominator = denominator * (u - v) % p
        scale.append(pow(denominator, -1, p))
    return scale


def basis(p: int, nodes: Sequence[int], places: Sequence[int]) -> list[list[int]]:
    """Row per place x, column per node u: Π_{v≠u} (x − v)/(u − v) mod p. Pre-condition: nodes are distinct."""
    scale = duals(p, nodes)
    table = []
    for x in places:
        before, after = [1], [1]
        for v in nodes[:-1]:
            before.append(before[-1] * (x - v) % p)
        for v in reversed(nodes[1:]):
            after.append(after[-1] * (x - v) % p)
        table.append([a * b * s % p for a, b, s in zip(before, reversed(after), scale, strict=True)])
    return table


def _balanced(field: Field, lanes: Sequence[object]) -> Residues:
    out = [np.asarray(lane, dtype=np.int64) for lane in lanes]
    return np.stack([np.where(a > p // 2, a - p, a) for a, p in zip(out, field.primes, strict=True)]).astype(np.float64)
