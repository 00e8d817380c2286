"""Words that several texts share."""

from __future__ import annotations

from collections.abc import Sequence

_SHOWN = 5


def few(names: Sequence[str]) -> str:
    """The first five names, and how many more there are."""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
