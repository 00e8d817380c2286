"""The one retry: what is tried again and when, what is given up, and what is told about links."""

from __future__ import annotations

import random

import pytest

from secfc.errors import Malformed, OutOfTurn, SecfcError, Unavailable, WrongSender
from secfc.net import exchange
from secfc.protocol import messages
from secfc.protocol.effects import Effects, Send
from secfc.protocol.outbox import AT_ONCE, BULK_AT_ONCE, FIRST_PAUSE, LONGEST_PAUSE, Outbox
from secfc.protocol.parcels import Kind, Parcel, Whole

DONE = Send("server", messages.Done())
DOWN = Unavailable("no route")


def parcel(to: str = "b", kind: Kind = Kind.CENTERS, name: bytes = b"", patient: bool = True) -> Send:
    return Send(to, Parcel(b"s" * 32, kind, name), Whole(b"12345678"), patient)


@pytest.fixture
def outbox() -> Outbox:
    return Outbox(random.Random(1))


def due(outbox: Outbox, now: float) -> list[Send]:
    out = Effects()
    outbox.ready(now, out)
    return out.send


def pause(outbox: Outbox, send: Send, error: SecfcError, now: float, progressed: bool = False) -> float:
    """How long it waits after a try that failed."""
    assert outbox.unsent(send, error, progressed, now) is None
    later = now
    while not due(outbox, later):
        later += 0.01
        assert later < now + 60.0, "it is never tried again"
    return later - now


def test_what_is_posted_is_handed_out_once_and_gone_when_taken(outbox: Outbox) -> None:
    outbox.post(DONE, 0.0)
    assert DONE in outbox
    assert (due(outbox, 0.0), due(outbox, 99.0)) == ([DONE], [])
    assert outbox.sent(DONE)
    assert DONE not in outbox
    assert not outbox.sent(DONE)


def test_what_is_posted_for_later_waits(outbox: Outbox) -> None:
    outbox.post(DONE, 5.0, after=2.0)
    assert (due(outbox, 6.9), due(outbox, 7.0)) == ([], [DONE])


def test_the_same_message_posted_again_replaces_the_first_unless_it_is_under_way(outbox: Outbox) -> None:
    first, second = Send("server", messages.Stopped("a")), Send("server", messages.Stopped("b"))
    outbox.post(first, 0.0)
    outbox.post(second, 0.0)
    assert due(outbox, 0.0) == [second]
    outbox.post(first, 1.0)
    assert due(outbox, 1.0) == []
    one, other = messages.Unreachable("b", "x"), messages.Unreachable("c", "x")
    outbox.post(Send("server", one), 1.0)
    outbox.post(Send("server", other), 1.0)
    assert [send.message for send in due(outbox, 1.0)] == [one, other], "about another client"


def test_pauses_double_up_to_a_limit_and_are_scattered(outbox: Outbox) -> None:
    outbox.post(DONE, 0.0)
    due(outbox, 0.0)
    wanted, now = FIRST_PAUSE, 0.0
    for _ in range(8):
        waited = pause(outbox, DONE, DOWN, now)
        assert 0.69 * wanted <= waited <= 1.31 * wanted + 0.01
        wanted, now = min(2 * wanted, LONGEST_PAUSE), now + waited


def test_a_link_that_carries_something_is_tried_again_soon(outbox: Outbox) -> None:
    send = parcel()
    outbox.post(send, 0.0)
    due(outbox, 0.0)
    for _ in range(6):
        pause(outbox, send, DOWN, 0.0)
    assert pause(outbox, send, DOWN, 0.0, progressed=True) <= 1.31 * FIRST_PAUSE + 0.01


def test_a_receiver_that_is_not_ready_is_asked_again_soon_for_ever(outbox: Outbox) -> None:
    send = parcel()
    outbox.post(send, 0.0)
    due(outbox, 0.0)
    for _ in range(50):
        assert pause(outbox, send, OutOfTurn("not yet"), 0.0) <= 1.31 * FIRST_PAUSE + 0.01


def test_who_is_not_patient_takes_too_early_for_final(outbox: Outbox) -> None:
    send, early = parcel(patient=False), OutOfTurn("not due")
    outbox.post(send, 0.0)
    due(outbox, 0.0)
    assert outbox.unsent(send, early, False, 0.0) is early
    assert send not in outbox


def test_a_refusal_is_final_for_a_message_and_tried_some_times_for_a_parcel(outbox: Outbox) -> None:
    wrong = Malformed("a gap")
    outbox.post(DONE, 0.0)
    due(outbox, 0.0)
    assert outbox.unsent(DONE, wrong, False, 0.0) is wrong
    send = parcel()
    outbox.post(send, 0.0)
    due(outbox, 0.0)
    for _ in range(5):
        pause(outbox, send, wrong, 0.0)
    assert outbox.unsent(send, wrong, False, 0.0) is wrong
    assert send not in outbox


