"""What a machine can run out of: descriptors, room on its disk, memory. Nobody has to fix an option or a file for that, so it
is a `StorageError` of its own machine: waiting or making room heals it, and the same command goes on.
"""

from __future__ import annotations

import ctypes
import errno
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from secfc.errors import ConfigError, StorageError

if sys.platform != "win32":
    import resource

# Passes by itself, most often within seconds: try again.
TRANSIENT = frozenset({errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.EINTR, errno.ENOMEM, errno.ENOBUFS})
# Passes when somebody has made room or the device answers again: end, and go on when started again.
LACKING = TRANSIENT | {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ESTALE, errno.ETIMEDOUT}
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # names in malloc.h
_TRIM_BYTES, _MMAP_BYTES = 64 << 20, 32 << 20  # the latter is the most that glibc takes
_LEAST_CONNECTIONS, _MOST_CONNECTIONS = 16, 1 << 16


def failure(error: OSError, where: str, cure: str) -> ConfigError | StorageError:
    """The error to end with: what the machine lacks may be there at the next start; anything else needs `cure`."""
    what = f"{where} ({error.strerror or error})"
    if error.errno in TRANSIENT:
        return StorageError(f"{what}; this machine is short of descriptors or memory: start the same command again")
    if error.errno in LACKING:
        return StorageError(f"{what}; make room there, then start the same command again: nothing is lost")
    return ConfigError(f"{what}; {cure}")


@contextmanager
def telling(where: str, cure: str) -> Iterator[None]:
    """What the block cannot do with a file is raised as `failure`."""
    try:
        yield
    except OSError as error:
        raise failure(error, where, cure) from None


def raise_descriptors() -> None:
    """Let this process open as many descriptors as its hard limit allows."""
    if sys.platform == "win32":
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(OSError, ValueError):  # a sandbox may forbid it: then what there is must do
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def keep_memory() -> None:
    """Let freed memory stay with this process, up to 64 MiB: glibc would give the buffers of every large message back to the
    system, which then has to find and clear each page of the next ones."""
    if sys.platform == "linux":
        with suppress(AttributeError, OSError):  # another C library
            mallopt = ctypes.CDLL(None).mallopt
            mallopt(_M_MMAP_THRESHOLD, _MMAP_BYTES)
            mallopt(_M_TRIM_THRESHOLD, _TRIM_BYTES)


def connections() -> int:
    """How many connections others may have open to us at once: half of all descriptors, so that the other half is left for
    our own connections and files, whatever strangers do."""
    if sys.platform == "win32":
        return _MOST_CONNECTIONS
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return _MOST_CONNECTIONS
    return min(max(soft // 2, _LEAST_CONNECTIONS), _MOST_CONNECTIONS)
