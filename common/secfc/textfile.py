"""Text files that are there as a whole or not at all."""

from __future__ import annotations

from pathlib import Path

from secfc import atomicfile, limits
from secfc.errors import ConfigError


def write(path: Path, content: str | bytes, cure: str) -> None:
    """Replace the file as a whole, on disk when this returns, so that a reader never sees half of it. Anybody may read it.
    `cure` says what to do if that fails."""
    with limits.telling(f"{path}: cannot be written", cure):
        atomicfile.write(path, [content.encode() if isinstance(content, str) else content], mode=0o644)


def preflight(path: Path, cure: str) -> None:
    """Raise now what `write` would raise later, without touching a file that is there."""
    if path.is_dir():
        raise ConfigError(f"{path}: cannot be written (it is a folder); {cure}")
    trial = path.with_name(f".{path.name}.trial")
    with limits.telling(f"{path}: cannot be written", cure):
        atomicfile.write(trial, [])
        trial.unlink()


def rename(path: Path, target: Path, cure: str) -> None:
    """Call the file something else, in the place of what is called that."""
    with limits.telling(f"{target}: cannot be written", cure):
        path.replace(target)


def remove(path: Path, cure: str) -> None:
    """Remove the file if it is there."""
    with limits.telling(f"{path}: cannot be removed", cure):
        path.unlink(missing_ok=True)


def read_small_file(path: str | Path, limit: int) -> bytes:
    """The bytes of a file that has no reason to be larger than `limit`; never reads on beyond it."""
    try:
        with open(path, "rb") as file:
            content = file.read(limit + 1)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); check the path") from error
    if len(content) > limit:
        raise ConfigError(f"{path}: larger than {limit} bytes; it is probably the wrong file")
    return content
