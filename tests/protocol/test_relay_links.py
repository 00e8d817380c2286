"""Clients that are relayed, over real gRPC and TLS in one process: who waits for whom, and what goes on where it stopped."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
from grpc import aio

from secfc import local
from secfc.errors import Unavailable
from secfc.net import relay as relays
from secfc.net import rpc
from secfc.net.relay import RelayLink
from secfc.pki import kit as kits
from secfc.pki import provision
from secfc.pki.kit import Kit
from secfc.privacy.envelopes import Sort
from secfc.protocol.effects import Arrived
from secfc.protocol.parcels import Kind, Parcel, Whole
from secfc.protocol.server.relay import PAIR_BYTES
from secfc.v1 import secfc_pb2 as pb
from secfc.v1 import secfc_pb2_grpc as stubs
from secfc_server.relay import SILENT_STREAMS, Relay

SECONDS = 60.0  # only ever waited for in full when a test fails
MIB = 1 << 20
SESSION = b"s" * 32
A, B, C, D = "client-1", "client-2", "client-3", "client-4"


@pytest.fixture(scope="module")
def party(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Kit]:
    made = local.describe(4, name="trial", k=2, features=2, max_rows=9, bound=1.0, privacy=1, precision=4, relay="only")
    folder = tmp_path_factory.mktemp("relayed") / "kits"
    provision.provision(made, folder)
    return {name: kits.load(folder / name) for name in ("server", *made.roster)}


class Line:
    """A TCP line to the server that carries so many bytes towards the client, then nothing until `go` is set."""

    def __init__(self, target: int) -> None:
        self._target, self._tasks, self._ends = target, set[asyncio.Task[None]](), list[asyncio.StreamWriter]()
        self.stops_after, self.go = 1 << 60, asyncio.Event()

    async def open(self) -> int:
        self._listener = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return int(self._listener.sockets[0].getsockname()[1])

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        self._ends += [writer, far_writer]
        for source, sink, gated in ((reader, far_writer, False), (far_reader, writer, True)):
            task = asyncio.ensure_future(self._pump(source, sink, gated))
            self._tasks.add(task)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, gated: bool) -> None:
        while data := await source.read(1 << 16):
            if gated:
                self.stops_after -= len(data)
                if self.stops_after < 0:
                    await self.go.wait()
            sink.write(data)
            await sink.drain()

    async def close(self) -> None:
        self._listener.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for end in self._ends:
            end.transport.abort()


class Site:
    """One client: a machine that takes anything, and its link."""

    def __init__(self, kit: Kit, others: tuple[str, ...], port: int) -> None:
        self.name, self.session = kit.party_name, SESSION
        self.shared = {other: "".join(sorted((self.name, other))).encode() for other in others if other != self.name}
        self.got: defaultdict[Parcel, bytearray] = defaultdict(bytearray)
        self.offsets: list[int] = []
        self.pause, self.stands = 0.0, asyncio.Event()
        self.stands.set()
        self._channel = rpc.channel(kit, "server", f"127.0.0.1:{port}")
        self._tasks: set[asyncio.Task[Any]] = set()
        self.kept = asyncio.Event()  # what was taken
        self.kept.set()
        self.link = RelayLink(self.name, lambda: self._channel, self, self._take, self._kept, self._spawn)
        self._spawn(self.link.run())

    async def _kept(self) -> None:
        await self.kept.wait()

    def _spawn(self, what: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.ensure_future(what)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def progress(self, _: str, parcel: Parcel) -> int:
        return len(self.got[parcel])

    async def _take(self, piece: Arrived) -> None:
        await self.stands.wait()
        await asyncio.sleep(self.pause)
        had = len(self.got[piece.parcel])
        assert piece.offset <= had, "a gap"
        self.offsets.append(piece.offset)
        self.got[piece.parcel] += bytes(piece.data)[had - piece.offset :]

    async def close(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._channel.close()


class Star:
    """A relay and its clients; `ports`: through which line a client goes."""

    def __init__(self, party: dict[str, Kit]) -> None:
        self._party, self.sites, self.lines = party, dict[str, Site](), dict[str, Line]()
        self.port = 0

    async def serve(self) -> None:
        kit = self._party["server"]
        self.relay, self._listener = Relay(kit.federation), rpc.server(kit)
        stubs.add_RelayServicer_to_server(self.relay, self._listener)
        self.port = rpc.listen(self._listener, kit, f"127.0.0.1:{self.port}")
        await self._listener.start()

    async def stop(self) -> None:
        await self._listener.stop(None)

    async def join(self, *names: str, slow: str = "") -> None:
        for name in names:
            port = self.port
            if name == slow:
                self.lines[name] = Line(self.port)
                port = await self.lines[name].open()
            self.sites[name] = Site(self._party[name], self._party[name].federation.roster, port)
        pairs = [(one, other) for one in names for other in names if one != other]
        await self.until(lambda: all(self.sites[one].link.reaches(other) for one, other in pairs))

    async def until(self, look: Any) -> None:
        async with asyncio.timeout(SECONDS):
            while not look():
                await asyncio.sleep(0.01)

    def waiting(self, sender: str, to: str) -> int:
        """Bytes at the server."""
        line = self.relay._board._lines.get(to)
        return line._bytes.get(sender, 0) if line else 0


@asynccontextmanager
async def star(party: dict[str, Kit]) -> AsyncIterator[Star]:
    made = Star(party)
    await made.serve()
    try:
        yield made
    finally:
        for site in made.sites.values():
            await site.close()
        for line in made.lines.values():
            await line.close()
        await made.stop()


def parcel(number: int, kind: Kind = Kind.WANTED) -> Parcel:
    return Parcel(SESSION, kind, b"%016d" % number)


def body(number: int, size: int) -> Whole:
    return Whole(bytes([number]) * size)


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, 4 * SECONDS))


def test_a_receiver_that_does_not_read_holds_up_nobody_but_those_who_write_to_it(party: dict[str, Kit]) -> None:
    """Nor what they write to others, however much they have for it; and at the server so much waits for it and no more."""

    async def scenario() -> None:
        async with star(party) as made:
            await made.join(A, B, C, slow=B)
            made.lines[B].stops_after = 30 * MIB
            a, b, c = (made.sites[name] for name in (A, B, C))
            large = [asyncio.ensure_future(a.link.deliver(B, parcel(i), body(i, 6 * MIB))) for i in range(12)]
            await made.until(lambda: made.lines[B].stops_after < 0)
            for site, to in ((a, C), (c, A)):
                await asyncio.wait_for(site.link.deliver(to, parcel(77), body(77, 3 * MIB)), SECONDS)
            assert c.got[parcel(77)] == a.got[parcel(77)] == body(77, 3 * MIB).data
            assert not any(task.done() for task in large)
            assert made.waiting(A, B) <= PAIR_BYTES
            made.lines[B].go.set()
            assert await asyncio.gather(*large) == [6 * MIB] * 12
            assert all(b.got[parcel(i)] == body(i, 6 * MIB).data for i in range(12))

    run(scenario())


def test_a_client_that_writes_without_end_fills_nothing_and_stops_only_itself(party: dict[str, Kit]) -> None:
    async def scenario() -> None:
        async with star(party) as made:
            await made.join(B, C, D, slow=B)
            made.lines[B].stops_after = 0
            written = 0

            async def flood() -> AsyncIterator[pb.Envelope]:
                nonlocal written
                while True:
                    written += MIB
                    yield pb.Envelope(peer=B, sort=pb.SORT_PIECE, number=1, epoch=bytes(32), sealed=bytes(MIB))

            channel = rpc.channel(party[A], "server", f"127.0.0.1:{made.port}")
            stream = stubs.RelayStub(channel).Carry(flood())
            reading = asyncio.ensure_future(stream.read())
            await made.until(lambda: made.waiting(A, B) > PAIR_BYTES - 2 * MIB)
            for site, to in ((C, D), (D, C)):
                await asyncio.wait_for(made.sites[site].link.deliver(to, parcel(1), body(1, 3 * MIB)), SECONDS)
            assert made.waiting(A, B) <= PAIR_BYTES
            assert written < PAIR_BYTES + 24 * MIB, "the rest is with the sender"
            stream.cancel()
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            await channel.close()

    run(scenario())


def test_a_large_parcel_of_one_sender_does_not_keep_a_small_one_of_another_waiting(party: dict[str, Kit]) -> None:
    async def scenario() -> None:
        async with star(party) as made:
            await made.join(A, B, C)
            large = asyncio.ensure_future(made.sites[A].link.deliver(B, parcel(1), body(1, 200 * MIB)))
            await made.until(lambda: len(made.sites[B].got[parcel(1)]) > 8 * MIB)
            await made.sites[C].link.deliver(B, parcel(2), body(2, 1000))
            assert not large.done()
            large.cancel()
            await asyncio.gather(large, return_exceptions=True)

    run(scenario())


@pytest.mark.parametrize("who", ["server", B, A])
def test_a_parcel_goes_on_where_it_stopped_whoever_restarts(party: dict[str, Kit], who: str) -> None:
    """What has arrived is not sent again, but for the pieces that were under way."""

    async def scenario() -> None:
        async with star(party) as made:
            await made.join(A, B)
            total, shares = 24 * MIB, parcel(5, Kind.SHARES)
            first = asyncio.ensure_future(made.sites[A].link.deliver(B, shares, body(5, total)))
            await made.until(lambda: len(made.sites[B].got[shares]) > 6 * MIB)
            kept = made.sites[B].got
            if who == "server":
                await made.stop()
                with pytest.raises(Unavailable, match="relay is not connected"):
                    await first
                await made.serve()
            else:
                await made.sites.pop(who).close()
                if who == A:
                    first.cancel()
                (result,) = await asyncio.gather(first, return_exceptions=True)
                assert isinstance(result, Unavailable | asyncio.CancelledError), result
                await made.join(who)
            had = len(kept[shares])
            assert 6 * MIB < had < total
            made.sites[B].got, made.sites[B].offsets = kept, []
            await made.until(lambda: made.sites[A].link.reaches(B))
            assert await made.sites[A].link.deliver(B, shares, body(5, total)) <= total - had
            assert kept[shares] == body(5, total).data
            assert made.sites[B].offsets[0] >= had

    run(scenario())


def test_what_has_arrived_is_said_to_be_here_once_it_is_kept(party: dict[str, Kit]) -> None:
    """A sender that hears that all of it is here is through."""

    async def scenario() -> None:
        async with star(party) as made:
            await made.join(A, B)
            shares = parcel(5, Kind.SHARES)
            made.sites[B].got[shares] += body(5, 1000).data
            made.sites[B].kept.clear()
            sending = asyncio.ensure_future(made.sites[A].link.deliver(B, shares, body(5, 1000)))
            await asyncio.wait({sending}, timeout=0.3)
            assert not sending.done()
            made.sites[B].kept.set()
            assert await sending == 0

    run(scenario())


def test_who_does_not_answer_is_named_and_who_is_slow_is_waited_for(
    party: dict[str, Kit], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, seconds in (("REPLY_SECONDS", 1.0), ("NUDGE_SECONDS", 0.2), ("MEETING_SECONDS", 0.2)):
        monkeypatch.setattr(relays, name, seconds)

    async def scenario() -> None:
        async with star(party) as made:
            await made.join(A, B)
            a, b = made.sites[A], made.sites[B]
            b.pause = 0.4  # so that the last of three pieces under way waits for longer than a deadline
            await a.link.deliver(B, parcel(1), body(1, 200_000))
            b.stands.clear()
            with pytest.raises(Unavailable, match="client-2 has not answered through the server for 1 s"):
                await a.link.deliver(B, parcel(2), body(2, 1000))
            b.stands.set()
            await a.link.deliver(B, parcel(3), body(3, 1000))
            with pytest.raises(Unavailable, match="client-4 is not connected to the server"):
                await a.link.deliver(D, parcel(4), body(4, 1000))

    run(scenario())


async def silence() -> AsyncIterator[pb.Envelope]:
    await asyncio.sleep(4 * SECONDS)
    yield pb.Envelope()


def test_one_client_has_so_many_silent_streams_and_no_more(party: dict[str, Kit]) -> None:
    """One that says nothing yet takes nobody's place, and costs the server something all the same."""

    async def scenario() -> None:
        async with star(party) as made:
            await made.join(B, C)
            channel = rpc.channel(party[A], "server", f"127.0.0.1:{made.port}")
            streams = [stubs.RelayStub(channel).Carry(silence()) for _ in range(40)]
            codes: Counter[str] = Counter()

            async def ends(stream: Any) -> None:
                try:
                    await stream.read()
                except aio.AioRpcError as error:
                    codes[error.code().name] += 1

            waits = [asyncio.ensure_future(ends(stream)) for stream in streams]
            await made.until(lambda: sum(codes.values()) >= 40 - SILENT_STREAMS)
            assert set(codes) == {"UNAVAILABLE"}
            await made.sites[B].link.deliver(C, parcel(1), body(1, 10))
            for one in streams:
                one.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
            await channel.close()

    run(scenario())


def test_what_the_server_carries_is_the_clients_own_cipher(party: dict[str, Kit]) -> None:
    """Recorded at the server: nothing of the content, and headers that say no more than the documents do."""

    async def scenario() -> None:
        async with star(party) as made:
            seen: list[pb.Envelope] = []
            post = made.relay._board.post

            def recorded(sender: Any, to: str, envelope: pb.Envelope, size: int) -> Any:
                seen.append(envelope)
                return post(sender, to, envelope, size)

            made.relay._board.post = recorded  # type: ignore[method-assign]
            await made.join(A, B)
            await made.sites[A].link.deliver(B, parcel(1), Whole(b"a row of a patient" * 9))
            assert made.sites[B].got[parcel(1)] == b"a row of a patient" * 9
            (piece,) = (one for one in seen if one.sort == Sort.PIECE.value)
            assert all(b"patient" not in one.SerializeToString() for one in seen)
            assert parcel(1).name not in piece.SerializeToString()
            assert {field.name for field, _ in piece.ListFields()} == {
                *("peer", "sort", "number", "total", "epoch", "peer_epoch", "sealed")
            }

    run(scenario())
