"""Files that are replaced as a whole, by several writers at once, with few descriptors and a full disk."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from secfc import atomicfile


def test_two_writers_of_one_file_do_not_spoil_each_other(tmp_path: Path) -> None:
    """A cancelled write goes on in its thread while it is tried again: with one temporary file the second writer found its
    file renamed away, and told of a broken disk."""
    path = tmp_path / "a"
    with atomicfile.replacing(path) as first:
        first.write(b"first")
        with atomicfile.replacing(path) as second:
            second.write(b"second")
        assert path.read_bytes() == b"second"
    assert path.read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [path]


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "a"
    atomicfile.write(path, [b"old"])

    def parts() -> Iterator[bytes]:
        yield b"half"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        atomicfile.write(path, parts())
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_what_a_killed_process_left_is_removed_and_what_is_being_written_is_not(tmp_path: Path) -> None:
    stale = tmp_path / ".a.0123.new"
    stale.write_bytes(b"half")
    os.utime(stale, (1, 1))
    (tmp_path / ".b.4567.new").write_bytes(b"half")
    atomicfile.remove_stale(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".b.4567.new"]


def test_too_many_open_files_are_waited_for(tmp_path: Path) -> None:
    """Whoever can open connections to us can use up our descriptors for a while; that must not end us."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    held: list[int] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, before[0]), before[1]))
    try:
        with contextlib.suppress(OSError):
            while True:
                held.append(os.open(tmp_path, os.O_RDONLY))
        freed = threading.Timer(0.3, lambda: [os.close(held.pop()) for _ in range(5)])
        freed.start()
        atomicfile.write(tmp_path / "a", [b"kept"])
        freed.join()
    finally:
        for descriptor in held:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert (tmp_path / "a").read_bytes() == b"kept"


def test_too_many_open_files_are_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    def crowded() -> None:
        raise OSError(errno.ENFILE, "Too many open files in system")

    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    with pytest.raises(OSError, match="in system"):
        atomicfile.patiently(crowded)
    assert atomicfile.PATIENCE_SECONDS <= now[0] < 2 * atomicfile.PATIENCE_SECONDS
