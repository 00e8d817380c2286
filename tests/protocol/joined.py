"""A whole job in memory: one Coordinator and n Participants, joined without a network, in any order and with any mishap.

`Joined` plays the parts of `secfc_server.service` and `secfc_client.runner`: every message goes through `wire` and real
protobuf bytes, in pieces of a few words, but what happens next is picked one small action at a time. Within one stream the
order is kept (as gRPC keeps it); between streams it is arbitrary. Mishaps are what a network does: a stream ends at any
moment and is opened anew, with or without the server noticing first; an upload stops in the middle; a call is repeated
because its answer was lost; a delivery starts again from what Progress says; a client comes late.
"""

from __future__ import annotations

import dataclasses
import enum
import hmac
import itertools
import random
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from secfc import central, config, events, federation, identifiers, masks, plan, start, wire
from secfc.coins import Coins
from secfc.config import Federation
from secfc.errors import JobFailed, OutOfTurn, WrongSender
from secfc.field import Field, Words
from secfc.lagrange import Code
from secfc.lloyd import Clustering
from secfc.plan import Plan
from secfc.v1 import secfc_pb2 as pb
from secfc_client.participant import Participant, Secrets
from secfc_client.participant import Phase as ClientPhase
from secfc_client.past import Past
from secfc_server.alignment import Opening
from secfc_server.coordinator import Coordinator, Cursor, Deadlines, Phase
from secfc_server.rounds import Work
from secfc_server.verifying import Comparison

Rows = npt.NDArray[np.int64]
Action = Callable[[], None]
BEFORE_SHARES = (ClientPhase.JOINING, ClientPhase.AGREEING)
PATIENT = Deadlines(join=1e9, share=1e9, round=86400.0, lost=5.0)


def make_federation(clients: int = 5, **changes: Any) -> Federation:
    """A federation of clients c0, c1, …; η is 128."""
    keys = {
        "name": "trial",
        "k": 3,
        "privacy": 1,
        "uploads": "masked",
        "seeding": "k-means++",
        "max_rows": 60,
        "features": 3,
        "segments": 1,
        "bound": 8.0,
        "precision": 4,
    } | changes
    lines = [f'{key} = "{value}"' if isinstance(value, str) else f"{key} = {value}" for key, value in keys.items()]
    lines += ["[server]", 'address = "server.test:1"']
    for j in range(clients):
        lines += ["[[client]]", f'name = "c{j}"', f'address = "c{j}.test:1"']
    return config.parse("\n".join(lines), "federation.toml")


@cache
def plan_of(agreed: Federation) -> Plan:
    return plan.of(agreed)


def deal(seed: int, sizes: Sequence[int], features: int = 3, spread: int = 128) -> list[Rows]:
    """Rows of every client; a small spread makes ties and duplicate rows."""
    generator = np.random.default_rng(seed)
    return [generator.integers(-spread, spread + 1, (size, features), dtype=np.int64) for size in sizes]


def sign(name: str, statement: bytes) -> bytes:
    """Stands for a signature that only `name` can make."""
    return hmac.digest(name.encode(), statement, "sha256")


def verifier(agreed: Federation) -> Callable[[events.Signed], None]:
    def verify(signed: events.Signed) -> None:
        if not hmac.compare_digest(sign(signed.name, signed.statement(agreed.digest())), signed.signature):
            raise WrongSender(f"the {type(signed).__name__.lower()} of {signed.name} is not signed by it")

    return verify


def fresh_secrets(generator: random.Random) -> Secrets:
    private = X25519PrivateKey.from_private_bytes(generator.randbytes(32))
    return Secrets(generator.randbytes(32), private, generator.randbytes(32), generator.randbytes(32))


# --- what a refused message must not change -------------------------------------------------------------------------

_LOCK = type(threading.Lock())
_SHARED = (Federation, Plan, Field, Code, Coins, X25519PrivateKey, _LOCK)  # frozen; caches inside them are not state


