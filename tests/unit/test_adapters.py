"""RPC adapters while the disk is slow: what is told is kept, and whoever goes away is not counted as there."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from secfc.errors import StorageError
from secfc.net.driver import Driver
from secfc.net.exchange import Exchange
from secfc.protocol import messages
from secfc.protocol.effects import Arrived, Effects, Put
from secfc.protocol.parcels import Kind, Parcel
from secfc.protocol.server.inputs import Joined
from secfc.v1 import secfc_pb2 as pb
from secfc_server.service import Service
from tests.unit.test_coordinator import Server
from tests.unit.test_driver import Disk, settle

LOG = logging.getLogger("secfc.test")


class Aborted(Exception):
    """What gRPC raises in a handler that answers with an error."""


class Context:
    """A call by the client of this name."""

    def __init__(self, caller: str) -> None:
        self._caller = caller

    def auth_context(self) -> dict[str, list[bytes]]:
        return {"x509_subject_alternative_name": [f"{self._caller}.trial.secfc.internal".encode()]}

    def peer(self) -> str:
        return "a test"

    async def abort(self, code: Any, text: str) -> None:
        raise Aborted(text)


class Slow:
    """A server whose disk waits for the test; three of four clients have joined."""

    def __init__(self) -> None:
        self.server, self.disk = Server(), Disk([])
        self.server.join(0, 1, 3)
        self.driver = Driver(self.server.coordinator, self.disk, LOG)
        self.service = Service(self.server.coordinator, self.driver)

    def follow(self, j: int) -> asyncio.Task[pb.Event]:
        stream = self.service.Follow(pb.FollowRequest(instance=self.server.instance(j)), Context(f"c{j}"))
        return asyncio.ensure_future(anext(stream))

    async def busy(self) -> asyncio.Future[None]:
        """The last one joins, and everybody's introduction is to be kept."""
        self.disk.gate.clear()
        site = self.server.sites[2]
        join = messages.Join(self.server.federation.agreed(), site.instance, site.introduction())
        joining = asyncio.ensure_future(self.driver.take(Joined("c2", join)))
        await settle()
        return joining

    def connected(self, j: int) -> bool:
        return self.server.coordinator.job.members[f"c{j}"].connected


def test_a_follower_that_goes_away_while_the_disk_is_busy_is_not_connected() -> None:
    """It was counted as alive for ever, so that its next process was turned away as a second one."""

    async def play() -> None:
        slow = Slow()
        joining = await slow.busy()
        following = slow.follow(0)
        await settle()
        assert slow.connected(0)
        following.cancel()
        await settle()
        slow.disk.gate.set()
        await asyncio.gather(joining, following, return_exceptions=True)
        assert not slow.connected(0)

    asyncio.run(play())


def test_a_newer_follower_stays_connected_when_an_older_call_goes_away() -> None:
    async def play() -> None:
        slow = Slow()
        assert (await slow.follow(0)).WhichOneof("kind") == "waiting"
        joining = await slow.busy()
        older = slow.follow(0)
        await settle()
        slow.disk.gate.set()
        newer = slow.follow(0)
        await asyncio.gather(joining, newer)
        older.cancel()
        await asyncio.gather(older, return_exceptions=True)
        assert slow.connected(0)

    asyncio.run(play())


class Taking:
    """Has all of a parcel at once, and keeps it."""

    received = 0

    def handle(self, given: Any, now: float) -> Effects:
        if isinstance(given, Arrived):
            self.received = given.total
        return Effects([Put("parcel", b"")])

    def progress(self, sender: str, parcel: Parcel) -> int:
        return self.received


@pytest.mark.parametrize("fails", [False, True])
def test_a_parcel_is_said_to_be_here_once_it_is_kept(fails: bool) -> None:
    """Whoever hears that all of it is here does not send it again, even if we are killed now."""

    async def play() -> None:
        machine, disk = Taking(), Disk([])
        driver = Driver(machine, disk, LOG)
        exchange = Exchange(machine, driver, "trial")
        parcel = pb.Parcel(session=bytes(32), kind=pb.KIND_CENTERS, name=bytes(32))
        disk.gate.clear()
        disk.error = StorageError("full") if fails else None
        arrived = Arrived("c1", Parcel(bytes(32), Kind.CENTERS, bytes(32)), 0, 8, bytes(8))
        taking = asyncio.ensure_future(driver.take(arrived))
        await settle()
        asking = asyncio.ensure_future(exchange.Progress(parcel, Context("c1")))
        await settle()
        assert machine.received == 8
        assert not asking.done()
        disk.gate.set()
        await asyncio.gather(taking, asking, return_exceptions=True)
        assert isinstance(asking.exception(), Aborted) if fails else asking.result().received == 8

    asyncio.run(play())
