"""Disasters by their seeds: everybody dies, freezes, loses links and disks, and in the end every client has Lloyd's labels.

A seed that fails is run again with `python -m tests.simulation --seed N`.
"""

from __future__ import annotations

import random
import secrets
import subprocess
import sys
import time
from collections import Counter

import pytest

from tests.simulation.__main__ import told
from tests.simulation.disasters import run
from tests.simulation.pool import outcomes
from tests.simulation.scene import random_scene

FIXED = range(10)  # a few of each kind; CI runs thousands, others every time
SEALED = range(2)
RANDOM = 2000
PROCESSES = 2


@pytest.mark.parametrize("first", FIXED[::5])
def test_known_disasters(first: int) -> None:
    for seed in FIXED[first : first + 5]:
        outcome = run(seed, sealed=False)
        assert not outcome.failure, f"seed {seed}\n{outcome.failure}"


def test_known_disasters_of_sealed_rounds() -> None:
    for seed in SEALED:
        outcome = run(seed, sealed=True)
        assert not outcome.failure, f"seed {seed}\n{outcome.failure}"


def test_random_scenes_are_of_all_kinds() -> None:
    """What CI's random seeds draw from."""
    scenes = [random_scene(random.Random(seed)).federation for seed in range(400)]
    kinds = Counter((scene.uploads, scene.job.membership, scene.job.seeding) for scene in scenes)
    assert len(kinds) == 3 * 2 * 3, "every kind with every membership and seeding"
    assert sum(scene.uploads == "sealed" for scene in scenes) >= 80
    assert any(scene.uploads == "sealed" and scene.job.k > 8 for scene in scenes), "groups of clusters"
    assert any(scene.liars for scene in scenes)
    prunes = Counter((scene.uploads, scene.job.membership, scene.job.seeding) for scene in scenes if scene.job.prune)
    assert len(prunes) == 2 * 2 * 3, "distances are left out in every kind that shows them"
    assert any(scene.job.prune and scene.liars for scene in scenes)
    assert any(scene.job.prune and len(scene.job.runs) > 1 for scene in scenes)
    assert {scene.job.centers for scene in scenes} == {"nobody", "clients", "server"}
    assert sum(len(scene.job.runs) > 1 for scene in scenes) >= 80, "several runs"
    split = [scene for scene in scenes if scene.holders]
    assert {scene.uploads for scene in split} == {"open", "masked", "sealed"}, "columns are split in every kind"
    assert {scene.relay for scene in split} == {"never", "fallback", "only"}
    assert any(len(scene.holders) > 2 for scene in split)
    assert any(len(scene.holders) == scene.n for scene in split), "also without helpers"
    assert min(Counter(scene.relay for scene in scenes).values()) >= 40, "direct, mixed and relayed"


def test_a_disaster_is_its_seed() -> None:
    """The same seed is the same run, to the last restart and the last microsecond."""
    assert run(7) == run(7)


@pytest.mark.slow
@pytest.mark.alone
def test_random_disasters(capsys: pytest.CaptureFixture[str]) -> None:
    """All kinds of rounds, a quarter of them sealed; all memberships and seedings. Other seeds in every run, and the
    log shows which, whether they fail or not."""
    first, began = secrets.randbelow(1 << 40), time.monotonic()
    with capsys.disabled():
        print(f"\nseeds {first} to {first + RANDOM - 1}", flush=True)
        failed = [outcome.seed for outcome in outcomes(range(first, first + RANDOM), PROCESSES) if told(outcome)]
        print(f"{RANDOM} disasters in {time.monotonic() - began:.0f} s", flush=True)
    assert not failed, f"seeds {failed}"


@pytest.mark.slow
def test_the_command_runs_on_several_processes() -> None:
    call = [sys.executable, "-m", "tests.simulation", "--seed", "1", "--seeds", "4", "--processes", "2"]
    done = subprocess.run(call, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "4 of 4 as they must be" in done.stdout
