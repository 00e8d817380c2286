"""The whole protocol in one process, readable as its specification.

`run` is Algorithm 1 of the paper with the choices of docs/protocol.md: every client shares its rows, then round after
round R responders upload coded distances, their sum is decoded, and the next assignment goes to everybody. The networked
system does the same with the same functions; only the transport differs.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import inf

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from secfc import centers, masks, prg
from secfc.centers import Opened
from secfc.decoding import Decoder, Distances
from secfc.distances import CodedClusters, Labels
from secfc.errors import DataError, InvalidInput
from secfc.field import CHUNK_WORDS, Words
from secfc.lloyd import Clustering, Phase, Request
from secfc.plan import Plan
from secfc.sharing import CodedRows, ShareSet

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Round:
    """One finished request: its number and phase, who responded, and the assignment that follows from it."""

    number: int
    phase: Phase
    responders: tuple[int, ...]
    columns: tuple[int, ...]
    labels: Labels
    changed: int
    inertia: float | None


@dataclass(frozen=True)
class Result:
    """The clustering. `inertia` is in the units of the data; `rounds` counts Lloyd rounds, seeding apart."""

    labels: Labels
    sizes: npt.NDArray[np.int64]
    inertia: float
    rounds: int
    converged: bool
    history: list[Round] = field(repr=False)
    centers: Opened | None = None  # only if they are opened


class Member:
    """One client: it shares its rows, holds a share of everybody's, and answers requests."""

    def __init__(self, index: int, plan: Plan, rows: Rows) -> None:
        self.index, self.plan = index, plan
        self.share_set = ShareSet(plan.code, rows, prg.fresh_key())
        self._private = X25519PrivateKey.generate()
        self.public = self._private.public_key().public_bytes_raw()

    def meet(self, publics: Sequence[bytes]) -> None:
        """Agree on a secret with every other client."""
        others = (j for j in range(len(publics)) if j != self.index)
        self._secrets = {j: masks.agree(self._private, publics[j]) for j in others}

    def receive(self, total: int, shares: Iterable[tuple[npt.NDArray[np.int64], Words]]) -> None:
        """Take in everybody's shares: where the rows stand among all m, and their packed shares."""
        coded = CodedRows(self.plan.field, total, self.plan.length)
        for positions, words in shares:
            coded.put(positions, words)
        coded.finish()
        self._clusters = CodedClusters(coded, self.plan.wishes.clusters)

    def answer(self, request: Request, session: bytes, responders: tuple[int, ...], attempt: int) -> Words:
        """The upload for one attempt of a round. Refuses a responder set that is not exactly R of the roster."""
        self.plan.code.check_responders(responders)
        self._clusters.assign(request.labels)
        shape = self.plan.shape(len(request.labels), self._clusters.sizes, request.columns)
        if not self.plan.masked:
            return self._clusters.upload(shape)
        weights = self.plan.code.weights(responders)[:, responders.index(self.index)]
        digest = masks.assignment_digest(request.labels.astype("<i4").tobytes())
        context = masks.Context(session, self.plan.digest, request.number, attempt, responders, digest, shape.columns)
        keys = masks.signed_keys(self.index, self.plan.wishes.privacy, context, self._secrets)
        return self._clusters.upload(shape, weights, keys)

    def centers(self, labels: Labels, clusters: Sequence[int]) -> Words:
        """Its values for the centres of the final assignment, if it consents to opening them."""
        self._clusters.assign(labels)
        return centers.values(self.plan, self._clusters, clusters)


def share(plan: Plan, rows: Sequence[Rows], positions: Sequence[npt.NDArray[np.int64]]) -> list[Member]:
    """Phase 1: every client shares its rows with all."""
    members = [Member(j, plan, part) for j, part in enumerate(rows)]
    everybody = range(len(members))
    outgoing = [member.share_set.shares(everybody) for member in members]
    for j, member in enumerate(members):
        member.meet([other.public for other in members])
        member.receive(sum(len(part) for part in rows), [(positions[i], outgoing[i][j]) for i in everybody])
    return members


def decode(plan: Plan, request: Request, uploads: dict[int, Words], distances: Distances) -> None:
    """The server's sum over R uploads, in chunks as they would arrive."""
    responders = tuple(uploads)
    shape = plan.shape(len(request.labels), request.sizes, request.columns)
    decoder = Decoder(shape, responders, None if plan.masked else plan.code.weights(responders))
    for j, words in uploads.items():
        for first in range(0, len(words), CHUNK_WORDS):
            decoder.add(j, first, words[first : first + CHUNK_WORDS])
    decoder.finish(distances)


