"""Row IDs, sums that are opened, and the private set union (docs/protocol.md, Section 2a)."""

from __future__ import annotations

import hashlib
import json
import random

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from experiments import union as experiment
from secfc.coding import summing
from secfc.coding.field import Field
from secfc.coding.lagrange import Code
from secfc.errors import DataError, InvalidInput, JobFailed, Malformed, OutOfTurn
from secfc.framing import framed
from secfc.privacy import identifiers, union
from secfc.privacy.identifiers import Ids
from secfc.privacy.union import IdUnion, Peeled, TableShape, TableShares, peel, union_code
from tests.unit import aligning as alignment

SEED, SESSION = b"i" * 32, b"s" * 32
PAIRS = st.tuples(st.integers(0, 3), st.integers(0, 3))
calm = settings(deadline=None, suppress_health_check=list(HealthCheck))


def as_set(ids: Ids) -> set[tuple[int, int]]:
    return set(map(tuple, ids.tolist()))


def deal(ids: Ids, clients: int, seed: int, among: int | None = None) -> list[Ids]:
    """IDs dealt at random to the first `among` clients; the others hold none."""
    owners = np.random.default_rng(seed).integers(0, among or clients, len(ids))
    return [ids[owners == j] for j in range(clients)]


def check_union(parts: list[Ids], privacy: int, **options: object) -> IdUnion:
    """Align, and compare with Python's own union and order."""
    everything = np.concatenate(parts)
    found = alignment.align(union_code(len(parts), privacy), parts, SESSION, len(everything), **options)  # type: ignore[arg-type]
    assert found.finished
    assert found.ids.tolist() == sorted(everything.tolist())
    for own in parts:
        np.testing.assert_array_equal(found.ids[found.slots(own)], own)
    return found


# --- IDs --------------------------------------------------------------------------------------------------------------


def test_fresh_ids_differ_are_uniform_and_come_again_from_their_seed() -> None:
    ids = identifiers.fresh(20_000, SEED)
    assert len(as_set(ids)) == 20_000
    identifiers.check(ids)
    assert (identifiers.fresh(20_000, SEED) == ids).all()
    assert not as_set(identifiers.fresh(20_000, b"j" * 32)) & as_set(ids)
    for lane in range(3):
        residues = (ids >> np.uint64(21 * lane)).astype(np.int64) & 0x1FFFFF
        assert abs(residues.mean() / 2**20 - 1) < 0.02
        assert len(np.unique(residues)) > 39_000


def test_linked_ids_follow_their_description() -> None:
    """HMAC-SHA256 by hand (RFC 2104); equal names, equal IDs, in any normalisation; another key or job, other IDs."""
    key = bytes(range(32))
    parts = (b"secfc/v1/linked", b"job", "Zoë".encode())
    message = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
    padded = key + bytes(32)
    inner = hashlib.sha256(bytes(b ^ 0x36 for b in padded) + message).digest()
    digest = hashlib.sha256(bytes(b ^ 0x5C for b in padded) + inner).digest()
    numbers = [int.from_bytes(digest[5 * q : 5 * q + 5], "little") % identifiers.FIELD.primes[q % 3] for q in range(6)]
    expected = [sum(numbers[3 * word + lane] << 21 * lane for lane in range(3)) for word in range(2)]
    assert identifiers.linked(["Zoë"], key, b"job").tolist() == [expected]
    ids = identifiers.linked(["Zoe\u0308", "a", "b"], key, b"job")
    assert ids[0].tolist() == expected
    identifiers.check(ids)
    assert not as_set(identifiers.linked(["a", "b"], key[::-1], b"job")) & as_set(ids)
    assert not as_set(identifiers.linked(["a", "b"], key, b"job2")) & as_set(ids)
    assert identifiers.linked([], key, b"job").shape == (0, 2)


def test_bad_linked_names_are_told_to_their_owner() -> None:
    with pytest.raises(DataError, match="rows 1 and 3 have the same ID"):
        identifiers.linked(["x", "y", "x"], SEED, b"")
    with pytest.raises(DataError, match="row 2 has no ID"):
        identifiers.linked(["x", ""], SEED, b"")
    with pytest.raises(InvalidInput, match="at least 32 bytes"):
        identifiers.linked(["x"], b"short", b"")


