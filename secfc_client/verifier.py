"""Giving the server our part of the check that all shares fit together: made once, kept in mind, sent once per connection."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from grpc import aio

from secfc import rpc, wire
from secfc.errors import OutOfTurn
from secfc.field import Words
from secfc.logs import say
from secfc.v1 import secfc_pb2 as pb
from secfc_client.participant import Participant

log = logging.getLogger("secfc.client")
SECONDS = 600.0


class Verifier:
    """`keep` puts the participant's past on disk."""

    def __init__(self, participant: Participant, keep: Callable[[], None]) -> None:
        self._participant, self._keep = participant, keep
        self._made: tuple[bytes, Words] | None = None
        self._given = False
        self._giving = asyncio.Lock()

    def due(self) -> None:
        """The server shows the coins: it may have restarted and forgotten what it had, or been given it too early."""
        self._given = False

    async def give(self, stub: Any) -> None:
        """If it can be given and was not yet. Raises Unavailable if the connection broke; the next one tries again."""
        async with self._giving:
            if self._given or not self._participant.verifiable:
                return
            if self._made is None:
                made = await asyncio.to_thread(self._participant.verification)
                self._keep()  # before it leaves: no other may leave under the same masks
                self._made = made
            await self._send(stub, *self._made)
            self._given = True

    async def _send(self, stub: Any, purpose: bytes, words: Words) -> None:
        chunks = (
            pb.SumChunk(context=purpose, offset=chunk.offset, total=chunk.total, words=wire.word_bytes(chunk.words))
            for chunk in wire.chunks(words)
        )
        try:
            await stub.Contribute(chunks, timeout=SECONDS)
        except aio.AioRpcError as error:
            refused = rpc.error_of(error, "the server")
            if not isinstance(refused, OutOfTurn):  # that: the check is over
                raise refused from None
        else:
            say(log, "our part of the check of all shares is given")
