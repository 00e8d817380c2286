"""One client's side of a job as a machine: no sockets, threads, files or clocks.

Phases and what moves them:

    JOINING   the roster arrives: everybody's signed introduction is verified, the session follows from them  → SHARING
    SHARING   shares of every other client arrive, residue by residue checked, ours are delivered             → ROUNDS
    ROUNDS    assignments arrive, requests are answered with uploads                                          → FINISHED
    any       the server says that the job has failed                                                         → FAILED

Assignments are taken from SHARING on: a client that comes back to a job that ended without it gets its labels even if
shares it lost cannot be had any more.

What no honest server says is refused with an error; the caller then ends the client.

The client trusts its own federation file and its CA, nothing else: it computes session, plan, weights and masks by itself,
and answers only requests with exactly R distinct responders, rising numbers and the assignment they claim.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from secfc import assignments, events, masks
from secfc.config import Federation
from secfc.distances import CodedClusters, Labels
from secfc.errors import InvalidInput, JobFailed, Malformed, OutOfTurn, WrongSender
from secfc.field import Words
from secfc.plan import Plan
from secfc.sharing import CodedRows, ShareSet


class Phase(Enum):
    """Where a client stands."""

    JOINING = "joining"
    SHARING = "sharing"
    ROUNDS = "rounds"
    FINISHED = "finished"
    FAILED = "failed"


@dataclass(frozen=True)
class Secrets:
    """What makes a client itself in one job, and must outlive its process."""

    seed: bytes
    x25519: X25519PrivateKey
    nonce: bytes

    def __repr__(self) -> str:
        return "Secrets(…)"


@dataclass
class _Incoming:
    """Words of one owner's shares that have arrived."""

    words: Words
    received: int = 0


