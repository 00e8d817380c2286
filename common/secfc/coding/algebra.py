"""galois, loaded where it is needed: half a second, and numba with it.

numba insists on a folder for what it compiles, and raises RuntimeError if it finds none that it can write, as under a service
account or on a read-only root. Then it gets a private one in memory, filled from what came with the image.
"""

from __future__ import annotations

import atexit
import importlib
import os
import shutil
import tempfile
from pathlib import Path
from types import ModuleType

from secfc.coding.kernels import FOLDER

_MEMORY = Path("/dev/shm")  # noqa: S108 - writable in a container whose root is not; only a private folder is made in it
_OF_NUMBA = "numba"  # in the folder of kernels


def galois() -> ModuleType:
    """The module. Raises OSError if nothing at all can be written."""
    try:
        return importlib.import_module("galois")
    except RuntimeError:
        config = importlib.import_module("numba.core.config")
        vars(config)["CACHE_DIR"] = _private()
        return importlib.import_module("galois")


def _private() -> str:
    folder = tempfile.mkdtemp(prefix="secfc-numba-", dir=_MEMORY if os.access(_MEMORY, os.W_OK) else None)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    shipped = Path(os.environ.get(FOLDER, folder), _OF_NUMBA)
    if shipped.is_dir():
        shutil.copytree(shipped, folder, dirs_exist_ok=True)
    return folder
