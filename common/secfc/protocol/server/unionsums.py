"""The server's part of the private ID alignment, as a machine of its own: gather one sum, open it, tell everybody, again.

A step is the count of rows or a table of IDs (`privacy.union`). Every client gives its share of the sum over *all* clients;
when all n are here, `take_work` hands out the opening, and `complete` takes the result back. All n shares are needed to open
a sum, and each is named after what was opened before. Clients are numbers here, their positions in the roster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from secfc.agreement.plan import Plan
from secfc.coding import summing
from secfc.coding.field import Layout, Words
from secfc.coding.lagrange import Code
from secfc.errors import JobFailed, Malformed, OutOfTurn
from secfc.kmeans.distances import Labels
from secfc.privacy import identifiers, intersection, union
from secfc.privacy.identifiers import Ids
from secfc.privacy.intersection import IdIntersection, Outside
from secfc.protocol import messages
from secfc.protocol.server.sums import Parts
from secfc.protocol.transfer import GatheredWords


@dataclass(frozen=True)
class Shown:
    """What an opened sum shows: IDs, and how many are left. For the count, step 0: no IDs, and all rows are left."""

    left: int
    ids: Ids
    outside: Outside = field(default_factory=Outside.none)  # where columns are split: for us alone


@dataclass(frozen=True)
class Opening:
    """The heavy part of a step, to be run on a thread."""

    code: Code
    shape: union.TableShape | None  # None: the count
    sums: Sequence[Words]
    holders: int = 0  # among whom columns are split
    known: Sequence[Outside] = ()

    def run(self) -> Shown:
        if self.shape is None:
            return Shown(summing.opened_count(self.code, dict(enumerate(self.sums))), identifiers.none())
        table = self.shape.opened(dict(enumerate(self.sums)))
        if not self.holders:
            peeled = union.peel(self.shape, table)
            return Shown(peeled.left, peeled.ids)
        peeled, outside = intersection.peel(self.shape, table, self.holders, self.known)
        return Shown(peeled.left, peeled.ids, outside)


class UnionSums:
    """See the module's docstring."""

    def __init__(self, plan: Plan, session: bytes, holders: int = 0) -> None:
        """`holders`: how many clients columns are split over, if they are; rows are then the IDs that all of these have."""
        self._plan, self._session, self._holders = plan, session, holders
        self._code = union.union_code(plan.wishes.clients, plan.wishes.privacy)
        self._union: union.IdUnion | None = None
        self._parts = self._due()
        self.opened: list[Shown] = []

    @property
    def finished(self) -> bool:
        return self._union is not None and self._union.finished

    @property
    def step(self) -> int:
        """Which sum is due: 0 for the count, then table by table."""
        return len(self.opened)

    @property
    def rows(self) -> int:
        """m, as far as it is known."""
        if self._holders and self._union is not None:
            return len(self._union.ids)
        return self.opened[0].left if self.opened else 0

    @property
    def context(self) -> bytes:
        """Names the sum that is due."""
        return self._union.shape.digest if self._union is not None else messages.count_context(self._session)

    def held(self, share_sets: Sequence[bytes]) -> list[bytes]:
        """Names of the shares of rows, once the slots are known."""
        if self._union is None or not self._union.finished:
            raise OutOfTurn("nobody can hold everybody's rows before their slots are known")
        context = messages.slots_context(self._union.digest)
        return [messages.stage_id(share_set, context) for share_set in share_sets]

    def missing(self) -> list[int]:
        """Whose part of the sum is not complete."""
        return [] if self.finished else self._parts.missing()

    def sink(self, client: int) -> GatheredWords | None:
        """Where a client's part of the sum that is due goes."""
        return None if self.finished else self._parts.sink(client)

    def take_work(self) -> Opening | None:
        """The opening of the sum that is due, once every client's part is here; handed out once."""
        parts = None if self.finished else self._parts.take()
        if parts is None:
            return None
        shape = self._union.shape if self._union is not None else None
        return Opening(self._code, shape, parts, self._holders, [one.outside for one in self.opened])

    def complete(self, result: Shown) -> None:
        """A sum is open: what comes next follows from it. Raises JobFailed if that cannot be."""
        if self._union is None:
            self._union = self._first(result.left)
        else:
            self._union.learn(union.Peeled(result.ids, result.left))
            if self._union.finished:
                self._check(self._union)
        self.opened.append(result)
        self._parts = self._due()

    def _first(self, counted: int) -> union.IdUnion:
        wishes = self._plan.wishes
        if self._holders:
            return IdIntersection(self._code, self._session, wishes.max_rows, counted, self._holders)
        if counted < wishes.clusters:
            raise JobFailed(f"{counted} rows in all cannot make k = {wishes.clusters} clusters")
        return union.IdUnion(self._code, self._session, wishes.max_rows, counted)

    def _check(self, found: union.IdUnion) -> None:
        """All IDs are known."""
        rows, k = len(found.ids), self._plan.wishes.clusters
        if not self._holders and rows != self.rows:
            raise JobFailed("the clients' IDs are not as many as their rows: somebody sent a wrong share; start again")
        if rows < k:
            raise JobFailed(
                f"{rows or 'no'} rows have an ID that all {self._holders} holders have, and k = {k} needs as many; see that"
                " --id names the same kind of ID at every holder, written alike, and that all have the same link.key"
            )

    def labels(self, ids: Ids, labels: Labels) -> Labels:
        """The clusters of some rows. Raises Malformed for IDs that are not of this job."""
        if self._union is None or not self._union.finished:
            raise OutOfTurn("the IDs are not aligned yet")
        at = identifiers.find(self._union.ids, ids)
        if (at < 0).any() or len(np.unique(at)) != len(at):
            raise Malformed("a published ID does not belong to this job, or occurs twice")
        return labels[at]

    def _due(self) -> Parts:
        """Where the shares of the next sum arrive."""
        shape = (1, 1) if self._union is None else (self._union.shape.rows, union.COLUMNS)
        return Parts(Layout.uniform(self._code.field, *shape), self._plan.wishes.clients)
