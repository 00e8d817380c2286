"""The compiled kernels of `_kernels`, loaded when the first one is called.

numba takes a good second to import, and planning, checking and provisioning never need it.
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    from secfc import _kernels, _product

    globals()[name] = getattr(_product if name == "product" else _kernels, name)
    return globals()[name]


def warm() -> None:
    """Load all kernels now, e.g. on a thread while a process waits for others; from disk if they were compiled before."""
    __getattr__("nearest")
