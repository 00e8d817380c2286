"""Finding liars among open uploads, without keeping the uploads.

Honest uploads of N responders are, entry by entry, values of one polynomial of degree R − 1 at their N points: a codeword of
a Reed–Solomon code. While the uploads go by, the server adds up, for every responder and every column of the upload, three
combinations of the column's rows, with random factors that nobody else knows. A combination of codewords is a codeword.

**Noticing.** If the uploads are not values of one polynomial in some entry, then some parity check of that entry's column is
a non-zero vector over the rows, and a combination of it is zero for at most one in |F| of the factors (F is where they come
from: a full set of residues of the smallest prime, p > 2^20.99, different from each other modulo every prime). Three
combinations: the lie is missed with a chance of at most p⁻³ < 2⁻⁶²·⁹. This holds for any number of liars.

**Naming.** If at most ⌊(N − R)/2⌋ lie, the wrong places of a combination are found from its parity checks by
Berlekamp–Massey (the same unique answer as Berlekamp–Welch, with smaller algebra): never an honest one. Combinations in which
a lie cancels do not matter, as the others show it. If more lie, then either no such few wrong uploads explain what came, or
the liars agree on another polynomial and honest clients look like the liars; with N values nobody can tell.

**In a whole job** factors are fresh for every attempt, and a lie that is noticed costs its author the part in the job or
ends it. So at most A + 1 attempts hold lies before one could be missed, and the chance that any is missed is below
(A + 1)·2⁻⁶²·⁹, whatever the number of rounds: below 2⁻⁵⁸ for up to 28 liars.

Naming is rare, and small algebra that galois does; it is loaded then. What runs in every round is one pass over each upload
(`kernels.combine`) and a small matrix product at the end.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from secfc.coding import algebra, kernels, prg
from secfc.coding.field import Field, Layout, Residues
from secfc.coding.lagrange import Code, duals
from secfc.errors import InvalidInput, JobFailed

COMBINATIONS = 3  # of every column; the kernel is written for three
_GALOIS = threading.Lock()  # it keeps the field it computes in in global variables


class Check:
    """Sees every upload of one attempt pass, and says afterwards who lied."""

    def __init__(self, code: Code, layout: Layout, responders: Sequence[int], key: bytes | None = None) -> None:
        """`key` makes the factors; a fresh one unless a test wants to repeat them."""
        code.check_responders(responders, spare=len(responders))
        self._code, self._layout, self._responders = code, layout, tuple(responders)
        smallest = Field((min(code.field.primes),))
        self._factors = prg.uniform(smallest, layout.rows, COMBINATIONS, key)[0]
        self._sums = {j: np.zeros((COMBINATIONS, layout.row_residues)) for j in responders}

    def add(self, responder: int, start: int, flat: npt.NDArray[np.uint32]) -> None:
        """Residues `start`… of a responder's upload, valid ones, each once."""
        kernels.combine(flat, start, self._factors, self._layout.prime_floats, self._sums[responder])

    def liars(self, most: int, found: tuple[int, ...] = ()) -> tuple[int, ...]:
        """Whose uploads are wrong; nobody's, if all are values of one polynomial. Pre-condition: all uploads are in.

        `found`: who is known to lie, by another part of the uploads. Raises JobFailed if no `most` or fewer wrong uploads
        explain what came. Otherwise the rest is consistent.
        """
        if len(self._responders) < self._code.responders + 2 * most:
            raise InvalidInput(f"{most} liars cannot be told from {len(self._responders)} uploads")
        while (odd := self._inconsistent(found)) is not None:
            more = self._locate(*odd, found)
            if not more or len(found) + len(more) > most:
                raise JobFailed(
                    f"the uploads contradict each other in a way that {most} wrong ones cannot explain;"
                    " more clients lie or are broken than planned for, so no result can be trusted"
                )
            found = tuple(sorted(found + more))
        return found

    def _others(self, found: Sequence[int]) -> list[int]:
        return [j for j in self._responders if j not in found]

    def _inconsistent(self, found: Sequence[int]) -> tuple[int, list[int]] | None:
        """The lane and the parity checks of a combination that is no codeword among the others; None if all are."""
        others = self._others(found)
        values = np.stack([self._sums[j] for j in others])
        for lane, (p, width) in enumerate(zip(self._code.field.primes, self._layout.widths, strict=True)):
            begin = self._layout.offsets[lane]
            part = values[:, :, begin : begin + width].reshape(len(others), -1)
            checks = (self._parity(lane, others) @ part).astype(np.int64) % p
            odd = np.flatnonzero(checks.any(axis=0))
            if len(odd):
                return lane, [int(check) for check in checks[:, odd[0]]]
        return None

    def _locate(self, lane: int, checks: list[int], found: Sequence[int]) -> tuple[int, ...]:
        """Who is wrong in a combination with these parity checks; nobody if that cannot be told."""
        others, alphas = self._others(found), self._code.alphas[lane]
        return tuple(others[i] for i in located(self._code.field.primes[lane], [alphas[j] for j in others], checks))

    def _parity(self, lane: int, others: Sequence[int]) -> Residues:
        alphas = self._code.alphas[lane]
        return parity(self._code.field.primes[lane], tuple(alphas[j] for j in others), self._code.responders)


