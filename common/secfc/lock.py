"""One process per state folder: a lock that the kernel gives back when its process ends, however it ends."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from secfc import limits
from secfc.errors import Unavailable

if sys.platform != "win32":
    import fcntl

FILE = "lock"


class Lock:
    """Held from its making until `release`, the end of its block or that of the process. On Windows, where no party is meant
    to run, nothing is locked."""

    def __init__(self, folder: Path, program: str) -> None:
        """Raises Unavailable if another process of that program works in that folder. Nothing there is touched before."""
        with limits.telling(f"{folder}: no state can be kept there", "choose another --state"):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._descriptor = os.open(folder / FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if sys.platform == "win32":
            return
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._descriptor)
            raise Unavailable(
                f"{folder}: another {program} runs with this state; wait for it, stop it, or choose another --state"
            ) from None
        except OSError as error:
            os.close(self._descriptor)
            raise limits.failure(error, f"{folder}: cannot be locked", "choose another --state") from None

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        os.close(self._descriptor)
