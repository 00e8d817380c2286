"""A client's share of a sum goes on where a broken connection stopped it."""

from __future__ import annotations

import numpy as np
import pytest

from secfc import events
from secfc.errors import Malformed, OutOfTurn
from secfc_server.alignment import Alignment, Result
from tests.protocol.joined import make_federation, plan_of

WORDS = np.array([7], dtype=np.uint64)


def table() -> tuple[Alignment, int]:
    """An alignment whose first table of IDs is due, and how many words a share of it has."""
    agreed = make_federation(3, membership="private")
    made = Alignment(plan_of(agreed), bytes(32))
    made.complete(Result(8, np.empty((0, 2), dtype=np.uint64)))
    return made, made._contributions._layout.words


def test_it_goes_on_from_where_it_stopped_and_repeats_without_effect() -> None:
    made, total = table()
    words = np.arange(total, dtype=np.uint64) % 1000
    assert made.contributed(1, made.context) == 0
    assert made.contribute(1, made.context, events.Chunk(0, total, words[:5])) == 5
    assert made.contributed(1, made.context) == 5
    assert made.contribute(1, made.context, events.Chunk(0, total, words[:3])) == 5  # late words of the broken stream
    assert made.contribute(1, made.context, events.Chunk(3, total, words[3:9])) == 9  # only what is new of it counts
    assert made.contribute(1, made.context, events.Chunk(9, total, words[9:])) == total
    np.testing.assert_array_equal(made._contributions._incoming[1].words, words)
    assert 1 not in made.missing()
    assert made.contribute(1, made.context, events.Chunk(0, total, words)) == total


def test_a_gap_and_another_sum_are_refused() -> None:
    made, total = table()
    with pytest.raises(Malformed, match="from offset 0 are due, not from 4"):
        made.contribute(1, made.context, events.Chunk(4, total, WORDS))
    with pytest.raises(OutOfTurn, match="not due"):
        made.contributed(1, bytes(32))
    assert made.contributed(1, made.context) == 0
