"""Text files that are there as a whole or not at all."""

from __future__ import annotations

from pathlib import Path

from secfc import atomicfile


def write(path: Path, text: str, cure: str) -> None:
    """Replace the file as a whole, so that a reader never sees half of it. `cure` says what to do if that fails."""
    try:
        atomicfile.write(path, [text.encode("utf-8")], mode=0o666)
    except OSError as error:
        raise atomicfile.trouble(error, f"{path}: cannot be written", cure) from None


def remove(path: Path, cure: str) -> None:
    """Remove the file if it is there."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise atomicfile.trouble(error, f"{path}: cannot be removed", cure) from None
