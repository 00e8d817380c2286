"""docs/protocol.md, Section 2a: private membership changes nothing in the result, and nobody learns which row is whose.

Indistinguishability is shown by counting all cases over a tiny field: for two deals of the same rows to the clients outside a
coalition, what the server and any t clients see has the same distribution over all noise.
"""

from __future__ import annotations

import dataclasses
import itertools
import random

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, assume, example, given, settings

from secfc import SecureKMeans
from secfc.agreement import plan
from secfc.coding.field import Field, Residues, Words
from secfc.coding.lagrange import Code
from secfc.coding.sharing import ShareSet, SlotShares
from secfc.coding.summing import Sum
from secfc.errors import InvalidInput, PlanError
from secfc.privacy import identifiers
from secfc.privacy.identifiers import Ids
from secfc.privacy.union import TableShape, TableShares
from secfc.protocol import memory
from tests.federations import Job, check
from tests.oracle import small_field
from tests.protocol.test_exactness import CASES, jobs

calm = settings(deadline=None, suppress_health_check=list(HealthCheck))
Numbers = npt.NDArray[np.int64]


# --- the result -------------------------------------------------------------------------------------------------------


def in_slots(job: Job, order: Numbers) -> Job:
    """The same job with the rows in the order of their IDs: start and owners carried over by row."""
    return dataclasses.replace(
        job,
        rows=tuple(job.rows[i] for i in order),
        owners=tuple(job.owners[i] for i in order),
        initial=None if job.initial is None else tuple(job.initial[i] for i in order),
    )


def check_private(job: Job) -> memory.Result:
    """A private run equals, label by label and round by round, central Lloyd and the public run on the rows by slot."""
    agreed = plan.make(dataclasses.replace(job.plan().wishes, membership="private"))
    ids = identifiers.fresh(len(job.rows), job.seed.to_bytes(32, "big"))
    order = identifiers.order(ids)
    rows, positions = job.parts()
    sorted_job = in_slots(job, order)
    machine = sorted_job.clustering()
    result = memory.run(agreed, rows, lambda _: machine, ids=[ids[at] for at in positions])
    assert machine.steps == sorted_job.expected()
    public = check(sorted_job)
    np.testing.assert_array_equal(result.labels, public.labels)
    assert (result.inertia, result.rounds, result.converged) == (public.inertia, public.rounds, public.converged)
    for at, slots in zip(positions, result.slots, strict=True):
        np.testing.assert_array_equal(order[slots], at)
    return result


@settings(calm, max_examples=4)
@given(jobs())
@example(CASES["clients without rows"])
@example(CASES["duplicate rows"])
@example(CASES["rows in no cluster"])
def test_labels_are_those_without_membership_privacy(job: Job) -> None:
    """docs/protocol.md, Section 2a: the same result as with public membership, in both upload modes, any start and deal."""
    assume(job.privacy)
    check_private(job)


@pytest.mark.slow
@settings(calm, max_examples=200)
@given(jobs(most_rows=24, most_features=9))
def test_very_many_private_jobs(job: Job) -> None:
    assume(job.privacy)
    check_private(job)


@pytest.mark.parametrize("uploads", ["masked", "open"])
def test_from_the_same_start_labels_do_not_depend_on_membership(uploads: str) -> None:
    """In the rows' own order, with rows that have no ties, and any deal to clients."""
    pick = np.random.default_rng(3)
    X, start = pick.normal(size=(400, 3)), pick.integers(0, 5, 400)
    public = SecureKMeans(5, n_clients=7, privacy=2, uploads=uploads).fit(X, initial_labels=start)
    for seed in range(2):
        private = SecureKMeans(5, n_clients=7, privacy=2, uploads=uploads, membership="private", random_state=seed)
        private.fit(X, groups=pick.integers(0, 7, 400), initial_labels=start)
        np.testing.assert_array_equal(private.labels_, public.labels_)
        assert private.inertia_ == public.inertia_
        assert private.n_iter_ == public.n_iter_


def test_a_seeded_private_run_does_not_depend_on_the_deal() -> None:
    pick = np.random.default_rng(4)
    X = pick.normal(size=(120, 2))
    base = SecureKMeans(4, membership="private", random_state=1).fit(X)
    for groups in (pick.integers(0, 5, 120), np.zeros(120)):
        other = SecureKMeans(4, membership="private", random_state=1).fit(X, groups=groups)
        np.testing.assert_array_equal(other.labels_, base.labels_)


