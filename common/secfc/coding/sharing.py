"""Secure data sharing (paper, Section 4.1): a row becomes one share for every client, by one matrix product.

A row of d integers is padded with zeros to ℓ segments of length s = ⌈d/ℓ⌉; t noise segments follow; client j's share is
the value at α_j of the polynomial through all of them (eq. 2), s residues in every lane.

A share set's noise is expanded from one 32-byte seed. The seed is what must be on disk before the first share leaves:
with it every share can be made again, byte for byte, so a restarted client never sends a second polynomial.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from secfc.coding import kernels, parallel, prg
from secfc.coding.blocks import Ask, Packed, T
from secfc.coding.field import EXACT_TERMS, Field, Layout, Residues, Words
from secfc.coding.lagrange import Code
from secfc.errors import InvalidInput

_BLOCK = 6 * 512


def segment_length(features: int, segments: int) -> int:
    """s = ⌈d/ℓ⌉."""
    return -(-features // segments)


class Shares:
    """Rows that are ready to be shared: how many, of how many values, and the seed of their noise. Where the values come
    from is a subclass's `_data`."""

    def __init__(self, code: Code, rows: int, features: int, seed: bytes) -> None:
        if len(seed) != prg.KEY_BYTES:
            raise InvalidInput(f"a share set's seed has {prg.KEY_BYTES} bytes")
        self.code = code
        self.rows, self.features = rows, features
        self._seed = seed
        self.length = segment_length(features, code.segments)
        self.layout = Layout.uniform(code.field, rows, self.length)

    def _data(self, first: int, rows: int) -> Residues:
        """(L, ℓ, rows, s): the data segments of a block of rows."""
        raise NotImplementedError

    @property
    def id(self) -> bytes:
        """Names these polynomials: same rows' seed and shape, same id. Tells nothing about the seed."""
        shape = b"%d,%d" % (self.rows, self.features)
        return hashlib.sha256(b"secfc/v1/share-set|" + shape + b"|" + self._seed).digest()[:16]

    def shares(self, receivers: Sequence[int]) -> list[Words]:
        """Packed shares for some clients, in the order of `receivers`. Memory: what is returned, and a block of rows."""
        out = [np.empty(self.layout.words, dtype=np.uint64) for _ in receivers]
        for a in range(0, self.rows, _BLOCK):
            rows = min(_BLOCK, self.rows - a)
            for words, block in zip(out, self._block(a, rows, receivers), strict=True):
                self.layout.slice(words, a, a + rows)[:] = block
        return out

    def pieces(self, receiver: int, first: int = 0) -> Iterator[tuple[int, Words]]:
        """Packed shares for one client from word `first` on, with the place of each piece. Memory: a block of rows."""
        per_block = Layout.uniform(self.code.field, _BLOCK, self.length).words
        for a in range(first // per_block * _BLOCK, self.rows, _BLOCK):
            [words] = self._block(a, min(_BLOCK, self.rows - a), [receiver])
            at = a // _BLOCK * per_block
            yield max(at, first), words[max(first - at, 0) :]

    def of(self, receiver: int) -> OneShare:
        """One client's share, made when it is read."""
        return OneShare(self, receiver)

    def _block(self, first: int, rows: int, receivers: Sequence[int]) -> list[Words]:
        """Packed shares of a block of rows, for each receiver."""
        field = self.code.field
        coefficients = np.ascontiguousarray(self.code.encoding[:, list(receivers)])
        encoded = field.matmul(coefficients, self._segments(first, rows))
        block = Layout.uniform(field, rows, self.length)
        values = (encoded[:, index].reshape(field.lanes, rows, self.length) for index in range(len(receivers)))
        return [block.pack(list(one)) for one in values]

    def _segments(self, first: int, rows: int) -> Residues:
        """(L, ℓ+t, rows·s): data segments, then noise segments, of a block of rows."""
        field, code, s = self.code.field, self.code, self.length
        out = np.empty((field.lanes, code.segments + code.privacy, rows, s))
        out[:, : code.segments] = self._data(first, rows)
        if code.privacy:
            out[:, code.segments :] = self._noise(first, rows)
        return out.reshape(field.lanes, code.segments + code.privacy, rows * s)

    def _noise(self, first: int, rows: int) -> Residues:
        """(L, t, rows, s): the noise segments of a block of rows, uniform in every lane."""
        t, lanes = self.code.privacy, self.code.field.lanes
        noise = prg.uniform(self.code.field, rows, t * self.length, self._block_key(first // _BLOCK))
        return noise.reshape(lanes, rows, t, self.length).transpose(0, 2, 1, 3)

    def _block_key(self, index: int) -> bytes:
        return hashlib.sha256(b"secfc/v1/noise|%d|" % index + self._seed).digest()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.rows} rows, id {self.id.hex()})"


@dataclass(frozen=True, eq=False)
class OneShare:
    """One client's packed share of a share set."""

    shares: Shares
    receiver: int

    def __len__(self) -> int:
        return 8 * self.shares.layout.words

    def pieces(self, row_residues: int) -> Iterator[tuple[int, Words]]:
        """See `blocks.Packed`."""
        for place, words in self.shares.pieces(self.receiver):
            yield 3 * place // row_residues, words


class ShareSet(Shares):
    """One client's own rows (m_j, d), as integers."""

    def __init__(self, code: Code, rows: npt.NDArray[np.int64], seed: bytes) -> None:
        super().__init__(code, len(_matrix(rows)), rows.shape[1], seed)
        self._values = rows

    def _data(self, first: int, rows: int) -> Residues:
        padded = np.zeros((rows, self.code.segments * self.length), dtype=np.int64)
        self._fill(padded[:, : self.features], first)
        segments = padded.reshape(rows, self.code.segments, self.length).transpose(1, 0, 2)
        return self.code.field.from_ints(segments)

    def _fill(self, block: npt.NDArray[np.int64], first: int) -> None:
        """Write the values of the rows from `first` on into a block of zeros."""
        block[:] = self._values[first : first + len(block)]


class SlotShares(ShareSet):
    """All m slots, with one client's rows in its own and zeros elsewhere (Section 5, eq. 4): equal in size and number
    whatever the client owns. Nothing of size m·d is ever held."""

    def __init__(
        self, code: Code, rows: npt.NDArray[np.int64], slots: npt.NDArray[np.int64], total: int, seed: bytes
    ) -> None:
        Shares.__init__(self, code, total, _matrix(rows).shape[1], seed)
        if slots.shape != (len(rows),) or len(np.unique(slots)) != len(slots):
            raise InvalidInput("every row needs a slot of its own")
        if len(slots) and not 0 <= slots.min() <= slots.max() < total:
            raise InvalidInput(f"a slot is a number from 0 to {total - 1}")
        order = np.argsort(slots)
        self._values, self._slots = rows[order], slots[order]

    def _fill(self, block: npt.NDArray[np.int64], first: int) -> None:
        a, b = np.searchsorted(self._slots, [first, first + len(block)])
        block[self._slots[a:b] - first] = self._values[a:b]


def _matrix(rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    if rows.ndim != 2 or rows.dtype.kind != "i":
        raise InvalidInput("a share set needs a matrix of quantised (integer) rows")
    return rows


class CodedRows:
    """What one client holds after sharing: its share of every one of the m rows, in row order, in memory and one block.

    The matrix of a lane has two more columns than a share: ‖x̃‖² and 1. With them a whole column of coded distances is one
    matrix product (see `distances`).
    """

    spool = None

    def __init__(self, field: Field, rows: int, length: int) -> None:
        self.field = field
        self.length = length
        self.matrix = np.zeros((field.lanes, rows, length + 2))
        self.matrix[:, :, length + 1] = 1.0

    @property
    def rows(self) -> int:
        return int(self.matrix.shape[1])

    def put(self, rows: slice | npt.NDArray[np.int64], words: Words | Packed, *, add: bool = False) -> None:
        if not isinstance(words, np.ndarray):
            raise InvalidInput("shares that are not in memory do not go there")
        target = self.matrix[:, :, : self.length]
        if isinstance(rows, slice):
            view = target[:, rows]
            Layout.uniform(self.field, view.shape[1], self.length).unpack(words, list(view), add=add)
            return
        part = np.ascontiguousarray(target[:, rows])
        Layout.uniform(self.field, len(rows), self.length).unpack(words, list(part), add=add)
        target[:, rows] = part

    def finish(self) -> None:
        add_norms(self.field, self.matrix)

    def each(self, ask: Ask[T]) -> Iterator[T]:
        operation = ask(0, self.rows)
        if operation is not None:
            yield operation(0, self.matrix)

    def __repr__(self) -> str:
        return f"CodedRows({self.rows} rows × {self.length}, {self.field.lanes} lanes)"


def add_norms(field: Field, matrix: Residues) -> None:
    """Write ‖x̃_i‖² into the last column but one of a block."""
    length = matrix.shape[2] - 2
    block = parallel.block_rows(8 * (length + 2))
    for lane, p in enumerate(field.primes):
        for a in range(0, matrix.shape[1], block):
            part = matrix[lane, a : a + block]
            part[:, length] = squared_norms(part[:, :length], p)


def squared_norms(vectors: Residues, p: int) -> Residues:
    """Balanced ‖v‖² mod p of each row of balanced residues, exact for any length."""
    total = np.zeros((1, len(vectors)))
    for begin in range(0, vectors.shape[1], EXACT_TERMS - 1):
        part = vectors[:, begin : begin + EXACT_TERMS - 1]
        total[0] += np.einsum("ij,ij->i", part, part)
        kernels.balance(total, float(p))
    return np.asarray(total[0])
