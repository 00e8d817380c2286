"""Over all coins of the committee, in tiny rings, the server's view depends on what it may learn only (docs/sealed.md,
Section 9). The functions are the product's; one call holds a comparison for every combination of coins."""

from __future__ import annotations

from itertools import combinations, pairwise, product
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from secfc.coding.field import Field
from secfc.kmeans.coins import Coins
from secfc.privacy.sealed import nearest, seeding, sides, steps
from secfc.privacy.sealed.comparer import Comparer
from secfc.privacy.sealed.context import Line, Purse
from secfc.privacy.sealed.messages import Kind, Talk
from secfc.privacy.sealed.referee import Referee
from secfc.privacy.sealed.sides import Side
from secfc.privacy.sealed.terms import Terms
from tests import reference
from tests.sealed.conversing import converse, residues, tiled, untiled

Table = npt.NDArray[np.int64]
EMPTY = np.empty(0, dtype=np.uint8)


def tiny(primes: tuple[int, ...], small: int) -> Terms:
    terms = Terms(Field(primes), 3, 2, 1, 2, small=small)
    assert terms.places(len(primes)) <= small - 1, "the guard on lanes, in this ring"
    return terms


def coins(*ranges: range | list[int]) -> Table:
    """Every combination, one a row."""
    return np.array(list(product(*ranges)), dtype=np.int64)


def same(views: list[Table]) -> bool:
    """Whether the views are the same distribution (each row once for every combination of coins)."""
    ordered = [view[np.lexsort(view.T)] for view in views]
    return all(np.array_equal(ordered[0], view) for view in ordered)


def messages(terms: Terms, y: Any, rho: Any, share: list[int], drawn: Table, zero: bool) -> tuple[Table, Table]:
    """Both members' answers (N, places) to comparisons of 2(Y − ρ), when member 0 was dealt `share`.

    drawn (N, …): direction, turn, a factor for every place and, with `zero`, the zero-share of every place.
    """
    lanes, count = terms.field.lanes, len(drawn)
    places, thresholds = terms.places(lanes), terms.thresholds(lanes)
    mine = tiled(np.repeat(np.array(share)[:, None], count, axis=1))
    assert len(mine) == count * thresholds
    rest = steps.deal_digits(terms, steps.digits_of(terms.field, rho), mine[None])
    direction, turn = drawn[:, 0].astype(np.uint8), drawn[:, 1].astype(np.uint8)
    factors = tiled(drawn[:, 2 : 2 + places].T)
    mask = tiled(drawn[:, 2 + places : 2 + 2 * places].T) if zero else EMPTY
    digits = steps.digits_of(terms.field, y)
    one = steps.answer_tests(terms, digits, mine, factors, (mask, EMPTY), direction, turn, True)
    two = steps.answer_tests(terms, digits, rest, factors, (EMPTY, mask), direction, turn, False)
    return untiled(one, places), untiled(two, places)


def all_coins(terms: Terms, zero: bool) -> Table:
    places = terms.places(terms.field.lanes)
    factors = [range(1, terms.small)] * places
    return coins(range(2), range(places), *factors, *([range(terms.small)] * places if zero else []))


def shares_of(terms: Terms, seed: int) -> list[int]:
    count = terms.thresholds(terms.field.lanes)
    return np.random.default_rng(seed).integers(0, terms.small, count).tolist()


def view(terms: Terms, error: int, mask: int, share: list[int], drawn: Table, zero: bool, whole: bool) -> Table:
    own = np.repeat(residues(terms.field, [error + mask]), len(drawn), axis=0)
    masks = np.repeat(residues(terms.field, [mask]), len(drawn), axis=0)
    one, two = messages(terms, own, masks, share, drawn, zero)
    return np.concatenate([one, two], axis=1) if whole else (one + two) % terms.small


@pytest.mark.parametrize(("prime", "small"), [(3, 3), (5, 5)])
def test_both_messages_of_a_comparison(prime: int, small: int) -> None:
    """Everything the server sees of a comparison, zero-shares enumerated, is the same for every E."""
    terms = tiny((prime,), small)
    drawn, half = all_coins(terms, True), (prime - 1) // 2
    for mask in range(prime):
        share = shares_of(terms, mask)
        assert same([view(terms, e, mask, share, drawn, True, True) for e in range(-half, half + 1)])


