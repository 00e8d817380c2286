"""Rows are decoded while uploads are still on their way; the digits are those of decoding at the end."""

from __future__ import annotations

import numpy as np
import pytest

from secfc.agreement import plan
from secfc.coding import prg
from secfc.coding.field import Field, Layout, Words
from secfc.kmeans.decoding import Decoder, Distances
from secfc.kmeans.distances import Shape

ROWS, K = 4000, 5


def uploads(shape: Shape, count: int) -> list[Words]:
    lanes = prg.uniform(shape.layout.field, ROWS, K, bytes(32))
    return [shape.layout.pack([np.roll(lane, j, axis=0)[:, :w] for lane, w in zip(lanes, shape.layout.widths, strict=True)])
            for j in range(count)]  # fmt: skip


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("columns", [(0, 1, 2, 3, 4), (3,), (0, 2)])
def test_decoding_row_by_row_gives_the_same_digits(masked: bool, columns: tuple[int, ...]) -> None:
    made = plan.make(plan.Wishes(5, 1, K, 4, ROWS, 1.0, 10, uploads="masked" if masked else "open"))
    sizes = np.array([1, 3000, 7, 900, 92])  # different numbers of lanes
    shape = made.shape(ROWS, sizes, columns)
    sent = uploads(shape, made.responders)
    responders = tuple(range(made.responders))
    weights = None if masked else made.code.weights(responders)
    late, early = Distances(made.field, ROWS, K), Distances(made.field, ROWS, K)
    late.digits.fill(0)
    early.digits.fill(0)
    whole = Decoder(shape, responders, weights)
    for j, words in enumerate(sent):
        whole.add(j, 0, words)
    whole.finish(late)

    rng = np.random.default_rng(0)
    decoder = Decoder(shape, responders, weights)
    decoded = []
    while decoder.missing():
        j = int(rng.choice(decoder.missing()))
        first = decoder.received(j)
        decoder.add(j, first, sent[j][first : first + int(rng.integers(1, 1500))])
        decoder.advance(early)
        decoded.append(decoder._decoded)
    decoder.finish(early)
    np.testing.assert_array_equal(early.digits, late.digits)
    assert any(0 < rows < ROWS for rows in decoded), "some rows were decoded before the last chunk"


def test_nothing_is_decoded_before_everybody_has_sent_it() -> None:
    made = plan.make(plan.Wishes(3, 1, K, 4, ROWS, 1.0, 10))
    shape = made.shape(ROWS, np.full(K, 10), tuple(range(K)))
    decoder = Decoder(shape, (0, 1, 2), None)
    distances = Distances(made.field, ROWS, K)
    sent = uploads(shape, 3)
    for j in (0, 1):
        decoder.add(j, 0, sent[j])
        decoder.advance(distances)
    assert decoder._decoded == 0


def test_rows_that_are_not_there_are_not_decoded() -> None:
    """3400 residues fill 1134 words, which have room for 3402: decoding that many would write beyond the distances."""
    shape = Shape((0,), Layout.uniform(Field.of(1), 3400, 1))
    decoder, distances = Decoder(shape, (0,), None), Distances(Field.of(1), 3400, 1)
    decoder.add(0, 0, np.zeros(shape.layout.words, np.uint64))
    decoder.advance(distances)
    assert 0 < decoder._decoded <= 3400
