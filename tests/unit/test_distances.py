"""A client's part of a round: coded distances against their definition, and updates against starting afresh."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from secfc.coding.field import Field
from secfc.coding.lagrange import Code
from secfc.coding.sharing import CodedRows, ShareSet
from secfc.errors import InvalidInput
from secfc.kmeans.decoding import Decoder, Distances
from secfc.kmeans.distances import CodedClusters, Shape
from tests import reference

SEED = bytes(32)


def held(field: Field, shares: np.ndarray) -> CodedRows:
    """Coded rows of given residues (L, rows, length)."""
    coded = CodedRows(field, shares.shape[1], shares.shape[2])
    coded.matrix[:, :, :-2] = shares
    coded.finish()
    return coded


def coded_client(code: Code, rows: np.ndarray, client: int) -> CodedRows:
    shares = ShareSet(code, rows, SEED)
    coded = CodedRows(code.field, len(rows), shares.length)
    coded.put(slice(0, len(rows)), shares.shares([client])[0])
    coded.finish()
    return coded


def uniform_shape(field: Field, rows: int, columns: tuple[int, ...]) -> Shape:
    """All columns in all lanes."""
    sizes = np.ones(max(columns) + 1, dtype=np.int64)
    return Shape.of(field, rows, sizes, columns, field.modulus - 1)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("length", [1, 3, 8190, 8192, 9000])
def test_an_upload_is_its_definition(length: int, weighted: bool) -> None:
    """docs/protocol.md, Section 3: d̃_{i,h,j} = ‖Σ_{S_h} x̃ − |S_h|·x̃_i‖², in Python integers; residues at the edge for
    long shares."""
    field = Field.of(2)
    pick = np.random.default_rng(length)
    shares = np.stack([np.where(pick.random((5, length)) < 0.5, p // 2, -(p // 2)) for p in field.primes]).astype(float)
    if length < 10:
        shares = np.stack([pick.integers(-(p // 2), p // 2 + 1, (5, length)) for p in field.primes]).astype(float)
    clusters = CodedClusters(held(field, shares), 3)
    labels = [0, 2, 0, -1, 0]
    clusters.assign(np.array(labels, dtype=np.int32))
    weights = np.array([-17.0, 99999.0]) if weighted else None
    got = field.unpack(clusters.upload(uniform_shape(field, 5, (0, 2)), weights), 5, 2)
    for lane, p in enumerate(field.primes):
        plain = shares[lane].astype(int).tolist()
        factor = int(weights[lane]) if weights is not None else 1
        for column, h in enumerate((0, 2)):
            expected = [v * factor % p for v in reference.scaled(reference.as_rows(plain), labels, h)]
            assert (got[lane, :, column].astype(int) % p).tolist() == expected


@settings(deadline=None, max_examples=40, suppress_health_check=list(HealthCheck))
@given(st.lists(st.lists(st.integers(-1, 3), min_size=9, max_size=9), min_size=1, max_size=6))
def test_moving_step_by_step_is_starting_afresh(steps: list[list[int]]) -> None:
    """Centre sums are updated by what changed; the upload is the same as from scratch."""
    code = Code(Field.of(2), 3, 1, 1)
    coded = coded_client(code, np.arange(27).reshape(9, 3) * 37 - 400, 1)
    moving = CodedClusters(coded, 4)
    for labels in steps:
        wanted = np.array(labels, dtype=np.int32)
        changed = int((moving.labels != wanted).sum())
        assert moving.assign(wanted) == changed
        fresh = CodedClusters(coded, 4)
        fresh.assign(wanted)
        assert moving.sizes.tolist() == fresh.sizes.tolist() == [labels.count(h) for h in range(4)]
        shape = uniform_shape(code.field, 9, tuple(range(4)))
        assert moving.upload(shape).tobytes() == fresh.upload(shape).tobytes()


def test_columns_of_unchanged_clusters_stay_the_same() -> None:
    """docs/protocol.md, Section 3: columns of unchanged clusters need not be sent again, because they would be identical."""
    code = Code(Field.of(2), 3, 1, 1)
    clusters = CodedClusters(coded_client(code, np.arange(24).reshape(8, 3), 0), 3)
    clusters.assign(np.array([0, 0, 1, 1, 2, 2, 2, 1], dtype=np.int32))
    one, two = (uniform_shape(code.field, 8, (h,)) for h in (0, 1))
    kept, changed = clusters.upload(one), clusters.upload(two)
    clusters.move(np.array([2, 4]), np.array([2, 1], dtype=np.int32))
    assert clusters.upload(one).tobytes() == kept.tobytes()
    assert (clusters.upload(two) != changed).any()


def test_shape_saves_lanes_for_small_clusters() -> None:
    """|S_h| is public: a column has the lanes that |S_h|²·d·(2η)² needs, and flips exactly there."""
    field = Field.of(3)
    p = field.primes[0]
    sizes = np.array([1, 40, 2000, 0, 41])
    shape = Shape.of(field, 7, sizes, (0, 1, 2, 4), 1309)
    assert 40**2 * 1309 < p <= 41**2 * 1309
    assert shape.columns == (2, 4, 0, 1)
    assert shape.layout.widths == (4, 2, 0)
    assert Shape.of(field, 7, np.array([1]), (0,), p - 1).layout.widths == (1, 0, 0)
    assert Shape.of(field, 7, np.array([1]), (0,), p).layout.widths == (1, 1, 0)
    assert Shape.of(field, 7, sizes, (), 5).layout.words == 0


@pytest.mark.parametrize(("l", "t"), [(1, 1), (2, 1), (2, 2)])
def test_saved_lanes_still_decode(l: int, t: int) -> None:  # noqa: E741
    """Clusters of 1, 3 and 60 rows, in 2, 2 and 3 lanes: all decode to the integers of the definition."""
    n = 2 * l + 2 * t - 1
    code = Code(Field.of(3), n, l, t)
    eta = 40000
    rows = np.random.default_rng(1).integers(-eta, eta + 1, size=(64, 3))
    rows[0], rows[1] = eta, -eta
    labels = np.array([0] + [1] * 3 + [2] * 60, dtype=np.int32)
    unit = 3 * (2 * eta) ** 2
    sizes = np.bincount(labels)
    shape = Shape.of(code.field, 64, sizes, (0, 1, 2), unit)
    assert sorted(code.field.lanes_for(int(c) ** 2 * unit) for c in sizes) == [2, 2, 3]
    decoder = Decoder(shape, range(n), code.weights(range(n)))
    for j in range(n):
        clusters = CodedClusters(coded_client(code, rows, j), 3)
        clusters.assign(labels)
        decoder.add(j, 0, clusters.upload(shape))
    distances = Distances(code.field, 64, 3)
    distances.digits[:] = 12345  # what earlier rounds left behind
    decoder.finish(distances)
    for h in range(3):
        expected = reference.scaled(reference.as_rows(rows), labels.tolist(), h)
        assert distances.integers([h])[:, 0].tolist() == expected


def test_many_rows_over_blocks_and_threads() -> None:
    code = Code(Field.of(1), 3, 1, 1)
    coded = coded_client(code, np.arange(10002).reshape(5001, 2) % 777, 2)
    clusters = CodedClusters(coded, 2)
    clusters.assign((np.arange(5001) % 2).astype(np.int32))
    shape = uniform_shape(code.field, 5001, (0, 1))
    got = code.field.unpack(clusters.upload(shape), 5001, 2)[0].astype(int)
    p = code.field.primes[0]
    x = coded.matrix[0, :, :2].astype(int)
    for h in range(2):
        size, total = len(x[h::2]), x[h::2].sum(axis=0)
        expected = sum((int(total[c]) - size * x[:, c].astype(object)) ** 2 for c in range(2))
        assert ((expected - got[:, h]) % p == 0).all()


@pytest.mark.parametrize(
    ("columns", "words"),
    [((0, 0), "distinct clusters"), ((3,), "distinct clusters"), ((-1,), "distinct clusters"), ((1,), "empty cluster")],
)
def test_bad_columns_are_refused(columns: tuple[int, ...], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        Shape.of(Field.of(1), 5, np.array([1, 0, 2]), columns, 10)


def test_bad_assignments_are_refused_and_change_nothing() -> None:
    clusters = CodedClusters(held(Field.of(1), np.ones((1, 4, 2))), 2)
    clusters.assign(np.array([0, 1, 1, -1], dtype=np.int32))
    for labels in ([0, 1, 2, 0], [0, 1, -2, 0], [0, 1, 1], [[0, 1, 1, 0]]):
        with pytest.raises(InvalidInput):
            clusters.assign(np.array(labels, dtype=np.int32))
    with pytest.raises(InvalidInput, match="from 0 to 1"):
        clusters.move(np.array([0, 1]), np.array([1], dtype=np.int32))
    assert clusters.labels.tolist() == [0, 1, 1, -1]
    assert clusters.sizes.tolist() == [1, 2]
