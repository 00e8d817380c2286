"""Distances that are left out never matter: Lloyd with and without them is the same in every round, ties included."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from secfc.coding.field import Field
from secfc.kmeans import bounds, central
from secfc.kmeans.bounds import UNKNOWN, Bounds
from secfc.kmeans.coins import Coins
from secfc.kmeans.decoding import Distances
from secfc.kmeans.lloyd import Clustering, Question, Step, solve

Rows = npt.NDArray[Any]
calm = settings(deadline=None, max_examples=120, suppress_health_check=list(HealthCheck))


@pytest.fixture(autouse=True)
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out whatever can be left out, however little it is."""
    monkeypatch.setattr(bounds, "WORTH", 0)
    monkeypatch.setattr(bounds, "MOST", 1.0)


def scaled(rows: Rows, labels: npt.NDArray[np.int32], h: int) -> list[int]:
    """d′ of all rows to a cluster, in Python integers."""
    mine = [[int(x) for x in row] for row in rows[labels == h]]
    total, size = [sum(column) for column in zip(*mine, strict=True)], len(mine)
    return [sum((t - size * int(x)) ** 2 for t, x in zip(total, row, strict=True)) for row in rows]


class Server:
    """A clustering whose distances are told for the pairs that it asks for, and for no others."""

    def __init__(self, rows: Rows, clustering: Clustering, field: Field, *, prunes: bool) -> None:
        self.rows, self.clustering, self.field = rows, clustering, field
        self.distances = Distances(field, len(rows), 0)
        self.bounds = Bounds(self.distances) if prunes else None
        self.asked = self.all = 0

    def step(self) -> tuple[Step, list[int], Any, Any]:
        question = self.clustering.question
        self._tell(question)
        if self.bounds is None:
            answer = solve(question, self.distances)
        else:
            answer = solve(question, self.distances, partial=self.bounds.partial(question))
            self.bounds.learn(question, answer.labels)
        self.clustering.absorb(answer)
        return question.step, answer.labels.tolist(), answer.inertia, self.clustering.indices

    def _tell(self, question: Question) -> None:
        self.distances.resize(len(question.sizes))
        columns: dict[int, Any] = dict.fromkeys(question.columns)
        if self.bounds is not None:
            columns = {h: one.rows(question.labels, h) for h, one in self.bounds.wanted(question).items()}
        self.all += len(self.rows) * len(question.columns)
        for h, wanted in columns.items():
            exact = scaled(self.rows, question.labels, h)
            for i in range(len(self.rows)) if wanted is None else wanted.tolist():
                self._write(i, h, exact[i])
                self.asked += 1
        if question.step in (Step.LLOYD, Step.MEASURE):
            self._check_left_out(question)

    def _write(self, i: int, h: int, rest: int) -> None:
        for lane, p in enumerate(self.field.primes):
            rest, self.distances.digits[lane, i, h] = divmod(rest, p)
        assert rest == 0

    def _check_left_out(self, question: Question) -> None:
        """What is known is right, and what is not is strictly further than the row's own cluster."""
        live = np.flatnonzero(question.sizes).tolist()
        exact = {h: scaled(self.rows, question.labels, h) for h in live}
        known = self.distances.integers(live)
        for place, h in enumerate(live):
            unknown = self.distances.digits[-1, :, h] == UNKNOWN
            for i, own in enumerate(question.labels.tolist()):
                if not unknown[i]:
                    assert known[i, place] == exact[h][i]
                else:
                    assert own >= 0
                    mine, other = int(question.sizes[own]) ** 2, int(question.sizes[h]) ** 2
                    assert exact[h][i] * mine > exact[own][i] * other


def both(rows: Rows, k: int, **options: Any) -> Server:
    """With and without leaving anything out; the one that did."""
    servers = []
    eta = max(int(abs(x)) for row in rows for x in row) or 1
    most = len(rows) ** 2 * rows.shape[1] * (2 * eta) ** 2
    field = Field.of(Field.of(16).lanes_for(most))
    for prunes in (False, True):
        servers.append(Server(rows, Clustering(len(rows), k, **options), field, prunes=prunes))
    for number in range(1000):
        plain, less = (server.clustering for server in servers)
        if plain.step is Step.DONE:
            break
        assert plain.step is less.step, number
        assert servers[0].step()[:3] == servers[1].step()[:3], number
    else:
        raise AssertionError("it does not end")
    if less.step is Step.MEASURE:
        servers[1].step()
    assert less.step is Step.DONE
    assert (plain.rounds, plain.converged, plain.inertia, plain.indices) == (
        less.rounds,
        less.converged,
        less.inertia,
        less.indices,
    )
    assert plain.labels.tolist() == less.labels.tolist()
    return servers[1]


