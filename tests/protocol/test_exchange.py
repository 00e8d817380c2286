"""Shares from client to client under cancellation, and under a peer that wants to fill our memory."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from grpc import aio

from secfc import config, local, provision, rpc, wire
from secfc import kit as kits
from secfc.field import CHUNK_WORDS, Words
from secfc.kit import Kit
from secfc.sharing import Shares
from secfc.v1 import secfc_pb2 as pb
from secfc.v1 import secfc_pb2_grpc as stubs
from secfc_client import peers, turns
from secfc_client.participant import Participant
from secfc_client.peers import Exchange, GaveUp, Peers
from secfc_client.stages import Stage
from secfc_client.store import Store
from tests.protocol.joined import deal, introduced, make_federation
from tests.protocol.test_machines import Wired

AGREED = make_federation(3)
SECONDS = 20.0  # only ever waited for in full when a test fails


class Slow:
    """Where a stage puts shares: counts, and holds every thread that puts until it is let go."""

    def __init__(self) -> None:
        self.puts: list[int] = []
        self.entered, self.let_go = threading.Event(), threading.Event()

    def put(self, owner: int, words: Words) -> None:
        self.puts.append(owner)
        self.entered.set()
        assert self.let_go.wait(SECONDS)


def stage_of(machine: Participant, put: Callable[[int, Words], None]) -> Stage:
    """The machine's stage of rows, with another place to put shares."""
    real = machine.stage
    return Stage(real._me, real._names, real.ids, real._layouts, real._shares, put)


async def entered(slow: Slow) -> None:
    assert await asyncio.to_thread(slow.entered.wait, SECONDS)


# --- a share is used exactly once ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("again", ["keep_own", "settle"])
def test_a_share_is_used_once_although_its_user_is_cancelled_and_comes_again(tmp_path: Path, again: str) -> None:
    """Cancelling a thread's caller does not stop the thread. Used twice, a share spoils every row without an error."""
    _, receiver, _ = introduced(AGREED, deal(1, [5, 3, 2]))
    slow, words = Slow(), receiver.outgoing("c0")
    stage = stage_of(receiver, slow.put)
    exchange = Exchange(receiver, Store(tmp_path), lambda: None)

    def use() -> Awaitable[None]:
        if again == "keep_own":
            return exchange.keep_own(stage)
        return asyncio.to_thread(stage.settle, 0, words)

    async def scenario() -> None:
        first = asyncio.ensure_future(use())
        await entered(slow)
        first.cancel()
        await asyncio.sleep(0)
        second = asyncio.ensure_future(use())
        await asyncio.sleep(0.05)  # enough for it to be wrong; when it is right nothing happens meanwhile
        slow.let_go.set()
        await asyncio.wait({first, second}, timeout=SECONDS)
        assert first.cancelled()
        assert second.exception() is None

    asyncio.run(scenario())
    assert slow.puts == [1 if again == "keep_own" else 0]


def test_the_lock_is_not_free_before_the_thread_is_through(tmp_path: Path) -> None:
    _, receiver, _ = introduced(AGREED, deal(1, [5, 3, 2]))
    slow = Slow()
    exchange = Exchange(receiver, Store(tmp_path), lambda: None)

    async def scenario() -> None:
        first = asyncio.ensure_future(exchange.keep_own(stage_of(receiver, slow.put)))
        await entered(slow)
        first.cancel()
        await asyncio.sleep(0.01)
        assert exchange._settling.locked()
        slow.let_go.set()
        await asyncio.wait({first}, timeout=SECONDS)
        assert not exchange._settling.locked()

    asyncio.run(scenario())


