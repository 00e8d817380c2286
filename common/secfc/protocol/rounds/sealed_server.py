"""The server's half of sealed rounds: uploads arrive under one more mask, and a committee helps to compare (docs/sealed.md).

An epoch is a committee with its key, which the server never sees; it lasts until a member is lost. Within an epoch, columns
of clusters that did not change are kept. The server learns assignments, and at the end the total inertia.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from secfc.agreement.plan import Plan
from secfc.errors import JobFailed, Malformed
from secfc.kmeans.decoding import Decoder
from secfc.kmeans.distances import Labels
from secfc.kmeans.empties import fill_from_largest, ranks
from secfc.kmeans.lloyd import Answer, Question, Step
from secfc.kmeans.seeding import choose, chosen_rows, fold_separated, points_of
from secfc.privacy.sealed import cost, server
from secfc.privacy.sealed.epochs import agree
from secfc.privacy.sealed.messages import OF_MEMBERS, Message, Said
from secfc.privacy.sealed.questions import Asked, Found, Inertia, Lloyd, Seed, trust
from secfc.privacy.sealed.server import DealerHalf
from secfc.protocol.parcels import Whole
from secfc.protocol.rounds import sealing
from secfc.protocol.rounds.kinds import Outgoing, ServerExchange, Void
from secfc.protocol.rounds.sealing import CHECK, DONE, SEED, Detail
from secfc.protocol.rounds.unread import Unread
from secfc.protocol.rounds.uploads import UploadSink
from secfc.protocol.transfer import Gathered, Here, Sink

_BLOCK = 6 << 10  # rows whose sums are handed over together


@dataclass
class _Epoch:
    """A committee, what the server shares with each member, and what it keeps of the columns."""

    number: int
    committee: tuple[int, ...]
    kept: server.Kept
    seeds: tuple[bytes, ...] = field(repr=False)
    seeded: tuple[int, ...] = ()  # rows folded into D² in this epoch
    agreed: bool = False  # whether all members have the same key
    columns: frozenset[int] = frozenset()  # clusters whose columns are kept


class SealedServer:
    """See the module's docstring."""

    def __init__(self, plan: Plan, rows: int, session: bytes, before: int) -> None:
        """`before`: epochs are numbered above it, so that a restarted server repeats no number."""
        self.plan, self.session = plan, session
        self.terms = plan.sealed(rows)
        self._epochs = before
        self._epoch: _Epoch | None = None
        # of the last two comparisons: the request, what it found before empty clusters took rows, for which assignment
        self._found: list[tuple[int, Labels, Labels]] = []
        self._ranks: Any = None

    def whole(self) -> None:
        """It never asks for some rows only."""

    @property
    def committee(self) -> tuple[int, ...]:
        return self._epoch.committee if self._epoch is not None else ()

    def lost(self, client: int) -> bool:
        """A client has lost what it knew: whether that ends what is asked now."""
        if client not in self.committee:
            return False
        self._epoch = None
        return True

    def ask(
        self, question: Question, responders: tuple[int, ...], liars_left: int, attempt: int, quickest: Sequence[int]
    ) -> ServerExchange:
        if self._epoch is None or not set(self.committee) <= set(responders):
            self._epochs += 1
            members = tuple(sorted(quickest[: self.terms.members]))
            seeds = tuple(os.urandom(32) for _ in members)
            self._epoch = _Epoch(self._epochs, members, server.Kept.of(self.terms), seeds)
        return _Exchange(self, self._epoch, question, responders, attempt, self._asked(self._epoch, question))

    def _asked(self, epoch: _Epoch, question: Question) -> list[Asked]:
        """The questions of a request, in this epoch."""
        labels, sizes = question.labels, question.sizes
        if question.step is Step.SEED:
            return self._seeds(epoch, question)
        live = frozenset(np.flatnonzero(sizes).tolist())
        columns = tuple(sorted((live - epoch.columns) | set(question.columns)))
        if question.step is Step.MEASURE:
            return [Inertia(labels, sizes, columns)]
        before = self._before(question.number)
        # most rows may stay where seeds put them
        guessed = bool(before) or (self.plan.wishes.seeding != "random" and question.step is not Step.ASSIGN)
        changed, trusted = np.ones(len(sizes), dtype=np.bool_), np.full(len(labels), guessed)
        for _, near, compared in before[-1:]:
            changed = _touched(compared, labels, len(sizes))
            trusted = trust(near, labels)
        return [Lloyd(labels, sizes, columns, changed, trusted, question.step is Step.SEPARATE)]

    def _before(self, number: int) -> list[tuple[int, Labels, Labels]]:
        """What earlier requests found. An answer to this very one counts for nothing if it is asked again, for other runs had
        none; the rows that it moved may be too many to be named in a request."""
        return [one for one in self._found if one[0] < number]

    def _seeds(self, epoch: _Epoch, question: Question) -> list[Asked]:
        """The seeds that this epoch has not folded into D² yet, each by itself; then the candidates of the next one."""
        rows = tuple(chosen_rows(question.labels))
        seeds, candidates = rows[: question.settled], rows[question.settled :]
        known = len(epoch.seeded) if epoch.seeded == seeds[: len(epoch.seeded)] else 0
        before = [Seed(number, (row,)) for number, row in enumerate(seeds) if number >= known]
        points = points_of(question.coins, question.draws, self.terms.draw_bits)
        return [*before, Seed(question.settled, candidates, points, not points)]

    def solved(self, epoch: _Epoch, question: Question, asked: Sequence[Asked], found: Found) -> Answer:
        """What the clustering above hears of it; a request that is answered moves the epoch on."""
        labels, clusters = question.labels, self.terms.clusters
        if self._ranks is None:
            self._ranks = ranks(question.coins, len(labels))
        if question.step is Step.SEED:
            return self._seeded(epoch, question, found)
        epoch.columns = frozenset(np.flatnonzero(question.sizes).tolist())
        if question.step is Step.MEASURE:
            return Answer(labels, Fraction(found.inertia if found.inertia is not None else 0))
        if found.labels is None:
            raise JobFailed("a sealed round ended without an assignment")
        if question.step is Step.ASSIGN:
            return Answer(found.labels)
        if question.step is Step.SEPARATE:
            return Answer(fold_separated(found.labels, question.sizes, labels))
        self._found = [*self._before(question.number)[-1:], (question.number, found.labels.copy(), labels)]
        return Answer(fill_from_largest(found.labels, clusters, self._ranks))

    def _seeded(self, epoch: _Epoch, question: Question, found: Found) -> Answer:
        if not question.draws:
            if found.labels is None:
                raise JobFailed("sealed seeding ended without an assignment")
            return Answer(fill_from_largest(found.labels, self.terms.clusters, self._ranks))
        following = choose(question.labels, question.settled, found.winner or 0, found.rows)
        epoch.seeded = tuple(chosen_rows(following)[: question.settled + 1])
        return Answer(following)


