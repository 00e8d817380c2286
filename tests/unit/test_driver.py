"""The driver: keep before send, in the order of the inputs, whatever happens to those who wait."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from secfc.errors import ConfigError, JobFailed, OutOfTurn, StorageError, Unavailable
from secfc.net.driver import Driver
from secfc.protocol import messages
from secfc.protocol.effects import Drop, Effects, Fact, Load, Put, Send, Work, Worked

LOG = logging.getLogger("secfc.test")


def effects(name: str, keep: bool = True, **more: Any) -> Effects:
    return Effects([Put(name, b"")] if keep else [], [Send("server", messages.Stopped(name))], **more)


class Machine:
    """Does as it is told: an input is the effects it has, or an error it raises."""

    def __init__(self) -> None:
        self.given: list[Any] = []

    def handle(self, given: Any, now: float) -> Effects:
        self.given.append(given)
        if isinstance(given, Exception):
            raise given
        return given if isinstance(given, Effects) else Effects()


class Disk:
    """Keeps when it is let."""

    def __init__(self, events: list[str]) -> None:
        self.events = events
        self.gate = threading.Event()
        self.gate.set()
        self.error: Exception | None = None

    def put(self, keep: Sequence[Put | Drop]) -> None:
        assert self.gate.wait(20.0)
        if self.error is not None:
            raise self.error
        self.events += [f"kept {one.key}" for one in keep]

    def get(self, key: str) -> bytes | None:
        return b"value of " + key.encode()


class Scene:
    def __init__(self) -> None:
        self.events: list[str] = []
        self.machine, self.disk = Machine(), Disk(self.events)
        self.driver = Driver(self.machine, self.disk, LOG, transmit=self.transmit)

    def transmit(self, send: Send) -> None:
        self.events.append(f"sent {send.message.reason}")


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_what_is_kept_is_on_disk_before_anything_leaves() -> None:
    async def play() -> list[str]:
        scene = Scene()
        await scene.driver.take(effects("a"))
        await scene.driver.take(effects("b", keep=False))
        return scene.events

    assert asyncio.run(play()) == ["kept a", "sent a", "sent b"]


class Ledger:
    def __init__(self, events: list[str]) -> None:
        self.events = events
        self.error: Exception | None = None

    def append(self, facts: Sequence[Fact]) -> None:
        if self.error is not None:
            raise self.error
        self.events += [f"recorded {fact.event}" for fact in facts]


def test_the_audit_file_comes_before_what_it_tells_of() -> None:
    async def play() -> list[str]:
        scene = Scene()
        scene.driver = Driver(scene.machine, scene.disk, LOG, transmit=scene.transmit, ledger=Ledger(scene.events))
        await scene.driver.take(effects("a", audit=[Fact("asked"), Fact("answered")]))
        await scene.driver.take(effects("b", keep=False, audit=[Fact("over")]))
        return scene.events

    assert asyncio.run(play()) == ["recorded asked", "recorded answered", "kept a", "sent a", "recorded over", "sent b"]


def test_what_cannot_be_recorded_does_not_happen() -> None:
    async def play() -> Scene:
        scene = Scene()
        ledger = Ledger(scene.events)
        scene.driver = Driver(scene.machine, scene.disk, LOG, transmit=scene.transmit, ledger=ledger)
        ledger.error = StorageError("full")
        with pytest.raises(Unavailable, match="cannot write what it must to its disk"):
            await scene.driver.take(effects("a", keep=False, audit=[Fact("answered")]))
        assert scene.driver.broken is ledger.error
        return scene

    assert asyncio.run(play()).events == []


def test_effects_leave_in_the_order_of_their_inputs() -> None:
    """What has nothing to keep waits for the disk too, if something before it does."""

    async def play() -> tuple[list[str], list[str]]:
        scene = Scene()
        scene.disk.gate.clear()
        waiting = [asyncio.ensure_future(scene.driver.take(effects(name, name != "b"))) for name in "abc"]
        await settle()
        before = list(scene.events)
        scene.disk.gate.set()
        await asyncio.gather(*waiting)
        return before, scene.events

    before, after = asyncio.run(play())
    assert before == []
    assert after == ["kept a", "sent a", "sent b", "kept c", "sent c"]


def test_a_caller_that_goes_away_loses_no_effects() -> None:
    async def play() -> list[str]:
        scene = Scene()
        scene.disk.gate.clear()
        caller = asyncio.ensure_future(scene.driver.take(effects("a")))
        await settle()
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        scene.disk.gate.set()
        await scene.driver.take(effects("b"))
        return scene.events

    assert asyncio.run(play()) == ["kept a", "sent a", "kept b", "sent b"]


@pytest.mark.parametrize(
    "error", [StorageError("full"), ConfigError("damaged"), OSError(28, "No space left on device")]
)
def test_a_disk_that_fails_stops_everything_and_nothing_leaves(error: Exception) -> None:
    async def play() -> Scene:
        scene = Scene()
        scene.disk.gate.clear()
        scene.disk.error = error
        waiting = [asyncio.ensure_future(scene.driver.take(effects(name, name == "a"))) for name in "ab"]
        await settle()
        scene.disk.gate.set()
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(isinstance(result, Unavailable) for result in results), results
        with pytest.raises(Unavailable, match="cannot write what it must to its disk"):
            await scene.driver.take(effects("c", keep=False))
        return scene

    scene = asyncio.run(play())
    assert scene.events == []
    assert scene.driver.broken is not None
    assert len(scene.machine.given) == 2, "the machine hears nothing more"


def test_a_refusal_with_effects_is_raised_when_they_are_carried_out() -> None:
    async def play() -> list[str]:
        scene = Scene()
        with pytest.raises(OutOfTurn, match="no"):
            await scene.driver.take(effects("liar", refusal=OutOfTurn("no")))
        return scene.events

    assert asyncio.run(play()) == ["kept liar", "sent liar"]


def test_an_input_that_is_refused_has_no_effects() -> None:
    async def play() -> list[str]:
        scene = Scene()
        with pytest.raises(OutOfTurn, match="too early"):
            await scene.driver.take(OutOfTurn("too early"))
        return scene.events

    assert asyncio.run(play()) == []


def results(*work: Work | Load) -> tuple[list[Worked], Scene]:
    async def play() -> Scene:
        scene = Scene()
        await scene.driver.take(Effects(work=list(work)))
        for _ in range(200):
            if scene.driver.broken is not None or len(scene.machine.given) > len(work):
                break
            await asyncio.sleep(0.01)
        return scene

    scene = asyncio.run(play())
    return [given for given in scene.machine.given if isinstance(given, Worked)], scene


def fails(error: Exception) -> Any:
    raise error


def test_work_is_done_on_a_thread_and_comes_back_as_an_input() -> None:
    here = threading.get_ident()
    [done], _ = results(Work(("sum", 1), lambda: threading.get_ident() != here))
    assert (done.name, done.result, done.error) == (("sum", 1), True, None)
    [loaded], _ = results(Load(("kept", 2), "shares/a/00"))
    assert (loaded.name, loaded.result) == (("kept", 2), b"value of shares/a/00")


def test_work_that_fails_is_told_to_the_machine() -> None:
    [ours], _ = results(Work(("sum",), lambda: fails(JobFailed("a lie"))))
    assert str(ours.error) == "a lie"
    [other], scene = results(Work(("sum",), lambda: fails(ZeroDivisionError("x"))))
    assert isinstance(other.error, JobFailed)
    assert str(other.error) == "the sum could not be computed (ZeroDivisionError); the log says more"
    assert scene.driver.broken is None


@pytest.mark.parametrize("error", [MemoryError(), OSError(24, "Too many open files"), StorageError("full")])
def test_a_machine_that_lacks_something_ends_the_process_and_not_the_job(error: Exception) -> None:
    told, scene = results(Work(("sum",), lambda: fails(error)))
    assert told == []
    assert isinstance(scene.driver.broken, StorageError | ConfigError)


def test_nobody_is_shown_a_state_that_is_not_kept() -> None:
    async def play() -> tuple[bool, bool]:
        scene = Scene()
        scene.disk.gate.clear()
        taking = asyncio.ensure_future(scene.driver.take(effects("a")))
        await asyncio.sleep(0)
        showing = asyncio.ensure_future(scene.driver.settled())
        await settle()
        early = showing.done()
        scene.disk.gate.set()
        await taking
        return early, await showing

    assert asyncio.run(play()) == (False, True)


def test_what_cannot_be_kept_is_never_shown() -> None:
    async def play() -> bool:
        scene = Scene()
        scene.disk.error = StorageError("full")
        with pytest.raises(Unavailable):
            await scene.driver.take(effects("a"))
        return await scene.driver.settled()

    assert asyncio.run(play()) is False


def test_a_machine_that_cannot_take_time_ends_the_process() -> None:
    """Without ticks no deadline would ever pass."""

    class Broken(Machine):
        def handle(self, given: Any, now: float) -> Effects:
            raise JobFailed("no way on")

    async def play() -> Driver:
        driver = Driver(Broken(), Disk([]), LOG)
        await asyncio.wait_for(driver.ticking(), 20.0)
        return driver

    assert str(asyncio.run(play()).broken) == "no way on"
