"""Tests that are known to fail now and then: what the marker `quarantined` asks for, and what it does.

    @pytest.mark.quarantined(reason="the port is taken on busy machines", since="2026-03-01")

Such a test runs, and may fail. tests/unit/test_quarantine.py holds the list of them: to put a test here is a change that
somebody reviews.
"""

from __future__ import annotations

from datetime import date

import pytest


def may_fail(marker: pytest.Mark) -> pytest.MarkDecorator:
    """What the marker stands for; UsageError unless it says why, and since when."""
    reason, since = marker.kwargs.get("reason"), marker.kwargs.get("since")
    if marker.args or set(marker.kwargs) != {"reason", "since"} or not reason:
        raise pytest.UsageError('quarantined takes reason="…" and since="YYYY-MM-DD", and nothing else')
    try:
        date.fromisoformat(since)
    except (TypeError, ValueError):
        raise pytest.UsageError(f"quarantined: since={since!r} is no date such as 2026-03-01") from None
    return pytest.mark.xfail(reason=f"quarantined since {since}: {reason}", strict=False)
