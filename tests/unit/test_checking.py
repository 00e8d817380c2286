"""Liars: honest uploads always pass, every lie is noticed, and who lied is found exactly, as far as theory goes."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from secfc.coding import kernels, prg
from secfc.coding.field import Field, Layout, Words
from secfc.coding.lagrange import Code
from secfc.errors import InvalidInput, JobFailed, Malformed
from secfc.kmeans.decoding import Decoder, Distances
from secfc.kmeans.distances import Shape
from secfc.privacy import checking
from secfc.privacy.checking import Check

ROOT = Path(__file__).parents[2]
Values = list[npt.NDArray[np.int64]]  # one matrix (rows, width) a lane


@dataclass(frozen=True)
class Case:
    """A code, a layout, and the honest uploads of N responders."""

    code: Code
    layout: Layout
    responders: tuple[int, ...]
    uploads: dict[int, Values]

    def check(self, uploads: dict[int, Values] | None = None, key: bytes | None = None, piece: int = 7) -> Check:
        """A check that has seen these uploads (default: the honest ones), in pieces of so many words."""
        check = Check(self.code, self.layout, self.responders, key)
        for j, values in (uploads or self.uploads).items():
            words = self.layout.pack([lane.astype(np.float64) for lane in values])
            feed(check, self.layout, j, words, piece)
        return check

    def copies(self) -> dict[int, Values]:
        return {j: [lane.copy() for lane in values] for j, values in self.uploads.items()}


def feed(check: Check, layout: Layout, responder: int, words: Words, piece: int) -> None:
    for first in range(0, len(words), piece):
        flat = np.empty(min(3 * piece, layout.residues - 3 * first), np.uint32)
        kernels.unpack(words[first : first + piece], flat)
        check.add(responder, 3 * first, flat)


def honest(
    n: int,
    t: int,
    segments: int,
    asked: int,
    *,
    lanes: int = 2,
    rows: int = 9,
    widths: tuple[int, ...] = (3, 2),
    seed: int = 0,
) -> Case:
    """Values of random polynomials of degree 2(ℓ+t−1), one an entry, at the responders' points."""
    rng = np.random.default_rng(seed)
    field = Field.of(lanes)
    code = Code(field, n, segments, t)
    responders = tuple(sorted(random.Random(seed).sample(range(n), asked)))
    layout = Layout(field, rows, widths)
    uploads: dict[int, Values] = {j: [] for j in responders}
    for p, alphas, width in zip(field.primes, code.alphas, widths, strict=True):
        coefficients = rng.integers(0, p, (code.responders, rows, width))
        for j in responders:
            value = np.zeros((rows, width), np.int64)
            for coefficient in coefficients:
                value = (value * alphas[j] + coefficient) % p
            uploads[j].append(value)
    return Case(code, layout, responders, uploads)


@st.composite
def cases(draw: st.DrawFn, least: int = 0) -> tuple[Case, int]:
    """A case and how many liars its redundancy corrects."""
    t, segments, most = draw(st.integers(0, 3)), draw(st.integers(1, 3)), draw(st.integers(least, 4))
    asked = 2 * t + 2 * segments - 1 + 2 * most + draw(st.integers(0, 2))
    n = asked + draw(st.integers(0, 3))
    rows, widths = draw(st.integers(1, 12)), draw(st.sampled_from([(3, 2), (1, 0), (4, 4), (2, 1)]))
    return honest(n, t, segments, asked, rows=rows, widths=widths, seed=draw(st.integers(0, 99))), most


@settings(max_examples=40, deadline=None)
@given(cases(), st.integers(1, 9))
def test_honest_uploads_always_pass(made: tuple[Case, int], piece: int) -> None:
    case, most = made
    assert case.check(piece=piece).liars(most) == ()


