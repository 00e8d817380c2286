"""What an adversary holds after a real run of the protocol: everything the server received, and one client's memory.

The run is that of the real machines in `secfc.protocol.memory`, with an eye on what reaches the server; the insider is an
ordinary client whose memory is read too. The true rows are here as well, to measure how far an attack got; no attack reads
them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import numpy.typing as npt

from secfc.agreement import plan
from secfc.coding import prg
from secfc.coding.field import CHUNK_WORDS, Words
from secfc.coding.sharing import CodedRows
from secfc.kmeans import fixedpoint
from secfc.kmeans.coins import Coins
from secfc.kmeans.decoding import Decoder, Distances
from secfc.kmeans.lloyd import Clustering, Question
from secfc.privacy import keys, masks
from secfc.privacy.leakage import Leakage
from secfc.privacy.masks import neighbours
from secfc.protocol.client.participant import Participant
from secfc.protocol.effects import Send
from secfc.protocol.memory import Memory
from secfc.protocol.parcels import Kind, Parcel, Whole, to_words
from secfc.protocol.server.attempt import Attempt

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Setting:
    """A job to attack. Rows are dealt evenly, in turn; the insider is client 0, so rows 0, n, 2n, … are its own."""

    name: str
    values: npt.NDArray[np.float64] = field(repr=False)
    clusters: int
    clients: int
    privacy: int
    segments: int
    bound: float
    precision: int
    start: str = "k-means++"
    max_rounds: int = 60

    def plan(self, uploads: str) -> plan.Plan:
        return plan.make(
            plan.Wishes(
                clients=self.clients,
                privacy=self.privacy,
                clusters=self.clusters,
                features=self.values.shape[1],
                max_rows=len(self.values),
                bound=self.bound,
                precision=self.precision,
                uploads=uploads,
                segments=self.segments,
            )
        )


@dataclass(frozen=True)
class Column:
    """One group whose distances were asked for: where it stands in the transcript, and who is in it."""

    step: int
    cluster: int
    group: npt.NDArray[np.bool_]

    @property
    def size(self) -> int:
        return int(self.group.sum())


class Insider:
    """A client that follows the protocol, and what it holds: its shares of all rows, its own rows, its mask keys."""

    def __init__(self, agreed: plan.Plan, own: Integers, own_rows: Integers) -> None:
        self.index = 0
        self.own, self.own_rows = own, own_rows
        self.keys: list[list[tuple[bytes, int]]] = []  # one entry per request: it is always among the first R
        self._plan = agreed
        self._client: Participant | None = None

    def remember(self, client: Participant, parties: Sequence[tuple[str, bytes]], attempt: Attempt) -> None:
        """A request has come: the keys of its masks for it. `parties` are all clients with their public keys."""
        self._client = client
        if not self._plan.masked:
            return
        question = attempt.question
        columns = self._plan.shape(len(question.labels), question.sizes, question.columns).columns
        context = masks.MaskContext(
            client.session, self._plan.digest, *attempt.name, attempt.responders, attempt.digests[0], columns
        )
        pairs = keys.pair_keys(client.site.secrets.x25519, client.session, parties, self.index)
        self.keys.append(masks.signed_keys(self.index, self._plan.wishes.privacy, context, pairs))

    def shares(self, lane: int) -> Integers:
        """Its share of every row: f_i(α) of a lane, (m, s)."""
        if self._client is None:
            raise RuntimeError("nothing was asked yet")
        coded = self._client.coded
        if not isinstance(coded, CodedRows):
            raise TypeError("the shares of a simulated client are in memory")
        return np.asarray(coded.matrix[lane, :, : coded.length].astype(np.int64) % coded.field.primes[lane])


class Transcript:
    """All that the server received in one job, with the insider beside it."""

    def __init__(self, agreed: plan.Plan, rows: Integers, insider: Insider) -> None:
        self.plan, self.rows, self.insider = agreed, rows, insider
        self.requests: list[Question] = []
        self.uploads: list[dict[int, Words]] = []
        self._flat: dict[tuple[int, bool], Integers] = {}

    def asked(self, memory: Memory, attempt: Attempt) -> None:
        """The server asks."""
        members = memory.server.job.members.items()
        parties = [(name, member.introduction.x25519) for name, member in members if member.introduction]
        self.insider.remember(memory.clients[memory.federation.roster[self.insider.index]], parties, attempt)
        self.requests.append(attempt.question)
        self.uploads.append({})

    def sent(self, memory: Memory, sender: str, send: Send) -> Send:
        """Something goes by: uploads are kept, in the order of the roster."""
        if isinstance(send.message, Parcel) and send.message.kind is Kind.UPLOAD and isinstance(send.body, Whole):
            self.uploads[-1][memory.federation.roster.index(sender)] = to_words(send.body.data)
            self.uploads[-1] = dict(sorted(self.uploads[-1].items()))
        return send

    def columns(self, steps: int | None = None) -> list[Column]:
        """The groups asked for in the first steps, in order."""
        asked = enumerate(self.requests[:steps])
        return [Column(step, h, request.labels == h) for step, request in asked for h in request.columns]

    def meter(self, steps: int | None = None, segments: int = 1) -> Leakage:
        """The leakage meter after the first steps."""
        meter = Leakage(len(self.rows), self.plan.wishes.features, segments)
        for request in self.requests[:steps]:
            meter = meter.after(request.labels, request.columns)
        return meter

    def independent(self, wanted: int, steps: int | None = None) -> list[Column]:
        """The first `wanted` columns of which none is determined by those before: what the meter counts, one by one."""
        found: list[Column] = []
        meter = Leakage(len(self.rows), self.plan.wishes.features)
        for column in self.columns(steps):
            after = meter.after(column.group.astype(np.int32) - 1, (0,))
            if after.rank > meter.rank and len(found) < wanted:
                found.append(column)
            meter = after
        return found

    def decoded(self, step: int) -> npt.NDArray[np.float64]:
        """Squared distances (m, columns) of a step as the server decodes them: d′/|S|²."""
        request = self.requests[step]
        squares = np.array([int(request.sizes[h]) ** 2 for h in request.columns], dtype=object)
        return np.asarray(self.integers(step) / squares, dtype=np.float64)

    def integers(self, step: int) -> npt.NDArray[np.object_]:
        """d′ (m, columns) of a step, the exact whole numbers that the server decodes."""
        request = self.requests[step]
        distances = Distances(self.plan.field, len(self.rows), self.plan.wishes.clusters)
        shape = self.plan.shape(len(self.rows), request.sizes, request.columns)
        responders = tuple(self.uploads[step])
        decoder = Decoder(shape, responders, None if self.plan.masked else self.plan.code.weights(responders))
        for j, words in self.uploads[step].items():
            for first in range(0, len(words), CHUNK_WORDS):
                decoder.add(j, first, words[first : first + CHUNK_WORDS])
        decoder.finish(distances)
        return np.asarray(distances.integers(request.columns), dtype=object)

    def values(self, column: Column, lane: int, *, insider: bool) -> tuple[tuple[int, ...], Integers]:
        """The responders and what each uploaded for a column in a lane, (R, m), as if it were φ(α_j).

        For masked uploads that is what an adversary can make of them: weights undone and, with the insider's help, the
        masks taken off that the insider shares.
        """
        request, uploads = self.requests[column.step], self.uploads[column.step]
        shape = self.plan.shape(len(self.rows), request.sizes, request.columns)
        responders, p = tuple(uploads), self.plan.field.primes[lane]
        at = shape.layout.offsets[lane] + shape.columns.index(column.cluster)
        flat = self._residues(column.step, insider and self.plan.masked)
        values = flat.reshape(len(responders), len(self.rows), -1)[:, :, at] % p
        if self.plan.masked:
            weights = self.plan.code.weights(responders)[lane].astype(np.int64)
            values = values * np.array([[pow(int(w) or 1, -1, p)] for w in weights]) % p
        return responders, values

    def _residues(self, step: int, unmask: bool) -> Integers:
        """All residues of a step, (R, rows · residues per row)."""
        if (step, unmask) not in self._flat:
            request = self.requests[step]
            count = self.plan.shape(len(self.rows), request.sizes, request.columns).layout.residues
            flat = np.stack([_unpacked(words) for words in self.uploads[step].values()])[:, :count]
            if unmask:
                self._unmask(flat, step)
            self._flat[step, unmask] = flat
        return self._flat[step, unmask]

    def _unmask(self, flat: Integers, step: int) -> None:
        """Take the insider's own masks off its upload and off those of its neighbours."""
        request = self.requests[step]
        layout = self.plan.shape(len(self.rows), request.sizes, request.columns).layout
        responders, keys = tuple(self.uploads[step]), self.insider.keys[step]
        order = sorted(responders)
        me = order.index(self.insider.index)
        others = neighbours(me, len(order), self.plan.wishes.privacy)
        for other, (key, sign) in zip(others, keys, strict=True):
            stream = prg.SumReader([(key, sign)], layout, 0, layout.rows).next(layout.rows).T.reshape(-1)
            mask = stream[: layout.residues].astype(np.int64)
            flat[responders.index(order[me])] -= mask
            flat[responders.index(order[other])] += mask


