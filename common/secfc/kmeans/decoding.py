"""The server's part of a round, first half: add up uploads as they arrive, then undo the residues.

d′ = Σ_{u≤ℓ} φ(β_u) is a weighted sum of R uploads (`lagrange`), so nothing but the running sum is kept: memory is
O(m·k), whatever the number of clients. Masked uploads come with the weight applied, and their masks cancel in the sum.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from secfc.coding import kernels, parallel
from secfc.coding.field import Field, Residues, Words
from secfc.errors import InvalidInput, JobFailed, Malformed, OutOfTurn
from secfc.kmeans.distances import Pattern
from secfc.privacy.checking import Check


class Distances:
    """d′ of every row to every cluster, as mixed-radix digits: v = c₀ + p₀·(c₁ + p₁·(c₂ + …)).

    Digits are exact and, being non-negative, give a float64 of full relative precision without cancellation; columns of
    clusters that did not change stay from earlier rounds.
    """

    def __init__(self, field: Field, rows: int, clusters: int) -> None:
        self.field = field
        self.digits = np.zeros((field.lanes, rows, clusters), dtype=np.uint32)

    def resize(self, clusters: int) -> None:
        """Have so many columns: the first stay, others are lost or mean nothing yet."""
        before = self.digits
        if before.shape[2] != clusters:
            self.digits = np.zeros((*before.shape[:2], clusters), dtype=np.uint32)
            kept = min(before.shape[2], clusters)
            self.digits[:, :, :kept] = before[:, :, :kept]

    def integers(self, columns: Sequence[int]) -> npt.NDArray[np.object_]:
        """d′ as Python integers (rows, columns): for tests and for small things."""
        total = np.zeros((self.digits.shape[1], len(columns)), dtype=object)
        for lane in reversed(range(self.field.lanes)):
            total = total * self.field.primes[lane] + self.digits[lane][:, list(columns)].astype(object)
        return np.asarray(total, dtype=object)

    def limbs(self, sizes: npt.NDArray[np.int64]) -> int:
        """32-bit limbs that hold 9·|S|²·d′, the largest number an exact comparison meets."""
        bits = 21 * self.field.lanes + 2 * int(sizes.max(initial=1)).bit_length() + 4
        return bits // 32 + 1


class Decoder:
    """Sums the uploads of R responders to one attempt of one round.

    `weights` (L, R) are applied here for open uploads and must be None for masked ones. With a `check` there may be more
    than R open uploads: the first R are summed, all are checked. Every upload is a run of words sent in order; a chunk
    that is out of order, too long or holds a residue not below its prime is refused and changes nothing.
    """

    def __init__(
        self, shape: Pattern, responders: Sequence[int], weights: Residues | None, check: Check | None = None
    ) -> None:
        if len(set(responders)) != len(responders) or not 0 < len(responders) < 2048:
            raise InvalidInput("a round needs 1 to 2047 distinct responders")
        self.shape, self.check = shape, check
        self._received = dict.fromkeys(responders, 0)
        self._decoded = 0  # rows
        self._weights: dict[int, Residues] | None = None
        words = shape.layout.words
        if weights is None:
            self._sums = np.zeros((3, words), dtype=np.uint32)
        else:
            spread = [np.repeat(column, shape.layout.widths) for column in weights.T]
            self._weights = dict(zip(responders, spread, strict=check is None))
            self._flat = np.zeros(shape.layout.residues)

    @property
    def responders(self) -> tuple[int, ...]:
        """Whose uploads are due."""
        return tuple(self._received)

    @property
    def passed(self) -> int:
        """Rows that every responder has sent: all of them at the end, before it a multiple of ROW_GROUP (whole words)."""
        layout, words = self.shape.layout, min(self._received.values())
        if words == layout.words:
            return layout.rows
        rows = min(3 * words // layout.row_residues, layout.rows)  # the last word may hold more residues than there are
        return rows - rows % parallel.ROW_GROUP

    def missing(self) -> list[int]:
        """Responders whose upload is not complete yet."""
        return [j for j, words in self._received.items() if words < self.shape.layout.words]

    def received(self, responder: int) -> int:
        """Words that have arrived from one client; 0 for a client that is not a responder."""
        return self._received.get(responder, 0)

    def add(self, responder: int, first_word: int, words: Words) -> None:
        """Take in the next words of one responder's upload."""
        if responder not in self._received:
            raise OutOfTurn("this client is not a responder of this round's attempt")
        if first_word != self._received[responder]:
            raise Malformed(f"words from offset {self._received[responder]} are due, not from {first_word}")
        if not len(words):
            return
        layout = self.shape.layout
        if self._weights is None:
            layout.check_place(words, first_word)
            sums = self._sums[:, first_word : first_word + len(words)]
            if kernels.add_words(words, 3 * first_word, layout.primes, np.uint32(layout.ceiling), *sums) >= 0:
                raise Malformed(f"a residue after word {first_word} of an upload is not below its prime")
        else:
            self._add_open(self._weights.get(responder), responder, first_word, words)
        self._received[responder] += len(words)

    def _add_open(self, weights: Residues | None, responder: int, first_word: int, words: Words) -> None:
        layout, start = self.shape.layout, 3 * first_word
        layout.check(words, first_word)
        flat = np.empty(min(3 * len(words), layout.residues - start), dtype=np.uint32)
        kernels.unpack(words, flat)
        if weights is not None:
            kernels.add_weighted(flat, weights, start, self._flat[start : start + len(flat)])
        if self.check is not None:
            self.check.add(responder, start, flat)

    def finish(self, distances: Distances) -> None:
        """Write the decoded columns. Pre-condition: no upload is missing."""
        if self.missing():
            raise JobFailed(f"a round cannot be decoded while {len(self.missing())} uploads are missing")
        self._decode(distances, self.shape.layout.rows)

    def advance(self, distances: Distances) -> None:
        """Decode the rows that every responder has sent already, so that little is left after the last chunk.

        Only columns that were asked for are written; should the attempt fail, they are asked for again.
        """
        if self.passed - self._decoded >= parallel.block_rows(8 * self.shape.layout.row_residues):
            self._decode(distances, self.passed)

    def sums(self, first: int, end: int) -> Residues:
        """The sums of rows that are there (rows, residues a row), exact and not reduced, for sealed rounds.

        Pre-condition: `first` is a multiple of ROW_GROUP, and so is `end` unless it is the number of rows."""
        scratch = np.empty((end - first) * self.shape.layout.row_residues)
        return self._block(first, end, scratch)

    def _decode(self, distances: Distances, rows: int) -> None:
        """Residue sums to digits, from the first row not decoded yet up to `rows`."""
        layout = self.shape.layout
        block = parallel.block_rows(8 * layout.row_residues)
        start = self._decoded

        def work(first: int, end: int) -> None:
            scratch = np.empty(block * layout.row_residues)
            for a in range(start + first, start + end, block):
                b = min(a + block, start + end)
                self.shape.decode(self._block(a, b, scratch), a, distances.digits)

        if layout.residues and rows > start:
            parallel.for_row_ranges(rows - start, block, work)
        self._decoded = rows

    def _block(self, first: int, end: int, scratch: Residues) -> Residues:
        width = self.shape.layout.row_residues
        if self._weights is not None:
            return self._flat[first * width : end * width].reshape(end - first, width)
        flat = scratch[: (end - first) * width]
        kernels.interleave(*self._sums[:, first * width // 3 : -(-end * width // 3)], flat)
        return flat.reshape(end - first, width)
