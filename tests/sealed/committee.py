"""A committee and a server in memory: the product's halves, with messages delivered in random order.

Uploads are stood in for by their sum: distances computed in the clear, less the pad that the leader subtracts. That real
uploads sum to the same is `test_uploads`.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from secfc.coding.field import Field
from secfc.kmeans.candidates import candidates_per_seed, draw_labels
from secfc.kmeans.coins import Coins
from secfc.kmeans.empties import fill_from_largest, ranks
from secfc.kmeans.seeding import coins_of, fold_separated
from secfc.privacy import masks
from secfc.privacy.sealed import member, server
from secfc.privacy.sealed.context import Context, Purse, pad_key
from secfc.privacy.sealed.member import Ledger, MemberHalf
from secfc.privacy.sealed.messages import SERVER, Said
from secfc.privacy.sealed.questions import Asked, Found, Inertia, Lloyd, Seed, places, trust
from secfc.privacy.sealed.server import DealerHalf
from secfc.privacy.sealed.terms import Terms, Wanted, draw_bits, required

Rows = npt.NDArray[np.int64]


def terms_for(rows: Rows, clusters: int, members: int, seeding: str = "k-means++", inertia: bool = True) -> Terms:
    """Terms with the fewest lanes that the guards allow."""
    eta = max(int(np.abs(rows).max(initial=0)), 1)
    unit = rows.shape[1] * (2 * eta) ** 2
    wanted = Wanted(max(len(rows), 2), clusters, unit, members - 1, members, seeding, inertia)
    field_ = Field.of(Field.of(11).lanes_for(required(wanted)))
    bits = draw_bits(field_.modulus, wanted.rows, unit) if seeding != "random" else 32
    return Terms(field_, len(rows), clusters, unit, members, seeding == "separation", inertia, bits)


def scaled(rows: Rows, labels: npt.NDArray[np.int32], column: int) -> npt.NDArray[np.object_]:
    """d′ of all rows to a cluster, as Python integers."""
    mine = rows[labels == column].astype(object)
    return ((mine.sum(axis=0) - len(mine) * rows.astype(object)) ** 2).sum(axis=1)


@dataclass
class Committee:
    """One epoch of one job on rows that are in the clear here."""

    rows: Rows
    terms: Terms
    seed: int = 0
    record: list[tuple[int, Said]] = field(default_factory=list)
    bytes: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.shuffle = random.Random(self.seed)
        self.request = self.attempt = 0
        self.new_epoch(1)

    def new_epoch(self, number: int) -> None:
        self.epoch = number
        self.key = self.shuffle.randbytes(32)
        self.seeds = [self.shuffle.randbytes(32) for _ in range(self.terms.members)]
        self.at_server = server.Kept.of(self.terms)
        self.at_members = [member.Kept() for _ in range(self.terms.members)]
        self.ledgers = [Ledger() for _ in range(self.terms.members)]

    def context(self, question: Asked) -> Context:
        labels = question.labels(self.terms.rows) if isinstance(question, Seed) else question.labels
        digest = masks.assignment_digest(labels.astype("<i4").tobytes())
        committee = tuple(range(1, self.terms.members + 1))
        responders = tuple(range(2 * self.terms.members + 1))
        return Context(
            b"session",
            b"plan",
            self.epoch,
            committee,
            self.request,
            self.attempt,
            responders,
            digest,
            tuple(question.columns),
            question.digest(),
        )

    def sums(self, question: Asked, context: Context) -> npt.NDArray[np.float64]:
        """Σ uploads: v − Y, mod p, in the upload's layout."""
        shape = question.shape(self.terms)
        labels = question.labels(self.terms.rows) if isinstance(question, Seed) else question.labels
        columns, lanes = places(shape)
        clear = {h: scaled(self.rows, labels, h) for h in question.columns}
        pad = member._stream(member.Pad(pad_key(Purse(self.key, b"session"), context), shape), 0, self.terms.rows)
        out = np.empty((self.terms.rows, len(columns)))
        for q, (h, lane) in enumerate(zip(columns.tolist(), lanes.tolist(), strict=True)):
            p = self.terms.field.primes[lane]
            out[:, q] = ((clear[h] - pad[:, q].astype(object)) % p).astype(float)
        return out

    def halves(self, question: Asked, context: Context) -> tuple[DealerHalf, list[MemberHalf]]:
        members = [
            MemberHalf(self.terms, question, context, j, self.key, self.seeds[j], self.at_members[j], self.ledgers[j])
            for j in range(self.terms.members)
        ]
        return DealerHalf(self.terms, question, context, self.seeds, self.at_server), members

    def ask(self, question: Asked, lose: Callable[[], bool] = lambda: False) -> Found | None:
        """Run one attempt to its end; None if it was lost on the way."""
        self.attempt += 1
        context = self.context(question)
        referee, members = self.halves(question, context)
        post: list[deque[Said]] = [deque() for _ in range(self.terms.members + 1)]  # by sender, in order
        for j, half in enumerate(members):
            post[j].extend(half.begin())
        post[-1].extend(referee.begin())
        sums = self.sums(question, context)
        blocks = deque(range(0, self.terms.rows, 6 * 50))
        while not (referee.done and all(half.done for half in members)):
            if lose():
                return None
            if blocks and self.shuffle.random() < 0.5:
                first = blocks.popleft()
                post[-1].extend(referee.feed(first, sums[first : first + 6 * 50]))
            waiting = [sender for sender, queue in enumerate(post) if queue]
            for j, half in enumerate(members):
                post[j].extend(half.work())
            post[-1].extend(referee.work())
            if not waiting:
                if not blocks and not any(post) and not referee.done:
                    raise AssertionError("nothing is said and nobody is done")
                continue
            sender = self.shuffle.choice(waiting)
            self._deliver(sender, post[sender].popleft(), referee, members, post)
        self.at_server, self.at_members = referee.kept, [half.kept for half in members]
        return referee.answer

    def _deliver(
        self, sender: int, out: Said, referee: DealerHalf, members: Sequence[MemberHalf], post: list[Any]
    ) -> None:
        sender = SERVER if sender == self.terms.members else sender
        self.record.append((sender, out))
        name = f"{out.message.kind.value}"
        self.bytes[name] = self.bytes.get(name, 0) + len(out.message.data)
        if out.to == SERVER:
            post[-1].extend(referee.take(sender, out.message))
        else:
            post[out.to].extend(members[out.to].take(out.message))