def test_fresh_ids_are_drawn_if_none_are_given() -> None:
    job = CASES["a grid of ties"]
    agreed = plan.make(dataclasses.replace(job.plan().wishes, membership="private"))
    rows, positions = job.parts()
    runs = [memory.run(agreed, rows, lambda _: job.clustering()) for _ in range(2)]
    assert any((a != b).any() for a, b in zip(runs[0].slots, runs[1].slots, strict=True))
    with pytest.raises(InvalidInput, match="IDs with private membership"):
        memory.run(agreed, rows, lambda _: job.clustering(), positions=positions)
    with pytest.raises(InvalidInput, match="IDs with private membership"):
        memory.run(job.plan(), rows, lambda _: job.clustering(), ids=[identifiers.none()] * 5)
    with pytest.raises(InvalidInput, match="one ID for each row"):
        memory.run(agreed, rows, lambda _: job.clustering(), ids=[identifiers.none()] * 5)


def test_private_membership_needs_privacy() -> None:
    with pytest.raises(PlanError, match="private membership needs privacy >= 1"):
        SecureKMeans(2, privacy=0, uploads="open", membership="private").fit(np.eye(4))


# --- sharing all slots ------------------------------------------------------------------------------------------------


def test_slot_shares_are_shares_of_the_scattered_rows() -> None:
    """docs/protocol.md, Section 2a: zeros elsewhere; across block seams, in any order of rows; the number of rows shows
    nowhere."""
    code = Code(Field.of(2), 4, 2, 1)
    pick = np.random.default_rng(0)
    rows = pick.integers(-9, 10, (2000, 3))
    slots = pick.permutation(7000)[:2000]
    scattered = np.zeros((7000, 3), dtype=np.int64)
    scattered[slots] = rows
    seed = b"z" * 32
    got, dense = SlotShares(code, rows, slots, 7000, seed), ShareSet(code, scattered, seed)
    assert [a.tobytes() for a in got.shares(range(4))] == [b.tobytes() for b in dense.shares(range(4))]
    none = SlotShares(code, rows[:0], slots[:0], 7000, seed)
    assert none.id == got.id
    assert repr(none) == repr(got)
    assert [len(w) for w in none.shares(range(4))] == [len(w) for w in got.shares(range(4))]


@pytest.mark.parametrize("slots", [[0, 0], [0], [-1, 2], [1, 3]])
def test_rows_need_slots_of_their_own(slots: list[int]) -> None:
    with pytest.raises(InvalidInput, match="slot"):
        SlotShares(Code(Field.of(1), 3, 1, 1), np.zeros((2, 1), dtype=np.int64), np.array(slots), 3, b"z" * 32)


# --- nobody learns which row is whose -----------------------------------------------------------------------------------


def distribution(views: Numbers) -> Numbers:
    """(cases, positions, values) of residues below 16 as the sorted views of every position: equal if distributed equally."""
    numbers = np.zeros(views.shape[:2], dtype=np.int64)
    for value in range(views.shape[2]):
        numbers = numbers * 16 + views[:, :, value]
    return np.sort(numbers, axis=0)


class KnownNoise(TableShares):
    """A table shared with given noise, the same in all positions."""

    noise: float

    def _noise(self, first: int, rows: int) -> Residues:
        return np.full((self.code.field.lanes, self.code.privacy, rows, self.length), self.noise)


