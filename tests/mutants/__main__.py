"""`make mutants`: break security-critical lines one by one, in copies of the tree, and see that the named tests notice.

Fails if a test passes on a sabotaged tree, if a test fails on the sound one, or if the text to replace is not found exactly
once. Arguments: parts of names of the sabotages to try (default: all).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.mutants.sabotages import SABOTAGES, Sabotage

ROOT = Path(__file__).parents[2]
FOLDERS = ("common", "secfc_client", "secfc_server", "experiments", "tests")
WORKERS = 2
SECONDS = 300.0  # for the tests of one sabotage
_FAILED = 1  # pytest's exit code if tests ran and some failed; any other but 0 means that they did not run


def copy_tree(into: Path) -> Path:
    """What the tests need, with compiled kernels, as modules that come before the installed ones."""
    for name in FOLDERS:
        shutil.copytree(ROOT / name, into / name)
    shutil.copy2(ROOT / "pyproject.toml", into)
    return into


def run_tests(tree: Path, tests: Sequence[str]) -> tuple[int, str]:
    """pytest's exit code and output in a copy."""
    environment = os.environ | {"PYTHONPATH": f"{tree / 'common'}{os.pathsep}{tree}", "PYTHONDONTWRITEBYTECODE": "1"}
    call = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    try:
        done = subprocess.run(
            call, cwd=tree, env=environment, capture_output=True, text=True, check=False, timeout=SECONDS
        )
    except subprocess.TimeoutExpired:
        return -1, f"not done after {SECONDS:.0f} s"
    return done.returncode, done.stdout + done.stderr


def imported_from(tree: Path) -> bool:
    """Whether tests in the copy would run the copy's code."""
    code = (
        "import secfc, secfc_client, secfc_server; print(secfc.__file__, secfc_client.__file__, secfc_server.__file__)"
    )
    environment = os.environ | {"PYTHONPATH": f"{tree / 'common'}{os.pathsep}{tree}"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tree, env=environment, capture_output=True, text=True, check=True
    )
    return all(Path(name).is_relative_to(tree) for name in done.stdout.split())


def attempt(tree: Path, sabotage: Sabotage) -> str:
    """Sabotage the copy, run the tests, undo it. Empty if every one of the tests notices; otherwise what is wrong."""
    path = tree / sabotage.file
    sound = path.read_text(encoding="utf-8") if path.exists() else ""
    if (count := sound.count(sabotage.text)) != 1:
        return f"the text to replace stands {count} times in {sabotage.file}, not once; bring the sabotage up to date"
    path.write_text(sound.replace(sabotage.text, sabotage.instead), encoding="utf-8")
    try:
        for test in sabotage.tests:
            code, said = run_tests(tree, [test])
            if code == 0:
                return f"SURVIVES: {test} passes"
            if code != _FAILED:
                return f"{test} could not be run: {said.strip()[-400:]}"
    finally:
        path.write_text(sound, encoding="utf-8")
    return ""


def main(wanted: Sequence[str]) -> int:
    chosen = [one for one in SABOTAGES if not wanted or any(part in one.name for part in wanted)]
    if not chosen:
        print(f"no sabotage is called that; there are: {', '.join(one.name for one in SABOTAGES)}")
        return 2
    faults: list[str] = []
    with tempfile.TemporaryDirectory(prefix="secfc-mutants-") as folder:
        trees = [copy_tree(Path(folder) / str(number)) for number in range(WORKERS)]
        if not all(map(imported_from, trees)):
            print("the copies are not what would be imported; run this from a development environment (make setup)")
            return 2
        every = sorted({test for one in chosen for test in one.tests})
        code, said = run_tests(trees[0], every)
        if code:
            print(f"the tests do not pass on the sound tree:\n{said}")
            return 2
        free, local = list(trees), threading.local()

        def claim() -> None:
            local.tree = free.pop()

        def judge(one: Sabotage) -> None:
            begun = time.monotonic()
            fault = attempt(local.tree, one)
            print(f"{time.monotonic() - begun:5.1f} s  {fault or 'caught'}: {one.name}", flush=True)
            if fault:
                faults.append(one.name)

        with ThreadPoolExecutor(WORKERS, initializer=claim) as pool:
            list(pool.map(judge, chosen))
    print(f"{len(chosen) - len(faults)} of {len(chosen)} sabotages are caught")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
