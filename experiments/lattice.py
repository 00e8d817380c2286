"""Attack (f): the features of the rows, not just their geometry, from exact distances: masked uploads, the server alone.

Once d directions are known, x_i − x_0 = Σ_c a_ic δ_c with δ_c = μ_c − μ_1 and rational a, exactly: the server knows
⟨x_i − x_0, δ_c⟩ and, as the groups are known, ⟨δ_c, δ_c′⟩. The differences generate a lattice of which it has a
basis with its Gram matrix. They are vectors of whole numbers, so for rows in general the lattice is Z^d, or g_j·Z
in feature j; its shortest vectors are the feature axes, and LLL finds them. What stays open is the order of the
features, and for each a sign and a shift. A few known rows settle these (`settled`).

No attack reads the true rows; `placed` compares with them afterwards.
"""

from __future__ import annotations

import itertools
from fractions import Fraction
from math import isqrt
from typing import Any

import numpy as np
import numpy.typing as npt
from flint import fmpq, fmpq_mat, fmpz_mat

from experiments.transcript import Column, Integers, Transcript

Objects = npt.NDArray[np.object_]


class NotFound(ValueError):
    """The attack does not succeed on this transcript."""


def axes(transcript: Transcript, steps: int | None = None) -> Integers:
    """Attack (f): rows less row 0, exact, up to the order and the signs of the features. Needs d known directions."""
    d = transcript.plan.wishes.features
    columns = transcript.independent(d + 1, steps)
    if len(columns) <= d:
        raise NotFound(f"{max(len(columns) - 1, 0)} directions are known, {d} are needed")
    coordinates, gram = _coordinates(transcript, columns)
    for rows in (4 * d + 8, len(coordinates)):  # a few rows generate the lattice as a rule
        basis, reduced = _reduced(coordinates[:rows], gram)
        found, common = (fmpq_mat(coordinates) * basis.inv()).numer_denom()
        if common == 1:
            return _scaled(found.tolist(), reduced)
    raise AssertionError("all rows are in the lattice that all rows generate")


def _coordinates(transcript: Transcript, columns: list[Column]) -> tuple[list[list[Any]], Any]:
    """x_i − x_0 in the basis δ_c, as fractions, and the Gram matrix of that basis."""
    squared = [_exact_squares(transcript, column) for column in columns]
    first = squared[0] - squared[0][0]
    product = [-(other - other[0] - first) / 2 for other in squared[1:]]  # ⟨x_i − x_0, δ_c⟩, one array for each c
    means = [_mean(product, column) for column in columns]
    gram = fmpq_mat([[_fmpq(a - b) for a, b in zip(mean, means[0], strict=True)] for mean in means[1:]])
    rows = fmpq_mat([[_fmpq(value) for value in row] for row in zip(*product, strict=True)])
    try:
        return (rows * gram.inv()).tolist(), gram
    except ZeroDivisionError:
        raise NotFound("the directions known do not span the features") from None


def _exact_squares(transcript: Transcript, column: Column) -> Objects:
    """‖x_i − μ_c‖² of every row, as fractions."""
    at = transcript.requests[column.step].columns.index(column.cluster)
    square = column.size**2
    return np.array([Fraction(int(value), square) for value in transcript.integers(column.step)[:, at]], dtype=object)


def _mean(product: list[Objects], column: Column) -> list[Fraction]:
    """The mean over a group of each ⟨x_i − x_0, δ_c⟩."""
    return [sum(values[column.group], Fraction(0)) / column.size for values in product]


def _fmpq(value: Fraction) -> Any:
    return fmpq(value.numerator, value.denominator)


def _reduced(coordinates: list[list[Any]], gram: Any) -> tuple[Any, Any]:
    """An LLL-reduced basis (rows, as fractions) of the lattice that these vectors generate, and its Gram matrix."""
    d = len(coordinates[0])
    whole, common = fmpq_mat(coordinates).numer_denom()
    if whole.rank() < d:
        raise NotFound("the rows looked at do not span the features")
    basis = fmpq_mat(fmpz_mat(whole.hnf().tolist()[:d])) / common
    inner, scale = (basis * gram * basis.transpose()).numer_denom()
    if scale != 1 or not _definite(inner):  # LLL would not end
        raise NotFound("these are not the distances of rows of whole numbers")
    _, transform = inner.lll(transform=True, rep="gram")
    basis = fmpq_mat(transform) * basis
    return basis, transform * inner * transform.transpose()


def _definite(inner: Any) -> bool:
    """Whether a matrix of whole numbers is the Gram matrix of a basis: symmetric, all leading minors positive."""
    entries, d = inner.tolist(), inner.nrows()
    minors = (fmpz_mat([row[:size] for row in entries[:size]]).det() for size in range(1, d + 1))
    return bool(inner == inner.transpose()) and all(minor > 0 for minor in minors)


def _scaled(found: list[list[Any]], gram: Any) -> Integers:
    """Whole-number features from coordinates in a basis of axes; each axis has the length g_j, mostly 1."""
    d = gram.nrows()
    roots = [root(int(gram[j, j])) for j in range(d)]
    if None in roots or any(gram[i, j] != 0 for i, j in itertools.combinations(range(d), 2)):
        raise NotFound("LLL did not find the axes")
    return np.array([[int(x) for x in row] for row in found], dtype=np.int64) * np.array(roots, dtype=np.int64)


def root(value: int) -> int | None:
    return isqrt(value) if value > 0 and isqrt(value) ** 2 == value else None


# --- what is left open ------------------------------------------------------------------------------------------------


def settled(found: Integers, known: Integers, rows: Integers) -> Integers:
    """Rows as they are, from features up to order, sign and shift, and a few `rows` that stand at the places `known`.

    Raises NotFound if these rows do not tell the features apart.
    """
    out = np.empty_like(found)
    steps, truth = found[known] - found[known[0]], rows - rows[0]
    free = set(range(found.shape[1]))
    for j in range(found.shape[1]):
        fits = [(k, sign) for k in free for sign in (1, -1) if (sign * steps[:, k] == truth[:, j]).all()]
        if len(fits) != 1:
            raise NotFound(f"{len(fits)} of the features found fit feature {j} of the known rows")
        k, sign = fits[0]
        out[:, j] = sign * (found[:, k] - found[known[0], k]) + rows[0, j]
        free.remove(k)
    return out


def placed(found: Integers, truth: Integers) -> npt.NDArray[np.float64]:
    """What was found, its features named, turned and shifted as in the truth where they are those of the truth up to that;
    a feature that is not among them is put at its mean."""
    out = np.tile(truth.mean(axis=0), (len(truth), 1))
    steps, free = found - found[0], set(range(found.shape[1]))
    for j in range(truth.shape[1]):
        wanted = truth[:, j] - truth[0, j]
        for k in sorted(free):
            if (steps[:, k] == wanted).all() or (-steps[:, k] == wanted).all():
                out[:, j] = truth[:, j]
                free.remove(k)
                break
    return out
