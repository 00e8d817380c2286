"""The common package stands below the client and the server: it imports neither, wherever in a module the import stands."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

COMMON = Path(__file__).parents[2] / "common"
ABOVE = {"secfc_client", "secfc_server"}


def imported(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The line and the name of every module that is imported, also by `import_module` with a plain name."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, alias.name) for alias in names)
            case ast.ImportFrom(module=str(module), level=0):
                yield node.lineno, module
            case ast.Call(
                func=ast.Attribute(attr="import_module") | ast.Name(id="import_module" | "__import__"),
                args=[ast.Constant(value=str(module)), *_],
            ):
                yield node.lineno, module


def upwards(tree: ast.AST) -> list[int]:
    return [line for line, name in imported(tree) if name.partition(".")[0] in ABOVE]


def test_the_common_package_imports_neither_client_nor_server() -> None:
    modules = sorted(COMMON.rglob("*.py"))
    assert len(modules) > 50
    trees = {path: ast.parse(path.read_text(encoding="utf-8"), str(path)) for path in modules}
    found = [f"{path.relative_to(COMMON)}:{line}" for path, tree in trees.items() for line in upwards(tree)]
    assert found == []


@pytest.mark.parametrize(
    ("statement", "lines"),
    [
        ("import secfc_server", [1]),
        ("def f():\n    from secfc_client import data", [2]),
        ("if TYPE_CHECKING:\n    from secfc_client.budget import Entry", [2]),
        ("import importlib\nimportlib.import_module('secfc_client.cli')", [2]),
        ("from importlib import import_module\nimport_module('secfc_server')", [2]),
        ("import secfc.net\nfrom secfc import local\ncall = ['-m', 'secfc_server']", []),
    ],
)
def test_the_search_finds_an_import_wherever_it_stands(statement: str, lines: list[int]) -> None:
    assert upwards(ast.parse(statement)) == lines
