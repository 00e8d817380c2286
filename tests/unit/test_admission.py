"""Calls over real TLS while certificates are revoked and replaced: who is answered, and which message is the last."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio

from secfc.errors import Unavailable, WrongSender
from secfc.net import rpc
from secfc.net.admission import Channel, NotInForce
from secfc.pki import authority as authorities
from secfc.pki import kit, pins, provision
from secfc.pki.kit import Kit
from tests.unit.test_provision import FEDERATION
from tests.unit.test_revocation import hand_out, renewed, revoke

SECONDS = 120.0  # only ever waited for in full when a test fails


@pytest.fixture
def kits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(pins, "LOOK_SECONDS", 0.0)
    return provision.provision(FEDERATION, tmp_path / "kits").ca.parent


class Service:
    """One call of each kind. Its stream says a word for every one that is put into `words`."""

    def __init__(self) -> None:
        self.words: asyncio.Queue[bytes] = asyncio.Queue()
        self.heard: list[bytes] = []
        self.closed = False

    async def ask(self, request: bytes, context: Any) -> bytes:
        return request

    async def tell(self, requests: AsyncIterator[bytes], context: Any) -> bytes:
        async with rpc.refusing(context):
            async for request in requests:
                self.heard.append(request)
        return b"%d" % len(self.heard)

    async def follow(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        try:
            while True:
                yield await self.words.get()
        finally:
            self.closed = True

    def handlers(self) -> grpc.GenericRpcHandler:
        found = {
            "ask": grpc.unary_unary_rpc_method_handler(self.ask),
            "tell": grpc.stream_unary_rpc_method_handler(self.tell),
            "follow": grpc.unary_stream_rpc_method_handler(self.follow),
        }
        return grpc.method_handlers_generic_handler("test", found)


Trial = Callable[[Service, Channel], Awaitable[None]]


def serving(own: Kit, caller: Kit, trial: Trial) -> None:
    """Run the trial with a channel of `caller` to a server with that kit."""

    async def run() -> None:
        service, listener = Service(), rpc.server(own)
        listener.add_generic_rpc_handlers((service.handlers(),))
        port = rpc.listen(listener, own, "127.0.0.1:0")
        await listener.start()
        try:
            async with rpc.channel(caller, "server", f"127.0.0.1:{port}") as channel:
                await asyncio.wait_for(trial(service, channel), 2 * SECONDS)
        finally:
            await listener.stop(None)

    asyncio.run(run())


async def refusal(call: Awaitable[Any]) -> BaseException:
    with pytest.raises(aio.AioRpcError) as caught:
        await call
    return rpc.error_of(caught.value, "the other")


def loaded(kits: Path) -> tuple[Kit, Kit]:
    return kit.load(kits / "server"), kit.load(kits / "a")


def test_all_calls_while_everybody_is_in_force(kits: Path) -> None:
    async def trial(service: Service, channel: Channel) -> None:
        assert await channel.unary_unary("/test/ask")(b"x", timeout=SECONDS) == b"x"
        assert await channel.stream_unary("/test/tell")(iter([b"1", b"2"]), timeout=SECONDS) == b"2"
        service.words.put_nowait(b"news")
        stream = channel.unary_stream("/test/follow")(b"", timeout=SECONDS)
        assert await stream.read() == b"news"
        stream.cancel()

    serving(*loaded(kits), trial)


def test_a_listener_refuses_the_next_call_of_a_revoked_caller(kits: Path) -> None:
    """On the connection that it has, which TLS has accepted long ago."""

    async def trial(service: Service, channel: Channel) -> None:
        await channel.unary_unary("/test/ask")(b"x", timeout=SECONDS)
        revoke(kits, "a")
        hand_out(kits, "server")
        for call in (
            channel.unary_unary("/test/ask")(b"x", timeout=SECONDS),
            channel.stream_unary("/test/tell")(iter([b"x"]), timeout=SECONDS),
            channel.unary_stream("/test/follow")(b"", timeout=SECONDS).read(),
        ):
            error = await refusal(call)
            assert isinstance(error, WrongSender)
            assert "the other refuses: the certificate of a was revoked" in str(error)
        assert service.heard == []

    serving(*loaded(kits), trial)


def test_a_listener_sends_a_revoked_caller_not_one_message_more(kits: Path) -> None:
    async def trial(service: Service, channel: Channel) -> None:
        stream = channel.unary_stream("/test/follow")(b"", timeout=SECONDS)
        service.words.put_nowait(b"before")
        assert await stream.read() == b"before"
        revoke(kits, "a")
        hand_out(kits, "server")
        service.words.put_nowait(b"after")
        error = await refusal(stream.read())
        assert isinstance(error, WrongSender)
        while not service.closed:  # the handler ends too, or the trial does not
            await asyncio.sleep(0.01)

    serving(*loaded(kits), trial)


def test_a_listener_takes_from_a_revoked_caller_not_one_message_more(kits: Path) -> None:
    async def trial(service: Service, channel: Channel) -> None:
        async def words() -> AsyncIterator[bytes]:
            yield b"before"
            while not service.heard:
                await asyncio.sleep(0.01)
            revoke(kits, "a")
            hand_out(kits, "server")
            yield b"after"

        error = await refusal(channel.stream_unary("/test/tell")(words(), timeout=SECONDS))
        assert isinstance(error, WrongSender)
        assert service.heard == [b"before"]

    serving(*loaded(kits), trial)


def test_a_dialler_leaves_a_revoked_server(kits: Path) -> None:
    """It neither calls it, nor believes what it says, nor sends it the rest."""

    async def trial(service: Service, channel: Channel) -> None:
        stream = channel.unary_stream("/test/follow")(b"", timeout=SECONDS)
        service.words.put_nowait(b"before")
        assert await stream.read() == b"before"

        async def words() -> AsyncIterator[bytes]:
            yield b"before"
            while not service.heard:
                await asyncio.sleep(0.01)
            revoke(kits, "server")
            hand_out(kits, "a")
            yield b"after"

        for call in (
            channel.stream_unary("/test/tell")(words(), timeout=SECONDS),
            channel.unary_unary("/test/ask")(b"x", timeout=SECONDS),
            channel.unary_stream("/test/follow")(b"", timeout=SECONDS).read(),
        ):
            with pytest.raises(NotInForce) as caught:
                await call
            assert isinstance(rpc.error_of(caught.value, "x"), WrongSender)
            assert "the certificate of server was revoked" in (caught.value.details() or "")
        assert service.heard == [b"before"]
        service.words.put_nowait(b"after")
        with pytest.raises(NotInForce):
            await stream.read()

    serving(*loaded(kits), trial)


def test_a_dialler_accepts_no_certificate_but_the_pinned_one(kits: Path) -> None:
    """TLS itself refuses it, before anything is sent; once the roster lists it, the same channel dials again."""
    impostor = renewed(kits, "server")

    async def trial(service: Service, channel: Channel) -> None:
        error = await refusal(channel.unary_unary("/test/ask")(b"secret", timeout=SECONDS))
        assert isinstance(error, Unavailable)
        assert "CERTIFICATE_VERIFY_FAILED" in str(error)
        hand_out(kits, "a")
        assert await channel.unary_unary("/test/ask")(b"x", timeout=SECONDS) == b"x"

    shutil.copyfile(kits / "ca" / "roster.json", kits / "server-new" / "roster.json")
    serving(impostor, kit.load(kits / "a"), trial)


def test_a_stream_of_a_replaced_certificate_is_begun_again(kits: Path) -> None:
    async def trial(service: Service, channel: Channel) -> None:
        stream = channel.unary_stream("/test/follow")(b"", timeout=SECONDS)
        service.words.put_nowait(b"before")
        assert await stream.read() == b"before"
        renewed(kits, "server")
        hand_out(kits, "a")
        service.words.put_nowait(b"after")
        error = await refusal(stream.read())
        assert isinstance(error, Unavailable)
        assert "replaced meanwhile" in str(error)

    serving(*loaded(kits), trial)


def test_a_name_outside_the_federation_is_refused_in_every_service(kits: Path) -> None:
    signer, key, a = authorities.load(kits / "ca", "trial", lambda: ""), provision.make_key(), kits / "a"
    names = ["zebra.trial.secfc.internal"]
    made = provision.issue_certificate(signer, key.public_key(), "zebra", names, 9)
    pem = (provision.certificate_pem(made), provision.private_pem(key), (a / "ca.pem").read_bytes())
    stranger = Kit(a, FEDERATION, "zebra", *pem, made.not_valid_after_utc)

    async def trial(service: Service, channel: Channel) -> None:
        error = await refusal(channel.unary_unary("/test/ask")(b"x", timeout=SECONDS))
        assert isinstance(error, WrongSender)
        assert "zebra is not in the roster of trial" in str(error)

    serving(kit.load(kits / "server"), stranger, trial)
