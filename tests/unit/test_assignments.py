"""Assignments as bytes: round trips, the shorter of the two forms, and nothing but Malformed from arbitrary bytes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secfc.errors import Malformed
from secfc.kmeans import assignments

Labels = npt.NDArray[np.int32]
calm = settings(deadline=None, max_examples=150)


@st.composite
def pairs(draw: st.DrawFn, most: int = 2000) -> tuple[Labels, Labels, int]:
    """An assignment, one that changes it in a few places or in many, and k."""
    k = draw(st.integers(1, 300))
    rows = draw(st.integers(1, most))
    generator = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    base = generator.integers(-1, k, rows, dtype=np.int32)
    labels = base.copy()
    share = draw(st.sampled_from([0.0, 0.001, 0.01, 0.1, 0.5, 1.0]))
    moved = generator.random(rows) < share
    labels[moved] = generator.integers(-1, k, int(moved.sum()), dtype=np.int32)
    return labels, base, k


@calm
@given(pairs())
def test_round_trips(case: tuple[Labels, Labels, int]) -> None:
    labels, base, k = case
    whole = assignments.encode(labels, k)
    assert not assignments.is_change(whole)
    assert len(whole) == 1 + -(-len(labels) * k.bit_length() // 8)
    got = assignments.decode(whole, len(labels), k, None)
    assert got.dtype == np.int32
    assert got.tolist() == labels.tolist()
    assert assignments.decode(whole, len(labels), k, base).tolist() == labels.tolist()

    before = base.copy()
    data = assignments.encode(labels, k, base)
    assert assignments.decode(data, len(labels), k, base).tolist() == labels.tolist()
    assert (base == before).all(), "the base is not written to"
    assert max(len(whole), len(data)) <= assignments.largest(len(labels), k)
    assert len(data) <= len(whole), "a change is never longer than the whole"
    if assignments.is_change(data):
        with pytest.raises(Malformed, match="neither whole nor a change of one we hold"):
            assignments.decode(data, len(labels), k, None)


def change_length(labels: Labels, base: Labels, k: int) -> int:
    rows = np.flatnonzero(labels != base)
    gap = int(np.diff(rows, prepend=0).max(initial=0)).bit_length()
    return 6 + -(-len(rows) * gap // 8) + -(-len(rows) * k.bit_length() // 8)


@calm
@given(pairs())
def test_the_shorter_form_is_used(case: tuple[Labels, Labels, int]) -> None:
    """Up to the two bytes by which the estimate in `encode` may be off."""
    labels, base, k = case
    shortest = min(change_length(labels, base, k), len(assignments.encode(labels, k)))
    assert shortest <= len(assignments.encode(labels, k, base)) <= shortest + 2


def test_few_changes_of_many_rows_are_short() -> None:
    base = np.zeros(100_000, dtype=np.int32)
    labels = base.copy()
    assert len(assignments.encode(labels, 16, base)) == 6, "nothing changed"
    labels[[5, 99_999]] = (15, -1)
    data = assignments.encode(labels, 16, base)
    assert assignments.is_change(data)
    assert len(data) < 16
    assert assignments.decode(data, 100_000, 16, base).tolist() == labels.tolist()


def test_the_bytes_are_those_of_the_description() -> None:
    """docs and other implementations depend on them."""
    labels = np.array([-1, 0, 1, 2, 2], dtype=np.int32)
    assert assignments.encode(labels, 3) == bytes([0, 0b11_10_01_00, 0b11])  # label+1, two bits each
    base = np.zeros(200, dtype=np.int32)
    changed = base.copy()
    changed[[3, 8]] = (2, -1)
    assert assignments.encode(changed, 3, base) == bytes([1, 2, 0, 0, 0, 3, 0b101_011, 0b00_11])


@calm
@given(st.binary(max_size=60), st.integers(1, 40), st.integers(1, 20), st.booleans())
def test_arbitrary_bytes_are_malformed_or_an_assignment(data: bytes, rows: int, k: int, based: bool) -> None:
    base = np.full(rows, -1, dtype=np.int32) if based else None
    check_decoding(data, rows, k, base)


def check_decoding(data: bytes, rows: int, k: int, base: Labels | None) -> None:
    try:
        labels = assignments.decode(data, rows, k, base)
    except Malformed as error:
        assert len(str(error).splitlines()) == 1  # noqa: PT017
        return
    assert labels.shape == (rows,)
    assert labels.dtype == np.int32
    assert labels.min() >= -1
    assert labels.max() < k
    if base is None:
        assert assignments.encode(labels, k) == data, "whole assignments have one encoding"


@calm
@given(pairs(60), st.data())
def test_damaged_encodings_are_malformed_or_an_assignment(
    case: tuple[Labels, Labels, int], data: st.DataObject
) -> None:
    labels, base, k = case
    good = bytearray(assignments.encode(labels, k, base if data.draw(st.booleans()) else None))
    for _ in range(data.draw(st.integers(1, 3))):
        good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(good)))
    check_decoding(bytes(good), len(labels), k, base)
    check_decoding(bytes(good[:cut]), len(labels), k, base)
    check_decoding(bytes(good) + b"\0", len(labels), k, base)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "neither whole nor a change"),
        (b"\2\0\0", "neither whole nor a change"),
        (b"\1\0\0\0", "neither whole nor a change"),
        (b"\0", "wrong length"),
        (b"\0\0\0", "wrong length"),
        (b"\0\0\0\0\0", "wrong length"),
        (b"\0\0\0\0\xf0", "wrong length"),
        (b"\0\0\0\xf0", "set bits after its end"),
        (b"\0\xff\0\0", "names a cluster beyond 4"),
        (b"\1\xff\xff\xff\xff\1", "changes more rows than there are"),
        (b"\1\1\0\0\0\xff", "changes more rows than there are"),
        (b"\1\1\0\0\0\x21", "changes more rows than there are"),
        (b"\1\1\0\0\0\3\7\1", "a row twice or one that does not exist"),
        (b"\1\1\0\0\0\x20\xff\xff\xff\xff\1", "a row twice or one that does not exist"),
        (b"\1\2\0\0\0\1\1\x09", "a row twice or one that does not exist"),
        (b"\1\2\0\0\0\0\x09", "a row twice or one that does not exist"),
        (b"\1\1\0\0\0\3\1\7", "names a cluster beyond 4"),
        (b"\1\1\0\0\0\3\1\x09", "set bits after its end"),
        (b"\1\1\0\0\0\3\1", "wrong length"),
        (b"\1\1\0\0\0\3\1\1\1", "wrong length"),
    ],
)
def test_malformed(data: bytes, words: str) -> None:
    """Seven rows, five clusters: three bits a label, 21 in all."""
    with pytest.raises(Malformed, match=words):
        assignments.decode(data, 7, 5, np.zeros(7, dtype=np.int32))
