"""Whether all clients hold shares of the same polynomials, found out before the first round.

What client j holds of row i is the value at α_j of a polynomial of degree below ℓ+t, in every lane and column: a codeword of
a Reed–Solomon code with n − ℓ − t parity checks. A broken copy, a share that was added twice or a dealer off its polynomial
would otherwise spoil the result without a word.

**The check.** Once everybody holds everything, the clients' coins are shown and give factors r_{i,c} for every row i and
repetition c, uniform in every lane. Client j computes v_{j,c} = Σ_i r_{i,c}·x̃_{i,j} (s residues per lane) and sends, for
every parity check h, h_j·v_{j,c} + mask_j with Σ_j mask_j = 0 (`zerosum`). The server adds up all n: it sees the checks
Σ_j h_j·v_{j,c} and nothing else, and they are zero if all is well.

**A miss.** If some entry is off, some check of it is a non-zero vector over the rows, and its combination is zero for one
in p of the factors; they are unknown until everything is held. With c repetitions: p⁻ᶜ, and c is such that this is below
2⁻⁴⁰.

**Naming.** Up to ⌊(n − ℓ − t)/2⌋ odd clients are found from the checks alone by Berlekamp–Massey (`checking`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from secfc.agreement.plan import Plan
from secfc.coding import kernels, prg, zerosum
from secfc.coding.blocks import Blocks
from secfc.coding.field import Field, Layout, Residues, Words
from secfc.coding.lagrange import Code
from secfc.errors import JobFailed
from secfc.framing import framed
from secfc.kmeans.coins import Coins
from secfc.privacy import checking

MISS_BITS = 40
_BLOCK = 6 * 512  # rows at a time: so many products add up exactly in float64


def repetitions(field: Field) -> int:
    """The fewest combinations with which an odd share is missed with a chance below 2⁻⁴⁰."""
    count = 1
    while min(field.primes) ** count <= 1 << MISS_BITS:
        count += 1
    return count


def checks(code: Code) -> int:
    """How many parity checks there are: n − ℓ − t. None only for a client that is alone."""
    return max(code.clients - code.segments - code.privacy, 0)


def layout(plan: Plan) -> Layout:
    """How a contribution lies on the wire: a row for every parity check; in a row all repetitions of a share."""
    return Layout.uniform(plan.field, checks(plan.code), repetitions(plan.field) * plan.length)


def purpose(plan: Plan, session: bytes, coins: Coins) -> bytes:
    """Names the check of one session; contributions and masks are bound to it."""
    return zerosum.purpose(b"verify shares", session, plan.digest, coins.seed)


# --- a client's part --------------------------------------------------------------------------------------------------


def factors(field: Field, first: int, rows: int, coins: Coins) -> Residues:
    """(L, rows, c): the factors of the rows from `first` on, a multiple of the block."""
    key = hashlib.sha256(framed(b"secfc/v1/verify-factors", coins.seed, b"%d" % first)).digest()
    return prg.uniform(field, rows, repetitions(field), key)


@dataclass(frozen=True)
class Combine:
    """The combinations of the rows of a block."""

    field: Field
    rows: int  # of all blocks
    coins: Coins

    def __call__(self, first: int, matrix: Residues) -> Residues:
        """(L, c, s), balanced."""
        lanes, rows, width = matrix.shape
        total = np.zeros((lanes, repetitions(self.field), width - 2))
        for a in range(first // _BLOCK * _BLOCK, first + rows, _BLOCK):
            every = factors(self.field, a, min(_BLOCK, self.rows - a), self.coins)
            begin, end = max(a, first), min(a + _BLOCK, first + rows)
            for lane, p in enumerate(self.field.primes):
                part = matrix[lane, begin - first : end - first, : width - 2]
                total[lane] += every[lane, begin - a : end - a].T @ part
                kernels.balance(total[lane], float(p))
        return total


def combined(coded: Blocks, coins: Coins) -> Residues:
    """(L, c, s): the combinations of all coded rows that a client holds (heavy)."""
    field = coded.field
    total = np.zeros((field.lanes, repetitions(field), coded.length))
    for found in coded.each(lambda _, __: Combine(field, coded.rows, coins)):
        total = field.reduce(total + found)
    return total


def contribution(
    plan: Plan, me: int, coded: Blocks, session: bytes, coins: Coins, secrets: Mapping[int, bytes]
) -> Words:
    """What client `me` sends (heavy): its part of every parity check, masked. The same rows give the same bytes."""
    field, wanted = plan.field, layout(plan)
    values = combined(coded, coins).reshape(field.lanes, 1, -1)
    weights = np.stack([_parity(plan.code, lane)[:, me : me + 1] for lane in range(field.lanes)])
    keys = zerosum.keys(plan, me, session, purpose(plan, session, coins), secrets)
    return wanted.pack(list(zerosum.covered(field, field.matmul(weights, values), keys)))


def _parity(code: Code, lane: int) -> Residues:
    return checking.parity(code.field.primes[lane], code.alphas[lane], code.segments + code.privacy)


# --- the server's part ------------------------------------------------------------------------------------------------


def syndromes(plan: Plan, contributions: Sequence[Words]) -> npt.NDArray[np.int64]:
    """(L, checks, c·s), in [0, p): the parity checks of all clients' combinations, from every client's contribution."""
    shape = layout(plan)
    total = np.zeros((plan.field.lanes, shape.rows, shape.widths[0]))
    for words in contributions:
        shape.unpack(words, list(total), add=True)
    return np.stack([total[lane].astype(np.int64) % p for lane, p in enumerate(plan.field.primes)])


def verify(plan: Plan, names: Sequence[str], contributions: Sequence[Words]) -> None:
    """Raise JobFailed, naming the odd ones where that can be told, unless all clients hold shares that fit together.

    Pre-condition: one contribution of every client, in roster order.
    """
    found = syndromes(plan, contributions)
    if not found.any():
        return
    why = (
        "a copy is damaged, or somebody dealt wrong shares; no round was computed; start a new job (secfc-server --new)"
    )
    if wrong := odd(plan.code, found):
        raise JobFailed(
            f"the shares held by {', '.join(names[j] for j in wrong)} do not fit those of the others: {why}"
        )
    raise JobFailed(f"the shares that the clients hold do not fit together, and whose are wrong cannot be told: {why}")


def odd(code: Code, found: npt.NDArray[np.int64]) -> tuple[int, ...]:
    """Whose values explain parity checks that are not zero; nobody if more than ⌊checks/2⌋ must be odd."""
    wrong: set[int] = set()
    for lane, p in enumerate(code.field.primes):
        while (column := _unexplained(p, [code.alphas[lane][j] for j in sorted(wrong)], found[lane])) is not None:
            more = checking.located(p, code.alphas[lane], column)
            if not set(more) - wrong or len(wrong | set(more)) > checks(code) // 2:
                return ()
            wrong |= set(more)
    return tuple(sorted(wrong))


def _unexplained(p: int, nodes: Sequence[int], found: npt.NDArray[np.int64]) -> list[int] | None:
    """The parity checks of a column that values at these nodes do not explain; None if they explain all.

    Applying Π (1 − α z) to the sequence of checks takes the parts of these nodes out of it.
    """
    rest = found
    for node in nodes:
        rest = (rest[1:] - node * rest[:-1]) % p
    at = np.flatnonzero(rest.any(axis=0))
    return [int(check) for check in found[:, at[0]]] if len(at) else None
