"""Timing on a noisy machine: everything that is compared runs interleaved, and ratios are taken within a repetition.

A repetition runs every action once, in an order that rotates, so that a slow moment (another job, a clock that throttles)
hits all of them; what is reported is the median over repetitions of the seconds, and of the ratios.

That does not help if another job takes a core all the time: OpenMP, which scikit-learn uses, then waits for its slowed thread
at every barrier, an iteration takes ten to a hundred times as long, and everything else looks good beside it. So every
repetition notes how `quiet` the cores were (1: as many free cores as threads), only the quieter half counts, and `quiet` is
reported with the figures: do not believe ratios below some 0.8.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from statistics import median

from secfc.coding import parallel

Seconds = dict[str, float]
Action = Callable[[], Seconds]

_SETTLE = 0.02  # OpenMP and BLAS threads spin for a while after their last work; let them go to sleep
_LEAST = 0.03  # an action is repeated until it has run this long
_MOST_RUNS = 9
_PROBE = bytes(4 << 20)  # hashing it takes a few milliseconds, without the GIL


def clock(work: Callable[[], object]) -> float:
    """How long a call takes, in seconds."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def _settled(action: Action) -> Seconds:
    """One repetition of one action: a warm-up, then the median of at least three runs."""
    time.sleep(_SETTLE)
    action()
    runs: list[Seconds] = []
    begin = time.perf_counter()
    while len(runs) < 3 or (len(runs) < _MOST_RUNS and time.perf_counter() - begin < _LEAST):
        runs.append(action())
    return {name: median(run[name] for run in runs) for name in runs[0]}


def quietness() -> float:
    """How much of the threads' cores is free: the time of some work alone over its time on all threads at once."""
    alone = min(clock(_hash) for _ in range(3))
    together = clock(lambda: parallel.for_row_ranges(parallel.threads(), 1, lambda _first, _end: _hash()))
    return min(alone / together, 1.0)


def _hash() -> None:
    sha256(_PROBE)


def interleaved(actions: Mapping[str, Action], repetitions: int, tick: Callable[[str], None]) -> list[Seconds]:
    """The quieter half of all repetitions: the seconds of all actions together, and `quiet`; `tick` is told what runs."""
    names = list(actions)
    out = []
    for repetition in range(repetitions):
        turn = repetition % len(names)
        figures: Seconds = {"quiet": quietness()}
        for name in names[turn:] + names[:turn]:
            tick(f"{name} {repetition + 1}/{repetitions}")
            figures |= _settled(actions[name])
        figures["quiet"] = min(figures["quiet"], quietness())
        out.append(figures)
    return sorted(out, key=lambda figures: -figures["quiet"])[: -(-repetitions // 2)]


def typical(samples: Sequence[Seconds], name: str) -> float:
    """The median over repetitions."""
    return median(sample[name] for sample in samples)


def ratio(samples: Sequence[Seconds], above: str, below: str) -> float:
    """The median over repetitions of the quotient of two figures of the same repetition."""
    return median(sample[above] / sample[below] for sample in samples)
