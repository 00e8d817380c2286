"""Many seeds on several processes. Not in `__main__`: a spawned process does not find there what it is to run."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from functools import partial

from tests.simulation.disasters import Outcome, run


def outcomes(seeds: range, processes: int, *, sealed: bool | None = None) -> Iterator[Outcome]:
    """As they come."""
    if processes == 1:
        yield from (run(seed, sealed=sealed) for seed in seeds)
        return
    with multiprocessing.get_context("spawn").Pool(processes, initializer=_one_thread) as pool:
        yield from pool.imap_unordered(partial(run, sealed=sealed), seeds, chunksize=8)


def _one_thread() -> None:
    """As many processes as cores compute already."""
    os.environ["SECFC_THREADS"] = "1"