@dataclass
class Job:
    """A whole clustering: what the layer above asks, from the answers alone."""

    rows: Rows
    clusters: int
    members: int = 2
    seeding: str = "random"
    greedy: bool = False
    seed: int = 0
    wants_inertia: bool = True
    losses: float = 0.0
    initial: Sequence[int] | None = None

    def __post_init__(self) -> None:
        self.terms = terms_for(self.rows, self.clusters, self.members, self.seeding, self.wants_inertia)
        self.committee = Committee(self.rows, self.terms, self.seed)
        self.coins = Coins(b"job %d" % self.seed)
        self.ranks = ranks(self.coins, len(self.rows))
        self.chosen: list[int] = []
        self.history: list[list[int]] = []
        self.inertia: int | None = None
        self._lost = random.Random(self.seed)

    @property
    def candidates(self) -> int:
        return candidates_per_seed(self.clusters, "k-means++") if self.greedy else 1

    def ask(self, question: Callable[[], Asked]) -> Found:
        """Ask until an attempt gets through; a lost member is a new epoch, in which everything is asked again."""
        self.committee.request += 1
        while True:
            found = self.committee.ask(question(), lambda: self._lost.random() < self.losses)
            if found is not None:
                return found
            if self._lost.random() < 0.5:
                self._fresh_epoch()

    def _fresh_epoch(self) -> None:
        self.committee.new_epoch(self.committee.epoch + 1)
        self.stale = np.ones(self.clusters, dtype=bool)
        losses, self.losses = self.losses, 0.0
        if self.refold:
            for number, row in enumerate(self.refold):
                self.ask(partial(Seed, number, (row,)))
        self.losses = losses

    def start(self) -> npt.NDArray[np.int32]:
        self.stale = np.ones(self.clusters, dtype=bool)
        self.refold: list[int] = []
        if self.initial is not None:
            return np.array(self.initial, dtype=np.int32)
        if self.seeding == "random":
            return self.coins.integers("random start", self.clusters, len(self.rows))
        labels = fill_from_largest(self._plus_plus(), self.clusters, self.ranks)
        if self.seeding != "separation":
            return labels
        ones = np.ones(self.clusters, dtype=bool)
        sizes = np.bincount(labels, minlength=self.clusters)
        every = np.ones(len(labels), dtype=bool)
        found = self.ask(lambda: Lloyd(labels, sizes, self._columns(sizes), ones, every, True)).labels
        assert found is not None
        self.separated = found
        return fold_separated(found, sizes, labels)

    def _plus_plus(self) -> npt.NDArray[np.int32]:
        candidates: tuple[int, ...] = (self.coins.below("k-means++ 0", len(self.rows)),)
        for number in range(self.clusters):
            last = number == self.clusters - 1
            names = [] if last else draw_labels(number + 1, self.candidates)
            points = tuple(coins_of(self.coins, name, self.terms.draw_bits) for name in names)
            rows = candidates
            answer = self.ask(partial(Seed, number, rows, points, last))
            assert answer.winner is not None
            self.chosen.append(rows[answer.winner])
            self.refold = [] if last else list(self.chosen)
            unchosen = (row for row in range(len(self.rows)) if row not in self.chosen)
            candidates = tuple(dict.fromkeys(answer.rows)) or (next(unchosen, -1),)
        assert answer.labels is not None
        return answer.labels

    def _columns(self, sizes: npt.NDArray[np.int64]) -> tuple[int, ...]:
        return tuple(h for h in range(self.clusters) if sizes[h] and self.stale[h])

    def _lloyd(self, labels: Any, sizes: Any, changed: Any, trusted: Any) -> Lloyd:
        return Lloyd(labels, sizes, self._columns(sizes), changed, trusted)

    def run(self, rounds: int = 40) -> Job:
        labels = self.start()
        changed = np.ones(self.clusters, dtype=bool)
        trusted = np.full(len(labels), self.seeding != "random")
        while len(self.history) < rounds:
            sizes = np.bincount(labels[labels >= 0], minlength=self.clusters)
            self.stale |= changed
            answer = self.ask(partial(self._lloyd, labels, sizes, changed, trusted))
            near = answer.labels
            assert near is not None
            self.stale[:] = False
            following = fill_from_largest(near, self.clusters, self.ranks)
            self.history.append(following.tolist())
            trusted = trust(near, following)
            moved = np.flatnonzero(following != labels)
            touched = np.zeros(self.clusters + 1, dtype=bool)
            touched[labels[moved]] = touched[following[moved]] = True
            changed, labels = touched[:-1], following
            if not len(moved):
                break
        self.stale |= changed
        sizes = np.bincount(labels, minlength=self.clusters)
        self.labels = labels
        if self.wants_inertia:
            self.inertia = self.ask(lambda: Inertia(labels, sizes, self._columns(sizes))).inertia
        return self
