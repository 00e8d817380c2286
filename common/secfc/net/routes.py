"""Which way a parcel goes to another party: directly, through the server, or first the one and then the other."""

from __future__ import annotations

import logging

from secfc.agreement.federation import SERVER, Federation
from secfc.errors import Unavailable
from secfc.logs import say
from secfc.net.link import Link
from secfc.net.relay import RelayLink
from secfc.protocol.parcels import Body, Parcel

log = logging.getLogger("secfc.net.routes")


class Routes:
    """One try, like each of its links. A client that cannot be dialled, but is connected to the server, is reached through it
    from then on."""

    def __init__(self, federation: Federation, direct: Link, relay: RelayLink) -> None:
        self._federation, self._direct, self._relay = federation, direct, relay
        self._detours: set[str] = set()
        self._said: set[str] = set()

    def relayed(self, to: str) -> bool:
        """Whether the next parcel goes through the server, sealed for its receiver."""
        return not self._federation.dialled(to) or to in self._detours

    async def deliver(self, to: str, parcel: Parcel, body: Body) -> int:
        """As `Link.deliver`."""
        if self.relayed(to):
            return await self._carried(to, parcel, body)
        try:
            return await self._direct.deliver(to, parcel, body)
        except Unavailable as error:
            if to == SERVER or self._federation.relay == "never" or not self._relay.reaches(to):
                raise
            why = await self._direct.explained(to, error)
        carried = await self._carried(to, parcel, body)
        self._detour(to, why)  # not before: it may have been about to end, and be dialled again soon
        return carried

    async def _carried(self, to: str, parcel: Parcel, body: Body) -> int:
        try:
            return await self._relay.deliver(to, parcel, body)
        except Unavailable:
            self._detours.discard(to)
            raise

    def _detour(self, to: str, why: Unavailable) -> None:
        self._detours.add(to)
        if to not in self._said:
            self._said.add(to)
            text = f"{to} cannot be dialled; what we send it goes through the server, end-to-end encrypted"
            say(log, text, level=logging.WARNING, reason=str(why))

    def arrived(self, to: str, parcel: Parcel) -> int:
        """How much of a parcel that did not get through had arrived, as far as is known."""
        return max(self._direct.arrived(to, parcel), self._relay.arrived(to, parcel))

    async def explained(self, to: str, error: Unavailable) -> Unavailable:
        """The same with what is really wrong, where it was dialled."""
        return error if self.relayed(to) else await self._direct.explained(to, error)
