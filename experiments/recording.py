"""The README's recording: `secfc demo` in a terminal of its own, as an animated picture of what it really wrote, and when."""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import struct
import sys
import termios
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import click

from experiments import output, terminal
from secfc import __version__
from secfc.errors import JobFailed

SECONDS = 20.0  # of the film; the last picture stays for what is left
EVERY = 0.25  # between two pictures at least
_DEMO = ("secfc", "demo")


def record(call: Sequence[str]) -> list[tuple[float, terminal.Picture]]:
    """Run a program in a terminal; what its screen showed, from which second on. Raises JobFailed if it fails."""
    child, master = pty.fork()
    if child == 0:
        os.environ |= {"COLUMNS": str(terminal.COLUMNS), "LINES": str(terminal.LINES), "TERM": "xterm-256color"}
        os.execv(Path(sys.executable).with_name(call[0]), list(call))
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", terminal.LINES, terminal.COLUMNS, 0, 0))
    screen, begun = terminal.Screen(), time.monotonic()
    screen.feed(f"\x1b[32m$\x1b[0m {' '.join(call)}\r\n")
    pictures = [(0.0, screen.picture())]
    decode = codecs.getincrementaldecoder("utf-8")().decode
    while piece := _read(master):
        screen.feed(decode(piece))
        second = time.monotonic() - begun
        if second - pictures[-1][0] < EVERY and len(pictures) > 1:  # more of the same: a table comes in several pieces
            second = pictures.pop()[0]
        if screen.picture() != pictures[-1][1]:
            pictures.append((second, screen.picture()))
    pictures.append((time.monotonic() - begun, screen.picture()))
    if code := os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        raise JobFailed(f"{' '.join(call)} ended with code {code}; run it by itself to see why")
    return pictures


def _read(master: int) -> bytes:
    try:
        return os.read(master, 1 << 16)
    except OSError:  # Linux: the program has ended
        return b""


@click.command("recording")
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), default=Path("docs/pictures/demo.svg"), show_default=True
)
def command(out: Path) -> None:
    """Record `secfc demo` as an animated picture, docs/pictures/demo.svg."""
    pictures = record(_DEMO)
    about = f"Recorded by python -m experiments recording with secfc {__version__} on {datetime.now(UTC).date().isoformat()}."
    seconds = max(SECONDS, pictures[-1][0] + 5)
    output.write_text(out, terminal.film(pictures, seconds, " ".join(_DEMO), about))
    click.echo(f"{out}: {len(pictures)} pictures, {pictures[-1][0]:.1f} s", err=True)
