"""`make faults`: the whole matrix, fault × moment, with real processes; writes the table of docs/reliability.md.

python -m tests.faults [--only WORD ...] [--moment MOMENT ...] [--at-once N] [--dry]

A part of the matrix replaces only its own cells in the table.
"""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from tests.faults import report
from tests.faults.cells import FAULTS, Fault
from tests.faults.matrix import WRONG, Cell, run
from tests.faults.scene import MOMENTS


def main() -> int:
    parser = argparse.ArgumentParser(prog="make faults", description="Run the fault matrix.")
    parser.add_argument("--only", nargs="*", default=[], help="faults whose name holds one of these words")
    parser.add_argument("--moment", nargs="*", default=[], choices=MOMENTS)
    parser.add_argument("--at-once", type=int, default=1, help="cells at the same time: quicker, but seconds mean less")
    parser.add_argument("--dry", action="store_true", help="leave docs/reliability.md as it is")
    asked = parser.parse_args()
    chosen = [f for f in FAULTS if not asked.only or any(word in f.name for word in asked.only)]
    places = [(fault, moment) for fault in chosen for moment in asked.moment or MOMENTS]
    started = time.monotonic()
    with ThreadPoolExecutor(asked.at_once) as pool:
        cells = list(pool.map(_tell, places))
    print(report.table(cells))
    print(f"{len(cells)} cells in {time.monotonic() - started:.0f} s")
    if not asked.dry:
        report.write(cells, add=bool(asked.only or asked.moment))
    return 1 if any(cell.ending == WRONG for cell in cells) else 0


def _tell(place: tuple[Fault, str]) -> Cell:
    cell = run(*place)
    print(f"{cell.fault}, {cell.moment}: {cell.ending}, {cell.seconds:.1f} s {cell.note}", flush=True)
    return cell


if __name__ == "__main__":
    sys.exit(main())
