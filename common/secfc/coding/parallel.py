"""Threads for the kernels: contiguous ranges of rows, one a core, with BLAS itself held to one thread.

The kernels release the GIL, so plain threads scale; numba's own thread layer is avoided because it may not be entered
from several Python threads at once, which a server does.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext
from functools import cache

from threadpoolctl import ThreadpoolController

from secfc.errors import InvalidInput

ROW_GROUP = 6  # six rows always fill whole 64-bit words, an even number of them, so whole AES blocks too


@cache
def threads() -> int:
    """How many threads the kernels use: SECFC_THREADS, or every core this process may run on."""
    wish = os.environ.get("SECFC_THREADS")
    if wish is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not wish.isdigit() or int(wish) < 1:
        raise InvalidInput(f"SECFC_THREADS must be a positive whole number, not {wish!r}; unset it to use all cores")
    return int(wish)


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads(), thread_name_prefix="secfc-kernel")


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Keep BLAS from starting threads of its own inside ours."""
    with _blas().limit(limits=1, user_api="blas"):
        yield


def block_rows(row_bytes: int) -> int:
    """Rows of a block whose scratch stays in the second-level cache; a multiple of ROW_GROUP."""
    rows = min(1536, (384 << 10) // max(row_bytes, 1))
    return max(rows // ROW_GROUP, 1) * ROW_GROUP


def for_row_ranges(rows: int, step: int, work: Callable[[int, int], None], *, blas: bool = False) -> None:
    """Call work(first, end) on up to `threads()` ranges that cover [0, rows); each starts at a multiple of `step`.

    `blas` says that the work calls BLAS, which is then held to one thread (asking for that takes some 70 µs). The caller's
    thread does the first range itself: one thread less to wake.
    """
    blocks = -(-rows // step)
    parts = min(threads(), blocks)
    edges = [min(blocks * part // max(parts, 1) * step, rows) for part in range(max(parts, 1) + 1)]
    with single_threaded_blas() if blas else nullcontext():
        futures = [_pool().submit(work, a, b) for a, b in itertools.pairwise(edges[1:])]
        try:
            work(edges[0], edges[1])
        finally:
            wait(futures)
        for future in futures:
            future.result()