def snapshot(value: object) -> object:
    """Everything reachable from a machine, as plain values that compare equal exactly if nothing changed."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if value is None or isinstance(value, str | bytes | bytearray | int | float | Fraction | enum.Enum | np.generic):
        return repr(value)
    if isinstance(value, _SHARED) or callable(value):
        return id(value)
    if isinstance(value, dict):
        return [(snapshot(key), snapshot(item)) for key, item in value.items()]
    if isinstance(value, set | frozenset):
        return sorted(map(repr, value))
    if isinstance(value, list | tuple):
        return [snapshot(item) for item in value]
    if dataclasses.is_dataclass(value):
        return [type(value).__name__, *(snapshot(getattr(value, f.name)) for f in dataclasses.fields(value))]
    return [type(value).__name__, snapshot(vars(value))]


@contextmanager
def unchanged(*machines: object) -> Iterator[None]:
    before = [snapshot(machine) for machine in machines]
    yield
    assert [snapshot(machine) for machine in machines] == before, "a refused message has changed something"


# --- one client's process -------------------------------------------------------------------------------------------


@dataclass
class Stream:
    """One Follow call: what the server has told it, and what is on its way."""

    cursor: Cursor = field(default_factory=Cursor)
    told: int = -1
    queue: deque[bytes] = field(default_factory=deque)


@dataclass
class Sending:
    """One Upload call: the chunks that are still to be sent."""

    request: events.RoundRequest
    queue: deque[bytes]


@dataclass
class Delivery:
    """One Deliver call."""

    queue: deque[bytes]


@dataclass
class Site:
    """One client: its machine, and what its process would keep."""

    participant: Participant
    instance: bytes
    started: bool = False
    joined: bool = False
    stream: Stream | None = None
    sending: Sending | None = None
    deliveries: dict[str, Delivery] = field(default_factory=dict)
    delivered: set[str] = field(default_factory=set)
    held: events.Held | None = None
    held_taken: bool = False
    stage: object = None  # which exchange `deliveries` and `delivered` are of
    contributed: bool = False
    part_given: bool = False  # of the check of all shares, over this connection
    parts: set[bytes] = field(default_factory=set)  # what it gave
    done_told: bool = False
    answered: dict[tuple[int, int], bytes] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.participant.name

    @property
    def over(self) -> bool:
        return self.participant.phase in (ClientPhase.FINISHED, ClientPhase.FAILED)

    def introduction(self) -> events.Introduction:
        return self.participant.introduction(b"pem of " + self.name.encode(), lambda text: sign(self.name, text))


def open_confirmation(participant: Participant) -> None:
    """Everybody has committed itself on the union."""
    participant.note_commitments()
    participant.open_confirmation()


class Joined:
    """The server and all clients. `enabled()` is what may happen next, `mishaps()` what may go wrong."""

    def __init__(
        self,
        agreed: Federation,
        rows: Sequence[Rows],
        *,
        seed: int = 0,
        deadlines: Deadlines = PATIENT,
        late: Iterable[str] = (),
    ) -> None:
        self.random = random.Random(seed)
        self.federation, self.plan, self.rows = agreed, plan_of(agreed), list(rows)
        self.now = 1000.0
        self.coordinator = Coordinator(agreed, self.plan, verifier(agreed), deadlines=deadlines, now=self.now)
        self.sites = {name: self.make_site(name) for name in agreed.roster}
        for name, site in self.sites.items():
            site.started = name not in late
        self.work: Work | None = None
        self.opening: Opening | None = None
        self.comparison: Comparison | None = None
        self.followers: dict[str, Stream] = {}
        self.unnoticed: list[tuple[str, bytes, Stream]] = []
        self.steps = 0
        self.attempts: list[tuple[int, int, tuple[int, ...]]] = []
        self._seen_phases = [Phase.JOINING]

    @property
    def coins(self) -> Coins:
        """What the clients' own coins make of the start."""
        machines = [site.participant for site in self.sites.values()]
        return start.tossed(machines[0].session, machines[0].members, [m._secrets.coin for m in machines])

    def make_site(self, name: str, secrets: Secrets | None = None, past: Past | None = None) -> Site:
        """A client's process, from the start."""
        j = self.federation.roster.index(name)
        kept = secrets or fresh_secrets(self.random)
        verify = verifier(self.federation)
        machine = Participant(self.federation, self.plan, name, self.rows[j], kept, verify, past=past)
        return Site(machine, self.random.randbytes(16), started=True)

    # --- the server's calls, as secfc_server.service makes them --------------------------------------------------------

    def join(self, site: Site) -> None:
        message = wire.introduction_to(site.introduction()).SerializeToString()
        introduction = wire.introduction_from(pb.Introduction.FromString(message))
        self.coordinator.join(site.name, self.federation.digest(), site.instance, introduction, self.now)
        site.joined = True

    def follow(self, site: Site) -> None:
        self.coordinator.connected(site.name, site.instance, self.now)
        site.stream = self.followers[site.name] = Stream()

    def notice(self, lost: tuple[str, bytes, Stream]) -> None:
        """The server finds that a stream has ended."""
        self.unnoticed.remove(lost)
        name, instance, stream = lost
        if self.followers.get(name) is stream:
            del self.followers[name]
            self.coordinator.disconnected(name, instance, self.now)

    def pump(self, site: Site) -> None:
        """The server writes its news into a client's stream."""
        stream = site.stream
        assert stream is not None
        stream.told = self.coordinator.changes
        for event in self.coordinator.news(site.name, stream.cursor, self.now):
            stream.queue.append(wire.event_to(event).SerializeToString())
            if isinstance(event, events.RoundRequest) and not event.past:
                asked = (event.number, event.attempt, event.responders)
                if asked not in self.attempts:
                    self.attempts.append(asked)

    def report(self, site: Site, report: events.Report) -> None:
        message = pb.ReportRequest.FromString(wire.report_to(report, site.instance).SerializeToString())
        self.coordinator.report(site.name, message.instance, wire.report_from(message), self.now)

    def upload(self, name: str, data: bytes) -> None:
        message = pb.UploadChunk.FromString(data)
        self.coordinator.check_session(name, message.session)
        chunk = wire.chunk_from(message)
        asked = (message.round, message.attempt)
        self.coordinator.upload(name, asked, chunk, message.compute_seconds, self.now)

    def work_if_ready(self) -> None:
        work = self.coordinator.take_work()
        if work is not None:
            assert self.work is None, "work is handed out once"
            self.check_work(work)
            assert self.coordinator.take_work() is None, "work is handed out once"
            self.work = work

    def check_work(self, work: Work) -> None:
        """Exactly R distinct responders of the current attempt, and every word of each."""
        attempt = self.coordinator.rounds.attempt if self.coordinator.rounds else None
        assert attempt is not None
        assert work.decoder is attempt.decoder, "uploads of two attempts are never mixed"
        assert len(set(attempt.responders)) == self.plan.responders
        assert not work.decoder.missing()
        due = work.decoder.shape.layout.words
        assert all(work.decoder.received(j) == due for j in attempt.responders)

    def finish_work(self) -> None:
        assert self.work is not None
        progress, self.work = self.work.run(), None
        self.coordinator.complete(self.coordinator.record(progress, 0.001, self.now), self.now)

    def contribute(self, site: Site) -> None:
        """A client's share of a sum over all, in pieces; the last one may start the opening."""
        self.give(site, *site.participant.contribution())
        site.contributed = True
        opening = self.coordinator.take_opening()
        if opening is not None:
            assert self.opening is None, "an opening is handed out once"
            assert len(opening.sums) == len(self.sites), "a partial sum is never opened"
            self.opening = opening

    def give(self, site: Site, context: bytes, words: Words) -> None:
        for chunk in wire.chunks(words):
            message = pb.SumChunk(
                context=context, offset=chunk.offset, total=chunk.total, words=wire.word_bytes(chunk.words)
            )
            taken = wire.chunk_from(pb.SumChunk.FromString(message.SerializeToString()))
            try:
                self.coordinator.contribute(site.name, context, taken, self.now)
            except OutOfTurn:  # it was opened meanwhile
                break

    def give_part(self, site: Site) -> None:
        """A client's part of the check of all shares; the last one starts it."""
        purpose, words = site.participant.verification()
        site.parts.add(words.tobytes())
        assert len(site.parts) == 1, "a client gives one part only, byte for byte"
        self.give(site, purpose, words)
        site.part_given = True
        comparison = self.coordinator.take_comparison()
        if comparison is not None:
            assert self.comparison is None, "a comparison is handed out once"
            assert len(comparison.given) == len(self.sites)
            self.comparison = comparison

    def finish_comparison(self) -> None:
        assert self.comparison is not None
        comparison, self.comparison = self.comparison, None
        try:
            comparison.run()
        except JobFailed as error:
            self.coordinator.fail(error, self.now)
        else:
            self.coordinator.compared(self.now)

    def confirm(self, site: Site, peer: Site) -> None:
        """One client tells another about the union, and hears its word."""
        mine = pb.Confirmation.FromString(wire.confirmed_to(site.participant.confirmation).SerializeToString())
        try:
            reply = peer.participant.confirm(site.name, wire.confirmed_from(mine))
        except OutOfTurn:  # it does not know the union yet
            return
        theirs = pb.Confirmation.FromString(wire.confirmed_to(reply).SerializeToString())
        site.participant.confirm(peer.name, wire.confirmed_from(theirs))

    def finish_opening(self) -> None:
        assert self.opening is not None
        result, self.opening = self.opening.run(), None
        self.coordinator.opened(result, self.now)

    def tick(self, seconds: float) -> None:
        self.now += seconds
        self.coordinator.tick(self.now)

    # --- a client's calls, as secfc_client.runner makes them -----------------------------------------------------------

    def read(self, site: Site) -> None:
        """A client takes the next event from its stream."""
        assert site.stream is not None
        event = wire.event_from(pb.Event.FromString(site.stream.queue.popleft()))
        request = site.participant.handle(event)
        if isinstance(event, events.Roster) and site.participant.phase is ClientPhase.AGREEING:
            self.tell_agreed(site)
        if isinstance(event, events.Reveals):
            site.part_given = False  # the server may have restarted
        if request is not None:
            self.answer(site, request)

    def tell_agreed(self, site: Site) -> None:
        self.report(site, agreement(site.participant))

    def answer(self, site: Site, request: events.RoundRequest) -> None:
        words = site.participant.answer(request)
        name = (request.number, request.attempt)
        kept = site.answered.setdefault(name, words.tobytes())
        assert kept == words.tobytes(), "the same request gives the same bytes"
        queue = deque(upload_chunks(site.participant, request, words))
        site.sending = Sending(request, queue)

    def send(self, site: Site) -> None:
        """The next chunk of an upload; after the last one the end of the stream."""
        assert site.sending is not None
        try:
            if site.sending.queue:
                self.upload(site.name, site.sending.queue.popleft())
                return
            self.work_if_ready()
        except OutOfTurn:  # the round went on without it
            pass
        site.sending = None

    def deliver(self, site: Site, peer: Site) -> None:
        """The next step of a delivery: Progress, chunk after chunk, and the end of the stream."""
        me, other = site.participant, peer.participant
        delivery = site.deliveries.get(peer.name)
        if delivery is None:
            try:
                known = other.progress(site.name, me.session, me.stage.id)
            except OutOfTurn:  # it does not know the roster yet, or is not at the same stage
                return
            words = me.outgoing(peer.name)
            if known >= len(words) > 0:
                site.delivered.add(peer.name)
            else:
                site.deliveries[peer.name] = Delivery(deque(share_chunks(me, words, known)))
        elif delivery.queue:
            message = pb.ShareChunk.FromString(delivery.queue.popleft())
            other.receive(site.name, message.session, message.share_set, wire.chunk_from(message))
        else:
            settle(other, site.name)
            del site.deliveries[peer.name]
            site.delivered.add(peer.name)

    def hold(self, site: Site) -> None:
        site.held = events.Held(site.participant.holdings(), 1, 2, 0.5, site.participant.coin())

    def tell_held(self, site: Site) -> None:
        assert site.held is not None
        self.report(site, site.held)
        site.held_taken = True

    def tell_done(self, site: Site) -> None:
        self.report(site, events.Done())
        site.done_told = True

    # --- what may happen next ------------------------------------------------------------------------------------------

    def enabled(self) -> list[Action]:
        out: list[Action] = [lambda lost=lost: self.notice(lost) for lost in self.unnoticed]  # type: ignore[misc]
        if self.work is not None:
            out.append(self.finish_work)
        if self.opening is not None:
            out.append(self.finish_opening)
        if self.comparison is not None:
            out.append(self.finish_comparison)
        for site in self.sites.values():
            out += self._enabled(site)
        return out

    def _enabled(self, site: Site) -> list[Action]:
        if not site.started:
            return [lambda: setattr(site, "started", True)]
        out: list[Action] = []
        if site.sending is not None:
            out.append(lambda: self.send(site))
        elif not site.over:
            out += self._following(site)
        if site.participant.phase in (ClientPhase.UNION, ClientPhase.SHARING):
            out += self._sharing(site)
        if site.held is not None and not site.held_taken:
            out.append(lambda: self.tell_held(site))
        if site.participant.verifiable and not site.part_given:
            out.append(lambda: self.give_part(site))
        if site.participant.phase is ClientPhase.FINISHED and not site.done_told:
            out.append(lambda: self.tell_done(site))
        if site.stream is not None and site.stream.told != self.coordinator.changes and not site.over:
            out.append(lambda: self.pump(site))
        return out

    def _following(self, site: Site) -> list[Action]:
        if not site.joined:
            return [lambda: self.join(site)]
        if site.stream is None:
            return [lambda: self.follow(site)]
        if not site.stream.queue:
            return []
        first = pb.Event.FromString(site.stream.queue[0]).WhichOneof("kind")
        ready = first not in ("assignment", "round", "finished") or site.held_taken
        return [lambda: self.read(site)] if ready else []

    def _sharing(self, site: Site) -> list[Action]:
        me = site.participant
        if site.stage is not me.stage:
            site.stage, site.deliveries, site.delivered, site.contributed = me.stage, {}, set(), False
        if me.confirms:
            opened = len(me.confirmation.words) > 0
            return self._confirmations(site, me.unconfirmed()) or [
                me.conclude_union if opened else lambda: open_confirmation(me)
            ]
        others = [peer for peer in self.sites.values() if peer is not site and peer.started]
        out: list[Action] = [
            lambda peer=peer: self.deliver(site, peer)  # type: ignore[misc]
            for peer in others
            if peer.name not in site.delivered and peer.participant.phase not in BEFORE_SHARES
        ]
        if me.name in me.missing():
            out.append(me.keep_own)
        if not me.missing() and len(site.delivered) == len(self.sites) - 1:
            if me.phase is ClientPhase.SHARING:
                out.append(lambda: self.hold(site))
            elif not site.contributed:
                out.append(lambda: self.contribute(site))
        return out

    def _confirmations(self, site: Site, names: Iterable[str]) -> list[Action]:
        return [lambda name=name: self.confirm(site, self.sites[name]) for name in names]  # type: ignore[misc]

    # --- what may go wrong -------------------------------------------------------------------------------------------

    def drop(self, site: Site, *, upload_too: bool = True) -> None:
        """The connection is lost: what was on its way is gone. The server may notice at once, later, or too late."""
        if site.stream is not None:
            self.unnoticed.append((site.name, site.instance, site.stream))
        site.stream, site.joined = None, False
        if upload_too:
            site.sending = None

    def repeat_chunk(self, site: Site) -> None:
        """A chunk that was taken before comes again: refused, and nothing changes."""
        assert site.sending is not None
        words = np.frombuffer(site.answered[site.sending.request.number, site.sending.request.attempt], dtype="<u8")
        again = dataclasses.replace(site.sending.request, received=0)
        message = next(upload_chunks(site.participant, again, words))
        attempt = self.coordinator.rounds.attempt if self.coordinator.rounds else None
        if attempt is None or attempt.decoder.received(site.participant.index) == 0:
            return
        with unchanged(self.coordinator):
            try:
                self.upload(site.name, message)
            except wire.Malformed:
                return
            except OutOfTurn:
                return
        raise AssertionError("a repeated chunk was taken")

    def mishaps(self) -> list[Action]:
        out: list[Action] = []
        for site in self.sites.values():
            if not site.started:
                continue
            if site.stream is not None and not site.over:
                out.append(lambda site=site: self.drop(site))  # type: ignore[misc]
                out.append(lambda site=site: self.drop(site, upload_too=False))  # type: ignore[misc]
            if site.joined:
                out.append(lambda site=site: self.join(site))  # type: ignore[misc]
            if site.held_taken:
                out.append(lambda site=site: self.tell_held(site))  # type: ignore[misc]
            if site.sending is not None and wire.CHUNK_WORDS < 100:
                out.append(lambda site=site: self.repeat_chunk(site))  # type: ignore[misc]
            if site.participant.phase in (ClientPhase.UNION, ClientPhase.SHARING):
                out += self._broken_deliveries(site)
            if site.participant.verifiable:
                out.append(lambda site=site: self.give_part(site))  # type: ignore[misc]
            if site.participant.confirms:
                out += self._confirmations(site, [name for name in self.sites if name != site.name])
            elif (
                site.contributed
                and site.participant.phase is ClientPhase.UNION
                and site.stage is site.participant.stage
            ):
                out.append(lambda site=site: self.contribute(site))  # type: ignore[misc]
        return out

    def _broken_deliveries(self, site: Site) -> list[Action]:
        """A delivery is cut, or its receipt is lost; the next one starts from what Progress says.

        A cut between the last chunk and the end of the stream has a test of its own: test_machines, "last chunk".
        """
        cut = [to for to, delivery in site.deliveries.items() if delivery.queue]
        out: list[Action] = [lambda to=to: site.deliveries.pop(to) for to in cut]  # type: ignore[misc]
        out += [lambda to=to: site.delivered.discard(to) for to in site.delivered]  # type: ignore[misc]
        return out

    # --- running -------------------------------------------------------------------------------------------------------

    @property
    def over(self) -> bool:
        if self.coordinator.phase is Phase.FAILED:
            return True
        return all(site.done_told for site in self.sites.values())

    def step(self, mishap: float = 0.0, pause: float = 0.05) -> None:
        """One action, picked by chance; time passes now and then."""
        self.steps += 1
        if self.random.random() < pause:
            self.tick(self.random.uniform(0.0, 3.0))
        elif self.random.random() < mishap and (bad := self.mishaps()):
            self.random.choice(bad)()
        elif good := self.enabled():
            self.random.choice(good)()
        else:
            self.tick(1.0)
        self.check()

    def run(self, *, mishap: float = 0.0, mishaps_until: int = 1500, limit: int = 60_000) -> None:
        """Until the job is over; after so many steps nothing goes wrong any more, so that it ends."""
        with small_chunks():
            while not self.over:
                self.step(mishap if self.steps < mishaps_until else 0.0)
                assert self.steps < limit, f"the job stands still: {self.coordinator.phase}"

    def until(self, condition: Callable[[], bool], limit: int = 20_000) -> None:
        """Without mishaps until a condition holds."""
        with small_chunks():
            for _ in range(limit):
                if condition():
                    return
                self.step(pause=0.0)
        raise AssertionError("the job never got there")

    def check(self) -> None:
        """What holds at any moment."""
        phase = self.coordinator.phase
        if phase is not self._seen_phases[-1]:
            assert self._seen_phases[-1] not in (Phase.FINISHED, Phase.FAILED), "the end is final"
            self._seen_phases.append(phase)
        order = [
            Phase.JOINING,
            Phase.AGREEING,
            Phase.UNION,
            Phase.SHARING,
            Phase.CHECKING,
            Phase.ROUNDS,
            Phase.FINISHED,
        ]
        ranks = [order.index(p) for p in self._seen_phases if p is not Phase.FAILED]
        assert ranks == sorted(ranks)
        names = [(number, attempt) for number, attempt, _ in self.attempts]
        assert names == sorted(set(names)), "numbers and attempts rise, and an attempt has one responder set"

    def expected(self) -> tuple[central.Central, federation.Result]:
        """The same job in the clear, and the protocol's specification on it, from the same coins."""
        k, seeding = self.federation.k, self.federation.seeding
        order = self.order()
        pooled = central.run(
            np.concatenate(self.rows)[np.argsort(np.concatenate(order))],
            k,
            start=seeding,
            coins=self.coins,
            max_rounds=self.federation.max_rounds,
        )
        spoken = federation.run(
            plan_of(dataclasses.replace(self.federation, membership="public")),
            self.rows,
            lambda total: Clustering(total, k, start=seeding, coins=self.coins, max_rounds=self.federation.max_rounds),
            positions=order,
        )
        return pooled, spoken

    def order(self) -> list[npt.NDArray[np.int64]]:
        """Where each client's rows stand among all: by roster, or by sorted ID where membership is private."""
        if not self.plan.private:
            edges = np.cumsum([0, *map(len, self.rows)])
            return [np.arange(a, b) for a, b in itertools.pairwise(edges)]
        ids = np.concatenate([site.participant.ids for site in self.sites.values()])
        known = ids[identifiers.order(ids)]
        return [identifiers.find(known, site.participant.ids) for site in self.sites.values()]

    def labels(self) -> list[list[int]]:
        return [site.participant.own_labels().tolist() for site in self.sites.values()]

    def check_result(self) -> None:
        """Every client has its own rows' labels, and the server's record is that of the specification."""
        assert self.coordinator.phase is Phase.FINISHED, str(self.coordinator.failure)
        pooled, spoken = self.expected()
        wanted = [pooled.labels[at].tolist() for at in self.order()]
        assert spoken.labels.tolist() == pooled.labels.tolist()
        assert self.labels() == wanted
        rounds = self.coordinator.rounds
        assert rounds is not None
        done = [(r.number, r.step, r.columns, r.changed, r.inertia) for r in rounds.records]
        assert done == [(r.number, r.phase.value, len(r.columns), r.changed, r.inertia) for r in spoken.history]
        assert all(len(set(r.responders)) == self.plan.responders for r in rounds.records)
        for site in self.sites.values():
            finished = site.participant.finished
            assert finished is not None
            assert (finished.rounds, finished.converged) == (pooled.rounds, pooled.converged)
            assert finished.inertia == spoken.inertia


