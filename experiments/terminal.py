"""A terminal, as far as our programs need one, and its screens as one animated picture (SVG) without scripts.

`Screen` understands what rich writes: colours and styles, carriage return, line feed, cursor up, erase. All screens stand
side by side on a film, of which a viewer sees one at a time (CSS); whoever does not animate, or has asked for less motion,
sees the last one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from xml.sax.saxutils import escape

COLUMNS, LINES = 100, 40
_WIDTH, _HEIGHT, _PAD, _BAR = 8, 17, 14, 30  # of a character; around the text; above it
_TOKEN = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])|(\r\n|\r|\n)|([^\x1b\r\n]+)")
_PIECE = re.compile(r"[─-╿]+|[^\s─-╿]+(?: [^\s─-╿]+)*")
_COLOURS = ("#6e7681", "#ff7b72", "#7ee787", "#e3b341", "#79c0ff", "#d2a8ff", "#76e3ea", "#e6edf3")
_INK, _PAPER = "#e6edf3", "#0d1117"


@dataclass(frozen=True)
class Style:
    """How a character looks."""

    colour: str = _INK
    bold: bool = False
    italic: bool = False
    dim: bool = False

    def css(self) -> str:
        """What differs from plain text, as attributes."""
        out = f' fill="{self.colour}"' * (self.colour != _INK) + ' font-weight="bold"' * self.bold
        return out + ' font-style="italic"' * self.italic + ' opacity="0.6"' * self.dim


Span = tuple[int, str, Style]  # column, text, style
Picture = tuple[tuple[Span, ...], ...]


class Screen:
    """What is on it, and where the cursor is."""

    def __init__(self) -> None:
        self._lines: list[list[tuple[str, Style]]] = [[]]
        self._row = self._column = 0
        self._style = Style()

    def feed(self, text: str) -> None:
        """Show what a program writes."""
        for codes, command, feed, plain in _TOKEN.findall(text):
            if command:
                self._control(codes, command)
            elif feed:
                self._column = 0 if "\r" in feed or feed == "\n" else self._column
                self._down("\n" in feed)
            else:
                self._write(plain)

    def picture(self) -> Picture:
        """The lines as spans of one style each; blank lines at the end are left out."""
        lines = [_spans(line) for line in self._lines]
        while lines and not lines[-1]:
            lines.pop()
        return tuple(lines)

    def _down(self, moves: bool) -> None:
        self._row += moves
        while len(self._lines) <= self._row:
            self._lines.append([])

    def _write(self, text: str) -> None:
        line = self._lines[self._row]
        line.extend([(" ", Style())] * (self._column - len(line)))
        line[self._column : self._column + len(text)] = [(one, self._style) for one in text]
        self._column += len(text)

    def _control(self, codes: str, command: str) -> None:
        if command == "m":
            for code in codes.split(";"):
                self._style = _styled(self._style, int(code or 0))
        elif command == "A":
            self._row = max(0, self._row - int(codes or 1))
        elif command == "K":
            del self._lines[self._row][0 if codes == "2" else self._column :]


def _styled(style: Style, code: int) -> Style:
    if code == 0:
        return Style()
    if code in (1, 2, 3):
        return replace(
            style, bold=style.bold or code == 1, dim=style.dim or code == 2, italic=style.italic or code == 3
        )
    if 30 <= code < 38 or 90 <= code < 98:
        return replace(style, colour=_COLOURS[code % 10])
    return replace(style, colour=_INK) if code == 39 else style


def _spans(line: Sequence[tuple[str, Style]]) -> tuple[Span, ...]:
    """Pieces of one style, cut at lines of tables and where two blanks or more stand, which a viewer might draw as one."""
    text, out = "".join(one for one, _ in line), []
    for found in _PIECE.finditer(text):
        begin = found.start()
        for at in range(found.start() + 1, found.end() + 1):
            if at == found.end() or line[at][1] != line[begin][1]:
                out.append((begin, text[begin:at], line[begin][1]))
                begin = at
    return tuple(span for span in out if span[1].strip())


def film(pictures: Sequence[tuple[float, Picture]], seconds: float, title: str, about: str) -> str:
    """An animated SVG: every picture from its second on, `seconds` in all, then from the beginning."""
    lines = max(len(picture) for _, picture in pictures)
    width, height = COLUMNS * _WIDTH + 2 * _PAD, _BAR + lines * _HEIGHT + _PAD
    steps = "".join(
        f"{100 * second / seconds:.2f}%{{transform:translateX({-number * width}px)}}"
        for number, (second, _) in enumerate(pictures)
    )
    end = -(len(pictures) - 1) * width
    dots = "".join(f'<circle cx="{18 + 16 * n}" cy="16" r="5" fill="#30363d"/>' for n in range(3))
    frames = "".join(_frame(number * width + _PAD, picture) for number, (_, picture) in enumerate(pictures))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'role="img"><title>{escape(title)}</title><desc>{escape(about)}</desc><style>'
        f"text{{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace}}"
        f".film{{animation:film {seconds:g}s step-end infinite}}"
        f"@keyframes film{{{steps}100%{{transform:translateX({end}px)}}}}"
        "@media(prefers-reduced-motion:reduce){.film{animation:none}}</style>"
        f'<rect width="{width}" height="{height}" rx="8" fill="{_PAPER}" stroke="#30363d"/>{dots}'
        f'<svg width="{width}" height="{height}"><g class="film" fill="{_INK}" transform="translate({end},0)">'
        f"{frames}</g></svg></svg>\n"
    )


def _frame(left: int, picture: Picture) -> str:
    out = []
    for row, line in enumerate(picture):
        for column, text, style in line:
            shown = text.rstrip()
            lead = len(shown) - len(shown.lstrip())
            place = f'x="{left + (column + lead) * _WIDTH}" y="{_BAR + row * _HEIGHT + 12}"'
            out.append(
                f'<text {place} textLength="{(len(shown) - lead) * _WIDTH}"{style.css()}>{escape(shown.lstrip())}</text>'
            )
    return "".join(out)