def _touched(before: Labels, after: Labels, clusters: int) -> Any:
    moved = np.flatnonzero(before != after)
    touched = np.zeros(clusters + 1, dtype=np.bool_)  # the last stands for no cluster
    touched[before[moved]] = touched[after[moved]] = True
    return touched[:-1]


class _Told:
    """What one client is told in an attempt, in order. What it has answered is forgotten: it will not be asked for again."""

    def __init__(self) -> None:
        self.all: list[Outgoing | None] = []
        self._unanswered: dict[
            tuple[int, int], list[tuple[int, int, int]]
        ] = {}  # by question and chunk: where, stage, step

    def add(self, one: Outgoing, place: int, message: Message) -> None:
        where = len(self.all), message.stage, message.step
        self._unanswered.setdefault((place, message.chunk), []).append(where)
        self.all.append(one)

    def answered(self, place: int, message: Message) -> None:
        """A chunk's steps follow each other, so whoever is at this one has taken all before it."""
        left = []
        for where, stage, step in self._unanswered.pop((place, message.chunk), []):
            if (stage, step) <= (message.stage, message.step):
                self.all[where] = None
            else:
                left.append((where, stage, step))
        self._unanswered[place, message.chunk] = left


class _Exchange:
    """One attempt: the questions of a request, one after the other."""

    def __init__(
        self,
        half: SealedServer,
        epoch: _Epoch,
        question: Question,
        responders: tuple[int, ...],
        attempt: int,
        asked: list[Asked],
    ) -> None:
        self._half, self._epoch, self._question, self._responders = half, epoch, question, responders
        self._asked, self._place, self._attempt = asked, 0, attempt
        fields = [_fields(one) for one in asked]
        self._detail = Detail(epoch.number, epoch.committee, tuple(fields), epoch.agreed)
        self._decoders = [Decoder(one.shape(half.terms), responders, None) for one in asked]
        self._uploads = {(j, sealing.upload_name(place)) for place in range(len(asked)) for j in responders}
        self._checks: dict[int, bytes] = {}
        self._checking: dict[int, Gathered] = {}
        self._taken: set[tuple[int, bytes]] = set()
        self._unread: dict[tuple[int, int], Unread] = {}  # by member and question
        self._inbox: list[tuple[int, int, Message]] = []  # of members: which question, and what they say
        self._told = {j: _Told() for j in responders}
        self._running: DealerHalf | None = None
        self._through: set[tuple[int, int]] = set()  # members that are through with a question
        self._awaited: set[int] = set()
        self._done = False
        for place, client in enumerate(epoch.committee):
            # in every attempt: whoever was cut off in the one before may not have it
            self._told[client].all.append(Outgoing(client, SEED, Whole(epoch.seeds[place])))

    @property
    def detail(self) -> bytes:
        return self._detail.to_bytes()

    @property
    def columns(self) -> tuple[int, ...]:
        last = self._asked[-1]
        return self._question.columns if isinstance(last, Seed) else tuple(last.columns)

    @property
    def rows(self) -> bytes:
        return b""

    @property
    def pairs(self) -> int:
        return len(self.columns) * self._half.terms.rows

    # --- what arrives ----------------------------------------------------------------------------------------------------

    def sink(self, client: int, name: bytes) -> Sink | None:
        if client not in self._responders or self._done:
            return None
        if (client, name) in self._taken:
            return Here()
        if (client, name) in self._uploads:
            return UploadSink(self._decoders[_place_of(name)], client)
        if client not in self._epoch.committee:
            raise Malformed("only members of the committee compare")
        if name == CHECK:
            return self._checking.setdefault(client, Gathered(32))
        place, chunk = self._about(name)
        if place < self._place:
            return Here()  # nobody will read it
        box = self._box(client, place)
        box.check_chunk(chunk)
        return box.sink(name)

    def _about(self, name: bytes) -> tuple[int, int]:
        """Question and chunk of a member's message. Raises Malformed for one that nobody makes in this attempt."""
        if name[:1] == DONE and len(name) == 2:
            place, chunk = name[1], 0
        else:
            place, message = sealing.message_of(name, b"", OF_MEMBERS)
            chunk = message.chunk
        if place >= len(self._asked):
            raise Malformed(f"a member compares for question {place + 1} of {len(self._asked)}")
        return place, chunk

    def _box(self, client: int, place: int) -> Unread:
        if (client, place) not in self._unread:
            limit = cost.most_said(self._half.terms, self._asked[place])
            self._unread[client, place] = Unread(limit, "a member of the committee")
        return self._unread[client, place]

    def arrived(self, client: int, name: bytes) -> None:
        if (client, name) in self._uploads:
            self._uploads.discard((client, name))
            self._taken.add((client, name))
            return
        if (client, name) in self._taken:
            return
        self._taken.add((client, name))
        if name == CHECK:
            self._checks[client] = self._checking.pop(client).data
            return
        box = self._box(client, self._about(name)[0])
        data = box.pop(name)
        if name[:1] == DONE and len(name) == 2:
            self._through.add((client, _place_of(name)))
        elif data is not None:
            self._received(client, box, sealing.messages_of(name, data, OF_MEMBERS))

    def _received(self, client: int, box: Unread, said: Sequence[tuple[int, Message]]) -> None:
        box.count(len(said) - 1)
        for _, message in said:
            box.check_chunk(message.chunk)
        for place, message in said:
            self._told[client].answered(place, message)
            self._inbox.append((self._epoch.committee.index(client), place, message))

    def missing(self) -> list[int]:
        """Without the key the leader cannot upload, and no member gets it without the others' parts: whoever is late with
        what needs no key is waited for first."""
        if self._done:
            return []
        committee = self._epoch.committee
        late = {client for client, _ in self._uploads}
        unsaid = [] if self._epoch.agreed else [j for j in committee if j not in self._checks]
        return sorted((late - {min(committee)}) or late or unsaid or self._comparing() or committee)

    def _comparing(self) -> set[int]:
        """Members that the comparison waits for, as of its last work; a thread may be at the next."""
        if self._awaited or self._running is None:
            return self._awaited
        return {j for j in self._epoch.committee if (j, self._place) not in self._through}

    def told(self, client: int) -> Sequence[Outgoing | None]:
        return self._told[client].all if client in self._told else ()

    # --- computing -------------------------------------------------------------------------------------------------------

    def due(self) -> Callable[[], Any] | None:
        if self._done or not self._has_work():
            return None
        now = [one for one in self._inbox if one[1] == self._place]  # members may be further than the server
        self._inbox = [one for one in self._inbox if one[1] != self._place]
        return lambda: self._work(now)

    def _has_work(self) -> bool:
        if not self._epoch.agreed:
            return len(self._checks) == len(self._epoch.committee)
        if self._running is None:
            return True
        if self._running.done:
            return self._all_through()
        mail = [(member, message) for member, place, message in self._inbox if place == self._place]
        return self._running.goes_on(mail) or self._running.wants(self._decoders[self._place].passed)

    def _all_through(self) -> bool:
        """Whether the next question may come: everybody has uploaded; while seeding, members have folded this one's rows."""
        if any(_place_of(name) <= self._place for _, name in self._uploads):
            return False
        if not isinstance(self._asked[self._place], Seed):
            return True
        return all((client, self._place) in self._through for client in self._epoch.committee)

    def _work(self, inbox: list[tuple[int, int, Message]]) -> Any:
        """On a thread, one at a time. Returns what is to be told, and the answer once it is there."""
        if not self._epoch.agreed and not agree(list(self._checks.values())):
            return Void(self._epoch.committee, "the members of the committee do not agree on their key")
        self._epoch.agreed = True
        said: list[tuple[int, Said]] = []
        if self._running is None:
            said += [(self._place, one) for one in self._start()]
        if self._running is not None:
            said += [(self._place, one) for one in self._feed(self._running)]
        for member, place, message in inbox:
            if self._running is not None:
                said += [(place, one) for one in self._running.take(member, message)]
        return said

    def _start(self) -> list[Said]:
        half, asked = self._half, self._asked[self._place]
        context = sealing.context_of(
            half.plan,
            half.session,
            self._detail,
            self._question.number,
            self._attempt,
            self._responders,
            asked,
            half.terms.rows,
        )
        self._running = DealerHalf(half.terms, asked, context, self._epoch.seeds, self._epoch.kept)
        return self._running.begin()

    def _feed(self, running: DealerHalf) -> list[Said]:
        """Deal the chunks that all uploads have passed; more of them may arrive meanwhile."""
        said, decoder = [], self._decoders[self._place]
        end = decoder.passed
        for first in range(running.fed, end, _BLOCK):
            said += running.feed(first, decoder.sums(first, min(first + _BLOCK, end)))
        return said

    def worked(self, result: Any) -> Answer | Void | None:
        if isinstance(result, Void):
            self._half.lost(self._epoch.committee[0])
            return result
        for place, one in result:
            name = sealing.message_name(place, one.message)
            client = self._epoch.committee[one.to]
            self._told[client].add(Outgoing(client, name, sealing.body_of(one.message)), place, one.message)
        running = self._running
        self._settle()
        self._awaited = {self._epoch.committee[place] for place in running.awaited()} if running is not None else set()
        if running is None or not running.done or not self._all_through():
            return None
        self._epoch.kept, self._running = running.kept, None
        self._place += 1
        if self._place < len(self._asked):
            return None
        self._done = True
        return self._half.solved(self._epoch, self._question, self._asked, running.answer)

    def _settle(self) -> None:
        """Count what was read; nothing is being computed now. What is about earlier questions is read by nobody."""
        self._inbox = [one for one in self._inbox if one[1] >= self._place]
        for (client, place), box in self._unread.items():
            member, running = self._epoch.committee.index(client), self._running
            waits = sum(len(one.data) for who, where, one in self._inbox if (who, where) == (member, place))
            if running is not None and place == self._place:
                waits += running.unread(member)
            box.settle(waits)

    @property
    def upload_bytes(self) -> int:
        return sum(8 * decoder.shape.layout.words for decoder in self._decoders) * len(self._responders)


def _fields(asked: Asked) -> dict[str, Any]:
    if isinstance(asked, Seed):
        return sealing.seed_fields(asked)
    return sealing.lloyd_fields(asked) if isinstance(asked, Lloyd) else {"inertia": True}


def _place_of(name: bytes) -> int:
    return name[1] if name else 0