class Participant:
    """See the module's docstring."""

    def __init__(
        self,
        federation: Federation,
        plan: Plan,
        name: str,
        rows: npt.NDArray[np.int64],
        secrets: Secrets,
        verify: Callable[[events.Introduction], None],
    ) -> None:
        """`rows` are quantised; `verify` raises unless an introduction is signed by the client it names."""
        self.federation, self.plan, self.name = federation, plan, name
        self.index = federation.roster.index(name)
        self.phase = Phase.JOINING
        self.share_set = ShareSet(plan.code, rows, secrets.seed)
        self.finished: events.Finished | None = None
        self.failure = ""
        self.session = b""
        self.members: tuple[events.Introduction, ...] = ()
        self._secrets, self._verify = secrets, verify
        self._pairwise: dict[int, bytes] = {}
        self._incoming: dict[int, _Incoming] = {}
        self._held: set[int] = set()
        self._pending = bytearray()  # of the assignment that is arriving
        self._pending_of = (0, 0, 0)  # its version, base and total
        self._versions: dict[int, Labels] = {}
        self._answered = (0, 0)

    @property
    def rows(self) -> int:
        """Our own rows."""
        return self.share_set.layout.rows

    def introduction(self, certificate: bytes, sign: Callable[[bytes], bytes]) -> events.Introduction:
        """Our signed statement."""
        public = self._secrets.x25519.public_key().public_bytes_raw()
        bare = events.Introduction(self.name, self.rows, self.share_set.id, public, self._secrets.nonce, certificate)
        signature = sign(bare.statement(self.federation.digest()))
        return events.Introduction(
            bare.name, bare.rows, bare.share_set, bare.x25519, bare.nonce, bare.certificate, signature
        )

    # --- what the server says ------------------------------------------------------------------------------------------

    def handle(self, event: events.Event) -> events.RoundRequest | None:
        """Take in an event; a request is returned if it is for us to answer (with `answer`)."""
        if self.phase in (Phase.FINISHED, Phase.FAILED):
            return None
        match event:
            case events.Roster():
                self._roster(event)
            case events.Assignment():
                self._assignment(event)
            case events.RoundRequest():
                return self._request(event)
            case events.Finished():
                self._finish(event)
            case events.Failed():
                self.phase, self.failure = Phase.FAILED, event.reason
            case events.Waiting():
                pass
        return None

    def _roster(self, roster: events.Roster) -> None:
        if self.phase is not Phase.JOINING:
            if events.session(self.federation.digest(), roster.members) != self.session:
                raise WrongSender("the server shows another roster than before; it has restarted or is not honest")
            return
        if tuple(m.name for m in roster.members) != self.federation.roster:
            raise WrongSender("the roster of the server is not that of federation.toml")
        mine = roster.members[self.index]
        public = self._secrets.x25519.public_key().public_bytes_raw()
        if (mine.share_set, mine.x25519, mine.nonce) != (self.share_set.id, public, self._secrets.nonce):
            raise WrongSender("the server shows an introduction of ours that we did not make")
        for member in roster.members:
            self._verify(member)
        if len({m.x25519 for m in roster.members}) != len(roster.members):
            raise WrongSender("two clients show the same X25519 key")
        total = sum(m.rows for m in roster.members)
        if not self.federation.k <= total <= self.federation.max_rows:
            raise Malformed(f"the roster has {total} rows in all, beyond what federation.toml allows")
        self._meet(roster.members)

    def _meet(self, members: tuple[events.Introduction, ...]) -> None:
        others = ((j, member) for j, member in enumerate(members) if j != self.index)
        self._pairwise = {j: masks.agree(self._secrets.x25519, member.x25519) for j, member in others}
        self.members = members
        self.session = events.session(self.federation.digest(), members)
        self._edges = np.cumsum([0, *(m.rows for m in members)]).tolist()
        self._coded = CodedRows(self.plan.field, self._edges[-1], self.plan.length)
        for j, member in enumerate(members):
            if j != self.index:
                self._incoming[j] = _Incoming(np.empty(self.plan.share_layout(member.rows).words, np.uint64))
        self.phase = Phase.SHARING

    # --- shares --------------------------------------------------------------------------------------------------------

    def outgoing(self, receiver: str) -> Words:
        """Our shares for another client (heavy)."""
        return self.share_set.shares([self.federation.roster.index(receiver)])[0]

    def asked(self, receiver: str, session: bytes, share_set: bytes) -> None:
        """Whether another client may fetch our shares for it once more; raises if not."""
        self._check_owner(receiver, session, self.members[self._peer(receiver)].share_set if self.members else b"")
        if share_set != self.share_set.id:
            raise OutOfTurn("these shares belong to another job")

    def keep_own(self) -> None:
        """Our own share of our own rows (heavy)."""
        if self.index not in self._held:
            self._store(self.index, self.share_set.shares([self.index])[0])

    def progress(self, owner: str, session: bytes, share_set: bytes) -> int:
        """How many words of an owner's share set have arrived."""
        j = self._check_owner(owner, session, share_set)
        return self.due(owner) if j in self._held else self._incoming[j].received

    def receive(self, owner: str, session: bytes, share_set: bytes, chunk: events.Chunk) -> int:
        """A piece of an owner's shares for us, in order; returns how many words have arrived."""
        j = self._check_owner(owner, session, share_set)
        layout = self.plan.share_layout(self.members[j].rows)
        if chunk.total != layout.words:
            raise Malformed(f"{layout.words} words of shares are due from {owner}, not {chunk.total}")
        if j in self._held:
            return layout.words
        incoming = self._incoming[j]
        if chunk.offset != incoming.received:
            raise Malformed(f"words from offset {incoming.received} are due, not from {chunk.offset}")
        layout.check(chunk.words, chunk.offset)
        incoming.words[chunk.offset : chunk.offset + len(chunk.words)] = chunk.words
        incoming.received += len(chunk.words)
        return incoming.received

    def complete(self, owner: str) -> Words | None:
        """An owner's shares that are complete and not settled yet: to be put on disk, then settled."""
        incoming = self._incoming.get(self._peer(owner))
        return incoming.words if incoming is not None and incoming.received == len(incoming.words) else None

    def settle(self, owner: str, words: Words) -> None:
        """Put an owner's whole shares where the rounds use them (heavy); safe to call again. Checks every residue."""
        j = self.federation.roster.index(owner)
        if j not in self._held:
            self._store(j, words)

    def due(self, owner: str) -> int:
        """How many words an owner's shares for us have."""
        return self.plan.share_layout(self.members[self.federation.roster.index(owner)].rows).words

    def _check_owner(self, owner: str, session: bytes, share_set: bytes) -> int:
        j = self._peer(owner)
        if self.phase is Phase.JOINING:
            raise OutOfTurn("the roster is not known here yet; try again in a moment")
        if session != self.session or share_set != self.members[j].share_set:
            raise OutOfTurn("these shares belong to another job")
        return j

    def _peer(self, name: str) -> int:
        if name not in self.federation.roster or name == self.name:
            raise WrongSender("only the other clients of the roster exchange shares")
        return self.federation.roster.index(name)

    def _store(self, owner: int, words: Words) -> None:
        self._coded.put(slice(self._edges[owner], self._edges[owner + 1]), words)
        self._held.add(owner)
        self._incoming.pop(owner, None)

    def missing(self) -> tuple[str, ...]:
        """Whose shares we lack."""
        return tuple(m.name for j, m in enumerate(self.members) if j not in self._held)

    def holdings(self) -> bytes:
        """What to report once nothing is missing (heavy: prepares the rounds)."""
        if self.phase is not Phase.SHARING or self.missing():
            raise OutOfTurn("shares are still missing")
        self._coded.finish()
        self._clusters = CodedClusters(self._coded, self.federation.k)
        self.phase = Phase.ROUNDS
        return events.holdings(self.session, self.members)

    # --- rounds --------------------------------------------------------------------------------------------------------

    def _assignment(self, piece: events.Assignment) -> None:
        if self.phase is Phase.JOINING:
            raise OutOfTurn("an assignment comes before the roster")
        whole = (piece.version, piece.base, piece.total)
        expected = len(self._pending) if piece.offset else 0
        if expected and self._pending_of != whole:
            raise Malformed("the pieces of an assignment do not belong together")
        if piece.offset != expected or piece.total > assignments.largest(self._edges[-1], self.federation.k):
            raise Malformed("a piece of an assignment is out of order or too long")
        if not expected:
            self._pending, self._pending_of = bytearray(), whole
        self._pending += piece.data
        if len(self._pending) < piece.total:
            return
        data, self._pending = bytes(self._pending), bytearray()
        base = self._versions.get(piece.base)
        labels = assignments.decode(data, self._edges[-1], self.federation.k, base)
        self._versions = {piece.version: labels}

    def _labels(self, version: int) -> Labels:
        if version not in self._versions:
            raise OutOfTurn("the server refers to an assignment it did not send")
        return self._versions[version]

    def _request(self, request: events.RoundRequest) -> events.RoundRequest | None:
        labels = self._labels(request.number)
        if (request.number, request.attempt) < self._answered:
            raise OutOfTurn("the server goes back to an earlier round")
        try:
            self.plan.code.check_responders(request.responders)
        except InvalidInput as error:
            raise WrongSender(f"the server names a wrong responder set: {error}") from None
        if tuple(sorted(request.responders)) != request.responders:
            raise Malformed("responders must be in roster order")
        if masks.assignment_digest(labels.astype("<i4").tobytes()) != request.assignment_digest:
            raise Malformed("the assignment is not the one the request speaks of")
        if self.index not in request.responders:
            return None
        if self.phase is not Phase.ROUNDS:
            raise OutOfTurn("distances are wanted before all shares are here")
        return request

    def answer(self, request: events.RoundRequest) -> Words:
        """The upload for a request that `handle` returned (heavy). The same request gives the same bytes."""
        labels = self._labels(request.number)
        self._answered = (request.number, request.attempt)
        self._clusters.assign(labels)
        try:
            shape = self.plan.shape(len(labels), self._clusters.sizes, request.columns)
        except InvalidInput as error:
            raise Malformed(f"the server asks for impossible columns: {error}") from None
        if not self.plan.masked:
            return self._clusters.upload(shape)
        weights = self.plan.code.weights(request.responders)[:, request.responders.index(self.index)]
        context = masks.Context(
            self.session,
            self.plan.digest,
            request.number,
            request.attempt,
            request.responders,
            request.assignment_digest,
            shape.columns,
        )
        keys = masks.signed_keys(self.index, self.plan.wishes.privacy, context, self._pairwise)
        return self._clusters.upload(shape, weights, keys)

    def _finish(self, event: events.Finished) -> None:
        labels = self._labels(event.version)
        if (labels < 0).any():
            raise Malformed("the final assignment leaves rows without a cluster")
        self.finished, self.phase = event, Phase.FINISHED

    def own_labels(self) -> Labels:
        """The clusters of our own rows, in their order."""
        if self.finished is None:
            raise JobFailed("the job is not finished")
        labels = self._labels(self.finished.version)
        return labels[self._edges[self.index] : self._edges[self.index + 1]]
