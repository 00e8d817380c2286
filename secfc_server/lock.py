"""One server per state folder: a lock that the kernel gives back when its process ends, however it ends."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from secfc import limits
from secfc.errors import Unavailable

FILE = "lock"


class Lock:
    """Held from its making until `release` or the end of the process."""

    def __init__(self, folder: Path) -> None:
        """Raises Unavailable if another server works in that folder. Nothing there is touched before."""
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._descriptor = os.open(folder / FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise limits.failure(error, f"{folder}: no state can be kept there", "choose another --state") from None
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._descriptor)
            raise Unavailable(
                f"{folder}: another secfc-server runs with this state; wait for it, stop it, or choose another --state"
            ) from None
        except OSError as error:
            os.close(self._descriptor)
            raise limits.failure(error, f"{folder}: cannot be locked", "choose another --state") from None

    def release(self) -> None:
        os.close(self._descriptor)
