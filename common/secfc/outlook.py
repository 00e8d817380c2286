"""How long rounds will still take, and a line of a terminal that says so."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence


def line_of(text: str, parts: Iterable[str], needed: str, width: int) -> str:
    """What matters most first, and no more than fits; `needed`, such as whom it waits for, is never left out."""
    for part in filter(None, parts):
        if len(text) + len(part) + 2 <= width or part is needed:
            text += f", {part}"
    return text


def rounds_left(moved: Sequence[int]) -> int | None:
    """A guess at how many more rounds it takes, if fewer rows move in each by the same factor as of late; None if that cannot
    be said. Lloyd often slows down at the end, so it is rather too few."""
    if len(moved) < 3 or not 0 < moved[-1] < moved[-3]:
        return None
    factor = (moved[-1] / moved[-3]) ** 0.5
    return 1 + round(math.log(moved[-1]) / -math.log(factor))
