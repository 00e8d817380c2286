"""What open and masked rounds have in common: every responder uploads once, the server sums, decodes and solves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

from secfc.agreement.plan import Plan
from secfc.coding.field import Residues
from secfc.errors import InvalidInput, Malformed
from secfc.kmeans import rowsets
from secfc.kmeans.bounds import Bounds
from secfc.kmeans.decoding import Decoder, Distances
from secfc.kmeans.distances import CodedClusters, Labels, Pattern
from secfc.kmeans.lloyd import Answer, Question, solve
from secfc.kmeans.rowsets import Wanted
from secfc.privacy import checking
from secfc.protocol import parcels
from secfc.protocol.messages import RoundRequest
from secfc.protocol.parcels import Body, Data
from secfc.protocol.rounds.kinds import (
    SERVER,
    ClientExchange,
    ClientHalf,
    Holding,
    Lies,
    Outgoing,
    ServerExchange,
    ServerHalf,
)

MakeDecoder = Callable[[Plan, Pattern, Sequence[int]], Decoder]
Upload = Callable[[Holding, CodedClusters, Pattern, RoundRequest], Body]


class UploadSink:
    """Where one responder's upload goes: straight into the sum, in open, masked and sealed rounds."""

    def __init__(
        self, decoders: Decoder | Sequence[Decoder], client: int, added: Callable[[], None] = lambda: None
    ) -> None:
        """`decoders` of its parts, in their order. `added` is called after every piece."""
        self._decoders = (decoders,) if isinstance(decoders, Decoder) else decoders
        self._client, self._added = client, added

    @property
    def received(self) -> int:
        return 8 * sum(one.received(self._client) for one in self._decoders)

    @property
    def due(self) -> int:
        """How many bytes it has in all."""
        return 8 * sum(one.shape.layout.words for one in self._decoders)

    def begin(self, total: int) -> None:
        if total != self.due:
            raise Malformed(f"an upload of {self.due} bytes is due, not of {total}")

    def write(self, data: Data) -> None:
        words = parcels.to_words(data)
        for one in self._decoders:
            here = one.received(self._client)
            last = one is self._decoders[-1]  # which refuses what is too much
            part = words if last else words[: one.shape.layout.words - here]
            one.add(self._client, here, part)
            words = words[len(part) :]
        self._added()


class _Exchange(ServerExchange):
    """One attempt at the server."""

    def __init__(self, half: UploadsServer, question: Question, responders: tuple[int, ...], liars_left: int) -> None:
        self._half, self._question, self._responders = half, question, responders
        self._wanted, self._distances = half.wanted(question), half.distances
        self._shapes = half.plan.shapes(question.labels, question.sizes, self._wanted)
        self._decoders = [half.decoder(half.plan, shape, responders) for shape in self._shapes]
        self._liars_left, self._handed = liars_left, False
        self._here: set[int] = set()

    def sink(self, client: int, name: bytes) -> UploadSink | None:
        due = client in self._responders and not name and not self._handed
        return UploadSink(self._decoders, client, self._advance) if due else None

    def _advance(self) -> None:
        for decoder in self._decoders:
            decoder.advance(self._distances)

    def arrived(self, client: int, name: bytes) -> None:
        self._here.add(client)

    def missing(self) -> list[int]:
        return [j for j in self._responders if j not in self._here]  # one that has no word to send says so

    def due(self) -> Callable[[], Answer | Lies] | None:
        if self._handed or self.missing():
            return None
        self._handed = True
        return self._solve

    def _solve(self) -> Answer | Lies:
        """Raises JobFailed if the uploads contradict each other and no `liars_left` of them explain it."""
        liars = checking.liars([one.check for one in self._decoders if one.check is not None], self._liars_left)
        if liars:
            return Lies(liars)
        for decoder in self._decoders:
            decoder.finish(self._distances)
        return self._half.solved(self._question)

    @property
    def columns(self) -> tuple[int, ...]:
        return tuple(sorted(self._wanted))

    @cached_property
    def rows(self) -> bytes:
        return rowsets.encode(self._wanted, len(self._question.labels))

    @property
    def pairs(self) -> int:
        rows, sizes = len(self._question.labels), self._question.sizes
        return sum(one.count(rows, int(sizes[h])) for h, one in self._wanted.items())

    @property
    def upload_bytes(self) -> int:
        return 8 * sum(shape.layout.words for shape in self._shapes) * len(self._responders)


class UploadsServer(ServerHalf):
    """Distances of all rows to all clusters; columns of clusters that did not change stay from earlier requests, and if the
    job prunes, distances that cannot matter are left out (`kmeans.bounds`)."""

    def __init__(self, plan: Plan, rows: int, decoder: MakeDecoder) -> None:
        self.plan, self.decoder = plan, decoder
        self.distances = Distances(plan.field, rows, 0)
        self._bounds = Bounds(self.distances) if plan.wishes.prune else None

    def ask(
        self, question: Question, responders: tuple[int, ...], liars_left: int, attempt: int, quickest: Sequence[int]
    ) -> ServerExchange:
        self.distances.resize(len(question.sizes))
        return _Exchange(self, question, responders, liars_left)

    def whole(self) -> None:
        if self._bounds is not None:
            self._bounds.forget()

    def wanted(self, question: Question) -> Mapping[int, Wanted]:
        """The rows of every column that are asked for."""
        if self._bounds is None:
            return dict.fromkeys(question.columns, Wanted())
        return self._bounds.wanted(question)

    def solved(self, question: Question) -> Answer:
        """The answer to a question, once all that it asks for is decoded (heavy)."""
        if self._bounds is None:
            return solve(question, self.distances)
        answer = solve(question, self.distances, partial=self._bounds.partial(question))
        self._bounds.learn(question, answer.labels)
        return answer


def body_of(
    clusters: CodedClusters, shape: Pattern, weights: Residues | None = None, masks: Sequence[tuple[bytes, int]] = ()
) -> Body:
    """An upload: computed now, or block by block while it is sent, if it might not fit into memory."""
    if clusters.coded.spool is None:
        return parcels.of_words(clusters.upload(shape, weights, masks))
    later = clusters.answer(shape, weights, masks)
    return parcels.Made(later.words, later.pieces)


class _Answering(ClientExchange):
    """One attempt at a responder."""

    def __init__(self, make: Callable[[], Body]) -> None:
        self._make = make

    def begin(self) -> Sequence[Outgoing]:
        return [Outgoing(SERVER, b"", self._make())]


class UploadsClient(ClientHalf):
    """Coded centres that follow the assignment, and coded distances to them."""

    def __init__(self, holding: Holding, upload: Upload) -> None:
        self._holding, self._upload = holding, upload
        self._clusters = CodedClusters(holding.coded, holding.plan.slots, holding.frozen)

    def answer(self, request: RoundRequest, labels: Labels) -> _Answering:
        return _Answering(lambda: self._made(request, labels))

    def _made(self, request: RoundRequest, labels: Labels) -> Body:
        self._clusters.assign(labels)
        wanted = rowsets.decode(request.rows, request.columns, labels)
        try:
            shapes = self._holding.plan.shapes(labels, self._clusters.sizes, wanted)
        except InvalidInput as error:
            raise Malformed(f"the server asks for impossible columns: {error}") from None
        parts = [self._upload(self._holding, self._clusters, shape, request) for shape in shapes]
        return parts[0] if len(parts) == 1 else parcels.joined(parts)