# --- small things -------------------------------------------------------------------------------------------------------


@contextmanager
def small_chunks(words: int = 3) -> Iterator[None]:
    """Pieces of a few words, so that small jobs travel in many."""
    with mock.patch.object(wire, "CHUNK_WORDS", words), mock.patch.object(wire, "CHUNK_BYTES", 8 * words):
        yield


def settle(participant: Participant, owner: str) -> None:
    """What the exchange does at the end of a delivery, without a disk."""
    words = participant.complete(owner)
    if words is not None:
        participant.settle(owner, words)


def upload_chunks(sender: Participant, request: events.RoundRequest, words: Words) -> Iterator[bytes]:
    for chunk in wire.chunks(words, request.received):
        yield pb.UploadChunk(
            round=request.number,
            attempt=request.attempt,
            offset=chunk.offset,
            total=chunk.total,
            words=wire.word_bytes(chunk.words),
            compute_seconds=0.01,
            session=sender.session,
        ).SerializeToString()


def share_chunks(sender: Participant, words: Words, first: int) -> Iterator[bytes]:
    for chunk in wire.chunks(words, first):
        yield pb.ShareChunk(
            session=sender.session,
            share_set=sender.stage.id,
            offset=chunk.offset,
            total=chunk.total,
            words=wire.word_bytes(chunk.words),
        ).SerializeToString()


