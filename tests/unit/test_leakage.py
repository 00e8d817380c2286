"""The leakage meter against the rank of the real centres, by SVD, and against small cases counted by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secfc.errors import InvalidInput, Malformed
from secfc.kmeans.lloyd import Question
from secfc.privacy import leakage
from secfc.privacy.leakage import Leakage, P
from secfc.protocol import memory
from tests.federations import Job


def requests_of(job: Job) -> list[Question]:
    """What the server asks for in a real run."""
    asked: list[Question] = []
    rows, positions = job.parts()
    memory.run(
        job.plan(), rows, lambda _: job.clustering(), positions=positions, tap=lambda request, _: asked.append(request)
    )
    return asked


def centre_rank(rows: np.ndarray, asked: Sequence[Question]) -> int:
    """Affine dimension of the centres asked for: the rank of their differences, by SVD of the rows themselves."""
    groups = [request.labels == h for request in asked for h in request.columns]
    means = np.stack([rows[group].mean(axis=0) for group in groups])
    return int(np.linalg.matrix_rank(means - means[0], tol=1e-7 * np.abs(rows).max())) if len(means) > 1 else 0


def mixture(m: int, d: int, seed: int) -> np.ndarray:
    pick = np.random.default_rng(seed)
    centres = pick.normal(size=(6, d)) * 2
    return np.round((centres[pick.integers(0, 6, m)] + pick.normal(size=(m, d))) * 1000).astype(np.int64)


@pytest.mark.parametrize("start", ["k-means++", "random", "separation"])
@pytest.mark.parametrize(("m", "d", "k"), [(60, 2, 2), (200, 20, 3), (150, 33, 5), (40, 60, 4)])
def test_the_count_is_the_rank_of_the_real_centres(m: int, d: int, k: int, start: str) -> None:
    """After every request of a real run, without seeing a row: the affine dimension of all centres asked for."""
    for seed in (0, 1):
        rows = mixture(m, d, seed)
        job = Job(
            tuple(map(tuple, rows.tolist())), k, tuple(i % 3 for i in range(m)), clients=3, start=start, seed=seed
        )
        meter, asked = Leakage(m, d), []
        for request in requests_of(job):
            asked.append(request)
            meter = meter.after(request.labels, request.columns)
            assert meter.count == centre_rank(rows, asked), (seed, request.number)
        assert meter.total == min(d, m - 1)


def test_requests_of_one_column_count_jointly() -> None:
    """k-means++ asks for one row after the other: a column alone is no direction, every further one is one more."""
    meter = Leakage(10, 4)
    labels = np.full(10, -1, dtype=np.int32)
    for chosen, known in zip((3, 7, 0, 9, 5, 1), (0, 1, 2, 3, 4, 4), strict=True):
        labels[chosen] = labels.max() + 1
        meter = meter.after(labels, [int(labels[chosen])])
        assert meter.count == known
    assert meter.complete
    assert meter.text() == "distance directions given away: 4 of 4"


def test_what_was_known_before_is_not_counted_again() -> None:
    labels = np.arange(12, dtype=np.int32) % 3
    first = Leakage(12, 8).after(labels, (0, 1, 2))
    assert first.count == 2
    assert first.after(labels, (2, 0)).count == 2
    assert first.after((labels + 1) % 3, (0, 1, 2)).count == 2  # the same groups under other names: another job
    assert first.after(np.zeros(12, dtype=np.int32), (0,)).count == 2  # their union: a mean of known centres
    assert first.after(labels // 2, (0, 1)).count == 2  # {0, 1} and {2}
    assert first.after(np.arange(12, dtype=np.int32) % 2, (0, 1)).count == 3


def test_columns_that_were_not_asked_for_do_not_count() -> None:
    labels = np.arange(12, dtype=np.int32) % 4
    assert Leakage(12, 8).after(labels, ()).count == 0
    assert Leakage(12, 8).after(labels, (1,)).count == 0
    assert Leakage(12, 8).after(labels, (1, 3)).count == 1
    assert Leakage(12, 8).after(np.where(labels < 3, labels, -1), (0, 2)).count == 1


def test_a_request_gives_at_most_k_directions() -> None:
    """A partition of all rows at most k − 1, since all partitions have the mean of all rows in common; other groups k."""
    pick, k = np.random.default_rng(5), 4
    for low, most in ((0, k - 1), (-1, k)):
        meter = Leakage(200, 60)
        for number in range(8):
            after = meter.after(pick.integers(low, k, 200).astype(np.int32), range(k))
            assert after.count - meter.count == (most if number else k - 1)
            meter = after


def test_a_meter_is_a_value() -> None:
    """A client looks before it answers: `after` leaves the meter as it was."""
    labels = np.arange(12, dtype=np.int32) % 4
    meter = Leakage(12, 8).after(labels, (0, 1))
    kept = meter.to_bytes()
    assert meter.after(labels, (0, 1, 2, 3)).count == 3
    assert (meter.count, meter.to_bytes()) == (1, kept)


def test_few_rows_have_few_directions() -> None:
    meter = Leakage(3, 50).after(np.arange(3, dtype=np.int32), (0, 1, 2))
    assert (meter.count, meter.total, meter.complete) == (2, 2, True)
    assert Leakage(1, 50).after(np.zeros(1, dtype=np.int32), (0,)).complete


def test_open_uploads_count_in_every_segment() -> None:
    """ℓ = 3 segments of 4, 4 and 2 features: every direction counts in each, until a segment is known."""
    meter, counts = Leakage(30, 10, segments=3), []
    labels = np.full(30, -1, dtype=np.int32)
    for chosen in range(6):
        labels[chosen] = chosen
        meter = meter.after(labels, (chosen,))
        counts.append(meter.count)
    assert counts == [0, 3, 6, 8, 10, 10]
    assert meter.complete


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 40),
    st.integers(1, 30),
    st.integers(1, 6),
    st.integers(0, 2**32 - 1),
    st.binary(min_size=32, max_size=32),
)
def test_any_groups_count_like_their_indicators(m: int, d: int, k: int, seed: int, key: bytes) -> None:
    """Any assignments, any key, interrupted by a restart at every step: the rank of all indicator vectors, less one."""
    pick = np.random.default_rng(seed)
    meter, indicators = Leakage(m, d, key=key), np.zeros((0, m))
    for _ in range(8):
        labels = pick.integers(-1, k, m).astype(np.int32)
        columns = [h for h in range(k) if (labels == h).any() and pick.random() < 0.8]
        meter = Leakage.from_bytes(meter.after(labels, columns).to_bytes())
        indicators = np.concatenate([indicators, *[(labels == h)[None].astype(float) for h in columns]])
        rank = int(np.linalg.matrix_rank(indicators)) if len(indicators) else 0
        assert meter.count == min(d, max(rank - 1, 0))


def test_many_rows_and_features_stay_small() -> None:
    """Blocks of rows, long echelon rows, and a state that is tiny again once everything is known."""
    pick = np.random.default_rng(0)
    meter = Leakage(40000, 300)
    sizes = []
    for round_ in range(1, 22):
        meter = meter.after(pick.integers(0, 16, 40000).astype(np.int32), tuple(range(16)))
        assert meter.count == min(15 * round_, 300)
        sizes.append(len(meter.to_bytes()))
    assert max(sizes) <= (1.25 * 300 + 18) ** 2 + 56
    assert sizes[-1] == 56


def test_products_modulo_p_are_exact_at_any_length() -> None:
    pick = np.random.default_rng(1)
    left, right = pick.integers(0, P, (3, 5000)), pick.integers(0, P, (5000, 2))
    left[0], right[:, 0] = P - 1, P - 1
    expected = (left.astype(object) @ right.astype(object)) % P
    assert leakage._dot(left, right).tolist() == expected.tolist()


def test_the_key_is_kept_and_not_printed() -> None:
    key = bytes(range(32))
    meter = Leakage(12, 8, key=key).after(np.arange(12, dtype=np.int32) % 4, (0, 1))
    assert Leakage.from_bytes(meter.to_bytes()).key == key
    assert key.hex() not in repr(meter)
    assert repr(key)[2:-1] not in repr(meter)
    assert meter.to_bytes() != Leakage(12, 8).after(np.arange(12, dtype=np.int32) % 4, (0, 1)).to_bytes()


def test_damaged_states_are_refused() -> None:
    good = Leakage(12, 8).after(np.arange(12, dtype=np.int32) % 4, (0, 1, 2)).to_bytes()
    head = leakage._HEADER.size
    bad = [b"", good[:40], good[:-1], good + b"\0", good + bytes(4), b"XXXX" + good[4:]]
    bad.append(good[:head] + b"\xff" * 4 + good[head + 4 :])  # a pivot outside
    bad.append(good[:head] + good[head : head + 4] * 2 + good[head + 8 :])  # a pivot twice
    bad.append(good[:-4] + b"\xff" * 4)  # an entry beyond the field
    bad.append(good[: head - 4] + b"\xff" * 4 + good[head:])  # a rank beyond all
    bad.append(good[:4] + bytes(8) + good[12:])  # no rows
    for data in bad:
        with pytest.raises(Malformed, match="damaged"):
            Leakage.from_bytes(data)


def test_nonsense_is_refused() -> None:
    labels = np.zeros(5, dtype=np.int32)
    for arguments in ((0, 3), (3, 0), (3, 3, 0), (3, 3, 1, b"short")):
        with pytest.raises(InvalidInput, match="leakage meter"):
            Leakage(*arguments)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="5 rows"):
        Leakage(5, 3).after(labels[:4], (0,))
    with pytest.raises(InvalidInput, match="cluster numbers"):
        Leakage(5, 3).after(labels - 2, (0,))
    for columns in ((0, 0), (-1,)):
        with pytest.raises(InvalidInput, match="distinct"):
            Leakage(5, 3).after(labels, columns)
