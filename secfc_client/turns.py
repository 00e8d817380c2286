"""How many calls of one peer are served at once: without a limit, whoever holds a certificate fills our memory with them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from secfc.errors import OutOfTurn, Unavailable

T = TypeVar("T")


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
        """The stream's messages; raises OutOfTurn as soon as a newer stream of the peer is here. Close it (`aclosing`)."""
        if peer in self._over:
            self._over[peer].set()
        over = self._over[peer] = asyncio.Event()
        replaced = asyncio.ensure_future(over.wait())
        try:
            while True:
                following: asyncio.Future[Any] = asyncio.ensure_future(_following(stream))
                try:
                    await asyncio.wait({following, replaced}, return_when=asyncio.FIRST_COMPLETED)
                    if over.is_set():
                        raise OutOfTurn("a newer delivery of yours has begun")
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


async def _following(stream: AsyncIterator[T]) -> list[T]:
    """The next message, or nothing at the end of the stream."""
    async for message in stream:
        return [message]
    return []
