"""The compiled kernels of `_kernels`, `_product` and `_tables`, loaded when the first one is called.

numba takes a good second to import, and planning, checking and provisioning never need it.
"""

from __future__ import annotations

from typing import Any

_OF_TABLES = ("insert_ids", "peel_ids")  # only private membership needs them


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
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
