"""Parcels between real ports in one process: under cancellation, cuts, and peers that want to fill our memory."""

from __future__ import annotations

import asyncio
import logging
import threading
import weakref
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Any

import grpc
import numpy as np
import pytest
from grpc import aio

from secfc import local
from secfc.agreement import federation as federations
from secfc.coding.sharing import Shares
from secfc.errors import Malformed, StorageError, Unavailable
from secfc.net import exchange, link, rpc, turns, wire
from secfc.net.driver import Driver
from secfc.net.exchange import Exchange
from secfc.net.link import Link
from secfc.pki import kit as kits
from secfc.pki import provision
from secfc.pki.kit import Kit
from secfc.protocol import messages, transfer
from secfc.protocol.client.inputs import Unsent
from secfc.protocol.client.participant import Participant
from secfc.protocol.client.stages import ShareBody, Stage
from secfc.protocol.effects import Arrived, Drop, Effects, Put, Send, Tick, Work, Worked
from secfc.protocol.messages import Phase
from secfc.protocol.parcels import Kind, Parcel, Whole
from secfc.v1 import secfc_pb2 as pb
from secfc.v1 import secfc_pb2_grpc as stubs
from tests.parties import deal, make_federation
from tests.protocol.bench import Bench, is_parcel

SECONDS = 120.0  # only ever waited for in full when a test fails
log = logging.getLogger("secfc.test")


class Sharing(Bench):
    """A job whose clients share their rows; what they give each other is held back."""

    def __init__(self, federation: Any = None, rows: Any = None) -> None:
        super().__init__(federation or make_federation(3), deal(1, [5, 3, 2]) if rows is None else rows)
        self.shares: list[tuple[str, Send]] = []
        self.start()
        self.until(lambda: len(self.shares) >= 2 * len(self.clients) and not self._todo)
        assert {client.phase for client in self.clients.values()} == {Phase.SHARING}

    def _transmit(self, sender: str, send: Send) -> None:
        if is_parcel(send.message, Kind.SHARES):
            self.shares.append((sender, send))
        else:
            super()._transmit(sender, send)

    def share(self, sender: str, to: str) -> Send:
        [send] = [send for who, send in self.shares if (who, send.to) == (sender, to)]
        return send

    def pieces(self, sender: str, to: str) -> list[Arrived]:
        send = self.share(sender, to)
        assert send.body is not None
        total = send.body.total
        return [Arrived(sender, send.message, at, total, data) for at, data in transfer.pieces(send.body)]


def used(effects: Effects) -> list[Any]:
    """The work that uses shares."""
    return [work for work in effects.work if work.name[0] == "used"]


# --- a share is used exactly once ------------------------------------------------------------------------------------------


def test_a_share_is_used_once_although_it_comes_again_and_again() -> None:
    """Used twice, a share spoils every row without an error."""
    job = Sharing()
    machine = job.clients["c1"]
    works: list[Any] = []
    for _ in range(3):  # while it is being used
        for piece in job.pieces("c0", "c1"):
            works += used(machine.handle(piece, job.now))
    assert len(works) == 1
    works[0].run()
    machine.handle(Worked(works[0].name), job.now)
    for piece in job.pieces("c0", "c1"):  # and when it was
        effects = machine.handle(piece, job.now)
        assert not effects.work
        assert not effects.keep
    assert machine.progress("c0", job.share("c0", "c1").message) == job.pieces("c0", "c1")[0].total


def test_shares_are_used_one_at_a_time() -> None:
    """What adds them up runs on threads, and two at once would spoil the sum."""
    job = Sharing()
    machine = job.clients["c2"]
    [first] = [
        work for sender in ("c0", "c1") for p in job.pieces(sender, "c2") for work in used(machine.handle(p, 0.0))
    ]
    [second] = used(machine.handle(Worked(first.name), 0.0))
    assert first.name != second.name