def test_who_waits_for_the_lock_keeps_to_the_stage_it_came_for(tmp_path: Path) -> None:
    """An old exchange that is cancelled late must not begin the next stage's."""
    _, receiver, _ = introduced(AGREED, deal(1, [5, 3, 2]))
    old, new = Slow(), Slow()
    old.let_go.set()
    exchange = Exchange(receiver, Store(tmp_path), lambda: None)

    async def scenario() -> None:
        async with exchange._settling:
            waiting = asyncio.ensure_future(exchange.keep_own(stage_of(receiver, old.put)))
            await asyncio.sleep(0)
            receiver._stage = stage_of(receiver, new.put)
        await waiting

    asyncio.run(scenario())
    assert (old.puts, new.puts) == ([1], [])


def test_a_cut_connection_is_no_broken_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The write of a cancelled delivery and that of its repetition do not get into each other's way."""
    sender, receiver, _ = introduced(AGREED, deal(1, [5, 3, 2]))
    exchange = Exchange(receiver, Store(tmp_path), lambda: None)
    slow, sync = Slow(), os.fsync

    def first_is_slow(descriptor: int) -> None:
        if not slow.entered.is_set():
            slow.put(0, np.empty(0, np.uint64))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", first_is_slow)

    async def scenario() -> None:
        exchange.take(sender.name, sender.session, sender.stage.id, next(wire.chunks(sender.outgoing(receiver.name))))
        first = asyncio.ensure_future(exchange.settle(sender.name))
        await entered(slow)
        first.cancel()
        second = asyncio.ensure_future(exchange.settle(sender.name))
        await asyncio.sleep(0.05)
        slow.let_go.set()
        await asyncio.wait_for(second, SECONDS)

    asyncio.run(scenario())
    assert exchange.failure is None
    assert sender.name not in receiver.missing()


# --- gRPC's own cancellations -------------------------------------------------------------------------------------------


async def silent(peer: str, reason: str) -> None:
    return None


class Cutting(Wired):
    """A stub whose first delivery ends as gRPC may end it when a write fails."""

    cuts = 1

    async def Deliver(self, chunks: AsyncIterator[pb.ShareChunk], **options: object) -> pb.ShareReceipt:
        if self.cuts:
            self.cuts -= 1
            raise asyncio.CancelledError
        return await super().Deliver(chunks, **options)


class To:
    """A channel to a stub of the test's own."""

    def __init__(self, stub: object) -> None:
        self.stub = stub

    async def __aenter__(self) -> To:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None


def test_a_delivery_that_grpc_cancels_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task group takes CancelledError for somebody's wish, so nobody would ever notice."""
    sender, *others = introduced(AGREED, deal(1, [5, 3, 2]))
    wired = {one.name: Cutting(Exchange(one, Store(tmp_path / one.name), lambda: None), sender.name) for one in others}
    monkeypatch.setattr(rpc, "channel", lambda kit, party, address: To(wired[party]))
    monkeypatch.setattr(stubs, "ShareExchangeStub", lambda channel: channel.stub)
    monkeypatch.setattr(peers, "why_unreachable", lambda kit, party, address: found_nothing())
    asyncio.run(asyncio.wait_for(Peers(None, sender, silent).deliver_all(), SECONDS))  # type: ignore[arg-type]
    for one in others:
        assert sender.name not in one.missing()


async def found_nothing() -> str:
    return ""


# --- deadlines ----------------------------------------------------------------------------------------------------------


class Away:
    """A stub of a client that is not there."""

    async def Progress(self, request: object, **_: object) -> None:
        raise aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, aio.Metadata(), aio.Metadata(), "nobody there")

    def Fetch(self, request: object, **_: object) -> AsyncIterator[pb.ShareChunk]:
        async def nothing() -> AsyncIterator[pb.ShareChunk]:
            await self.Progress(request)
            yield pb.ShareChunk()

        return nothing()


