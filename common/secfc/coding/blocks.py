"""A client's shares of all rows, as blocks of rows, wherever these are held: in memory, on disk, on other machines.

Shares come in with `put`, and `finish` ends that. From then on all that is done with them is an `Operation` on every block:
sums by cluster and answers in `kmeans.blockwork`, the check of all shares in `privacy.verification`. An operation is a plain
value that knows all it needs besides the block, so it can be sent to where the block is, and made again if it is lost there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from secfc.coding.field import Field, Residues, Words

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")


class Operation(Protocol[T_co]):
    """What is computed of a block: the matrix (L, rows, s+2) of the rows from `first` on, with ‖x̃‖² and 1 in the last two
    columns. It must not keep the matrix."""

    def __call__(self, first: int, matrix: Residues) -> T_co: ...


Ask = Callable[[int, int], Operation[T] | None]


class Packed(Protocol):
    """Packed shares that need not be in memory."""

    def __len__(self) -> int:
        """Bytes in all."""
        ...

    def pieces(self, row_residues: int) -> Iterator[tuple[int, Words]]:
        """All words in order, with the first row of each piece, a multiple of `parallel.ROW_GROUP`."""
        ...


class Spool(Packed, Protocol):
    """Takes bytes of words as they arrive; `PutSpool` keeps it, whole and under its key, and after that it can be read."""

    def write(self, data: bytes | memoryview) -> None: ...

    def seal(self) -> None:
        """It is whole: put it in its place."""


class Blocks(Protocol):
    """A client's share of every one of the job's rows."""

    @property
    def field(self) -> Field: ...

    @property
    def rows(self) -> int: ...

    @property
    def length(self) -> int:
        """Residues of a share in a lane."""

    @property
    def spool(self) -> Callable[[str], Spool] | None:
        """Where shares that arrive are gathered, to be kept under a key. None: in memory. Otherwise there may be more than
        fits there, and answers are made while they are sent."""

    def put(self, rows: slice | npt.NDArray[np.int64], words: Words | Packed, *, add: bool = False) -> None:
        """Take in the packed shares of some rows; `add` sums them with what is there (several owners of a slot)."""

    def finish(self) -> None:
        """All shares are in: what is needed of every row is computed, once per job."""

    def each(self, ask: Ask[T]) -> Iterator[T]:
        """What operations find, in the order of the rows: `ask(first, end)` says which is due for that block; None for none.
        Blocks begin at multiples of `parallel.ROW_GROUP`."""
