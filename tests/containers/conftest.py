"""Fixtures of the container tests. They run with `make containers` (SECFC_CONTAINERS set), not with the other suites."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.containers import engine
from tests.containers.compose import Composer

collect_ignore_glob = [] if os.environ.get("SECFC_CONTAINERS") else ["test_*.py"]
ROOT = Path(__file__).parents[2]
IMAGE = f"secfc-test:{os.getpid()}"


@pytest.fixture(scope="session")
def base() -> Iterator[str]:
    """A running engine, and the name of the image to build on."""
    daemon = engine.start()
    try:
        yield engine.base()
    finally:
        if daemon is not None:
            engine.stop(daemon)


@pytest.fixture(scope="session")
def image(base: str) -> Iterator[str]:
    """The image, built as deploy/Dockerfile says."""
    arguments = ["--build-arg", f"BASE={base}", "-t", IMAGE, "-f", ROOT / "deploy" / "Dockerfile", ROOT]
    engine.run("docker", "build", *arguments, timeout=1800)
    yield IMAGE
    engine.run("docker", "image", "rm", IMAGE, check=False)


@pytest.fixture(scope="session")
def composers(base: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The versions of compose that there are."""
    found = {"v1": engine.compose_v1(), "v2": engine.compose_v2(tmp_path_factory.mktemp("compose"))}
    return {version: command for version, command in found.items() if command}


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """What a fresh clone would hold."""
    listed = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    folder = tmp_path / "clone"
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes((ROOT / name).read_bytes())
    return folder


@pytest.fixture
def composer(
    request: pytest.FixtureRequest, composers: dict[str, list[str]], clone: Path, base: str
) -> Iterator[Composer]:
    """Compose of the version asked for (parametrised), in a fresh clone; nothing of it is left afterwards."""
    version = getattr(request, "param", "v2" if "v2" in composers else "v1")
    if version not in composers:
        pytest.skip(f"no docker compose {version} here, and no Debian package of it can be had")
    made = Composer(composers[version], clone / "docker-compose.yml", base=base)
    try:
        yield made
    finally:
        made.remove()
