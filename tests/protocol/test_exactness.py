"""The protocol is exactly Lloyd's algorithm on the pooled rows, whichever client brings which (docs/protocol.md, Section 3).

Shown by identical labels after every round, and identical exact inertia, against `tests.reference`, for any parameters,
split, responders and start.
"""

from __future__ import annotations

import dataclasses
import random

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from secfc.coding.field import Field
from tests import reference
from tests.federations import Job, check, largest_eta

calm = settings(deadline=None, suppress_health_check=list(HealthCheck))
STARTS = ("k-means++", "random", "separation")


@st.composite
def jobs(draw: st.DrawFn, most_rows: int = 12, most_features: int = 6) -> Job:
    uploads = draw(st.sampled_from(["masked", "open"]))
    privacy = draw(st.integers(1 if uploads == "masked" else 0, 4))
    features = draw(st.integers(1, most_features))
    segments = draw(st.integers(1, min(features, 3)))
    clients = draw(st.integers(max(3, 2 * segments + 2 * privacy - 1), 16))
    rows = draw(st.integers(1, most_rows))
    clusters = draw(st.integers(1, min(rows, 6)))
    lanes = draw(st.integers(1, 6))
    eta = largest_eta(lanes, rows, features)
    # few different values: duplicate rows, ties, constant features and opposite corners are common, not rare
    palette = [-eta, eta, 0, *draw(st.lists(st.integers(-eta, eta), max_size=3))]
    if draw(st.booleans()):
        palette = draw(st.permutations(palette))[: draw(st.integers(1, 3))]
    values = st.lists(st.sampled_from(palette), min_size=features, max_size=features).map(tuple)
    matrix = draw(st.lists(values, min_size=rows, max_size=rows).map(tuple))
    owners = draw(st.lists(st.integers(0, clients - 1), min_size=rows, max_size=rows).map(tuple))
    labels = st.lists(st.integers(-1, clusters - 1), min_size=rows, max_size=rows).map(tuple)
    initial = draw(st.none() | labels.filter(lambda found: max(found) >= 0))
    return Job(
        rows=matrix,
        clusters=clusters,
        owners=owners,
        clients=clients,
        privacy=privacy,
        segments=segments,
        uploads=uploads,
        eta=eta,
        precision=draw(st.integers(-3, 12)),
        start=draw(st.sampled_from(STARTS)),
        initial=initial,
        seed=draw(st.integers(0, 1 << 20)),
    )


GRID = tuple((x, y) for x in range(4) for y in range(3))
DUPLICATES = ((5, -5, 5),) * 4 + ((1, 2, 3),) * 3
INTERLEAVED = tuple(i % 3 for i in range(12))
CASES = {
    "k = 1": Job(GRID, 1, INTERLEAVED),
    "k = m": Job(GRID, 12, INTERLEAVED),
    "k = m, from labels that leave clusters empty": Job(GRID, 12, INTERLEAVED, initial=(0,) * 12),
    "one row": Job(((7, 0, -7),), 1, (2,), clients=3),
    "a grid of ties": Job(GRID, 4, INTERLEAVED, initial=(0, 1, 2, 3) * 3),
    "duplicate rows": Job(DUPLICATES, 4, (0, 1, 2, 3, 4, 0, 1)),
    "all rows alike": Job(((3, 3),) * 6, 3, (0, 0, 0, 1, 1, 2)),
    "all rows alike, separation": Job(((3, 3),) * 6, 3, (0, 0, 0, 1, 1, 2), start="separation"),
    "all zero": Job(((0,),) * 5, 2, (1,) * 5, start="random"),
    "constant features": Job(tuple((9, x, 9, -9) for x in range(9)), 3, (0, 1, 2) * 3),
    "empty clusters from the start": Job(GRID, 5, INTERLEAVED, initial=(3,) * 6 + (1,) * 6),
    "rows in no cluster": Job(GRID, 4, INTERLEAVED, initial=(-1, 0, -1, 2) * 3),
    "only one row has a cluster": Job(GRID, 3, INTERLEAVED, initial=(-1,) * 11 + (2,)),
    "clients without rows": Job(GRID, 3, (4,) * 12, clients=9, privacy=2),
    "d not divisible by ℓ": Job(tuple((x, y, x - y, 1, x * y) for x, y in GRID), 3, INTERLEAVED, clients=8, segments=3),
    "ℓ = d": Job(tuple((x, y, x - y) for x, y in GRID), 3, INTERLEAVED, clients=9, segments=3, privacy=2),
    "t = 0": Job(GRID, 3, INTERLEAVED, privacy=0, uploads="open", clients=3, segments=2),
    "t = 0, one responder": Job(GRID, 3, INTERLEAVED, privacy=0, uploads="open", clients=3),
    "n = 16, t = 5, ℓ = 3": Job(
        tuple((x, y, -x) for x, y in GRID), 3, tuple(i % 16 for i in range(12)), clients=16, privacy=5, segments=3
    ),
    "max_rounds": Job(GRID, 4, INTERLEAVED, initial=(0, 1, 2, 3) * 3, max_rounds=1),
}


