"""Pairwise masks over all n clients that add up to zero: of what they cover, only the sum over everybody can be seen.

The same streams as in masked uploads (`masks`), for what is not an upload: round 0, which no upload has, and a purpose in the
place of the assignment keep the keys apart. The graph is Harary's (t+1)-connected one on all clients. With t = 0, where
nobody pools anything with the server, it is a ring, or one edge between two clients.

Pre-condition of every use: under one purpose a client covers one plaintext only. Whatever may make it another (session,
coins, what the server has told) belongs into the purpose, or must be compared with what was covered before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np

from secfc.agreement.plan import Plan
from secfc.coding import prg
from secfc.coding.field import Field, Residues
from secfc.framing import framed
from secfc.privacy import masks

SignedKeys = Sequence[tuple[bytes, int]]


def purpose(name: bytes, *parts: bytes) -> bytes:
    """What stands for one use: a name of its own, and all that it is bound to."""
    return hashlib.sha256(framed(b"secfc/v1/zero-sum", name, *parts)).digest()


def keys(plan: Plan, me: int, session: bytes, use: bytes, secrets: Mapping[int, bytes]) -> SignedKeys:
    """The signed keys of client `me`; none if it is alone. `secrets[j]` is what it shares with client j."""
    clients, privacy = plan.wishes.clients, plan.wishes.privacy
    if clients == 1:
        return []
    context = masks.MaskContext(session, plan.digest, 0, 0, tuple(range(clients)), use, ())
    return masks.signed_keys(me, privacy or int(clients > 2), context, secrets)


def covered(field: Field, values: Residues, signed: SignedKeys) -> Residues:
    """Balanced residues (L, rows, columns) plus the masks of these keys."""
    out = values.copy()
    for key, sign in signed:
        out += sign * prg.uniform(field, values.shape[1], values.shape[2], key)
    return field.reduce(np.ascontiguousarray(out))
