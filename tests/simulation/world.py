"""The real machines of one server and n clients on a virtual clock, virtual disks and a virtual network.

A third driver, beside `net.driver` and `protocol.memory`: it carries effects out in the same order, but keeping takes time,
and a crash loses what was not kept; messages take time, are cut in the middle, come twice, or arrive without their sender
learning of it; parties die, freeze and come back with the same disk. Every choice comes from one seed, and everything that
happens is written into `trace`.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from secfc.agreement.federation import SERVER
from secfc.agreement.policy import Policy
from secfc.errors import JobFailed, NoSuchJob, SecfcError, StorageError, Unavailable
from secfc.kmeans import bounds
from secfc.kmeans.coins import Coins
from secfc.kmeans.lloyd import State
from secfc.net import wire
from secfc.privacy.identifiers import Ids
from secfc.protocol import messages, start, transfer
from secfc.protocol.client.guard import Guard
from secfc.protocol.client.inputs import Linked, Lost, Sent, Told, Unsent
from secfc.protocol.client.participant import Participant
from secfc.protocol.client.site import Secrets, Site
from secfc.protocol.effects import Drop, Effects, Fact, Load, Put, Send, Started, Tick, Work, Worked
from secfc.protocol.messages import Phase
from secfc.protocol.parcels import Kind, Parcel, Whole, attempt_of, of_words, to_words
from secfc.protocol.rounds import kind_of
from secfc.protocol.server import records
from secfc.protocol.server.coordinator import Coordinator
from secfc.protocol.server.inputs import Followed, Joined, Reported, Unfollowed
from secfc.protocol.server.job import Deadlines
from secfc.protocol.server.news import Cursor
from secfc.v1 import secfc_pb2 as pb
from tests.parties import admitted, sign, verifier
from tests.simulation.carried import Carrier
from tests.simulation.registry import Registry
from tests.simulation.scene import Expected, Scene

TICK_SECONDS = 0.5
LIMIT_SECONDS = 40_000.0  # of virtual time; the longest deadline of the system is an hour
PATIENT = Deadlines()
_LASTING = ("secrets", "tally", "labels", "clusters", "centers.csv")  # of a client's disk: what outlives a job


@dataclass
class Process:
    """One party: what is running, and what survives it."""

    name: str
    disk: dict[str, bytes] = field(default_factory=dict)
    audit: list[Fact] = field(default_factory=list)  # on the disk too: what was recorded of this job
    secrets: Secrets | None = None  # on the disk too, as an object
    machine: Any = None
    life: int = 0  # counts its starts: what was meant for an earlier one is lost
    pending: int = 0  # batches of effects that wait to be kept
    kept_at: float = 0.0  # when the last of them is kept: one after the other
    frozen_until: float = 0.0
    disk_fails: bool = False
    busy: float = 0.05  # seconds that computing takes at most
    error: SecfcError | None = None  # how its last life ended
    done: bool = False  # a client: its job is over for it, with labels

    @property
    def alive(self) -> bool:
        return self.machine is not None


@dataclass
class Stream:
    """One Follow call."""

    client: str
    lives: tuple[int, int]
    cursor: Cursor = field(default_factory=Cursor)
    seen: int = -1  # the server's changes, as last told
    clear_at: float = 0.0  # when what was sent last arrives: order is kept within a stream
    open: bool = True


class World:
    """See the module's docstring. `calm` makes a world in which nothing goes wrong by itself."""

    def __init__(self, scene: Scene, seed: int = 0, *, calm: bool = True, deadlines: Deadlines = PATIENT) -> None:
        self.scene, self.chance, self.deadlines = scene, random.Random(seed), deadlines
        self.now = 1000.0
        self.trace: list[str] = []
        self.registry = Registry()
        self.carrier = Carrier(self)
        self.parties = {name: Process(name) for name in (SERVER, *scene.federation.roster)}
        self.clients = [self.parties[name] for name in scene.federation.roster]
        self.piece_bytes = 64
        self.ends = 0  # counts ends of processes, and of the server's job
        self.lossy = 0.0 if calm else 0.02  # chance that a message is cut, comes twice, or its receipt is lost
        self.crashes = 0.0  # chance that a party dies between two effects
        self.walls: set[frozenset[str]] = set()  # pairs that cannot reach each other
        self.alter: Callable[[str, Send], Send] = lambda _, send: send
        self.tell: Callable[[str, messages.Event], messages.Event] = lambda _, event: event
        self.policies: dict[str, Policy] = {}
        self.ids: Callable[[str, bytes], Ids] | None = scene.linked if scene.names else None
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._streams: dict[str, Stream] = {}
        self.notes: list[tuple[str, str]] = []
        self.coins: dict[str, bytes] = {}
        self.finished_requests: dict[int, str] = {}  # with their steps
        self.lloyd: dict[int, list[list[int]]] = {}  # by run: the labels after every Lloyd round

    # --- time ------------------------------------------------------------------------------------------------------------

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        self._at(self.now + seconds, call)

    def _at(self, when: float, call: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._heap, (when, self._count, call))

    def say(self, text: str) -> None:
        self.trace.append(f"{self.now - 1000:9.2f}  {text}")

    def step(self) -> None:
        """The next thing that happens."""
        at, _, call = heapq.heappop(self._heap)
        self.now = max(self.now, at)
        call()

    def until(self, condition: Callable[[], bool], seconds: float = LIMIT_SECONDS) -> None:
        """Until something holds; an error if it never does."""
        end = self.now + seconds
        with self.patched():
            while not condition():
                if self.now > end or not self._heap:
                    raise AssertionError(f"it never comes to that: {self.describe()}")
                self.step()

    @contextmanager
    def patched(self) -> Iterator[None]:
        """Small pieces, so that small jobs travel in many; and the registry looks on."""
        with ExitStack() as stack:
            stack.enter_context(mock.patch.object(transfer, "PIECE_BYTES", self.piece_bytes))
            stack.enter_context(mock.patch.object(transfer, "FIRST_BYTES", self.piece_bytes // 2))
            stack.enter_context(mock.patch.object(bounds, "WORTH", 0))  # distances are left out however few they are
            stack.enter_context(mock.patch.object(bounds, "MOST", 1.0))
            stack.enter_context(self.registry.watching())
            yield

    def _tick(self, name: str, life: int) -> None:
        process = self.parties[name]
        if process.life != life or not process.alive:
            return
        self.give(name, Tick())
        if name != SERVER:
            self.carrier.attend(name)
        self.after(TICK_SECONDS if self.now < 3000 else 20 * TICK_SECONDS, partial(self._tick, name, life))

    # --- processes -------------------------------------------------------------------------------------------------------

    def start(self, *names: str) -> None:
        """Start parties; all of them if none is named."""
        with self.patched():
            for name in names or self.parties:
                self._start(name)

    def _start(self, name: str) -> None:
        process = self.parties[name]
        if process.alive:
            return
        process.life += 1
        process.pending, process.error, process.frozen_until = 0, None, 0.0
        process.machine = self._server(process) if name == SERVER else self._client(process)
        self.say(f"{name} starts (life {process.life})")
        self.give(name, Started())
        self.after(self.chance.uniform(0, TICK_SECONDS), partial(self._tick, name, process.life))

    def _server(self, process: Process) -> Coordinator:
        scene = self.scene
        verify = verifier(scene.federation)
        kept = dict(process.disk)
        return Coordinator(scene.federation, scene.plan, verify, kept=kept, deadlines=self.deadlines, now=self.now)

    def _client(self, process: Process) -> Participant:
        scene, resumed = self.scene, process.secrets is not None
        if process.secrets is None:
            process.secrets = self._fresh()
        secrets = replace(process.secrets, revealed=process.disk.get("revealed", b""))
        kept = {key: value for key, value in process.disk.items() if not key.startswith(("shares/", "lasting/"))}
        policy = self.policies.get(process.name) or Policy(open_centers=scene.federation.job.centers)
        guard = Guard(scene.federation, scene.plan, policy, kept.get("given", b""))
        j = scene.federation.roster.index(process.name)
        name = process.name
        site = Site(
            federation=scene.federation,
            plan=scene.plan,
            name=name,
            rows=scene.brought(j),
            secrets=secrets,
            guard=guard,
            verify=verifier(scene.federation),
            sign=lambda text: sign(name, text),
            certificate=b"pem of " + name.encode(),
            instance=self.chance.randbytes(16),
            chance=self.chance,
            ids=None if self.ids is None else partial(self.ids, name),
            frozen=scene.frozen(name),
        )
        self.coins[name] = secrets.coin
        opens = scene.federation.job.centers != "nobody"
        written = kept.get("written", b"")
        leaving = (written[:32], None) if written and (not opens or "centers-done" in kept) else None
        return Participant(site, kept=kept, resumed=resumed, leaving=leaving, now=self.now)

    def _fresh(self) -> Secrets:
        private = X25519PrivateKey.from_private_bytes(self.chance.randbytes(32))
        return Secrets(self.chance.randbytes(32), private, self.chance.randbytes(32), self.chance.randbytes(32))

    def kill(self, name: str, why: str = "killed") -> None:
        """kill -9: what was not kept is lost, and so are all connections."""
        process = self.parties[name]
        if not process.alive:
            return
        self.say(f"{name} dies: {why}")
        process.machine = None
        self.ends += 1
        for stream in list(self._streams.values()):
            if name in (SERVER, stream.client):
                self._cut(stream)

    def _end(self, name: str) -> None:
        """A client's machine is through: what `secfc_client.__main__` does with it."""
        process = self.parties[name]
        ended = process.machine.ended
        self.kill(name, f"ended: {ended.error or 'done'}")
        process.error = ended.error
        if isinstance(ended.error, NoSuchJob) or (ended.error is None and not ended.untold):
            process.disk = {key: value for key, value in process.disk.items() if key in _LASTING}
            process.audit = []
            process.secrets = None
        if isinstance(ended.error, NoSuchJob):
            self._start(name)
        elif ended.error is None:
            process.done = True

    # --- inputs and effects ----------------------------------------------------------------------------------------------

    def give(self, name: str, given: Any, done: Callable[[SecfcError | None], None] | None = None) -> None:
        """Hand an input to a party. `done` hears, once the effects are out, whether it was refused, or nobody is there."""
        process = self.parties[name]
        reply = done or (lambda _: None)
        if not process.alive:
            reply(Unavailable(f"{name}: nobody is there"))
            return
        if process.frozen_until > self.now and not isinstance(given, Started):
            life = process.life

            def thawed() -> None:
                if process.life == life:
                    self.give(name, given, done)
                else:
                    reply(Unavailable(f"{name}: the connection broke"))

            self._at(process.frozen_until, thawed)  # all at one time, so in their order
            return
        self.registry.current = name
        try:
            effects = process.machine.handle(given, self.now)
        except SecfcError as error:
            reply(error)
            return
        for note in effects.note:
            self.notes.append((name, note.text))
        if effects.keep or effects.audit or process.pending:
            process.pending += 1
            process.kept_at = max(process.kept_at, self.now) + self.chance.uniform(0.001, 0.05)
            self.after(process.kept_at - self.now, partial(self._kept, process, process.life, effects, reply))
        else:
            self._release(process, process.life, effects, reply)

    def _kept(self, process: Process, life: int, effects: Effects, reply: Callable[[SecfcError | None], None]) -> None:
        if process.life != life or not process.alive:
            reply(Unavailable(f"{process.name}: the connection broke"))
            return
        if process.disk_fails:
            process.error = StorageError("the disk is full")
            self.kill(process.name, "its disk fails")
            reply(Unavailable(f"{process.name} cannot keep what it must"))
            return
        process.audit += effects.audit
        for one in effects.keep:
            if self._crashes(process):
                break  # a client keeps one file after the other; the server keeps all or nothing, and has lost them all
            if process.name == SERVER:
                continue
            self._put(process, one)
        if not process.alive:
            reply(Unavailable(f"{process.name}: the connection broke"))
            return
        if process.name == SERVER:
            for one in effects.keep:
                self._put(process, one)
                self._note_round(process, one)
        process.pending -= 1
        self._release(process, life, effects, reply)

    @staticmethod
    def _put(process: Process, one: Put | Drop) -> None:
        if isinstance(one, Drop):
            process.disk.pop(one.key, None)
        elif one.key == "no-centers":
            process.disk.pop("centers.csv", None)
        elif one.key == "centers":
            process.disk["centers.csv"] = bytes(one.value)
        else:
            process.disk[one.key] = bytes(one.value)

    def _note_round(self, server: Process, one: Put | Drop) -> None:
        if isinstance(one, Put) and one.key.startswith("record/"):  # kept together with the state that follows
            record = records.record_from(bytes(one.value))
            assert record.number not in self.finished_requests, f"request {record.number} was finished twice"
            self.finished_requests[record.number] = record.step
            for run, state in self._states().items():
                rounds = self.lloyd.setdefault(run, [])
                if state.rounds > len(rounds):
                    rounds.append(state.labels.tolist())

    def _states(self) -> dict[int, State]:
        """Where every run stands, as the server has written it down."""
        kept = records.below(self.parties[SERVER].disk, "state")
        return {int(run): records.state_from(value) for run, value in kept.items()}

    def _crashes(self, process: Process) -> bool:
        if self.crashes and self.chance.random() < self.crashes:
            self.kill(process.name, "between two effects")
            self.after(self.chance.uniform(0.1, 20.0), partial(self._start, process.name))
            return True
        return False

    def _release(
        self, process: Process, life: int, effects: Effects, reply: Callable[[SecfcError | None], None]
    ) -> None:
        for send in effects.send:
            if self._crashes(process):
                break
            self._check_given(process, send)
            self.after(self.chance.uniform(0.0, 0.02), partial(self._transmit, process.name, life, send))
        for work in effects.work:
            if process.alive:
                self.after(self.chance.uniform(0.0, process.busy), partial(self._work, process, life, work))
        if not process.alive:
            reply(Unavailable(f"{process.name}: the connection broke"))
            return
        reply(effects.refusal)
        if process.name == SERVER:
            self.ends += process.machine.phase is Phase.FAILED
            self.after(0.0, self._pump)
        elif process.machine.over(self.now):
            self._end(process.name)

    @staticmethod
    def _check_given(process: Process, send: Send) -> None:
        """Nothing of an answer leaves before it is on disk that the request was admitted, and what that gives away; and
        before it is in the audit file."""
        parcel = send.message
        if process.name != SERVER and isinstance(parcel, Parcel) and parcel.kind in (Kind.UPLOAD, Kind.STEP):
            assert attempt_of(parcel.name) <= admitted(process.disk), f"{process.name} answers what it has not noted"
            noted = {(one.fields["request"], one.fields["attempt"]) for one in process.audit if "attempt" in one.fields}
            assert attempt_of(parcel.name) in noted, f"{process.name} answers what is not in its audit file"

    def _work(self, process: Process, life: int, work: Work | Load) -> None:
        if process.life != life or not process.alive:
            return
        self.registry.current = process.name
        try:
            result = process.disk.get(work.key) if isinstance(work, Load) else work.run()
            given = Worked(work.name, result, None, 0.01)
        except SecfcError as error:
            given = Worked(work.name, None, error)
        self.give(process.name, given)

    # --- the network -------------------------------------------------------------------------------------------------------

    def _delay(self) -> float:
        return self.chance.uniform(0.001, 0.1)

    def _reach(self, one: str, other: str) -> bool:
        return frozenset((one, other)) not in self.walls

    def _unlucky(self) -> bool:
        return bool(self.lossy) and self.chance.random() < self.lossy

    def _transmit(self, sender: str, life: int, send: Send) -> None:
        process = self.parties[sender]
        if process.life != life or not process.alive:
            return
        send_as_meant, send = send, self.alter(sender, send)
        back = partial(self._outcome, process, life, send_as_meant)
        if isinstance(send.message, Parcel) and not self.scene.federation.dialled(send.to):
            self.carrier.deliver(sender, send.to, send.message, send.body or Whole(b""), back)
        elif not self._reach(sender, send.to):
            no_route = Unavailable(f"{send.to}: no route")
            joins = isinstance(send.message, messages.Join)
            hear = partial(self._lost, sender, life, no_route) if joins else partial(back, no_route)
            self.after(self.chance.uniform(0.1, 5.0), hear)
        elif isinstance(send.message, messages.Join):
            self.after(self._delay(), partial(self._join, sender, life, send.message))
        elif isinstance(send.message, Parcel):
            body = send.body or Whole(b"")
            self.after(self._delay(), partial(self._deliver, sender, send.to, send.message, body, back))
        else:
            data = wire.report_to(send.message, process.machine.site.instance).SerializeToString()
            self.after(self._delay(), partial(self._report, sender, data, back))

    def _outcome(self, process: Process, life: int, send: Send, error: SecfcError | None) -> None:
        """What the sender hears of a message; a receipt may be lost."""
        if error is None and self._unlucky():
            error = Unavailable(f"{send.to}: the connection broke")
        given = Sent(send) if error is None else Unsent(send, error)

        def hear() -> None:
            if process.life == life and process.alive:
                self.give(process.name, given)

        self.after(self._delay(), hear)

    def _report(self, sender: str, data: bytes, back: Callable[[SecfcError | None], None]) -> None:
        message = pb.ReportRequest.FromString(data)
        if self._unlucky():
            back(Unavailable("the server: the connection broke"))
            return
        self.give(SERVER, Reported(sender, message.instance, wire.report_from(message)), back)
        if self._unlucky():  # the same once more
            self.give(SERVER, Reported(sender, message.instance, wire.report_from(message)))

    def _deliver(
        self, sender: str, to: str, parcel: Parcel, body: Any, back: Callable[[SecfcError | None], None]
    ) -> None:
        """Piece after piece, from where the receiver stands."""
        process = self.parties[to]
        try:
            known = process.machine.progress(sender, parcel) if process.alive else 0
        except SecfcError as error:
            back(error)
            return
        first = self.chance.choice([known, known // 16 * 8]) if known else 0  # what is there may come again
        if first >= body.total > 0:
            back(None)
            return
        cut = list(transfer.pieces(body, first))
        self._piece(sender, self.parties[sender].life, to, parcel, body.total, cut, back)

    def _piece(
        self,
        sender: str,
        life: int,
        to: str,
        parcel: Parcel,
        total: int,
        cut: list[tuple[int, Any]],
        back: Callable[[SecfcError | None], None],
    ) -> None:
        if self.parties[sender].life != life or not self.parties[sender].alive:
            return
        if not self._reach(sender, to) or self._unlucky():
            back(Unavailable(f"{to}: the connection broke"))
            return
        (offset, data), rest = cut[0], cut[1:]
        bytes_ = wire.piece_to(parcel, offset, total, data, 0.01).SerializeToString()
        arrived = wire.arrived_from(sender, pb.Piece.FromString(bytes_))

        def following(error: SecfcError | None) -> None:
            if error is not None or not rest:
                back(error)
            else:
                self.after(
                    self.chance.uniform(0.0, 0.01), partial(self._piece, sender, life, to, parcel, total, rest, back)
                )

        self.give(to, arrived, following)
        if self._unlucky():
            self.give(to, arrived)

    def _join(self, name: str, life: int, join: messages.Join) -> None:
        message = pb.JoinRequest.FromString(wire.join_to(join).SerializeToString())

        def joined(error: SecfcError | None) -> None:
            process = self.parties[name]
            if process.life != life or not process.alive:
                return
            if error is None and self._unlucky():
                error = Unavailable("the server: the connection broke")
            if error is not None:
                self.after(self._delay(), partial(self._lost, name, life, error))
                return
            self.after(self._delay(), partial(self._follow, name, life, join.instance))

        self.give(SERVER, Joined(name, wire.join_from(message)), joined)

    def _lost(self, name: str, life: int, error: SecfcError) -> None:
        process = self.parties[name]
        if process.life == life and process.alive:
            self.give(name, Lost(error))

    def _follow(self, name: str, life: int, instance: bytes) -> None:
        process, server = self.parties[name], self.parties[SERVER]
        if process.life != life or not process.alive:
            return
        if (old := self._streams.pop(name, None)) is not None:
            old.open = False
        stream = Stream(name, (life, server.life))

        def followed(error: SecfcError | None) -> None:
            if error is not None:
                self._lost(name, life, error)
                return
            self._streams[name] = stream
            self.give(name, Linked())
            self._pump()

        self.give(SERVER, Followed(name, instance), followed)

    def _cut(self, stream: Stream) -> None:
        """A stream breaks: what was on its way is lost, and each end notices when it does."""
        stream.open = False
        if self._streams.get(stream.client) is stream:
            del self._streams[stream.client]
        client, server = self.parties[stream.client], self.parties[SERVER]
        lost = partial(self._lost, stream.client, stream.lives[0], Unavailable("the server: the connection broke"))
        self.after(self.chance.uniform(0.05, 10.0), lost)
        if client.alive and client.life == stream.lives[0]:
            instance = client.machine.site.instance
        else:
            instance = b""

        def noticed() -> None:
            if server.alive and server.life == stream.lives[1] and stream.client not in self._streams:
                member = server.machine.job.members[stream.client]
                self.give(SERVER, Unfollowed(stream.client, instance or member.instance))

        self.after(self.chance.choice([0.1, 1.0, 8.0]) * self.chance.random(), noticed)

    def _pump(self) -> None:
        """The server tells its followers what is new; never before it is kept."""
        server = self.parties[SERVER]
        if not server.alive or server.pending or server.frozen_until > self.now:
            return
        for name, stream in list(self._streams.items()):
            if stream.lives[1] != server.life or not stream.open or stream.seen == server.machine.changes:
                continue
            stream.seen = server.machine.changes
            for event in server.machine.news(name, stream.cursor, self.now):
                self._tell(stream, event)
            if stream.cursor.ended:
                stream.clear_at = max(stream.clear_at, self.now) + 0.01
                self.after(stream.clear_at - self.now, partial(self._over, stream))

    def _tell(self, stream: Stream, event: messages.Event) -> None:
        event = self.tell(stream.client, event)
        data = wire.event_to(event).SerializeToString()
        stream.clear_at = max(stream.clear_at, self.now) + self.chance.uniform(0.0, 0.05)

        def arrive() -> None:
            client = self.parties[stream.client]
            if not stream.open or client.life != stream.lives[0] or not client.alive:
                return
            if self._unlucky() or not self._reach(SERVER, stream.client):
                self._cut(stream)
                return
            self.give(stream.client, Told(wire.event_from(pb.Event.FromString(data))))

        self.after(stream.clear_at - self.now, arrive)

    def _over(self, stream: Stream) -> None:
        if stream.open:
            self._cut(stream)

    # --- what came of it -------------------------------------------------------------------------------------------------

    @property
    def server(self) -> Coordinator:
        machine = self.parties[SERVER].machine
        assert isinstance(machine, Coordinator)
        return machine

    def client(self, name: str) -> Participant:
        machine = self.parties[name].machine
        assert isinstance(machine, Participant)
        return machine

    @property
    def finished(self) -> bool:
        """Whether every client has its labels and has ended."""
        return all(process.done for process in self.clients)

    def labels(self) -> list[list[int]]:
        """What every client has on its disk."""
        sizes = map(len, self.scene.rows)
        values = (process.disk["labels"][32:] for process in self.clients)
        return [np.frombuffer(value[: 4 * size], "<i4").tolist() for value, size in zip(values, sizes, strict=True)]

    def check_labels(self) -> None:
        """Every client's labels are exact Lloyd's from the clients' own coins, and so is every round on the way there."""
        server, scene = self.parties[SERVER], self.scene
        introductions = [_introduction(server.disk, name) for name in scene.federation.roster]
        session = messages.session(scene.federation.agreed(), introductions)
        coins = [server.disk[f"coin/{name}"] for name in scene.federation.roster]
        tossed = start.tossed(session, introductions, coins)
        ids = None
        if scene.plan.private:
            values = [
                process.disk["labels"][32:][4 * len(rows) : 20 * len(rows)]
                for process, rows in zip(self.clients, scene.rows, strict=True)
            ]
            ids = [np.frombuffer(value, "<u8").astype(np.uint64).reshape(-1, 2) for value in values]
        expected, states = scene.expected(tossed, ids), self._states()
        assert sorted(self.finished_requests) == list(range(1, len(self.finished_requests) + 1)), "a request was lost"
        for run, wanted in enumerate(expected):
            self._check_rounds(self.lloyd[run], states[run], wanted)
        best = self._best(states, expected)
        assert self.labels() == expected[best[0]].own, "labels are not exact Lloyd's"
        for run in best[1:]:
            self._check_others(scene.federation.job.runs[run], expected[run].own)

    def _check_rounds(self, lloyd: list[list[int]], state: State, expected: Expected) -> None:
        """What the server has written down of every round: no round is lost or counted twice, and all are exact Lloyd's."""
        assert lloyd == expected.rounds, "a round's labels are not exact Lloyd's"
        assert (state.rounds, state.converged) == (len(expected.rounds), expected.converged)
        shows = kind_of(self.scene.plan).shows_distances
        allowed = Fraction(0) if shows else 1 + expected.inertia / 10**6  # sealed rounds open a blurred total
        assert abs(Fraction(state.inertia) - expected.inertia) <= allowed, "the inertia is not exact Lloyd's"

    def _best(self, states: dict[int, State], expected: Sequence[Expected]) -> list[int]:
        """The run of the least inertia of every k, by what was found; of runs that converge to one partition, the lowest."""
        clusters, found = self.scene.federation.job.runs, dict[int, tuple[Fraction, int]]()
        seen = set[tuple[int, tuple[int, ...]]]()
        for run, state in sorted(states.items()):
            last = expected[run].rounds[-1]
            ended = (clusters[run], tuple(map(last.index, last)))  # every row's fellow that comes first
            if state.converged and ended in seen:
                continue
            if state.converged:
                seen.add(ended)
            loss = Fraction(state.inertia)
            found[clusters[run]] = min(found.get(clusters[run], (loss, run)), (loss, run))
        return [run for _, run in found.values()]

    def _check_others(self, k: int, own: list[list[int]]) -> None:
        """Every client has the labels of the best run of another k too."""
        for process, labels in zip(self.clients, own, strict=True):
            rows = len(labels)
            value = process.disk["labels"][32 + (20 if self.scene.plan.private else 4) * rows :]
            parts = np.frombuffer(value, "<i4").reshape(-1, rows + 1)
            assert [part[1:].tolist() for part in parts if part[0] == k] == [labels]

    def describe(self) -> str:
        """Where everybody stands."""
        out = []
        for name, process in self.parties.items():
            state = process.machine.phase.value if process.alive else f"dead ({process.error or 'killed'})"
            out.append(f"{name} {'done' if process.done else state}")
        return ", ".join(out)


def _introduction(disk: dict[str, bytes], name: str) -> messages.Introduction:
    return records.introduction_from(disk[f"introduction/{name}"])


def lying(scene: Scene) -> Callable[[str, Send], Send]:
    """Liars change every upload of theirs a little."""

    def alter(sender: str, send: Send) -> Send:
        if sender not in scene.liars or not isinstance(send.message, Parcel) or send.message.kind is not Kind.UPLOAD:
            return send
        words = to_words(send.body.data).copy() if isinstance(send.body, Whole) else np.empty(0, np.uint64)
        if len(words):
            words[0] ^= np.uint64(1)
        return replace(send, body=of_words(words))

    return alter


__all__ = ["Coins", "JobFailed", "Phase", "World", "lying"]
