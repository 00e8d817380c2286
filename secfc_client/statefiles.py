"""Files of a client's state folder: whole or not there at all, readable by their owner only, and most of them sealed.

A seal is a digest of what the file is and of its content: it tells a whole file of that very kind from any other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from secfc import atomicfile, limits
from secfc.framing import framed

SEAL_BYTES = 32
CURE = "make room there or choose another --state"


def write(path: Path, parts: Sequence[bytes | memoryview]) -> None:
    """Replace a file by these parts; the folder is made if need be."""
    with limits.telling(f"{path.parent}: cannot keep state there", CURE):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        atomicfile.write(path, parts)


def read(path: Path) -> bytes | None:
    """A file's content; None if there is none."""
    with limits.telling(f"{path}: cannot be read", "check the state folder"):
        try:
            return atomicfile.patiently(path.read_bytes)
        except FileNotFoundError:
            return None


def keep(path: Path, content: bytes | memoryview, *kind: bytes) -> None:
    """Write a sealed file."""
    write(path, [_seal(content, *kind), content])


def kept(path: Path, *kind: bytes) -> bytes | None:
    """The content of a sealed file; None if there is none, or it is not whole and of that kind."""
    whole = read(path) or b""
    content = whole[SEAL_BYTES:]
    return content if whole[:SEAL_BYTES] == _seal(content, *kind) else None


def _seal(content: bytes | memoryview, *kind: bytes) -> bytes:
    digest = hashlib.sha256(framed(*kind))
    digest.update(content)
    return digest.digest()
