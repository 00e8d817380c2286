"""Standard scaling without showing anybody's sums: what a client gives the others, and what all of them add up.

Every client sends every other one, and never the server, the count, Σx and Σx² of each of its columns (`standard`), under
masks over all clients that add up to zero (`zerosum`): only the totals over everybody can be seen, and only by clients. The
totals hold three further numbers to which everybody adds a secret uniform one. Who has not seen the totals does not know
these, so the digest of the totals, which clients compare with the server's help, tells the server nothing.

As in `confirming`, everybody commits itself first: a client that saw the others' numbers before it gives its own could choose
the mean and the deviation.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from secfc.agreement.plan import Plan
from secfc.coding import prg, summing, zerosum
from secfc.coding.field import MAX_LANES, Field, Layout, Words
from secfc.framing import framed
from secfc.kmeans.standard import Moments

FIELD = Field.of(MAX_LANES)  # 2³¹ squares of 288 bits fit
_NUMBERS = 3  # of a column


@dataclass(frozen=True)
class Totals:
    """Over all clients, of every column that is scaled; `digest` names them, and tells nothing about them."""

    moments: tuple[Moments, ...]
    digest: bytes


def purpose(session: bytes) -> bytes:
    """Names the exchange; a session has one."""
    return zerosum.purpose(b"standard scale", session)


def layout(columns: int) -> Layout:
    return Layout.uniform(FIELD, columns + 1, _NUMBERS)


def vector(
    plan: Plan, me: int, session: bytes, own: Sequence[Moments], seed: bytes, secrets: Mapping[int, bytes]
) -> Words:
    """Our numbers, masked. The same arguments give the same bytes."""
    numbers = [[one.count, one.total, one.squares] for one in own] + [[0] * _NUMBERS]
    values = FIELD.from_ints(np.array(numbers, dtype=object))
    values[:, -1:] = prg.uniform(FIELD, 1, _NUMBERS, summing.noise_seed(seed, b"scale", session))
    keys = zerosum.keys(plan, me, session, purpose(session), secrets)
    return layout(len(own)).pack(list(zerosum.covered(FIELD, values, keys)))


def added(columns: int, given: Sequence[Words]) -> Words:
    """The sum of all vectors, packed. Pre-condition: one of every client."""
    due = layout(columns)
    total = np.zeros((FIELD.lanes, due.rows, _NUMBERS))
    for words in given:
        due.unpack(words, list(total), add=True)
    return due.pack(list(total))


def totals(columns: int, session: bytes, total: Words) -> Totals:
    """What a sum of all vectors says."""
    ints = FIELD.to_ints(FIELD.unpack(total, columns + 1, _NUMBERS))[:-1]
    signed = [[x - FIELD.modulus if x > FIELD.modulus // 2 else x for x in row] for row in ints.tolist()]
    content = total.astype("<u8", copy=False).tobytes()
    digest = hashlib.sha256(framed(b"secfc/v1/scale", session, content)).digest()
    return Totals(tuple(Moments(*row) for row in signed), digest)
