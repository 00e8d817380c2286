"""Certificates that are in force, at both ends of a gRPC connection and for as long as it lasts.

TLS judges a certificate once, when a connection begins, and gRPC for Python lets nobody add a judgement of their own. So:

- `Admission`, at a listener: every call, and every message of a call that streams, is preceded by a check of the caller's
  certificate. A caller whose certificate is revoked gets a status and a reason, and not one message more.
- `Channel`, at a dialler: it trusts no authority but the one certificate that is in force for the party it dials, so TLS
  itself accepts no other. Before every call, and after every message that it receives, it looks whether that certificate
  still is. If another has replaced it, the next call dials with that.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import grpc
from grpc import aio

from secfc.errors import SecfcError, Unavailable

Check = Callable[[], None]  # raises a SecfcError if the peer's certificate is not in force (any more)


class NotInForce(aio.AioRpcError):  # type: ignore[misc]
    """A call that we did not make, or whose answer we do not use, because of the other's certificate: `error` says why.

    It is an RPC error, so that whoever calls treats it like any other end of a call."""

    def __init__(self, error: SecfcError) -> None:
        code = grpc.StatusCode.UNAVAILABLE if isinstance(error, Unavailable) else grpc.StatusCode.PERMISSION_DENIED
        super().__init__(code, aio.Metadata(), aio.Metadata(), details=str(error))
        self.error = error


class Admission(aio.ServerInterceptor):  # type: ignore[misc]
    """Lets calls through to their handlers while the caller's certificate is in force."""

    def __init__(
        self, judge: Callable[[Any, str], Check], refusing: Callable[[Any], AbstractAsyncContextManager[None]]
    ) -> None:
        """`judge(context, method)` gives the check for a call's caller; `refusing(context)` answers what it raises."""
        self._judge, self._refusing = judge, refusing

    async def intercept_service(self, continuation: Any, details: Any) -> Any:
        handler = await continuation(details)
        if handler is None:
            return None
        kind = f"{_KINDS[handler.request_streaming]}_{_KINDS[handler.response_streaming]}"
        made = getattr(grpc, f"{kind}_rpc_method_handler")
        admitted = self._admitted(getattr(handler, kind), handler.request_streaming, details.method)
        return made(admitted, handler.request_deserializer, handler.response_serializer)

    def _admitted(self, behaviour: Any, streams_in: bool, method: str) -> Any:
        async def once(request: Any, context: Any) -> Any:
            check = await self._checked(context, method)
            return await behaviour(_checked_stream(request, check) if streams_in else request, context)

        async def stream(request: Any, context: Any) -> AsyncIterator[Any]:
            check = await self._checked(context, method)
            answers = behaviour(_checked_stream(request, check) if streams_in else request, context)
            try:
                async for answer in answers:
                    async with self._refusing(context):
                        check()
                    yield answer
            finally:
                await answers.aclose()

        return stream if inspect.isasyncgenfunction(behaviour) else once

    async def _checked(self, context: Any, method: str) -> Check:
        async with self._refusing(context):
            check = self._judge(context, method)
            check()
        return check


async def _checked_stream(messages: AsyncIterator[Any], check: Check) -> AsyncIterator[Any]:
    """Raises inside the handler, which answers it like any other thing a caller does wrong."""
    async for message in messages:
        check()
        yield message


_KINDS = {False: "unary", True: "stream"}


class Channel:
    """What a stub needs of a gRPC channel, to one party, whatever certificate is in force for it."""

    def __init__(self, dial: Callable[[bytes], aio.Channel], anchor: Callable[[], bytes]) -> None:
        """`anchor()` is the certificate (PEM) to trust now, or raises; `dial(anchor)` opens a channel that trusts it."""
        self._dial, self._anchor = dial, anchor
        self._channels: dict[bytes, aio.Channel] = {}

    async def __aenter__(self) -> Channel:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End every call."""
        for channel in self._channels.values():
            await channel.close()

    def unary_unary(self, *method: Any, **options: Any) -> Callable[..., Awaitable[Any]]:
        async def call(request: Any, **settings: Any) -> Any:
            anchor, channel = self._dialled()
            reply = await channel.unary_unary(*method, **options)(request, **settings)
            self._still(anchor)
            return reply

        return call

    def stream_unary(self, *method: Any, **options: Any) -> Callable[..., Awaitable[Any]]:
        async def call(requests: Any, **settings: Any) -> Any:
            anchor, channel = self._dialled()
            sent = self._sent(requests, anchor)
            reply = await channel.stream_unary(*method, **options)(sent, **settings)
            self._still(anchor)  # or what was sent ends before its end
            return reply

        return call

    def unary_stream(self, *method: Any, **options: Any) -> Callable[..., _Stream]:
        def call(request: Any, **settings: Any) -> _Stream:
            def begin() -> tuple[Any, Check]:
                anchor, channel = self._dialled()
                return channel.unary_stream(*method, **options)(request, **settings), lambda: self._still(anchor)

            return _Stream(begin)

        return call

    def stream_stream(self, *method: Any, **options: Any) -> Callable[..., _Stream]:
        def call(requests: Any, **settings: Any) -> _Stream:
            def begin() -> tuple[Any, Check]:
                anchor, channel = self._dialled()
                sent = self._sent(requests, anchor)
                return channel.stream_stream(*method, **options)(sent, **settings), lambda: self._still(anchor)

            return _Stream(begin)

        return call

    def _dialled(self) -> tuple[bytes, aio.Channel]:
        anchor = self._now()
        if anchor not in self._channels:
            self._channels[anchor] = self._dial(anchor)
        return anchor, self._channels[anchor]

    def _now(self) -> bytes:
        try:
            return self._anchor()
        except SecfcError as error:
            raise NotInForce(error) from None

    def _still(self, anchor: bytes) -> None:
        if self._now() != anchor:
            raise NotInForce(Unavailable("its certificate was replaced meanwhile; connecting to it again"))

    async def _sent(self, requests: Any, anchor: bytes) -> AsyncIterator[Any]:
        """Ends when the certificate is in force no more: an error in here would only cancel the call without a reason."""
        async for request in _as_async(requests):
            try:
                self._still(anchor)
            except NotInForce:
                return
            yield request


class _Stream:
    """A call whose answers stream in, each only while the certificate is in force. It begins with the first `read`."""

    def __init__(self, begin: Callable[[], tuple[Any, Check]]) -> None:
        self._begin = begin
        self._begun: tuple[Any, Check] | None = None

    async def read(self) -> Any:
        """The next message, or `aio.EOF`."""
        self._begun = self._begun or self._begin()
        call, check = self._begun
        message = await call.read()
        check()
        return message

    async def __aiter__(self) -> AsyncIterator[Any]:
        while (message := await self.read()) is not aio.EOF:
            yield message

    def cancel(self) -> None:
        """End the call."""
        if self._begun is not None:
            self._begun[0].cancel()


async def _as_async(items: Any) -> AsyncIterator[Any]:
    if hasattr(items, "__aiter__"):
        async for item in items:
            yield item
    else:
        for item in items:
            yield item
