"""How many calls of one peer are served at once: without a limit, whoever holds a certificate fills our memory with them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from secfc.errors import OutOfTurn, Unavailable

T = TypeVar("T")
STALLED_SECONDS = 600.0  # a stream of which nothing comes or goes for so long is ended


class Limit:
    """So many calls per peer; one more is asked to come later."""

    def __init__(self, most: int) -> None:
        self._most, self._open = most, Counter[str]()

    @contextmanager
    def turn(self, peer: str) -> Iterator[None]:
        if self._open[peer] >= self._most:
            raise Unavailable(f"{self._most} such calls of yours are under way already; end them, or try again later")
        self._open[peer] += 1
        try:
            yield
        finally:
            self._open[peer] -= 1


class Newest:
    """One stream per peer: a newer one ends the older, whose connection may be dead without our knowing."""

    def __init__(self) -> None:
        self._over: dict[str, asyncio.Event] = {}

    async def messages(self, peer: str, stream: AsyncIterator[T]) -> AsyncGenerator[T, None]:
        """The stream's messages; raises OutOfTurn as soon as a newer stream of the peer is here, and Unavailable if nothing
        comes for a long time. Close it (`aclosing`)."""
        if peer in self._over:
            self._over[peer].set()
        over = self._over[peer] = asyncio.Event()
        replaced = asyncio.ensure_future(over.wait())
        try:
            while True:
                following: asyncio.Future[Any] = asyncio.ensure_future(_following(stream))
                try:
                    waits = {following, replaced}
                    done, _ = await asyncio.wait(waits, timeout=STALLED_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                    if over.is_set():
                        raise OutOfTurn("a newer delivery of yours has begun")
                    if not done:
                        raise Unavailable(f"nothing has come for {STALLED_SECONDS:.0f} s; deliver the rest again")
                    found = following.result()
                finally:
                    following.cancel()
                if not found:
                    return
                yield found[0]
        finally:
            replaced.cancel()
            if self._over.get(peer) is over:
                del self._over[peer]


async def written(write: Awaitable[None]) -> None:
    """A message is off our hands; raises Unavailable if nobody takes it for a long time."""
    try:
        async with asyncio.timeout(STALLED_SECONDS):
            await write
    except TimeoutError:
        raise Unavailable(f"nothing was read for {STALLED_SECONDS:.0f} s; fetch the rest again") from None


async def _following(stream: AsyncIterator[T]) -> list[T]:
    """The next message, or nothing at the end of the stream."""
    async for message in stream:
        return [message]
    return []
