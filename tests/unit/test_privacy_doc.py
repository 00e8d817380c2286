"""docs/privacy.md and threat-model.md: every claim has a note, every note names tests, and the tests exist.

A block after `<!-- no claim -->` needs no notes. A note may hold `<!-- test: pending NAME -->` for a part that is not built
yet; such names stand in PENDING too, so that none is forgotten: replace both by the test.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXTS = {name: (ROOT / "docs" / name).read_text() for name in ("privacy.md", "threat-model.md")}
FREE = "<!-- no claim -->"

PENDING: set[str] = set()
each = pytest.mark.parametrize("name", TEXTS)

_NOTE = re.compile(r"^\[\^([\w-]+)\]:(.*)$", re.MULTILINE)
_USE = re.compile(r"\[\^([\w-]+)\](?!:)")
_TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
_WAITING = re.compile(r"<!-- test: pending (\S+) -->")


def notes(text: str) -> dict[str, str]:
    return dict(_NOTE.findall(text))


def statements(text: str) -> list[str]:
    """Every sentence of paragraphs and list items, and of the cells of tables beside their first column."""
    out: list[str] = []
    for block in re.split(r"\n\s*\n", _NOTE.sub("", text)):
        lines = [line for line in block.strip().splitlines() if line]
        if not lines or lines[0].startswith("#") or lines[0] == FREE:
            continue
        if lines[0].startswith("|"):
            asks = _choices(lines[0])
            rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
            parts = [cell for row in rows for cell in row[2 if asks else 1 :]]
        else:
            parts = re.split(
                r"^- ", " ".join(line.strip() for line in lines).replace(" - ", "\n- "), flags=re.MULTILINE
            )
        out += [sentence for part in parts for sentence in _sentences(part) if sentence]
    return out


def _choices(header: str) -> bool:
    """Tables of advice have the reader's wish and the choice first; only the reason claims something."""
    return "because" in header


def _sentences(part: str) -> list[str]:
    """Cut after a full stop and the notes that follow it, unless the next word goes on in lower case."""
    return [piece.strip() for piece in re.split(r"(?<=[.!?\]])\s+(?=[^\sa-z])", part) if piece.strip()]


@cache
def functions(path: Path) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}


def missing(text: str) -> list[str]:
    """The tests named in notes that do not exist."""
    named = [found for body in notes(text).values() for found in _TEST.findall(body)]
    return [f"{file}::{name}" for file, name in named if not _exists(file, name)]


def _exists(file: str, name: str) -> bool:
    path = ROOT / file
    return path.is_file() and name.startswith("test_") and name in functions(path)


@each
def test_every_claim_has_a_note(name: str) -> None:
    text = TEXTS[name]
    silent = [sentence for sentence in statements(text) if not _USE.search(sentence)]
    assert silent == []
    assert len(statements(text)) > 45


@each
def test_every_note_is_defined_once_and_used(name: str) -> None:
    text = TEXTS[name]
    names = [one for one, _ in _NOTE.findall(text)]
    assert len(names) == len(set(names))
    assert set(_USE.findall(text)) == set(names)


@each
def test_every_note_names_tests_and_they_exist(name: str) -> None:
    text = TEXTS[name]
    assert [one for one, body in notes(text).items() if not _TEST.search(body) and not _WAITING.search(body)] == []
    assert missing(text) == []


def test_what_is_pending_is_listed_and_not_there_yet() -> None:
    waiting = set(_WAITING.findall("".join(TEXTS.values())))
    assert waiting == PENDING
    arrived = [name for name in waiting if "::" in name and _exists(*name.split("::"))]
    assert arrived == [], "these tests exist now: name them in the note instead of `pending`"


@pytest.mark.parametrize(
    ("text", "silent"),
    [
        ("A claim.[^a] Another.\n", ["Another."]),
        ("- one[^a]\n- two is\n  longer\n- three.[^a]\n", ["two is longer"]),
        ("| x | y |\n|---|---|\n| who | Says. More.[^a] |\n", ["Says."]),
        ("| you | choose | because |\n|---|---|---|\n| a | b | c |\n", ["c"]),
        (f"{FREE}\nFree. Free too.\n\nNot free.\n", ["Not free."]),
        ("# Title\n\nAbout d/(k−1) rounds, e.g. ten.[^a]\n", []),
    ],
)
def test_the_check_finds_silent_claims(text: str, silent: list[str]) -> None:
    assert [sentence for sentence in statements(text) if not _USE.search(sentence)] == silent


def test_the_check_finds_missing_tests() -> None:
    here = "tests/unit/test_privacy_doc.py"
    text = f"[^a]: `{here}::test_the_check_finds_missing_tests`, `{here}::test_gone`, `tests/unit/nowhere.py::test_x`\n"
    assert missing(text) == [f"{here}::test_gone", "tests/unit/nowhere.py::test_x"]
    assert missing(f"[^a]: `{here}::missing`\n") == [f"{here}::missing"]
