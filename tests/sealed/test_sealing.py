"""What a sealed request may ask for, and how messages travel together (docs/sealed.md, Sections 4 and 6)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from secfc.coding.field import Field
from secfc.errors import Malformed
from secfc.privacy.sealed.halves import _Conversation
from secfc.privacy.sealed.messages import OF_MEMBERS, SERVER, Kind, Message, Said
from secfc.privacy.sealed.steps import Digits
from secfc.privacy.sealed.terms import Terms
from secfc.protocol.parcels import Whole
from secfc.protocol.rounds import sealing
from secfc.protocol.rounds.sealed_client import _Answering
from secfc.protocol.rounds.sealing import Detail

TERMS: Any = SimpleNamespace(clusters=4, draw_bits=40)
LABELS = np.full(20, -1, dtype=np.int32)
LABELS[[7, 3, 11, 5]] = range(4)  # seeds 7 and 3, candidates 11 and 5


def seed(number: int, *rows: int, points: tuple[int, ...] = (), finish: bool = False) -> dict[str, Any]:
    return {"seed": number, "rows": rows, "points": points, "finish": finish}


def questions(*asked: dict[str, Any], labels: Any = LABELS) -> list[Any]:
    return Detail(1, (0, 1), asked).questions(labels, (2, 3), TERMS, 2)


DUE = seed(2, 11, 5, points=(9, 1))


def test_seeds_are_asked_again_in_order_before_the_one_that_is_due() -> None:
    assert [one.number for one in questions(seed(0, 7), seed(1, 3), DUE)] == [0, 1, 2]
    assert len(questions(DUE)) == 1
    assert questions(seed(3, 5, finish=True))[0].finish


@pytest.mark.parametrize(
    "asked",
    [
        (seed(1, 3), seed(1, 3), DUE),  # one C, two states of D²
        (DUE, DUE),
        (seed(1, 3), seed(0, 7), DUE),
        (seed(0, 7), DUE),
        (seed(0, 7), seed(1, 3, points=(5,)), DUE),
        (seed(1, 3, finish=True), DUE),
        (seed(1, 3, 11, 5), DUE),
        (seed(-1, 5, points=(5,)),),
        (seed(2, 11, 5, points=(1, 2, 3)),),  # more points than candidates
        (seed(2, 11, 5, points=(1 << 40,)),),
        (seed(2, 11, 5, points=(-1,)),),
        (seed(2, 11, 5),),  # nothing drawn before the last seed
        (seed(2, 11, 5, finish=True),),  # labels of a seeding that is not over
        (seed(3, 5, points=(1,), finish=True),),
    ],
)
def test_seeds_that_no_honest_server_asks_for(asked: tuple[dict[str, Any], ...]) -> None:
    with pytest.raises(Malformed, match="asks something that cannot be"):
        questions(*asked)


@pytest.mark.parametrize(
    "asked",
    [
        {"seed": float("inf"), "rows": (7,), "points": (5,), "finish": False},
        {"seed": 0, "rows": (7,), "points": (float("inf"),), "finish": False},
        {"changed": [float("inf")], "doubted": [], "separate": False},
        {"changed": [10**30], "doubted": [], "separate": False},
        {"changed": [0], "doubted": [float("inf")], "separate": False},
    ],
)
def test_numbers_beyond_all_numbers_are_refused(asked: dict[str, Any]) -> None:
    terms = Terms(Field.of(4), 20, 4, 100, 2)
    with pytest.raises(Malformed, match="asks something that cannot be"):
        Detail.from_bytes(Detail(1, (0, 1), (asked,)).to_bytes()).questions(LABELS, (0,), terms, 2)


@pytest.mark.parametrize("where", ["epoch", "committee"])
def test_a_detail_with_numbers_beyond_all_numbers_is_refused(where: str) -> None:
    fields = {"epoch": b"1", "committee": b"0, 1"} | {where: b"1e999"}
    data = b'{"epoch": %b, "committee": [%b], "asked": [{}], "agreed": false}' % (fields["epoch"], fields["committee"])
    with pytest.raises(Malformed, match="does not say who compares what"):
        Detail.from_bytes(data)


def test_what_a_member_says_at_once_fits_what_the_server_takes() -> None:
    """While seeding, a member that is dealt nothing says the tests of all rows without waiting for anybody."""
    said = [Said(SERVER, Message(Kind.TEST, 1, 0, step, np.full(1 << 21, step, dtype=np.uint8))) for step in range(40)]
    member: Any = object.__new__(_Answering)
    member._place = 0
    found = []
    for parcel in member._messages(said):
        assert isinstance(parcel.body, Whole)
        assert parcel.body.total <= sealing.BUNDLE_BYTES + 16 * 40
        found += sealing.messages_of(parcel.name, bytearray(parcel.body.data), OF_MEMBERS)
    assert [(message.step, message.data[0], len(message.data)) for _, message in found] == [
        (step, step, 1 << 21) for step in range(40)
    ]
    assert member._messages([]) == []


def test_digits_and_mail_do_not_print() -> None:
    digits = Digits(np.full((1, 1), 4711, dtype=np.uint32), np.full(1, 1, dtype=np.uint8))
    mail = {(0, 1, 1, Kind.DIGITS): {SERVER: np.full(3, 113, dtype=np.uint8)}}
    talk: Any = None
    shown = repr([digits, _Conversation(talk, talk, mail=mail)])
    assert "4711" not in shown
    assert "113" not in shown