def test_work_of_another_stage_counts_for_nothing() -> None:
    done: list[int] = []
    job = Sharing()
    body = job.share("c1", "c0").body
    assert isinstance(body, ShareBody)
    layout = body.shares.layout
    stage = Stage(
        1, ("c0", "c1"), bytes(32), [b"a", b"b"], [layout] * 2, body.shares, lambda owner, _: done.append(owner)
    )
    out = Effects()
    stage.begin(False, out)
    [work] = out.work
    assert isinstance(work, Work)
    work.run()
    assert stage.worked(Worked(("used", b"of the stage before", 1)), out) is None
    assert stage.missing() == [0, 1]
    stage.worked(Worked(work.name), out)
    assert (stage.missing(), done) == ([0], [1])


def test_a_client_that_asks_for_its_shares_again_and_again_is_sent_them_once_at_a_time() -> None:
    """120 calls that were opened and left took a client from 351 to 1266 MiB."""
    job = Sharing()
    for name in ("c1", "c2"):
        job.give("c0", Unsent(job.share("c0", name), Unavailable("away")))
    wanted = Parcel(job.clients["c0"].session, Kind.WANTED, job.share("c0", "c1").message.name)
    sent = []
    for _ in range(120):
        effects = job.clients["c0"].handle(Arrived("c1", wanted, 0, 0, b""), job.now + 10)
        sent += [send for send in effects.send if is_parcel(send.message, Kind.SHARES)]
    assert Counter(send.to for send in sent)["c1"] == 1


# --- the driver --------------------------------------------------------------------------------------------------------


class SlowDisk:
    """Counts what is being written, and holds the first write until it is let go."""

    def __init__(self) -> None:
        self.kept: list[str] = []
        self.entered, self.let_go = threading.Event(), threading.Event()
        self.broken: Exception | None = None

    def put(self, keep: Sequence[Put | Drop]) -> None:
        self.entered.set()
        assert self.let_go.wait(SECONDS)
        if self.broken is not None:
            raise self.broken
        self.kept += [one.key for one in keep]

    def get(self, key: str) -> bytes | None:
        return None


class Echo:
    """A machine that wants its input kept, then sent."""

    def handle(self, given: str, now: float) -> Effects:
        out = Effects()
        out.put(given)
        out.send.append(Send("peer", given))
        return out


def driven() -> tuple[Driver, SlowDisk, list[str]]:
    disk, sent = SlowDisk(), list[str]()
    return Driver(Echo(), disk, log, transmit=lambda send: sent.append(f"{send.message} after {disk.kept}")), disk, sent


def test_a_cut_connection_is_no_broken_disk() -> None:
    """Whoever waits may go away; what its input brought is kept all the same, in order, and sent only after that."""

    async def scenario() -> tuple[Driver, SlowDisk, list[str]]:
        driver, disk, sent = driven()
        first = asyncio.ensure_future(driver.take("a"))
        assert await asyncio.to_thread(disk.entered.wait, SECONDS)
        first.cancel()
        second = asyncio.ensure_future(driver.take("b"))
        await asyncio.sleep(0.05)  # enough for it to be wrong; when it is right nothing happens meanwhile
        assert not sent
        disk.let_go.set()
        await asyncio.wait_for(second, SECONDS)
        assert first.cancelled()
        return driver, disk, sent

    driver, disk, sent = asyncio.run(scenario())
    assert driver.broken is None
    assert disk.kept == ["a", "b"]
    assert sent == ["a after ['a']", "b after ['a', 'b']"]


def test_nothing_leaves_once_something_could_not_be_kept() -> None:
    async def scenario() -> tuple[Driver, list[str]]:
        driver, disk, sent = driven()
        disk.broken = StorageError("no room")
        disk.let_go.set()
        for given in ("a", "b"):
            with pytest.raises(Unavailable, match="cannot write what it must"):
                await driver.take(given)
        return driver, sent

    driver, sent = asyncio.run(scenario())
    assert isinstance(driver.broken, StorageError)
    assert not sent


# --- real ports ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> list[Kit]:
    """Three clients with certificates."""
    made = local.describe(3, name="trial", k=2, features=40, max_rows=40_000, bound=16.0, privacy=1, precision=4)
    folder = tmp_path_factory.mktemp("ring") / "kits"
    provision.provision(made, folder)
    return [kits.load(folder / name) for name in made.roster]


