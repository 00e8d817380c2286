"""An upload of some pairs holds what a whole one holds for them, whatever the blocks of shares are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from secfc.agreement import plan
from secfc.coding.blocks import Ask, T
from secfc.coding.sharing import CodedRows, ShareSet
from secfc.kmeans import blockwork
from secfc.kmeans.decoding import Decoder, Distances
from secfc.kmeans.distances import CodedClusters
from secfc.kmeans.rowsets import Wanted

ROWS, FEATURES = 301, 5
RESPONDERS = (0, 1, 2, 3, 4)
LABELS = np.random.default_rng(3).permutation(np.repeat([0, 1, 2, 3], [1, 40, 60, 200])).astype(np.int32)
PLAN = plan.make(plan.Wishes(5, 1, 4, FEATURES, ROWS, 2.0**18, 0, uploads="open", segments=2))
KEYS = [(bytes([7]) * 32, 1), (bytes([9]) * 32, -1)]


class Split(CodedRows):
    """Shares in memory that are handed out in blocks of so many rows."""

    step = 6

    def each(self, ask: Ask[T]) -> Iterator[T]:
        for first in range(0, self.rows, self.step):
            end = min(first + self.step, self.rows)
            if (operation := ask(first, end)) is not None:
                yield operation(first, np.ascontiguousarray(self.matrix[:, first:end]))


def wanted() -> dict[int, Wanted]:
    draw = np.random.default_rng(5)
    some: dict[int, Wanted] = {1: Wanted()}
    for h, own, share in ((0, True, 0.01), (2, False, 0.3), (3, True, 0.6)):
        others = np.flatnonzero((draw.random(ROWS) < share) & (h != LABELS)).astype(np.int32)
        some[h] = Wanted(others, own)
    return dict(sorted(some.items()))


def clusters(kind: type[CodedRows], client: int, rows: npt.NDArray[np.int64]) -> CodedClusters:
    coded = kind(PLAN.field, ROWS, PLAN.length)
    coded.put(slice(0, ROWS), ShareSet(PLAN.code, rows, bytes(32)).shares(range(5))[client])
    coded.finish()
    made = CodedClusters(coded, 4)
    made.assign(LABELS)
    return made


@pytest.fixture(scope="module")
def rows() -> npt.NDArray[np.int64]:
    return np.random.default_rng(1).integers(-(1 << 18), 1 << 18, (ROWS, FEATURES))


def test_decoded_pairs_are_those_of_whole_columns(rows: npt.NDArray[np.int64]) -> None:
    sizes, asked = np.bincount(LABELS), wanted()
    everybody = [clusters(CodedRows, j, rows) for j in RESPONDERS]
    weights = PLAN.code.weights(RESPONDERS)
    whole, some = Distances(PLAN.field, ROWS, 4), Distances(PLAN.field, ROWS, 4)
    some.digits[:] = 12345
    parts = PLAN.shapes(LABELS, sizes, asked)
    assert len(parts) >= 2, "columns of different sizes need different lanes"
    for shape, into in ((PLAN.shape(ROWS, sizes, tuple(asked)), whole), *((part, some) for part in parts)):
        decoder = Decoder(shape, RESPONDERS, weights)
        for j in RESPONDERS:
            decoder.add(j, 0, everybody[j].upload(shape))
        decoder.finish(into)
    for h, one in asked.items():
        marked = np.zeros(ROWS, dtype=np.bool_)
        marked[one.rows(LABELS, h)] = True
        assert (some.digits[:, marked, h] == whole.digits[:, marked, h]).all()
        assert (some.digits[:, ~marked, h] == 12345).all(), "nothing else is written"


@pytest.mark.parametrize("step", [6, 36, 300, 600])
@pytest.mark.parametrize("masks", [(), KEYS], ids=["plain", "masked"])
def test_blocks_and_resuming_change_no_word(rows: npt.NDArray[np.int64], step: int, masks: Any) -> None:
    Split.step = step
    whole, split = clusters(CodedRows, 2, rows), clusters(Split, 2, rows)
    for part in PLAN.shapes(LABELS, np.bincount(LABELS), wanted()):
        expected = whole.upload(part, None, masks)
        assert (split.upload(part, None, masks) == expected).all()
        later = split.answer(part, None, masks)
        assert later.words == len(expected)
        for first in (1, len(expected) // 2, len(expected) - 1):
            place = first
            for at, words in later.pieces(first):
                assert at == place
                assert (words == expected[at : at + len(words)]).all()
                place += len(words)
            assert place == len(expected)


def test_a_block_with_fewer_pairs_than_fill_words_waits_for_the_next(
    rows: npt.NDArray[np.int64], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Split, "step", 12)
    whole, split = clusters(CodedRows, 2, rows), clusters(Split, 2, rows)
    some = np.array([*range(12), 13, 17, 25, 26, 30, 31, 32], dtype=np.int32)
    for part in PLAN.shapes(LABELS, np.bincount(LABELS), {3: Wanted(some, False)}):
        assert (split.upload(part, None, KEYS) == whole.upload(part, None, KEYS)).all()


def test_shares_longer_than_float64_adds_up_give_the_same(
    rows: npt.NDArray[np.int64], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = clusters(CodedRows, 1, rows)
    parts = PLAN.shapes(LABELS, np.bincount(LABELS), wanted())
    expected = [client.upload(part) for part in parts]
    monkeypatch.setattr(blockwork, "EXACT_TERMS", 2)
    assert all((client.upload(part) == words).all() for part, words in zip(parts, expected, strict=True))
