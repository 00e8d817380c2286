"""A client's part of the private ID alignment (paper, Section 5), before rows are shared.

    count     everybody shares how many rows it has; the sum is opened: m
    table r   everybody shares a table of its IDs that are not known yet; the sum is opened and peeled (`secfc.privacy.union`)
    slots     all m IDs are known, sorted: everybody shares all m rows, zeros where a row is not its own

Where columns are split over the clients, the IDs are those that all holders have (`secfc.privacy.intersection`), and a client
shares zeros in columns that are not its own.

Every step is a `Stage` of its own. Its name goes with every share and follows from what was opened before, so clients to
which a server told different things refuse each other's shares: what is opened is always the sum over all clients.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from secfc.agreement.plan import Plan
from secfc.coding import summing
from secfc.coding.blocks import Blocks, Packed, Spool
from secfc.coding.field import Layout, Words
from secfc.coding.sharing import Shares, SlotShares
from secfc.coding.summing import Sum
from secfc.errors import JobFailed, Malformed, OutOfTurn, WrongSender
from secfc.framing import framed
from secfc.privacy import union
from secfc.privacy.identifiers import ID_BYTES, Ids
from secfc.privacy.intersection import IdIntersection
from secfc.protocol import messages, parcels
from secfc.protocol.client.stages import Stage
from secfc.protocol.transfer import Gathered


@dataclass(frozen=True)
class OpenedSum:
    """What a sum over all clients has shown. `new`: there is a new stage with it."""

    step: int
    left: int
    ids: int
    new: bool


class UnionStages:
    """One client's machine from the roster to the slots. `share_sets` are those of the introductions."""

    def __init__(
        self,
        plan: Plan,
        me: int,
        names: Sequence[str],
        share_sets: Sequence[bytes],
        session: bytes,
        ids: Ids,
        seed: bytes,
        known: Sequence[bytes] = (),
        holders: Sequence[int] = (),
    ) -> None:
        """`known` are the digests of what an earlier process saw opened, `holders` those among whom columns are split."""
        self._plan, self._me, self._names, self._share_sets = plan, me, names, share_sets
        self._session, self._ids, self._seed = session, ids, seed
        self._holders, self._helps = len(holders), bool(holders) and me not in holders
        self._code = union.union_code(plan.wishes.clients, plan.wishes.privacy)
        self._union: union.IdUnion | None = None
        self.opened: list[bytes] = []  # digests of what was opened
        self._seen = tuple(known)
        self._arriving: tuple[bytes, Gathered] | None = None
        shares = summing.count_shares(self._code, len(ids), seed, session)
        self._begin(messages.count_context(session), shares, summing.count_sum(self._code))

    def _begin(self, context: bytes, shares: Shares, total: Sum) -> None:
        self.context, self._sum = context, total
        self.stage = self._stage(context, shares.layout, shares, total.add)

    def _stage(
        self,
        context: bytes,
        layout: Layout,
        shares: Shares,
        put: Callable[[int, Any], None],
        spool: Callable[[str], Spool] | None = None,
    ) -> Stage:
        ids = [messages.stage_id(share_set, context) for share_set in self._share_sets]
        return Stage(self._me, self._names, self._session, ids, [layout] * len(ids), shares, put, spool=spool)

    @property
    def finished(self) -> bool:
        return self._union is not None and self._union.finished

    @property
    def rows(self) -> int:
        """m, once it is known."""
        return len(self._known().ids)

    @property
    def digest(self) -> bytes:
        """Names the finished union, as we were told it."""
        return self._known().digest

    @property
    def complete(self) -> bool:
        """Whether the finished union is right as far as we know: all our IDs are in it, or all common IDs are ours."""
        return self._helps or self._known().complete(self._ids)

    @property
    def brought(self) -> int:
        """How many of its rows are ours."""
        return self._known().brought(self._ids)

    @property
    def total(self) -> int:
        """What everybody's `brought` must make together."""
        return self._known().total

    @property
    def slots(self) -> npt.NDArray[np.int64]:
        """Where our rows stand among all m; -1: not there, as some holder does not have it."""
        return self._known().slots(self._ids)

    @property
    def contribution(self) -> Callable[[], Words]:
        """What makes our part of the sum of this stage, for the server (heavy)."""
        return self._sum.words

    def sink(self, name: bytes) -> Gathered:
        """Where a piece of what was opened goes."""
        if self._arriving is None or self._arriving[0] != name:
            self._arriving = name, Gathered(self.most)
        return self._arriving[1]

    def arrived(self, name: bytes) -> OpenedSum:
        """What was opened is here whole. What is known already is compared."""
        data, self._arriving = self.sink(name).data, None
        step, left = parcels.pair_of(name)
        return OpenedSum(step, left, len(data) // ID_BYTES, self.learn(step, left, data))

    @property
    def most(self) -> int:
        """Bytes of the longest honest list of IDs."""
        return ID_BYTES * self._plan.wishes.max_rows

    def learn(self, step: int, left: int, data: bytes) -> bool:
        """What was opened; True if there is a new stage with it. What is known already is compared."""
        if left > max(self._holders, 1) * self._plan.wishes.max_rows or len(data) % ID_BYTES:
            raise Malformed("an opened sum leaves more rows than there can be, or a part of an ID")
        digest = hashlib.sha256(framed(b"secfc/v1/opened", b"%d,%d" % (step, left), data)).digest()
        for seen in (self.opened, self._seen):
            if step < len(seen) and seen[step] != digest:
                raise WrongSender("the server shows another opened sum than before; it is not honest")
        if step < len(self.opened):
            return False
        if step > len(self.opened) or self.finished:
            raise OutOfTurn("the server opens a sum that is not due")
        if self._union is None:
            self._union = self._first(left)
        else:
            ids = np.frombuffer(data, dtype="<u8").astype(np.uint64).reshape(-1, 2)
            self._union.learn(union.Peeled(ids, left))
        self.opened.append(digest)
        if not self.finished:
            shape = self._union.shape
            self._begin(shape.digest, self._union.contribution(self._ids, self._seed), shape.sum())
        return True

    def _first(self, counted: int) -> union.IdUnion:
        limit = self._plan.wishes.max_rows
        if self._holders:
            return IdIntersection(self._code, self._session, limit, counted, self._holders)
        return union.IdUnion(self._code, self._session, limit, counted)

    def rows_stage(self, rows: npt.NDArray[np.int64], coded: Blocks) -> Stage:
        """The stage that shares the rows themselves."""
        known = self._known()
        context = messages.slots_context(known.digest)
        seed = summing.noise_seed(self._seed, b"slots", context)
        slots = self.slots
        shares = SlotShares(self._plan.code, rows[slots >= 0], slots[slots >= 0], len(known.ids), seed)
        everything = slice(0, len(known.ids))

        def put(_: int, words: Words | Packed) -> None:
            coded.put(everything, words, add=True)

        return self._stage(context, shares.layout, shares, put, coded.spool)

    def _known(self) -> union.IdUnion:
        if self._union is None or not self._union.finished:
            raise JobFailed("the IDs are not aligned yet")
        return self._union