@pytest.fixture
def job(ring: list[Kit]) -> Sharing:
    """The first client has rows enough for a share set of several blocks."""
    return Sharing(ring[0].federation, [np.ones((size, 40), dtype=np.int64) for size in (24_000, 3, 2)])


class NoDisk:
    def put(self, keep: Sequence[Put | Drop]) -> None:
        return None

    def get(self, key: str) -> bytes | None:
        return None


class Served:
    """A client's exchange behind a real port."""

    def __init__(self, kit: Kit, machine: Participant, servicer: Any = None) -> None:
        self.driver = Driver(machine, NoDisk(), log)
        self.exchange = servicer or Exchange(machine, self.driver, kit.federation.name)
        self._kit, self._bind = kit, kit.federation.client(machine.site.name).bind

    async def __aenter__(self) -> Served:
        self._listener = rpc.server(self._kit)
        stubs.add_ExchangeServicer_to_server(self.exchange, self._listener)
        rpc.listen(self._listener, self._kit, self._bind)
        await self._listener.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.driver.end()
        await self._listener.stop(None)


def raw(own: Kit, kit: Kit) -> aio.Channel:
    """A channel of a peer that does as it likes, to another."""
    credentials = grpc.ssl_channel_credentials(own.ca_pem, own.key_pem, own.certificate_pem)
    name = federations.identity(own.federation.name, kit.party_name)
    address = kit.federation.client(kit.party_name).address
    return aio.secure_channel(address, credentials, options=[("grpc.ssl_target_name_override", name)])


def test_a_delivery_that_breaks_off_goes_on_where_it_stopped(ring: list[Kit], job: Sharing) -> None:
    """What has arrived is not sent twice."""
    send, receiver = job.share("client-1", "client-2"), job.clients["client-2"]
    assert send.body is not None
    arrived: list[int] = []

    async def scenario() -> None:
        dialler = Link(ring[0])
        async with Served(ring[1], receiver) as served:
            take = served.driver.take

            async def breaks(given: Any) -> None:
                if len(arrived) == 3:
                    arrived.append(-1)
                    raise Unavailable("a cut")
                arrived.append(given.offset)
                await take(given)

            served.driver.take = breaks  # type: ignore[method-assign]
            with pytest.raises(Unavailable):
                await dialler.deliver(send.to, send.message, send.body)
            had = receiver.progress("client-1", send.message)
            assert 0 < had < send.body.total
            await dialler.deliver(send.to, send.message, send.body)
            assert arrived[arrived.index(-1) + 1] == had
        await dialler.close()

    asyncio.run(asyncio.wait_for(scenario(), 3 * SECONDS))
    assert receiver.progress("client-1", send.message) == send.body.total


def test_a_delivery_that_grpc_cancels_is_a_broken_connection(job: Sharing, monkeypatch: pytest.MonkeyPatch) -> None:
    """gRPC may raise CancelledError where a write fails: taken for somebody's wish, nobody would ever notice. It is tried
    again."""

    class Cutting:
        async def Deliver(self, pieces: object, **_: object) -> None:
            raise asyncio.CancelledError

        Report = Progress = Hand = Deliver

    monkeypatch.setattr(stubs, "ExchangeStub", lambda channel: Cutting())
    monkeypatch.setattr(stubs, "CoordinatorStub", lambda channel: Cutting())
    monkeypatch.setattr(Link, "_channel", lambda self, party: None)
    send = job.share("client-1", "client-2")
    assert send.body is not None
    with pytest.raises(Unavailable, match="client-2: the connection broke") as caught:
        asyncio.run(Link(None).deliver(send.to, send.message, send.body))  # type: ignore[arg-type]
    with pytest.raises(Unavailable, match="the server: the connection broke"):
        asyncio.run(Link(None).report(messages.Done(), bytes(16)))  # type: ignore[arg-type]
    machine = job.clients["client-1"]
    machine.handle(Unsent(send, caught.value), job.now)
    again = [one for seconds in range(10) for one in machine.handle(Tick(), job.now + seconds).send]
    assert [(one.to, one.message) for one in again if one.to == send.to] == [(send.to, send.message)]