@settings(calm, max_examples=60)
@given(st.lists(PAIRS, unique=True), st.lists(PAIRS))
def test_finding_ids_with_equal_halves(known: list[tuple[int, int]], wanted: list[tuple[int, int]]) -> None:
    """Words that end in zero bytes, equal first words, empty lists: the place in the sorted list, or -1."""
    scale = np.uint64(1 << 40)
    ids = np.array(sorted(known), dtype=np.uint64).reshape(-1, 2) * scale
    assert (identifiers.order(ids) == np.arange(len(ids))).all()
    assert identifiers.all_differ(ids)
    found = identifiers.find(ids, np.array(wanted, dtype=np.uint64).reshape(-1, 2) * scale)
    assert found.tolist() == [sorted(known).index(w) if w in known else -1 for w in wanted]


@pytest.mark.parametrize("bad", [[[1 << 63, 0]], [[0, (1 << 21) - 1]], [[(1 << 42) - 1, 0]]])
def test_what_is_no_id_is_refused(bad: list[list[int]]) -> None:
    with pytest.raises(Malformed, match="an ID"):
        identifiers.check(np.array(bad, dtype=np.uint64))
    with pytest.raises(Malformed, match="two 64-bit words"):
        identifiers.check(np.zeros((2, 3), dtype=np.uint64))


# --- sums -------------------------------------------------------------------------------------------------------------


@settings(calm, max_examples=40)
@given(
    st.integers(1, 6), st.integers(0, 4), st.integers(1, 3), st.lists(st.integers(0, 2**31 - 1), min_size=1), st.data()
)
def test_counts_are_summed_exactly(l: int, t: int, lanes: int, counts: list[int], data: st.DataObject) -> None:  # noqa: E741
    """Any ℓ+t of the sums open the total."""
    n = max(l + t, len(counts))
    code = Code(Field.of(max(lanes, 2)), n, l, t)
    counts = counts + [0] * (n - len(counts))
    shares = [summing.count_shares(code, c, bytes([j]) * 32, SESSION) for j, c in enumerate(counts)]
    sums = alignment.summed(shares, lambda: summing.count_sum(code))
    some = data.draw(st.permutations(range(n)))[: l + t]
    assert summing.opened_count(code, {j: sums[j] for j in some}) == sum(counts)


def test_a_partial_sum_is_never_given() -> None:
    """Issue: "no opened table is ever a partial sum (that would show somebody's IDs)"."""
    code = union_code(4, 1)
    shape = TableShape.of(code, 5, b"")
    words = [TableShares(shape, identifiers.fresh(2, bytes([j]) * 32), SEED).shares([0])[0] for j in range(4)]
    total = shape.sum()
    for j in range(3):
        total.add(j, words[j])
        with pytest.raises(OutOfTurn, match="a partial sum is never opened"):
            total.words()
    with pytest.raises(OutOfTurn, match="client 2 is already in the sum"):
        total.add(1, words[1])
    with pytest.raises(OutOfTurn):
        total.add(4, words[1])
    bad = words[3].copy()
    bad[0] = (1 << 63) - 1
    for wrong in (bad, words[3][:-1]):
        with pytest.raises(Malformed):
            total.add(3, wrong)
    assert total.missing == [3]
    total.add(3, words[3])
    assert len(total.words()) == shape.words == len(words[0])


def test_opening_needs_l_plus_t_sound_sums() -> None:
    code = Code(Field.of(3), 4, 2, 1)
    shares = [summing.count_shares(code, 7, bytes([j]) * 32, SESSION) for j in range(4)]
    sums = alignment.summed(shares, lambda: summing.count_sum(code))
    with pytest.raises(InvalidInput, match="exactly 3 distinct shares"):
        summing.opened_count(code, {j: sums[j] for j in (0, 3)})
    with pytest.raises(InvalidInput, match="none of the 4 clients"):
        summing.opened_count(code, dict.fromkeys((0, 1, 4), sums[0]))
    with pytest.raises(Malformed):
        summing.opened_count(code, sums | {1: np.zeros(2, dtype=np.uint64)})
    with pytest.raises(JobFailed, match="do not add up"):
        summing.opened_count(code, sums | {1: sums[2]})


