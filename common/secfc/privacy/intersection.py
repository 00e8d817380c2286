"""The IDs that all holders have, where columns are split over the clients: the rows of such a job.

The machinery is that of `union`: every holder writes its IDs into a table, helpers leave theirs empty, and only the sum of
all tables is opened. An ID that c holders have is in its cells c times. So the server, which peels, sees every ID and how
many holders have it, not which; without the clients' key an ID is a random number. Unlike in a union, the IDs outside are
told to nobody: clients get the common ones alone. A holder has the key and could test guesses; from the server it learns only
which of its own rows all others have too, and by the first sum how many rows there are at all holders together.

A client therefore does not know which of its other IDs have been peeled. If some are left, it writes all that are not common
into the next table, and the server takes out of the sum what it knows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from secfc.coding.lagrange import Code
from secfc.errors import JobFailed, Malformed
from secfc.privacy import identifiers, union
from secfc.privacy.identifiers import Ids
from secfc.privacy.union import MAX_ROUNDS, IdUnion, Peeled, Table, TableShape

Copies = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Outside:
    """IDs that not all holders have, and how many have each: for the server alone."""

    ids: Ids
    copies: Copies

    @classmethod
    def none(cls) -> Outside:
        return cls(identifiers.none(), np.empty(0, dtype=np.int64))


def peel(shape: TableShape, table: Table, holders: int, known: Iterable[Outside]) -> tuple[Peeled, Outside]:
    """What is new in an opened table (it is used up), without what is known to be in it: the common IDs, and the others.
    Raises JobFailed if it is no sum of honest tables."""
    for one in known:
        _take_out(shape, table, one)
    ids, copies, left = union.peeled(shape, table)
    if (copies > holders).any():
        raise union.wrong()
    common = copies == holders
    return Peeled(ids[common], left), Outside(ids[~common], copies[~common])


def _take_out(shape: TableShape, table: Table, known: Outside) -> None:
    primes = np.repeat(shape.primes, union.COLUMNS)
    for copies in np.unique(known.copies).tolist():
        there = shape.table(known.ids[known.copies == copies]).astype(np.uint64)
        table[:] = (table + (primes - there) * np.uint64(copies)) % primes


class IdIntersection(IdUnion):
    """What is known to all: `ids` are the common IDs found so far, `left` counts entries of tables that did not come apart.
    `limit` is the agreed largest number of rows, of each holder as well as of all that are common."""

    def __init__(self, code: Code, session: bytes, limit: int, counted: int, holders: int) -> None:
        self._holders = holders
        super().__init__(code, session, limit, counted)

    @property
    def total(self) -> int:
        return self._holders * len(self.ids)

    def learn(self, peeled: Peeled) -> None:
        identifiers.check(peeled.ids, self.code.field)
        ids = np.concatenate([self.ids, peeled.ids])
        ids = ids[identifiers.order(ids)]
        if not identifiers.all_differ(ids) or peeled.left < 0:
            raise Malformed("the server sent an ID twice, or a negative number of IDs left")
        if self.left is not None and self._holders * len(peeled.ids) + peeled.left > self.left:
            raise Malformed("the IDs found and the IDs left are more than those that were left before")
        if peeled.left and self.round == MAX_ROUNDS:
            raise JobFailed(f"IDs could not be separated in {MAX_ROUNDS} tables; start the job again")
        self.ids, self.left = ids, peeled.left
        self._next(peeled.left)

    def complete(self, ids: Ids) -> bool:
        """Whether a holder of these IDs has all common ones."""
        return self.brought(ids) == len(self.ids)

    def brought(self, ids: Ids) -> int:
        return int((identifiers.find(self.ids, ids) >= 0).sum())

    def slots(self, ids: Ids) -> npt.NDArray[np.int64]:
        """Where a client's rows stand among the common ones; -1 for a row that not all holders have."""
        self._check_finished()
        return identifiers.find(self.ids, ids)

    def _check_total(self, total: int) -> None:
        if total < 1:
            raise JobFailed("no holder brings a row; there is nothing to cluster")
        if total > self._holders * self.limit:
            raise JobFailed(f"the holders have {total} rows, more than max_rows = {self.limit} each; agree on more")
