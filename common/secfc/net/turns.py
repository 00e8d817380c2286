"""How many deliveries of one peer are served at once, how much is sent to it, and for how long one may stand still: without a
limit, whoever holds a certificate fills our memory with them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Hashable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from secfc.errors import OutOfTurn, Unavailable

T = TypeVar("T")
STALLED_SECONDS = 600.0  # a stream of which nothing comes for so long is ended


class Limit:
    """So many calls per peer; one more is asked to come later."""

    def __init__(self, most: int) -> None:
        self._most, self._under_way = most, Counter[str]()

    @contextmanager
    def turn(self, peer: str) -> Iterator[None]:
        if self._under_way[peer] >= self._most:
            raise Unavailable(f"{self._most} such calls of yours are under way already; end them, or try again later")
        self._under_way[peer] += 1
        try:
            yield
        finally:
            self._under_way[peer] -= 1


class Room:
    """So many bytes under way; who has more waits until some have left."""

    def __init__(self, most: int) -> None:
        self._most, self._under_way, self._left = most, 0, asyncio.Event()

    async def enter(self, size: int) -> None:
        while self._under_way and self._under_way + size > self._most:
            self._left.clear()
            await self._left.wait()
        self._under_way += size

    def leave(self, size: int) -> None:
        self._under_way -= size
        self._left.set()


class Delivery:
    """A stream that a newer one may end: its connection may be dead without our knowing."""

    def __init__(self) -> None:
        self.replaced = False
        self.waiting: asyncio.Timeout | None = None  # for its next message

    def replace(self) -> None:
        self.replaced = True
        if self.waiting is not None:
            self.waiting.reschedule(asyncio.get_running_loop().time())


class Newest:
    """One delivery per key: a newer one ends the older."""

    def __init__(self) -> None:
        self._under_way: dict[Hashable, Delivery] = {}

    def begin(self, key: Hashable, delivery: Delivery) -> None:
        """A delivery turns out to be this."""
        older = self._under_way.get(key)
        if older is not None and older is not delivery:
            older.replace()
        self._under_way[key] = delivery

    @contextmanager
    def delivery(self) -> Iterator[Delivery]:
        delivery = Delivery()
        try:
            yield delivery
        finally:
            self._under_way = {key: one for key, one in self._under_way.items() if one is not delivery}


async def moving(stream: AsyncIterator[T], delivery: Delivery) -> AsyncIterator[T]:
    """The stream's messages; raises Unavailable if nothing comes for a long time, OutOfTurn once it is replaced."""
    while True:
        try:
            async with asyncio.timeout(STALLED_SECONDS) as delivery.waiting:
                message = await anext(stream)
        except StopAsyncIteration:
            return
        except TimeoutError:
            if not delivery.replaced:
                raise Unavailable(f"nothing has arrived for {STALLED_SECONDS:.0f} s; send the rest again") from None
        finally:
            delivery.waiting = None
        if delivery.replaced:
            raise OutOfTurn("a newer delivery of yours has begun")
        yield message
