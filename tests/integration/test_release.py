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

from secfc import __version__

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
    run(tools / "pip", "uninstall", "-q", "-y", "secfc-kmeans", cwd=tmp_path)
    run(tools / "pip", "install", "-q", "--require-hashes", "-r", ROOT / "deploy" / "locks" / "build.txt", cwd=tmp_path)
    run(tools / "pip", "install", "-q", "--no-deps", "--no-build-isolation", *built.glob("*.tar.gz"), cwd=tmp_path)
    assert run(tools / "secfc", "--version", cwd=tmp_path).split()[-1] == __version__


@pytest.mark.slow
def test_the_bill_of_materials_lists_what_the_image_has_with_hashes(tmp_path: Path) -> None:
    recipe = (ROOT / "Makefile").read_text(encoding="utf-8")
    [options] = re.findall(r"^\t\$\(BIN\)/cyclonedx-py (.+) -o dist/sbom.cdx.json$", recipe, re.MULTILINE)
    made = tmp_path / "sbom.cdx.json"
    run(Path(sys.executable).with_name("cyclonedx-py"), *options.split(), "-o", made, cwd=ROOT)
    found = json.loads(made.read_text(encoding="utf-8"))
    lock = (ROOT / "deploy" / "locks" / "image.txt").read_text(encoding="utf-8")
    assert found["bomFormat"] == "CycloneDX"
    assert found["metadata"]["component"]["name"] == "secfc-kmeans"
    assert {one["name"] for one in found["components"]} == set(re.findall(r"^([a-z0-9-]+)==", lock, re.MULTILINE))
    assert all(re.search(r"sha256|SHA-256", json.dumps(one)) for one in found["components"])


@pytest.mark.slow
def test_the_source_distribution_has_what_a_clone_has(built: Path) -> None:
    with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {"README.md", "Makefile", "proto/secfc/v1/secfc.proto", "deploy/locks/image.txt", "examples/estimator.py"}
    assert wanted <= names
    assert not [name for name in names if re.search(r"\.(pem|key|bin)$", name)]
