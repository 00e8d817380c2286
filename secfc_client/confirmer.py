"""Confirming the union of IDs with every other client, over the network: called until both have the other's commitment, and
again until both have the other's word."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable

from secfc import rpc, wire
from secfc.errors import JobFailed, OutOfTurn, Unavailable
from secfc.kit import Kit
from secfc.logs import say
from secfc.v1 import secfc_pb2_grpc as grpc_stubs
from secfc_client.participant import Participant
from secfc_client.peers import CALL_SECONDS, why_unreachable

log = logging.getLogger("secfc.client")
SECONDS = 3600.0  # as long as the server waits for an exchange of shares by default
LINGER_SECONDS = 5.0  # after breaking off, for clients that lost our answer and ask again
_REMIND_SECONDS = 15.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 1.0


class Confirmer:
    """`tell(peer, reason)` reports a broken link to the server; an empty reason: it is back. `keep` puts the participant's
    past on disk."""

    def __init__(
        self,
        kit: Kit,
        participant: Participant,
        tell: Callable[[str, str], Awaitable[None]],
        keep: Callable[[], None],
    ) -> None:
        self._kit, self._participant, self._tell, self._keep = kit, participant, tell, keep

    async def run(self, seconds: float = SECONDS) -> None:
        """Until everybody's word is here and ours with everybody. Raises JobFailed, naming whose is not, after `seconds`."""
        deadline = time.monotonic() + seconds
        await self._gather(seconds, deadline)
        self._participant.note_commitments()
        self._keep()  # before our words can be seen: no other commitments may be taken after that
        self._participant.open_confirmation()
        await self._gather(seconds, deadline)

    async def _gather(self, seconds: float, deadline: float) -> None:
        """Until everybody has told us, and we everybody, what is due: commitments, or what they stand for."""
        tasks = {asyncio.create_task(self._exchange(name)) for name in self._participant.unconfirmed()}
        pending = tasks
        try:
            while pending:
                wait = max(min(_REMIND_SECONDS, deadline - time.monotonic()), 0.0)
                done, pending = await asyncio.wait(pending, timeout=wait, return_when=asyncio.FIRST_EXCEPTION)
                for task in done:
                    task.result()
                if pending:
                    self._remind(seconds, deadline)
        finally:
            for task in tasks:
                task.cancel()

    def _remind(self, seconds: float, deadline: float) -> None:
        missing = self._participant.unconfirmed()
        if time.monotonic() >= deadline:
            raise JobFailed(
                f"after {seconds:.0f} s these have not confirmed the list of row IDs: {', '.join(missing)};"
                " see that they run and can be reached, and start a new job (secfc-server --new)"
            )
        say(log, "waiting", phase="confirming the list of row IDs", missing=missing)

    async def _exchange(self, peer: str) -> None:
        """Until we have what is due from the peer, by its answer or by a call of its own, which is answered with ours."""
        me, address = self._participant, self._participant.federation.client(peer).address
        pause, told = _FIRST_PAUSE, ""
        async with rpc.channel(self._kit, peer, address) as channel:
            stub = grpc_stubs.ShareExchangeStub(channel)
            while peer in me.unconfirmed():
                try:
                    with rpc.link(peer):
                        reply = await stub.Confirm(wire.confirmed_to(me.confirmation), timeout=CALL_SECONDS)
                    me.confirm(peer, wire.confirmed_from(reply))
                    if peer not in me.unconfirmed():
                        break
                except OutOfTurn:
                    pass  # it has not been told the whole union yet
                except Unavailable as error:
                    told = await self._complain(peer, address, error, told)
                await asyncio.sleep(pause * random.uniform(0.7, 1.3))
                pause = min(2 * pause, _LONGEST_PAUSE)
        if told:
            await self._tell(peer, "")

    async def _complain(self, peer: str, address: str, error: Unavailable, told: str) -> str:
        """Say, once for each reason, here and to the server, which link is broken and why."""
        reason = await why_unreachable(self._kit, peer, address) or str(error)
        if reason != told:
            say(log, "cannot reach a client", level=logging.WARNING, peer=peer, address=address, reason=reason)
            await self._tell(peer, reason)
        return reason
