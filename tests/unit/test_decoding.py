"""The server's sums: order, chunks, refusals that change nothing, and the edge of the field."""

from __future__ import annotations

import random

import numpy as np
import pytest

from secfc.coding.field import Field, Layout
from secfc.coding.lagrange import Code
from secfc.errors import InvalidInput, JobFailed, Malformed, OutOfTurn
from secfc.kmeans.decoding import Decoder, Distances
from secfc.kmeans.distances import Shape


def random_upload(layout: Layout, seed: int) -> np.ndarray:
    pick = np.random.default_rng(seed)
    lanes = [
        pick.integers(0, p, (layout.rows, width)).astype(float)
        for p, width in zip(layout.field.primes, layout.widths, strict=True)
    ]
    return layout.pack(lanes)


def residues(layout: Layout, words: np.ndarray) -> list[np.ndarray]:
    lanes = [np.empty((layout.rows, width)) for width in layout.widths]
    layout.unpack(words, lanes)
    return [lane.astype(int).astype(object) for lane in lanes]


def expected_digits(shape: Shape, uploads: dict[int, np.ndarray], weights: np.ndarray | None) -> np.ndarray:
    """Σ w_j·upload_j in every lane, then the Chinese remainder theorem, in Python integers."""
    layout = shape.layout
    out = np.zeros((layout.rows, len(shape.columns)), dtype=object)
    sums = []
    for lane, p in enumerate(layout.field.primes):
        total = sum(
            residues(layout, words)[lane] * (1 if weights is None else int(weights[lane, r]))
            for r, words in enumerate(uploads.values())
        )
        sums.append(total % p)
    for column in range(len(shape.columns)):
        lanes = sum(width > column for width in layout.widths)
        q = Field.of(lanes).modulus
        for i in range(layout.rows):
            value = 0
            for lane in range(lanes):
                p = layout.field.primes[lane]
                value += int(sums[lane][i, column]) * (q // p) * pow(q // p, -1, p)
            out[i, column] = value % q
    return out


SHAPES = [
    Shape((0, 1), Layout.uniform(Field.of(1), 5, 2)),
    Shape((1, 0, 2), Layout(Field.of(3), 7, (3, 2, 1))),
    Shape((2, 3), Layout(Field.of(4), 13, (2, 2, 0, 0))),
    Shape((0,), Layout.uniform(Field.of(6), 4, 1)),
]


@pytest.mark.parametrize("opened", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_uploads_in_any_order_and_any_chunks(shape: Shape, opened: bool) -> None:
    responders = [4, 0, 3, 1, 6]
    weights = Code(shape.layout.field, 7, 2, 1).weights(responders) if opened else None
    uploads = {j: random_upload(shape.layout, j) for j in responders}
    pick = random.Random(1)
    decoder = Decoder(shape, responders, weights)
    due = dict.fromkeys(responders, 0)
    assert decoder.missing() == responders
    while open_ones := [j for j in responders if due[j] < len(uploads[j])]:
        j = pick.choice(open_ones)
        size = pick.randint(0, 3)
        decoder.add(j, due[j], uploads[j][due[j] : due[j] + size])
        due[j] = min(due[j] + size, len(uploads[j]))
    assert decoder.missing() == []
    distances = Distances(shape.layout.field, shape.layout.rows, 4)
    distances.digits[:] = 7
    decoder.finish(distances)
    assert (distances.integers(shape.columns) == expected_digits(shape, uploads, weights)).all()
    others = [h for h in range(4) if h not in shape.columns]
    assert (distances.digits[:, :, others] == 7).all(), "columns not asked for stay from earlier rounds"


@pytest.mark.parametrize("opened", [False, True])
def test_2047_uploads_at_the_edge(opened: bool) -> None:
    """The most responders, all residues and weights as large as they can be: sums stay exact."""
    field = Field.of(2)
    shape = Shape((0,), Layout.uniform(field, 3, 1))
    top = shape.layout.pack([np.full((3, 1), p - 1.0) for p in field.primes])
    weights = np.stack([np.full(2047, float(p // 2)) for p in field.primes]) if opened else None
    decoder = Decoder(shape, range(2047), weights)
    for j in range(2047):
        decoder.add(j, 0, top)
    distances = Distances(field, 3, 1)
    decoder.finish(distances)
    value = -2047 * (1 if not opened else 0)
    if opened:  # lane by lane −2047·(p−1)/2
        lanes = np.stack([np.full((3, 1), float(-2047 * (p // 2) % p)) for p in field.primes])
        assert (distances.integers([0]) == field.to_ints(lanes)).all()
    else:
        assert distances.integers([0])[:, 0].tolist() == [value % field.modulus] * 3


def state(decoder: Decoder) -> tuple[object, ...]:
    sums = decoder._flat if decoder._weights is not None else decoder._sums
    return sums.tobytes(), tuple(decoder.missing()), tuple(decoder.received(j) for j in range(3))


@pytest.mark.parametrize("opened", [False, True])
def test_refusals_change_nothing(opened: bool) -> None:
    field = Field.of(2)
    shape = Shape((0,), Layout.uniform(field, 4, 1))
    words = random_upload(shape.layout, 3)
    assert len(words) == 3
    weights = Code(field, 3, 1, 1).weights([0, 1, 2]) if opened else None
    decoder = Decoder(shape, [0, 1, 2], weights)
    decoder.add(1, 0, words[:1])
    before = state(decoder)
    high = words[1:].copy()
    high[1] |= np.uint64((1 << 42) - (1 << 21))
    padding = words[1:].copy()
    padding[1] |= np.uint64(1 << 42)
    top = words[1:2] | np.uint64(1 << 63)
    cases = [
        (3, 0, words, OutOfTurn, "not a responder"),
        (-1, 0, words, OutOfTurn, "not a responder"),
        (1, 0, words[:1], Malformed, "words from offset 1 are due, not from 0"),
        (1, 2, words[2:], Malformed, "words from offset 1 are due, not from 2"),
        (0, -1, words, Malformed, "are due, not from -1"),
        (1, 1, words, Malformed, "3 words at offset 1 do not fit into 3"),
        (1, 1, high, Malformed, "not below its prime"),
        (1, 1, padding, Malformed, "not below its prime"),
        (1, 1, top, Malformed, "not below its prime"),
    ]
    for responder, first, chunk, error, match in cases:
        with pytest.raises(error, match=match):
            decoder.add(responder, first, chunk)
        assert state(decoder) == before
    with pytest.raises(JobFailed, match="while 3 uploads are missing"):
        decoder.finish(Distances(field, 4, 1))
    decoder.add(1, 1, words[1:])
    assert decoder.missing() == [0, 2]
    with pytest.raises(Malformed, match="do not fit"):
        decoder.add(1, 3, words[:1])


@pytest.mark.parametrize("responders", [[], [1, 1], list(range(2048))])
def test_bad_responders_are_refused(responders: list[int]) -> None:
    with pytest.raises(InvalidInput, match="1 to 2047 distinct responders"):
        Decoder(SHAPES[0], responders, None)


def test_no_columns_need_no_words() -> None:
    """k-means++ with k = m ends without a change, so the first Lloyd round asks for nothing."""
    field = Field.of(2)
    decoder = Decoder(Shape((), Layout.uniform(field, 9, 0)), [0, 1, 2], None)
    assert decoder.missing() == []
    distances = Distances(field, 9, 2)
    distances.digits[:] = 3
    decoder.finish(distances)
    assert (distances.digits == 3).all()


def test_limbs_hold_the_largest_comparison() -> None:
    for lanes in (1, 3, 16):
        distances = Distances(Field.of(lanes), 1, 1)
        for size in (1, 1000, (1 << 31) - 1):
            largest = 9 * size**2 * (Field.of(lanes).modulus - 1)
            assert largest.bit_length() <= 32 * distances.limbs(np.array([size]))
