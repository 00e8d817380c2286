"""Parcels in pieces: cut, put together, and everything that is refused on the way without changing anything."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from secfc.coding.field import Field, Layout
from secfc.errors import Malformed
from secfc.protocol import transfer
from secfc.protocol.effects import Arrived
from secfc.protocol.parcels import Data, Kind, Parcel, Whole, of_words
from secfc.protocol.transfer import FIRST_BYTES, PIECE_BYTES, Gathered, GatheredWords, pieces, take
from tests.parties import unchanged

PARCEL = Parcel(b"s" * 32, Kind.IDS)


def arrived(data: bytes, offset: int, total: int) -> Arrived:
    return Arrived("a", PARCEL, offset, total, data)


def test_pieces_begin_small_and_grow() -> None:
    data = bytes(5 * PIECE_BYTES)
    cut = list(pieces(Whole(data)))
    sizes = [len(piece) for _, piece in cut]
    assert sizes[:6] == [FIRST_BYTES, FIRST_BYTES, 2 * FIRST_BYTES, 2 * FIRST_BYTES, 4 * FIRST_BYTES, 4 * FIRST_BYTES]
    assert max(sizes) == PIECE_BYTES
    assert [at for at, _ in cut] == [0, *itertools.accumulate(sizes)][:-1]
    assert sum(sizes) == len(data)


@pytest.mark.parametrize("first", [0, 1, 7, 99])
def test_a_sender_goes_on_where_the_receiver_stands(first: int) -> None:
    data = bytes(range(100))
    assert b"".join(bytes(piece) for _, piece in pieces(Whole(data), first)) == data[first:]


@pytest.mark.parametrize(("data", "first"), [(b"", 0), (b"abc", 3), (b"abc", 9)])
def test_a_parcel_with_nothing_to_send_still_tells_its_total(data: bytes, first: int) -> None:
    assert list(pieces(Whole(data), first)) == [(len(data), b"")]


class Made:
    """A body that is made in steps of its own."""

    total = 20

    def pieces(self, first: int) -> Iterator[tuple[int, Data]]:
        for at in range(first, 20, 8):
            yield at, bytes(range(at, min(at + 8, 20)))


def test_a_body_made_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "PIECE_BYTES", 3)
    cut = list(pieces(Made(), 4))
    assert b"".join(bytes(piece) for _, piece in cut) == bytes(range(4, 20))
    assert max(len(piece) for _, piece in cut) == 3
    assert all(bytes(piece)[0] == at for at, piece in cut)


@given(data=st.binary(max_size=40), cuts=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=12))
def test_whatever_overlaps_is_taken_once(data: bytes, cuts: list[tuple[int, int]]) -> None:
    sink, whole = Gathered(40), False
    for first, size in [*cuts, (0, len(data))]:
        piece = arrived(data[first : first + size], min(first, len(data)), len(data))
        if piece.offset > sink.received:
            with unchanged(sink), pytest.raises(Malformed, match="are due, not from"):
                take(sink, piece)
        else:
            whole = take(sink, piece)
    assert whole
    assert sink.data == data


@pytest.mark.parametrize(
    ("piece", "words"),
    [
        (arrived(b"de", 3, 6), "bytes from offset 2 are due, not from 3"),
        (arrived(b"cdefg", 2, 6), "reaches beyond its total"),
        (arrived(b"cd", 2, 7), "of one total; not 7"),
        (arrived(b"cd", 2, 11), "at most 10 bytes are due, and of one total; not 11"),
        (arrived(b"", 7, 6), "reaches beyond its total"),
    ],
)
def test_what_does_not_fit_changes_nothing(piece: Arrived, words: str) -> None:
    sink = Gathered(10)
    assert not take(sink, arrived(b"ab", 0, 6))
    with unchanged(sink), pytest.raises(Malformed, match=words):
        take(sink, piece)
    assert take(sink, arrived(b"cdef", 2, 6))
    assert sink.data == b"abcdef"


def test_a_gap_at_the_very_beginning_does_not_fix_the_total() -> None:
    sink = Gathered(10)
    for wrong in (arrived(b"x", 5, 9), arrived(b"xyz", 0, 2), arrived(b"", 0, 11)):
        with unchanged(sink), pytest.raises(Malformed):
            take(sink, wrong)
    assert take(sink, arrived(b"ab", 0, 2))


def test_an_empty_parcel_is_whole_at_once() -> None:
    assert take(Gathered(0), arrived(b"", 0, 0))
    with pytest.raises(Malformed):
        take(Gathered(0), arrived(b"x", 0, 1))


def test_words_are_checked_as_they_come() -> None:
    layout = Layout.uniform(Field.of(3), 5, 2)
    words = np.zeros(layout.words, np.uint64)
    data = bytes(of_words(words).data)
    sink = GatheredWords(layout)
    assert not take(sink, arrived(data[:16], 0, len(data)))
    cases = [
        (arrived(bytes(7), 16, len(data)), "ends within one"),
        (arrived(b"\xff" * 8, 16, len(data)), "not below its prime|prime"),
        (arrived(bytes(8), 16, len(data) + 8), f"{len(data)} bytes are due, not {len(data) + 8}"),
    ]
    for piece, text in cases:
        with unchanged(sink), pytest.raises(Malformed, match=text):
            take(sink, piece)
    assert (sink.complete, take(sink, arrived(data, 0, len(data))), sink.complete) == (False, True, True)
    np.testing.assert_array_equal(sink.words, words)
    with unchanged(sink):
        assert take(sink, arrived(data, 0, len(data))), "what comes again is passed over"
