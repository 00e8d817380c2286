"""Lanes: arithmetic, Chinese remainders and packing against galois and Python integers, up to the edge of float64."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from secfc.coding import field as module
from secfc.coding.field import EXACT_TERMS, MAX_LANES, Field, Layout
from secfc.errors import InvalidInput, Malformed, RangeError
from secfc.kmeans.decoding import Distances
from tests.oracle import flat_order, in_galois, words_of

calm = settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))


def random_residues(field: Field, *shape: int, seed: int = 0) -> np.ndarray:
    pick = np.random.default_rng(seed)
    lanes = [pick.integers(-(p // 2), p // 2 + 1, size=shape) for p in field.primes]
    return np.stack(lanes).astype(np.float64)


# --- primes and construction ------------------------------------------------------------------------------------------


def test_lanes_are_the_largest_primes_below_2_21() -> None:
    galois = pytest.importorskip("galois")
    primes = Field.of(MAX_LANES).primes
    expected, bound = [], 1 << 21
    while len(expected) < MAX_LANES:
        bound = galois.prev_prime(bound - 1)
        expected.append(bound)
    assert list(primes) == expected
    assert all(Field.of(lanes).primes == primes[:lanes] for lanes in range(1, MAX_LANES))


def test_float64_adds_8192_products_exactly() -> None:
    """Why EXACT_TERMS is what it is: the largest sum is an integer float64 holds, and twice as many would not be."""
    largest = module.lane_primes(1)[0] // 2
    assert EXACT_TERMS * (largest + 2) ** 2 < 1 << 53 < 2 * EXACT_TERMS * largest**2


@pytest.mark.parametrize(
    ("primes", "error", "words"),
    [
        ((), RangeError, "1 to 16 lanes, not 0"),
        (module.lane_primes(17), RangeError, "lower max_rows, bound or precision"),
        ((31, 31), InvalidInput, "differ"),
        ((33,), InvalidInput, "33 is not an odd prime"),
        ((2,), InvalidInput, "2 is not an odd prime"),
        ((-7,), InvalidInput, "not an odd prime"),
        ((2097169,), InvalidInput, "below 2\\^21"),
    ],
)
def test_a_field_refuses_bad_primes(primes: tuple[int, ...], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        Field(primes)


@pytest.mark.parametrize("lanes", [0, -1, 17])
def test_a_field_has_1_to_16_lanes(lanes: int) -> None:
    with pytest.raises(RangeError, match="1 to 16 lanes"):
        Field.of(lanes)


def test_lanes_for_flips_exactly_at_the_product() -> None:
    """A value fits iff it is below the product of the lanes: Q − 1 does, Q needs one more."""
    field = Field.of(6)
    for lanes in range(1, 6):
        product = Field.of(lanes).modulus
        assert field.lanes_for(product - 1) == lanes
        assert field.lanes_for(product) == lanes + 1
    assert field.lanes_for(0) == 1
    assert field.lanes_for(field.modulus - 1) == 6
    with pytest.raises(RangeError, match="does not fit into 6 lanes"):
        field.lanes_for(field.modulus)


# --- integers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lanes", [1, 2, 3, 4, 5, 6, 16])
def test_crt_round_trip_at_the_edges(lanes: int) -> None:
    field = Field.of(lanes)
    q = field.modulus
    values = [0, 1, q - 1, q // 2, q // 2 + 1, q - 2, field.primes[0] % q, q // 3]
    residues = field.from_ints(np.array(values, dtype=object))
    assert residues.shape == (lanes, len(values))
    for lane, p in enumerate(field.primes):
        assert [int(r) % p for r in residues[lane]] == [v % p for v in values]
        assert np.abs(residues[lane]).max() <= p // 2
    assert field.to_ints(residues).tolist() == values
    negative = field.from_ints(np.array([-v for v in values], dtype=object))
    assert field.to_ints(negative).tolist() == [-v % q for v in values]


@calm
@given(st.integers(1, 6), st.lists(st.integers(-(1 << 63), (1 << 63) - 1), min_size=1, max_size=9))
def test_from_ints_of_int64(lanes: int, values: list[int]) -> None:
    """docs/protocol.md, Section 1: a negative number becomes q + x."""
    field = Field.of(lanes)
    array = np.array(values, dtype=np.int64)
    assert field.to_ints(field.from_ints(array)).tolist() == [v % field.modulus for v in values]


def test_from_ints_takes_unsigned_and_refuses_fractions() -> None:
    field = Field.of(4)
    assert field.to_ints(field.from_ints(np.array([2**64 - 1], dtype=np.uint64))).tolist() == [2**64 - 1]
    with pytest.raises(InvalidInput, match="integers are needed"):
        field.from_ints(np.array([1.5]))


@pytest.mark.parametrize("lanes", [1, 2, 3, 4, 5, 6, 16])
def test_mixed_radix_at_the_edge_of_q(lanes: int) -> None:
    """Digits of Q − 1, Q − 2, 0, … are right, and give the number back: no lane is lost in Garner's algorithm."""
    from secfc.kmeans.decoding import Decoder
    from secfc.kmeans.distances import Shape

    field = Field.of(lanes)
    q = field.modulus
    top = q // field.primes[-1]
    values = [q - 1, q - 2, 0, 1, q // 2, q // 2 + 1, field.primes[-1] % q, top, top - 1]
    words = field.pack(field.from_ints(np.array(values, dtype=object).reshape(-1, 1)))
    decoder = Decoder(Shape((0,), Layout.uniform(field, len(values), 1)), [0], None)
    decoder.add(0, 0, words)
    distances = Distances(field, len(values), 1)
    decoder.finish(distances)
    assert distances.integers([0])[:, 0].tolist() == values
    for value, digits in zip(values, distances.digits[:, :, 0].T.tolist(), strict=True):
        rest = value
        for p, digit in zip(field.primes, digits, strict=True):
            rest, expected = divmod(rest, p)
            assert digit == expected


# --- arithmetic -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lanes", range(1, 7))
def test_matmul_against_galois(lanes: int) -> None:
    field = Field.of(lanes)
    left, right = random_residues(field, 5, 7, seed=lanes), random_residues(field, 7, 4, seed=lanes + 9)
    got = field.matmul(left, right)
    for lane, p in enumerate(field.primes):
        assert (in_galois(p, got[lane]) == in_galois(p, left[lane]) @ in_galois(p, right[lane])).all()
        assert np.abs(got[lane]).max() <= p // 2 + 2


@pytest.mark.parametrize("inner", [8190, 8191, 8192, 8193, 16382, 16383, 16384, 20000])
def test_matmul_at_the_edge_of_float64(inner: int) -> None:
    """All residues at ±(p−1)/2: the largest and smallest sums there are, for lengths around 8192, in Python integers."""
    field = Field.of(2)
    signs = np.ones((3, inner))
    signs[1, ::2] = -1
    signs[2, 1] = 0  # so that sums are odd as well
    left = np.stack([p // 2 * signs for p in field.primes])
    right = np.stack([p // 2 * np.stack([np.ones(inner), -np.ones(inner), signs[1]], axis=1) for p in field.primes])
    got = field.matmul(left, right)
    for lane, p in enumerate(field.primes):
        edge = (p // 2) ** 2
        table = signs.astype(int) @ (np.stack([np.ones(inner), -np.ones(inner), signs[1]], axis=1)).astype(int)
        expected = [[int(v) * edge % p for v in row] for row in table]
        assert (got[lane].astype(int) % p).tolist() == expected


def test_matmul_over_many_rows_and_blocks() -> None:
    field = Field.of(1)
    left, right = random_residues(field, 5000, 3), random_residues(field, 3, 2, seed=4)
    expected = left[0].astype(int) @ right[0].astype(int) % field.primes[0]
    assert (field.matmul(left, right)[0].astype(int) % field.primes[0] == expected).all()


def test_matmul_of_nothing() -> None:
    field = Field.of(2)
    assert field.matmul(np.zeros((2, 0, 3)), np.zeros((2, 3, 4))).shape == (2, 0, 4)
    assert (field.matmul(np.zeros((2, 2, 0)), np.zeros((2, 0, 4))) == 0).all()


@calm
@given(st.integers(1, 16), st.lists(st.integers(-(1 << 53) + (1 << 21), (1 << 53) - (1 << 21)), min_size=1, max_size=5))
def test_reduce(lanes: int, values: list[int]) -> None:
    field = Field.of(lanes)
    array = np.tile(np.array(values, dtype=np.float64), (lanes, 1))
    out = field.reduce(array)
    assert out is array
    for lane, p in enumerate(field.primes):
        assert [int(r) % p for r in out[lane]] == [v % p for v in values]
        assert np.abs(out[lane]).max() <= p // 2 + 2


def test_reduce_at_the_edge_it_promises() -> None:
    """`reduce` promises magnitudes "at most 2⁵³ − 2²⁰"; the protocol's largest sum is smaller by another 8·10¹⁰."""
    field = Field.of(MAX_LANES)
    edge = (1 << 53) - (1 << 20)
    for value in (edge, edge - 1, -edge, -edge + 1):
        out = field.reduce(np.full((MAX_LANES, 1), float(value)))
        assert [int(r) % p for r, p in zip(out[:, 0], field.primes, strict=True)] == [value % p for p in field.primes]


@pytest.mark.parametrize(
    "call",
    [
        lambda f: f.matmul(np.zeros((2, 1, 3)), np.zeros((2, 4, 1))),
        lambda f: f.matmul(np.zeros((1, 1, 3)), np.zeros((2, 3, 1))),
        lambda f: f.matmul(np.zeros((2, 3)), np.zeros((2, 3, 1))),
        lambda f: f.to_ints(np.zeros((3, 1))),
        lambda f: f.reduce(np.zeros((2, 4))[:, ::2]),
        lambda f: f.reduce(np.zeros((2, 4), dtype=np.int64)),
    ],
)
def test_wrong_shapes_are_refused(call: object) -> None:
    with pytest.raises(InvalidInput):
        call(Field.of(2))  # type: ignore[operator]


# --- packing ----------------------------------------------------------------------------------------------------------


@calm
@given(st.integers(1, 6), st.integers(0, 9), st.integers(0, 5), st.integers(0, 99))
def test_pack_and_unpack(lanes: int, rows: int, columns: int, seed: int) -> None:
    field = Field.of(lanes)
    residues = random_residues(field, rows, columns, seed=seed)
    words = field.pack(residues)
    layout = Layout.uniform(field, rows, columns)
    assert words.tolist() == words_of(flat_order(layout, list(residues)))
    assert len(words) == layout.words == -(-rows * columns * lanes // 3)
    assert (field.unpack(words, rows, columns) == residues).all()


def test_pack_over_many_blocks() -> None:
    field = Field.of(4)
    residues = random_residues(field, 4001, 7)
    words = field.pack(residues)
    assert words.tolist() == words_of(flat_order(Layout.uniform(field, 4001, 7), list(residues)))
    assert (field.unpack(words, 4001, 7) == residues).all()


@calm
@given(st.lists(st.integers(0, 4), min_size=1, max_size=6), st.integers(0, 9), st.integers(0, 99))
def test_ragged_layouts(widths: list[int], rows: int, seed: int) -> None:
    field = Field.of(len(widths))
    layout = Layout(field, rows, tuple(widths))
    whole = random_residues(field, rows, max(widths), seed=seed)
    lanes = [whole[lane][:, :width] for lane, width in enumerate(widths)]
    words = layout.pack(lanes)
    assert words.tolist() == words_of(flat_order(layout, lanes))
    out = [np.full((rows, width), 7.0) for width in widths]
    layout.unpack(words, out)
    assert all((a == b).all() for a, b in zip(out, lanes, strict=True))
    layout.unpack(words, out, add=True)
    for p, a, b in zip(field.primes, out, lanes, strict=True):
        assert ((a - 2 * b).astype(int) % p == 0).all()
        assert np.abs(a).max(initial=0) <= p // 2 + 2


def test_unpack_refuses_every_residue_at_or_above_its_prime() -> None:
    """Each residue in turn set to its prime: refused; one below: taken. Lanes have different limits."""
    field = Field.of(3)
    rows, columns = 4, 2
    layout = Layout.uniform(field, rows, columns)
    limits = [p for _ in range(rows) for p in field.primes for _ in range(columns)]
    for q, p in enumerate(limits):
        fields = [0] * len(limits)
        fields[q] = p - 1
        layout.check(np.array(words_of(fields), dtype=np.uint64), 0)
        fields[q] = p
        bad = np.array(words_of(fields), dtype=np.uint64)
        with pytest.raises(Malformed, match="not below its prime"):
            field.unpack(bad, rows, columns)
        with pytest.raises(Malformed, match=f"words {q // 3} to {q // 3} "):
            layout.check(bad[q // 3 : q // 3 + 1], q // 3)


def test_unpack_refuses_padding_top_bits_and_wrong_lengths() -> None:
    field = Field.of(1)
    good = field.pack(np.ones((1, 4, 1)))
    for word, bit in [(1, 21), (1, 42), (1, 62), (0, 63), (1, 63)]:
        bad = good.copy()
        bad[word] |= np.uint64(1 << bit)
        with pytest.raises(Malformed):
            field.unpack(bad, 4, 1)
    for length in (0, 1, 3):
        with pytest.raises(Malformed, match=f"2 words are needed for 4 rows, not {length}"):
            field.unpack(np.zeros(length, dtype=np.uint64), 4, 1)


def test_unpack_leaves_the_target_alone_when_it_refuses() -> None:
    field = Field.of(2)
    words = np.full(2, (1 << 63) - 1, dtype=np.uint64)
    out = [np.full((3, 1), 5.0), np.full((3, 1), 5.0)]
    with pytest.raises(Malformed):
        Layout.uniform(field, 3, 1).unpack(words, out, add=True)
    assert all((lane == 5.0).all() for lane in out)


@pytest.mark.parametrize(("first", "count"), [(-1, 1), (3, 1), (2, 2), (0, 4), (99, 0)])
def test_check_refuses_words_outside(first: int, count: int) -> None:
    layout = Layout.uniform(Field.of(1), 8, 1)
    assert layout.words == 3
    with pytest.raises(Malformed, match=f"{count} words at offset {first} do not fit into 3"):
        layout.check(np.zeros(count, dtype=np.uint64), first)


@pytest.mark.parametrize(("rows", "widths"), [(-1, (1, 1)), (1, (1,)), (1, (1, -1)), (1, ())])
def test_a_layout_refuses_nonsense(rows: int, widths: tuple[int, ...]) -> None:
    with pytest.raises(InvalidInput, match="one width a lane"):
        Layout(Field.of(2), rows, widths)


def test_packed_words_may_be_read_only() -> None:
    """What comes off the wire is a view of immutable bytes."""
    field = Field.of(2)
    residues = random_residues(field, 3, 2)
    wire = np.frombuffer(field.pack(residues).tobytes(), dtype=np.uint64)
    assert not wire.flags.writeable
    assert (field.unpack(wire, 3, 2) == residues).all()
