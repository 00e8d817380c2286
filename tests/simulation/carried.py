"""The relay of a simulated world: the real couriers of its clients and the real switchboard of its server.

The server may be changed to drop, repeat, reorder, alter and cross-wire what it carries; what clients notice of it
is counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from secfc.agreement.federation import SERVER
from secfc.errors import SecfcError, Unavailable
from secfc.net import relay, replies, wire
from secfc.privacy.envelopes import Envelope, Sort
from secfc.protocol import transfer
from secfc.protocol.courier import Answered, Asked, Broke, Courier, Met, Noticed, Outcome
from secfc.protocol.parcels import Parcel
from secfc.protocol.server.relay import Line, Switchboard
from secfc.v1 import secfc_pb2 as pb

if TYPE_CHECKING:
    from tests.simulation.world import World

Back = Callable[[SecfcError | None], None]
Heard = Callable[[int, SecfcError | None], None]
TRICKS = ("drop", "repeat", "reorder", "alter", "cross-wire", "relabel")


@dataclass
class End:
    """One client's connection to the relay."""

    name: str
    lives: tuple[int, int]
    line: Line[Envelope]
    courier: Courier
    open: dict[tuple[str, int], Heard] = field(default_factory=dict)
    clear_at: tuple[float, float] = (
        0.0,
        0.0,
    )  # when what was sent last is with the server, and what is carried last here


