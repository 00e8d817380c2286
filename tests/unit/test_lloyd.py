"""The server's decisions, exact to the last digit, and the clustering as a machine that asks for distances."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from secfc.coding.field import Field
from secfc.errors import DataError, InvalidInput, JobFailed
from secfc.kmeans import lloyd, nearest, seeding
from secfc.kmeans.coins import Coins
from secfc.kmeans.decoding import Distances
from secfc.kmeans.lloyd import Answer, Clustering, Step, solve
from tests import reference

calm = settings(deadline=None, max_examples=80, suppress_health_check=list(HealthCheck))


def told(field: Field, table: list[list[int]]) -> Distances:
    """Distances that hold these d′ (rows × clusters)."""
    out = Distances(field, len(table), len(table[0]))
    for i, line in enumerate(table):
        for h, value in enumerate(line):
            rest = value
            for lane, p in enumerate(field.primes):
                rest, out.digits[lane, i, h] = divmod(rest, p)
            assert rest == 0
    return out


def exact(table: list[list[int]], sizes: list[int]) -> list[list[Fraction | None]]:
    return [[Fraction(v, c * c) if c else None for v, c in zip(line, sizes, strict=True)] for line in table]


@st.composite
def tables(draw: st.DrawFn) -> tuple[Field, list[list[int]], list[int]]:
    """d′ and sizes in which quotients are often equal or apart by one unit of d′."""
    field = Field.of(draw(st.integers(1, 6)))
    k, m = draw(st.integers(1, 5)), draw(st.integers(1, 8))
    sizes = draw(st.lists(st.sampled_from([0, 1, 2, 3, 7, 1000]), min_size=k, max_size=k).filter(any))
    most = max(sizes)
    base = st.integers(0, max(field.modulus // (most * most) - 2, 0))
    table = []
    common = draw(base)
    for _ in range(m):
        start = common if draw(st.booleans()) else draw(base)
        table.append([max(start * c * c + draw(st.sampled_from([-1, 0, 0, 0, 1])), 0) for c in sizes])
    return field, table, sizes


@calm
@given(tables())
def test_nearest_is_exact(case: tuple[Field, list[list[int]], list[int]]) -> None:
    """docs/protocol.md, Section 3: nearest by d′/|S|², ties to the lowest index, |S| = 0 is never compared."""
    field, table, sizes = case
    got = nearest.nearest(told(field, table), np.array(sizes))
    assert got.tolist() == reference.nearest(exact(table, sizes))


@calm
@given(tables(), st.data())
def test_fill_empty_is_exact(case: tuple[Field, list[list[int]], list[int]], data: st.DataObject) -> None:
    """Empty clusters, in index order, take the row with the largest exact quotient among clusters of at least two."""
    field, table, sizes = case
    if len(table) < len(sizes):
        sizes = sizes[: len(table)]
        table = [line[: len(sizes)] for line in table]
    there = [h for h, c in enumerate(sizes) if c]
    if not there:
        return
    labels = data.draw(st.lists(st.sampled_from(there), min_size=len(table), max_size=len(table)))
    got = nearest.fill_empty(told(field, table), np.array(sizes), np.array(labels, dtype=np.int32))
    assert got.tolist() == reference.fill_empty(exact(table, sizes), labels, len(sizes))


@calm
@given(tables(), st.data())
def test_inertia_is_exact(case: tuple[Field, list[list[int]], list[int]], data: st.DataObject) -> None:
    """Eq. 1: L(S) = Σ_h Σ_{i∈S_h} ‖x_i − μ_h‖², as a Fraction."""
    field, table, sizes = case
    there = [h for h, c in enumerate(sizes) if c]
    labels = data.draw(st.lists(st.sampled_from(there), min_size=len(table), max_size=len(table)))
    got = lloyd.inertia(told(field, table), np.array(sizes), np.array(labels, dtype=np.int32))
    assert got == sum(Fraction(line[h], sizes[h] ** 2) for line, h in zip(table, labels, strict=True))


@pytest.mark.parametrize("lanes", [1, 2, 3, 6, 16])
def test_one_unit_decides(lanes: int) -> None:
    """Quotients apart by one unit of d′ at the very top of the field, for sizes whose squares share no factor."""
    field = Field.of(lanes)
    base = field.modulus // 9 - 1
    for delta, winner in [(-1, 1), (0, 0), (1, 0)]:
        distances = told(field, [[4 * base, 9 * base + delta]])
        assert nearest.nearest(distances, np.array([2, 3])).tolist() == [winner]
    for delta, mover in [(-1, 0), (0, 0), (1, 1)]:
        table = [[4 * base, 0, 0], [0, 9 * base + delta, 0], [0, 0, 0], [0, 0, 0]]
        labels = np.array([0, 1, 0, 1], dtype=np.int32)
        moved = nearest.fill_empty(told(field, table), np.array([2, 3, 1]), labels)
        assert np.flatnonzero(moved == 2).tolist() == [mover]


@pytest.mark.parametrize("lanes", [1, 3, 6])
def test_separation_compares_nine_times_exactly(lanes: int) -> None:
    """S′_h = {i : 9·d(i, h) ≤ d(i, s)}: equality fits, one unit less does not."""
    field = Field.of(lanes)
    base = field.modulus // 100
    table = [[base, 9 * base], [base, 9 * base - 1], [9 * base, base], [0, 0]]
    sizes, labels = np.array([1, 1]), np.array([0, 0, 1, 0], dtype=np.int32)
    distances = told(field, table)
    out = seeding.separate(distances, sizes, nearest.nearest(distances, sizes), labels)
    assert out.tolist() == [0, -1, 1, 0]


def test_separation_keeps_a_cluster_that_nothing_fits() -> None:
    """An empty S′_h keeps S_h whole; if that empties another S′, it keeps its S as well."""
    field = Field.of(1)
    table = [[1, 100, 100], [10, 11, 100], [12, 11, 100], [100, 100, 1]]
    sizes, labels = np.array([1, 1, 1]), np.array([0, 1, 1, 2], dtype=np.int32)
    distances = told(field, table)
    closest = nearest.nearest(distances, sizes)
    assert seeding.separate(distances, sizes, closest, labels).tolist() == [0, 1, 1, 2]
    table = [[1, 100, 100], [100, 100, 100], [100, 100, 1]]
    distances = told(field, table)
    labels = np.array([1, 0, 2], dtype=np.int32)  # cluster 1 takes row 0 back, which empties cluster 0
    assert seeding.separate(distances, sizes, nearest.nearest(distances, sizes), labels).tolist() == [1, 0, 2]


# --- k-means++ draws --------------------------------------------------------------------------------------------------


def test_draws_follow_the_weights() -> None:
    """A row is drawn with probability D²/ΣD², and one with D² = 0 never."""
    squares = told(Field.of(2), [[0], [1], [0], [3], [6]]).digits[:, :, 0]
    counts = Counter(row for i in range(2000) for row in seeding.draw(Field.of(2), squares, Coins(b"%d" % i), ["x"]))
    assert set(counts) == {1, 3, 4}
    assert 140 < counts[1] < 260
    assert 530 < counts[3] < 670
    assert 1130 < counts[4] < 1270


def test_draws_over_several_blocks_are_a_plain_walk() -> None:
    field = Field.of(3)
    weights = [(i * i * 977) % 5003 * field.primes[0] for i in range(2500)]
    squares = told(field, [[w] for w in weights]).digits[:, :, 0]
    for seed in range(25):
        coins, rows = Coins(b"%d" % seed), []
        for label in ("x", "y"):
            point, row = coins.below(label, 1 << 64) * sum(weights) >> 64, 0
            while point >= weights[row]:
                point, row = point - weights[row], row + 1
            rows.append(row)
        assert seeding.draw(field, squares, coins, ["x", "y"]) == rows


def test_no_distance_left_takes_the_lowest_row_not_chosen() -> None:
    squares = told(Field.of(1), [[0], [0], [0]]).digits[:, :, 0]
    assert seeding.draw(Field.of(1), squares, Coins(b""), ["x", "y"]) == []
    following = seeding.choose(np.array([0, -1, -1], dtype=np.int32), 0, 0, [])
    assert following.tolist() == [0, 1, -1]


# --- the machine ------------------------------------------------------------------------------------------------------


class Teller:
    """Answers requests from the rows themselves: only the columns asked for."""

    def __init__(self, rows: list[tuple[int, ...]], k: int) -> None:
        self.rows, self.field = rows, Field.of(4)
        self.distances = Distances(self.field, len(rows), k)
        self.asked: list[tuple[int, ...]] = []

    def answer(self, machine: Clustering) -> lloyd.Progress:
        request = machine.question
        self.asked.append(request.columns)
        self.distances.resize(len(request.sizes))
        for h in request.columns:
            column = told(self.field, [[v] for v in reference.scaled(self.rows, request.labels.tolist(), h)])
            self.distances.digits[:, :, h] = column.digits[:, :, 0]
        return machine.absorb(solve(request, self.distances))

    def forget(self) -> None:
        self.distances.digits[:] = 99999


ROWS = [(x * x % 41, x * 7 % 29) for x in range(30)]


@pytest.mark.parametrize("start", ["k-means++", "random", "separation"])
@pytest.mark.parametrize("forgetful", [False, True])
def test_the_machine_asks_for_changed_columns_only(start: str, forgetful: bool) -> None:
    """Columns of unchanged clusters are not asked for again; after `forget` all are, with the same result."""
    teller, machine = Teller(ROWS, 4), Clustering(30, 4, start=start, coins=Coins(b"t"))
    steps, previous = [], None
    while machine.step is not Step.DONE:
        if forgetful:
            teller.forget()
            machine.forget()
        request = machine.question
        held = [h for h in range(4) if (request.labels == h).any()]
        labels = request.labels.tolist()
        if forgetful:
            assert list(request.columns) == held
        elif previous is not None:
            changed = {h for h in held if any((a == h) != (b == h) for a, b in zip(previous, labels, strict=True))}
            assert set(request.columns) == changed
        assert request.number == len(steps) + 1
        previous = labels
        progress = teller.answer(machine)
        assert progress.changed == sum(a != b for a, b in zip(previous, machine.labels.tolist(), strict=True))
        steps.append(reference.Step(progress.step.value, machine.labels.tolist(), progress.inertia))
    assert steps == reference.run(ROWS, 4, start, Coins(b"t"))
    assert machine.converged
    if start != "random":
        first = [(0,), (1,), (2,), (3,)] if not forgetful else [(0,), (0, 1), (0, 1, 2), (0, 1, 2, 3)]
        assert teller.asked[:4] == first, "k requests of one column"
    if not forgetful and start != "separation":
        assert any(len(columns) < 4 for columns in teller.asked[4:])


def test_a_request_does_not_change_when_the_machine_goes_on() -> None:
    """A request may still be on its way to somebody while the next one is made."""
    teller, machine = Teller(ROWS, 4), Clustering(30, 4, coins=Coins(b"s"))
    while machine.step is not Step.DONE:
        request = machine.question
        labels = request.labels.copy()
        teller.answer(machine)
        assert (request.labels == labels).all(), f"request {request.number} was changed"


@settings(deadline=None, max_examples=60)
@given(
    rows=st.lists(st.tuples(st.integers(-9, 9), st.integers(-9, 9)), min_size=6, max_size=14),
    k=st.integers(1, 6),
    candidates=st.integers(1, 5),
    seed=st.integers(0, 1000),
    restarts=st.sets(st.integers(1, 9)),
)
def test_greedy_seeds_are_the_references(
    rows: list[tuple[int, ...]], k: int, candidates: int, seed: int, restarts: set[int]
) -> None:
    """The best of several candidates per seed, ties to the first, in one request per seed; a restarted server asks for all
    that it needs and chooses the same. Small values make ties, duplicates and ΣD² = 0."""

    def begin() -> Clustering:
        return Clustering(len(rows), k, coins=Coins(b"%d" % seed), candidates=candidates)

    teller, machine, found, seeds = Teller(rows, k), begin(), [], []
    while machine.step is not Step.DONE:
        if machine.number in restarts:
            state, machine = machine.state(), begin()
            machine.resume(state)
            teller.distances.digits[:] = 99999
        step, settled = machine.step, machine.question.settled
        teller.answer(machine)
        if step is Step.LLOYD:
            found.append(machine.labels.tolist())
        elif machine.step is Step.SEED:
            seeds = seeding.chosen_rows(machine.labels)[: settled + 1]
    steps = reference.run(rows, k, "k-means++", Coins(b"%d" % seed), tries=candidates)
    assert found == [step.labels for step in steps if step.phase == "lloyd"]
    assert [step.phase for step in steps].count("seed") == k == len(teller.asked) - len(found)
    if k > 1:
        labels = list(reference.draws(rows, k, Coins(b"%d" % seed), tries=candidates))[k - 2]
        assert seeds == [labels.index(c) for c in range(k - 1)]
    assert all(len(columns) <= candidates for columns in teller.asked[:k]) or restarts


def test_the_least_total_wins_and_ties_go_to_the_first() -> None:
    field = Field.of(3)
    big = field.primes[0] * field.primes[1]
    squares = told(field, [[5], [big + 7], [big]]).digits[:, :, 0]
    columns = [[5, big + 7, big], [9, big, big + 1], [0, big + 6, big], [0, big + 6, big]]
    digits = [told(field, [[v] for v in column]).digits[:, :, 0] for column in columns]
    winner, left = seeding.least(field, squares, digits)
    assert winner == 1  # 5 + big + big, one less than the third leaves
    assert (left == told(field, [[5], [big], [big]]).digits[:, :, 0]).all()
    assert seeding.least(field, squares, digits[2:])[0] == 0


def test_max_rounds_ends_a_clustering() -> None:
    teller, machine = Teller(ROWS, 4), Clustering(30, 4, coins=Coins(b"s"), max_rounds=1, start="random")
    teller.answer(machine)
    assert (machine.step, machine.rounds, machine.converged) == (Step.DONE, 1, False)
    with pytest.raises(JobFailed, match="asks for nothing more"):
        _ = machine.question
    with pytest.raises(JobFailed, match="takes no more"):
        machine.absorb(Answer(machine.labels))


def test_the_loss_never_grows() -> None:
    """docs/protocol.md, Section 3: the inertia cannot rise with true distances."""
    teller, machine = Teller(ROWS, 5), Clustering(30, 5, coins=Coins(b"q"), start="random")
    losses = []
    while machine.step is not Step.DONE:
        losses.append(teller.answer(machine).inertia)
    assert len(losses) > 2
    assert losses == sorted(losses, reverse=True)


@settings(deadline=None, max_examples=60)
@given(
    rows=st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3)), min_size=4, max_size=14),
    start=st.sampled_from(["k-means++", "random", "separation"]),
    k=st.integers(1, 4),
    seed=st.integers(0, 1000),
)
def test_an_honest_job_is_never_ended_for_a_rising_inertia(
    rows: list[tuple[int, ...]], start: str, k: int, seed: int
) -> None:
    """Small values make duplicates, ties and empty clusters; separation leaves rows out once."""
    teller, machine = Teller(rows, k), Clustering(len(rows), k, start=start, coins=Coins(b"%d" % seed))
    while machine.step is not Step.DONE:
        again = Clustering(len(rows), k, start=start, coins=Coins(b"%d" % seed))
        again.resume(machine.state())  # as after a restart of the server
        machine = again
        teller.answer(machine)


def test_distances_with_which_the_inertia_rises_end_the_job() -> None:
    teller, machine = Teller(ROWS, 4), Clustering(30, 4, coins=Coins(b"q"), start="random")
    teller.answer(machine)
    for resumed in (machine, Clustering(30, 4, coins=Coins(b"q"), start="random")):
        resumed.resume(machine.state())
        before = resumed.labels.copy()
        wrong = Teller([(5 * x, 5 * y) for x, y in ROWS], 4)
        with pytest.raises(
            JobFailed, match="the inertia rises in Lloyd round 2, which cannot happen with exact distances"
        ):
            wrong.answer(resumed)
        assert (resumed.labels == before).all()


@pytest.mark.parametrize(
    ("keywords", "error", "words"),
    [
        ({"clusters": 0}, InvalidInput, "at least 1"),
        ({"clusters": -2}, InvalidInput, "at least 1"),
        ({"max_rounds": 0}, InvalidInput, "at least 1"),
        ({"candidates": 0}, InvalidInput, "at least 1"),
        ({"clusters": 9}, DataError, "4 rows cannot make 9 clusters; lower k or bring more rows"),
        ({"rows": 0}, DataError, "0 rows cannot make"),
        ({"start": "magic"}, InvalidInput, "seeding must be one of k-means\\+\\+, random, separation, not 'magic'"),
        ({"initial": np.zeros(3, dtype=int)}, InvalidInput, "4 whole numbers"),
        ({"initial": np.zeros(4)}, InvalidInput, "4 whole numbers"),
        ({"initial": np.array([0, 1, 2, 0])}, InvalidInput, "lie in 0 … 1"),
        ({"initial": np.array([0, 1, -2, 0])}, InvalidInput, "lie in 0 … 1"),
        ({"initial": np.full(4, -1)}, InvalidInput, "some row needs one"),
    ],
)
def test_bad_clusterings_are_refused(keywords: dict[str, object], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        Clustering(**{"rows": 4, "clusters": 2} | keywords)  # type: ignore[arg-type]


def test_no_centre_at_all_is_refused() -> None:
    with pytest.raises(InvalidInput, match="every cluster is empty"):
        nearest.nearest(told(Field.of(1), [[0, 0]]), np.array([0, 0]))


def test_initial_labels_are_not_written_to() -> None:
    initial = np.array([0, 0, 1] * 10, dtype=np.int32)
    teller, machine = Teller(ROWS, 3), Clustering(30, 3, initial=initial)
    while machine.step is not Step.DONE:
        teller.answer(machine)
    assert initial.tolist() == [0, 0, 1] * 10