async def stalls() -> AsyncIterator[pb.Piece]:
    await asyncio.sleep(SECONDS)
    yield pb.Piece()


def beginning(job: Sharing, sender: str, to: str) -> Any:
    """The first piece of a delivery, and then nothing more."""
    first = job.pieces(sender, to)[0]
    message = wire.piece_to(first.parcel, first.offset, first.total, first.data, 0.0)

    async def pieces() -> AsyncIterator[pb.Piece]:
        yield message
        await asyncio.sleep(SECONDS)

    return pieces()


def test_calls_that_stall_are_ended(ring: list[Kit], job: Sharing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "STALLED_SECONDS", 0.2)

    async def scenario() -> list[grpc.StatusCode]:
        async with Served(ring[1], job.clients["client-2"]), raw(ring[0], ring[1]) as channel:
            stub = stubs.ExchangeStub(channel)
            calls = (stalls(), beginning(job, "client-1", "client-2"))
            return [await stub.Deliver(pieces, timeout=SECONDS).code() for pieces in calls]

    assert asyncio.run(asyncio.wait_for(scenario(), SECONDS)) == [grpc.StatusCode.UNAVAILABLE] * 2


MORE = exchange.AT_ONCE + 2  # deliveries than a peer may have under way


def test_a_newer_delivery_ends_the_older_ones(ring: list[Kit], job: Sharing) -> None:
    """Their connection may be dead without our knowing; and one that is whole is taken."""
    send, receiver = job.share("client-1", "client-2"), job.clients["client-2"]
    assert send.body is not None

    async def scenario() -> list[grpc.StatusCode]:
        dialler = Link(ring[0])
        async with Served(ring[1], receiver) as served, raw(ring[0], ring[1]) as channel:
            stub, calls, newest = stubs.ExchangeStub(channel), [], served.exchange._newest
            for _ in range(MORE):
                before = list(newest._under_way.values())
                calls.append(stub.Deliver(beginning(job, "client-1", "client-2"), timeout=SECONDS))
                while list(newest._under_way.values()) == before:
                    await asyncio.sleep(0.01)
            codes = [await asyncio.wait_for(call.code(), SECONDS) for call in calls[:-1]]
            assert not calls[-1].done()
            await dialler.deliver(send.to, send.message, send.body)
            codes.append(await calls[-1].code())
            assert not newest._under_way
        await dialler.close()
        return codes

    codes = asyncio.run(asyncio.wait_for(scenario(), 3 * SECONDS))
    assert codes == [grpc.StatusCode.FAILED_PRECONDITION] * MORE
    assert receiver.progress("client-1", send.message) == send.body.total


def test_a_peer_has_so_many_deliveries_and_no_more(ring: list[Kit], job: Sharing) -> None:
    send = job.share("client-3", "client-2")
    assert send.body is not None

    async def scenario() -> list[grpc.StatusCode]:
        other = Link(ring[2])
        async with Served(ring[1], job.clients["client-2"]) as served, raw(ring[0], ring[1]) as channel:
            calls = [stubs.ExchangeStub(channel).Deliver(stalls(), timeout=SECONDS) for _ in range(120)]
            ends = [asyncio.ensure_future(call.code()) for call in calls]
            while sum(end.done() for end in ends) < 120 - exchange.AT_ONCE:
                await asyncio.sleep(0.02)
            assert served.exchange._turns._under_way["client-1"] == exchange.AT_ONCE
            await other.deliver(send.to, send.message, send.body)  # others have turns of their own
            refused = [end.result() for end in ends if end.done()]
            for call in calls:
                call.cancel()
        await other.close()
        return refused

    refused = asyncio.run(asyncio.wait_for(scenario(), 3 * SECONDS))
    assert refused == [grpc.StatusCode.UNAVAILABLE] * (120 - exchange.AT_ONCE)


