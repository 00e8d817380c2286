"""The recording of the README: what a terminal shows of what a program writes, and the animated picture made of it."""

from __future__ import annotations

import io
import re
from pathlib import Path
from xml.etree import ElementTree

from rich.console import Console
from rich.table import Table

from experiments import terminal

ROOT = Path(__file__).parents[2]
SVG = "{http://www.w3.org/2000/svg}"


def shown(picture: terminal.Picture) -> list[str]:
    """The lines as text, pieces at their columns."""
    out = []
    for line in picture:
        text = ""
        for column, piece, _ in line:
            text = text.ljust(column) + piece
        out.append(text)
    return out


def test_a_line_that_is_written_again_shows_its_last_words() -> None:
    screen = terminal.Screen()
    screen.feed("\x1b[32m$\x1b[0m secfc demo\r\n\x1b[?25lstarting, for a while")
    screen.feed("\r\x1b[2Kround 1")
    assert shown(screen.picture()) == ["$ secfc demo", "round 1"]
    screen.feed("\r\n\x1b[?25h\r\x1b[1A\x1b[2Kover\r\n")
    assert shown(screen.picture()) == ["$ secfc demo", "over"]


def test_what_rich_draws_is_what_is_shown() -> None:
    table = Table(title="Clusters")
    table.add_column("k")
    table.add_column("inertia", justify="right")
    table.add_row("4", "[red]32.4[/]")
    plain, coloured = io.StringIO(), io.StringIO()
    Console(file=plain, width=60).print(table)
    Console(file=coloured, width=60, force_terminal=True, color_system="standard").print(table)
    screen = terminal.Screen()
    screen.feed(coloured.getvalue())
    assert shown(screen.picture()) == [line.rstrip() for line in plain.getvalue().splitlines()]
    assert any(style.colour != terminal._INK for line in screen.picture() for _, _, style in line)


def test_a_film_has_every_picture_at_its_time_and_rests_on_the_last() -> None:
    pictures = []
    for second, text in ((0.0, "one <&> two"), (2.5, "three")):
        screen = terminal.Screen()
        screen.feed(text)
        pictures.append((second, screen.picture()))
    film = ElementTree.fromstring(terminal.film(pictures, 10, "title", "about"))
    assert [text.text for text in film.iter(f"{SVG}text")] == ["one <&> two", "three"]
    style = next(film.iter(f"{SVG}style")).text or ""
    width = int(film.attrib["width"])
    assert f"0.00%{{transform:translateX(0px)}}25.00%{{transform:translateX(-{width}px)}}" in style
    assert next(film.iter(f"{SVG}g")).attrib["transform"] == f"translate(-{width},0)"


def test_the_readmes_recording_is_of_a_demo_that_equalled_lloyd() -> None:
    text = (ROOT / "docs" / "pictures" / "demo.svg").read_text(encoding="utf-8")
    film = ElementTree.fromstring(text)
    assert "python -m experiments recording" in (film.findtext(f"{SVG}desc") or "")
    words = " ".join(one.text or "" for one in film.iter(f"{SVG}text"))
    assert re.search(r"identical to central Lloyd .{0,3} ?yes", words)