def test_two_matrices_never_have_the_same_noise() -> None:
    """A restarted or misled client that shares something else does so with other noise: all values change."""
    code = union_code(3, 1)
    ids = identifiers.fresh(3, SEED)
    shapes = [TableShape.of(code, 3, b"one"), TableShape.of(code, 3, b"two"), TableShape.of(code, 40, b"one")]
    sets = [TableShares(shape, ids, SEED) for shape in shapes] + [TableShares(shapes[0], ids[:2], SEED)]
    assert len({s.id for s in sets}) == 4
    assert TableShares(shapes[0], ids, SEED).shares([1])[0].tobytes() == sets[0].shares([1])[0].tobytes()
    counts = [summing.count_shares(code, c, SEED, session).id for c in (1, 2) for session in (b"a", b"b")]
    assert len(set(counts)) == 4


# --- the union --------------------------------------------------------------------------------------------------------


@settings(calm, max_examples=60)
@given(st.integers(2, 8), st.integers(0, 60), st.integers(0, 1 << 20), st.booleans(), st.sampled_from([1.0, 1.3, 4.0]))
def test_any_deal_gives_the_union(n: int, m: int, seed: int, count_first: bool, cells: float) -> None:
    """Any number of clients, some of them empty, tables sized by the summed count or by the public bound."""
    pick = random.Random(seed)
    parts = deal(identifiers.fresh(m + 1, seed.to_bytes(32, "big")), n, seed, pick.randint(1, n))
    check_union(parts, pick.randint(1, n - 1), count_first=count_first, cells_per_id=cells)


