"""What is installed under which name: "secfc" on PyPI is a stranger's package, and a folder "secfc" is not ours either."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from secfc import __version__

ROOT = Path(__file__).parents[2]
PLACES = ("common", "secfc_client", "secfc_server", "experiments", "deploy", "docs", "tests", "proto", ".ci")
TEXTS = (
    ".py",
    ".md",
    ".toml",
    ".yml",
    ".yaml",
    ".service",
    ".proto",
    ".example",
    "Dockerfile",
    "Makefile",
    "run",
    ".env",
)
# An option, a quote or an index may stand between; a path (./secfc, /path/to/secfc) is no name on PyPI.
STRANGER = re.compile(r"pip3?\b[^\n|;&]*\binstall\b[^\n|;&#]*(?<![\w./-])secfc(?![\w./-])|[\"']secfc\[")


def texts() -> list[Path]:
    inside = [path for place in PLACES for path in (ROOT / place).rglob("*")]
    found = [path for path in [*ROOT.iterdir(), *inside] if path.is_file() and path.name.endswith(TEXTS)]
    return [path for path in found if path != Path(__file__) and "__pycache__" not in path.parts]


def test_nothing_says_to_install_the_strangers_package() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in texts()
        for match in STRANGER.finditer(path.read_text(encoding="utf-8"))
    ]
    assert found == []
    assert {"README.md", "pyproject.toml", "Dockerfile", "Makefile", "estimator.py"} <= {path.name for path in texts()}


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("pip install 'secfc[sklearn]'", True),
        ("pip install -U secfc", True),
        ("/opt/secfc/bin/pip install --upgrade secfc==0.2", True),
        ('dev = ["secfc[experiments]"]', True),
        ("pip install 'secfc-kmeans[sklearn]'", False),
        ("pip install '.[sklearn]'", False),
        ("/opt/secfc/bin/pip install /path/to/secfc-kmeans", False),
        ("pip --python /opt/secfc/bin/python install --no-deps .", False),
    ],
)
def test_the_search_finds_what_it_should(text: str, wrong: bool) -> None:
    assert bool(STRANGER.search(text)) is wrong


def test_ours_is_called_secfc_kmeans() -> None:
    scripts = {script.name for script in distribution("secfc-kmeans").entry_points}
    assert scripts == {"secfc", "secfc-server", "secfc-client"}


def test_a_folder_of_our_name_does_not_hide_the_package(tmp_path: Path) -> None:
    """As in the folder above a clone that is called secfc."""
    (tmp_path / "secfc" / "docs").mkdir(parents=True)
    code = "import secfc, secfc_client.cli, secfc_server; print(secfc.__version__)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def locked(name: str) -> dict[str, set[str]]:
    """Versions by package; every one of them with hashes."""
    text = (ROOT / "deploy" / "locks" / name).read_text(encoding="utf-8")
    entries = re.findall(
        r"^([a-z0-9-]+)==([^\s;]+)[^\n]*\\\n((?:    --hash=sha256:[0-9a-f]{64}.*\n?)+)", text, re.MULTILINE
    )
    assert len(entries) == len(re.findall(r"^\S+==", text, re.MULTILINE)), "an entry without a hash"
    found: dict[str, set[str]] = {}
    for package, version, _ in entries:
        found.setdefault(package, set()).add(version)
    return found


@pytest.mark.parametrize(
    ("name", "extras"),
    [("image.txt", ("web",)), ("dask.txt", ("dask", "web")), ("dev.txt", ("dask", "dev", "experiments", "web"))],
)
def test_locks_fit_what_pyproject_asks_for(name: str, extras: tuple[str, ...]) -> None:
    """After a change of pyproject.toml: make lock."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = project["dependencies"] + [one for extra in extras for one in project["optional-dependencies"][extra]]
    versions = locked(name)
    for one in map(Requirement, asked):
        if one.name != "secfc-kmeans":
            assert versions[canonicalize_name(one.name)], one
            assert all(version in one.specifier for version in versions[canonicalize_name(one.name)]), one


def test_what_is_tested_is_what_the_image_has() -> None:
    image, dev = locked("image.txt"), locked("dev.txt")
    assert {name: dev[name] for name in image} == image
    assert {name: dev[name] for name in locked("build.txt")} == locked("build.txt")


def test_the_changelog_has_a_section_for_this_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^## \[(\d+\.\d+\.\d+)\] - \d{4}-\d\d-\d\d$", text, re.MULTILINE)[0] == __version__
    assert text.index("## [Unreleased]") < text.index(f"## [{__version__}]")


def test_supported_versions_include_this_one() -> None:
    minor = __version__.rpartition(".")[0]
    assert f"now {minor}," in (ROOT / "SECURITY.md").read_text(encoding="utf-8")
