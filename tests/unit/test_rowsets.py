"""Which rows of which columns are asked for, as bytes: compact, and nothing but what is honest is read."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from secfc.errors import Malformed
from secfc.kmeans.rowsets import Wanted, decode, encode

LABELS = np.array([0, 1, 1, 2, 0, 1, 2, 2, 0, 1], dtype=np.int32)


def some(*rows: int, own: bool = False) -> Wanted:
    return Wanted(np.array(rows, dtype=np.int32), own)


@given(st.data())
def test_what_is_written_is_read(data: st.DataObject) -> None:
    rows = data.draw(st.integers(1, 300))
    labels = np.array(data.draw(st.lists(st.integers(0, 3), min_size=rows, max_size=rows)), dtype=np.int32)
    wanted = {}
    for h in np.unique(labels).tolist():
        others = sorted(data.draw(st.sets(st.sampled_from(range(rows)))) - set(np.flatnonzero(labels == h).tolist()))
        own = data.draw(st.booleans()) or not others
        wanted[h] = Wanted() if data.draw(st.integers(0, 4)) == 0 else some(*others, own=own)
    read = decode(encode(wanted, rows), list(wanted), labels)
    assert list(read) == list(wanted)
    for h, one in wanted.items():
        assert read[h].rows(labels, h).tolist() == one.rows(labels, h).tolist()
        assert len(one.rows(labels, h)) == one.count(rows, int((labels == h).sum()))
        expected = set(range(rows)) if one.others is None else set(one.others.tolist())
        own = set(np.flatnonzero(labels == h).tolist()) if one.own else set()
        assert read[h].rows(labels, h).tolist() == sorted(expected | own)


def test_all_rows_of_all_columns_take_no_bytes() -> None:
    assert encode({0: Wanted(), 2: Wanted()}, 10) == b""
    assert [one.others for one in decode(b"", (0, 2), LABELS).values()] == [None, None]


def test_the_shorter_way_is_taken() -> None:
    """A few rows of many are gaps of some bits each; many are one bit each."""
    few, many = some(5, 70_000), Wanted(np.delete(np.arange(100_000, dtype=np.int32), slice(5, None, 2)))
    assert len(encode({0: few}, 100_000)) < 12
    assert len(encode({0: many}, 100_000)) == 1 + 12_500


GOOD = encode({0: some(3, 9, own=True), 1: some(0)}, 10)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (GOOD[:-1], "wrong length"),
        (GOOD + b"\0", "wrong length"),
        (b"\0\0", "wrong length"),  # all rows of all columns are said with nothing
        (b"\4\0", "a way this version does not know"),
        (b"\3\0", "a way this version does not know"),
        (b"\x09\0", "a way this version does not know"),
        (b"", ""),
        (b"\1\xff\xff\0", "set bits after its end"),
        (b"\1\0\0\0", "none"),
        (b"\2\0\0\0\0\0\0", "none"),
        (b"\5\x01\0\0", "name rows of the cluster twice"),  # row 0 is in cluster 0
        (b"\2\x0b\0\0\0\x01\xff\xff\0", "more than there are"),
        (b"\2\x02\0\0\0\x04\x03\0", "come twice or do not exist"),
        (b"\2\x01\0\0\0\x04\x0a\0", "come twice or do not exist"),
        (b"\2\x01\0\0\0\x20\x00\0\0\0\0", "more than there are"),
        (b"\2\x01\0\0", "a way this version does not know"),
    ],
)
def test_anything_else_is_refused(data: bytes, words: str) -> None:
    if not words:
        decode(data, (0, 1), LABELS)
        return
    with pytest.raises(Malformed, match=words):
        decode(data, (0, 1), LABELS)
    assert decode(GOOD, (0, 1), LABELS)[0].rows(LABELS, 0).tolist() == [0, 3, 4, 8, 9]


@given(st.binary(max_size=40))
def test_no_bytes_do_worse_than_being_refused(data: bytes) -> None:
    try:
        found = decode(data, (0, 1, 2), LABELS)
    except Malformed:
        return
    for h, one in found.items():
        rows = one.rows(LABELS, h)
        assert 0 < len(rows) <= 10
        assert (np.diff(rows) > 0).all()
        assert 0 <= rows[0] <= rows[-1] < 10
