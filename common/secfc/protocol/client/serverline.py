"""A client's line to the server: when it joins, how long it tries again, and what it says about that."""

from __future__ import annotations

import logging

from secfc.agreement.federation import SERVER
from secfc.errors import AlreadyJoined, Malformed, SecfcError, Unavailable
from secfc.protocol import messages
from secfc.protocol.client.site import Desk
from secfc.protocol.effects import Drop, Effects, Send
from secfc.protocol.outbox import FIRST_PAUSE, LONGEST_PAUSE
from secfc.protocol.rounds import kind_of

TAKEOVER_SECONDS = 90.0  # after which a server has found that an earlier process of ours is gone


class ServerLine:
    """`linked`: whether the server has let us in, and we follow the job."""

    def __init__(self, desk: Desk, now: float) -> None:
        self._desk, self._site = desk, desk.site
        self.linked, self._dialling = False, False
        self._begun = "joined" in desk.kept
        self._at: float | None = None  # when to dial next
        self._pause, self._patience_from = FIRST_PAUSE, now
        self._refused_since: float | None = None
        self._complained = ""

    @property
    def idle(self) -> bool:
        """Whether we are neither dialling nor about to."""
        return self._at is None and not self._dialling

    def due(self, now: float) -> bool:
        return self._at is not None and now >= self._at

    def dial_at(self, at: float) -> None:
        """Try again then."""
        self._at = at

    def dial(self, begun: bool, out: Effects) -> None:
        """Join, or join once more; from now on others may hold shares of ours. `begun`: our secrets have served."""
        site = self._site
        self._at, self._dialling = None, True
        if not self._begun:
            out.put("joined")
        committee = site.guard.policy.committee if kind_of(site.plan).members(site.plan) else ()
        join = messages.Join(site.federation.agreed(), site.instance, site.introduction(), begun, committee)
        out.send.append(Send(SERVER, join))

    def joined(self, out: Effects) -> None:
        """The server has let us in."""
        self.linked, self._pause, self._complained, self._refused_since = True, FIRST_PAUSE, "", None
        self._begun, self._dialling, self._desk.redial = True, False, False
        out.say("joined", server=self._site.federation.server.address)

    def broke(self, now: float) -> None:
        """The connection has ended, or none came about."""
        if self.linked:
            self._patience_from = now
        self.linked = self._dialling = False

    def refused(self, error: SecfcError, now: float, out: Effects) -> None:
        """Try again where that may help; raises the error where it does not, or not any more."""
        match error:
            case AlreadyJoined():
                self._wait_for_takeover(error, now, out)
            case Unavailable():
                self._try_again(error, now, out)
            case _:
                if isinstance(error, Malformed) and not self._begun:
                    out.keep[:] = [Drop("joined")]  # turned away at the door: no job is under way, other rows may come
                raise error

    def _try_again(self, error: Unavailable, now: float, out: Effects) -> None:
        left = self._patience_from + self._site.patience - now
        if left <= 0:
            raise Unavailable(f"gave up on the server after {self._site.patience:.0f} s: {error}")
        if str(error) != self._complained:
            self._complained = str(error)
            text = "cannot reach the server; trying again"
            out.say(text, level=logging.WARNING, reason=str(error), seconds_left=round(left))
        self._at = now + min(self._pause * self._site.chance.uniform(0.7, 1.3), left)
        self._pause = min(2 * self._pause, LONGEST_PAUSE)

    def _wait_for_takeover(self, error: AlreadyJoined, now: float, out: Effects) -> None:
        """A machine that lost its power has left a connection that the server takes for alive until a probe fails."""
        first = self._refused_since is None
        self._refused_since = now if self._refused_since is None else self._refused_since
        if not self._desk.resumed or now - self._refused_since > TAKEOVER_SECONDS:
            raise error
        if first:
            text = "the server takes an earlier process of ours for alive; waiting until it notices that it is gone"
            out.say(text, level=logging.WARNING, seconds_left=round(TAKEOVER_SECONDS))
        self._at = now + 2.0