@st.composite
def rows_and_clusters(draw: st.DrawFn) -> tuple[Rows, int, dict[str, Any]]:
    """Rows at equal distances, or off by one; duplicates; values near zero and huge."""
    m, d, k = draw(st.integers(1, 40)), draw(st.integers(1, 4)), draw(st.integers(1, 16))
    size = draw(st.sampled_from([2, 5, 1000, (1 << 20) - 1, (1 << 40) - 1, (1 << 53) - 1]))
    centres = draw(st.lists(st.lists(st.integers(-size, size), min_size=d, max_size=d), min_size=1, max_size=5))
    picks = st.tuples(st.sampled_from(centres), st.lists(st.sampled_from([-1, 0, 0, 0, 1]), min_size=d, max_size=d))
    made = [
        [min(max(x + y, -size), size) for x, y in zip(*one, strict=True)]
        for one in draw(st.lists(picks, min_size=m, max_size=m))
    ]
    rows, k = np.array(made, dtype=object), min(k, m)
    options: dict[str, Any] = {"coins": Coins(draw(st.binary(min_size=32, max_size=32)))}
    if draw(st.booleans()):
        labels = st.lists(st.integers(0, k - 1), min_size=m, max_size=m)
        options["initial"] = np.array(draw(labels), dtype=np.int32)
    else:
        options["start"] = draw(st.sampled_from(["k-means++", "random", "separation"]))
    options["max_rounds"] = draw(st.sampled_from([2, 300]))
    return rows, k, options


@calm
@given(rows_and_clusters())
def test_every_round_is_the_same(case: tuple[Rows, int, dict[str, Any]]) -> None:
    rows, k, options = case
    both(rows, k, **options)


def mixtures() -> Iterator[tuple[str, Rows, int]]:
    draw = np.random.default_rng(5)
    middles = draw.integers(-4000, 4000, (8, 3))
    yield "groups", middles[draw.integers(0, 8, 300)] + draw.integers(-40, 41, (300, 3)), 8
    yield "noise", draw.integers(-500, 501, (250, 2)), 9
    yield "grid", np.stack(np.meshgrid(range(16), range(16)), -1).reshape(-1, 2), 16
    yield "lines", np.repeat(np.arange(60), 4)[:, None] * np.array([[1, 1]]), 12


@pytest.mark.parametrize(("name", "rows", "k"), list(mixtures()), ids=lambda one: one if isinstance(one, str) else "")
def test_less_is_asked_for_and_the_result_is_exact_lloyds(name: str, rows: Rows, k: int) -> None:
    coins = Coins(bytes(32))
    done = both(rows.astype(np.int64), k, coins=coins, start="random")
    wanted = central.run(rows.astype(np.int64), k, coins=coins, start="random")
    assert done.clustering.labels.tolist() == wanted.labels.tolist()
    assert done.clustering.inertia == wanted.inertia
    assert done.asked < done.all


def test_rounding_is_outward_at_a_near_tie() -> None:
    """Two centres whose distances from a row differ in the 53rd bit: the further one is asked for, not left out."""
    size = (1 << 52) - 1
    rows = np.array([[-size], [-size + 2], [0], [size - 1], [size - 1]], dtype=object)
    both(rows, 2, initial=np.array([0, 0, 0, 1, 1], dtype=np.int32))
    both(rows, 2, initial=np.array([0, 0, 1, 1, 1], dtype=np.int32))


def test_a_question_that_is_asked_again_after_its_answer_was_dropped_asks_for_everything() -> None:
    """Another run had no answer: the bounds have moved on, and what was known before may be unknown now."""
    rows = next(iter(mixtures()))[1].astype(np.int64)
    server = Server(rows, Clustering(len(rows), 8, coins=Coins(bytes(32)), start="random"), Field.of(4), prunes=True)
    assert server.bounds is not None
    while server.clustering.step is Step.LLOYD:
        question = server.clustering.question
        server._tell(question)
        dropped = solve(question, server.distances, partial=server.bounds.partial(question))
        server.bounds.learn(question, dropped.labels)
        _, labels, inertia, _ = server.step()
        assert (labels, inertia) == (dropped.labels.tolist(), dropped.inertia)


def test_nothing_is_left_out_of_small_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """They take no time, and a last request for the indices would."""
    monkeypatch.undo()
    done = both(next(iter(mixtures()))[1].astype(np.int64), 8, coins=Coins(bytes(32)), start="random")
    assert done.asked == done.all
    assert not done.clustering.measured
