"""Clients that hold a share of every row, without a job around them: for tests of what is computed with shares."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from secfc.agreement.plan import Plan
from secfc.coding import prg
from secfc.coding.field import Words
from secfc.coding.sharing import CodedRows, ShareSet
from secfc.kmeans.coins import Coins
from secfc.kmeans.distances import CodedClusters, Labels
from secfc.privacy import centers, keys, verification

Rows = npt.NDArray[np.int64]
Tamper = Callable[[int, int, Words], Words]


class Holder:
    """One client."""

    def __init__(self, index: int, plan: Plan, rows: Rows, seed: bytes) -> None:
        self.index, self.plan = index, plan
        self.share_set = ShareSet(plan.code, rows, seed)
        self._private = X25519PrivateKey.generate()
        self.public = self._private.public_key().public_bytes_raw()
        self._parties: list[tuple[str, bytes]] = []
        self.coded = CodedRows(plan.field, 0, plan.length)

    def meet(self, publics: Sequence[bytes]) -> None:
        self._parties = [(f"client {j + 1}", public) for j, public in enumerate(publics)]

    def receive(self, total: int, shares: Sequence[tuple[slice, Words]]) -> None:
        self.coded = CodedRows(self.plan.field, total, self.plan.length)
        for where, words in shares:
            self.coded.put(where, words)
        self.coded.finish()

    def verification(self, session: bytes, coins: Coins) -> Words:
        """Its part of the check that everybody's shares fit together."""
        pairs = keys.pair_keys(self._private, session, self._parties, self.index)
        return verification.contribution(self.plan, self.index, self.coded, session, coins, pairs)

    def centers(self, labels: Labels, clusters: Sequence[int]) -> Words:
        """Its values for the centres of an assignment."""
        coded = CodedClusters(self.coded, self.plan.wishes.clusters)
        coded.assign(labels)
        return centers.values(self.plan, coded, clusters)


def share(plan: Plan, parts: Sequence[Rows], tamper: Tamper | None = None, *, fixed: bool = False) -> list[Holder]:
    """Holders of everybody's shares; `tamper(owner, receiver, shares)` may falsify some on their way. `fixed`: the same rows
    give the same shares."""
    seeds = [bytes([j + 1]) * 32 if fixed else prg.fresh_key() for j in range(len(parts))]
    holders = [Holder(j, plan, part, seeds[j]) for j, part in enumerate(parts)]
    edges = np.cumsum([0, *map(len, parts)]).tolist()
    where = [slice(a, b) for a, b in itertools.pairwise(edges)]
    for j, holder in enumerate(holders):
        holder.meet([other.public for other in holders])
        shares = [owner.share_set.shares([j])[0] for owner in holders]
        if tamper is not None:
            shares = [tamper(i, j, words) for i, words in enumerate(shares)]
        holder.receive(edges[-1], list(zip(where, shares, strict=True)))
    return holders