@pytest.mark.parametrize("uploads", ["masked", "open"])
@pytest.mark.parametrize("name", CASES)
def test_every_round_is_lloyds(name: str, uploads: str) -> None:
    """On the cases that are easy to get wrong."""
    job = CASES[name]
    if job.privacy or uploads == "open":
        check(dataclasses.replace(job, uploads=uploads))
    else:
        assert job.uploads == "open"


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("lanes", range(1, 7))
def test_every_seeding_in_every_number_of_lanes(start: str, lanes: int) -> None:
    """The field is chosen by the plan (docs/protocol.md, Section 1); the result does not depend on it."""
    eta = largest_eta(lanes, 12, 3)
    pick = random.Random(lanes)
    rows = tuple(tuple(pick.randint(-eta, eta) for _ in range(3)) for _ in range(12))
    job = Job(rows, 3, INTERLEAVED, segments=2, clients=6, eta=eta, start=start, seed=lanes)
    assert job.plan().field.lanes == lanes
    check(job)


def test_separation_keeps_the_far_rows_out() -> None:
    """docs/protocol.md, Section 3: separation, S′_h = {i : 9·d_ih ≤ d_is}, really leaves rows out and then takes them in."""
    rows = tuple((x,) for x in (0, 1, 2, 30, 55, 100, 101, 102))
    for seed in range(6):
        job = Job(rows, 2, (0, 1, 2, 3, 4, 0, 1, 2), start="separation", seed=seed)
        result = check(job)
        separated = next(step for step in job.expected() if step.phase == "separate")
        assert -1 in separated.labels
        assert -1 not in result.labels


@settings(calm, max_examples=20)
@given(jobs())
@example(CASES["k = m"])
@example(CASES["duplicate rows"])
@example(CASES["rows in no cluster"])
def test_any_job_is_lloyds(job: Job) -> None:
    """For any n, t, ℓ, k, d, m, split, responders, precision and start."""
    check(job)


@pytest.mark.slow
@settings(calm, max_examples=700)
@given(jobs(most_rows=24, most_features=9))
def test_very_many_jobs_are_lloyds(job: Job) -> None:
    """The same, for longer."""
    check(job)


@settings(calm, max_examples=6)
@given(jobs(), st.integers(0, 1 << 20))
def test_the_split_over_clients_does_not_matter(job: Job, seed: int) -> None:
    """Whichever client brings which row."""
    pick = random.Random(seed)
    moved = dataclasses.replace(job, owners=tuple(pick.randrange(job.clients) for _ in job.owners))
    assert check(job).labels.tolist() == check(moved).labels.tolist()


