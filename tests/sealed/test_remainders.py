"""Comparisons are shortened by what two clusters have in common for all rows (docs/sealed.md, Section 4)."""

from __future__ import annotations

from collections import Counter
from math import gcd
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secfc.coding.field import Field
from secfc.kmeans import central
from secfc.privacy.sealed import remainders
from secfc.privacy.sealed.inertia import integer
from secfc.privacy.sealed.messages import Talk
from secfc.privacy.sealed.referee import Referee
from secfc.privacy.sealed.remainders import Reduction
from secfc.privacy.sealed.sides import Side
from secfc.privacy.sealed.terms import Pairs, Terms
from tests.sealed.committee import Committee, Job, scaled
from tests.sealed.conversing import converse


def clustering(seed: int, clusters: int, rows: int, reach: int) -> tuple[Any, Any]:
    random = np.random.default_rng(seed)
    labels = random.integers(0, clusters, rows).astype(np.int32)
    return random.integers(-reach, reach + 1, (rows, 3)), labels


def forms(rows: Any, labels: Any, sizes: Any, a: int, b: int) -> tuple[int, list[int]]:
    """n, and E of all rows."""
    g = gcd(int(sizes[a]), int(sizes[b]))
    v_a, v_b = scaled(rows, labels, a), scaled(rows, labels, b)
    left, right = (int(sizes[a]) // g) ** 2, (int(sizes[b]) // g) ** 2
    return int(sizes[a]) * int(sizes[b]) // g, [left * int(y) - right * int(x) for x, y in zip(v_a, v_b, strict=True)]


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 1 << 30), st.integers(2, 5), st.integers(30, 400), st.sampled_from([1, 40, 3000]))
def test_a_pair_leaves_the_same_remainder_for_every_row(seed: int, clusters: int, count: int, reach: int) -> None:
    rows, labels = clustering(seed, clusters, count, reach)
    sizes = np.bincount(labels, minlength=clusters)
    for a in range(clusters):
        for b in range(a + 1, clusters):
            if sizes[a] and sizes[b]:
                n, e = forms(rows, labels, sizes, a, b)
                assert len({x % n for x in e}) == 1
                assert all((x < 0) == (x // n < 0) for x in e)


@pytest.mark.parametrize(("members", "reach"), [(2, 40), (3, 3000)])
@pytest.mark.parametrize("row", [0, 7])
def test_halves_of_what_is_left_add_up(members: int, reach: int, row: int) -> None:
    """From halves of E of one row, that row's and another's F in all lanes that comparisons take."""
    rows, labels = clustering(row, 4, 700, reach)
    sizes = np.bincount(labels, minlength=4)
    terms = Terms(Field.of(6), 700, 4, 3 * (2 * reach) ** 2, members)
    reduction = Reduction.of(terms, sizes, Pairs(terms, sizes))
    assert reduction is not None
    clear = np.stack([scaled(rows, labels, h) for h in range(4)], axis=1)
    primes = terms.field.primes
    pad = np.random.default_rng(1).integers(0, min(primes), (700, 4, 6), dtype=np.uint32)
    values = np.stack([clear % p for p in primes], axis=2).astype(np.int64)
    rho = ((pad - values) % np.array(primes)).astype(np.uint32)

    def script(side: Side) -> Talk[Pairs]:
        return (yield from remainders.shorten(side, reduction, (rho if side.serves else pad)[row]))

    server, *at_members = converse(terms, script)
    assert all((one.less == at_members[0].less).all() for one in at_members)
    lanes = reduction.ring.lanes
    for a, b in zip(reduction.one, reduction.two, strict=True):
        n, e = forms(rows, labels, sizes, a, b)
        taken = [0] * lanes
        for i in (row, 3):
            f = [
                (values[i, b, lane] * at_members[0].left[a, b, lane] - values[i, a, lane] * server.right[a, b, lane])
                - (at_members[0].less[a, b, lane] - server.less[a, b, lane])
                for lane in range(lanes)
            ]
            taken = [int(x) % p for x, p in zip(f, primes, strict=False)]
            found = integer(reduction.ring, np.array(taken, dtype=np.uint32))
            signed = found - reduction.ring.modulus if 2 * found > reduction.ring.modulus else found
            assert signed == e[i] // n
        need = terms.field.lanes_for(2 * n * terms.unit)
        assert server.lanes[a, b] == need < terms.field.lanes_for(2 * n**2 * terms.unit)


def test_the_server_sees_coins_and_uniform_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it gets out of the comparisons is 1 as often as not, whatever is compared, and its halves of r fill the ring."""
    rows, labels = clustering(3, 3, 300, 3000)
    sizes = np.bincount(labels, minlength=3)
    terms = Terms(Field.of(5), 300, 3, 3 * 6000**2, 2)
    reduction = Reduction.of(terms, sizes, Pairs(terms, sizes))
    assert reduction is not None
    primes = np.array(terms.field.primes, dtype=np.uint32)
    v = np.stack([scaled(rows, labels, h)[:1] for h in range(3)], axis=1)
    values = np.stack([(v[0] % int(p)) for p in primes], axis=1).astype(np.uint32)
    random, coins, halves = np.random.default_rng(5), [], []
    compare = Referee.compare

    def watched(side: Referee, parts: Any) -> Talk[Any]:
        coins.append((yield from compare(side, parts)))
        return coins[-1]

    monkeypatch.setattr(Referee, "compare", watched)
    for chunk in range(150):
        pad = random.integers(0, primes, values.shape, dtype=np.uint32)
        rho = (pad + primes - values) % primes

        def script(side: Side, rho: Any = rho, pad: Any = pad) -> Talk[Pairs]:
            return (yield from remainders.shorten(side, reduction, rho if side.serves else pad))

        server = converse(terms, script, chunk)[0]
        halves.append(
            server.less[reduction.one, reduction.two, : reduction.ring.lanes] / primes[: reduction.ring.lanes]
        )
    assert np.abs(np.mean(coins, axis=0) - 0.5).max() < 0.17  # four deviations of each
    assert np.abs(np.mean(halves, axis=0) - 0.5).max() < 0.1
    assert np.abs(np.var(halves, axis=0) - 1 / 12).max() < 0.025


@pytest.mark.parametrize("seeding", ["random", "k-means++", "separation"])
@pytest.mark.parametrize("clusters", [2, 3, 12])
def test_every_round_is_lloyds(seeding: str, clusters: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remainders, "WORTH", 0)
    random = np.random.default_rng(clusters)
    rows = random.integers(-2000, 2001, (90 * clusters if clusters < 9 else 240, 2))
    job = Job(rows, clusters, members=3, seeding=seeding, seed=5)
    done = job.run(6)
    assert shortened(done.committee)
    start = np.array(done.history[0], dtype=np.int32)
    wanted = central.run(rows, clusters, initial=start, max_rounds=len(done.history) - 1, empties="largest")
    assert done.history[-1] == wanted.labels.tolist()


def shortened(committee: Committee) -> bool:
    """Whether a Lloyd round, in which nothing else is selected before a comparison, was shortened."""
    kinds = Counter((said.message.kind.value, said.message.stage, said.message.step) for _, said in committee.record)
    return kinds["select", 1, 1] > 0
