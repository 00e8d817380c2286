"""What open and masked rounds have in common: every responder uploads once, the server sums, decodes and solves."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from secfc.agreement.plan import Plan
from secfc.coding.field import Residues
from secfc.errors import InvalidInput, Malformed
from secfc.kmeans.decoding import Decoder, Distances
from secfc.kmeans.distances import CodedClusters, Labels, Shape
from secfc.kmeans.lloyd import Answer, Question, solve
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

MakeDecoder = Callable[[Plan, Shape, Sequence[int]], Decoder]
Upload = Callable[[Holding, CodedClusters, Shape, RoundRequest], Body]


class UploadSink:
    """Where one responder's upload goes: straight into the sum, in open, masked and sealed rounds."""

    def __init__(self, decoder: Decoder, client: int, added: Callable[[], None] = lambda: None) -> None:
        """`added` is called after every piece."""
        self._decoder, self._client, self._added = decoder, client, added

    @property
    def received(self) -> int:
        return 8 * self._decoder.received(self._client)

    @property
    def due(self) -> int:
        """How many bytes it has in all."""
        return 8 * self._decoder.shape.layout.words

    def begin(self, total: int) -> None:
        if total != self.due:
            raise Malformed(f"an upload of {self.due} bytes is due, not of {total}")

    def write(self, data: Data) -> None:
        self._decoder.add(self._client, self._decoder.received(self._client), parcels.to_words(data))
        self._added()


class _Exchange(ServerExchange):
    """One attempt at the server."""

    def __init__(self, question: Question, decoder: Decoder, distances: Distances, liars_left: int) -> None:
        self._question, self._decoder, self._distances = question, decoder, distances
        self._liars_left, self._handed = liars_left, False
        self._responders = decoder.responders
        self._here: set[int] = set()

    def sink(self, client: int, name: bytes) -> UploadSink | None:
        due = client in self._responders and not name and not self._handed
        return UploadSink(self._decoder, client, lambda: self._decoder.advance(self._distances)) if due else None

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
        liars = self._decoder.check.liars(self._liars_left) if self._decoder.check else ()
        if liars:
            return Lies(liars)
        self._decoder.finish(self._distances)
        return solve(self._question, self._distances)

    @property
    def columns(self) -> tuple[int, ...]:
        return self._question.columns

    @property
    def upload_bytes(self) -> int:
        return 8 * self._decoder.shape.layout.words * len(self._responders)


class UploadsServer(ServerHalf):
    """Distances of all rows to all clusters; columns of clusters that did not change stay from earlier requests."""

    def __init__(self, plan: Plan, rows: int, decoder: MakeDecoder) -> None:
        self._plan, self._decoder = plan, decoder
        self._distances = Distances(plan.field, rows, 0)

    def ask(
        self, question: Question, responders: tuple[int, ...], liars_left: int, attempt: int, quickest: Sequence[int]
    ) -> ServerExchange:
        self._distances.resize(len(question.sizes))
        shape = self._plan.shape(len(question.labels), question.sizes, question.columns)
        return _Exchange(question, self._decoder(self._plan, shape, responders), self._distances, liars_left)


def body_of(
    clusters: CodedClusters, shape: Shape, weights: Residues | None = None, masks: Sequence[tuple[bytes, int]] = ()
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
        try:
            shape = self._holding.plan.shape(len(labels), self._clusters.sizes, request.columns)
        except InvalidInput as error:
            raise Malformed(f"the server asks for impossible columns: {error}") from None
        return self._upload(self._holding, self._clusters, shape, request)
