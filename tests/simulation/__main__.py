"""`python -m tests.simulation --seed N`, or `--seeds 1000` from a random or given first one: disasters, one per seed."""

from __future__ import annotations

import argparse
import secrets
import sys
import time

from tests.simulation.disasters import Outcome
from tests.simulation.pool import outcomes


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, default=None, help="the first seed; default: a random one")
    parser.add_argument("--seeds", type=int, default=1, help="how many, one after the other")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument(
        "--sealed", action=argparse.BooleanOptionalAction, help="only, or no, sealed rounds; default: a quarter of them"
    )
    given = parser.parse_args(arguments)
    first = secrets.randbelow(1 << 40) if given.seed is None else given.seed
    seeds = range(first, first + given.seeds)
    began = time.monotonic()
    print(f"seeds {first} to {seeds[-1]}", flush=True)
    failed = sum(told(outcome, given.sealed) for outcome in outcomes(seeds, given.processes, sealed=given.sealed))
    seconds = time.monotonic() - began
    print(f"{len(seeds) - failed} of {len(seeds)} as they must be, in {seconds:.0f} s")
    return 1 if failed else 0


def told(outcome: Outcome, sealed: bool | None = None) -> bool:
    """Whether a run failed, which is then told at length."""
    if outcome.failure:
        option = {None: "", True: " --sealed", False: " --no-sealed"}[sealed]
        print(f"--- seed {outcome.seed}: run it again with: python -m tests.simulation --seed {outcome.seed}{option}")
        print(outcome.failure, flush=True)
    return bool(outcome.failure)


if __name__ == "__main__":
    sys.exit(main())
