"""Many processes, many rounds, and two federations at once."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from secfc import local
from secfc.local import Local
from tests.integration import helpers

pytestmark = [pytest.mark.slow, pytest.mark.alone]
QUIET = {"SECFC_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


def weight(pid: int) -> tuple[int, int]:
    """Bytes of memory (pages that several processes share count in parts) and open files of a process."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    kilobytes = next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return kilobytes << 10, len(list(Path(f"/proc/{pid}/fd").iterdir()))


def test_fifty_clients_on_one_machine(tmp_path: Path) -> None:
    """Start-up is what takes long here: fifty interpreters on few cores, and 2450 deliveries with a connection each."""
    sizes = [4] * 49 + [0]
    parts = helpers.split(helpers.mixture(sum(sizes), 4, 3), sizes)
    made = helpers.describe(parts, 3, privacy=3, dropouts=2, precision=8, max_rounds=5)
    options = ("--join-timeout", "900")
    site = helpers.prepared(tmp_path, parts, made, environment=QUIET, server_options=options)
    heaviest = 0

    def look() -> None:
        nonlocal heaviest
        pids = [process.pid for process in site.processes.values() if process.poll() is None]
        heaviest = max(heaviest, sum(_memory(pid) for pid in pids))
        time.sleep(0.5)

    with local.running(site):
        site.wait(900, look)
    helpers.check_labels(site, parts)
    assert len(site.result()["labels_written"]) == 50
    assert heaviest < 50 * (250 << 20), f"{heaviest >> 20} MiB in all"
    print(f"50 clients: {heaviest >> 20} MiB in all, {site.result()['seconds']}")  # noqa: T201


def _memory(pid: int) -> int:
    try:
        return weight(pid)[0]
    except (OSError, StopIteration):  # it has just ended
        return 0


def test_five_hundred_requests_leave_memory_and_files_flat(tmp_path: Path) -> None:
    """k = 500: seeding alone asks 500 times. After the first hundred, nothing may grow by more than noise."""
    k = 500
    parts = helpers.split(helpers.mixture(1200, 2, 40, seed=2), [400, 400, 400])
    made = helpers.describe(parts, k, precision=6, max_rounds=20)
    site = helpers.prepared(tmp_path, parts, made, environment=QUIET)
    samples: dict[str, list[tuple[int, int, int]]] = {name: [] for name in ("server", *made.roster)}
    with local.running(site):
        helpers.until(lambda: helpers.in_rounds(site, 100), "request 100", 400)

        def look() -> None:
            number = max(int(e["event"].split()[1]) for e in site.events("server") if e["event"].startswith("round "))
            for name, found in samples.items():
                with suppress(OSError, StopIteration):  # it has just ended
                    found.append((number, *weight(site.processes[name].pid)))
            time.sleep(0.3)

        site.wait(400, look)
    helpers.check_labels(site, parts)
    assert len(site.result()["history"]) > 500
    for name, found in samples.items():
        seeding = [sample for sample in found if sample[0] < 480]  # what comes then needs all columns at once
        assert seeding[-1][0] - seeding[0][0] >= 200, f"{name} was not watched for long: {seeding}"
        memory, files = np.array(seeding)[:, 1], np.array(seeding)[:, 2]
        assert np.median(memory[-3:]) - np.median(memory[:3]) < 16 << 20, f"{name} grows: {seeding}"
        assert np.median(files[-3:]) <= np.median(files[:3]) + 3, f"{name} keeps files open: {seeding}"
        shown = [(number, f"{rss >> 20} MiB", fds) for number, rss, fds in (seeding[0], seeding[-1])]
        print(name, shown)  # noqa: T201


def test_two_federations_side_by_side(tmp_path: Path) -> None:
    """Their names, clients and machine are the same; kits, sessions and results are not mixed up."""
    sites: list[tuple[Local, helpers.Parts]] = []
    for number in range(2):
        parts = helpers.split(helpers.mixture(300, 3, 4, seed=number), [100, 150, 50])
        made = helpers.describe(parts, 4, precision=8)
        sites.append((helpers.prepared(tmp_path / str(number), parts, made, environment=QUIET), parts))
    with local.running(sites[0][0]), local.running(sites[1][0]):
        for site, _ in sites:
            site.wait(240)
    for site, parts in sites:
        helpers.check_labels(site, parts)
    first, second = (site.result() for site, _ in sites)
    assert first["federation"] == second["federation"]
    assert first["federation_digest"] != second["federation_digest"]
    assert first["inertia"] != second["inertia"]
