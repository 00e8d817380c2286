"""A server changed to misbehave, as a process: `python -m tests.integration.misbehaving KIND`, then secfc-server's options.

singleton   once the seeding is over it asks for the distances to a row of its choice
repeat      it asks a round again, under the same number, with another assignment
"""

from __future__ import annotations

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


def main() -> None:
    kind = sys.argv.pop(1)
    with (
        mock.patch.object(coordinator, "Clustering", {"singleton": Singleton, "repeat": Repeat}[kind]),
        mock.patch.object(server, "Coordinator", Insistent),
    ):
        server.main()


if __name__ == "__main__":
    main()
