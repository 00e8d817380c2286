"""A committee member's half of a sealed request.

    half = MemberHalf(terms, question, context, place, key, seed, kept, ledger)
    send(half.work())              while half.room: begins the next chunk
    send(half.take(message))       until half.done; half.kept serves the next request, once this one was answered

Y comes from K, chunk by chunk, so nothing waits for an upload, and only the chunk's last member waits for dealt shares.
Memory: a few chunks; while seeding also Y of D² (m residues a lane).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

import numpy as np
import numpy.typing as npt

from secfc.coding import kernels, prg
from secfc.errors import OutOfTurn, Refused, WentBack
from secfc.kmeans.distances import Shape
from secfc.privacy.sealed import inertia, rounds, seeding, sides
from secfc.privacy.sealed.comparer import Comparer
from secfc.privacy.sealed.context import Context, Line, Purse, pad_key
from secfc.privacy.sealed.halves import Half
from secfc.privacy.sealed.messages import OF_THE_SERVER, SERVER, Message, Said, Talk
from secfc.privacy.sealed.questions import Asked, Inertia, Lloyd, Seed, places
from secfc.privacy.sealed.seeding import Outcome, Split
from secfc.privacy.sealed.sides import Side
from secfc.privacy.sealed.terms import Terms

_BLOCK = 6 << 10  # rows whose pads are made together for an inertia


@dataclass(frozen=True)
class Pad:
    """Where the pad of a column comes from: the stream of the upload it was part of."""

    key: bytes = field(repr=False)
    shape: Shape


@dataclass
class Kept:
    """What a member keeps during an epoch: the pads of the columns that are kept, and its half of D² while seeding."""

    pads: dict[int, Pad] = field(default_factory=dict)
    seeds: Split | None = field(default=None, repr=False)


def kept_after(terms: Terms, question: Lloyd | Inertia, context: Context, key: bytes, kept: Kept) -> Kept:
    """What a member keeps once this attempt is answered, known before it is: it follows from K and what was asked."""
    return Kept(kept.pads | _fresh(terms, question, context, Purse(key, context.session)), kept.seeds)


def _fresh(terms: Terms, question: Asked, context: Context, committee: Purse) -> dict[int, Pad]:
    """The pads of the columns that an attempt asks for."""
    return dict.fromkeys(question.columns, Pad(pad_key(committee, context), question.shape(terms)))


class Ledger:
    """What a member was dealt, by name, in the epoch's latest request: the same name never stands for other data."""

    def __init__(self) -> None:
        self._request = 0
        self._seen: dict[tuple[object, ...], bytes] = {}

    def enter(self, request: int) -> None:
        """A half of this request begins. Raises WentBack for a request before the latest."""
        if request < self._request:
            raise WentBack(f"request {request} comes before request {self._request}, which was answered")
        if request > self._request:
            self._request, self._seen = request, {}

    def note(self, context: bytes, message: Message) -> bool:
        """Whether this is new. Raises Refused if other data came under the same name."""
        name = (context, *message.name)
        found = sides.digest(message.data)
        known = self._seen.setdefault(name, found)
        if known != found:
            raise Refused(
                f"the server deals other {message.kind.value} than before under one name, which would show it what nobody"
                " may see; the job ends here"
            )
        return known is found


