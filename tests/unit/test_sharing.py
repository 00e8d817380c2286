"""Secure data sharing (docs/protocol.md, Section 2): shares are values of one polynomial, and can be made again."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from secfc.coding.field import Field
from secfc.coding.lagrange import Code, basis
from secfc.coding.sharing import CodedRows, ShareSet, segment_length, squared_norms
from secfc.errors import InvalidInput, Malformed
from tests.oracle import galois_field

SEED = b"0123456789abcdef0123456789abcdef"


def recovered(code: Code, rows: np.ndarray, clients: list[int]) -> np.ndarray:
    """Rows back from the shares of ℓ+t clients, by Lagrange interpolation in Python integers."""
    length = segment_length(rows.shape[1], code.segments)
    shares = ShareSet(code, rows, SEED).shares(clients)
    held = [code.field.unpack(words, len(rows), length) for words in shares]
    lanes = []
    for lane, p in enumerate(code.field.primes):
        table = basis(p, [code.alphas[lane][j] for j in clients], code.betas[lane][: code.segments])
        stacked = np.stack([part[lane] for part in held]).astype(int).astype(object)
        segments = [sum(c * share for c, share in zip(row, stacked, strict=True)) % p for row in table]
        lanes.append(np.concatenate(segments, axis=1).astype(np.float64))
    return code.field.to_ints(np.stack(lanes))


@settings(deadline=None, max_examples=40, suppress_health_check=list(HealthCheck))
@given(st.integers(1, 3), st.integers(0, 3), st.integers(1, 7), st.integers(0, 5), st.integers(1, 4), st.data())
def test_any_l_plus_t_shares_give_the_row_back(l: int, t: int, d: int, m: int, lanes: int, data: st.DataObject) -> None:  # noqa: E741
    """docs/protocol.md, Section 2: f_i(β_u) = x_{i,u}; f_i has degree ℓ+t−1. Rows are padded with zeros to ℓ·⌈d/ℓ⌉."""
    n = data.draw(st.integers(l + t, 9))
    pick = np.random.default_rng(data.draw(st.integers(0, 99)))
    rows = pick.integers(-1000, 1001, size=(m, d))
    code = Code(Field.of(lanes), n, l, t)
    clients = data.draw(st.permutations(range(n)))[: l + t]
    got = recovered(code, rows, clients)
    assert got[:, :d].tolist() == (rows.astype(object) % code.field.modulus).tolist()
    assert not got[:, d:].any()


def test_shares_are_values_at_alpha_by_galois() -> None:
    import galois

    code = Code(Field.of(1), 6, 2, 2)
    gf = galois_field(code.field.primes[0])
    rows = np.array([[3, -1, 4, -1], [5, 9, -2, 6]])
    shares = [code.field.unpack(w, 2, 2)[0].astype(int) % gf.order for w in ShareSet(code, rows, SEED).shares(range(6))]
    for i in range(2):
        for c in range(2):
            values = gf([int(share[i, c]) for share in shares])
            f = galois.lagrange_poly(gf(code.alphas[0]), values)
            assert f.degree == 3
            assert [int(v) for v in f(gf(code.betas[0][:2]))] == [int(rows[i, 2 * u + c]) % gf.order for u in range(2)]


def test_shares_are_made_again_byte_for_byte() -> None:
    """docs/protocol.md, Section 2: a restart can never mix two polynomials; the seed is all there is, in any order of
    receivers."""
    code = Code(Field.of(3), 5, 2, 1)
    rows = np.arange(40).reshape(10, 4)
    whole = ShareSet(code, rows, SEED).shares(range(5))
    again = ShareSet(code, rows, SEED)
    assert [w.tobytes() for w in again.shares([3, 0])] == [whole[3].tobytes(), whole[0].tobytes()]
    other = ShareSet(code, rows, SEED[::-1])
    assert all((a != b).any() for a, b in zip(whole, other.shares(range(5)), strict=True))
    assert again.id == ShareSet(code, rows, SEED).id != other.id
    assert again.id != ShareSet(code, rows[:9], SEED).id
    assert SEED not in again.id


def test_more_rows_than_a_block() -> None:
    """Blocks of 3072 rows have noise keys of their own; the rows come back across the seam."""
    code = Code(Field.of(2), 4, 1, 1)
    rows = np.arange(3 * 3075).reshape(3075, 3) - 4000
    got = recovered(code, rows, [1, 3])
    assert (got.astype(object) == rows.astype(object) % code.field.modulus).all()
    shares = code.field.unpack(ShareSet(code, np.zeros_like(rows), SEED).shares([0])[0], 3075, 3)
    assert len(np.unique(shares[0, :, 0])) > 3000, "every row has noise of its own"
    assert not (shares[:, 0] == shares[:, 3072]).any()


def test_same_rows_get_different_shares() -> None:
    code = Code(Field.of(1), 3, 1, 1)
    share = code.field.unpack(ShareSet(code, np.zeros((50, 2), dtype=np.int64), SEED).shares([0])[0], 50, 2)
    assert len(np.unique(share)) > 95


def test_no_privacy_is_no_noise() -> None:
    code = Code(Field.of(1), 3, 1, 0)
    share = code.field.unpack(ShareSet(code, np.array([[7, -7]]), SEED).shares([2])[0], 1, 2)
    assert share.tolist() == [[[7.0, -7.0]]]


def test_bad_share_sets_are_refused_and_secrets_not_printed() -> None:
    code = Code(Field.of(1), 3, 1, 1)
    for rows in (np.zeros(3, dtype=np.int64), np.zeros((2, 2)), np.zeros((2, 2, 2), dtype=np.int64)):
        with pytest.raises(InvalidInput, match="matrix of quantised"):
            ShareSet(code, rows, SEED)
    with pytest.raises(InvalidInput, match="32 bytes"):
        ShareSet(code, np.zeros((2, 2), dtype=np.int64), SEED[:31])
    shown = repr(ShareSet(code, np.full((2, 2), 77), SEED))
    assert "77" not in shown
    assert str(SEED) not in shown
    assert SEED.hex() not in shown


def test_coded_rows_take_slices_positions_and_sums() -> None:
    field = Field.of(2)
    code = Code(field, 3, 1, 1)
    rows = np.arange(12).reshape(6, 2)
    words = ShareSet(code, rows, SEED).shares([0])[0]
    plain = field.unpack(words, 6, 2)
    whole, scattered = CodedRows(field, 6, 2), CodedRows(field, 6, 2)
    whole.put(slice(0, 6), words)
    order = np.array([5, 0, 3, 1, 4, 2])
    scattered.put(order, words)
    assert (whole.matrix[:, :, :2] == plain).all()
    assert (scattered.matrix[:, order, :2] == plain).all()
    whole.put(np.arange(6), words, add=True)
    whole.put(slice(0, 6), words, add=True)
    for lane, p in enumerate(field.primes):
        assert ((whole.matrix[lane, :, :2] - 3 * plain[lane]).astype(int) % p == 0).all()
        assert np.abs(whole.matrix[lane]).max() <= p // 2 + 2
    whole.finish()
    for lane, p in enumerate(field.primes):
        held = whole.matrix[lane].astype(int).tolist()
        assert all((sum(v * v for v in row[:2]) - row[2]) % p == 0 and row[3] == 1 for row in held)


def test_refused_shares_change_nothing() -> None:
    field = Field.of(1)
    coded = CodedRows(field, 4, 1)
    before = coded.matrix.copy()
    bad = np.array([field.primes[0] << 21, 0], dtype=np.uint64)
    for rows in (slice(0, 4), np.arange(4)):
        with pytest.raises(Malformed):
            coded.put(rows, bad)
        with pytest.raises(Malformed, match="2 words are needed for 4 rows, not 3"):
            coded.put(rows, np.zeros(3, dtype=np.uint64))
    assert (coded.matrix == before).all()


@pytest.mark.parametrize("length", [1, 8191, 8192, 8193, 16382, 20000])
def test_norms_at_the_edge_of_float64(length: int) -> None:
    p = Field.of(1).primes[0]
    half = p // 2
    vectors = np.full((2, length), float(half))
    vectors[1, 0] = half - 1
    got = squared_norms(vectors, p).astype(int) % p
    assert got.tolist() == [length * half**2 % p, ((length - 1) * half**2 + (half - 1) ** 2) % p]