@pytest.mark.parametrize("way", ["deliver", "fetch"])
def test_a_client_that_never_comes_is_given_up_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    me, *_ = introduced(AGREED, deal(1, [5, 3, 2]))
    monkeypatch.setattr(rpc, "channel", lambda kit, party, address: To(Away()))
    monkeypatch.setattr(stubs, "ShareExchangeStub", lambda channel: channel.stub)
    monkeypatch.setattr(peers, "why_unreachable", lambda kit, party, address: found_nothing())
    mine = Peers(None, me, silent, 0.1)  # type: ignore[arg-type]
    exchange = Exchange(me, Store(tmp_path), lambda: None)
    due = mine._deliver("c1") if way == "deliver" else mine._fetch(exchange, "c1")
    with pytest.raises(GaveUp, match=r"c1 for 0 s; start the same command again"):
        asyncio.run(asyncio.wait_for(due, SECONDS))


# --- memory -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Kit], list[Participant]]:
    """Three clients with certificates; the first has rows enough for a share set of several blocks."""
    made = local.describe(3, name="trial", k=2, features=40, max_rows=40_000, bound=16.0, privacy=1, precision=4)
    folder = tmp_path_factory.mktemp("ring") / "kits"
    provision.provision(made, folder)
    rows = [np.ones((size, 40), dtype=np.int64) for size in (24_000, 3, 2)]
    return [kits.load(folder / name) for name in made.roster], introduced(made, rows)


def raw(own: Kit, party: str, address: str) -> aio.Channel:
    """A channel of a peer that does as it likes."""
    credentials = grpc.ssl_channel_credentials(own.ca_pem, own.key_pem, own.certificate_pem)
    name = config.identity(own.federation.name, party)
    return aio.secure_channel(address, credentials, options=[("grpc.ssl_target_name_override", name)])


class Served:
    """A client's exchange behind a real port."""

    def __init__(self, kit: Kit, machine: Participant, folder: Path) -> None:
        self.exchange = Exchange(machine, Store(folder), lambda: None)
        self._kit, self._bind = kit, kit.federation.client(machine.name).bind

    async def __aenter__(self) -> Served:
        self._listener = rpc.server(self._kit)
        stubs.add_ShareExchangeServicer_to_server(self.exchange, self._listener)
        rpc.listen(self._listener, self._kit, self._bind)
        await self._listener.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._listener.stop(None)


