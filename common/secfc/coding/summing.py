"""Opening a sum and nothing else: what every client shares is added up share by share, and only the total is opened.

Client i shares a matrix D_i with the encoder of `sharing`: f_i takes its segments at β₁…β_ℓ and t noise segments after
them. Client j adds the n values f_i(α_j) it got; the result is the value at α_j of F = Σ f_i, whose segments are those of Σ
D_i. F has degree ℓ+t−1, like every f_i, so ℓ+t of the n sums determine it: here ℓ may be as large as n − t, twice what a
product of shares allows, and a share is as much shorter.

What opening shows. Let C be t clients that pool all they hold with the server, H the others. Every t×t minor of the noise
block of the encoding matrix is invertible, so whatever D_h is, the shares of an h in H at C are uniform and independent. F
− Σ_C f_c has the segments Σ_H D_h and, at C, the sums of those shares; these ℓ+t values determine it. So all that C and the
server see can be made from uniform values and Σ_H D_h alone: they learn the sum over all others and nothing else.

That holds for a sum over *everybody*. The sum over some would show what those brought, so a `Sum` gives no words before all
n clients' shares are in, and each is added once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np

from secfc.coding.field import Layout, Residues, Words
from secfc.coding.lagrange import Code
from secfc.coding.sharing import ShareSet
from secfc.errors import InvalidInput, JobFailed, Malformed, OutOfTurn
from secfc.framing import framed

_BLOCK = 6 * 512


def noise_seed(seed: bytes, purpose: bytes, *context: bytes) -> bytes:
    """The noise seed of one share set. It depends on all that decides the shared values besides the client's own rows and
    `seed`, so that two different matrices are never shared with the same noise, whatever another party says."""
    return hashlib.sha256(framed(b"secfc/v1/sum-noise", purpose, *context, seed)).digest()


class Sum:
    """One client's side: the sum of its shares of everybody's matrix, its own included."""

    def __init__(self, code: Code, rows: int, length: int) -> None:
        self._layout = Layout.uniform(code.field, rows, length)
        self._total = np.zeros((code.field.lanes, rows, length))
        self._missing = set(range(code.clients))

    @property
    def missing(self) -> list[int]:
        """Clients whose share is not in yet."""
        return sorted(self._missing)

    def add(self, sender: int, words: Words) -> None:
        """Add a client's share. A second one of the same client, or a malformed one, is refused and changes nothing."""
        if sender not in self._missing:
            raise OutOfTurn(f"the share of client {sender + 1} is already in the sum")
        self._layout.unpack(words, list(self._total), add=True)
        self._missing.remove(sender)

    def words(self) -> Words:
        """The packed sum, once all n shares are in: the sum over fewer would show what those clients brought."""
        if self._missing:
            raise OutOfTurn(f"{len(self._missing)} clients' shares are missing; a partial sum is never opened")
        return self._layout.pack(list(self._total))

    def __repr__(self) -> str:
        return f"Sum({self._layout.rows} rows, {len(self._missing)} missing)"


def opened(code: Code, rows: int, length: int, sums: Mapping[int, Words]) -> Residues:
    """(L, ℓ, rows, length): the segments of Σ D_i, from the sums of at least ℓ+t clients."""
    who = sorted(sums)[: code.segments + code.privacy]
    field, weights = code.field, code.opening(who)
    layout = Layout.uniform(field, rows, length)
    for j in who:
        if len(sums[j]) != layout.words:
            raise Malformed(f"{layout.words} words are needed for a sum of {rows} rows, not {len(sums[j])}")
        layout.check(sums[j], 0)
    out = np.empty((field.lanes, code.segments, rows, length))
    for a in range(0, rows, _BLOCK):
        b = min(a + _BLOCK, rows)
        parts = [field.unpack(layout.slice(sums[j], a, b), b - a, length).reshape(field.lanes, -1) for j in who]
        out[:, :, a:b] = field.matmul(weights, np.stack(parts, axis=1)).reshape(field.lanes, -1, b - a, length)
    return out


# --- a privately summed count -----------------------------------------------------------------------------------------


def count_shares(code: Code, count: int, seed: bytes, session: bytes) -> ShareSet:
    """A client's number of rows, to be shared with all: one word a recipient."""
    if not 0 <= count < 1 << 31:
        raise InvalidInput("a client holds 0 to 2^31 - 1 rows")
    return ShareSet(code, np.array([[count]], dtype=np.int64), noise_seed(seed, b"count", session, b"%d" % count))


def count_sum(code: Code) -> Sum:
    """Where a client adds up the shares of the counts."""
    return Sum(code, 1, 1)


def opened_count(code: Code, sums: Mapping[int, Words]) -> int:
    """How many rows all clients hold together. Raises JobFailed if what was opened is no such number."""
    found = opened(code, 1, 1, sums)[:, :, 0, 0]
    total = int(code.field.to_ints(found[:, :1])[0])
    if found[:, 1:].any() or total >= code.clients << 31:
        raise JobFailed("the clients' counts do not add up: somebody sent a wrong share; start the job again")
    return total
