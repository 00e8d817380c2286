"""The server's part of the relay: bounded, fair, and only between clients of the roster."""

from __future__ import annotations

import pytest

from secfc.errors import Malformed, OutOfTurn
from secfc.protocol.server.relay import PAIR_BYTES, Line, Switchboard

ROSTER = ("a", "b", "c", "d")


@pytest.fixture
def board() -> Switchboard[str]:
    return Switchboard(ROSTER)


def drained(line: Line[str]) -> list[str]:
    return list(iter(line.next, None))


def test_what_waits_from_one_client_to_another_is_bounded_and_nobody_else_is_held_up(board: Switchboard[str]) -> None:
    a, b, c = (board.connect(name) for name in "abc")
    posted = 0
    while board.post(a, "b", "large", 1 << 20) is not None:
        posted += 1 << 20
    assert posted == PAIR_BYTES
    assert board.post(a, "c", "to another", 100) is c
    assert board.post(c, "b", "of another", 100) is b
    assert b.next() == "large"
    assert board.post(a, "b", "again room", 1 << 20) is b


def test_senders_take_turns(board: Switchboard[str]) -> None:
    a, b, c, d = (board.connect(name) for name in ROSTER)
    for sender, texts in ((a, ("a1", "a2", "a3")), (c, ("c1",)), (d, ("d1", "d2"))):
        for text in texts:
            board.post(sender, "b", text, 10)
    assert drained(b) == ["a1", "c1", "d1", "a2", "d2", "a3"]


def test_one_sender_s_order_is_kept(board: Switchboard[str]) -> None:
    a, b = board.connect("a"), board.connect("b")
    for number in range(9):
        board.post(a, "b", str(number), 1)
    assert drained(b) == list("012345678")


def test_who_writes_to_a_client_that_is_away_hears_so_and_nothing_waits(board: Switchboard[str]) -> None:
    a = board.connect("a")
    assert board.post(a, "b", "lost", 10) is a
    assert list(a.away) == ["b"]
    assert drained(board.connect("b")) == []


def test_who_goes_is_told_to_the_others_and_what_waited_is_dropped(board: Switchboard[str]) -> None:
    a, b, c = (board.connect(name) for name in "abc")
    board.post(a, "b", "waits", 10)
    assert board.disconnect(b) == [a, c]
    assert list(a.away) == list(c.away) == ["b"]
    assert drained(board.connect("b")) == []


def test_a_newer_connection_takes_over(board: Switchboard[str]) -> None:
    old, b = board.connect("a"), board.connect("b")
    new = board.connect("a")
    assert (board.connected(old), board.connected(new)) == (False, True)
    with pytest.raises(OutOfTurn, match="newer connection"):
        board.post(old, "b", "late", 10)
    assert board.disconnect(old) == []
    assert list(b.away) == ["a"]


@pytest.mark.parametrize("to", ["a", "server", "e", ""])
def test_envelopes_are_for_other_clients_only(board: Switchboard[str], to: str) -> None:
    with pytest.raises(Malformed, match="another client"):
        board.post(board.connect("a"), to, "x", 1)


def test_strangers_are_not_connected(board: Switchboard[str]) -> None:
    with pytest.raises(Malformed, match="clients of the roster"):
        board.connect("server")
