"""What README, docs/ and the other texts point at exists: files, and headings within them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click import Context

from experiments.__main__ import EXPERIMENTS
from secfc_client.cli import group

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_IMAGE = re.compile(r'<img[^>]* src="([^"]+)"')
_CODE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def prose(page: Path) -> str:
    return _CODE.sub("", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """Those that are written down, and those that GitHub makes of headings."""
    heads = re.findall(r"^#+ (.+)$", prose(page), flags=re.MULTILINE)
    named = set(re.findall(r'<a id="([^"]+)">', prose(page)))
    return named | {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = prose(page)
    for link in _LINK.findall(text) + _IMAGE.findall(text):
        if link.startswith(("https://", "mailto:")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{link}: there is no such file"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{link}: there is no such heading"


def test_the_index_names_every_page() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    pages = {page.name for page in ROOT.glob("docs/*.md")} - {"README.md"}
    assert pages == set(re.findall(r"\]\((\w[\w-]*\.md)\)", index))


def test_readme_is_a_front_door() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < 200


def test_commands_that_are_named_exist() -> None:
    """`make X` and `secfc X`, in README and docs/."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    known = set(group.list_commands(Context(group)))
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        code = "\n".join(
            re.findall(r"^ *```\w*\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL) + re.findall(r"`([^`\n]+)`", text)
        )
        assert set(re.findall(r"^ *make ([a-z-]+)", code, re.MULTILINE)) <= targets, page.name
        assert set(re.findall(r"^ *secfc ([a-z]+)", code, re.MULTILINE)) <= known, page.name
        experiments = set(re.findall(r"python -m experiments ([a-z]\w*)", code))
        assert experiments <= set(EXPERIMENTS), page.name


def test_the_readme_shows_all_its_pictures_at_a_size_that_loads() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    pictures = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", text)
    assert len(pictures) == 2
    for path in pictures:
        picture = (ROOT / path).read_text(encoding="utf-8")
        assert len(picture) < 100_000, path
        assert "<script" not in picture, path
        assert "href=" not in picture, path
