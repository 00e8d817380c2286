"""Work on threads that is never left half done."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def whole(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """`asyncio.to_thread`, but who cancels it waits until the thread is through. Under an asyncio lock nothing else will do:
    the lock would be free while the thread still goes on."""
    work = asyncio.ensure_future(asyncio.to_thread(call, *args, **kwargs))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        if not work.done():
            await asyncio.wait({work})
        if not work.cancelled():
            work.exception()  # seen: nobody waits for it any more
        raise