def _unpacked(words: Words) -> Integers:
    """Packed words, three residues each, unpacked."""
    parts = [(words >> np.uint64(21 * place)) & np.uint64(0x1FFFFF) for place in range(3)]
    return np.stack(parts, axis=1).reshape(-1).astype(np.int64)


def record(setting: Setting, uploads: str, *, jobs: int = 1, candidates: int = 1) -> Transcript:
    """Run the protocol on a setting, or several jobs with other starts on the same shares; keep what the adversary sees. Of
    sealed rounds that is a `SealedTranscript`. `candidates` are those per seed."""
    agreed = setting.plan(uploads)
    rows = fixedpoint.quantise(setting.values, setting.bound, setting.precision)
    positions = [np.arange(j, len(rows), setting.clients) for j in range(setting.clients)]
    parts = [rows[at] for at in positions]
    seeds = [prg.fresh_key() for _ in parts]
    out = _of_kind(uploads)(agreed, rows, Insider(agreed, positions[0], parts[0]))
    for job in range(jobs):
        memory = Memory(agreed, parts, machine(setting, job, candidates), positions=positions, seeds=seeds)
        memory.alter, memory.asked = partial(out.sent, memory), partial(out.asked, memory)
        memory.run()
    return out


def _of_kind(uploads: str) -> type[Transcript]:
    from experiments.sealedview import SealedTranscript

    return SealedTranscript if uploads == "sealed" else Transcript


def machine(setting: Setting, job: int, candidates: int = 1) -> Callable[[int], Clustering]:
    """What begins the job of that number, with so many candidates per seed."""
    coins, most = Coins(b"attacks %d" % job), setting.max_rounds
    return lambda total: Clustering(
        total, setting.clusters, start=setting.start, coins=coins, max_rounds=most, candidates=candidates
    )
