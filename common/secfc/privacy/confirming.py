"""The clients confirm the union of IDs to each other, so that a server that changed it learns nothing from who objects.

A server that leaves out one ID could see whose it was if its owner alone broke off. So the owner does not: every client sends
every other one, and never the server, the digest of the union as it was told and two masked numbers,

    how many rows it has, and 0 if all its IDs are in the union, else a secret number that is not 0 in any lane,

with masks over all clients that add up to zero (`zerosum`). Everybody adds up all n. All go on if all digests are equal,
the first sum is the number of IDs and the second is 0; otherwise all break off with the same words. What a client sends
before that, when and to whom, is the same whoever owns which ID, and the sums are the same for everybody.

Nobody may choose its numbers after it has seen the others': a client that conspires with the server would make the sums come
out right, and the owner alone would break off. So each first sends a commitment to its numbers, and opens it when it has the
commitments of all.

IDs left out or exchanged make the second sum another than 0 (but for a chance of 1/Q, Q ≈ 2⁶³, if several owners' numbers
cancel; then an owner notices by itself). IDs added make the first sum smaller than the number of IDs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np

from secfc.agreement.plan import Plan
from secfc.coding import prg, summing, zerosum
from secfc.coding.field import Field, Layout, Residues, Words
from secfc.framing import framed
from secfc.privacy import identifiers

DISPUTED = (
    "the clients do not agree on the list of row IDs, so the server or a client does not keep to the protocol; all clients"
    " break off, and none says more; start a new job (secfc-server --new)"
)
FIELD: Field = identifiers.FIELD
LAYOUT = Layout.uniform(FIELD, 1, 2)


def vector(
    plan: Plan,
    me: int,
    session: bytes,
    digest: bytes,
    rows: int,
    complete: bool,
    seed: bytes,
    secrets: Mapping[int, bytes],
) -> Words:
    """Our two numbers, masked. The same arguments give the same bytes, and the same work is done either way."""
    alarm = _not_zero(summing.noise_seed(seed, b"confirm", session, digest))
    values = FIELD.from_ints(np.array([[rows, 0]]))
    values[:, 0, 1] = np.where(complete, 0.0, alarm)
    keys = zerosum.keys(plan, me, session, zerosum.purpose(b"confirm union", session, digest), secrets)
    return LAYOUT.pack(list(zerosum.covered(FIELD, values, keys)))


def commitment(sender: int, session: bytes, digest: bytes, words: Words) -> bytes:
    """Binds a client, by its number, to what it will say. It hides that, as masks are as good as random."""
    content = words.astype("<u8", copy=False).tobytes()
    return hashlib.sha256(framed(b"secfc/v1/confirmation", b"%d" % sender, session, digest, content)).digest()


def _not_zero(key: bytes) -> Residues:
    """A uniform residue other than 0 in every lane, up to a chance of 2⁻¹⁶⁰ for another distribution."""
    drawn = prg.uniform(FIELD, 1, 8, key)[:, 0]
    found = [next((value for value in lane if value), 1.0) for lane in drawn.tolist()]
    return np.array(found)


def agree(rows: int, given: Sequence[Words]) -> bool:
    """Whether the union that all clients were told is theirs: `rows` IDs. Pre-condition: one vector of every client."""
    total = np.zeros((FIELD.lanes, 1, 2))
    for words in given:
        LAYOUT.unpack(words, list(total), add=True)
    return bool((total == FIELD.from_ints(np.array([[rows, 0]]))).all())