def liars(checks: Sequence[Check], most: int) -> tuple[int, ...]:
    """Whose uploads are wrong in some part, each of which has its check; see `Check.liars`."""
    found: tuple[int, ...] = ()
    for check in checks:
        found = check.liars(most, found)
    return found


@lru_cache(maxsize=64)
def parity(p: int, nodes: tuple[int, ...], dimension: int) -> Residues:
    """(N − dimension, N), balanced: its product with the N values of a polynomial of degree below `dimension` is zero mod p.

    Row l holds u_j·α_j^l with u_j = 1/Π_{i≠j}(α_j − α_i): Σ_j u_j f(α_j) is the coefficient of degree N − 1 of f.
    """
    row, rows = duals(p, nodes), []
    for _ in range(len(nodes) - dimension):
        rows.append(row)
        row = [u * x % p for u, x in zip(row, nodes, strict=True)]
    table = np.array(rows, dtype=np.float64).reshape(len(rows), len(nodes))
    return np.where(table > p // 2, table - p, table)


def located(p: int, nodes: Sequence[int], checks: Sequence[int]) -> tuple[int, ...]:
    """Which of the nodes' values are wrong, from their parity checks (at least one); none if that cannot be told."""
    locator, roots = _locator(p, nodes, checks)
    found = len(roots) == len(locator) - 1 <= len(checks) // 2 and _explains(p, locator, checks)
    return roots if found else ()


def _locator(p: int, nodes: Sequence[int], checks: Sequence[int]) -> tuple[list[int], tuple[int, ...]]:
    """The coefficients of Berlekamp–Massey's polynomial, highest first, and which of the nodes are its roots.

    Of parity checks s_l = Σ_j e_j·u_j·α_j^l of ν wrong values it is Π_j (z − α_j), if there are at least 2ν checks.
    """
    galois = algebra.galois()

    with _GALOIS:
        field = galois.GF(
            p, compile="python-calculate"
        )  # what numba needs to compile it takes longer than this ever runs
        locator = galois.berlekamp_massey(field(checks))
        roots = np.flatnonzero(locator(field(nodes)) == 0)
    return [int(c) for c in locator.coeffs], tuple(int(root) for root in roots)


def _explains(p: int, locator: Sequence[int], checks: Sequence[int]) -> bool:
    """Whether Σ_i c_i·s_{n−i} = 0 mod p for all n from the locator's degree on.

    galois leaves out coefficients of zero at the end, and with them the recurrence's length: 5, 0, 0, 0 has length one, but
    its polynomial comes as 1. Values at the nodes alone do not make such checks.
    """
    degree = len(locator) - 1
    return all(sum(c * checks[n - i] for i, c in enumerate(locator)) % p == 0 for n in range(degree, len(checks)))