def open_centers(plan: Plan, members: Sequence[Member], labels: Labels) -> Opened:
    """The exact means of the final clusters, from everybody's values (ℓ+t would do; the others are checked)."""
    sizes = np.bincount(labels, minlength=plan.wishes.clusters).astype(np.int64)
    clusters = centers.large_enough(sizes, 1)
    given = {member.index: member.centers(labels, clusters) for member in members}
    sums = centers.decode(plan, clusters, sizes, given)
    return Opened(clusters, tuple(sizes[list(clusters)].tolist()), sums, plan.wishes.precision)


def run(
    plan: Plan,
    rows: Sequence[Rows],
    clustering: Callable[[int], Clustering],
    *,
    positions: Sequence[npt.NDArray[np.int64]] | None = None,
    choose: Callable[[int], Sequence[int]] | None = None,
    observe: Callable[[Round], None] | None = None,
    reveal_centers: bool = False,
) -> Result:
    """Cluster the quantised rows of all clients.

    `clustering` makes the server's machine once the number of rows is known. `positions[j]` says where client j's rows stand
    in the order of all rows (default: by client, then as given). `choose` picks the R responders of a request.
    `reveal_centers` opens the centres at the end.
    """
    rows, positions = _checked(plan, rows, positions)
    total = sum(len(part) for part in rows)
    machine = clustering(total)
    members = share(plan, rows, positions)
    session = os.urandom(32)
    distances = Distances(plan.field, total, plan.wishes.clusters)
    history: list[Round] = []
    while machine.phase is not Phase.DONE:
        request = machine.request
        responders = tuple(sorted(choose(request.number) if choose else range(plan.responders)))
        uploads = {j: members[j].answer(request, session, responders, attempt=1) for j in responders}
        decode(plan, request, uploads, distances)
        progress = machine.absorb(distances)
        history.append(
            Round(
                request.number,
                progress.phase,
                responders,
                request.columns,
                machine.labels.copy(),
                progress.changed,
                None if progress.inertia is None else in_data_units(plan, progress.inertia),
            )
        )
        if observe:
            observe(history[-1])
    loss = history[-1].inertia
    if loss is None:
        raise InvalidInput("a clustering ends with a Lloyd round")
    opened = open_centers(plan, members, machine.labels) if reveal_centers else None
    return Result(machine.labels, machine.sizes, loss, machine.rounds, machine.converged, history, opened)


def in_data_units(plan: Plan, quantised: Fraction) -> float:
    """A squared distance of quantised rows, in the squared units of the data: divided by λ²."""
    try:
        return float(quantised / Fraction(2) ** (2 * plan.wishes.precision))
    except OverflowError:
        return inf


def _checked(
    plan: Plan, rows: Sequence[Rows], positions: Sequence[npt.NDArray[np.int64]] | None
) -> tuple[list[Rows], list[npt.NDArray[np.int64]]]:
    if len(rows) != plan.wishes.clients:
        raise InvalidInput(f"{plan.wishes.clients} clients were planned, rows of {len(rows)} were given")
    parts = [np.asarray(part) for part in rows]
    for j, part in enumerate(parts):
        if part.ndim != 2 or part.shape[1] != plan.wishes.features or part.dtype.kind != "i":
            raise DataError(f"client {j + 1} must bring whole-number rows of {plan.wishes.features} features")
        if part.size and (part.max() > plan.eta or part.min() < -plan.eta):
            raise DataError(f"client {j + 1} brings a value beyond the planned bound; quantise with the plan's bound")
    total = sum(len(part) for part in parts)
    if total == 0:
        raise DataError("no client brings a row; there is nothing to cluster")
    if total > plan.wishes.max_rows:
        raise DataError(f"{total} rows exceed the planned max_rows = {plan.wishes.max_rows}; plan for more")
    if positions is None:
        edges = np.cumsum([0] + [len(part) for part in parts])
        positions = [np.arange(a, b) for a, b in itertools.pairwise(edges)]
    if [len(at) for at in positions] != [len(part) for part in parts]:
        raise InvalidInput("positions must number each client's rows, one number a row")
    if not np.array_equal(np.sort(np.concatenate(list(positions))), np.arange(total)):
        raise InvalidInput("positions must number all rows once")
    return parts, list(positions)
