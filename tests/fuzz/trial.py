"""A job of signed statements and checked starts that can be stopped after any step, and is the same every time it is run."""

from __future__ import annotations

from collections import defaultdict

from secfc.agreement.federation import SERVER
from secfc.net import wire
from secfc.protocol import messages
from secfc.protocol.client.inputs import Told
from secfc.protocol.client.participant import Participant
from secfc.protocol.effects import Send
from tests.parties import deal, make_federation
from tests.protocol.bench import Bench


class Trial(Bench):
    """Four clients, one of which brings no rows, all that c0 hears, and what everybody has said to the server."""

    def __init__(self, uploads: str = "masked", membership: str = "public") -> None:
        agreed = make_federation(4, uploads=uploads, membership=membership, dropouts=1)
        super().__init__(agreed, deal(7, [3, 4, 0, 5], spread=30), seed=1)
        self.heard: list[bytes] = []
        self.said: defaultdict[str, list[Send]] = defaultdict(list)
        self.steps = 0
        self.alter = self._note
        self.start()

    @property
    def me(self) -> Participant:
        return self.clients["c0"]

    def step(self) -> None:
        """One thing happens: something is sent, computed or told; or time passes."""
        self.steps += 1
        if self._todo:
            self._todo.popleft()()
        else:
            self.tick(0.1)

    def after(self, steps: int) -> Trial:
        while self.steps < steps and not self.over:
            self.step()
        return self

    def _note(self, sender: str, send: Send) -> Send:
        if send.to == SERVER and not isinstance(send.message, messages.Join):
            self.said[sender].append(send)
        return send

    def _give(self, name: str, given: object) -> None:
        if name == "c0" and isinstance(given, Told):
            self.heard.append(wire.event_to(given.event).SerializeToString())
        super()._give(name, given)

    def asks(self) -> messages.RoundRequest | None:
        rounds = self.server._phase.asking
        return rounds.request(1.0) if rounds is not None else None
