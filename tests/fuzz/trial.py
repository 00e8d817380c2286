"""A job in memory that can be stopped after any step, and is the same every time it is run."""

from __future__ import annotations

import hashlib
from unittest import mock

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from secfc.agreement import plan
from secfc.agreement.federation import SERVER
from secfc.kmeans.coins import Coins
from secfc.kmeans.lloyd import Clustering
from secfc.net import wire
from secfc.protocol import memory, messages
from secfc.protocol.client.inputs import Told
from secfc.protocol.client.participant import Participant
from secfc.protocol.client.site import Secrets
from secfc.protocol.effects import Started, Tick

ROWS = (3, 4, 0, 5)
FEATURES, CLUSTERS = 3, 3


def rows_of(seed: int = 7) -> list[npt.NDArray[np.int64]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(-30, 31, (count, FEATURES)) for count in ROWS]


def _secrets(seed: bytes) -> Secrets:
    def part(what: bytes) -> bytes:
        return hashlib.sha256(seed + what).digest()

    return Secrets(seed, X25519PrivateKey.from_private_bytes(part(b"key")), part(b"nonce"), part(b"coin"))


class Trial(memory.Memory):
    """Four clients, one of which brings no rows, and all that client-1 hears."""

    def __init__(self, uploads: str = "masked", membership: str = "public") -> None:
        wishes = plan.Wishes(
            clients=len(ROWS),
            privacy=1,
            dropouts=1,
            clusters=CLUSTERS,
            features=FEATURES,
            max_rows=sum(ROWS),
            bound=32.0,
            precision=0,
            uploads=uploads,
            segments=1,
            membership=membership,
        )
        with mock.patch.object(memory, "_fresh", _secrets):
            seeds = [bytes([j] * 32) for j in range(len(ROWS))]
            super().__init__(plan.make(wishes), rows_of(), _clustering, seeds=seeds)
        self.heard: list[bytes] = []
        self.steps = 0
        for name in (SERVER, *self.clients):
            self._carry_out(name, self._machine(name).handle(Started(), self.now))

    @property
    def me(self) -> Participant:
        return self.clients["client-1"]

    @property
    def over(self) -> bool:
        return all(client.ended for client in self.clients.values())

    def step(self) -> None:
        """One thing happens: something is sent, computed or told; or time passes."""
        self.steps += 1
        if self._todo:
            self._todo.popleft()()
            return
        self.now += 0.1
        for name in (SERVER, *self.clients):
            self._give(name, Tick())

    def until(self, steps: int) -> Trial:
        while self.steps < steps and not self.over:
            self.step()
        return self

    def _give(self, name: str, given: object) -> None:
        if name == "client-1" and isinstance(given, Told):
            self.heard.append(wire.event_to(given.event).SerializeToString())
        super()._give(name, given)

    def asks(self) -> messages.RoundRequest | None:
        rounds = self.server._phase.asking
        return rounds.request(1.0) if rounds is not None else None


def _clustering(rows: int) -> Clustering:
    return Clustering(rows, CLUSTERS, coins=Coins(b"trial"))