@settings(max_examples=60, deadline=None)
@given(cases(least=1), st.data())
def test_up_to_a_liars_are_named_whatever_they_say(made: tuple[Case, int], data: st.DataObject) -> None:
    """Random values, one entry, one lane, a constant on all entries, or the same lie by all: exactly the liars are named."""
    case, most = made
    liars = data.draw(st.sets(st.sampled_from(case.responders), min_size=1, max_size=most), label="liars")
    kind = data.draw(st.sampled_from(["random", "one", "lane", "offset", "equal", "zero"]), label="kind")
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    together = rng.integers(1, 1000, (case.layout.rows, 1))
    uploads = case.copies()
    for j in liars:
        for lane, p in enumerate(case.code.field.primes):
            value = uploads[j][lane]
            if not value.size:
                continue
            if kind == "random":
                value[:] = rng.integers(0, p, value.shape)
            elif kind in ("one", "lane") and lane == 0:
                at = (rng.integers(value.shape[0]), rng.integers(value.shape[1])) if kind == "one" else ...
                value[at] = (value[at] + 1) % p
            elif kind == "offset":
                value[:] = (value + 5) % p
            elif kind == "equal":
                value[:] = (value + together) % p
            elif kind == "zero":
                value[:] = 0
    really = tuple(sorted(j for j in liars if not all(map(np.array_equal, uploads[j], case.uploads[j]))))
    assert case.check(uploads).liars(most) == really


@settings(max_examples=80, deadline=None)
@given(cases(least=1), st.data())
def test_more_liars_than_planned_who_do_not_agree_are_noticed(made: tuple[Case, int], data: st.DataObject) -> None:
    """Up to N − R wrong uploads never pass as honest, and lies that do not agree are not explained by A liars either."""
    case, most = made
    assume(case.layout.rows > 1)  # in a single entry, lies agree by accident once in p
    spare = len(case.responders) - case.code.responders
    liars = data.draw(st.sets(st.sampled_from(case.responders), min_size=most + 1, max_size=spare), label="liars")
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    uploads = case.copies()
    for j in liars:
        uploads[j][0][:] = (uploads[j][0] + rng.integers(1, case.code.field.primes[0], uploads[j][0].shape)) % (
            case.code.field.primes[0]
        )
    with pytest.raises(JobFailed, match=f"{most} wrong ones cannot explain"):
        case.check(uploads).liars(most)


def test_liars_who_agree_on_a_polynomial_need_to_be_more_than_the_spare_ones() -> None:
    """The limit: N − R + 1 liars can move everybody's apparent polynomial by one that is zero at the honest R − 1."""
    case = honest(7, 1, 1, 7, lanes=1, widths=(2,))  # R = 3, N = 7, A = 2
    p, alphas = case.code.field.primes[0], case.code.alphas[0]
    for count, passes in ((5, True), (4, False)):
        liars, uploads = case.responders[:count], case.copies()
        for j in liars:
            shift = 1
            for other in case.responders[-2:]:
                shift = shift * (alphas[j] - alphas[other]) % p
            uploads[j][0][4, 1] = (uploads[j][0][4, 1] + shift) % p
        check = case.check(uploads)
        if passes:
            assert check.liars(2) == ()
        else:  # the fifth did not join in, and now seems to be the only liar: five agree with a polynomial
            assert check.liars(2) == (case.responders[4],)


def test_a_plus_one_who_agree_can_frame_an_honest_client() -> None:
    """What cannot be helped: A = 1, and two agree on a polynomial that one honest client alone contradicts. It is named,
    and without it the two pass."""
    case = honest(5, 1, 1, 5, lanes=1, widths=(1,), rows=1)
    p, alphas = case.code.field.primes[0], case.code.alphas[0]
    uploads = case.copies()
    for j in case.responders[:2]:
        uploads[j][0][0, 0] = (uploads[j][0][0, 0] + (alphas[j] - alphas[3]) * (alphas[j] - alphas[4])) % p
    assert case.check(uploads).liars(1) == (2,)
    left = tuple(j for j in case.responders if j != 2)
    rest = Case(case.code, case.layout, left, {j: uploads[j] for j in left})
    assert rest.check().liars(0) == ()


@pytest.mark.parametrize("segments", [1, 2])
def test_equal_lies_by_several_do_not_cancel(segments: int) -> None:
    """Why points are pseudo-random: at consecutive points a constant added by enough clients is a codeword."""
    for count in (1, 2, 3, 4):
        case = honest(12, 1, segments, 2 * segments + 1 + 4, seed=count)
        uploads = case.copies()
        for j in case.responders[:count]:
            for lane, p in enumerate(case.code.field.primes):
                uploads[j][lane][:] = (uploads[j][lane] + 1) % p
        if count <= 2:
            assert case.check(uploads).liars(2) == case.responders[:count]
        else:
            with pytest.raises(JobFailed, match="contradict each other"):
                case.check(uploads).liars(2)