def table_views(shape: TableShape, parts: list[Ids]) -> list[Numbers]:
    """All that the server and one client see, for each client, over all noise of everybody, by the code that runs: the
    client's own noise, the shares it gets, and all sums. Positions of a table have independent noise: each counts alone."""
    p, n = shape.code.field.primes[0], shape.code.clients
    made: dict[tuple[int, int], list[Words]] = {}
    for i, value in itertools.product(range(n), range(p)):
        shares = KnownNoise(shape, parts[i], b"k" * 32)
        shares.noise = float(value if value <= p // 2 else value - p)
        made[i, value] = shares.shares(range(n))
    out: list[list[Numbers]] = [[] for _ in range(n)]
    for noise in itertools.product(range(p), repeat=n):
        outgoing = [made[i, value] for i, value in enumerate(noise)]
        sums = [shape.sum() for _ in range(n)]
        for i, j in itertools.product(range(n), range(n)):
            sums[j].add(i, outgoing[i][j])
        for j in range(n):
            seen = [words[j] for words in outgoing] + [held.words() for held in sums]
            values = [
                shape.code.field.unpack(words, shape.rows, 4)[0].astype(np.int64).reshape(-1) % p for words in seen
            ]
            out[j].append(np.stack([np.full_like(values[0], noise[j]), *values], axis=1))
    return [distribution(np.stack(found)) for found in out]


def test_the_views_of_the_server_and_a_client_are_the_same_for_all_deals() -> None:
    """n = 3, t = 1, ℓ = 2 over GF(7), all 343 noises, the whole path: table, encoder, sums."""
    shape = TableShape(Code(small_field(7), 3, 2, 1), 1, b"tiny")
    one, two, three = (np.array(ids, dtype=np.uint64) for ids in ([[1, 5]], [[2, 2], [0, 6]], [[4, 3]]))
    seen = table_views(shape, [one, two, three])
    for who, deal in enumerate(
        ([one, three, two], [np.concatenate([one, three]), two, identifiers.none()], [two, one, three])
    ):
        other = table_views(shape, list(deal))
        assert (seen[who] == other[who]).all(), "its own IDs are the same, so all it sees is"
    assert (seen[0] != other[0]).any(), "a client that holds other IDs itself sees that, of course"


def views(code: Code, parts: Numbers, coalition: tuple[int, ...], opened: bool) -> Numbers:
    """What a coalition sees of the others, over all noise of theirs: `parts` (others, ℓ, positions) are shared; the
    coalition gets its shares, and with the server (`opened`) everybody's sum over the others; it can take its own off."""
    p, field = code.field.primes[0], code.field
    every = np.array(list(itertools.product(range(p), repeat=code.privacy * len(parts)))).T
    noise = every.reshape(len(parts), code.privacy, -1)
    shares = np.empty((len(parts), code.clients, noise.shape[2], parts.shape[2]), dtype=np.int64)
    for h, segments in enumerate(parts):
        for q in range(parts.shape[2]):
            fixed = np.repeat(segments[:, q : q + 1], noise.shape[2], axis=1)
            both = field.from_ints(np.concatenate([fixed, noise[h]]))
            shares[h, :, :, q] = field.matmul(code.encoding, both)[0].astype(np.int64) % p
    seen = shares[:, list(coalition)].reshape(-1, *shares.shape[2:])
    if opened:
        seen = np.concatenate([seen, shares.sum(axis=0) % p])
    return np.moveaxis(seen, 0, 2)


@pytest.mark.parametrize(("p", "n", "t"), [(7, 3, 1), (11, 4, 1), (11, 4, 2)])
def test_any_t_clients_and_the_server_see_the_sum_only(p: int, n: int, t: int) -> None:
    """All noise of the others, all coalitions of t; one client more would see who brought what."""
    code = Code(small_field(p), n, n - t, t)
    pick = random.Random(n)

    def deals(others: int) -> tuple[Numbers, Numbers]:
        one = np.array([[[pick.randrange(p)] for _ in range(code.segments)] for _ in range(others)])
        shift = np.array([[pick.randrange(1, p)] for _ in range(code.segments)])
        other = one.copy()
        other[0], other[1] = (one[0] + shift) % p, (one[1] - shift) % p
        return one, other

    for size in (t, t + 1):
        if n - size < 2:
            continue
        for coalition in itertools.combinations(range(n), size):
            one, other = (distribution(views(code, parts, coalition, opened=True)) for parts in deals(n - size))
            assert (one == other).all() == (size == t), coalition


@pytest.mark.parametrize(("p", "n", "segments", "t"), [(7, 3, 1, 1), (11, 5, 2, 1), (11, 5, 1, 2)])
def test_any_t_clients_learn_nothing_from_shares_of_all_slots(p: int, n: int, segments: int, t: int) -> None:
    """A row or zeros: the shares that t clients get in a slot have the same distribution, uniform; those of t+1 do not."""
    code = Code(small_field(p), n, segments, t)
    row, zeros = np.arange(1, segments + 1).reshape(1, segments, 1), np.zeros((1, segments, 1), dtype=np.int64)
    for size in (t, t + 1):
        for coalition in itertools.combinations(range(n), size):
            one, other = (distribution(views(code, parts, coalition, opened=False)) for parts in (row, zeros))
            if size == t:
                assert len(np.unique(one)) == p**t
            assert (one == other).all() == (size == t)


def test_a_partial_sum_would_tell() -> None:
    """Why `Sum` waits for everybody: over two of three clients the opened sum is not the same for all deals."""
    assert Sum(Code(Field.of(1), 3, 2, 1), 1, 1).missing == [0, 1, 2]
    code = Code(small_field(7), 3, 2, 1)
    one, other = np.array([[[1], [2]], [[0], [0]]]), np.array([[[0], [0]], [[1], [2]]])
    both = [distribution(views(code, parts, (), opened=True)) for parts in (one, other)]
    first = [distribution(views(code, parts[:1], (), opened=True)) for parts in (one, other)]
    assert (both[0] == both[1]).all()
    assert (first[0] != first[1]).any()
