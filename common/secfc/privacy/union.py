"""Private set union of row IDs (paper, Section 5): everybody learns all m IDs, nobody who brought which.

Every client writes its IDs into an invertible Bloom lookup table. An ID goes into three cells, one in each third of the
table; a cell holds (count, key, key, check): how many IDs are in it, the sums of their two numbers and the sum of their
check values, all in the field. Tables of different clients simply add up, so the clients share theirs (`summing`), and only
the sum is opened. A cell with count 1 shows its ID, which is then taken out of its two other cells, and so on: *peeling*.

What the opened sum shows. It is the table of the multiset union: a function of all IDs together, the same however they are
dealt. With IDs that all differ that is the union itself. By `summing`, the server and up to t clients learn no more: from
their view they can compute the union of the *others'* IDs, not which of the others has which.

Size. Three hashes peel completely, but for tiny tangles, from 1.222 cells per ID on; the default is 1.3 and a few spare
cells. What is left (IDs that share all their cells with each other) goes into a further table, with fresh hashes, as large
as its number, which is public, asks for: who knows all peeled IDs knows which of its own are left. Each such round depends
on the union alone.

Hash functions come from public values: the session, which no one knows before all clients have introduced themselves and
with that fixed the seeds of their IDs, the round and all IDs found so far. So nobody can choose IDs that will not peel.

Everybody holds the same `IdUnion` and computes the shape of the next table from it: the server cannot ask one client for
another table than the rest. Its `TableShape.digest` is bound into the noise and is to travel with the shares: who receives a
share for another shape than its own must refuse it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from secfc.coding import kernels, summing
from secfc.coding.field import Residues, Words
from secfc.coding.lagrange import Code
from secfc.coding.sharing import Shares
from secfc.coding.summing import Sum
from secfc.errors import InvalidInput, JobFailed, Malformed
from secfc.framing import framed
from secfc.privacy import identifiers
from secfc.privacy.identifiers import Ids

Table = npt.NDArray[np.uint32]

HASHES = 3
COLUMNS = 4  # count, key, key, check
CELLS_PER_ID = 1.3
LEAST_CELLS_PER_ID = 1.0
SPARE_CELLS = 8  # in each third, so that a few IDs peel, too
MAX_ROUNDS = 24


def union_code(clients: int, privacy: int) -> Code:
    """The code of the union: as many segments as n - t, since sums have the degree of a share, ℓ+t−1, and all n clients must
    take part anyway."""
    if not 1 <= privacy < clients:
        raise InvalidInput("a private union needs privacy of at least 1 and more clients than that")
    return Code(identifiers.FIELD, clients, clients - privacy, privacy)


@dataclass(frozen=True)
class TableShape:
    """A table everybody agrees on: `part` cells a hash, and the public context that its hash functions come from."""

    code: Code
    part: int
    context: bytes

    @classmethod
    def of(cls, code: Code, ids: int, context: bytes, cells_per_id: float = CELLS_PER_ID) -> TableShape:
        """A table for that many IDs."""
        if not LEAST_CELLS_PER_ID <= cells_per_id <= 100:
            raise InvalidInput(f"a table has {LEAST_CELLS_PER_ID} to 100 cells per ID, not {cells_per_id}")
        if not 0 <= ids < 1 << 31:
            raise InvalidInput("a table holds 0 to 2^31 - 1 IDs")
        return cls(code, int(-(-ids * cells_per_id // HASHES)) + SPARE_CELLS, context)

    @property
    def cells(self) -> int:
        return HASHES * self.part

    @property
    def rows(self) -> int:
        """Rows that are shared: ℓ cells each, one a segment; cell u·rows + i is segment u of row i."""
        return -(-self.cells // self.code.segments)

    @property
    def words(self) -> int:
        """Packed words of one share, and of one summed share."""
        return -(-self.rows * COLUMNS * self.code.field.lanes // 3)

    @cached_property
    def digest(self) -> bytes:
        """Names this table: who and what it is for, and its size."""
        code = self.code
        numbers = b"%d,%d,%d,%d" % (code.clients, code.segments, code.privacy, self.part)
        return hashlib.sha256(framed(b"secfc/v1/union-table", numbers, self.context)).digest()

    @cached_property
    def keys(self) -> npt.NDArray[np.uint64]:
        """Three hash functions and the check function."""
        return np.frombuffer(hashlib.sha256(framed(b"secfc/v1/union-hash", self.digest)).digest(), dtype="<u8")

    @cached_property
    def primes(self) -> npt.NDArray[np.uint64]:
        return np.array(self.code.field.primes, dtype=np.uint64)

    def table(self, ids: Ids) -> Table:
        """The table of these IDs, (ℓ·rows, 4·L); cells beyond the last are zero."""
        table = np.zeros((self.code.segments * self.rows, COLUMNS * self.code.field.lanes), dtype=np.uint32)
        kernels.insert_ids(np.ascontiguousarray(ids), self.keys.copy(), self.part, self.primes, table)
        return table

    def sum(self) -> Sum:
        """Where a client adds up the shares of everybody's table."""
        return Sum(self.code, self.rows, COLUMNS)

    def opened(self, sums: Mapping[int, Words]) -> Table:
        """The sum of all clients' tables, from their summed shares."""
        field = self.code.field
        residues = summing.opened(self.code, self.rows, COLUMNS, sums).reshape(field.lanes, -1, COLUMNS)
        out = np.empty((residues.shape[1], COLUMNS * field.lanes), dtype=np.uint32)
        for lane, p in enumerate(field.primes):
            kernels.canonical(residues[lane], float(p), out, COLUMNS * lane)
        return out


