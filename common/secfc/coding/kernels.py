"""The compiled kernels of `_kernels`, `_product` and `_tables`, loaded when the first one is called; those of
`_sealed_kernels` (docs/sealed.md) when `sealed()` is.

numba takes a good second to import, and planning, checking and provisioning never need it. Compiling takes much longer (some
15 s of one core) and holds up every other thread, so a program that others wait for calls `warm` before it talks to them.

Compiled code is kept where numba can write: in `NUMBA_CACHE_DIR`, beside the package, or in the user's cache folder. Where it
cannot write, or the disk is full, kernels are compiled for this process only.
"""

from __future__ import annotations

import atexit
import importlib
import logging
import os
import shutil
import tempfile
import threading
import time
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from secfc.logs import say

log = logging.getLogger("secfc.coding.kernels")
_OF_TABLES = ("insert_ids", "peel_ids")
_PLAIN, _SEALED = ("_kernels", "_product", "_tables"), "_sealed_kernels"
SHIPPED = "SECFC_KERNELS"  # names a folder of kernels compiled beforehand, which may be read-only
_MEMORY = Path("/dev/shm")  # noqa: S108 - writable in a container whose root is not; only a private folder is made in it
_loading = threading.RLock()  # threads that import the same modules at the same time can wait for each other for ever
kept = True  # whether what is compiled goes to disk; `_kernels` asks when it is loaded


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    with _loading:
        _use_shipped()
        _load(*_PLAIN)
    from secfc.coding import _kernels, _product

    if name in _OF_TABLES:
        from secfc.coding import _tables as home
    else:
        home = _product if name == "product" else _kernels
    globals()[name] = getattr(home, name)
    return globals()[name]


def sealed() -> ModuleType:
    """The kernels of sealed rounds, which only federations with sealed uploads load."""
    if _SEALED not in globals():
        with _loading:
            _use_shipped()
            _load(*_PLAIN, _SEALED)
        globals()[_SEALED] = importlib.import_module(f"secfc.coding.{_SEALED}")
    return cast("ModuleType", globals()[_SEALED])


def warm(*, with_sealed: bool = True) -> None:
    """Load the kernels now; from disk if they were compiled before, else the log says that they are being compiled."""
    if with_sealed:
        sealed()
    else:
        __getattr__("nearest")


def _load(*modules: str) -> None:
    """Load modules of kernels, and if numba finds no place for what it compiles, without keeping it."""
    global kept  # noqa: PLW0603 - one process has one set of kernels
    try:
        _import(*modules)
    except (OSError, RuntimeError) as error:  # numba's own word for "nowhere to write" is RuntimeError
        if not kept:
            raise
        kept = False
        why = error.strerror if isinstance(error, OSError) else "no folder of this user's can be written"
        advice = "set NUMBA_CACHE_DIR to a folder that this user can write"
        text = "compiled kernels cannot be kept, so every start compiles them again"
        say(log, text, level=logging.WARNING, reason=why, advice=advice)
        _import(*modules)


def _import(*modules: str) -> None:
    """Import modules of kernels, and say so if that compiles them."""
    from numba.core import event

    class Announced(event.Listener):
        """Says so when the first function is compiled; loading one from disk is no such event."""

        began: float | None = None

        def on_start(self, event: Any) -> None:
            if self.began is None:
                self.began = time.monotonic()
                often = "once" if kept else "for this process"
                say(log, f"compiling kernels for this machine, {often}; this takes 15 seconds to a minute")

        def on_end(self, event: Any) -> None:
            pass

    listener = Announced()
    with event.install_listener("numba:compile", listener):
        for name in modules:
            importlib.import_module(f"secfc.coding.{name}")
    if listener.began is not None:
        say(log, "kernels are compiled", seconds=round(time.monotonic() - listener.began, 1))


def _use_shipped() -> None:
    """Give numba a copy of the shipped kernels: it reads only where it could write, say because the processor differs."""
    shipped = os.environ.get(SHIPPED)
    if not shipped or "NUMBA_CACHE_DIR" in os.environ or not Path(shipped).is_dir():
        return
    try:
        folder = tempfile.mkdtemp(prefix="secfc-kernels-", dir=_MEMORY if os.access(_MEMORY, os.W_OK) else None)
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        os.environ["NUMBA_CACHE_DIR"] = shutil.copytree(shipped, Path(folder, "copy").as_posix())
    except OSError as error:
        reason = error.strerror or "not all files can be copied"  # copytree gathers errors of its own kind
        say(log, "the kernels shipped with the image cannot be used", level=logging.WARNING, reason=reason)
