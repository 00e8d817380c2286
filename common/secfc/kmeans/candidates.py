"""Greedy k-means++ in numbers: how many candidates a seed has, how many labels that takes, and what their draws are called.

It imports nothing heavy, since the job file needs it.
"""

from __future__ import annotations

from math import log
from numbers import Integral

from secfc.errors import InvalidInput

MOST_CANDIDATES = 64  # per seed: each is a column of distances, sent and, unless rounds are sealed, given away


def candidates_per_seed(clusters: int, start: str, wished: int | None = None) -> int:
    """As many as wished, or as scikit-learn draws, 2 + ⌊ln k⌋. Starts other than k-means++ have one, and
    nothing to wish for."""
    if wished is None:
        return 2 + int(log(clusters)) if start == "k-means++" else 1
    if start != "k-means++":
        raise InvalidInput(f"candidates is for seeding = 'k-means++' alone; leave it out with seeding = {start!r}")
    if isinstance(wished, bool) or not isinstance(wished, Integral) or not 1 <= wished <= MOST_CANDIDATES:
        raise InvalidInput(
            f"candidates must be a whole number from 1 (plain k-means++) to {MOST_CANDIDATES}, not {wished!r}"
        )
    return int(wished)


def slots(clusters: int, candidates: int) -> int:
    """How many labels an assignment may have: k, and while the last seed is chosen one for every further candidate."""
    return clusters - 1 + candidates if clusters > 1 else 1


def draw_labels(number: int, candidates: int) -> tuple[str, ...]:
    """What the coins of a seed's draws are called: "k-means++ c", or "k-means++ c q" with several candidates."""
    if candidates == 1:
        return (f"k-means++ {number}",)
    return tuple(f"k-means++ {number} {q}" for q in range(candidates))
