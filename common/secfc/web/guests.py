"""Connections to a page: so many and no more, and each must ask for something soon.

Who gets no further than the port needs no certificate or token for that. Without a bound, connections that say nothing use up
the descriptors that the job needs for its own files and parties.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

MOST = 128
SILENT_SECONDS = 20.0  # for the handshake and the first request


class _Guest(asyncio.Protocol):
    """Hands everything on to the protocol within."""

    def __init__(self, inner: asyncio.Protocol, gone: Callable[[_Guest], None]) -> None:
        self._inner, self._gone = inner, gone
        self.transport: asyncio.BaseTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self._inner.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._gone(self)
        self._inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()


class _Refused(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        _abort(transport)


class Guests:
    """A factory of protocols that wraps another."""

    def __init__(self, make: Callable[[], asyncio.Protocol]) -> None:
        self._make = make
        self._here: dict[_Guest, asyncio.TimerHandle] = {}

    def __call__(self) -> asyncio.Protocol:
        """For a connection that was just accepted, before any handshake."""
        if len(self._here) >= MOST:
            return _Refused()
        guest = _Guest(self._make(), self._leaves)
        self._here[guest] = asyncio.get_running_loop().call_later(SILENT_SECONDS, self._tire, guest)
        return guest

    def asked(self, transport: asyncio.BaseTransport | None) -> None:
        """A whole request has come over this connection."""
        for guest, timer in self._here.items():
            if guest.transport is transport:
                timer.cancel()

    def _leaves(self, guest: _Guest) -> None:
        if (timer := self._here.pop(guest, None)) is not None:
            timer.cancel()

    def _tire(self, guest: _Guest) -> None:
        """Nothing was asked; or there was no handshake, of whose end nobody tells us."""
        self._here.pop(guest, None)
        if guest.transport is not None:
            _abort(guest.transport)


def _abort(transport: asyncio.BaseTransport) -> None:
    if isinstance(transport, asyncio.WriteTransport):
        transport.abort()
