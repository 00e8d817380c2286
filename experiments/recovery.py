"""The attacks' mathematics: from distances to geometry, and from coded distances to rows.

Geometry (attacks a, c, e): with columns c = 1 … C of squared distances ‖x_i − μ_c‖² and μ_c = Σ_i w_ci x_i, differences of
columns, centred over the rows, are M = X Δᵀ with Δ_c = μ_c − μ_1 and X the centred rows; the known weights turn M into
ΔΔᵀ = V Λ Vᵀ, and M V Λ^(−1/2) is X in an orthonormal basis of the span of Δ: up to a rigid motion the rows themselves, once
that span is everything.

Rows (attack b): φ_ic(z) = ‖f_i(z) − g_c(z)‖² is known for every z, so M(z) = X(z) Δ(z)ᵀ is too, in each lane, with X(z) the
shares at z less that of one row. Its column space holds the columns of X(z), polynomials of degree ≤ ℓ+t−1: linear equations
whose solutions are X(z)·T for a constant matrix T. The insider's shares X(α) give T, and X(β_u) are the rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from experiments import modular
from experiments.transcript import Column, Integers, Transcript
from secfc.coding.lagrange import basis

Floats = npt.NDArray[np.float64]


def geometry(squared: Floats, groups: list[Column], directions: int) -> Floats:
    """Centred rows (m, directions) in some orthonormal frame, from columns of squared distances (m, C) and their groups."""
    difference = squared[:, 1:] - squared[:, :1]
    product = -(difference - difference.mean(axis=0)) / 2
    weights = np.stack([column.group / column.size for column in groups])
    gram = (weights[1:] - weights[0]) @ product
    values, vectors = np.linalg.eigh((gram + gram.T) / 2)
    keep = np.argsort(-np.abs(values))[:directions]  # none is negative, unless the distances are noise
    return np.asarray(product @ vectors[:, keep] / np.sqrt(np.abs(values[keep])))


def aligned(estimate: Floats, truth: Floats, *, scale: bool) -> tuple[Floats, float]:
    """The estimate laid over the truth by the best rigid motion (and scale), and its error relative to their spread.

    0 is exact. Putting every row at the mean has error 1; so has, nearly, any estimate that knows nothing.
    """
    wide = np.zeros(truth.shape)
    wide[:, : estimate.shape[1]] = estimate - estimate.mean(axis=0)
    wide /= max(float(np.abs(wide).max()), np.finfo(float).tiny) if scale else 1.0
    centred = truth - truth.mean(axis=0)
    left, stretch, right = np.linalg.svd(wide.T @ centred)
    placed = wide @ (left @ right) * (stretch.sum() / (wide**2).sum() if scale else 1.0)
    error = float(np.linalg.norm(placed - centred) / np.linalg.norm(centred))
    return placed + truth.mean(axis=0), error


def segment_distances(transcript: Transcript, groups: list[Column], segment: int) -> Floats:
    """Attack (a): φ(β_u)/|S|² of every row and column, from the uploads (m, C): exact if they are open."""
    field, out = transcript.plan.field, np.empty((len(transcript.rows), len(groups)))
    for index, column in enumerate(groups):
        lanes = field.lanes_for(column.size**2 * transcript.plan.unit)
        residues = [_at(transcript, column, lane, [transcript.plan.code.betas[lane][segment]]) for lane in range(lanes)]
        out[:, index] = (crt(residues, field.primes[:lanes])[0] / column.size**2).astype(np.float64)
    return out


@dataclass(frozen=True)
class Rows:
    """What attack (b) found: whole-number rows, how many of its equations contradicted each other (0 if it is right), and how
    many requests it used."""

    rows: npt.NDArray[np.object_]
    contradictions: int
    requests: int


def rows_with_insider(transcript: Transcript) -> Rows:
    """Attack (b): every row, from all uploads and one client's memory.

    Needs ⌈d/ℓ⌉ directions and one row of the insider's own; two if ℓ does not divide d.
    """
    agreed = transcript.plan
    groups = transcript.independent(agreed.length + 1)
    if len(groups) <= agreed.length:
        raise ValueError(f"{len(groups) - 1} directions are known, {agreed.length} are needed: more rounds")
    lanes = range(agreed.field.lanes_for(2 * agreed.eta))
    found = [_lane(transcript, groups, lane) for lane in lanes]
    primes = agreed.field.primes[: len(lanes)]
    values, modulus = crt([rows for rows, _ in found], primes), np.prod(np.array(primes, dtype=object))
    balanced = np.where(values > modulus // 2, values - modulus, values)
    refused = sum(refused for _, refused in found)
    return Rows(balanced[:, : agreed.wishes.features], refused, groups[-1].step + 1)


def _lane(transcript: Transcript, groups: list[Column], lane: int) -> tuple[Integers, int]:
    """Attack (b) in one lane: all rows modulo its prime, (m, ℓ·s)."""
    agreed, insider = transcript.plan, transcript.insider
    code, s, p = agreed.code, agreed.length, agreed.field.primes[lane]
    degree, betas = code.segments + code.privacy - 1, code.betas[lane][: code.segments]
    origin, own = int(insider.own[0]), insider.own[1:4]
    others = np.setdiff1d(np.arange(len(transcript.rows)), insider.own)
    some = np.concatenate([own, others])[: 2 * s + 4]
    places = [int(z) for z in np.random.default_rng(lane).choice(p, 2 * degree + 3, replace=False)]
    products = _products(transcript, groups, lane, [*places, *betas], origin)
    equations = _equations([product[some] for product in products[: len(places)]], places, s, degree, p)
    padded = (
        code.segments * s - agreed.wishes.features
    )  # such a feature is zero at β, so z − β can be divided out of it
    solutions, refused = modular.null_space(equations, p, s + padded)
    shares = _fixed(solutions.reshape(len(solutions), degree + 1, len(some)), transcript, lane, some, own)
    out = []
    for beta, product in zip(betas, products[len(places) :], strict=True):
        pick = modular.independent(product[some], p, s)  # fewer than s in a segment that was padded
        at = modular.independent(product[some][pick].T, p, s)
        combine = product[:, at] @ modular.inverse(product[some][pick][:, at], p) % p
        out.append(combine @ _evaluated(shares, beta, p)[pick] % p)
    return (np.concatenate(out, axis=1) + _padded(transcript, insider.own_rows[:1])) % p, refused


def _equations(products: list[Integers], places: list[int], s: int, degree: int, p: int) -> Integers:
    """What the coefficients of a column of X(z) satisfy: at each place, all that annihilates M(z) annihilates it."""
    out = []
    for z, product in zip(places, products, strict=True):
        annihilator, _ = modular.null_space(product.T, p, len(product) - s)
        if len(annihilator) == len(product) - s:  # else z is one of the few places where M(z) happens to be singular
            out.append(np.concatenate([annihilator * pow(z, v, p) % p for v in range(degree + 1)], axis=1))
    return np.concatenate(out)


def _fixed(solved: Integers, transcript: Transcript, lane: int, some: Integers, own: Integers) -> Integers:
    """X(z) of some rows as coefficients (s, degree+1, rows): the solutions turned by T, which the insider's memory gives.

    That is its share of every row and, for its own rows, all segments; the latter decide where padding leaves a choice.
    """
    agreed, insider = transcript.plan, transcript.insider
    p, code, s = agreed.field.primes[lane], agreed.code, agreed.length
    held = insider.shares(lane)
    segments = _padded(transcript, insider.own_rows[1 : 1 + len(own)] - insider.own_rows[0]).reshape(len(own), -1, s)
    left = [_evaluated(solved, code.alphas[lane][insider.index], p)]
    right = [(held[some] - held[int(insider.own[0])]) % p]
    for u in range(code.segments):
        left.append(_evaluated(solved, code.betas[lane][u], p)[: len(own)])
        right.append(segments[:, u] % p)
    system, known = np.concatenate(left), np.concatenate(right)
    pick = modular.independent(system, p, len(solved))
    turn = modular.inverse(system[pick], p) @ known[pick] % p
    return np.asarray(np.einsum("qvi,qs->svi", solved, turn) % p)


def _evaluated(coefficients: Integers, z: int, p: int) -> Integers:
    """Polynomials (columns, degree+1, rows) at z: (rows, columns)."""
    powers = np.array([pow(z, v, p) for v in range(coefficients.shape[1])])
    return np.asarray((coefficients * powers[:, None] % p).sum(axis=1).T % p)


def _padded(transcript: Transcript, rows: Integers) -> Integers:
    out = np.zeros((len(rows), transcript.plan.segments * transcript.plan.length), dtype=np.int64)
    out[:, : rows.shape[1]] = rows
    return out


def _products(
    transcript: Transcript, groups: list[Column], lane: int, places: list[int], origin: int
) -> list[Integers]:
    """M(z) = ⟨f_i − f_origin, g_c − g_1⟩ at each place, (m, C−1) modulo p."""
    p = transcript.plan.field.primes[lane]
    half = pow(-2, -1, p)
    columns = []
    for column in groups:
        inverse = pow(column.size, -2, p)
        columns.append(_at(transcript, column, lane, places, insider=True) * inverse % p)
    squared = np.stack(columns, axis=2)  # places, rows, columns
    difference = squared[:, :, 1:] - squared[:, :, :1]
    return list((difference - difference[:, origin, None]) % p * half % p)


def _at(transcript: Transcript, column: Column, lane: int, places: list[int], *, insider: bool = False) -> Integers:
    """φ of a column at some places, (places, m) modulo p, interpolated from the uploads."""
    p, alphas = transcript.plan.field.primes[lane], transcript.plan.code.alphas[lane]
    responders, values = transcript.values(column, lane, insider=insider)
    weights = np.array(basis(p, [alphas[j] for j in responders], places))
    return np.asarray(weights @ values % p)


def crt(residues: list[Integers], primes: tuple[int, ...]) -> npt.NDArray[np.object_]:
    """The integers in [0, Πp) with these residues."""
    modulus = int(np.prod(np.array(primes, dtype=object)))
    total = np.zeros(residues[0].shape, dtype=object)
    for residue, p in zip(residues, primes, strict=True):
        total = total + residue.astype(object) * (modulus // p * pow(modulus // p, -1, p))
    return np.asarray(total % modulus, dtype=object)


def placed_by_known_rows(estimate: Floats, known: Integers, rows: Integers) -> npt.NDArray[np.int64]:
    """Attack (e): rows as whole numbers from their geometry, the rigid motion taken from rows that the adversary owns."""
    source, target = estimate[known], rows.astype(np.float64)
    left, _, right = np.linalg.svd((source - source.mean(axis=0)).T @ (target - target.mean(axis=0)))
    placed = (estimate - source.mean(axis=0)) @ (left @ right) + target.mean(axis=0)
    return np.asarray(np.rint(placed), dtype=np.int64)
