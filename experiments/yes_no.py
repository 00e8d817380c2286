"""Attacks on yes/no features, which need far fewer directions than there are features: masked uploads.

**The server alone (g).** For x_ij ∈ {lo_j, lo_j + g_j} every d′ is affine in the bits: y_i = a + Σ_j b_ij w_j. The
vectors w_j (one entry for each column) are the differences that occur most often between the points y_i. With them
every point is decoded by looking it up among the 2^d subset sums. The attacker can tell that it is right: the
decoded rows give back every distance.

**The server and a client with chosen rows (h).** A client's row c that is a cluster of one gives d′ = ‖x_i − c‖².
For x_ij ∈ {0, λ} that is ‖c‖² − λ·Σ_j b_ij (2c_j − λ): with 2c_j − λ zero outside a block of features and λ·2^e
inside, the bits of the block are the binary digits of a known number.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from experiments.lattice import NotFound, Objects, root
from experiments.transcript import Column, Integers, Transcript

MOST_BITS = 12  # features that are decoded by a table of all subset sums
_SPARE = 3  # differences looked at beyond the d most frequent


# --- the server alone -------------------------------------------------------------------------------------------------


def bits_of_all(transcript: Transcript, steps: int | None = None) -> Integers:
    """Attack (g): rows of yes/no features, up to their order, and for each its sign and shift. Proves itself or raises."""
    d = transcript.plan.wishes.features
    if d > MOST_BITS:
        raise NotFound(f"{d} features are more than the {MOST_BITS} of which all sums are tabulated here")
    columns = transcript.columns(steps)
    points = np.stack([_d_prime(transcript, column) for column in columns], axis=1)
    for weights in _steps_between(points, d):
        rows = _explained(points, weights, columns)
        if rows is not None:
            return rows
    raise NotFound("no d steps between the distances explain them all as yes/no features")


def _explained(points: Objects, weights: Objects, columns: list[Column]) -> Integers | None:
    """Rows whose distances are exactly these, if the w_j are right."""
    bits = _decoded_bits(points, weights)
    gaps = None if bits is None else _gaps(bits, weights, columns)
    if bits is None or gaps is None:
        return None
    rows = np.asarray(bits * gaps)
    fits = all((_distances_of(rows, column) == points[:, c]).all() for c, column in enumerate(columns))
    return rows if fits else None


def _d_prime(transcript: Transcript, column: Column) -> Objects:
    at = transcript.requests[column.step].columns.index(column.cluster)
    return transcript.integers(column.step)[:, at]


def _steps_between(points: Objects, d: int) -> Iterator[Objects]:
    """Guesses at the d vectors w_j, (columns, d) up to signs: the differences between points that occur most often."""
    distinct = sorted({tuple(point) for point in points.tolist()})
    common = Counter(
        tuple(b - a for a, b in zip(low, high, strict=True)) for low, high in itertools.combinations(distinct, 2)
    )
    likely = [step for step, _ in common.most_common(d + _SPARE)]
    for guess in itertools.combinations(likely, d):
        yield np.array(guess, dtype=object).T


def _decoded_bits(points: Objects, weights: Objects) -> Integers | None:
    """Each point as a corner of one cube spanned by the w_j: its bits."""
    corners = np.array(list(itertools.product((0, 1), repeat=weights.shape[1])), dtype=np.int64)
    sums = corners.astype(object) @ weights.T
    table = {tuple(total): place for place, total in enumerate(sums.tolist())}
    listed = [tuple(point) for point in points.tolist()]
    lowest, seen = min(listed), set(listed)
    for total in table:  # the lowest point is one of the corners
        origin = _less(lowest, total)
        if all(_less(point, origin) in table for point in seen):
            return corners[[table[_less(point, origin)] for point in listed]]
    return None


def _less(point: tuple[int, ...], origin: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(a - b for a, b in zip(point, origin, strict=True))


def _gaps(bits: Integers, weights: Objects, columns: list[Column]) -> Integers | None:
    """g_j, from w_j = ±g_j²·(|S|² − 2|S|·n_j) with n_j the ones of feature j in the group S."""
    roots = []
    for j in range(bits.shape[1]):
        ones = [int(bits[column.group, j].sum()) for column in columns]
        unit = [column.size * (column.size - 2 * n) for column, n in zip(columns, ones, strict=True)]
        at = int(np.argmax(np.abs(np.array(unit, dtype=np.float64))))
        ratio = Fraction(abs(int(weights[at, j])), abs(unit[at]) or 1)
        roots.append(root(ratio.numerator) if ratio.denominator == 1 else None)
    return None if None in roots else np.array(roots, dtype=np.int64)


def _distances_of(rows: Integers, column: Column) -> Objects:
    """d′ that these rows would have."""
    off = rows[column.group].sum(axis=0).astype(object) - column.size * rows.astype(object)
    return np.asarray((off * off).sum(axis=1), dtype=object)


# --- the server and a client with chosen rows -------------------------------------------------------------------------


def chosen_rows(features: int, count: int) -> npt.NDArray[np.float64]:
    """Rows for a client that helps the server to read yes/no features: row q is ½ everywhere, plus 1, 2, 4 … in block q.

    Needs a precision of at least 1. k-means++ draws rows in proportion to their squared distances, so it draws these.
    """
    out = np.full((count, features), 0.5)
    for row, block in zip(out, np.array_split(np.arange(features), count), strict=True):
        row[block] += 2.0 ** np.arange(len(block))
    return out


def with_chosen(transcript: Transcript, steps: int | None = None) -> Integers:
    """Attack (h): yes/no rows of everybody, exactly as they are, from the insider's rows and the distances to them.

    Raises NotFound unless the chosen rows that were clusters of one cover all features.
    """
    scale = 2**transcript.plan.wishes.precision
    rows: Integers = np.zeros(transcript.rows.shape, dtype=np.int64)
    read: list[int] = []
    for column, known in _own_singles(transcript, steps):
        weights = (2 * known - scale).tolist()
        total = (int((known.astype(object) ** 2).sum()) - _d_prime(transcript, column)) // scale  # Σ_j b_ij (2c_j − λ)
        order = sorted((j for j, weight in enumerate(weights) if weight), key=lambda j: -weights[j])
        for j in order:  # each weight is more than all smaller ones together
            bits = (total >= weights[j]).astype(np.int64)
            rows[:, j] = bits * scale
            total = total - bits * weights[j]
        read += order
    if len(set(read)) < rows.shape[1]:
        raise NotFound(f"{len(set(read))} of {rows.shape[1]} features were read: no distances to the other chosen rows")
    rows[transcript.insider.own] = transcript.insider.own_rows
    return rows


def _own_singles(transcript: Transcript, steps: int | None) -> list[tuple[Column, Integers]]:
    """Clusters of one row of the insider's that tell features apart, with that row."""
    own = {int(at): row for at, row in zip(transcript.insider.own, transcript.insider.own_rows, strict=True)}
    out = []
    for column in transcript.columns(steps):
        where = int(np.flatnonzero(column.group)[0])
        if column.size == 1 and where in own and _tells(own[where], transcript):
            out.append((column, own[where]))
    return out


def _tells(row: Integers, transcript: Transcript) -> bool:
    """Whether a row is one of the chosen: weights that are zero or different powers of two times λ."""
    scale = 2**transcript.plan.wishes.precision
    weights = (2 * row - scale)[2 * row != scale].tolist()
    powers = all(w > 0 and w % scale == 0 and (w // scale).bit_count() == 1 for w in weights)
    return powers and 0 < len(weights) == len(set(weights))