@pytest.mark.parametrize(("n", "t"), [(3, 1), (10, 3), (20, 6)])
@pytest.mark.parametrize("m", [1000, 10_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_the_union_is_exact(n: int, t: int, m: int) -> None:
    """Issue: "exact over 1e3, 1e4, 1e5 IDs with n up to 20, t up to 6, empty clients and clients holding everything"."""
    ids = identifiers.fresh(m, bytes([n, t]) * 16)
    check_union(deal(ids, n, m, n - 1), t)
    nothing = identifiers.none()
    check_union([nothing] * (n - 1) + [ids], t)


@pytest.mark.parametrize("m", [1000, 10_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_the_smallest_table_is_completed_by_residual_rounds(m: int) -> None:
    """One cell an ID is below the peeling threshold of 1.222: most IDs are left, and the next tables bring them."""
    parts = deal(identifiers.fresh(m, SEED), 5, 1)
    found = check_union(parts, 2, cells_per_id=union.LEAST_CELLS_PER_ID)
    assert found.round > 2
    shape = TableShape.of(union_code(5, 2), m, IdUnion(found.code, SESSION, m, m).digest, union.LEAST_CELLS_PER_ID)
    assert peel(shape, shape.table(np.concatenate(parts))).left > m // 2


def test_the_sum_depends_on_the_union_only() -> None:
    """The sum of tables is the table of all IDs, however they are dealt; so are rounds, sizes and leftovers."""
    shape = TableShape.of(union_code(4, 1), 40, b"x")
    ids = identifiers.fresh(40, SEED)
    whole = shape.table(ids)
    for seed in range(3):
        parts = deal(ids, 4, seed)
        shares = [TableShares(shape, own, bytes([j]) * 32) for j, own in enumerate(parts)]
        assert {len(words) for s in shares for words in s.shares(range(4))} == {shape.words}
        assert (shape.opened(alignment.summed(shares, shape.sum)) == whole).all()


def test_a_table_is_what_its_description_says() -> None:
    """Cell by cell in Python integers: places, counts, sums of keys and of checks, modulo every lane's prime."""
    shape = TableShape.of(union_code(3, 1), 25, b"described")
    ids = identifiers.fresh(25, SEED)
    raw = hashlib.sha256(framed(b"secfc/v1/union-hash", shape.digest)).digest()
    keys = [int.from_bytes(raw[8 * i : 8 * i + 8], "little") for i in range(4)]
    word = (1 << 64) - 1

    def mixed(first: int, second: int, key: int) -> int:
        x = (first ^ key) * 0x9E3779B97F4A7C15 & word
        x = ((x ^ x >> 32) + second) * 0xBF58476D1CE4E5B9 & word
        x = (x ^ x >> 29) * 0x94D049BB133111EB & word
        return x ^ x >> 32

    expected = np.zeros((2 * shape.rows, 12), dtype=object)
    for first, second in ids.tolist():
        check = mixed(first, second, keys[3])
        for third in range(3):
            cell = third * shape.part + ((mixed(first, second, keys[third]) >> 32) * shape.part >> 32)
            for lane, p in enumerate(identifiers.FIELD.primes):
                values = [1, *((number >> 21 * lane) % (1 << 21) for number in (first, second, check))]
                expected[cell, 4 * lane : 4 * lane + 4] = (expected[cell, 4 * lane : 4 * lane + 4] + values) % p
    assert shape.table(ids).tolist() == expected.tolist()


@pytest.mark.parametrize("holders", [(0, 1), (0, 1, 2, 3, 4), (3, 3)])
@pytest.mark.parametrize("cells", [1.0, 1.3])
def test_an_id_held_twice_stops_the_job_without_saying_whose(holders: tuple[int, ...], cells: float) -> None:
    parts = deal(identifiers.fresh(300, SEED), 5, 0)
    twice = identifiers.fresh(1, b"d" * 32)
    for j in holders:
        parts[j] = np.concatenate([parts[j], twice])
    with pytest.raises(JobFailed, match="an ID is held more than once") as caught:
        check_union(parts, 2, cells_per_id=cells)
    messages = set()
    for a in range(5):
        moved = parts[a:] + parts[:a]
        with pytest.raises(JobFailed) as other:
            check_union(moved, 2, cells_per_id=cells)
        messages.add(str(other.value))
    assert messages == {str(caught.value)}, "the same words whoever holds it"
    assert not any(character.isdigit() for character in str(caught.value))


def test_every_id_held_by_everybody_is_found_too() -> None:
    ids = identifiers.fresh(50, SEED)
    with pytest.raises(JobFailed, match="more than once"):
        alignment.align(union_code(4, 1), [ids] * 4, SESSION, 200)


@pytest.mark.parametrize("liar", [0, 4])
def test_a_wrong_sum_is_noticed(liar: int) -> None:
    shape = TableShape.of(union_code(5, 2), 100, b"")
    shares = [TableShares(shape, own, SEED) for own in deal(identifiers.fresh(100, SEED), 5, 2)]
    sums = alignment.summed(shares, shape.sum)
    sums[liar] = sums[liar].copy()
    sums[liar][:40] = sums[(liar + 1) % 5][:40]
    with pytest.raises(JobFailed, match=r"do not add up|more than once|more rows"):
        peel(shape, shape.opened(sums))


def test_a_garbled_table_ends_in_an_error_and_in_time() -> None:
    """Whatever is opened, peeling stops: by its checks, or because it found as many IDs as there can be."""
    shape = TableShape.of(union_code(3, 1), 30, b"")
    for seed in range(50):
        table = shape.table(identifiers.fresh(30, SEED))
        pick = np.random.default_rng(seed)
        cells, columns = pick.integers(0, shape.cells, 3), pick.integers(0, 12, 3)
        table[cells, columns] = pick.integers(0, 3 if seed % 2 else 2_000_000, 3)
        try:
            found = peel(shape, table)
        except JobFailed:
            continue
        assert as_set(found.ids) <= as_set(identifiers.fresh(30, SEED))
        assert len(found.ids) + found.left == 30


def test_limits() -> None:
    code = union_code(3, 1)
    parts = deal(identifiers.fresh(20, SEED), 3, 0)
    for count_first in (True, False):
        with pytest.raises(JobFailed, match="the clients hold 20 rows in all, more than max_rows = 19"):
            alignment.align(code, parts, SESSION, 19, count_first=count_first)
        with pytest.raises(JobFailed, match="nothing to cluster"):
            alignment.align(code, [identifiers.none()] * 3, SESSION, 5, count_first=count_first)
    many = deal(identifiers.fresh(500, SEED), 3, 0)
    with pytest.raises(JobFailed, match="more rows than the table has room for"):
        alignment.align(code, many, SESSION, 5, count_first=False)
    with pytest.raises(InvalidInput, match="IDs of 2 were given"):
        alignment.align(code, parts[:2], SESSION, 20)
    for cells in (0.9, float("nan"), 1e9):
        with pytest.raises(InvalidInput, match="cells per ID"):
            TableShape.of(code, 5, b"", cells)
    for n, t in ((3, 0), (3, 3), (2, -1)):
        with pytest.raises(InvalidInput, match="privacy of at least 1"):
            union_code(n, t)


def test_what_no_honest_server_sends_is_refused() -> None:
    code = union_code(3, 1)
    ids = identifiers.fresh(6, SEED)
    known = IdUnion(code, SESSION, 10, 6)
    for peeled, words in (
        (Peeled(ids[[0, 0]], 4), "an ID twice"),
        (Peeled(ids[:2], -1), "negative"),
        (Peeled(ids[:2], 3), "do not make those that were left"),
        (Peeled(ids[:2] | np.uint64(1 << 63), 4), "more bits"),
    ):
        with pytest.raises(Malformed, match=words):
            known.learn(peeled)
    assert (known.round, known.left, len(known.ids)) == (1, 6, 0), "and changes nothing"
    before = known.shape
    known.learn(Peeled(ids[:4], 2))
    assert known.shape.digest != before.digest
    assert known.shape.cells < before.cells + 3
    with pytest.raises(Malformed, match="an ID twice"):
        known.learn(Peeled(ids[3:5], 0))
    with pytest.raises(InvalidInput, match="not finished"):
        known.slots(ids[:2])
    known.learn(Peeled(ids[4:], 0))
    with pytest.raises(InvalidInput, match="no further table"):
        known.contribution(ids, SEED)
    with pytest.raises(JobFailed, match="lacks IDs of our own"):
        known.slots(identifiers.fresh(1, b"e" * 32))


def test_a_client_told_another_list_makes_another_table() -> None:
    """If the server told one client another list of peeled IDs, the digests that travel with shares would differ."""
    ids = identifiers.fresh(6, SEED)
    one, other = IdUnion(union_code(3, 1), SESSION, 10, 6), IdUnion(union_code(3, 1), SESSION, 10, 6)
    assert one.shape.digest == other.shape.digest
    one.learn(Peeled(ids[:3], 3))
    other.learn(Peeled(ids[1:4], 3))
    assert one.shape.part == other.shape.part
    assert one.shape.digest != other.shape.digest


def test_ids_that_never_peel_end_the_job() -> None:
    known = IdUnion(union_code(3, 1), SESSION, 10, 4)
    for _ in range(union.MAX_ROUNDS - 1):
        known.learn(Peeled(identifiers.none(), 4))
    with pytest.raises(JobFailed, match="could not be separated"):
        known.learn(Peeled(identifiers.none(), 4))


def test_the_experiment_prints_seconds_and_bytes() -> None:
    result = CliRunner().invoke(experiment.command, ["--json", "-m", "300", "-n", "4", "-t", "1", "--repeat", "1"])
    assert result.exit_code == 0, result.output
    (row,) = json.loads(result.stdout)
    assert (row["m"], row["n"], row["t"], row["list_bytes_per_id"]) == (300, 4, 1, 16)
    assert row["bytes_per_id_and_recipient"] >= 8 * TableShape.of(union_code(4, 1), 300, b"").words / 300
    assert all(row[name] > 0 for name in (*experiment.STEPS, "client_s", "server_s"))
    result = CliRunner().invoke(experiment.command, ["-m", "20", "--repeat", "1"])
    assert "bytes per ID and recipient" in result.stdout
