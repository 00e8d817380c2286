"""The IDs that all holders have come out of summed tables, and nothing else is told (`secfc.privacy.intersection`)."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secfc.errors import JobFailed, Malformed
from secfc.privacy import identifiers, intersection
from secfc.privacy.identifiers import Ids
from secfc.privacy.intersection import IdIntersection, Outside
from secfc.privacy.union import Peeled, Table, union_code
from secfc.protocol.server import records
from secfc.protocol.server.unionsums import Shown

SESSION = b"s" * 32
CODE = union_code(4, 1)


def sums(known: IdIntersection, parts: list[Ids]) -> Table:
    """The sum of all clients' tables, opened."""
    shape = known.shape
    held = [shape.sum() for _ in range(CODE.clients)]
    for owner, part in enumerate(parts):
        for j, words in enumerate(known.contribution(part, bytes([owner]) * 32).shares(range(CODE.clients))):
            held[j].add(owner, words)
    return shape.opened({j: one.words() for j, one in enumerate(held)})


def found(parts: list[Ids], holders: int, session: bytes = SESSION) -> tuple[IdIntersection, list[Outside], int]:
    """The protocol between honest parties; what the server alone knows, and how many tables it took."""
    known = IdIntersection(CODE, session, 100, sum(map(len, parts)), holders)
    outside: list[Outside] = []
    while not known.finished:
        peeled, more = intersection.peel(known.shape, sums(known, parts), holders, outside)
        outside.append(more)
        known.learn(peeled)
    return known, outside, known.round - 1


def names(ids: Ids) -> set[tuple[int, ...]]:
    return set(map(tuple, ids.tolist()))


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_the_common_ids_and_nothing_else(data: st.DataObject) -> None:
    everybody = identifiers.fresh(30, data.draw(st.binary(min_size=32, max_size=32)))
    holders = data.draw(st.integers(2, 4))
    held = [data.draw(st.sets(st.integers(0, 29), min_size=1)) for _ in range(holders)]
    parts = [everybody[sorted(own)] for own in held] + [identifiers.none()] * (CODE.clients - holders)
    known, outside, _ = found(parts, holders)
    assert names(known.ids) == names(everybody[sorted(set.intersection(*held))])
    counted = {name: c for one in outside for name, c in zip(map(tuple, one.ids.tolist()), one.copies, strict=True)}
    assert counted == {
        tuple(everybody[i].tolist()): c for i in range(30) if 0 < (c := sum(i in own for own in held)) < holders
    }
    for own, part in zip(held, parts, strict=False):
        slots = known.slots(part)
        assert (slots >= 0).sum() == len(known.ids) == known.brought(part)
        np.testing.assert_array_equal(known.ids[slots[slots >= 0]], part[slots >= 0])
        assert known.complete(part)
        assert len(own) == len(slots)


def test_ids_that_share_all_their_cells_come_out_of_a_further_table() -> None:
    """The clients do not know which IDs outside were found, so they write them again, and the server takes them out."""
    everybody = identifiers.fresh(20, b"i" * 32)
    parts = [everybody[:15], everybody[5:], identifiers.none(), identifiers.none()]
    for seed in itertools.count():
        known, outside, tables = found(parts, 2, seed.to_bytes(32, "big"))
        assert names(known.ids) == names(everybody[5:15])
        assert sum(len(one.ids) for one in outside) == 10
        if tables > 1 and len(outside[0].ids):
            break


def test_a_dishonest_sum_ends_the_job() -> None:
    """More copies than there are holders: somebody has written an ID twice."""
    everybody = identifiers.fresh(5, b"i" * 32)
    known = IdIntersection(CODE, SESSION, 100, 16, 2)
    table = sums(known, [everybody, everybody, everybody, everybody[:1]])
    with pytest.raises(JobFailed, match="do not add up"):
        intersection.peel(known.shape, table, 2, [])


def test_what_no_honest_server_tells() -> None:
    ids = identifiers.fresh(4, b"i" * 32)
    with pytest.raises(Malformed, match="more than those that were left"):
        IdIntersection(CODE, SESSION, 100, 7, 2).learn(Peeled(ids, 0))
    with pytest.raises(Malformed, match="an ID twice"):
        IdIntersection(CODE, SESSION, 100, 9, 2).learn(Peeled(ids[[0, 0]], 0))
    with pytest.raises(JobFailed, match="more than max_rows = 3 each"):
        IdIntersection(CODE, SESSION, 3, 7, 2)
    with pytest.raises(JobFailed, match="no holder brings a row"):
        IdIntersection(CODE, SESSION, 3, 0, 2)


def test_a_missing_common_id_is_noticed_by_who_lacks_it() -> None:
    ids = identifiers.fresh(4, b"i" * 32)
    known = IdIntersection(CODE, SESSION, 100, 8, 2)
    known.learn(Peeled(ids[:3], 0))
    assert known.complete(ids)
    assert known.complete(ids[:3])
    assert not known.complete(ids[1:])
    assert (known.brought(ids[1:]), known.total) == (2, 6)


def test_the_journal_keeps_what_is_outside() -> None:
    ids = identifiers.fresh(5, b"i" * 32)
    for inside in (0, 2, 5):
        copies = np.arange(5 - inside)
        shown = records.shown_from(records.shown_to(Shown(7, ids[:inside], Outside(ids[inside:], copies))))
        assert shown.left == 7
        np.testing.assert_array_equal(shown.ids, ids[:inside])
        np.testing.assert_array_equal(shown.outside.ids, ids[inside:])
        np.testing.assert_array_equal(shown.outside.copies, copies)
