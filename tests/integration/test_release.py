"""What `make release` builds works in an empty environment, on every Python that is supported and is on this machine."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SUPPORTED = ("3.11", "3.12", "3.13")
SECONDS = 900


def run(*call: object, cwd: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    parts = [str(part) for part in call]
    done = subprocess.run(parts, cwd=cwd, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, f"{parts}: {done.stdout[-2000:]} {done.stderr[-2000:]}"
    return done.stdout


@cache
def interpreter(version: str) -> Path | None:
    """A Python of that version: the one on the path, or one that pyenv has."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = [shutil.which(f"python{version}"), *sorted(pyenv.glob(f"{version}.*/bin/python3"))]
    for one in (Path(path) for path in found if path is not None):
        asked = [str(one), "-c", "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"]
        if subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip() == version:
            return one
    return None


HERE = [version for version in SUPPORTED if interpreter(version) is not None]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Wheel and source distribution, built from what git tracks and what is new."""
    source, dist = tmp_path_factory.mktemp("source") / "secfc-kmeans", tmp_path_factory.mktemp("dist")
    leave = shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "out", "kernels-*.bin")
    shutil.copytree(ROOT, source, ignore=leave)
    shutil.copy(ROOT / ".env", source)
    run(sys.executable, "-m", "hatchling", "build", "-d", dist, cwd=source)
    return dist


@pytest.mark.slow
def test_this_python_is_among_those_that_are_tried() -> None:
    assert f"{sys.version_info.major}.{sys.version_info.minor}" in HERE


@pytest.mark.slow
@pytest.mark.parametrize("version", HERE)
def test_the_wheel_works_in_an_empty_environment(version: str, built: Path, tmp_path: Path) -> None:
    run(interpreter(version), "-m", "venv", tmp_path / "venv", cwd=tmp_path)
    tools = tmp_path / "venv" / "bin"
    lock = ROOT / "deploy" / "locks" / "image.txt"
    run(tools / "pip", "install", "-q", "--require-hashes", "--only-binary", ":all:", "-r", lock, cwd=tmp_path)
    run(tools / "pip", "install", "-q", "--no-deps", *built.glob("*.whl"), cwd=tmp_path)
    run(tools / "pip", "check", cwd=tmp_path)
    told = run(tools / "secfc", "demo", "--rows", 300, "--clients", 3, "--starts", 1, "--json", cwd=tmp_path)
    assert json.loads(told)["identical_to_central"] is True


@pytest.mark.slow
def test_the_source_distribution_has_what_a_clone_has(built: Path) -> None:
    with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {"README.md", "Makefile", "proto/secfc/v1/secfc.proto", "deploy/locks/image.txt", "examples/estimator.py"}
    assert wanted <= names
    assert not [name for name in names if re.search(r"\.(pem|key|bin)$", name)]
