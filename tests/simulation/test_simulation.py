"""Disasters by their seeds: everybody dies, freezes, loses links and disks, and in the end every client has Lloyd's labels.

A seed that fails is run again with `python -m tests.simulation --seed N`.
"""

from __future__ import annotations

import secrets
import time

import pytest

from tests.simulation.__main__ import outcomes
from tests.simulation.disasters import run

FIXED = range(60)
SEALED = range(12)
RANDOM = 2000
PROCESSES = 2


@pytest.mark.parametrize("first", FIXED[::10])
def test_known_disasters(first: int) -> None:
    for seed in FIXED[first : first + 10]:
        outcome = run(seed)
        assert not outcome.failure, f"seed {seed}\n{outcome.failure}"


def test_known_disasters_of_sealed_rounds() -> None:
    for seed in SEALED:
        outcome = run(seed, sealed=True)
        assert not outcome.failure, f"seed {seed}\n{outcome.failure}"


def test_a_disaster_is_its_seed() -> None:
    """The same seed is the same run, to the last restart and the last microsecond."""
    assert run(7) == run(7)


@pytest.mark.slow
def test_random_disasters() -> None:
    first, began = secrets.randbelow(1 << 40), time.monotonic()
    print(f"seeds {first} to {first + RANDOM - 1}", flush=True)
    failed = [outcome for outcome in outcomes(range(first, first + RANDOM), PROCESSES) if outcome.failure]
    seconds = time.monotonic() - began
    print(f"{RANDOM / seconds:.1f} disasters per second")
    for outcome in failed:
        print(f"--- python -m tests.simulation --seed {outcome.seed}\n{outcome.failure}")
    assert not failed, f"seeds {[outcome.seed for outcome in failed]}"
