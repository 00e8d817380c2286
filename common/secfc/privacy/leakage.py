"""The leakage meter: how many independent directions the distances given away so far have shown the server.

**What is counted.** A column of a request gives the server ‖x_i − μ_c‖² of every row i, where μ_c is the mean of a known
group S_c. Two columns differ by −2⟨x_i, μ_c − μ_1⟩ plus a constant that does not depend on i, so once the rows are centred
the server holds their components along μ_c − μ_1; and since the groups are known, so are the inner products of these
directions with each other. Over all columns c ever answered on the same rows, whatever the round, the seeding request or
the job, it therefore knows how the rows lie in the span of the differences μ_c − μ_1: an affine hull whose dimension is the
number of *directions given away*.

**A count, not a promise.** Rows are whole numbers and distances are exact, so a full count gives the server the rows
themselves, up to the order, signs and shifts of the features (`experiments.lattice`), and far fewer directions give it
yes/no features (`experiments.yes_no`). No count is known to be safe.

**Counting without the rows.** The weights of μ_c sum to one, so that dimension is rank{1_{S_c}} − 1 for rows in general
position: the rank of the groups' 0/1 indicator vectors, which everybody knows. It never is more; rows that lie in
fewer than d dimensions are known sooner than the count says, and that cannot be seen without them. The count is of the
*linear* part of what is known. Besides, every row's distance from the span is known: at 0 directions that is a distance to
one centre, at d − 1 all but one sign for each row.
Open uploads give all this for each of the ℓ segments of a row: `segments` counts them.

**Cost.** Indicators have m entries. Each row adds random coefficients to 8 of about 1.25·(d+1) buckets, modulo the prime
2³¹ − 1; the sums of a group are its sketch, and the rank of the sketches is kept as a reduced echelon basis. A sketch never
has more rank. It has less with probability below about d/2³¹: take r rows on which the r indicators are independent.
Unless more than b of these rows share only b buckets (for 8 choices each: far below 2⁻⁶⁰), they can be matched to r distinct
buckets; the determinant there is a non-zero polynomial of degree r in the coefficients, and is zero for at most r/2³¹
of them (Schwartz-Zippel). The sketch is a function of a key: public by default, so that two parties count alike; a client
that guards against a server looking for groups with colliding sketches uses a key of its own. (Left over: 0/1 vectors that
are dependent modulo this one prime. They exist, take dozens of directions to make, and hide one.)
A step is O(8·m + k·rank·d) and nothing once everything is known; memory is 5·rank·d bytes at most.

**Assignments and inertias.** Labels tell about rows too, whatever the uploads (`experiments.labels`), and sealed rounds,
which show the server no distances, open a total inertia. `Tally` adds all three up over jobs.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import astuple, dataclass, field, replace

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from secfc.coding.sharing import segment_length
from secfc.errors import InvalidInput, Malformed
from secfc.framing import framed
from secfc.kmeans.distances import UNASSIGNED, Labels

Matrix = npt.NDArray[np.int64]
_DAMAGED = "the kept leakage count is damaged; what was given away before is unknown"

P = (1 << 31) - 1
PUBLIC_KEY = hashlib.sha256(b"secfc/v1/leakage").digest()
_BUCKETS_PER_ROW = 8
_BLOCK = 1 << 14  # rows sketched at a time: 1 MiB of keystream; 2^14 · 8 · 2^31 is exact in float64
_INNER = 1 << 11  # products of 31 and 11 bits that float64 adds exactly
_HEADER = struct.Struct("<4sQII32sI")
_MAGIC = b"SFL1"


@dataclass(frozen=True)
class Tally:
    """What the same rows have given away, over all jobs: ranks of the meter, assignments of all rows, opened inertias."""

    ranks: int = 0
    assignments: int = 0
    inertias: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.ranks + other.ranks, self.assignments + other.assignments, self.inertias + other.inertias)

    def __sub__(self, other: Tally) -> Tally:
        """What is left; never less than nothing."""
        return Tally(*(max(a - b, 0) for a, b in zip(astuple(self), astuple(other), strict=True)))

    def __or__(self, other: Tally) -> Tally:
        """The larger of both, number by number."""
        return Tally(*map(max, zip(astuple(self), astuple(other), strict=True)))

    def text(self) -> str:
        """What is no direction, for people."""
        opened = f"; inertias opened: {self.inertias}" if self.inertias else ""
        return f"assignments given away: {self.assignments}{opened}"

    def to_bytes(self) -> bytes:
        return b"%d %d %d" % astuple(self)

    @classmethod
    def from_bytes(cls, data: bytes) -> Tally:
        return cls(*map(int, data.split()))


@dataclass(frozen=True, eq=False)
class Leakage:
    """What the answers so far tell. A value: `after` gives the next one, so a client can look before it answers.

    `segments` is ℓ if uploads are open, 1 if they are masked. Secret if `key` is: it is in `to_bytes`, not in `repr`.
    """

    rows: int
    features: int
    segments: int = 1
    key: bytes = field(default=PUBLIC_KEY, repr=False)
    rank: int = 0
    _basis: Matrix = field(default_factory=lambda: np.empty((0, 0), np.int64), repr=False)
    _pivots: Matrix = field(default_factory=lambda: np.empty(0, np.int64), repr=False)

    def __post_init__(self) -> None:
        if self.rows < 1 or self.features < 1 or self.segments < 1 or len(self.key) != 32:
            raise InvalidInput("a leakage meter needs rows, features and segments of at least 1 and a 32-byte key")
        if not self._basis.size:
            object.__setattr__(self, "_basis", np.empty((0, self._width), np.int64))

    # --- reading ------------------------------------------------------------------------------------------------------

    @property
    def total(self) -> int:
        """All directions there are: d, or fewer if there are no more than d rows."""
        return sum(min(length, self.rows - 1) for length in self._lengths)

    @property
    def count(self) -> int:
        """Directions given away so far."""
        return sum(min(length, max(self.rank - 1, 0)) for length in self._lengths)

    @property
    def complete(self) -> bool:
        """Whether nothing is left to count."""
        return self.rank >= self._most

    def text(self) -> str:
        """For progress and results."""
        return f"distance directions given away: {self.count} of {self.total}"

    @property
    def _lengths(self) -> list[int]:
        length = segment_length(self.features, self.segments)
        return [min(length, self.features - u) for u in range(0, self.features, length)]

    @property
    def _most(self) -> int:
        """The rank at which all is known."""
        return min(max(self._lengths), self.rows - 1) + 1

    @property
    def _width(self) -> int:
        return self._most + self._most // 4 + 16

    # --- counting -----------------------------------------------------------------------------------------------------

    def after(self, labels: Labels, columns: Sequence[int]) -> Leakage:
        """The meter once distances of all rows to these clusters of an assignment (-1: in none) are given away."""
        if labels.shape != (self.rows,) or labels.dtype.kind not in "iu":
            raise InvalidInput(f"the meter counts assignments of {self.rows} rows, not of {labels.shape}")
        if labels.min() < UNASSIGNED:
            raise InvalidInput("labels must be cluster numbers, or -1 for none")
        if len(set(columns)) != len(columns) or min(columns, default=0) < 0:
            raise InvalidInput("columns must be distinct clusters")
        if self.complete or not columns:
            return self
        return self._with(self._sketch(labels, columns))

    def after_frozen(self, name: bytes, columns: Sequence[int]) -> Leakage:
        """The meter once distances of all rows to these clusters of *other* rows are given away; `name` is that of the
        clusters. The centres are as good as any points: each stands for a random sketch of its own, the same whenever it is
        asked for again."""
        if self.complete or not columns:
            return self
        new = np.empty((len(columns), self._width), dtype=np.int64)
        for place, column in enumerate(columns):
            key = hashlib.sha256(framed(b"secfc/v1/leakage/frozen", self.key, name, b"%d" % column)).digest()
            stream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
            new[place] = np.frombuffer(stream.update(bytes(8 * self._width)), dtype="<u8") % np.uint64(P)
        return self._with(new)

    def _with(self, new: Matrix) -> Leakage:
        """The meter with further sketches."""
        new, pivots = _echelon((new - _dot(new[:, self._pivots], self._basis)) % P)
        if not len(pivots):
            return self
        old = (self._basis - _dot(self._basis[:, pivots], new)) % P
        basis, pivots = np.concatenate([old, new]), np.concatenate([self._pivots, pivots])
        rank = min(len(pivots), self._most)
        if rank == self._most:  # nothing is left to find
            basis, pivots = basis[:0], pivots[:0]
        return replace(self, rank=rank, _basis=basis, _pivots=pivots)

    def _sketch(self, labels: Labels, columns: Sequence[int]) -> Matrix:
        """The columns' groups (columns, width): sums of their rows' random coefficients in random buckets."""
        place = np.full(max(int(labels.max()), *columns) + 2, -1, dtype=np.int64)  # the last one is label -1
        place[list(columns)] = np.arange(len(columns))
        width = self._width
        sums = np.zeros(len(columns) * width, dtype=np.int64)
        stream = Cipher(algorithms.AES(self.key), modes.CTR(bytes(16))).encryptor()
        for first in range(0, self.rows, _BLOCK):
            group = place[labels[first : first + _BLOCK]]
            words = np.frombuffer(stream.update(bytes(8 * _BUCKETS_PER_ROW * len(group))), dtype="<u4")
            drawn = words.reshape(len(group), 2, _BUCKETS_PER_ROW)[group >= 0]
            at = drawn[:, 0] % np.uint32(width) + (group[group >= 0] * width)[:, None]
            values = (drawn[:, 1] >> np.uint32(1)).astype(np.float64)
            sums += np.bincount(at.reshape(-1), values.reshape(-1), len(sums)).astype(np.int64)
            sums %= P
        return sums.reshape(len(columns), width)

    # --- keeping ------------------------------------------------------------------------------------------------------

    def to_bytes(self) -> bytes:
        """For a journal or a state folder: at most (1.25·d + 18)² bytes and a header, 56 in all once everything is known."""
        head = _HEADER.pack(_MAGIC, self.rows, self.features, self.segments, self.key, self.rank)
        rest = np.delete(self._basis, self._pivots, axis=1)  # pivot columns are the identity
        return head + self._pivots.astype("<u4").tobytes() + rest.astype("<u4").tobytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> Leakage:
        """The inverse of `to_bytes`. Raises Malformed for anything it does not make."""
        try:
            magic, rows, features, segments, key, rank = _HEADER.unpack_from(data)
            empty = cls(rows, features, segments, key)
        except (struct.error, InvalidInput):
            raise Malformed(_DAMAGED) from None
        kept = 0 if rank == empty._most else rank
        body = np.frombuffer(data[_HEADER.size : (len(data) - _HEADER.size) // 4 * 4 + _HEADER.size], dtype="<u4")
        pivots, rest = body[:kept].astype(np.int64), body[kept:].astype(np.int64)
        fits = len(data) == _HEADER.size + 4 * kept * (1 + empty._width - kept) and rank <= empty._most
        if (
            magic != _MAGIC
            or not fits
            or len(set(pivots.tolist()) & set(range(empty._width))) != kept
            or (rest >= P).any()
        ):
            raise Malformed(_DAMAGED)
        basis = np.zeros((kept, empty._width), dtype=np.int64)
        basis[:, pivots] = np.eye(kept, dtype=np.int64)
        basis[:, np.setdiff1d(np.arange(empty._width), pivots)] = rest.reshape(kept, empty._width - kept)
        return replace(empty, rank=rank, _basis=basis, _pivots=pivots)


def _dot(left: Matrix, right: Matrix) -> Matrix:
    """left @ right modulo P, for entries in [0, P): float64 products of 11 by 31 bits, exact."""
    out = np.zeros((len(left), right.shape[1]), dtype=np.int64)
    for first in range(0, left.shape[1], _INNER):
        part, factor = left[:, first : first + _INNER], right[first : first + _INNER].astype(np.float64)
        total = np.zeros_like(out)
        for shift in (22, 11, 0):
            digit = (part >> shift & (_INNER - 1)).astype(np.float64)
            total = (total * _INNER + (digit @ factor).astype(np.int64)) % P
        out = (out + total) % P
    return out


def _echelon(rows: Matrix) -> tuple[Matrix, Matrix]:
    """The reduced echelon form of a few rows modulo P, and its pivots."""
    pivots: list[int] = []
    for row in rows:  # what is done moves to the top, over rows that have been read
        done = rows[: len(pivots)]
        vector = (row - _dot(row[None, pivots], done)[0]) % P
        found = np.flatnonzero(vector)
        if not len(found):
            continue
        at = int(found[0])
        vector = vector * pow(int(vector[at]), -1, P) % P
        done[:] = (done - done[:, at, None] * vector) % P
        rows[len(pivots)] = vector
        pivots.append(at)
    return rows[: len(pivots)], np.array(pivots, dtype=np.int64)
