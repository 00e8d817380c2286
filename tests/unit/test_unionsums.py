"""A client's share of a sum goes on where a broken connection stopped it."""

from __future__ import annotations

import numpy as np
import pytest

from secfc.errors import JobFailed, Malformed
from secfc.privacy import identifiers
from secfc.protocol import transfer
from secfc.protocol.effects import Arrived
from secfc.protocol.parcels import Kind, Parcel, of_words
from secfc.protocol.server.unionsums import Shown, UnionSums
from secfc.protocol.transfer import GatheredWords
from tests.parties import make_federation, plan_of


def table() -> UnionSums:
    """The machine when the first table of IDs is due."""
    agreed = make_federation(3, membership="private")
    made = UnionSums(plan_of(agreed), bytes(32))
    made.complete(Shown(8, identifiers.none()))
    return made


def sink_of(made: UnionSums) -> GatheredWords:
    sink = made.sink(1)
    assert sink is not None
    return sink


def give(made: UnionSums, first: int, data: bytes, total: int) -> int:
    """Some words of client 1's share; returns how many are here then."""
    sink = sink_of(made)
    transfer.take(sink, Arrived("c1", Parcel(bytes(32), Kind.SUM, made.context), 8 * first, total, data))
    return sink.received // 8


def test_it_goes_on_from_where_it_stopped_and_repeats_without_effect() -> None:
    made = table()
    words = np.arange(len(sink_of(made).words), dtype=np.uint64) % 1000
    data, total = bytes(of_words(words).data), 8 * len(words)
    assert sink_of(made).received == 0
    assert give(made, 0, data[:40], total) == 5
    assert give(made, 0, data[:24], total) == 5  # late words of the broken stream
    assert give(made, 3, data[24:72], total) == 9  # only what is new of it counts
    assert 1 in made.missing()
    assert give(made, 9, data[72:], total) == len(words)
    np.testing.assert_array_equal(sink_of(made).words, words)
    assert 1 not in made.missing()
    assert give(made, 0, data, total) == len(words)
    assert made.take_work() is None, "others are missing"


def test_a_gap_is_refused_and_another_sum_has_another_name() -> None:
    made = table()
    total = 8 * len(sink_of(made).words)
    with pytest.raises(Malformed, match="from offset 0 are due, not from 32"):
        give(made, 4, bytes(8), total)
    assert sink_of(made).received == 0
    first = UnionSums(plan_of(make_federation(3, membership="private")), bytes(32))
    assert first.context != made.context


def test_too_few_rows_fail_the_job() -> None:
    made = UnionSums(plan_of(make_federation(3, membership="private")), bytes(32))
    with pytest.raises(JobFailed, match="2 rows in all cannot make k = 3 clusters"):
        made.complete(Shown(2, identifiers.none()))
