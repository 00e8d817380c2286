"""Carries out what a machine wants done, in one order: audit, keep, send, work. The same for server and client.

Inputs are handled as they come; effects are carried out in the order of the inputs, and nothing of an input's effects leaves
before they, and those of every input before it, are kept. If something cannot be kept, nothing leaves any more, and the
process ends: what is not kept must not be relied on.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

from secfc import limits
from secfc.coding.blocks import Packed
from secfc.errors import ConfigError, JobFailed, SecfcError, StorageError, Unavailable
from secfc.logs import say
from secfc.protocol.effects import Drop, Effects, Fact, Load, Put, Send, Tick, Work, Worked

TICK_SECONDS = 0.1


class Machine(Protocol):
    """What a driver drives."""

    def handle(self, given: Any, now: float) -> Effects: ...


class Disk(Protocol):
    """Where values are kept under keys. `put` is all or nothing, and on disk when it returns."""

    def put(self, keep: Sequence[Put | Drop]) -> None: ...

    def get(self, key: str) -> bytes | Packed | None: ...


class Ledger(Protocol):
    """An audit file. What is appended is on disk when `append` returns."""

    def append(self, facts: Sequence[Fact]) -> None: ...


class Driver:
    """One machine, its disk, its audit file and its threads. `transmit` sends a message; `look` is called after every change;
    `clock` is the machine's time."""

    def __init__(
        self,
        machine: Machine,
        disk: Disk,
        log: logging.Logger,
        *,
        ledger: Ledger | None = None,
        transmit: Callable[[Send], None] = lambda _: None,
        look: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.now = clock
        self._machine, self._disk, self._log, self._ledger = machine, disk, log, ledger
        self._transmit, self._look = transmit, look
        self._tasks: set[asyncio.Task[Any]] = set()
        self._order = asyncio.Lock()  # held while something is being kept
        self._unkept = 0  # inputs that were handled, and whose effects wait for the disk
        self._idle = asyncio.Event()
        self.broken: SecfcError | None = None  # why this process must end; started again, it can go on

    async def take(self, given: Any) -> None:
        """Hand an input to the machine, and return once its effects are carried out (work is begun, not done)."""
        if self.broken is not None:
            raise Unavailable("it cannot write what it must to its disk, and is stopping; its log says why")
        effects = self._machine.handle(given, self.now())
        if effects.keep or self._unkept or (effects.audit and self._ledger is not None):
            self._unkept += 1  # at once: the task begins later, and nothing may overtake it
            self._idle.clear()
            await asyncio.shield(self.spawn(self._in_order(effects)))  # whoever waits may go away; the effects may not
        else:
            self._release(effects)
        if effects.refusal is not None:
            raise effects.refusal

    async def _in_order(self, effects: Effects) -> None:
        async with self._order:
            if self.broken is None and (effects.keep or effects.audit):
                try:
                    await asyncio.to_thread(self._write, effects)
                except (ConfigError, StorageError) as error:
                    self.broken = error
                except (OSError, MemoryError) as error:
                    self.broken = _machine_lacks(error)
            self._unkept -= 1
            if not self._unkept:
                self._idle.set()
            if self.broken is None:
                self._release(effects)
        if self.broken is not None:
            self._look()
            raise Unavailable("it cannot write what it must to its disk, and is stopping; its log says why")

    def _write(self, effects: Effects) -> None:
        """The audit file first: after a crash between the two it may tell of what was not kept, never lack what was."""
        if effects.audit and self._ledger is not None:
            self._ledger.append(effects.audit)
        if effects.keep:
            self._disk.put(effects.keep)

    async def settled(self) -> bool:
        """Wait until all that was handled is kept: until then nobody may be shown where the machine stands. False if it
        cannot be kept."""
        while self._unkept and self.broken is None:
            await self._idle.wait()
        return self.broken is None

    async def kept(self) -> None:
        """Wait until what was handled by now is kept; raises Unavailable if it cannot be."""
        if self._unkept:
            self._unkept += 1
            await asyncio.shield(self.spawn(self._in_order(Effects())))

    def _release(self, effects: Effects) -> None:
        for send in effects.send:
            self._transmit(send)
        for work in effects.work:
            self.spawn(self._work(work))
        for note in effects.note:
            say(self._log, note.text, level=note.level, **note.fields)
        self._look()

    def spawn(self, due: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """A task of its own that is not forgotten."""
        task = asyncio.ensure_future(due)
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not isinstance(error, SecfcError):
            self._log.error("an internal error in a task", exc_info=error)
            self._break(JobFailed(f"an internal error ({type(error).__name__}); the log says more"))

    async def _work(self, work: Work | Load) -> None:
        started = self.now()
        try:
            run = work.run if isinstance(work, Work) else lambda: self._disk.get(work.key)
            result = await asyncio.to_thread(run)
        except (SecfcError, OSError, MemoryError, ArithmeticError, RuntimeError, ValueError) as error:
            await self.failed(work.name, error, self.now() - started)
        else:
            await self.take(Worked(work.name, result, None, self.now() - started))

    async def failed(self, name: tuple[Any, ...], error: Exception, seconds: float = 0.0) -> None:
        """Computing has raised: the machine hears of it, unless it is this computer that lacks something."""
        if isinstance(error, ConfigError | StorageError):
            self._break(error)
        elif isinstance(error, OSError | MemoryError):
            self._break(_machine_lacks(error))
        elif isinstance(error, SecfcError):
            await self.take(Worked(name, None, error, seconds))
        else:
            say(self._log, "computing failed", level=logging.ERROR, error=repr(error))
            why = f"the {name[0]} could not be computed ({type(error).__name__}); the log says more"
            await self.take(Worked(name, None, JobFailed(why), seconds))

    def _break(self, error: SecfcError) -> None:
        self.broken = self.broken or error
        self._look()

    async def ticking(self) -> None:
        """Let time pass, until cancelled. A machine that cannot take it would wait for ever, so this process ends then."""
        while self.broken is None:
            try:
                await self.take(Tick())
            except SecfcError as error:
                self._break(error)
            await asyncio.sleep(TICK_SECONDS)

    def end(self) -> None:
        """Leave everything that is still under way."""
        for task in self._tasks:
            task.cancel()


def _machine_lacks(error: OSError | MemoryError) -> SecfcError:
    if isinstance(error, MemoryError):
        return StorageError("out of memory; free some, then start the same command again to go on")
    return limits.failure(error, "this machine cannot go on", "see what is wrong with it")
