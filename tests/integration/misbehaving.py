"""A server changed to misbehave, as a process: `python -m tests.integration.misbehaving KIND`, then secfc-server's options.

singleton   once the seeding is over it asks for the distances to a row of its choice
repeat      it asks a round again, under the same number, with another assignment
exchanged   with private membership, it tells all clients another ID in the place of one
two-faced   the same, but only client-2
relay       it alters, repeats, cross-wires and swaps one each of the envelopes that it carries for clients
"""

from __future__ import annotations

import copy
import dataclasses
import sys
from typing import ClassVar
from unittest import mock

import numpy as np

from secfc.kmeans import runs
from secfc.kmeans.distances import UNASSIGNED, Labels
from secfc.kmeans.lloyd import Answer, Clustering, Progress, Step
from secfc.protocol import messages, parcels
from secfc.protocol.parcels import Kind
from secfc.protocol.server.coordinator import Coordinator
from secfc.protocol.server.news import Cursor
from secfc.protocol.server.relay import Line, Switchboard
from secfc.v1 import secfc_pb2 as pb
from secfc_server import __main__ as server
from secfc_server import relay

ROW = 17


class Singleton(Clustering):
    """Chooses a row after the seeding."""

    def absorb(self, answer: Answer) -> Progress:
        progress = super().absorb(answer)
        if self.number == self.clusters + 2:
            self.step = Step.LLOYD
            self.labels = np.full(self.rows, UNASSIGNED, dtype=np.int32)
            self.labels[ROW] = 0
            self._stale = {0}
        return progress


class Repeat(Clustering):
    """Counts one request twice."""

    again = False

    def absorb(self, answer: Answer) -> Progress:
        progress = super().absorb(answer)
        if self.number == self.clusters + 2 and not self.again:
            self.again, self.number, self.step = True, self.number - 1, Step.LLOYD
            self.labels = np.roll(self.labels, 1)
            self.forget()
        return progress


class Insistent(Coordinator):
    """Sends an assignment even if its number was sent before."""

    def news(self, sender: str, cursor: Cursor, now: float) -> list[messages.Event]:
        labels = self.attempt.question.labels if self.attempt else None
        if labels is not None and labels is not self._shown.get(sender):
            self._shown[sender] = labels
            cursor.version, cursor.asked = 0, (0, 0)
        return super().news(sender, cursor, now)

    _shown: ClassVar[dict[str, Labels]] = {}


class Exchanged(Coordinator):
    """Tells some clients another ID in the place of the first one."""

    deceived: ClassVar[tuple[str, ...]] = ("client-1", "client-2", "client-3")

    def news(self, sender: str, cursor: Cursor, now: float) -> list[messages.Event]:
        found = super().news(sender, cursor, now)
        return [_exchanged(event) for event in found] if sender in self.deceived else found


class TwoFaced(Exchanged):
    deceived: ClassVar[tuple[str, ...]] = ("client-2",)


def _exchanged(event: messages.Event) -> messages.Event:
    """Only what completes the union: before, another ID would just keep the server's own next table from coming about."""
    if not isinstance(event, messages.Piece) or event.parcel.kind is not Kind.OPENED or not event.data or event.offset:
        return event
    if parcels.pair_of(event.parcel.name)[1]:  # rows that are left for another table
        return event
    return dataclasses.replace(event, data=bytes([event.data[0] ^ 1]) + bytes(event.data[1:]))


class Meddling(Switchboard[pb.Envelope]):
    """Plays every trick once with pieces of parcels, and carries the rest."""

    pieces = 0
    held: pb.Envelope | None = None

    def post(self, sender: Line[pb.Envelope], to: str, envelope: pb.Envelope, size: int) -> Line[pb.Envelope] | None:
        if envelope.sort != pb.SORT_PIECE:
            return super().post(sender, to, envelope, size)
        self.pieces += 1
        if self.pieces == 3:
            envelope.sealed = bytes([envelope.sealed[0] ^ 1]) + envelope.sealed[1:]
        elif self.pieces == 5:
            super().post(sender, to, envelope, size)
        elif self.pieces == 7:
            to = next(name for name in self._roster if name not in (sender.name, to))
        elif self.pieces == 9:
            self.held = copy.deepcopy(envelope)
            return sender
        found = super().post(sender, to, envelope, size)
        if self.held is not None and self.held.peer == sender.name:
            super().post(sender, to, self.held, size)
            self.held = None
        return found


CLUSTERINGS = {"singleton": Singleton, "repeat": Repeat}
COORDINATORS = {"exchanged": Exchanged, "two-faced": TwoFaced}


def main() -> None:
    kind = sys.argv.pop(1)
    with (
        mock.patch.object(runs, "Clustering", CLUSTERINGS.get(kind, Clustering)),
        mock.patch.object(server, "Coordinator", COORDINATORS.get(kind, Coordinator if kind == "relay" else Insistent)),
        mock.patch.object(relay, "Switchboard", Meddling if kind == "relay" else Switchboard),
    ):
        server.main()


if __name__ == "__main__":
    main()
