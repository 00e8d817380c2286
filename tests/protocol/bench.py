"""A whole job of the real machines with disks, in one process, that can be stopped, looked into, cut and restarted.

`Bench` drives the machines as `secfc.protocol.memory` does. What a machine wants kept is kept as well, so one can be thrown
away and made again from its disk; and with a `chance` everything under way happens in any order, and links break.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from secfc.agreement.federation import SERVER, Federation
from secfc.agreement.policy import Policy
from secfc.errors import Unavailable
from secfc.protocol import transfer
from secfc.protocol.client.freezing import KeptClusters
from secfc.protocol.client.guard import Guard
from secfc.protocol.client.inputs import Lost
from secfc.protocol.client.participant import Participant
from secfc.protocol.effects import Arrived, Effects, Load, Put, Started, Tick, Work, Worked
from secfc.protocol.memory import Memory
from secfc.protocol.parcels import Kind, Parcel, Whole
from secfc.protocol.server.coordinator import Coordinator
from secfc.protocol.server.inputs import Unfollowed
from secfc.protocol.server.job import Deadlines
from tests.parties import Rows, fresh_secrets, make_site, plan_of, unchanged, verifier

PATIENT = Deadlines(join=1e9, share=1e9, round=86400.0, lost=5.0)


class Bench(Memory):
    """See the module's docstring. `mishap`: how likely a delivery breaks off, or a stream ends, at every step."""

    def __init__(
        self,
        federation: Federation,
        rows: Sequence[Rows],
        *,
        seed: int = 0,
        deadlines: Deadlines = PATIENT,
        policies: Mapping[str, Policy] | None = None,
        chance: random.Random | None = None,
        mishap: float = 0.0,
        clusters: Mapping[str, KeptClusters] | None = None,
    ) -> None:
        """`clusters`: what each client kept of an earlier job's, if rows are only assigned to those."""
        self.plan, self.federation, self.rows = plan_of(federation), federation, list(rows)
        self._clusters = dict(clusters or {})
        for one in self._clusters.values():
            self.plan = one.public.plan(federation)
        self.deadlines, self.policies = deadlines, dict(policies or {})
        self.now = 0.0
        self._chance, self._mishap = chance, mishap
        generator = random.Random(seed)
        self._instances = random.Random(f"instances {seed}")
        self.secrets = {name: fresh_secrets(generator) for name in federation.roster}
        self.disks: dict[str, dict[str, bytes]] = {name: {} for name in (SERVER, *federation.roster)}
        self._todo: deque[Callable[[], None]] = deque()
        self._cursors, self.runs = {}, None
        self._seen = (0, 0)
        self.alter = lambda _, send: send
        self.asked = lambda _: None
        self.server = self.make_server()
        self.clients = {name: self.make_client(name) for name in federation.roster}

    def make_server(self, kept: Mapping[str, bytes] | None = None) -> Coordinator:
        """A process of the server, with what earlier ones kept."""
        return Coordinator(
            self.federation,
            self.plan,
            verifier(self.federation),
            kept=kept,
            deadlines=self.deadlines,
            now=self.now,
        )

    def make_client(self, name: str, *, resumed: bool = False) -> Participant:
        """A process of a client, with what earlier ones kept."""
        disk = self.disks[name]
        kept = {key: value for key, value in disk.items() if not key.startswith(("shares/", "lasting/"))}
        site = make_site(
            self.federation,
            name,
            self.rows[self.federation.roster.index(name)],
            replace(self.secrets[name], revealed=disk.get("revealed", b"")),
            guard=Guard(self.federation, self.plan, self.policies.get(name), kept.get("given", b"")),
            instance=self._instances.randbytes(16),
            plan=self.plan,
            frozen=self._clusters[name].frozen(self.plan.field) if self._clusters else None,
        )
        return Participant(site, kept=kept, resumed=resumed, now=self.now)

    # --- running -----------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        for name in (SERVER, *self.clients):
            self.give(name, Started())

    def give(self, name: str, given: Any) -> None:
        """Hand an input to a machine; raises what it refuses."""
        self._give(name, given)

    def until(self, over: Callable[[], bool], seconds: float = 1e5) -> None:
        """Go on until then; virtual seconds bound it."""
        end = self.now + seconds
        while not over():
            assert self.now < end, (
                f"stands still: {self.server.phase}, waits for {self.server.snapshot(self.now).missing}"
            )
            if self._todo:
                self._next()()
            else:
                self.now += 0.1
                for name in (SERVER, *self.clients):
                    self.give(name, Tick())
            if self._mishap and self._chance is not None and self._chance.random() < self._mishap:
                self.cut(self._chance.choice(list(self.clients)))

    def finish(self) -> None:
        """The whole job, to its end at every client."""
        self.start()
        self.until(lambda: self.over)

    @property
    def over(self) -> bool:
        """Whether the job has ended for every client."""
        return all(client.ended for client in self.clients.values())

    def _next(self) -> Callable[[], None]:
        if self._chance is not None:
            self._todo.rotate(-self._chance.randrange(len(self._todo)))
        return self._todo.popleft()

    def tick(self, seconds: float) -> None:
        """Let time pass without anything arriving."""
        self.now += seconds
        for name in (SERVER, *self.clients):
            self.give(name, Tick())

    def cut(self, name: str) -> None:
        """A client's stream ends."""
        if self._cursors.pop(name, None) is not None:
            self.give(SERVER, Unfollowed(name, self.clients[name].site.instance))
            self.give(name, Lost(Unavailable("the connection broke")))

    def restart(self, name: str) -> None:
        """Kill a party, and start it again from its disk."""
        for one in list(self._cursors) if name == SERVER else [name]:
            self.cut(one)
        self._forget(name)
        if name == SERVER:
            self.server = self.make_server(self.disks[SERVER])
        else:
            self.clients[name] = self.make_client(name, resumed=True)
        self.give(name, Started())

    def _forget(self, name: str) -> None:
        """What a process was computing or sending ends with it."""
        self._todo = deque(one for one in self._todo if not (isinstance(one, partial) and one.args[0] == name))

    @contextmanager
    def unmoved(self, name: str) -> Iterator[None]:
        """Nothing of a machine and of its disk may change in between."""
        disk = dict(self.disks[name])
        with unchanged(self._machine(name)):
            yield
        assert self.disks[name] == disk

    # --- disks and links -------------------------------------------------------------------------------------------------

    def _carry_out(self, name: str, effects: Effects) -> None:
        for one in effects.keep:
            if isinstance(one, Put):
                self.disks[name][one.key] = bytes(one.value)
            else:
                self.disks[name].pop(one.key, None)
        super()._carry_out(name, effects)

    def _work(self, name: str, work: Work | Load) -> None:
        if isinstance(work, Load):
            self.give(name, Worked(work.name, self.disks[name].get(work.key)))
        else:
            super()._work(name, work)

    def _deliver(self, sender: str, to: str, parcel: Parcel, body: Any) -> None:
        """From where the receiver stands, as the link does it; it may break off."""
        first = self._machine(to).progress(sender, parcel) if self._mishap else 0
        seconds = body.seconds if isinstance(body, Whole) else 0.0
        for offset, data in transfer.pieces(body, first):
            if self._mishap and self._chance is not None and self._chance.random() < self._mishap:
                raise Unavailable("the connection broke")
            self.give(to, Arrived(sender, parcel, offset, body.total, data, seconds))

    def labels(self) -> list[int]:
        """What the clients have written, by roster."""
        out: list[int] = []
        for name, part in zip(self.clients, self.rows, strict=True):
            out += np.frombuffer(self.disks[name]["labels"][32:], "<i4")[: len(part)].tolist()
        return out


def is_parcel(message: object, kind: Kind) -> bool:
    return isinstance(message, Parcel) and message.kind is kind
