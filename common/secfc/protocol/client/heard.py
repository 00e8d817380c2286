"""What the server says, as a client's log tells it."""

from __future__ import annotations

import logging
from math import isnan
from typing import Any

from secfc.protocol import messages
from secfc.protocol.client.site import Site
from secfc.protocol.effects import Effects


class Heard:
    """`found`: how the job has ended, once that is told."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._waiting: messages.Waiting | None = None  # as last told
        self.found: messages.Finished | None = None

    @property
    def unreachable_by(self) -> tuple[str, ...]:
        """Who cannot reach us, as the server has heard."""
        return self._waiting.unreachable_by if self._waiting is not None else ()

    def take(self, event: messages.Event, out: Effects) -> None:
        match event:
            case messages.Waiting():
                if event != self._waiting:
                    out.say("waiting", phase=event.phase.value, missing=event.missing)
                    self._describe_links(event.unreachable_by, out)
                self._waiting = event
            case messages.RoundRequest():
                out.say(f"round {event.number}", attempt=event.attempt, columns=len(event.columns))
            case messages.Finished():
                self.found = event
                loss = None if isnan(event.inertia) else event.inertia
                out.say("finished", rounds=event.rounds, converged=event.converged, inertia=loss)
                if not event.converged:
                    limit = self._site.federation.job.max_rounds
                    out.say(f"stopped after max_rounds = {limit}; not converged", level=logging.WARNING)
        if isinstance(event, messages.Finished | messages.Failed) and self._site.guard.text():
            out.say(self._site.guard.text())

    def _describe_links(self, unreachable_by: tuple[str, ...], out: Effects) -> None:
        """Say, once for each change, who cannot reach us: a firewall shows nothing to those behind it."""
        before = self._waiting.unreachable_by if self._waiting else ()
        address = self._site.federation.client(self._site.name).address
        where: dict[str, Any] = {"address": address} if address else {}
        if unreachable_by and unreachable_by != before:
            text = "other clients cannot reach us; "
            text += "check the firewall and what listens at our address" if address else "check the line to the server"
            out.say(text, level=logging.WARNING, clients=unreachable_by, **where)
        elif before and not unreachable_by:
            out.say("other clients reach us again", **where)
