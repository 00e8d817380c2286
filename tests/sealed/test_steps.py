"""COMPARE, ZERO, SELECT and OPEN give what they must (docs/sealed.md, Section 3)."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from secfc.coding.field import Field
from secfc.errors import JobFailed, Malformed
from secfc.privacy.sealed import inertia, sides, steps
from secfc.privacy.sealed.comparer import Comparer
from secfc.privacy.sealed.messages import Talk
from secfc.privacy.sealed.sides import Side
from secfc.privacy.sealed.steps import Counts
from secfc.privacy.sealed.terms import Terms
from tests.sealed.conversing import compare, converse, residues


def terms(lanes: int, members: int) -> Terms:
    return Terms(Field.of(lanes), 100, 5, 1000, members)


@pytest.mark.parametrize("lanes", range(1, 12))
@pytest.mark.parametrize("members", [2, 3, 4])
def test_comparisons_at_the_edges(lanes: int, members: int) -> None:
    """E = 0, ±1, ±(Q−1)/2, Y = ρ, and digits at their borders, in all lanes that the guard allows."""
    agreed, generator = terms(lanes, members), random.Random(lanes * 10 + members)
    q = agreed.field.modulus
    half = (q - 1) // 2
    borders = [
        b for p in agreed.field.primes[:2] for b in (0, 1, p - 1, p, p + 1, 1 << 20, (1 << 20) - 1, 0x155555, 0xAAAAA)
    ]
    masks = [0, 1, q - 1, q // 2, *borders, *(generator.randrange(q) for _ in range(20))]
    errors = [0, 1, -1, 2, half, -half, half - 1, 1 - half, *(generator.randrange(q) - half for _ in range(10))]
    cases = [(e, rho) for e in errors for rho in masks]
    cases += [((border - rho) * (half + 1) % q, rho) for border in borders for rho in borders]  # 2E = border − ρ
    cases = [(e - q if e > half else e, rho) for e, rho in cases]
    y, rho = [(e + r) % q for e, r in cases], [r for _, r in cases]
    for chunk in range(members):  # every member is the last once
        found = compare(agreed, y, rho, chunk)
        assert found.tolist() == [e < 0 for e, _ in cases]


def test_twelve_lanes_would_give_wrong_answers() -> None:
    """Why the guard is there: all digits differ, the sum of 132 positions wraps around, and a false zero appears."""
    agreed = terms(12, 2)
    primes = agreed.field.primes
    number = 0
    for p in reversed(primes):
        number = number * p + min(0x155555, p - 1)
    q = agreed.field.modulus
    rho = [number * (q + 1) // 2 % q] * 50  # so that 2ρ has these digits
    wrong = False
    try:
        wrong = bool((compare(agreed, [0] * 50, rho) != [(-2 * r) % q % 2 == 1 for r in rho]).any())
    except JobFailed:  # two zeros in one comparison
        wrong = True
    assert wrong


@pytest.mark.parametrize("members", [2, 3, 5])
def test_counts(members: int) -> None:
    generator = np.random.default_rng(members)
    b, beta = generator.integers(0, 2, (2, 600), dtype=np.uint8)
    up = generator.integers(-1, 40, 600).astype(np.int32)
    down = generator.integers(-1, 40, 600).astype(np.int32)
    tests = Counts(up, down, 40)

    def script(side: Side) -> Talk[Any]:
        return (yield from side.zero(b ^ beta if side.serves else beta, tests))

    found = converse(terms(1, members), script)[0]
    counts = np.zeros(40, dtype=int)
    np.add.at(counts, up[up >= 0], b[up >= 0])
    np.add.at(counts, down[down >= 0], 1 - b[down >= 0])
    assert found.tolist() == (counts % 127 == 0).tolist()


def test_a_count_of_127_looks_like_zero() -> None:
    """Why k ≤ 127: with 128 clusters one that is beaten by all 127 others would be taken for the nearest."""
    for count, wrong in ((126, False), (127, True)):
        bits = np.ones(count, dtype=np.uint8)
        tests = Counts(np.zeros(count, dtype=np.int32), np.full(count, -1, dtype=np.int32), 1)

        def script(side: Side, bits: Any = bits, tests: Counts = tests) -> Talk[Any]:
            return (yield from side.zero(bits if side.serves else bits * 0, tests))

        assert bool(converse(terms(1, 2), script)[0][0]) is wrong


@pytest.mark.parametrize("members", [2, 4])
def test_selections_and_openings(members: int) -> None:
    agreed, generator = terms(4, members), random.Random(members)
    field, q = agreed.field, agreed.field.modulus
    x = [generator.randrange(q) for _ in range(50)]
    rho = [generator.randrange(q) for _ in x]
    b = np.array([generator.randrange(2) for _ in x], dtype=np.uint8)
    beta = np.array([generator.randrange(2) for _ in x], dtype=np.uint8)

    def script(side: Side) -> Talk[Any]:
        own = residues(field, rho if side.serves else [(v + r) % q for v, r in zip(x, rho, strict=True)])
        fresh = yield from side.select(field, b ^ beta if side.serves else beta, own)
        return (yield from side.open(field, fresh))

    opened = converse(agreed, script)[0]
    assert (opened == residues(field, [v * int(bit) for v, bit in zip(x, b, strict=True)])).all()


def test_packed_residues_are_checked() -> None:
    field = Field.of(3)
    values = residues(field, [5, 7, 9])
    data = sides.pack(field, values)
    assert (sides.unpack(field, data, 3) == values).all()
    with pytest.raises(Malformed, match="bytes of residues are due"):
        sides.unpack(field, data, 4)
    data[:] = 255
    with pytest.raises(Malformed, match="not below its prime"):
        sides.unpack(field, data, 3)
    with pytest.raises(Malformed, match="after the last"):
        sides.unpack_bits(np.array([255], dtype=np.uint8), 5)


def test_lane_arithmetic() -> None:
    field = Field.of(2)
    a, b = 12345678901, 98765432109
    one, two = residues(field, [a]), residues(field, [b])
    assert (steps.plus(field, one, two) == residues(field, [a + b])).all()
    assert (steps.minus(field, one, two) == residues(field, [a - b])).all()
    assert (steps.times(field, 1 << 64, one) == residues(field, [a << 64])).all()
    assert (steps.negated_sum(field, [one, two]) == residues(field, [-a - b])).all()


@pytest.mark.parametrize("members", [2, 3])
def test_an_opened_total_less_its_blur_is_the_formula(members: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/sealed.md, Section 8: what the server opens, less ε, is Σ ω_h·W_h as an integer; and ε is what hides it."""
    agreed = Terms(Field.of(5), 100, 4, 1000, members, inertia=True)
    sizes = np.array([7, 0, 60, 33])
    generator = random.Random(members)
    sums = [int(s) * generator.randrange(int(s) * 1000) if s else 0 for s in sizes]  # V_h, multiples of s_h
    pads = [[generator.randrange(p) for p in agreed.field.primes] for _ in sizes]
    drawn = []
    blur = Comparer.blur

    def noted(self: Comparer, bits: int) -> int:
        drawn.append(blur(self, bits))
        return drawn[-1]

    monkeypatch.setattr(Comparer, "blur", noted)
    field = inertia.common_lanes(agreed, sizes)
    bits = inertia.fraction_bits(field, agreed.rows, agreed.unit)

    def script(side: Side) -> Talk[Any]:
        primes = agreed.field.primes
        rho = [[(y - v) % p for y, p in zip(pad, primes, strict=True)] for pad, v in zip(pads, sums, strict=True)]
        own = np.array(rho if side.serves else pads, dtype=np.uint64)
        return (yield from inertia.blurred(side, field, sizes, own, bits))

    opened = converse(agreed, script)[0]
    assert len(set(drawn)) == 1
    assert 0 <= drawn[0] < 1 << bits
    weights = inertia.weights(sizes, bits)
    assert opened - drawn[0] == sum(w * (v // int(s)) for w, v, s in zip(weights, sums, sizes, strict=True) if s)
