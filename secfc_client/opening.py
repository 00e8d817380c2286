"""Opening the centres, a client's part: say to everybody whether this site consents, hear the others, and decode.

The site's policy can only be stricter than the federation file. Values for the clients go straight to them; the server gets
its own only if both the federation file and the policy let it see the centres.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from secfc import rpc, wire
from secfc.centers import Opened
from secfc.config import AUDIENCES, SERVER
from secfc.errors import JobFailed, OutOfTurn, PeerError, SecfcError, Unavailable
from secfc.field import Words
from secfc.kit import Kit
from secfc.logs import say
from secfc.v1 import secfc_pb2 as pb
from secfc.v1 import secfc_pb2_grpc as grpc_stubs
from secfc_client.participant import Participant
from secfc_client.policy import TO_CLIENTS, TO_NOBODY, TO_SERVER, Policy

log = logging.getLogger("secfc.client")
SECONDS = 60.0  # for answers to come and go; less than the server waits for clients to be done
GRACE_SECONDS = 5.0  # once it is decided, for those that would only be checked or counted
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0


class Opener:
    """Takes one participant, whose job is finished, through the opening."""

    def __init__(self, kit: Kit, participant: Participant, policy: Policy, seconds: float = SECONDS) -> None:
        self._kit, self._me, self._policy = kit, participant, policy
        self._deadline = time.monotonic() + seconds
        self._values: tuple[int, Words] | None = None

    async def run(self, keep: Callable[[Opened], None]) -> None:
        """Hand the centres to `keep` as soon as they are known, or say in one line why they are not opened; then go on until
        everybody has our answer. Others' answers come in meanwhile. Ends by the deadline, whatever others do."""
        if self._me.federation.centers == TO_NOBODY:
            return
        gathering = self._me.centers()
        if self._allows(TO_CLIENTS) and not self._me.missing():  # it may have come back without shares, for its labels
            coded = await asyncio.to_thread(self._me.final_clusters)
            self._values = gathering.consent(coded, self._policy.centers_smallest)
        for message in self._answer(TO_CLIENTS):
            gathering.take(self._me.index, wire.centers_from(message))
        async with asyncio.TaskGroup() as group:
            for name in self._audience():
                group.create_task(self._tell(name))
            await self._gathered()
            self._conclude(keep)

    def _conclude(self, keep: Callable[[Opened], None]) -> None:
        try:
            opened = self._me.centers().opened()
        except (JobFailed, PeerError) as error:
            say(log, str(error), level=logging.WARNING)
        else:
            keep(opened)

    def _allows(self, audience: str) -> bool:
        """Whether the federation and this site both let these see the centres."""
        limit = min(AUDIENCES.index(self._me.federation.centers), AUDIENCES.index(self._policy.open_centers))
        return AUDIENCES.index(audience) <= limit

    def _audience(self) -> list[str]:
        """Whom we answer: all other clients, and the server if the federation lets it see the centres."""
        others = [name for name in self._me.federation.roster if name != self._me.name]
        return [*others, SERVER] if self._me.federation.centers == TO_SERVER else others

    def _answer(self, audience: str) -> list[pb.CentersChunk]:
        gathering = self._me.centers()
        if self._values is None or not self._allows(audience):
            return [wire.centers_to(gathering.refusal())]
        smallest, words = self._values
        return [wire.centers_to(gathering.part(smallest, chunk)) for chunk in wire.chunks(words)]

    async def _gathered(self) -> None:
        """Until all have answered, it is decided and a little time has passed, or the deadline has."""
        gathering, end = self._me.centers(), self._deadline
        while not gathering.settled and time.monotonic() < end:
            if gathering.decided:
                end = min(end, time.monotonic() + GRACE_SECONDS)
            await asyncio.sleep(0.05)

    async def _tell(self, party: str) -> None:
        """Our answer to one party, again until it is taken or the deadline has passed."""
        federation, pause = self._me.federation, _FIRST_PAUSE
        answer = self._answer(TO_SERVER if party == SERVER else TO_CLIENTS)
        async with rpc.channel(self._kit, party, federation.party(party).address) as channel:
            kind = grpc_stubs.CoordinatorStub if party == SERVER else grpc_stubs.ShareExchangeStub
            stub = kind(channel)
            refused: SecfcError = Unavailable("there was no time left")
            while (left := self._deadline - time.monotonic()) > 0:
                try:
                    with rpc.link(party):
                        await stub.OpenCenters(_stream(answer), timeout=left)
                    return
                except SecfcError as error:
                    refused = error
                if not isinstance(refused, OutOfTurn | Unavailable):  # does not keep us from opening what others give
                    break
                await asyncio.sleep(pause * random.uniform(0.7, 1.3))
                pause = min(2 * pause, _LONGEST_PAUSE)
        say(log, "an answer about the centres was not taken", level=logging.WARNING, by=party, reason=str(refused))


async def _stream(messages: list[pb.CentersChunk]) -> AsyncIterator[Any]:
    for message in messages:
        yield message
