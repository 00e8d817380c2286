"""The whole protocol in one process, readable as its specification.

`run` is Algorithm 1 of the paper with the choices of docs/protocol.md: every client shares its rows, all shares are checked
to fit together, then round after round R responders upload coded distances, their sum is decoded, and the next assignment
goes to everybody. With private membership (Section 5), the clients first agree on the sorted list of all row IDs, and every
client shares all m slots, zeros where the row is not its own. The networked system does the same with the same functions;
only the transport differs.
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

from secfc import alignment, centers, identifiers, keys, masks, prg, verification
from secfc.centers import Opened
from secfc.checking import Check
from secfc.coins import Coins
from secfc.decoding import Decoder, Distances
from secfc.distances import CodedClusters, Labels
from secfc.errors import DataError, InvalidInput, JobFailed
from secfc.field import CHUNK_WORDS, Words
from secfc.identifiers import Ids
from secfc.lloyd import Clustering, Phase, Request
from secfc.plan import Plan
from secfc.sharing import CodedRows, ShareSet, SlotShares
from secfc.union import union_code

Rows = npt.NDArray[np.int64]
Positions = npt.NDArray[np.int64]


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
    attempts: int = 1


@dataclass(frozen=True)
class Result:
    """The clustering. `inertia` is in the units of the data; `rounds` counts Lloyd rounds, seeding apart; `liars` are the
    clients whose uploads were wrong."""

    labels: Labels
    sizes: npt.NDArray[np.int64]
    inertia: float
    rounds: int
    converged: bool
    history: list[Round] = field(repr=False)
    slots: list[Positions] = field(repr=False)  # where each client's rows stand in `labels`; each knows its own only
    liars: tuple[int, ...] = ()
    centers: Opened | None = None  # only if they are opened


class Member:
    """One client: it shares its rows, holds a share of everybody's, and answers requests."""

    def __init__(self, index: int, plan: Plan, share_set: ShareSet) -> None:
        self.index, self.plan = index, plan
        self.share_set = share_set
        self._private = X25519PrivateKey.generate()
        self.public = self._private.public_key().public_bytes_raw()

    def meet(self, publics: Sequence[bytes]) -> None:
        """Learn everybody's public key."""
        self._parties = [(f"client {j + 1}", public) for j, public in enumerate(publics)]
        self._pairs: dict[bytes, dict[int, bytes]] = {}  # by session

    def _keys(self, session: bytes) -> dict[int, bytes]:
        if session not in self._pairs:
            self._pairs[session] = keys.pair_keys(self._private, session, self._parties, self.index)
        return self._pairs[session]

    def receive(self, total: int, shares: Iterable[tuple[slice | Positions, Words]]) -> None:
        """Take in everybody's shares: where the rows stand among all m, and their packed shares. With private membership
        everybody sends all m, and they are added."""
        coded = CodedRows(self.plan.field, total, self.plan.length)
        for positions, words in shares:
            coded.put(positions, words, add=self.plan.private)
        coded.finish()
        self._clusters = CodedClusters(coded, self.plan.wishes.clusters)

    def verification(self, session: bytes, coins: Coins) -> Words:
        """Its part of the check that everybody's shares fit together."""
        coded = self._clusters.coded
        return verification.contribution(self.plan, self.index, coded, session, coins, self._keys(session))

    def answer(self, request: Request, session: bytes, responders: tuple[int, ...], attempt: int) -> Words:
        """The upload for one attempt of a round. Refuses a responder set that the plan does not allow."""
        self.plan.check_responders(responders)
        self._clusters.assign(request.labels)
        shape = self.plan.shape(len(request.labels), self._clusters.sizes, request.columns)
        if not self.plan.masked:
            return self._clusters.upload(shape)
        weights = self.plan.code.weights(responders)[:, responders.index(self.index)]
        return self._clusters.upload(shape, weights, self.mask_keys(request, session, responders, attempt))

    def mask_keys(
        self, request: Request, session: bytes, responders: tuple[int, ...], attempt: int
    ) -> list[tuple[bytes, int]]:
        """The signed keys of this client's masks for one attempt of a round."""
        digest = masks.assignment_digest(request.labels.astype("<i4").tobytes())
        columns = self.plan.shape(len(request.labels), request.sizes, request.columns).columns
        context = masks.Context(session, self.plan.digest, request.number, attempt, responders, digest, columns)
        return masks.signed_keys(self.index, self.plan.wishes.privacy, context, self._keys(session))

    def centers(self, labels: Labels, clusters: Sequence[int]) -> Words:
        """Its values for the centres of the final assignment, if it consents to opening them."""
        self._clusters.assign(labels)
        return centers.values(self.plan, self._clusters, clusters)


def share(plan: Plan, rows: Sequence[Rows], positions: Sequence[Positions]) -> list[Member]:
    """Phase 1: every client shares its rows with all; `positions` are the slots of its rows, which with private membership
    it keeps to itself."""
    total = sum(len(part) for part in rows)
    members = [Member(j, plan, _share_set(plan, rows[j], positions[j], total)) for j in range(len(rows))]
    outgoing = [member.share_set.shares(range(len(members))) for member in members]
    where = [slice(0, total) if plan.private else at for at in positions]
    for j, member in enumerate(members):
        member.meet([other.public for other in members])
        member.receive(total, [(at, words[j]) for at, words in zip(where, outgoing, strict=True)])
    return members


def _share_set(plan: Plan, rows: Rows, slots: Positions, total: int) -> ShareSet:
    if plan.private:
        return SlotShares(plan.code, rows, slots, total, prg.fresh_key())
    return ShareSet(plan.code, rows, prg.fresh_key())