class TableShares(Shares):
    """One client's table, ready to be shared: the same size whatever it holds."""

    def __init__(self, shape: TableShape, ids: Ids, seed: bytes) -> None:
        noise = summing.noise_seed(seed, b"table", shape.digest, hashlib.sha256(ids.tobytes()).digest())
        super().__init__(shape.code, shape.rows, shape.code.segments * COLUMNS, noise)
        self._table = shape.table(ids).reshape(shape.code.segments, shape.rows, shape.code.field.lanes, COLUMNS)

    def _data(self, first: int, rows: int) -> Residues:
        values = self._table[:, first : first + rows].transpose(2, 0, 1, 3).astype(np.float64)
        return self.code.field.reduce(np.ascontiguousarray(values))


@dataclass(frozen=True)
class Peeled:
    """What came out of an opened table: IDs, in no order, and how many are still in it."""

    ids: Ids
    left: int


def peel(shape: TableShape, table: Table) -> Peeled:
    """Peel an opened table (it is used up). Raises JobFailed if it is no sum of honest tables, or if an ID is in it more than
    once; the error does not say which, how often or whose."""
    ids, copies, left = peeled(shape, table)
    if (copies > 1).any():
        raise JobFailed(
            "an ID is held more than once; every linked row must be held once (it is impossible to tell by whom)"
        )
    return Peeled(ids, left)


def peeled(shape: TableShape, table: Table) -> tuple[Ids, npt.NDArray[np.int64], int]:
    """The IDs that come out of an opened table (it is used up), how often each was in it, and how many entries are left.
    Raises JobFailed if it is no sum of honest tables.

    A cell with several different IDs passes for copies of one with probability below 1/(Q·part), Q ≈ 2^63: its check values
    would have to fit, and the cell be where the seeming ID belongs.
    """
    total = _check_counts(shape, table)
    most = min(shape.code.clients, min(shape.code.field.primes) - 1)
    inverses = [[pow(c, -1, p) if c else 0 for p in shape.code.field.primes] for c in range(most + 1)]
    ids, copies = np.empty((total, 2), dtype=np.uint64), np.empty(total, dtype=np.int64)
    stack, waiting = np.empty(shape.cells, dtype=np.int64), np.empty(shape.cells, dtype=np.uint8)
    factors = np.array(inverses, dtype=np.uint64)
    found = kernels.peel_ids(table, shape.keys.copy(), shape.part, shape.primes, factors, ids, copies, stack, waiting)
    left = _check_counts(shape, table)
    if int(copies[:found].sum()) + left != total:
        raise wrong()
    return ids[:found], copies[:found], left