class Carrier:
    """See the module's docstring."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._board: tuple[int, Switchboard[Envelope]] = (-1, Switchboard(()))
        self._ends: dict[str, End] = {}
        self.mischief = 0.0  # chance that the server does something else with an envelope than to carry it
        self.tricks: tuple[str, ...] = TRICKS
        self.played: Counter[str] = Counter()
        self.noticed: list[str] = []
        self._held: dict[tuple[str, str], Envelope] = {}  # until another has overtaken it

    # --- connections ---------------------------------------------------------------------------------------------------

    def attend(self, name: str) -> None:
        """Connect a client that can be, and is not."""
        world = self._world
        process, server = world.parties[name], world.parties[SERVER]
        end = self._ends.get(name)
        if end is not None and not self._holds(end):
            self._disconnect(end)
        if name in self._ends or not process.alive or not server.alive or not world._reach(name, SERVER):
            return
        if world.scene.federation.relay == "never" or not process.machine.shared:
            return
        if self._board[0] != server.life:
            self._board = server.life, Switchboard(world.scene.federation.roster)
        courier = Courier(name, process.machine.session, process.machine.shared, world.chance.randbytes)
        line = self._board[1].connect(name)
        self._ends[name] = End(name, (process.life, server.life), line, courier)
        self._flush(self._ends[name])

    def _holds(self, end: End) -> bool:
        parties = self._world.parties
        lives = tuple(parties[name].life if parties[name].alive else -1 for name in (end.name, SERVER))
        return lives == end.lives and self._world._reach(end.name, SERVER) and self._ends.get(end.name) is end

    def _disconnect(self, end: End) -> None:
        del self._ends[end.name]
        for line in self._board[1].disconnect(end.line):
            self._hand(line.name)
        for heard in end.open.values():
            heard(0, Unavailable("the server's relay is not connected"))

    # --- the server ----------------------------------------------------------------------------------------------------

    def _flush(self, end: End) -> None:
        world = self._world
        for envelope in end.courier.out:
            data = wire.envelope_to(envelope).SerializeToString()
            at = max(end.clear_at[0], world.now) + world.chance.uniform(0.0, 0.02)
            end.clear_at = at, end.clear_at[1]
            world.after(at - world.now, partial(self._reaches_server, end, data))
        end.courier.out.clear()

    def _reaches_server(self, end: End, data: bytes) -> None:
        if not self._holds(end):
            return
        envelope = wire.envelope_from(pb.Envelope.FromString(data))
        for to, given in self._tricked(end, envelope):
            waits_at = self._board[1].post(end.line, to, given, len(data))
            if waits_at is None:  # no room
                self._world.after(0.05, partial(self._reaches_server, end, data))
                return
            self._hand(waits_at.name)

    def _tricked(self, end: End, envelope: Envelope) -> list[tuple[str, Envelope]]:
        """What an honest server puts on the line of whom it is for, or what this one makes of it."""
        chance, to = self._world.chance, envelope.peer
        carried = replace(envelope, peer=end.name)
        if (held := self._held.pop((end.name, to), None)) is not None:
            return [(to, carried), (to, held)]
        if not self.mischief or chance.random() >= self.mischief:
            return [(to, carried)]
        trick = chance.choice(self.tricks)
        self.played[trick] += 1
        others = [name for name in self._world.scene.federation.roster if name not in (end.name, to)]
        match trick:
            case "repeat":
                return [(to, carried), (to, carried)]
            case "reorder":
                self._held[end.name, to] = carried
                return []
            case "alter":
                place = chance.randrange(len(envelope.sealed))
                sealed = bytearray(envelope.sealed)
                sealed[place] ^= 1 << chance.randrange(8)
                return [(to, replace(carried, sealed=bytes(sealed)))]
            case "cross-wire":
                return [(chance.choice(others), carried)]
            case "relabel":
                return [(to, replace(carried, total=carried.total + 1))]
        return []

    def _hand(self, name: str) -> None:
        """What waits for a client sets out, in order."""
        world, end = self._world, self._ends.get(name)
        if end is None:
            return
        carried: list[Envelope | str] = []
        while end.line.away:
            carried.append(end.line.away.popleft())
        while (envelope := end.line.next()) is not None:
            carried.append(envelope)
        for one in carried:
            at = max(end.clear_at[1], world.now) + world.chance.uniform(0.0, 0.02)
            end.clear_at = end.clear_at[0], at
            world.after(at - world.now, partial(self._arrives, end, one))

    # --- the clients ---------------------------------------------------------------------------------------------------

    def _arrives(self, end: End, one: Envelope | str) -> None:
        process = self._world.parties[end.name]
        if not self._holds(end):
            return
        if process.frozen_until > self._world.now:
            self._world._at(process.frozen_until, partial(self._arrives, end, one))
            return
        self._act(end, end.courier.away(one) if isinstance(one, str) else end.courier.take(one))
        self._flush(end)

    def _act(self, end: End, outcomes: list[Outcome]) -> None:
        for one in outcomes:
            match one:
                case Asked():
                    self._asked(end, one)
                case Answered():
                    if (heard := end.open.pop((one.peer, one.number), None)) is not None:
                        try:
                            heard(replies.of(one.peer, one.content), None)
                        except SecfcError as error:
                            heard(0, error)
                case Broke():
                    for key in [key for key in end.open if key[0] == one.peer]:
                        end.open.pop(key)(0, one.why)
                case Noticed():
                    self.noticed.append(f"{end.name}: {one.what}")
                case Met():
                    pass

    def _asked(self, end: End, asked: Asked) -> None:
        def answer(received: int, error: SecfcError | None) -> None:
            if self._holds(end):
                end.courier.answer(asked, replies.to(received, error))
                self._flush(end)

        machine = self._world.parties[end.name].machine
        if asked.sort is Sort.ASK:
            try:
                answer(machine.progress(asked.peer, wire.parcel_from(wire.content(pb.Parcel, asked.content))), None)
            except SecfcError as error:
                answer(0, error)
            return
        piece = wire.arrived_from(asked.peer, wire.content(pb.Piece, asked.content))
        self._world.give(end.name, piece, lambda error: answer(piece.offset + len(piece.data), error))

    # --- one parcel ----------------------------------------------------------------------------------------------------

    def deliver(self, sender: str, to: str, parcel: Parcel, body: Any, back: Back) -> None:
        """As `RelayLink.deliver`, one piece at a time."""

        def known(received: int, error: SecfcError | None) -> None:
            if error is not None or received >= body.total > 0:
                back(error)
            else:
                self._pieces(sender, to, parcel, body.total, list(transfer.pieces(body, received)), back)

        self._ask(sender, to, Sort.ASK, 0, wire.to_message(parcel).SerializeToString(), known)

    def _pieces(self, sender: str, to: str, parcel: Parcel, total: int, cut: list[tuple[int, Any]], back: Back) -> None:
        (offset, data), rest = cut[0], cut[1:]

        def following(_: int, error: SecfcError | None) -> None:
            if error is not None or not rest:
                back(error)
            else:
                self._pieces(sender, to, parcel, total, rest, back)

        content = wire.piece_to(parcel, offset, total, data, 0.01).SerializeToString()
        self._ask(sender, to, Sort.PIECE, total, content, following)

    def _ask(self, sender: str, to: str, sort: Sort, total: int, content: bytes, heard: Heard) -> None:
        end = self._ends.get(sender)
        if end is None or not self._holds(end):
            heard(0, Unavailable("the server's relay is not connected"))
            return
        if not end.courier.ready(to):
            end.courier.greet(to)
            self._flush(end)
            self._world.after(1.0, lambda: heard(0, Unavailable(f"{to} is not connected to the server")))
            return
        key = to, end.courier.ask(to, sort, total, content)
        end.open[key] = heard
        self._flush(end)

        def tired() -> None:
            if end.open.get(key) is heard and self._holds(end):
                self._act(end, end.courier.give_up(to, f"{to} does not answer through the server"))
                self._flush(end)

        self._world.after(relay.REPLY_SECONDS, tired)