def meet(agreed: Federation, rows: Sequence[Rows], seed: int = 0, *, any_start: bool = True) -> list[Participant]:
    """Participants that hold everybody's shares and wait for the first round.

    `any_start` lets a test of rounds begin with whatever request and assignment it likes; what clients check of the start is
    the subject of tests/protocol/test_start.py and test_agreement.py.
    """
    machines = introduced(agreed, rows, seed)
    for owner in machines:
        for other in machines:
            if other is not owner:
                words = owner.outgoing(other.name)
                other.receive(owner.name, owner.session, owner.share_set.id, events.Chunk(0, len(words), words))
                settle(other, owner.name)
        owner.keep_own()
        if any_start:
            vars(owner)["_check_start"] = lambda version, labels: None
            vars(owner.guard)["_check_first"] = lambda request: None
    assert len({machine.holdings() for machine in machines}) == 1
    return machines


def introduced(agreed: Federation, rows: Sequence[Rows], seed: int = 0) -> list[Participant]:
    """Participants that have agreed on the session and hold no shares yet."""
    machines = strangers(agreed, rows, seed)
    met = roster(machines)
    for machine in machines:
        machine.handle(met)
    for machine, said in zip(machines, agreements(machines), strict=True):
        machine.handle(said)
    return machines


def agreement(machine: Participant) -> events.Agreed:
    return machine.agreement(lambda text: sign(machine.name, text))


