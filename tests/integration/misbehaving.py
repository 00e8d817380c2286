"""A server changed to misbehave, as a process: `python -m tests.integration.misbehaving KIND`, then secfc-server's options.

singleton   once the seeding is over it asks for the distances to a row of its choice
repeat      it asks a round again, under the same number, with another assignment
exchanged   with private membership, it tells all clients another ID in the place of one
two-faced   the same, but only client-2
"""

from __future__ import annotations

import dataclasses
import sys
from typing import ClassVar
from unittest import mock

import numpy as np

from secfc import events
from secfc.decoding import Distances
from secfc.distances import UNASSIGNED, Labels
from secfc.lloyd import Clustering, Phase, Progress
from secfc_server import __main__ as server
from secfc_server import coordinator
from secfc_server.coordinator import Coordinator, Cursor
from secfc_server.rounds import Rounds

ROW = 17


class Singleton(Clustering):
    """Chooses a row after the seeding."""

    def absorb(self, distances: Distances) -> Progress:
        progress = super().absorb(distances)
        if self.number == self.clusters + 2:
            self.phase = Phase.LLOYD
            self.labels = np.full(self.rows, UNASSIGNED, dtype=np.int32)
            self.labels[ROW] = 0
            self._stale = {0}
        return progress


class Repeat(Clustering):
    """Counts one request twice."""

    again = False

    def absorb(self, distances: Distances) -> Progress:
        progress = super().absorb(distances)
        if self.number == self.clusters + 2 and not self.again:
            self.again, self.number, self.phase = True, self.number - 1, Phase.LLOYD
            self.labels = np.roll(self.labels, 1)
            self.forget()
        return progress


class Insistent(Coordinator):
    """Sends an assignment even if its number was sent before."""

    def _round_news(self, rounds: Rounds, sender: str, cursor: Cursor, now: float) -> list[events.Event]:
        labels = rounds.attempt.request.labels if rounds.attempt else None
        if labels is not None and labels is not self._told.get(sender):
            self._told[sender] = labels
            cursor.version, cursor.asked = 0, (0, 0)
        return super()._round_news(rounds, sender, cursor, now)

    _told: ClassVar[dict[str, Labels]] = {}


class Exchanged(Coordinator):
    """Tells some clients another ID in the place of the first one."""

    deceived: ClassVar[tuple[str, ...]] = ("client-1", "client-2", "client-3")

    def news(self, sender: str, cursor: Cursor, now: float) -> list[events.Event]:
        found = super().news(sender, cursor, now)
        return [_exchanged(event) for event in found] if sender in self.deceived else found


class TwoFaced(Exchanged):
    deceived: ClassVar[tuple[str, ...]] = ("client-2",)


def _exchanged(event: events.Event) -> events.Event:
    if not isinstance(event, events.Opened) or not event.data or event.offset:
        return event
    return dataclasses.replace(event, data=bytes([event.data[0] ^ 1]) + event.data[1:])


CLUSTERINGS = {"singleton": Singleton, "repeat": Repeat}
COORDINATORS = {"exchanged": Exchanged, "two-faced": TwoFaced}


def main() -> None:
    kind = sys.argv.pop(1)
    with (
        mock.patch.object(coordinator, "Clustering", CLUSTERINGS.get(kind, Clustering)),
        mock.patch.object(server, "Coordinator", COORDINATORS.get(kind, Insistent)),
    ):
        server.main()


if __name__ == "__main__":
    main()
