"""What the halves refuse, repeat and keep (docs/sealed.md, Section 7)."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import numpy as np
import pytest

from secfc.errors import InvalidInput, Malformed, OutOfTurn, Refused, WentBack
from secfc.privacy.sealed.messages import Kind, Message, Said
from secfc.privacy.sealed.questions import Inertia, Lloyd, Seed
from tests.sealed.committee import Committee, terms_for

ROWS = np.random.default_rng(4).integers(-40, 41, (24, 2))


def committee(members: int = 2) -> Committee:
    made = Committee(ROWS, terms_for(ROWS, 3, members))
    made.request = made.attempt = 1
    return made


def question(made: Committee) -> Lloyd:
    labels = np.arange(24, dtype=np.int32) % 3
    every = np.ones(3, dtype=bool)
    return Lloyd(labels, np.bincount(labels, minlength=3), (0, 1, 2), every, np.ones(24, dtype=bool))


def dealt(made: Committee, asked: Lloyd) -> tuple[Said, list[Said]]:
    """The first dealt message, and what the member it is for answers."""
    context = made.context(asked)
    referee, members = made.halves(asked, context)
    [out] = referee.feed(0, made.sums(asked, context))
    for half in members:
        half.begin()
    return out, members[out.to].take(out.message)


def altered(message: Message) -> Message:
    data = message.data.copy()
    data[0] = (int(data[0]) + 1) % 127
    return replace(message, data=data)


def test_other_data_under_one_name_are_refused() -> None:
    made = committee()
    asked = question(made)
    context = made.context(asked)
    referee, members = made.halves(asked, context)
    [out] = referee.feed(0, made.sums(asked, context))
    half = members[out.to]
    half.begin()
    answers = half.take(out.message)
    assert [answer.message.kind for answer in answers] == [Kind.TEST]
    assert half.take(out.message) == []  # said again: the link repeats bytes, the half does not
    with pytest.raises(Refused, match="deals other digits than before under one name"):
        half.take(altered(out.message))


def test_a_half_made_again_answers_the_same_and_refuses_other_data() -> None:
    made = committee()
    asked = question(made)
    out, before = dealt(made, asked)
    again, after = dealt(made, asked)
    assert (again.message.data == out.message.data).all()
    assert [(a.message.data == b.message.data).all() for a, b in zip(before, after, strict=True)] == [True]
    half = made.halves(asked, made.context(asked))[1][out.to]
    half.begin()
    with pytest.raises(Refused):
        half.take(altered(out.message))


def test_another_attempt_may_deal_other_data() -> None:
    made = committee()
    asked = question(made)
    out, before = dealt(made, asked)
    made.attempt += 1
    other, after = dealt(made, asked)
    assert (other.message.data != out.message.data).any()
    assert (after[0].message.data != before[0].message.data).any()


@pytest.mark.parametrize("change", ["short", "long", "large"])
def test_wrong_lengths_and_values_are_refused(change: str) -> None:
    made = committee()
    asked = question(made)
    context = made.context(asked)
    referee, members = made.halves(asked, context)
    [out] = referee.feed(0, made.sums(asked, context))
    data = out.message.data.copy()
    data = {"short": data[:-1], "long": np.append(data, data[:1]), "large": np.append(data[:-1], np.uint8(127))}[change]
    members[out.to].begin()
    with pytest.raises(Malformed, match="from the server"):
        members[out.to].take(replace(out.message, data=data))
    made = committee()
    referee, members = made.halves(asked, context)
    [out] = referee.feed(0, made.sums(asked, context))
    members[out.to].begin()
    [answer] = members[out.to].take(out.message)
    other = 1 - out.to
    test = next(said.message for said in members[other].begin() if said.message.kind is Kind.TEST)
    bad = replace(test, data=test.data[:-1] if change != "large" else test.data | np.uint8(127))
    referee.take(other, bad)
    with pytest.raises(Malformed, match=f"from member {other + 1}"):
        referee.take(out.to, answer.message)
    assert referee.take(other, test)  # what was refused is as if it had not come


def test_messages_out_of_turn() -> None:
    made = committee()
    asked = question(made)
    referee, members = made.halves(asked, made.context(asked))
    data = np.zeros(3, dtype=np.uint8)
    with pytest.raises(OutOfTurn, match="no message of kind digits"):
        referee.take(0, Message(Kind.DIGITS, 1, 0, 1, data))
    with pytest.raises(OutOfTurn, match="for chunk 9"):
        members[0].take(Message(Kind.BITS, 1, 9, 1, data))
    with pytest.raises(OutOfTurn, match="not a member"):
        referee.take(2, Message(Kind.TEST, 1, 0, 1, data))
    with pytest.raises(OutOfTurn, match="not been answered"):
        _ = referee.answer


def test_a_request_that_goes_back_is_refused() -> None:
    made = committee()
    made.request = 3
    made.halves(question(made), made.context(question(made)))
    made.request = 2
    with pytest.raises(WentBack, match="request 2 comes before request 3"):
        made.halves(question(made), made.context(question(made)))


def test_columns_that_nobody_uploaded() -> None:
    made = committee()
    asked = replace(question(made), columns=(0, 2))
    with pytest.raises(OutOfTurn, match=r"columns \[1\] were never uploaded"):
        made.halves(asked, made.context(asked))
    with pytest.raises(OutOfTurn, match="must be asked again in this epoch"):
        made.halves(Seed(1, (3,)), made.context(Seed(1, (3,))))[1][0].begin()


def test_a_committee_without_responder() -> None:
    made = committee()
    asked = question(made)
    with pytest.raises(OutOfTurn, match="nobody adds the pad"):
        made.halves(asked, replace(made.context(asked), responders=(0, 4, 5)))
    with pytest.raises(OutOfTurn, match="a committee of 2 is needed"):
        made.halves(asked, replace(made.context(asked), committee=(1, 2, 3)))


def test_sums_come_in_order() -> None:
    made = committee()
    asked = question(made)
    context = made.context(asked)
    referee, _ = made.halves(asked, context)
    sums = made.sums(asked, context)
    with pytest.raises(InvalidInput, match="rows from 0 on are due"):
        referee.feed(6, sums[6:])
    with pytest.raises(InvalidInput, match="residues each"):
        referee.feed(0, np.concatenate([sums, sums]))


def test_members_answer_before_any_upload_exists() -> None:
    """All but the chunk's last member send their test at once; nobody says more before the server has spoken."""
    made = committee(4)
    asked = question(made)
    _, members = made.halves(asked, made.context(asked))
    kinds = [[out.message.kind for out in half.begin()] for half in members]
    assert sorted(map(len, kinds)) == [0, 1, 1, 1] or sorted(map(len, kinds)) == [0, 2, 2, 2]
    assert all(said[0] is Kind.TEST for said in kinds if said)


def test_secrets_do_not_print() -> None:
    made = committee()
    asked = question(made)
    referee, members = made.halves(asked, made.context(asked))
    shown = repr([referee, members, members[0].kept, referee.kept, members[0].__dict__, referee.__dict__])
    for secret in (made.key, *made.seeds):
        assert repr(secret) not in shown
        assert secret.hex() not in shown


def test_an_inertia_takes_one_message() -> None:
    made = committee(3)
    labels = np.arange(24, dtype=np.int32) % 3
    asked = Inertia(labels, np.bincount(labels, minlength=3), (0, 1, 2))
    answer = made.ask(asked)
    assert answer is not None
    assert answer.inertia is not None
    assert [out.message.kind for _, out in made.record] == [Kind.VALUE]
    assert not deque(made.ledgers[0]._seen)