@pytest.mark.parametrize(("prime", "small"), [(3, 3), (5, 5)])
def test_without_zero_shares_the_messages_tell_the_error(prime: int, small: int) -> None:
    terms = tiny((prime,), small)
    drawn, half = all_coins(terms, False), (prime - 1) // 2
    told = [
        not same([view(terms, e, mask, shares_of(terms, mask), drawn, False, True) for e in range(-half, half + 1)])
        for mask in range(prime)
    ]
    assert any(told)


@pytest.mark.parametrize(("primes", "small"), [((7,), 5), ((3, 5), 7), ((13,), 5)])
def test_the_sum_of_a_comparison(primes: tuple[int, ...], small: int) -> None:
    """The sum, which is all that uniform zero-shares leave, is the same for every E; several lanes too."""
    sum_of_a_comparison(primes, small, 4)


@pytest.mark.slow
@pytest.mark.parametrize(("primes", "small"), [((7,), 5), ((3, 5), 7), ((13,), 5)])
def test_the_sum_of_a_comparison_under_every_mask(primes: tuple[int, ...], small: int) -> None:
    sum_of_a_comparison(primes, small, 1)


def sum_of_a_comparison(primes: tuple[int, ...], small: int, step: int) -> None:
    """Under every mask, or every so many."""
    terms = tiny(primes, small)
    drawn, q = all_coins(terms, False), terms.field.modulus
    for mask in range(0, q, step):
        share = shares_of(terms, mask)
        errors = range(-((q - 1) // 2), (q - 1) // 2 + 1)
        assert same([view(terms, e, mask, share, drawn, False, False) for e in errors])


def _duel(terms: Terms, one: int, two: int, share: list[int], drawn: Table) -> tuple[Table, ...]:
    """E = v_2 − v_1 of two padded values, pads first in the coins: ρ₁, ρ₂, the summed test, g, β."""
    field, pads = terms.field, drawn[:, :2]
    masks = (pads - [one, two]) % field.modulus
    y = ((pads[:, 1] - pads[:, 0]) % field.modulus).astype(np.uint32)[:, None]
    rho = ((masks[:, 1] - masks[:, 0]) % field.modulus).astype(np.uint32)[:, None]
    first, second = messages(terms, y, rho, share, drawn[:, 2:], False)
    total = (first + second) % terms.small
    g = (total == 0).any(axis=1) ^ steps.digits_of(field, rho).parity.astype(bool)
    beta = drawn[:, 2].astype(bool) ^ steps.digits_of(field, y).parity.astype(bool)
    assert ((g ^ beta) == (two < one)).all()
    return masks, total, g.astype(np.uint8), beta.astype(np.uint8), y


def test_a_rows_round() -> None:
    """Pads, comparison and count of a row with two clusters: the view depends on whether it moves only."""
    terms = tiny((5,), 5)
    places = terms.places(1)
    drawn = coins(range(5), range(5), range(2), range(places), *[range(1, 5)] * places, range(1, 5))
    number = np.arange(len(drawn), dtype=np.int32)
    seen: dict[bool, list[Table]] = {True: [], False: []}
    for one, two in product(range(3), repeat=2):
        masks, total, g, beta, _ = _duel(terms, one, two, shares_of(terms, 1), drawn)
        stream = np.full(len(g), 3, dtype=np.uint8)
        factors = drawn[:, -1].astype(np.uint8)
        tests = steps.Counts(number, np.full_like(number, -1), len(g))
        rest = steps.deal_bits(5, g, [stream])
        counts = [
            steps.answer_counts(5, share, beta, tests, factors, (EMPTY, EMPTY), first).astype(np.int64)
            for share, first in ((stream, True), (rest, False))
        ]
        result = (counts[0] + counts[1]) % 5
        assert ((result == 0) == (two >= one)).all()
        seen[two < one].append(np.column_stack([masks, total, g, result]))
    assert same(seen[True])
    assert same(seen[False])
    assert not same([seen[True][0], seen[False][0]])


def test_a_seeding_step() -> None:
    """D² and a new distance: comparison and selection show nothing at all."""
    terms = tiny((5,), 5)
    places = terms.places(1)
    drawn = coins(range(5), range(5), range(2), range(places), *[range(1, 5)] * places, range(5))
    views = []
    for old, new in product(range(3), repeat=2):
        masks, total, g, beta, y = _duel(terms, old, new, shares_of(terms, 2), drawn)
        rho = ((masks[:, 1] - masks[:, 0]) % 5).astype(np.uint32)[:, None]
        pad = drawn[:, -1:].astype(np.uint32)
        dealt = steps.selection(terms.field, g, rho)
        share = np.full_like(dealt, 2)
        answers = [
            steps.answer_selection(terms.field, y, beta, part.astype(np.uint32), pad, np.zeros_like(pad), first)
            for part, first in ((share, True), ((dealt + 5 - share) % 5, False))
        ]
        fresh = steps.negated_sum(terms.field, answers)
        assert ((pad.astype(int) - fresh - (new - old) * (new < old)) % 5 == 0).all()
        views.append(np.column_stack([masks, total, g, fresh]))
    assert same(views)


def test_picking_among_groups() -> None:
    """Two groups of two: E of the winners is right, and both members' messages are uniform whatever the turns and values."""
    field = Field((5,))
    drawn = coins(range(5), range(5))  # pad, zero-share
    generator = np.random.default_rng(1)
    sizes = np.full((len(drawn), 2), 2, dtype=np.int32)
    for _ in range(60):
        y, rho = generator.integers(0, 5, (2, 4)).astype(np.uint32)
        places, turns = generator.integers(0, 2, (2, 2)).astype(np.int32)
        forms = [np.tile(part[None, :, None], (len(drawn), 1, 1)) for part in (rho, y)]
        dealt = steps.pick(forms[0], np.tile(places, (len(drawn), 1)), sizes)
        share = np.broadcast_to(generator.integers(0, 5, dealt.shape[1:]).astype(np.uint32), dealt.shape)
        pad, zero = drawn[:, :1].astype(np.uint32), drawn[:, 1:].astype(np.uint32)
        one, two = (
            steps.answer_pick(field, forms[1], np.tile(turns, (len(drawn), 1)), sizes, part, pad, mask, first)
            for part, mask, first in ((share, zero.copy(), True), ((dealt + 5 - share) % 5, (5 - zero) % 5, False))
        )
        a, b = (places - turns) % 2
        winner = int(y[2 * a + b]) - int(rho[2 * a + b])
        assert ((pad.astype(int) + one + two - winner) % 5 == 0).all()
        assert len(np.unique(np.column_stack([one, two]), axis=0)) == 25


def test_the_search_shows_the_index_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """All bits that the product's search reveals, block ends and rows of the block, are a function of the index, which is the
    reference's draw; the members' blinds that come with them are uniform (`test_both_messages_of_a_comparison`)."""
    terms = Terms(Field.of(1), 4, 2, 3, 2, draw_bits=3)
    revealed: list[tuple[bool, ...]] = []
    reveal = Referee.reveal

    def noted(self: Referee, bits: Any) -> Talk[Any]:
        found = yield from reveal(self, bits)
        revealed.append(tuple(found.tolist()))
        return found

    monkeypatch.setattr(Referee, "reveal", noted)
    seen: dict[int | None, set[tuple[tuple[bool, ...], ...]]] = {}
    for weights in product(range(3), repeat=4):
        for seed in range(3):
            u = Coins(b"%d" % seed).below("x", 1 << 3)
            pads = np.random.default_rng(seed).integers(0, terms.field.modulus, 4).tolist()

            def script(side: Side, u: int = u, weights: Any = weights, pads: Any = pads) -> Talk[Any]:
                masks = [y - w for y, w in zip(pads, weights, strict=True)]
                squares = residues(terms.field, masks if side.serves else pads)
                return (yield from seeding._draws(side, terms.field, (u,), squares))

            revealed.clear()
            found = converse(terms, script)
            index = reference.draw(weights, Coins(b"%d" % seed), "x", 3)
            assert all(rows == (() if index is None else (index,)) for rows in found)
            seen.setdefault(index, set()).add(tuple(revealed))
    assert set(seen) == {None, 0, 1, 2, 3}
    assert all(len(views) == 1 for views in seen.values())


def chained(terms: Terms, streams: list[Table]) -> list[tuple[Any, Any]]:
    """What every member adds and subtracts as its zero-share, by the product's chain; `streams` are z₁ … z_t, tiled."""
    committee, seed = Purse(bytes(32), b"s"), Purse(bytes([1]) * 32, b"s")
    keys = [Comparer(terms, Line(b"C", 0), 1, j, committee, seed)._chain("zero") for j in range(terms.members)]
    names = list(dict.fromkeys(key for pair in keys for key in pair if key is not None))
    assert len(names) == len(streams) == terms.members - 1
    return [tuple(EMPTY if key is None else streams[names.index(key)] for key in pair) for pair in keys]  # type: ignore[misc]


@pytest.mark.parametrize("zero", [True, False])
def test_all_messages_of_a_committee_of_three(zero: bool) -> None:
    """Three members, zero-shares by the product's chain: the same for every E; without them the messages tell it."""
    terms = Terms(Field((3,)), 3, 2, 1, 3, small=3)
    places, count = terms.places(1), terms.thresholds(1)
    drawn = coins(range(2), range(places), *[range(1, 3)] * places, *[range(3)] * (2 * places))
    direction, turn = drawn[:, 0].astype(np.uint8), drawn[:, 1].astype(np.uint8)
    factors, rest = tiled(drawn[:, 2 : 2 + places].T), drawn[:, 2 + places :]
    masks = chained(terms, [tiled(rest[:, :places].T), tiled(rest[:, places:].T)]) if zero else [(EMPTY, EMPTY)] * 3
    told = []
    for mask in range(3):
        dealt = [tiled(np.repeat(np.array(shares_of(terms, mask + at))[:, None], len(drawn), axis=1)) for at in (0, 9)]
        rho = np.full((len(drawn), 1), mask, dtype=np.uint32)
        last = steps.deal_digits(terms, steps.digits_of(terms.field, rho), np.stack(dealt))
        assert len(last) == len(drawn) * count
        views = []
        for error in (-1, 0, 1):
            y = np.full((len(drawn), 1), (error + mask) % 3, dtype=np.uint32)
            digits = steps.digits_of(terms.field, y)
            answers = [
                untiled(steps.answer_tests(terms, digits, share, factors, masks[j], direction, turn, j == 0), places)
                for j, share in enumerate((*dealt, last))
            ]
            views.append(np.concatenate(answers, axis=1))
        told.append(not same(views))
    assert any(told) is not zero


@pytest.mark.parametrize("zero", [True, False])
def test_both_messages_of_a_count(zero: bool) -> None:
    """A count of two bits: the members' messages depend on whether it is zero only, whatever the blinds; without zero-shares
    they tell more."""
    drawn = coins(range(1, 5), range(5) if zero else [0])
    factors, mask = drawn[:, 0].astype(np.uint8), drawn[:, 1].astype(np.uint8)
    number = np.repeat(np.arange(len(drawn), dtype=np.int32), 2)
    tests = steps.Counts(number, np.full_like(number, -1), len(drawn))
    told = []
    for g in product(range(2), repeat=2):
        seen: dict[bool, list[Table]] = {True: [], False: []}
        bits = np.tile(np.array(g, dtype=np.uint8), len(drawn))
        stream = np.tile(np.array([3, 1], dtype=np.uint8), len(drawn))
        rest = steps.deal_bits(5, bits, [stream])
        for beta in product(range(2), repeat=2):
            blinds = np.tile(np.array(beta, dtype=np.uint8), len(drawn))
            answers = [
                steps.answer_counts(5, share, blinds, tests, factors, zeros, first).astype(np.int64)
                for share, zeros, first in ((stream, (mask, EMPTY), True), (rest, (EMPTY, mask), False))
            ]
            nothing = g == beta
            assert (((answers[0] + answers[1]) % 5 == 0) == nothing).all()
            seen[nothing].append(np.column_stack(answers))
        told.append(not same(seen[False]))
        assert len(seen[True]) == 1
    assert any(told) is not zero


@pytest.mark.parametrize("zero", [True, False])
def test_both_messages_of_a_selection(zero: bool) -> None:
    """b·x under a fresh pad: both messages are uniform whatever the value and the blind; without zero-shares they tell."""
    field = Field((5,))
    drawn = coins(range(5), range(5) if zero else [0])  # pad, zero-share
    pad, mask = drawn[:, :1].astype(np.uint32), drawn[:, 1:].astype(np.uint32)
    told = []
    for g, rho in product(range(2), range(5)):
        dealt = steps.selection(field, np.full(len(drawn), g, np.uint8), np.full((len(drawn), 1), rho, np.uint32))
        share, views = np.full_like(dealt, 2), []
        for beta, y in product(range(2), range(5)):
            own, blind = np.full((len(drawn), 1), y, np.uint32), np.full(len(drawn), beta, np.uint8)
            answers = [
                steps.answer_selection(field, own, blind, part.astype(np.uint32), pad, zeros, first)
                for part, zeros, first in ((share, mask, True), ((dealt + 5 - share) % 5, (5 - mask) % 5, False))
            ]
            views.append(np.column_stack(answers).astype(np.int64))
        told.append(not same(views))
    assert any(told) is not zero


@pytest.mark.parametrize("zero", [True, False])
def test_choosing_among_three_candidates(zero: bool) -> None:
    """Whatever the order of the totals, what the server sees after the comparisons, whose bits are blinded evenly, depends on
    the winner only; without zero-shares it tells more. Which bit counts where is the product's."""
    tests = _counts_of_three()
    drawn = coins(*[range(2)] * 3, *[range(1, 3)] * 3, *[range(3) if zero else [0]] * 3)
    many = steps.Counts(*(_repeated(part, len(drawn)) for part in (tests.up, tests.down)), 3 * len(drawn))
    blinds, factors, mask = (np.ascontiguousarray(drawn[:, at : at + 3], np.uint8) for at in (0, 3, 6))
    stream = np.tile(np.array([2, 1, 0], dtype=np.uint8), len(drawn))
    seen: dict[int, list[Table]] = {0: [], 1: [], 2: []}
    for totals in set(product(range(3), repeat=3)):
        beaten = np.array([totals[b] < totals[a] for a, b in combinations(range(3), 2)], dtype=np.uint8)
        g = blinds ^ beaten
        rest = steps.deal_bits(3, g.reshape(-1), [stream])
        answers = [
            steps.answer_counts(3, share, blinds.reshape(-1), many, factors.reshape(-1), zeros, first)
            for share, zeros, first in (
                (stream, (mask.reshape(-1), EMPTY), True),
                (rest, (EMPTY, mask.reshape(-1)), False),
            )
        ]
        one, two = (answer.reshape(-1, 3).astype(np.int64) for answer in answers)
        found, winner = (one + two) % 3 == 0, totals.index(min(totals))
        assert (found == (np.arange(3) == winner)).all()
        seen[winner].append(np.column_stack([g, one, two]))
    assert all(same(views) for views in seen.values()) is zero
    assert not same([seen[0][0], seen[1][0]])


def _counts_of_three() -> steps.Counts:
    """What the script that chooses among three candidates counts where."""
    kept: list[steps.Counts] = []
    original = Referee.zero

    def noted(self: Referee, bits: Any, tests: steps.Counts) -> Talk[Any]:
        kept.append(tests)
        return (yield from original(self, bits, tests))

    def script(side: Side) -> Talk[int]:
        totals = np.zeros((3, 1), dtype=np.uint32)
        return (yield from seeding._least(side, totals))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Referee, "zero", noted)
        converse(Terms(Field.of(1), 2, 3, 1000, 2), script)
    return kept[0]


def _repeated(tests: Any, count: int) -> Any:
    """The same counts for every combination of coins, each with three of its own."""
    return (tests[None] + 3 * np.arange(count, dtype=np.int32)[:, None]).astype(np.int32).reshape(-1)


@pytest.mark.parametrize("candidates", [9, 15])
def test_a_groups_winner_stands_at_any_place(candidates: int) -> None:
    """Inside a group the server sees where the count is zero: over all turns every place once, whoever wins."""
    contest = nearest.Contest(np.zeros(1, dtype=np.int32), np.arange(candidates, dtype=np.int32)[None])
    edges = contest.edges
    assert len(edges) > 2
    for g, (first, end) in enumerate(pairwise(edges)):
        for winner in range(first, end):
            turns = np.zeros((end - first, len(edges) - 1), dtype=np.uint8)
            turns[:, g] = range(end - first)
            places = [_counted(contest, turn[None], winner) for turn in turns]
            assert sorted(places) == list(range(first, end))


def _counted(contest: nearest.Contest, turns: Any, candidate: int) -> int:
    """The place of the test in which all comparisons of a candidate count."""
    table = np.empty((5, contest.duels()), dtype=np.int32)
    contest.list_duels(turns, 0, 0, table)
    _, one, two, up, down = table
    [place] = {*up[one == candidate].tolist(), *down[two == candidate].tolist()}
    return int(place)


# --- with the committee's real streams ------------------------------------------------------------------------------------


def messages_of(terms: Terms, script: Any, kind: Kind) -> Table:
    """What every member says of one kind, (members, bytes)."""
    said: dict[int, Any] = {}
    original = Comparer.say

    def say(self: Comparer, to: int, what: Kind, data: Any) -> None:
        if what is kind:
            said[self.place] = np.array(data, dtype=np.int64)
        original(self, to, what, data)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Comparer, "say", say)
        converse(terms, script)
    return np.stack([said[j] for j in range(terms.members)])