def align(plan: Plan, rows: Sequence[Rows], ids: Sequence[Ids] | None) -> list[Positions]:
    """Phase 0 of private membership: the slots of every client's rows, by the sorted union of all IDs."""
    own = [identifiers.fresh(len(part), prg.fresh_key()) for part in rows] if ids is None else list(ids)
    if [len(part) for part in own] != [len(part) for part in rows]:
        raise InvalidInput("ids must hold one ID for each row of each client")
    code = union_code(plan.wishes.clients, plan.wishes.privacy)
    union = alignment.align(code, own, os.urandom(32), plan.wishes.max_rows)
    return [union.slots(part) for part in own]


def verify(plan: Plan, members: Sequence[Member], session: bytes) -> None:
    """Phase 2: raise JobFailed unless all hold shares of the same polynomials, by coins that nobody knew while sharing."""
    coins = Coins()
    given = [member.verification(session, coins) for member in members]
    verification.verify(plan, [f"client {member.index + 1}" for member in members], given)


def decoder(plan: Plan, request: Request, responders: Sequence[int]) -> Decoder:
    """What takes in the uploads of one attempt: R of them are summed, and with liars planned for, all are checked."""
    shape = plan.shape(len(request.labels), request.sizes, request.columns)
    if plan.masked:
        return Decoder(shape, responders, None)
    check = Check(plan.code, shape.layout, responders) if plan.wishes.liars else None
    return Decoder(shape, responders, plan.code.weights(responders[: plan.responders]), check)


def decode(
    plan: Plan, request: Request, uploads: dict[int, Words], distances: Distances, found: int = 0
) -> tuple[int, ...]:
    """The server's sum over R uploads, in chunks as they would arrive. Whose uploads are wrong, if any are; the distances
    then count for nothing. `found` liars were left out before."""
    taking = decoder(plan, request, tuple(uploads))
    for j, words in uploads.items():
        for first in range(0, len(words), CHUNK_WORDS):
            taking.add(j, first, words[first : first + CHUNK_WORDS])
    liars = taking.check.liars(plan.wishes.liars - found) if taking.check else ()
    if not liars:
        taking.finish(distances)
    return liars


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
    positions: Sequence[Positions] | None = None,
    ids: Sequence[Ids] | None = None,
    choose: Callable[[int], Sequence[int]] | None = None,
    observe: Callable[[Round], None] | None = None,
    tap: Callable[[Request, dict[int, Words]], None] | None = None,
    members: Sequence[Member] | None = None,
    lie: Callable[[int, Request, Words], Words] | None = None,
    reveal_centers: bool = False,
) -> Result:
    """Cluster the quantised rows of all clients.

    `clustering` makes the server's machine once the number of rows is known. `positions[j]` says where client j's rows stand
    in the order of all rows (default: by client, then as given). `choose` says whom to ask first in a request.
    `tap` is shown all that the server receives: what it asked for, and every responder's upload, byte for byte.
    `members` are those of an earlier `share` of these rows: another job on the same shares. With `plan.wishes.liars`, wrong
    uploads are found, and the request is asked again without their senders, who stay left out; `lie(client, request, upload)`
    may falsify what a client sends, to try that. `reveal_centers` opens the centres at the end.

    With private membership rows are ordered by their IDs instead: `ids[j]` are those of client j's rows (default: fresh).
    """
    if (positions if plan.private else ids) is not None:
        raise InvalidInput("rows have positions with public membership and IDs with private membership")
    rows, positions = _checked(plan, rows, positions)
    if plan.private:
        positions = align(plan, rows, ids)
    total = sum(len(part) for part in rows)
    machine = clustering(total)
    members = share(plan, rows, positions) if members is None else members
    session = os.urandom(32)
    verify(plan, members, session)
    distances = Distances(plan.field, total, plan.wishes.clusters)
    history: list[Round] = []
    liars: tuple[int, ...] = ()
    attempt = 0
    while machine.phase is not Phase.DONE:
        request, attempt = machine.request, attempt + 1
        live = choose(request.number) if choose else range(plan.wishes.clients)
        responders = pick(plan, live, liars)
        uploads = {j: members[j].answer(request, session, responders, attempt) for j in responders}
        if lie is not None:
            uploads = {j: lie(j, request, words) for j, words in uploads.items()}
        if tap:
            tap(request, uploads)
        wrong = decode(plan, request, uploads, distances, len(liars))
        if wrong:
            liars = tuple(sorted(liars + wrong))
            continue
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
                attempt,
            )
        )
        attempt = 0
        if observe:
            observe(history[-1])
    loss = history[-1].inertia
    if loss is None:
        raise InvalidInput("a clustering ends with a Lloyd round")
    opened = open_centers(plan, members, machine.labels) if reveal_centers else None
    return Result(
        machine.labels, machine.sizes, loss, machine.rounds, machine.converged, history, positions, liars, opened
    )


def pick(plan: Plan, live: Sequence[int], liars: Sequence[int]) -> tuple[int, ...]:
    """The responders of an attempt: the first of those who are live and have not lied."""
    least, most = plan.asked(len(liars))
    good = [j for j in live if j not in liars]
    if len(good) < least:
        raise JobFailed(f"{least} responders are needed and {len(good)} can be asked")
    return tuple(sorted(good[:most]))


def in_data_units(plan: Plan, quantised: Fraction) -> float:
    """A squared distance of quantised rows, in the squared units of the data: divided by λ²."""
    try:
        return float(quantised / Fraction(2) ** (2 * plan.wishes.precision))
    except OverflowError:
        return inf


def _checked(
    plan: Plan, rows: Sequence[Rows], positions: Sequence[Positions] | None
) -> tuple[list[Rows], list[Positions]]:
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