def agreements(machines: Sequence[Participant]) -> list[events.Agreements]:
    """What the server tells each of them, once all have signed."""
    given = [agreement(machine) for machine in machines]
    signatures = tuple(one.signature for one in given)
    return [events.Agreements(signatures, tuple(one.proofs[j] for one in given)) for j in range(len(given))]


def strangers(agreed: Federation, rows: Sequence[Rows], seed: int = 0) -> list[Participant]:
    generator = random.Random(seed)
    return [
        Participant(agreed, plan_of(agreed), name, part, fresh_secrets(generator), verifier(agreed))
        for name, part in zip(agreed.roster, rows, strict=True)
    ]


def roster(machines: Iterable[Participant]) -> events.Roster:
    return events.Roster(tuple(introduce(machine) for machine in machines))


def introduce(machine: Participant) -> events.Introduction:
    return machine.introduction(b"pem of " + machine.name.encode(), lambda text: sign(machine.name, text))


def resigned(introduction: events.Introduction, agreed: Federation, **changes: Any) -> events.Introduction:
    """An introduction with other content, properly signed by the client it names."""
    bare = dataclasses.replace(introduction, **changes)
    return dataclasses.replace(bare, signature=sign(bare.name, bare.statement(agreed.digest())))


def digest_of(labels: npt.NDArray[np.int32]) -> bytes:
    return masks.assignment_digest(labels.astype("<i4").tobytes())
