"""Masked uploads: the server learns the sum of the uploads, which is d′, and nothing else.

Responder j uploads w_j·d̃_j + mask_j with Σ_j mask_j = 0. mask_j is a signed sum of streams, one for every neighbour of j in
a graph of the responders: both ends of an edge expand the same key, one adds, the other subtracts. The graph is
(t+1)-connected (Harary's, with the fewest edges), so that after removing any t colluding clients the rest still hangs
together, and what the server and those t see of the rest is their sum only.

An edge's key is derived from what its two ends share (`keys.pair_keys`) with `MaskContext.bound()`: session, round, attempt,
responders, assignment, columns, rows and parameters. Change any of them and every mask changes; repeat them and the upload is
byte for byte the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from secfc.errors import InvalidInput, PlanError
from secfc.privacy import keys


@dataclass(frozen=True)
class MaskContext:
    """Everything a mask is bound to; each mask is used for one such context only."""

    session: bytes
    parameters: bytes
    round: int
    attempt: int
    responders: tuple[int, ...]
    assignment: bytes
    columns: tuple[int, ...]
    rows: bytes = b""  # SHA-256 of all columns of the request and which of their rows; empty: all rows

    def bound(self) -> tuple[bytes, ...]:
        """All of it but the session, as the parts that a key is bound to."""
        some = (self.rows,) if self.rows else ()
        return (
            self.parameters,
            b"%d" % self.round,
            b"%d" % self.attempt,
            b",".join(b"%d" % j for j in self.responders),
            self.assignment,
            b",".join(b"%d" % h for h in self.columns),
            *some,
        )


def assignment_digest(labels: bytes) -> bytes:
    """What stands for an assignment in a context: SHA-256 of its int32 labels, little-endian."""
    return hashlib.sha256(b"secfc/v1/assignment|" + labels).digest()


def neighbours(position: int, responders: int, privacy: int) -> list[int]:
    """Neighbours of a position in Harary's (t+1)-connected graph on `responders` positions, ascending."""
    degree = privacy + 1
    if (responders, privacy) == (2, 0):  # no upload, but two clients' sum (`zerosum`)
        return [1 - position]
    if privacy < 1 or responders < degree + 1:
        raise PlanError(f"masked uploads need privacy >= 1 and more than {degree} responders, not {responders}")
    near = {(position + step) % responders for step in range(-(degree // 2), degree // 2 + 1)}
    if degree % 2:
        half = responders // 2
        if responders % 2 == 0:
            near.add((position + half) % responders)
        else:  # i ↔ i + half for i = 0 … half, so position `half` has one neighbour more
            if position <= half:
                near.add(position + half)
            if position >= half:
                near.add(position - half)
    near.discard(position)
    return sorted(near)


def stream_key(pair: bytes, context: MaskContext) -> bytes:
    """The AES-256 key of one edge in one context."""
    return keys.derive(pair, context.session, b"mask", *context.bound())


def signed_keys(me: int, privacy: int, context: MaskContext, pairs: Mapping[int, bytes]) -> list[tuple[bytes, int]]:
    """The keys and signs of responder `me`'s streams. `pairs[j]` is what it shares with client j (`keys.pair_keys`)."""
    order: Sequence[int] = sorted(context.responders)
    if me not in order:
        raise InvalidInput("only a responder masks an upload")
    position = order.index(me)
    signed = []
    for other in neighbours(position, len(order), privacy):
        key = stream_key(pairs[order[other]], context)
        signed.append((key, 1 if position < other else -1))
    return signed
