"""The compiled kernels of `_kernels`, `_product` and `_tables`, loaded when the first one is called.

numba takes a good second to import, and planning, checking and provisioning never need it.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

_OF_TABLES = ("insert_ids", "peel_ids")  # only private membership needs them
SHIPPED = "SECFC_KERNELS"  # names a folder of kernels compiled beforehand, which may be read-only
_MEMORY = Path("/dev/shm")  # noqa: S108 - writable in a container whose root is not; only a private folder is made in it


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    _use_shipped()
    from secfc import _kernels, _product

    if name in _OF_TABLES:
        from secfc import _tables as home
    else:
        home = _product if name == "product" else _kernels
    globals()[name] = getattr(home, name)
    return globals()[name]


def warm() -> None:
    """Load all kernels now, e.g. on a thread while a process waits for others; from disk if they were compiled before."""
    __getattr__("nearest")
    __getattr__("insert_ids")


def _use_shipped() -> None:
    """Give numba a copy of the shipped kernels: it reads only where it could write, say because the processor differs."""
    shipped = os.environ.get(SHIPPED)
    if not shipped or "NUMBA_CACHE_DIR" in os.environ or not Path(shipped).is_dir():
        return
    folder = tempfile.mkdtemp(prefix="secfc-kernels-", dir=_MEMORY if os.access(_MEMORY, os.W_OK) else None)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ["NUMBA_CACHE_DIR"] = shutil.copytree(shipped, Path(folder, "copy").as_posix())