def test_fetches_that_nobody_reads_hold_next_to_nothing(
    ring: tuple[list[Kit], list[Participant]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """120 calls that were opened and left took a client from 351 to 1266 MiB."""
    kit, machines = ring
    owner = machines[0]
    block, whole, alive, peaks = Shares._block, owner.stage.size, Counter[str](), []
    assert whole > 6 * CHUNK_WORDS, "else there is nothing to save"

    def counted(self: Shares, *args: Any) -> list[Words]:
        out = block(self, *args)
        for words in out:
            alive["words"] += len(words)
            weakref.finalize(words, alive.subtract, {"words": len(words)})
        peaks.append(alive["words"])
        return out

    monkeypatch.setattr(Shares, "_block", counted)

    async def scenario() -> tuple[list[Any], int]:
        async with Served(kit[0], owner, tmp_path), raw(kit[1], owner.name, address_of(kit[0])) as channel:
            stub = stubs.ShareExchangeStub(channel)
            request = pb.FetchRequest(session=owner.session, share_set=owner.stage.id)
            calls = [stub.Fetch(request, timeout=SECONDS) for _ in range(120)]
            ends = {asyncio.ensure_future(call.code()) for call in calls}
            while len([end for end in ends if end.done()]) < 118 or not peaks:
                await asyncio.sleep(0.02)
            await asyncio.sleep(0.3)  # they go on until what the network buffers is full
            refused = [end.result() for end in ends if end.done()]
            for call in calls:
                call.cancel()
            await asyncio.sleep(0.1)
            read = sum([len(message.words) // 8 async for message in stub.Fetch(request, timeout=SECONDS)])
            return refused, read

    refused, read = asyncio.run(asyncio.wait_for(scenario(), 3 * SECONDS))
    assert refused == [grpc.StatusCode.UNAVAILABLE] * 118, "two are served, one of which may hang on a dead connection"
    assert max(peaks) <= 5 * max(len(words) for _, words in owner.stage.pieces(1, 0)), "a block each, not a share set"
    assert read == whole, "whoever reads gets everything"


def test_calls_that_stall_are_ended(
    ring: tuple[list[Kit], list[Participant]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kit, machines = ring
    owner, receiver = machines[0], machines[1]
    monkeypatch.setattr(turns, "STALLED_SECONDS", 0.2)

    async def stalls() -> AsyncIterator[pb.ShareChunk]:
        await asyncio.sleep(SECONDS)
        yield pb.ShareChunk()

    async def scenario() -> grpc.StatusCode:
        async with (
            Served(kit[0], owner, tmp_path / "a") as served,
            Served(kit[1], receiver, tmp_path / "b"),
            raw(kit[1], owner.name, address_of(kit[0])) as to_owner,
            raw(kit[0], receiver.name, address_of(kit[1])) as to_receiver,
        ):
            request = pb.FetchRequest(session=owner.session, share_set=owner.stage.id)
            unread = stubs.ShareExchangeStub(to_owner).Fetch(request, timeout=SECONDS)
            held = served.exchange._fetches._open
            while not held[receiver.name]:
                await asyncio.sleep(0.01)
            while held[receiver.name]:
                await asyncio.sleep(0.01)
            unread.cancel()
            return await stubs.ShareExchangeStub(to_receiver).Deliver(stalls(), timeout=SECONDS).code()

    assert asyncio.run(asyncio.wait_for(scenario(), SECONDS)) is grpc.StatusCode.UNAVAILABLE


def address_of(kit: Kit) -> str:
    return kit.federation.client(kit.party_name).address


def test_a_newer_delivery_ends_the_older_ones(ring: tuple[list[Kit], list[Participant]], tmp_path: Path) -> None:
    kit, machines = ring
    owner, receiver = machines[0], machines[2]

    async def stalls() -> AsyncIterator[pb.ShareChunk]:
        await asyncio.sleep(SECONDS)
        yield pb.ShareChunk()

    async def complain(peer: str, reason: str) -> None:
        raise AssertionError(f"{peer}: {reason}")

    async def scenario() -> list[grpc.StatusCode]:
        async with (
            Served(kit[2], receiver, tmp_path) as served,
            raw(kit[0], receiver.name, address_of(kit[2])) as channel,
        ):
            stub, calls, newest = stubs.ShareExchangeStub(channel), [], served.exchange._deliveries._over
            for _ in range(10):
                before = newest.get(owner.name)
                calls.append(stub.Deliver(stalls(), timeout=SECONDS))
                while newest.get(owner.name) is before:
                    await asyncio.sleep(0.01)
            codes = [await asyncio.wait_for(call.code(), SECONDS) for call in calls[:-1]]
            assert not calls[-1].done()
            assert len(newest) == 1
            await Peers(kit[0], owner, complain)._attempt(stub, receiver.name)
            return [*codes, await calls[-1].code()]

    codes = asyncio.run(asyncio.wait_for(scenario(), 3 * SECONDS))
    assert codes == [grpc.StatusCode.FAILED_PRECONDITION] * 10
    assert owner.name not in receiver.missing(), "a delivery that is whole is taken"


def test_shares_made_piece_by_piece_are_the_same(ring: tuple[list[Kit], list[Participant]]) -> None:
    owner = ring[1][0]
    whole = owner.outgoing("client-2")
    assert owner.stage.size == len(whole)
    for first in (0, 1, CHUNK_WORDS + 7, len(whole) - 1, len(whole)):
        pieces = list(owner.stage.pieces(1, first))
        assert [at for at, _ in pieces] == [first + sum(len(w) for _, w in pieces[:i]) for i in range(len(pieces))]
        got = np.concatenate([words for _, words in pieces] or [np.empty(0, np.uint64)])
        np.testing.assert_array_equal(got, whole[first:])
