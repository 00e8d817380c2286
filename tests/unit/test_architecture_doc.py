"""docs/architecture.md: every path and every name of the code in it exists. The other documents: every path does."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "architecture.md"
COMMON = ROOT / "common" / "secfc"
BASES = (ROOT, COMMON, PAGE.parent)
MOST_LINES = 200

_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"[\w./-]+\.(?:py|proto)\b")
_PLACED = re.compile(
    r"\b(?:tests|common|proto|protocol|secfc_client|secfc_server|deploy)/[\w./-]+\.(?:py|proto|service|yml|yaml)\b"
)
_QUOTED = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\]\(([\w./-]+)(?:#[\w-]+)?\)")
_WRITTEN = {"federation.toml", "policy.toml", "result.json"}  # of users and jobs, not of the repository
_WORD = re.compile(r"[A-Za-z_]\w*")


def places(text: str) -> set[str]:
    """Files named anywhere, quoted paths, and targets of links."""
    quoted = {one for one in _QUOTED.findall(_FENCE.sub("", text)) if "/" in one and " " not in one}
    return {*_FILE.findall(text), *_LINK.findall(text), *quoted}


def names(text: str) -> set[str]:
    """Quoted words that are no paths, commands or tables of a file: classes, functions, RPCs, keys, folders."""
    quoted = {one for one in _QUOTED.findall(_FENCE.sub("", text)) if "/" not in one and not _FILE.fullmatch(one)}
    return {word for one in quoted - _WRITTEN if " " not in one and "[" not in one for word in _WORD.findall(one)}


def exists(place: str) -> bool:
    return any((base / place).exists() for base in BASES) or any(
        (folder / place).is_file() for folder in (ROOT / "secfc_server", ROOT / "secfc_client")
    )


@cache
def words() -> frozenset[str]:
    """All words of the code, and all names of its folders."""
    tops = [ROOT / name for name in ("common", "secfc_server", "secfc_client", "proto")]
    files = [path for top in tops for path in top.rglob("*") if path.suffix in (".py", ".proto")]
    folders = {path.parent.name for path in files}
    return frozenset(folders | {word for path in files for word in _WORD.findall(path.read_text(encoding="utf-8"))})


def test_every_path_exists() -> None:
    named = places(PAGE.read_text(encoding="utf-8"))
    assert len(named) > 50
    assert sorted(place for place in named if not exists(place)) == []


@pytest.mark.parametrize("page", ["protocol", "operations", "reliability"])
def test_every_path_of_the_other_documents_exists(page: str) -> None:
    named = _PLACED.findall((ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8"))
    assert named
    assert sorted({place for place in named if not exists(place)}) == []


def test_every_name_is_one_of_the_code() -> None:
    named = names(PAGE.read_text(encoding="utf-8"))
    assert len(named) > 40
    assert sorted(named - words()) == []


def test_every_package_is_described() -> None:
    text = PAGE.read_text(encoding="utf-8")
    packages = {path.parent.name for path in COMMON.glob("*/__init__.py")} - {"v1"}
    tops = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["mypy"]["packages"]
    described = {*packages, *tops} - {"secfc", "experiments"}
    assert sorted(name for name in described if f"| `{name}` |" not in text) == []


def test_it_stays_short() -> None:
    assert len(PAGE.read_text(encoding="utf-8").splitlines()) < MOST_LINES


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("see `protocol/gone.py` and net/link.py", {"protocol/gone.py"}),
        ("```\n kmeans/lloyd.py → kmeans/nowhere.py\n```\n", {"kmeans/nowhere.py"}),
        ("[x](gone.md), [y](protocol.md#5-messages) and `protocol/rounds`", {"gone.md"}),
        ("`make proto` and `federation.toml`", set()),
    ],
)
def test_the_check_finds_paths_that_are_gone(text: str, found: set[str]) -> None:
    assert {place for place in places(text) if not exists(place)} == found


def test_the_check_finds_names_that_are_gone() -> None:
    assert names("`Outbox`, `Effects.refusal`, `NoSuchThing.at_all`, `[job]`, `make lint`") - words() == {
        "NoSuchThing",
        "at_all",
    }


# --- what tests cite ---------------------------------------------------------------------------------------------------

_CITED = re.compile(r"(docs/[\w-]+\.md),\s+Sections? (\d\w*)(?: and (\d\w*))?")
_ELSEWHERE = re.compile(
    r"\b(?:DESIGN|SEALED)\.md|\bAppendix [A-Z]|\bTheorem \d|\bSection \d"
)  # of texts that are not here
_STANDARD = re.compile(r"RFC \d+,\s+Section \d+")


def cited(text: str) -> set[tuple[str, str]]:
    return {(page, number) for page, *numbers in _CITED.findall(text) for number in numbers if number}


def cites_elsewhere(text: str) -> bool:
    return bool(_ELSEWHERE.search(_STANDARD.sub("", _CITED.sub("", text))))


def is_section(page: str, number: str) -> bool:
    return (ROOT / page).is_file() and f"\n## {number}. " in (ROOT / page).read_text(encoding="utf-8")


def test_what_tests_cite_is_in_the_repository() -> None:
    texts = {
        path: path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py") if path != Path(__file__)
    }
    found = {reference for text in texts.values() for reference in cited(text)}
    assert len(found) > 10
    assert sorted(reference for reference in found if not is_section(*reference)) == []
    assert sorted(str(path) for path, text in texts.items() if cites_elsewhere(text)) == []


def test_the_check_finds_what_is_not_in_the_repository() -> None:
    assert cited("see docs/sealed.md, Section 2 and docs/protocol.md,\n    Sections 2a and 99") == {
        ("docs/sealed.md", "2"),
        ("docs/protocol.md", "2a"),
        ("docs/protocol.md", "99"),
    }
    assert is_section("docs/protocol.md", "2a")
    assert not is_section("docs/protocol.md", "99")
    assert not is_section("docs/gone.md", "1")
    for text in ("DESIGN.md, step 5", "Section 4.1: α", "Theorem 1", "Appendix A"):
        assert cites_elsewhere(text)
    assert not cites_elsewhere("docs/sealed.md, Section 2; RFC 7748, Section 7")
