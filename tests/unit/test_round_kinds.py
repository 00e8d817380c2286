"""Round kinds are a pair of halves: a kind of two exchanges fits beside open and masked without touching them.

The toy kind: every responder uploads its coded distances; the server tells each of them a word; each hands that word on to
the next responder (client to client), and that one returns it to the server, which solves only if everybody's word came back.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from secfc.agreement import plan
from secfc.agreement.plan import Plan
from secfc.errors import JobFailed
from secfc.kmeans import central
from secfc.kmeans.coins import Coins
from secfc.kmeans.lloyd import Answer, Clustering, Question
from secfc.protocol import memory as memories
from secfc.protocol import rounds
from secfc.protocol.client.inputs import Told
from secfc.protocol.effects import Arrived, Effects, Send, Work, Worked
from secfc.protocol.memory import Memory
from secfc.protocol.messages import RoundRequest
from secfc.protocol.parcels import Kind, Parcel, Whole, attempt_name, attempt_of
from secfc.protocol.rounds import open as open_rounds
from secfc.protocol.rounds.kinds import SERVER, ClientExchange, Holding, Lies, Outgoing, RoundKind, ServerExchange
from secfc.protocol.transfer import Gathered, Sink
from tests.parties import admitted

WORD = 32


def word(attempt: int, client: int) -> bytes:
    return hashlib.sha256(b"%d,%d" % (attempt, client)).digest()


@dataclass
class ToyExchange:
    """One attempt at the server: uploads first, then the words."""

    uploads: ServerExchange
    responders: tuple[int, ...]
    attempt: int
    words: dict[int, Gathered] = field(default_factory=dict)
    back: dict[int, bytes] = field(default_factory=dict)
    prepared: bool = False

    def sink(self, client: int, name: bytes) -> Sink | None:
        if not name:
            return self.uploads.sink(client, name)
        due = name == b"back" and client in self.responders and not self.uploads.missing()
        return self.words.setdefault(client, Gathered(WORD)) if due else None

    def arrived(self, client: int, name: bytes) -> None:
        if name:
            self.back[client] = self.words[client].data
        else:
            self.uploads.arrived(client, name)

    def missing(self) -> list[int]:
        return self.uploads.missing() or [j for j in self.responders if j not in self.back]

    def told(self, client: int) -> Sequence[Outgoing]:
        if not self.prepared or client not in self.responders:
            return ()
        return [Outgoing(client, b"word", Whole(word(self.attempt, client)))]

    def due(self) -> Callable[[], Any] | None:
        if not self.prepared:
            return None if self.uploads.missing() else lambda: "prepared"
        solve = None if self.missing() else self.uploads.due()
        return None if solve is None else lambda: self._checked(solve)

    def _checked(self, solve: Callable[[], Any]) -> Any:
        before = [self.responders[i - 1] for i in range(len(self.responders))]
        for client, source in zip(self.responders, before, strict=True):
            if self.back[client] != word(self.attempt, source):
                raise JobFailed("a word came back changed")
        return solve()

    def worked(self, result: Any) -> Answer | Lies | None:
        if result == "prepared":
            self.prepared = True
            return None
        return self.uploads.worked(result)

    @property
    def upload_bytes(self) -> int:
        return self.uploads.upload_bytes + WORD * len(self.responders)

    @property
    def columns(self) -> tuple[int, ...]:
        return self.uploads.columns

    @property
    def detail(self) -> bytes:
        return b""

    @property
    def rows(self) -> bytes:
        return self.uploads.rows

    @property
    def pairs(self) -> int:
        return self.uploads.pairs


class ToyServer:
    committee: tuple[int, ...] = ()

    def __init__(self, agreed: Plan, rows: int, session: bytes, before: int) -> None:
        self._half = open_rounds.KIND.server(agreed, rows, session, before)

    def lost(self, client: int) -> bool:
        return False

    def whole(self) -> None:
        self._half.whole()

    def ask(
        self, question: Question, responders: tuple[int, ...], liars_left: int, attempt: int, quickest: Sequence[int]
    ) -> ServerExchange:
        return ToyExchange(self._half.ask(question, responders, liars_left, attempt, quickest), responders, attempt)


@dataclass
class ToyAnswering:
    """One attempt at a responder."""

    uploads: ClientExchange
    responders: tuple[int, ...]
    index: int
    sinks: dict[tuple[int, bytes], Gathered] = field(default_factory=dict)

    def begin(self) -> Sequence[Outgoing]:
        return self.uploads.begin()

    def _neighbour(self, step: int) -> int:
        return self.responders[(self.responders.index(self.index) + step) % len(self.responders)]

    def sink(self, sender: int, name: bytes) -> Sink | None:
        due = (sender, name) in ((SERVER, b"word"), (self._neighbour(-1), b"hand"))
        return self.sinks.setdefault((sender, name), Gathered(WORD)) if due else None

    def take(self, sender: int, name: bytes) -> Sequence[Outgoing]:
        data = self.sinks[sender, name].data
        if sender == SERVER:
            return [Outgoing(self._neighbour(1), b"hand", Whole(data))]
        return [Outgoing(SERVER, b"back", Whole(data))]

    def due(self) -> None:
        return None


class ToyClient:
    def __init__(self, holding: Holding) -> None:
        self._half, self._index = open_rounds.KIND.client(holding), holding.index

    def note(self, request: RoundRequest) -> bytes:
        return b""

    def answer(self, request: RoundRequest, labels: Any) -> ClientExchange:
        return ToyAnswering(self._half.answer(request, labels), request.responders, self._index)


TOY = RoundKind(server=ToyServer, client=ToyClient, shows_segments=True)

K, SIZES = 3, (9, 8, 0, 11)


def rows_of(seed: int = 4) -> list[np.ndarray[Any, Any]]:
    generator = np.random.default_rng(seed)
    return [generator.integers(-90, 91, (size, 2), dtype=np.int64) for size in SIZES]


def job(kind: str, monkeypatch: pytest.MonkeyPatch, seed: int = 4) -> Memory:
    """A job of that kind; the toy takes the place of open uploads, whose plan it has."""
    if kind == "toy":
        monkeypatch.setitem(rounds.KINDS, "open", TOY)
    wishes = plan.Wishes(
        clients=4,
        privacy=1,
        clusters=K,
        features=2,
        max_rows=sum(SIZES),
        bound=100.0,
        precision=0,
        uploads="masked" if kind == "masked" else "open",
        segments=1,
    )
    return Memory(plan.make(wishes), rows_of(seed), lambda total: Clustering(total, K, coins=Coins(b"toy")))


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memories, "_LONGEST", 1000.0)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["open", "masked", "toy"])
def test_every_kind_finds_what_central_lloyd_finds(kind: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = job(kind, monkeypatch, seed)
    memory.run()
    expected = central.run(np.concatenate(rows_of(seed)), K, coins=Coins(b"toy"))
    outcome = memory.server.snapshot(memory.now).outcome
    assert outcome is not None
    assert outcome.labels.tolist() == expected.labels.tolist()
    assert (outcome.rounds, outcome.converged) == (expected.rounds, expected.converged)


def test_the_toy_says_what_it_should_to_whom(monkeypatch: pytest.MonkeyPatch) -> None:
    """An upload, a step to the next responder and a step to the server, of every responder in every attempt."""
    memory, sent = job("toy", monkeypatch), []

    def watch(sender: str, send: Send) -> Send:
        if isinstance(send.message, Parcel) and send.message.kind in (Kind.UPLOAD, Kind.STEP):
            sent.append((attempt_of(send.message.name), sender, send.to, send.message.name[12:]))
        return send

    memory.alter = watch
    memory.run()
    roster = memory.federation.roster
    for record in memory.server.snapshot(memory.now).records:
        names = [roster[j] for j in record.responders]
        due = {(name, "server", b"") for name in names} | {(name, "server", b"back") for name in names}
        due |= {(name, names[(i + 1) % len(names)], b"hand") for i, name in enumerate(names)}
        said = [one[1:] for one in sent if one[0] == (record.number, 1)]
        assert sorted(said) == sorted(due), "each once"


def test_a_word_that_is_changed_on_its_way_ends_the_toys_job(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = job("toy", monkeypatch)

    def change(sender: str, send: Send) -> Send:
        step = isinstance(send.message, Parcel) and send.message.name[12:] == b"hand" and sender == "client-1"
        return Send(send.to, send.message, Whole(bytes(WORD))) if step else send

    memory.alter = change
    with pytest.raises(JobFailed, match="a word came back changed"):
        memory.run()


def test_no_step_leaves_before_its_attempt_is_admitted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A newer attempt and a step of it come while an older one is being computed: what follows from the step waits until the
    newer attempt is admitted, and leaves together with what must be kept of that, not with the older answer."""
    memory, me = job("toy", monkeypatch), "client-1"
    works: list[Work] = []

    def hold(name: str, work: Any) -> None:
        works.append(work)
        raise _Held

    do = memory._work
    monkeypatch.setattr(memory, "_work", lambda name, work: (hold if _answers(name, work, me) else do)(name, work))
    with pytest.raises(_Held):
        memory.run()
    client, [answer] = memory.clients[me], works
    request = replace(answer.name[1], attempt=answer.name[1].attempt + 1)
    assert not client.handle(Told(request), memory.now).work
    name = attempt_name(request.number, request.attempt) + b"hand"
    before = memory.federation.roster[request.responders[request.responders.index(0) - 1]]
    arrived = Arrived(before, Parcel(client.session, Kind.STEP, name), 0, WORD, bytes(WORD))
    todo, out, kept = [*client.handle(arrived, memory.now).work, answer], Effects(), list[Any]()
    while todo and not _steps(out):
        work = todo.pop(0)
        out = client.handle(Worked(work.name, work.run()), memory.now)
        todo, kept = todo + out.work, kept + out.keep
    assert [send.message.name for send in _steps(out)] == [name[:12] + b"back"]
    assert admitted({one.key: one.value for one in kept}) == (request.number, request.attempt)


class _Held(Exception):
    """A piece of work is held up."""


def _answers(name: str, work: Any, me: str) -> bool:
    return name == me and work.name[0] == "answer"


def _steps(out: Effects) -> list[Any]:
    return [send for send in out.send if isinstance(send.message, Parcel) and send.message.kind is Kind.STEP]