def test_a_delivery_that_nobody_reads_holds_next_to_nothing(
    ring: list[Kit], job: Sharing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shares are made as they are read: a block at a time, not a share set."""
    send = job.share("client-1", "client-2")
    assert isinstance(send.body, ShareBody)
    block, alive, peaks = Shares._block, Counter[str](), []
    largest = max(len(words) for _, words in send.body.shares.pieces(1, 0))
    assert send.body.total > 6 * 8 * largest, "else there is nothing to save"

    def counted(self: Shares, *args: Any) -> Any:
        out = block(self, *args)
        for words in out:
            alive["words"] += len(words)
            weakref.finalize(words, alive.subtract, {"words": len(words)})
        peaks.append(alive["words"])
        return out

    class Deaf(stubs.ExchangeServicer):  # type: ignore[misc]
        async def Progress(self, request: pb.Parcel, context: Any) -> pb.Received:
            return pb.Received()

        async def Deliver(self, request_iterator: object, context: Any) -> pb.Received:
            await asyncio.sleep(SECONDS)
            return pb.Received()

    monkeypatch.setattr(Shares, "_block", counted)

    async def scenario() -> None:
        dialler = Link(ring[0])
        async with Served(ring[1], job.clients["client-2"], Deaf()):
            due = asyncio.ensure_future(dialler.deliver(send.to, send.message, send.body))  # type: ignore[arg-type]
            while not peaks:
                await asyncio.sleep(0.02)
            await asyncio.sleep(0.3)  # it goes on until what the network buffers is full
            assert not due.done()
            due.cancel()
            await asyncio.wait({due})
        await dialler.close()

    asyncio.run(asyncio.wait_for(scenario(), 3 * SECONDS))
    assert max(peaks) <= 3 * largest


def test_shares_made_piece_by_piece_are_the_same(job: Sharing) -> None:
    body = job.share("client-1", "client-2").body
    assert isinstance(body, ShareBody)
    whole = body.shares.shares([1])[0].astype("<u8").tobytes()
    assert body.total == len(whole)
    for first in (0, 8, (1 << 20) + 56, len(whole) - 8, len(whole)):
        pieces = list(body.pieces(first))
        assert [at for at, _ in pieces] == [first + sum(len(d) for _, d in pieces[:i]) for i in range(len(pieces))]
        assert b"".join(bytes(data) for _, data in pieces) == whole[first:]


@pytest.mark.parametrize("total", [0, 1, 1 << 15, (1 << 21) + 5])
def test_a_body_is_cut_into_pieces_that_make_it_again(total: int) -> None:
    data = np.random.default_rng(total).bytes(total)
    pieces = list(transfer.pieces(Whole(data)))
    assert b"".join(bytes(piece) for _, piece in pieces) == data
    assert all(len(piece) <= transfer.PIECE_BYTES for _, piece in pieces)
    assert len(pieces) >= 1, "an empty body is told too"
    sink = transfer.Gathered(total)
    parcel = Parcel(bytes(32), Kind.IDS)
    for at, piece in pieces[1:]:
        with pytest.raises(Malformed, match="bytes from offset 0 are due"):
            transfer.take(sink, Arrived("c1", parcel, at, total, piece))
    assert [transfer.take(sink, Arrived("c1", parcel, at, total, piece)) for at, piece in pieces][-1]
    assert sink.data == data


# --- the server --------------------------------------------------------------------------------------------------------


def test_a_server_that_falls_silent_is_unavailable(ring: list[Kit], monkeypatch: pytest.MonkeyPatch) -> None:
    class Stream:
        cancelled = False

        async def read(self) -> pb.Event:
            await asyncio.sleep(SECONDS)
            return pb.Event()

        def cancel(self) -> None:
            self.cancelled = True

    class Silent:
        stream = Stream()

        def Follow(self, request: object) -> Stream:
            return self.stream

    monkeypatch.setattr(link, "SILENCE_SECONDS", 0.1)
    monkeypatch.setattr(stubs, "CoordinatorStub", lambda channel: Silent())

    async def scenario() -> None:
        async for _ in Link(ring[0]).follow(bytes(16)):
            pass

    with pytest.raises(Unavailable, match="the server has said nothing for 0 s"):
        asyncio.run(asyncio.wait_for(scenario(), SECONDS))
    assert Silent.stream.cancelled