def _check_counts(shape: TableShape, table: Table) -> int:
    """How many IDs a table holds: every third and every lane must say the same."""
    counts = table[: shape.cells, ::COLUMNS].reshape(HASHES, shape.part, -1).sum(axis=1, dtype=np.int64)
    if counts.min() != counts.max() or table[shape.cells :].any():
        raise wrong()
    if counts[0, 0] > shape.cells:
        raise JobFailed("together the clients hold more rows than the table has room for; agree on a larger max_rows")
    return int(counts[0, 0])


def wrong() -> JobFailed:
    """What to say of a sum that honest clients cannot have made."""
    return JobFailed("the clients' tables do not add up: somebody sent a wrong share; start the job again")


class IdUnion:
    """What is known to all: the IDs found so far, sorted, and the table to come. The server and every client hold one each
    and take the same steps; `limit` is the agreed largest number of rows."""

    def __init__(
        self,
        code: Code,
        session: bytes,
        limit: int,
        counted: int | None = None,
        cells_per_id: float = CELLS_PER_ID,
    ) -> None:
        """The first table is sized by the privately summed count, or without one by the public `limit`."""
        self.code, self.session, self.limit = code, session, limit
        if counted is not None:
            self._check_total(counted)
        self.round = 1
        self.left = counted  # None: not known before the first table is opened
        self.ids = identifiers.none()
        self.shape = TableShape.of(code, limit if counted is None else counted, self.digest, cells_per_id)

    @property
    def finished(self) -> bool:
        return self.left == 0

    @property
    def digest(self) -> bytes:
        """Names session, round and the IDs found so far."""
        ids = self.ids.astype("<u8").tobytes()
        return hashlib.sha256(framed(b"secfc/v1/union", b"%d" % self.round, ids, self.session)).digest()

    def learn(self, peeled: Peeled) -> None:
        """Take in what a table gave; then either all is known or `shape` is the next table's. Raises Malformed for IDs or
        numbers that no honest server sends."""
        identifiers.check(peeled.ids, self.code.field)
        ids = np.concatenate([self.ids, peeled.ids])
        ids = ids[identifiers.order(ids)]
        total = len(ids) + peeled.left
        if not identifiers.all_differ(ids) or peeled.left < 0:
            raise Malformed("the server sent an ID twice, or a negative number of IDs left")
        if self.left is not None and self.left != len(peeled.ids) + peeled.left:
            raise Malformed("the IDs found and the IDs left do not make those that were left before")
        self._check_total(total)
        if peeled.left and self.round == MAX_ROUNDS:
            raise JobFailed(f"IDs could not be separated in {MAX_ROUNDS} tables; start the job again")
        self.ids, self.left = ids, peeled.left
        self._next(peeled.left)

    def _next(self, left: int) -> None:
        """The table to come, for so many."""
        self.round += 1
        self.shape = TableShape.of(self.code, left, self.digest)

    def _check_total(self, total: int) -> None:
        if total < 1:
            raise JobFailed("no client brings a row; there is nothing to cluster")
        if total > self.limit:
            raise JobFailed(
                f"the clients hold {total} rows in all, more than max_rows = {self.limit}; agree on a larger one"
            )

    # --- a client's part --------------------------------------------------------------------------------------------------

    def contribution(self, ids: Ids, seed: bytes) -> TableShares:
        """A client's shares of the table to come: its IDs that are not known yet."""
        if self.finished:
            raise InvalidInput("the union is finished; there is no further table")
        return TableShares(self.shape, ids[identifiers.find(self.ids, ids) < 0], seed)

    def slots(self, ids: Ids) -> npt.NDArray[np.int64]:
        """Where a client's rows stand among all m. Raises JobFailed if an ID of its own is missing in the union."""
        self._check_finished()
        found = identifiers.find(self.ids, ids)
        if (found < 0).any():
            raise JobFailed("the union lacks IDs of our own: somebody sent a wrong share; start the job again")
        return found

    def _check_finished(self) -> None:
        if not self.finished:
            raise InvalidInput("the union is not finished")

    # --- what the clients confirm to each other (`confirming`) --------------------------------------------------------------

    @property
    def total(self) -> int:
        """What all clients' `brought` must make together."""
        return len(self.ids)

    def brought(self, ids: Ids) -> int:
        """How many rows of the union a client with these IDs has."""
        return len(ids)

    def complete(self, ids: Ids) -> bool:
        """Whether all these IDs are in the union."""
        return not (identifiers.find(self.ids, ids) < 0).any()
