"""A report as one HTML file that needs nothing else: sections of text, tables and charts, with the style inside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from importlib import resources
from typing import Self

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"  # a file on a disk: nothing is fetched, nothing runs


@dataclass
class Document:
    """Gathers parts in their order. All texts are escaped here, but for `raw`, which is ours."""

    title: str
    _parts: list[str] = field(default_factory=list)

    def section(self, title: str) -> Self:
        return self.raw(f"<h2>{escape(title)}</h2>")

    def paragraph(self, text: str) -> Self:
        return self.raw(f"<p>{escape(text)}</p>")

    def facts(self, pairs: Sequence[tuple[str, str]]) -> Self:
        rows = "".join(f'<tr><th scope="row">{escape(k)}</th><td>{escape(v)}</td></tr>' for k, v in pairs)
        return self.raw(f'<table class="facts">{rows}</table>')

    def table(self, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Self:
        head = "".join(f'<th scope="col">{escape(one)}</th>' for one in heads)
        body = "".join(
            f'<tr><th scope="row">{escape(first)}</th>{"".join(f"<td>{escape(cell)}</td>" for cell in rest)}</tr>'
            for first, *rest in rows
        )
        return self.raw(f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>')

    def heat(self, heads: Sequence[str], rows: Sequence[tuple[str, Sequence[tuple[str, int]]]]) -> Self:
        """A table with cells (text, shade from -4 to 4)."""
        head = "".join(f'<th scope="col">{escape(one)}</th>' for one in heads)
        body = ""
        for name, cells in rows:
            shown = "".join(f'<td class="{_shade(shade)}">{escape(text)}</td>' for text, shade in cells)
            body += f'<tr><th scope="row">{escape(name)}</th>{shown}</tr>'
        table = f'<table class="heat"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
        return self.raw(f'<div class="scroll">{table}</div>')

    def raw(self, html: str) -> Self:
        self._parts.append(html)
        return self

    def html(self) -> str:
        style = resources.files("secfc.web").joinpath("assets", "report.css").read_text(encoding="utf-8")
        head = f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        head += '<meta name="viewport" content="width=device-width, initial-scale=1">'
        head += f"<title>{escape(self.title)}</title><style>{style}</style>"
        body = f"<h1>{escape(self.title)}</h1>{''.join(self._parts)}"
        return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>{body}</body></html>\n'


def _shade(shade: int) -> str:
    return "" if shade == 0 else f"{'m' if shade < 0 else 'p'}{min(abs(shade), 4)}"
