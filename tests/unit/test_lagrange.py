"""Lagrange coding against galois: points, the encoding matrix of eq. 2, and weights that fold interpolation."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from secfc.coding.field import Field
from secfc.coding.lagrange import Code, basis, points
from secfc.errors import InvalidInput, PlanError
from tests.oracle import galois_field, in_galois, small_field

CODES = [(3, 1, 1), (5, 1, 2), (7, 2, 2), (9, 3, 2), (16, 3, 5), (3, 2, 0)]


@pytest.mark.parametrize(("n", "segments", "privacy"), CODES)
def test_points_are_distinct_disjoint_and_not_consecutive(n: int, segments: int, privacy: int) -> None:
    """docs/protocol.md, Section 2: α pairwise distinct, β distinct, {β} ∩ {α} = ∅; ours are pseudo-random, too."""
    code = Code(Field.of(6), n, segments, privacy)
    seen = []
    for p, alphas, betas in zip(code.field.primes, code.alphas, code.betas, strict=True):
        everything = [*betas, *alphas]
        assert (len(alphas), len(betas)) == (n, segments + privacy)
        assert len(set(everything)) == len(everything)
        assert all(0 < x < p for x in everything)
        gaps = {(b - a) % p for a, b in itertools.pairwise(sorted(everything))}
        assert len(gaps) > 1
        assert max(everything) > 1000  # 1, 2, 3, … would not get there
        seen.append(tuple(everything))
    assert len(set(seen)) == len(seen), "every lane has points of its own"


def test_points_are_the_same_for_everybody_and_differ_by_parameters() -> None:
    assert Code(Field.of(2), 5, 1, 2).alphas == Code(Field.of(2), 5, 1, 2).alphas
    assert points(2097143, 9, b"a")[:5] == points(2097143, 5, b"a")
    assert not set(points(2097143, 9, b"a")) & set(points(2097143, 9, b"b"))


def test_points_fill_a_small_field_and_no_more() -> None:
    assert sorted(points(31, 30, b"x")) == list(range(1, 31))
    with pytest.raises(PlanError, match="31 distinct points do not fit into the prime field of 31"):
        points(31, 31, b"x")


@pytest.mark.parametrize(("n", "segments", "privacy"), CODES)
def test_encoding_matrix_is_equation_2(n: int, segments: int, privacy: int) -> None:
    """Eq. 2: f_i interpolates the segments at β; the matrix gives its values at α. galois interpolates independently."""
    import galois

    code = Code(Field.of(2), n, segments, privacy)
    assert code.encoding.shape == (2, n, segments + privacy)
    for lane, p in enumerate(code.field.primes):
        gf = galois_field(p)
        values = gf.Random(segments + privacy, seed=lane)
        f = galois.lagrange_poly(gf(code.betas[lane]), values)
        assert f.degree <= segments + privacy - 1
        assert (f(gf(code.alphas[lane])) == in_galois(p, code.encoding[lane]) @ values).all()
        assert (f(gf(code.betas[lane])) == values).all()


@pytest.mark.parametrize(("n", "segments", "privacy"), CODES)
def test_weights_fold_interpolation_and_evaluation(n: int, segments: int, privacy: int) -> None:
    """docs/protocol.md, Section 3: d′ = Σ_u φ(β_u) from R = 2ℓ+2t−1 values of φ, of degree 2(ℓ+t−1), in any order of
    responders."""
    import galois

    code = Code(Field.of(2), n, segments, privacy)
    assert code.responders == 2 * segments + 2 * privacy - 1
    pick = random.Random(n)
    for lane, p in enumerate(code.field.primes):
        gf = galois_field(p)
        phi = galois.Poly(gf.Random(2 * (segments + privacy - 1) + 1, seed=3 + lane))
        wanted = phi(gf(code.betas[lane][:segments])).sum()
        for _ in range(3):
            responders = pick.sample(range(n), code.responders)
            uploads = phi(gf([code.alphas[lane][j] for j in responders]))
            assert (in_galois(p, code.weights(responders)[lane]) * uploads).sum() == wanted


def test_weights_of_a_higher_degree_do_not_fit() -> None:
    """R values do not determine a polynomial of degree R: the bound is exact."""
    import galois

    code = Code(Field.of(1), 7, 1, 2)
    p = code.field.primes[0]
    gf = galois_field(p)
    phi = galois.Poly([1] + [0] * code.responders, field=gf)
    responders = list(range(code.responders))
    uploads = phi(gf([code.alphas[0][j] for j in responders]))
    assert (in_galois(p, code.weights(responders)[0]) * uploads).sum() != phi(gf(code.betas[0][:1])).sum()


def test_weights_are_read_only_and_balanced() -> None:
    code = Code(Field.of(3), 5, 1, 2)
    weights = code.weights(range(5))
    assert weights.shape == (3, 5)
    assert all(np.abs(lane).max() <= p // 2 for lane, p in zip(weights, code.field.primes, strict=True))
    with pytest.raises(ValueError, match="read-only"):
        weights[0, 0] = 1


def test_basis_at_its_own_nodes_is_the_identity() -> None:
    assert basis(31, [3, 9, 20], [3, 9, 20]) == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
    assert basis(31, [5], [1, 2]) == [[1], [1]]


@pytest.mark.parametrize(
    ("responders", "words"),
    [
        ((0, 1), "exactly 3 distinct responders are needed, not 2"),
        ((0, 1, 2, 3), "exactly 3 distinct responders are needed, not 4"),
        ((0, 1, 1), "exactly 3 distinct responders are needed, not 2"),
        ((), "exactly 3 distinct"),
        ((0, 1, 5), "not among the 5 clients"),
        ((0, 1, -1), "not among the 5 clients"),
    ],
)
def test_a_responder_set_is_exactly_r_of_the_roster(responders: tuple[int, ...], words: str) -> None:
    code = Code(Field.of(1), 5, 1, 1)
    with pytest.raises(InvalidInput, match=words):
        code.check_responders(responders)
    with pytest.raises(InvalidInput, match=words):
        code.weights(responders)


@pytest.mark.parametrize(("n", "segments", "privacy"), [(0, 1, 1), (3, 0, 1), (3, 1, -1)])
def test_a_code_refuses_nonsense(n: int, segments: int, privacy: int) -> None:
    with pytest.raises(InvalidInput, match="at least one client, one segment"):
        Code(Field.of(1), n, segments, privacy)


def test_a_zero_weight_does_no_harm() -> None:
    """In a small lane a weight can be 0; nothing divides by it."""
    field = small_field(31)
    zeros = 0
    for n in range(5, 20):
        code = Code(field, n, 2, 1)
        for first in range(n - 4):
            responders = range(first, first + 5)
            zeros += int((code.weights(responders) == 0).any())
    assert zeros > 0
