"""Linear algebra modulo a prime below 2²¹, as much as the attacks need: exact, quick for hundreds of unknowns."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.int64]


class Echelon:
    """Equations in reduced echelon form, taken one at a time."""

    def __init__(self, unknowns: int, p: int) -> None:
        self.p, self.unknowns = p, unknowns
        self._rows = np.zeros((unknowns, unknowns), dtype=np.int64)
        self.pivots: list[int] = []

    def reduced(self, equation: Matrix) -> Matrix:
        """What is left of an equation after those taken before."""
        rows = self._rows[: len(self.pivots)]
        left: Matrix = (equation - equation[self.pivots] @ rows) % self.p
        return left

    def take(self, left: Matrix) -> None:
        """Add an equation that is reduced and not zero."""
        at, rank = int(np.flatnonzero(left)[0]), len(self.pivots)
        left = left * pow(int(left[at]), -1, self.p) % self.p
        rows = self._rows[:rank]
        rows[:] = (rows - rows[:, at, None] * left) % self.p
        self._rows[rank] = left
        self.pivots.append(at)

    def solutions(self) -> Matrix:
        """A basis of what satisfies all equations: (dimension, unknowns)."""
        free = np.setdiff1d(np.arange(self.unknowns), self.pivots)
        out = np.zeros((len(free), self.unknowns), dtype=np.int64)
        out[np.arange(len(free)), free] = 1
        out[:, self.pivots] = (-self._rows[: len(self.pivots), free].T) % self.p
        return out


def null_space(equations: Matrix, p: int, dimension: int = 0) -> tuple[Matrix, int]:
    """A basis of the solutions of equations · x = 0, and how many equations contradicted the rest.

    An equation that would leave fewer than `dimension` solutions is not taken, but counted.
    """
    echelon, refused = Echelon(equations.shape[1], p), 0
    for equation in equations:
        left = echelon.reduced(equation)
        if not left.any():
            continue
        if len(echelon.pivots) + dimension == echelon.unknowns:
            refused += 1
            continue
        echelon.take(left)
    return echelon.solutions(), refused


def independent(rows: Matrix, p: int, wanted: int) -> list[int]:
    """The first `wanted` rows that are linearly independent (fewer, if there are not so many)."""
    echelon = Echelon(rows.shape[1], p)
    found: list[int] = []
    for index, row in enumerate(rows):
        left = echelon.reduced(row)
        if len(found) < wanted and left.any():
            echelon.take(left)
            found.append(index)
    return found


def inverse(square: Matrix, p: int) -> Matrix:
    """The inverse of a square matrix. Raises ValueError if there is none."""
    size = len(square)
    work = np.concatenate([square % p, np.eye(size, dtype=np.int64)], axis=1)
    for column in range(size):
        candidates = np.flatnonzero(work[column:, column])
        if not len(candidates):
            raise ValueError("the matrix is singular")
        pivot = column + int(candidates[0])
        work[[column, pivot]] = work[[pivot, column]]
        work[column] = work[column] * pow(int(work[column, column]), -1, p) % p
        factors = work[:, column].copy()
        factors[column] = 0
        work = (work - factors[:, None] * work[column]) % p
    return work[:, size:]
