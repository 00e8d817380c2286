"""Which tests are quarantined, and what that takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.quarantine import may_fail

TESTS = Path(__file__).parents[1]
QUARANTINED: list[str] = []  # files, one entry per marker
OURSELVES = (Path(__file__), TESTS / "quarantine.py")


def test_these_are_quarantined_and_no_others() -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(TESTS.rglob("*.py")) if path not in OURSELVES}
    found = [
        str(path.relative_to(TESTS)) for path, text in texts.items() for _ in range(text.count("mark.quarantined"))
    ]
    assert found == QUARANTINED


def test_a_quarantined_test_may_fail() -> None:
    made = may_fail(pytest.mark.quarantined(reason="a race", since="2026-03-01").mark)
    assert (made.name, made.kwargs) == ("xfail", {"reason": "quarantined since 2026-03-01: a race", "strict": False})


@pytest.mark.parametrize(
    "words",
    [{}, {"reason": "a race"}, {"since": "2026-03-01"}, {"reason": "", "since": "2026-03-01"}]
    + [{"reason": "a race", "since": since} for since in ("lately", None)],
)
def test_quarantine_needs_a_reason_and_a_date(words: dict[str, str | None]) -> None:
    with pytest.raises(pytest.UsageError, match="quarantined"):
        may_fail(pytest.mark.quarantined(**words).mark)
