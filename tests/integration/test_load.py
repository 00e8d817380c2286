"""Many processes, many rounds, and two federations at once."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from secfc import local
from secfc.local import Local
from tests.integration import helpers

pytestmark = pytest.mark.slow
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
        for number in (100, 200, 300, 400, 480):
            helpers.until(lambda n=number: helpers.in_rounds(site, n), f"request {number}", 400)
            for name, found in samples.items():
                if site.processes[name].poll() is None:
                    found.append((number, *weight(site.processes[name].pid)))
        site.wait(400)
    helpers.check_labels(site, parts)
    assert len(site.result()["history"]) > 500
    for name, found in samples.items():
        assert len(found) >= 4, f"{name} ended too early to be watched: {found}"
        memory, files = np.array(found)[:, 1], np.array(found)[:, 2]
        assert memory[-1] - memory[0] < 8 << 20, f"{name} grows: {found}"
        assert files[-1] <= files[0] + 3, f"{name} keeps files open: {found}"
        print(name, [(n, f"{rss >> 20} MiB", fds) for n, rss, fds in found])  # noqa: T201


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