def test_the_chance_of_a_miss_is_one_in_p_a_combination() -> None:
    """All factors of a tiny field, one by one: a combination misses one lie in p exactly, whatever the lie in a column."""
    p = 11
    code = Code(Field((p,)), 5, 1, 1)
    layout = Layout(code.field, 2, (1,))
    rng = np.random.default_rng(1)
    for error in [(1, 0), (0, 7), (3, 4), (10, 10)]:
        base = {j: rng.integers(0, 1, (2, 1)) for j in range(5)}
        base[3][:, 0] = error
        missed = 0
        for factors in itertools.product(range(-(p // 2), p // 2 + 1), repeat=2):
            chosen = np.repeat(np.array(factors, float)[None, :, None], 3, axis=2)  # three times the same combination
            with mock.patch.object(prg, "uniform", return_value=chosen):
                check = Check(code, layout, range(5))
            for j, value in base.items():
                feed(check, layout, j, layout.pack([value.astype(float)]), 10)
            found = check.liars(1)
            assert found in ((), (3,))
            missed += not found
        assert missed == p  # of p²
    assert checking.COMBINATIONS == 3


def test_the_three_combinations_are_independent_and_fresh() -> None:
    case = honest(5, 1, 1, 5, rows=500)
    one, two = case.check()._factors, case.check()._factors
    assert not np.array_equal(one, two)
    columns = [*one.T, *two.T]
    assert all((a == b).mean() < 0.05 for a, b in itertools.combinations(columns, 2))
    assert np.array_equal(case.check(key=bytes(32))._factors, case.check(key=bytes(32))._factors)
    smallest = min(case.code.field.primes)
    assert np.abs(one).max() <= smallest // 2
    assert len({int(v) % smallest for v in range(-(smallest // 2), smallest // 2 + 1)}) == smallest


def test_the_bound_that_is_promised() -> None:
    smallest = min(Field.of(16).primes)
    assert smallest**-checking.COMBINATIONS < 2.0**-62.9
    assert 29 * smallest**-checking.COMBINATIONS < 2.0**-58


@pytest.mark.parametrize(("rows", "width"), [(1, 1), (5, 3), (4999, 1), (4100, 7)])
def test_combinations_are_exact(rows: int, width: int) -> None:
    """The kernel against Python integers, with the largest residues and factors, cut anywhere."""
    p = Field.of(1).primes[0]
    layout = Layout(Field.of(1), rows, (width,))
    rng = np.random.default_rng(0)
    factors = rng.choice([-(p // 2), p // 2, 1, 12345], (rows, 3)).astype(float)
    flat = rng.choice([p - 1, p - 2, 0, 77], rows * width).astype(np.uint32)
    sums = np.zeros((3, width))
    cuts = sorted({0, rows * width, *(int(c) for c in rng.integers(0, rows * width, 3))})
    for a, b in itertools.pairwise(cuts):
        kernels.combine(flat[a:b], a, factors, layout.prime_floats, sums)
    matrix = flat.reshape(rows, width).astype(object)
    expected = factors.astype(np.int64).astype(object).T @ matrix % p
    assert ((sums.astype(np.int64).astype(object) - expected) % p == 0).all()
    assert np.abs(sums).max() <= 1 << 20


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 6), st.integers(1, 3), st.data())
def test_the_locator_is_the_product_over_the_wrong_places(wrong: int, more: int, data: st.DataObject) -> None:
    p = Field.of(1).primes[0]
    places = data.draw(st.lists(st.integers(1, p - 1), min_size=wrong, max_size=wrong, unique=True))
    checks = sums_of_powers(p, {x: data.draw(st.integers(1, p - 1)) for x in places}, 2 * wrong + more)
    expected = [1]
    for x in places:
        expected = [(a - x * b) % p for a, b in zip([*expected, 0], [0, *expected], strict=True)]
    locator, roots = checking._locator(p, places or [1], checks)
    assert locator == expected
    assert roots == tuple(range(wrong))


def sums_of_powers(p: int, sizes: dict[int, int], count: int) -> list[int]:
    return [sum(size * pow(x, power, p) for x, size in sizes.items()) % p for power in range(count)]


def by_trial(p: int, nodes: list[int], checks: list[int]) -> tuple[int, ...]:
    """The fewest nodes, at most half as many as there are checks, that values of theirs alone explain; none if none do."""
    for size in range(len(checks) // 2 + 1):
        for chosen in itertools.combinations(range(len(nodes)), size):
            rest = checks
            for i in chosen:
                rest = [(b - nodes[i] * a) % p for a, b in itertools.pairwise(rest)]
            if not any(rest):
                return chosen
    return ()


@settings(max_examples=80, deadline=None)
@given(st.sampled_from([11, *Field.of(2).primes]), st.integers(1, 7), st.data())
def test_who_is_wrong_is_what_trying_all_sets_finds(p: int, count: int, data: st.DataObject) -> None:
    """Also where no set explains the checks: too many wrong values, a few checks that are off, or arbitrary ones."""
    nodes = data.draw(st.lists(st.integers(1, p - 1), min_size=count, max_size=count, unique=True))
    wrong = data.draw(st.sets(st.sampled_from(nodes)))
    checks = sums_of_powers(p, {x: data.draw(st.integers(1, p - 1)) for x in wrong}, data.draw(st.integers(1, 6)))
    for at in data.draw(st.sets(st.integers(0, len(checks) - 1), max_size=2)):
        checks[at] = data.draw(st.integers(0, p - 1))
    assert checking.located(p, nodes, checks) == by_trial(p, nodes, checks)


@pytest.mark.parametrize("first", [1, 5])
def test_a_recurrence_longer_than_its_polynomial_names_nobody(first: int) -> None:
    """Of α^l, with another first term, the polynomial is that of α alone, and the recurrence one longer."""
    p, alpha = Field.of(1).primes[0], 1234
    checks = sums_of_powers(p, {alpha: 7}, 6)
    assert checking.located(p, [99, alpha], checks) == (1,)
    checks[0] += first
    assert checking.located(p, [99, alpha], checks) == ()
    assert checking.located(p, [99, alpha], [first, 0, 0, 0]) == ()


def test_honest_uploads_never_load_galois() -> None:
    code = (
        "import sys\nfrom tests.unit.test_checking import honest\nassert honest(5, 1, 1, 5).check().liars(1) == ()\n"
        "print('numba' in sys.modules, 'galois' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["False", "False"]


def test_a_check_refuses_what_it_cannot_decide() -> None:
    case = honest(9, 1, 1, 5)
    with pytest.raises(InvalidInput, match="2 liars cannot be told from 5 uploads"):
        case.check().liars(2)
    for responders in ([0, 1], [0, 0, 1], [0, 1, 9]):
        with pytest.raises(InvalidInput):
            Check(case.code, case.layout, responders)


# --- with the decoder ---------------------------------------------------------------------------------------------------


def test_a_decoder_sums_r_and_checks_all() -> None:
    case = honest(6, 1, 1, 6, lanes=2, widths=(2, 2))
    shape = Shape((0, 1), case.layout)
    weights = case.code.weights(case.responders[:3])

    def decode(uploads: dict[int, Values], check: Check | None, responders: tuple[int, ...]) -> Distances:
        decoder = Decoder(shape, responders, weights, check)
        for j in responders:
            words = case.layout.pack([lane.astype(float) for lane in uploads[j]])
            decoder.add(j, 0, words[:5])
            decoder.add(j, 5, words[5:])
        distances = Distances(case.code.field, case.layout.rows, 2)
        decoder.finish(distances)
        return distances

    bare = decode(case.uploads, None, case.responders[:3])
    check = Check(case.code, case.layout, case.responders)
    np.testing.assert_array_equal(decode(case.uploads, check, case.responders).digits, bare.digits)
    assert check.liars(1) == ()
    uploads = case.copies()
    uploads[5][1][8, 1] ^= 1  # one bit of the last entry of one that is not even summed
    check = Check(case.code, case.layout, case.responders)
    np.testing.assert_array_equal(decode(uploads, check, case.responders).digits, bare.digits)
    assert check.liars(1) == (5,)


def test_an_impossible_residue_changes_nothing() -> None:
    case = honest(5, 1, 1, 5, lanes=1, widths=(2,))
    check = Check(case.code, case.layout, case.responders)
    decoder = Decoder(Shape((0, 1), case.layout), case.responders, case.code.weights(case.responders[:3]), check)
    words = case.layout.pack([case.uploads[0][0].astype(float)])
    words[1] |= np.uint64((1 << 21) - 1)
    before = check._sums[0].copy()
    with pytest.raises(Malformed, match="not below its prime"):
        decoder.add(0, 0, words)
    assert decoder.received(0) == 0
    np.testing.assert_array_equal(check._sums[0], before)