class MemberHalf(Half):
    """One attempt at one question, at member `place` of the committee; `key` is K, `seed` what it shares with the server."""

    _senders = OF_THE_SERVER

    def __init__(
        self,
        terms: Terms,
        question: Asked,
        context: Context,
        place: int,
        key: bytes,
        seed: bytes,
        kept: Kept,
        ledger: Ledger,
    ) -> None:
        super().__init__(terms, question, context)
        ledger.enter(context.request)
        self.place, self._ledger = place, ledger
        self._committee, self._seed = Purse(key, context.session), Purse(seed, context.session)
        self._name = context.digest
        self._pads = _fresh(terms, question, context, self._committee)
        if not isinstance(question, Seed):
            self._pads = kept.pads | self._pads
        self.kept = Kept(kept.pads if isinstance(question, Seed) else self._pads, kept.seeds)
        self.drawn: tuple[int, tuple[int, ...]] | None = None  # while seeding: the winner and rows that we were told
        if not isinstance(question, Seed):
            live = {h for h in range(terms.clusters) if question.sizes[h]}
            if not live <= set(self._pads):
                raise OutOfTurn(f"columns {sorted(live - set(self._pads))} were never uploaded in this epoch")

    def take(self, message: Message) -> list[Said]:
        """Take one message of the server. What came before, byte for byte, is not answered again: the link repeats bytes."""
        return self._take(SERVER, message) if self._ledger.note(self._name, message) else self._again(message)

    def _again(self, message: Message) -> list[Said]:
        """A message that an earlier half of the same attempt took may be this one's first."""
        conversation = self._running.get(message.chunk)
        waited = conversation is not None and conversation.name == message.name
        return self._take(SERVER, message) if waited or message.chunk >= self._begun else []

    def _ready(self, rows: int) -> bool:
        return True

    def _start(self, chunk: int) -> tuple[Side, Talk[object]]:
        line = Line(self.question.blur_context() if isinstance(self.question, Inertia) else self._name, chunk)
        side = Comparer(self.terms, line, self.context.request, self.place, self._committee, self._seed)
        first, end = self.chunks[chunk]
        if self._round is not None and isinstance(self.question, Lloyd):
            script = rounds.separate if self.question.separate else rounds.lloyd
            return side, script(side, self._round, first, self._values(first, end))
        if isinstance(self.question, Seed):
            state = seeding.state_for(self.question.number, self.kept.seeds)
            return side, seeding.seed(side, self.question.step(self.terms), self._values, state)
        asked = cast("Inertia", self.question)
        return side, inertia.total(side, asked.sizes, self._totals(asked))

    def _totals(self, question: Inertia) -> npt.NDArray[np.uint64]:
        totals = np.zeros((self.terms.clusters, self.terms.field.lanes), dtype=np.uint64)
        if self.place == 0:  # the others say nothing
            for first in range(0, self.terms.rows, _BLOCK):
                own = self._values(first, min(first + _BLOCK, self.terms.rows))
                inertia.cluster_sums(self.terms, question.labels, own, first, totals)
        return totals

    def _values(self, first: int, end: int) -> npt.NDArray[np.uint32]:
        """Y (rows, columns, L) of some rows, from the streams of the uploads. Pre-condition: first is a multiple of six."""
        width = len(self._pads) if isinstance(self.question, Seed) else self.terms.clusters
        out = np.zeros((end - first, width, self.terms.field.lanes), dtype=np.uint32)
        for pad in {id(pad): pad for pad in self._pads.values()}.values():
            wanted = [h for h, mine in self._pads.items() if mine is pad]
            columns, lanes = places(pad.shape)
            source = np.flatnonzero(np.isin(columns, wanted))
            kernels.place(_stream(pad, first, end), source, columns[source], lanes[source], out)
        return out

    def _finish(self, chunk: int, result: object) -> None:
        if isinstance(self.question, Seed) and isinstance(result, Outcome):
            self.kept = Kept(self.kept.pads, None if self.question.finish else result.state)
            self.drawn = (result.winner, result.rows) if self.question.points else None


def _stream(pad: Pad, first: int, end: int) -> npt.NDArray[np.uint32]:
    """The residues of an upload's pad (rows, residues a row)."""
    layout = pad.shape.layout
    flat = np.zeros((end - first, layout.row_residues), dtype=np.uint32)
    if flat.size:
        reader = prg.SumReader([(pad.key, 1)], layout, first, end - first)
        kernels.add_masks(reader.next(end - first), flat, layout.prime_floats, np.empty(flat.size, dtype=np.int32))
    return flat