def test_many_rows_over_several_blocks_and_threads() -> None:
    """More rows than a block (1536) and a draw's block (1024), against the reference's k-means++ and two Lloyd rounds."""
    pick = random.Random(5)
    rows = tuple((pick.randint(-50, 50), pick.randint(-50, 50)) for _ in range(3400))
    owners = tuple(pick.randrange(3) for _ in rows)
    check(Job(rows, 3, owners, clients=3, max_rounds=2, seed=3))


@pytest.mark.parametrize("lanes", [2, 4, 6])
def test_near_ties_are_decided_in_integers(lanes: int) -> None:
    """Centres whose distances differ by one part in 2⁵⁰ or so, far below float64's help, go to the truly nearer one."""
    eta = largest_eta(lanes, 4, 1)
    for delta in (-1, 0, 1):
        rows = ((-eta + 1,), (eta - 1 + delta,), (0,), (eta,))
        job = Job(rows, 2, (0, 1, 2, 3), clients=4, eta=eta, initial=(0, 1, -1, -1), max_rounds=1)
        assert check(job).labels[2] == (1 if delta < 0 else 0)


def test_the_worst_case_of_the_plan_decodes() -> None:
    """docs/protocol.md, Section 1: the largest d′ is still below Q: opposite corners, |S| = m − 1, η as large as the lanes
    allow."""
    for lanes in range(1, 7):
        for m, d in [(2, 1), (7, 2), (12, 3)]:
            eta = largest_eta(lanes, m, d)
            rows = ((eta,) * d,) * (m - 1) + ((-eta,) * d,)
            owners = tuple(i % 3 for i in range(m))
            initial = (0,) * (m - 1) + (-1,)
            job = Job(rows, 1, owners, clients=3, eta=eta, initial=initial, max_rounds=1)
            assert job.plan().field.lanes == lanes
            assert reference.scaled(rows, initial, 0)[-1] == (m - 1) ** 2 * d * (2 * eta) ** 2 < Field.of(lanes).modulus
            check(job)


def test_unplanned_rows_are_refused() -> None:
    """A job may not leave what was planned for: that is where wrap-around would begin."""
    from secfc.errors import DataError, InvalidInput
    from secfc.protocol import memory

    job = Job(GRID, 2, INTERLEAVED, clients=3)
    agreed = job.plan()
    rows, positions = job.parts()

    def cluster(parts: object, places: object = None) -> None:
        memory.run(agreed, parts, lambda m: job.clustering(), positions=places)  # type: ignore[arg-type]

    nothing = np.zeros((0, 2), dtype=np.int64)
    with pytest.raises(DataError, match="nothing to cluster"):
        cluster([nothing] * 3)
    with pytest.raises(DataError, match=r"client 2 .* beyond the planned bound"):
        cluster([rows[0], rows[1] + agreed.eta + 1, rows[2]])
    with pytest.raises(DataError, match="13 rows exceed the planned max_rows = 12"):
        cluster([rows[0], np.concatenate([rows[1], rows[1][:1]]), rows[2]])
    with pytest.raises(DataError, match="client 3 must bring whole-number rows of 2 features"):
        cluster([rows[0], rows[1], rows[2][:, :1]])
    with pytest.raises(DataError, match="client 1 must bring whole-number rows"):
        cluster([rows[0].astype(float), rows[1], rows[2]])
    with pytest.raises(InvalidInput, match="3 clients were planned, rows of 2"):
        cluster(rows[:2])
    with pytest.raises(InvalidInput, match="positions must number all rows once"):
        cluster(rows, [positions[0], positions[0], positions[2]])


def test_the_smallest_int64_is_beyond_every_bound() -> None:
    """|−2⁶³| is not an int64: numpy's abs leaves it negative, and a check of |x| ≤ η must not be fooled."""
    from secfc.errors import DataError
    from secfc.protocol import memory

    job = Job(GRID, 2, INTERLEAVED, clients=3)
    rows, positions = job.parts()
    rows[1][0, 0] = -(1 << 63)
    with pytest.raises(DataError, match="client 2 brings a value beyond the planned bound"):
        memory.run(job.plan(), rows, lambda m: job.clustering(), positions=positions)
