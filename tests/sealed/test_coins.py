"""What a member's machinery hands to the steps, whose arithmetic test_views.py enumerates (docs/sealed.md, Section 3)."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from secfc.coding.field import Field
from secfc.privacy.sealed import steps
from secfc.privacy.sealed.messages import Talk
from secfc.privacy.sealed.sides import Side
from secfc.privacy.sealed.terms import Terms
from tests.sealed.conversing import converse, residues

ROWS = 400
Given = dict[str, list[Any]]


def less(plus: npt.NDArray[np.uint8], minus: npt.NDArray[np.uint8], size: int) -> npt.NDArray[np.int64]:
    """One member's zero-share."""
    out = np.zeros(size, dtype=np.int64)
    out += plus.astype(np.int64) if len(plus) else 0
    out -= minus.astype(np.int64) if len(minus) else 0
    return out


def drawn(members: int, monkeypatch: pytest.MonkeyPatch) -> tuple[Terms, Given]:
    """The coins of all members in one comparison of many rows, and in counting its bits."""
    terms, found = Terms(Field.of(1), ROWS, 2, 1, members), defaultdict(list)
    answer_tests, answer_counts = steps.answer_tests, steps.answer_counts

    def tests(
        of: Terms, digits: Any, shares: Any, factors: Any, zero: Any, direction: Any, turn: Any, *rest: Any
    ) -> Any:
        found["factors"].append(factors.copy())
        found["zeros"].append(less(*zero, len(factors)))
        found["turns"].append(turn.copy())
        return answer_tests(of, digits, shares, factors, zero, direction, turn, *rest)

    def counts(small: int, shares: Any, blinds: Any, asked: Any, factors: Any, zero: Any, first: bool) -> Any:
        found["count factors"].append(factors.copy())
        found["count zeros"].append(less(*zero, len(factors)))
        return answer_counts(small, shares, blinds, asked, factors, zero, first)

    def script(side: Side) -> Talk[Any]:
        own = residues(terms.field, range(ROWS))
        bits = yield from side.compare([steps.digits_of(terms.field, own)])
        each = np.arange(ROWS, dtype=np.int32)
        return (yield from side.zero(bits, steps.Counts(each, np.full_like(each, -1), ROWS)))

    monkeypatch.setattr(steps, "answer_tests", tests)
    monkeypatch.setattr(steps, "answer_counts", counts)
    converse(terms, script)
    assert {key: len(values) for key, values in found.items()} == dict.fromkeys(found, members)
    return terms, found


@pytest.mark.parametrize("members", [2, 3, 5])
@pytest.mark.parametrize("what", ["zeros", "count zeros"])
def test_zero_shares_cancel_and_cover_every_message(members: int, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    terms, found = drawn(members, monkeypatch)
    shares = np.array(found[what]) % terms.small
    assert not (shares.sum(axis=0) % terms.small).any()
    for share in shares:
        assert len(np.unique(share)) > terms.small // 2, "a message without cover tells the server what a member knows"
    if members > 2:
        assert len(np.unique(shares, axis=0)) == members


@pytest.mark.parametrize("what", ["factors", "count factors"])
def test_no_factor_is_zero_and_all_members_use_the_same(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a factor of zero a comparison would be found equal, or a count zero, that is not."""
    terms, found = drawn(2, monkeypatch)
    one, two = found[what]
    assert (one == two).all()
    assert one.all()
    assert len(np.unique(one)) > terms.small // 2


def test_places_are_turned_by_any_number_and_by_all_members_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """The place of the zero tells the highest digit that differs, so the server must see it anywhere."""
    terms, found = drawn(3, monkeypatch)
    one, two, three = found["turns"]
    assert (one == two).all()
    assert (one == three).all()
    assert np.unique(one).tolist() == list(range(terms.places(1)))
