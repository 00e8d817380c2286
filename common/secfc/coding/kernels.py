"""The compiled inner loops of the modules beside this one, loaded when the first of them is called.

numba compiles them, which takes some 15 s of one core and holds up every other thread: once per machine, and a program that
others wait for calls `warm` before it talks to them. The result is one file of machine code, for this source and this
processor, in the folder that `SECFC_KERNELS` names, else beside the package or in the user's cache folder. Later starts load
it with LLVM alone, in about 0.05 s of CPU; numba, which takes half a second to import, stays out.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from secfc import atomicfile
from secfc.logs import say

log = logging.getLogger("secfc.coding.kernels")
FOLDER = "SECFC_KERNELS"  # may be read-only, if what it holds was made for this processor
SCAN = 256  # words looked at together when searching for the rare candidate that must be rejected
_SOURCES = Path(__file__).parent
_loading = threading.Lock()
_loaded: dict[str, Callable[..., Any]] = {}


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    warm()
    if name not in _loaded:
        raise AttributeError(name)
    globals()[name] = _loaded[name]
    return _loaded[name]


def warm() -> None:
    """Load the kernels now; from disk if they were compiled before, else the log says that they are being compiled."""
    with _loading:
        if not _loaded:
            _loaded.update(_load())


def _load() -> dict[str, Callable[..., Any]]:
    from secfc.coding import _machine

    name = f"kernels-{_key()}.bin"
    for folder in _folders():
        if (found := _read(folder / name)) is not None:
            return _machine.load(*found)
    say(log, "compiling kernels for this machine, once; this takes 15 seconds to a minute")
    began = time.monotonic()
    entries, code = importlib.import_module("secfc.coding._compiling").compile_all()
    say(log, "kernels are compiled", seconds=round(time.monotonic() - began, 1))
    _keep(name, json.dumps(entries).encode() + b"\n" + code)
    return _machine.load(entries, code)


def _key() -> str:
    """Names the source of the kernels, the compiler and the processor."""
    import llvmlite

    from secfc.coding import _machine

    digest = hashlib.sha256(repr((llvmlite.__version__, _machine.processor())).encode())
    for path in sorted(_SOURCES.glob("_*.py")):
        digest.update(path.name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:24]


def _folders() -> Iterable[Path]:
    """Where kernels may be kept, best first."""
    if chosen := os.environ.get(FOLDER):
        return [Path(chosen)]
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return [_SOURCES / "__pycache__", Path(cache, "secfc")]


def _read(path: Path) -> tuple[list[Any], bytes] | None:
    """What `_keep` has written, if it is there and whole."""
    try:
        whole = path.read_bytes()
    except OSError:
        return None
    if hashlib.sha256(whole[32:]).digest() != whole[:32]:
        return None
    entries, _, code = whole[32:].partition(b"\n")
    return json.loads(entries), code


def _keep(name: str, value: bytes) -> None:
    """Write to the first folder that takes it; if none does, this process goes on with what it has compiled."""
    reasons = []
    for folder in _folders():
        try:
            folder.mkdir(parents=True, exist_ok=True)
            atomicfile.write(folder / name, [hashlib.sha256(value).digest(), value], mode=0o644)
        except OSError as error:
            reasons.append(f"{folder}: {error.strerror}")
        else:
            return
    text = "compiled kernels cannot be kept, so every start compiles them again"
    advice = f"set {FOLDER} to a folder that this user can write"
    say(log, text, level=logging.WARNING, reason="; ".join(reasons), advice=advice)