def even(values: Table, kinds: int, first: int = 0) -> bool:
    """Whether all kinds of values come equally often, within six deviations; keys are fixed, so luck plays no part."""
    counts = np.bincount(values, minlength=kinds + first)[first:]
    expected = len(values) / kinds
    return len(counts) == kinds and bool((abs(counts - expected) < 6 * np.sqrt(expected)).all())


@pytest.mark.parametrize("error", [-5, 0, 5])
def test_what_the_server_adds_up_is_a_coin(error: int) -> None:
    """The same comparison many times: in half of them a zero, at any place as often, and other entries uniform; so for
    every E. The committee's streams are the product's."""
    terms, count = Terms(Field.of(1), 100, 5, 1000, 2), 1 << 14
    places = terms.places(1)

    def script(side: Side) -> Talk[Any]:
        own = np.full((count, 1), 1000 if side.serves else 1000 + error, dtype=np.uint32)
        return (yield from side.compare([steps.digits_of(terms.field, own)]))

    both = messages_of(terms, script, Kind.TEST)
    total = untiled((both.sum(axis=0) % terms.small).astype(np.uint8), places)
    zeros = total == 0
    assert even(zeros.any(axis=1).astype(np.int64), 2)
    assert even(np.flatnonzero(zeros) % places, places)
    assert even(total[~zeros], terms.small - 1, 1)


