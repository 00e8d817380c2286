"""One cell of the matrix: bring a job to a moment, let the fault happen, fix it, and see how the job ends."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from secfc.errors import SecfcError
from tests.faults.cells import Fault, NotRun
from tests.faults.scene import CELL_SECONDS, PortTaken, Scene
from tests.integration import helpers, test_centers, test_membership

SAME, ERROR, NOT_RUN, NO_SENSE, WRONG = "same", "error, then same", "not run", "–", "WRONG"


@dataclass(frozen=True)
class Cell:
    """How it ended; `note` is the error's line, the reason why it was not run, or what went wrong."""

    fault: str
    moment: str
    ending: str
    seconds: float = 0.0
    note: str = ""


def run(fault: Fault, moment: str) -> Cell:
    """Every way to end is a cell; nothing is raised."""
    if moment in fault.never:
        return Cell(fault.name, moment, NO_SENSE, note=fault.never[moment])
    try:
        for _ in range(3):
            folder = tempfile.TemporaryDirectory(prefix="secfc-faults-")
            with contextlib.suppress(PortTaken), folder as name, ExitStack() as stack:
                return _run(fault, moment, Path(name) / "job", stack)
        return Cell(fault.name, moment, WRONG, note="found no free ports")
    except NotRun as why:
        return Cell(fault.name, moment, NOT_RUN, note=str(why))
    except (AssertionError, SecfcError, OSError, ValueError, KeyError, subprocess.TimeoutExpired) as error:
        return Cell(fault.name, moment, WRONG, note=" ".join(f"{type(error).__name__}: {error}".split())[:600])


def _run(fault: Fault, moment: str, folder: Path, stack: ExitStack) -> Cell:
    scene = Scene(folder, moment, stack, fault.sizes, **fault.settings)
    if fault.before is not None:
        fault.before(scene, stack)
    started = time.monotonic()
    scene.reach()
    fix = fault.apply(scene)
    scene.leave()
    if fix is not None:
        fix()
    finish(scene, started + CELL_SECONDS)
    seconds = time.monotonic() - started
    check(scene)
    named = scene.site.result().get("liars", [])
    assert list(named) == scene.liars, f"named as liars: {named}"
    return Cell(fault.name, moment, ERROR if scene.errors else SAME, seconds, "; ".join(scene.errors))


def check(scene: Scene) -> None:
    """Labels are those of central Lloyd, and centres, where they are opened, the exact means."""
    if scene.site.federation.job.membership == "private":
        test_membership.check(scene.site, scene.parts)
    else:
        helpers.check_labels(scene.site, scene.parts)
    if scene.site.federation.job.centers == "clients":
        expected = test_centers.means(scene.site, scene.parts)
        for name in scene.site.federation.roster:
            assert test_centers.opened(scene.site, name) == expected, f"{name} has other centres"


def finish(scene: Scene, deadline: float) -> None:
    """Until all have ended well. Whoever ends in an error is started again, with the same command; twice at most."""
    again: Counter[str] = Counter()
    while True:
        codes = {name: process.poll() for name, process in scene.site.processes.items()}
        for name in [name for name, code in codes.items() if code not in (None, 0)]:
            words = scene.site.last_words(name)
            assert words.startswith(("error: ", "stopped; ")), (
                f"{name} ended with {codes[name]} without a word: {words}"
            )
            scene.errors.append(f"{name}: {words}")
            again[name] += 1
            assert again[name] <= 2, f"{name} keeps on failing: {words}"
            scene.site.start(name)
        if all(code == 0 for code in codes.values()):
            return
        running = [name for name, code in codes.items() if code is None]
        assert time.monotonic() < deadline, f"hangs: {', '.join(running)} still run after {CELL_SECONDS:.0f} s"
        time.sleep(0.05)
