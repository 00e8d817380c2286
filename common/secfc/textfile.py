"""Text files that are there as a whole or not at all."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from secfc import limits
from secfc.errors import ConfigError


def write(path: Path, text: str, cure: str) -> None:
    """Replace the file as a whole, so that a reader never sees half of it. `cure` says what to do if that fails."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.new")  # parties may share a folder
    try:
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise limits.failure(error, f"{path}: cannot be written", cure) from None


def preflight(path: Path, cure: str) -> None:
    """Raise now what `write` would raise later, without touching a file that is there."""
    if path.is_dir():
        raise ConfigError(f"{path}: cannot be written (it is a folder); {cure}")
    trial = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        trial.write_text("")
        trial.unlink()
    except OSError as error:
        raise limits.failure(error, f"{path}: cannot be written", cure) from None


def replace(path: Path, content: bytes, cure: str) -> None:
    """Replace the file as a whole, on disk when this returns. Anybody may read it."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error.strerror}); {cure}") from None


def remove(path: Path, cure: str) -> None:
    """Remove the file if it is there."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be removed ({error.strerror}); {cure}") from None