@pytest.mark.parametrize("kind", [Kind.TEST, Kind.COUNTS, Kind.SELECTED])
@pytest.mark.parametrize("members", [2, 3])
def test_every_member_adds_a_zero_share(members: int, kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a member says differs from what it would say without, evenly over all values; the sum is the same."""
    terms, count = Terms(Field.of(1), 100, 5, 1000, members), 4000
    number = np.arange(count, dtype=np.int32)

    def script(side: Side) -> Talk[Any]:
        own = np.full((count, 1), 7, dtype=np.uint32)
        if kind is Kind.TEST:
            yield from side.compare([steps.digits_of(terms.field, own)])
        elif kind is Kind.COUNTS:
            yield from side.zero(np.zeros(count, np.uint8), steps.Counts(number, np.full_like(number, -1), count))
        else:
            yield from side.select(terms.field, np.zeros(count, dtype=np.uint8), own)

    with_zeros = messages_of(terms, script, kind)
    monkeypatch.setattr(Comparer, "_chain", lambda self, purpose: (None, None))
    without = messages_of(terms, script, kind)
    modulus = terms.small
    if kind is Kind.SELECTED:
        modulus = terms.field.modulus
        with_zeros, without = (
            np.stack([sides.unpack(terms.field, row.astype(np.uint8), count)[:, 0].astype(np.int64) for row in table])
            for table in (with_zeros, without)
        )
    assert ((with_zeros.sum(axis=0) - without.sum(axis=0)) % modulus == 0).all()
    for apart in (with_zeros - without) % modulus:
        assert even(apart * 16 // modulus if kind is Kind.SELECTED else apart, 16 if kind is Kind.SELECTED else modulus)


@pytest.mark.parametrize("members", [2, 3])
def test_dealt_residues_are_what_the_streams_leave(members: int) -> None:
    """The last member gets x less the streams of all others: any t shares are uniform as the streams are."""
    terms, count = Terms(Field.of(2), 100, 5, 1000, members), 50
    rho = residues(terms.field, range(1000, 1000 + count))
    shares = []
    dealt = Comparer._dealt

    def noted(self: Comparer, field: Field, wanted: int) -> Talk[Any]:
        found = yield from dealt(self, field, wanted)
        shares.append(found.astype(np.int64))
        return found

    def script(side: Side) -> Talk[Any]:
        return (yield from side.select(terms.field, np.ones(count, dtype=np.uint8), rho))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Comparer, "_dealt", noted)
        converse(terms, script)
    whole = steps.selection(terms.field, np.ones(count, dtype=np.uint8), rho).reshape(-1, 2)
    assert ((sum(shares) - whole) % terms.field.primes == 0).all()
    for share in shares:
        assert even(share[:, 0] * 8 // terms.field.primes[0], 8)


@pytest.mark.parametrize("members", [2, 3])
def test_all_members_together_have_the_servers_half(members: int) -> None:
    """What docs/privacy.md says of t+1 clients: their shares add up to [ρ_q ≥ θ], which is ρ, and they know Y."""
    terms, masks = Terms(Field.of(1), 100, 5, 1000, members), np.arange(0, 2000000, 50000, dtype=np.uint32)[:, None]
    width = terms.thresholds(1)
    streams = np.random.default_rng(1).integers(0, terms.small, (members - 1, width * len(masks))).astype(np.uint8)
    last = steps.deal_digits(terms, steps.digits_of(terms.field, masks), streams)
    found = untiled(((streams.sum(axis=0, dtype=np.int64) + last) % terms.small).astype(np.uint8), width)
    assert set(found.reshape(-1).tolist()) == {0, 1}
    assert len(np.unique(found, axis=0)) == len(masks), "every ρ has digits of its own"


@pytest.mark.parametrize("offset", [-7, 0, 7])
def test_a_server_that_deals_false_digits_asks_what_it_likes(offset: int) -> None:
    """The lying dealer that docs/sealed.md does not cover: it learns E < c for a c of its choice, and nobody notices."""
    errors = list(range(-10, 11))
    terms, number = Terms(Field.of(1), 100, 5, 1000, 2), np.arange(len(errors), dtype=np.int32)

    def script(side: Side) -> Talk[Any]:
        own = residues(terms.field, [1000 + (offset if side.serves else error) for error in errors])
        bits = yield from side.compare([steps.digits_of(terms.field, own)])
        return (yield from side.zero(bits, steps.Counts(number, np.full_like(number, -1), len(errors))))

    found = converse(terms, script)[0]
    assert (~found).tolist() == [error < offset for error in errors]


def test_turns_and_blurs_are_drawn() -> None:
    """A group's turn takes every value as often; ε fills its range."""
    member = Comparer(
        Terms(Field.of(1), 100, 5, 1000, 2), Line(b"C", 0), 1, 0, Purse(bytes(32), b"s"), Purse(b"1", b"s")
    )
    assert even(np.asarray(member.turns(4, 4000), dtype=np.int64), 4)
    blurs = np.array([member.blur(20) for _ in range(2000)])
    assert even(blurs >> 16, 16)


@pytest.mark.parametrize("members", [2, 3])
def test_fewer_than_all_shares_are_uniform(members: int) -> None:
    """Any t of t+1 shares of dealt bits and digits: the same distribution whatever was dealt."""
    small = 3
    terms = Terms(Field((3,)), 3, 2, 1, members, small=small)
    drawn = coins(*[range(small)] * (members - 1))
    streams = [drawn[:, j].astype(np.uint8) for j in range(members - 1)]
    for who in combinations(range(members), members - 1):
        views = []
        for bit in range(2):
            last = steps.deal_bits(small, np.full(len(drawn), bit, dtype=np.uint8), streams)
            views.append(np.column_stack([*streams, last])[:, who].astype(np.int64))
        assert same(views)
        views = []
        for mask in range(3):
            digits = steps.digits_of(terms.field, np.full((len(drawn), 1), mask, dtype=np.uint32))
            shares = np.stack([tiled(np.tile(stream, (3, 1))) for stream in streams])
            last = untiled(steps.deal_digits(terms, digits, shares), 3)[:, 0]  # the first threshold
            views.append(np.column_stack([*streams, last])[:, who].astype(np.int64))
        assert same(views)