def test_another_refusal_is_final_at_once(outbox: Outbox) -> None:
    send, wrong = parcel(), WrongSender("who are you")
    outbox.post(send, 0.0)
    due(outbox, 0.0)
    assert outbox.unsent(send, wrong, False, 0.0) is wrong
    assert due(outbox, 1e9) == []


def test_what_nobody_wants_is_given_up_even_under_way(outbox: Outbox) -> None:
    old, new = parcel(name=b"1"), parcel(name=b"2")
    for send in (old, new, DONE):
        outbox.post(send, 0.0)
    due(outbox, 0.0)
    outbox.cancel(lambda send: send == old)
    assert (old in outbox, new in outbox, DONE in outbox) == (False, True, True)
    assert outbox.unsent(old, DOWN, False, 0.0) is None
    assert not outbox.sent(old)
    assert due(outbox, 1e9) == []


def test_shares_take_turns_and_small_messages_do_not_wait_for_them(outbox: Outbox) -> None:
    bulk = [parcel(f"c{j}", Kind.SHARES) for j in range(5)]
    for send in (*bulk, DONE):
        outbox.post(send, 0.0)
    assert due(outbox, 0.0) == [*bulk[:BULK_AT_ONCE], DONE]
    assert due(outbox, 1.0) == []
    outbox.sent(bulk[0])
    assert due(outbox, 1.0) == [bulk[BULK_AT_ONCE]]
    outbox.unsent(bulk[1], DOWN, False, 1.0)
    assert due(outbox, 1.0) == [bulk[BULK_AT_ONCE + 1]], "one that waits leaves its turn to others"


def test_who_takes_no_shares_is_told_from_the_first_try_or_the_last_progress(outbox: Outbox) -> None:
    away, slow, _ = bulk = [parcel(f"c{j}", Kind.SHARES) for j in range(3)]
    for send in (*bulk, DONE):
        outbox.post(send, 0.0)
    due(outbox, 5.0)
    assert outbox.stuck(99.0) == [], "they are under way, or have not had their turn"
    for send, progressed in ((away, False), (slow, True), (DONE, False)):
        outbox.unsent(send, DOWN, progressed, 50.0)
    assert (outbox.stuck(5.0), outbox.stuck(6.0), outbox.stuck(51.0)) == ([], ["c0"], ["c0", "c1"])
    due(outbox, 60.0)
    outbox.sent(away)
    assert outbox.stuck(51.0) == []


def test_links_are_told_when_they_break_change_and_are_back(outbox: Outbox) -> None:
    send = parcel()
    outbox.post(send, 0.0)
    due(outbox, 0.0)
    pause(outbox, send, DOWN, 0.0)
    assert (outbox.links(), outbox.links()) == ({"b": "no route"}, {})
    pause(outbox, send, DOWN, 0.0)
    assert outbox.links() == {}, "the same reason is told once"
    pause(outbox, send, Unavailable("refused"), 0.0)
    assert outbox.links() == {"b": "refused"}
    outbox.sent(send)
    assert outbox.links() == {"b": ""}


def test_a_link_that_never_broke_is_not_told_of(outbox: Outbox) -> None:
    send = parcel()
    outbox.post(send, 0.0)
    due(outbox, 0.0)
    pause(outbox, send, OutOfTurn("not yet"), 0.0)
    outbox.sent(send)
    assert outbox.links() == {}


def test_an_upload_found_malformed_after_it_was_given_up_is_still_told(outbox: Outbox) -> None:
    """The server may ask others before its refusal is here; whoever computes wrongly has to know."""
    upload, wrong = parcel("server", Kind.UPLOAD, patient=False), Malformed("not below its prime")
    outbox.post(upload, 0.0)
    due(outbox, 0.0)
    outbox.cancel(lambda _: True)
    assert outbox.unsent(upload, DOWN, False, 1.0) is None
    assert outbox.unsent(upload, OutOfTurn("over"), False, 1.0) is None
    assert outbox.unsent(upload, wrong, False, 1.0) is wrong
    assert outbox.unsent(parcel(), wrong, False, 1.0) is None, "another client may have been right to refuse it"


def test_no_more_messages_are_under_way_to_one_receiver_than_it_serves(outbox: Outbox) -> None:
    """Many runs have much to say at once; what is one too many would only be asked to come later."""
    sends = [parcel(name=bytes([number])) for number in range(AT_ONCE + 3)]
    for send in sends:
        outbox.post(send, 0.0)
    outbox.post(parcel("c"), 0.0)
    assert due(outbox, 0.0) == [*sends[:AT_ONCE], parcel("c")]
    outbox.sent(sends[4])
    assert due(outbox, 0.0) == [sends[AT_ONCE]]
    assert AT_ONCE < exchange.AT_ONCE
