"""Files that are there as a whole or not at all, whenever the process or the machine stops; and one that only grows.

Every write has a temporary file of its own, so two writers of one path never spoil each other's: the last one to end wins.
A process that has too many files open is given some time to close others; what is wrong otherwise is the caller's to tell.
"""

from __future__ import annotations

import errno
import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, TypeVar

T = TypeVar("T")
PATIENCE_SECONDS = 20.0
_PAUSE_SECONDS = 0.2
_SUFFIX = ".new"
_STALE_SECONDS = 3600.0  # a temporary file so old belongs to a process that was killed
_CROWDED = (errno.EMFILE, errno.ENFILE)


@contextmanager
def replacing(path: Path, mode: int = 0o600) -> Iterator[BinaryIO]:
    """A file to write, which takes the place of `path` if the block ends well, and is gone if not. Raises OSError."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}{_SUFFIX}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    with os.fdopen(patiently(lambda: os.open(temporary, flags, mode)), "wb") as file:
        try:
            yield file
            file.flush()
            os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    sync_folder(path.parent)


def write(path: Path, parts: Iterable[bytes | memoryview], mode: int = 0o600) -> None:
    """Replace the file by these parts, one after the other. Raises OSError."""
    with replacing(path, mode) as file:
        for part in parts:
            file.write(part)


def append(path: Path, content: bytes, size: int) -> None:
    """Add to the end of a file of so many bytes (0: none is there yet), on disk when this returns. If that fails, nothing is
    added; a machine that stops meanwhile may leave the beginning of it. Raises OSError, FileExistsError if the file is not
    as long as that."""
    flags = os.O_WRONLY | os.O_APPEND | (0 if size else os.O_CREAT)
    with os.fdopen(patiently(lambda: os.open(path, flags, 0o600)), "ab", buffering=0) as file:
        if os.fstat(file.fileno()).st_size != size:
            raise FileExistsError(errno.EEXIST, "somebody else has changed it")
        try:
            left = memoryview(content)
            while left:
                left = left[file.write(left) :]
            os.fsync(file.fileno())
        except BaseException:
            with suppress(OSError):
                os.ftruncate(file.fileno(), size)
            raise
    if not size:
        sync_folder(path.parent)


def cut(path: Path, size: int) -> None:
    """Shorten a file to so many bytes. Raises OSError."""
    with open(path, "r+b") as file:
        file.truncate(size)
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Make sure that what was renamed or removed in a folder stays so, where the file system can. Raises OSError."""
    descriptor = patiently(lambda: os.open(folder, os.O_RDONLY))
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # there are file systems that cannot do it for folders
            raise
    finally:
        os.close(descriptor)


def remove_stale(folder: Path) -> None:
    """Remove what processes that were killed in the middle of a write have left; not what others are writing now."""
    for path in folder.glob(f".*{_SUFFIX}"):
        try:
            if time.time() - path.lstat().st_mtime > _STALE_SECONDS:
                path.unlink()
        except OSError:  # gone meanwhile, or not ours: it does no harm
            continue


def patiently(call: Callable[[], T]) -> T:
    """What the call returns; again for a while if it fails because too many files are open. Blocks: call it on a thread."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return call()
        except OSError as error:
            if error.errno not in _CROWDED or time.monotonic() > deadline:
                raise
        time.sleep(_PAUSE_SECONDS)
