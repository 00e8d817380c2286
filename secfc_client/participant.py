"""One client's side of a job as a machine: no sockets, threads, files or clocks.

Phases and what moves them:

    JOINING   the roster arrives: everybody's signed introduction is verified, the session follows from them  → AGREEING
    AGREEING  everybody's signature under that session arrives, and everybody's proof that its key is its own
              → SHARING, or with private membership UNION
    UNION     shares of counts, then of tables of IDs are exchanged and summed, until all slots are known
              and all clients have confirmed them to each other                                               → SHARING
    SHARING   shares of every other client arrive, residue by residue checked, ours are delivered             → ROUNDS
    ROUNDS    everybody's coins arrive, our part of the check of all shares is given; then assignments
              arrive, requests are answered with uploads                                                      → FINISHED
    any       the server says that the job has failed                                                         → FAILED

Assignments are taken from SHARING on: a client that comes back to a job that ended without it gets its labels even if
shares it lost cannot be had any more.

What no honest server says is refused with an error; the caller then ends the client.

The client trusts its own federation file and its CA, nothing else: it computes session, plan, weights and masks by itself,
and answers only requests with exactly R distinct responders (with `liars = A`: up to R + 2A), the assignment they claim,
beginning where everybody's coins say, and what `guard` lets pass.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from secfc import assignments, confirming, events, identifiers, keys, masks, start, summing, verification
from secfc.coins import Coins
from secfc.config import AUDIENCES, Federation
from secfc.distances import CodedClusters, Labels
from secfc.errors import InvalidInput, JobFailed, Malformed, OutOfTurn, WrongSender
from secfc.events import Phase
from secfc.field import Words
from secfc.identifiers import Ids
from secfc.opening import Gathering
from secfc.plan import Plan
from secfc.sharing import CodedRows, ShareSet
from secfc_client.alignment import Alignment
from secfc_client.confirming import Confirming
from secfc_client.guard import Guard
from secfc_client.past import Past
from secfc_client.stages import Stage

__all__ = ["Participant", "Phase", "Secrets"]


@dataclass(frozen=True)
class Secrets:
    """What makes a client itself in one job, and must outlive its process."""

    seed: bytes
    x25519: X25519PrivateKey
    nonce: bytes
    coin: bytes
    revealed: bytes = b""  # the session in which an earlier process revealed the coin

    def __repr__(self) -> str:
        return "Secrets(…)"


class Participant:
    """See the module's docstring."""

    def __init__(
        self,
        federation: Federation,
        plan: Plan,
        name: str,
        rows: npt.NDArray[np.int64],
        secrets: Secrets,
        verify: Callable[[events.Signed], None],
        ids: Callable[[bytes], Ids] | None = None,
        *,
        guard: Guard | None = None,
        columns: Sequence[str] = (),
        past: Past | None = None,
    ) -> None:
        """`rows` are quantised; `verify` raises unless a statement is signed by the client it names; `ids(session)`
        names our rows where membership is private (default: fresh IDs); `columns` are the names of our features in their
        order (default: the federation file's). `past`: what an earlier process had in `past`."""
        self.past = past or Past()  # to be on disk before anything that follows from it leaves
        self.guard = guard or Guard(federation, plan)
        self.federation, self.plan, self.name = federation, plan, name
        self.index = federation.roster.index(name)
        self.phase = Phase.JOINING
        self.share_set = ShareSet(plan.code, rows, secrets.seed)
        self.finished: events.Finished | None = None
        self.failure = ""
        self.failed_for_now = False  # the same commands, started again, may go on with the failed job
        self.session = b""
        self.members: tuple[events.Introduction, ...] = ()
        self._secrets, self._verify = secrets, verify
        self._ids_of = ids or self._fresh_ids
        self._rows = rows
        self._features = events.feature_digest(columns or federation.feature_names or ())
        self._pairwise: dict[int, bytes] = {}
        self._stage: Stage | None = None
        self._alignment: Alignment | None = None
        self._confirming: Confirming | None = None  # from the finished union on
        self._pending = bytearray()  # of the assignment that is arriving
        self._pending_of = (0, 0, 0)  # its version, base and total
        self._versions: dict[int, Labels] = {}
        self._centers: Gathering | None = None
        self._tossed: Coins | None = None  # what everybody's coins make together

    @property
    def rows(self) -> int:
        """Our own rows."""
        return self.share_set.layout.rows

    @property
    def used(self) -> bool:
        """Whether our secrets have served: a coin was shown with them, a request was seen, or the session is dead."""
        return self.guard.began or bool(self._secrets.revealed) or self.past.dead

    def introduction(self, certificate: bytes, sign: Callable[[bytes], bytes]) -> events.Introduction:
        """Our signed statement. With private membership nobody learns how many rows we bring."""
        public = self._secrets.x25519.public_key().public_bytes_raw()
        told = 0 if self.plan.private else self.rows
        bare = events.Introduction(
            self.name,
            told,
            self.share_set.id,
            public,
            self._secrets.nonce,
            self._commitment,
            certificate,
            keeps=self.keeps,
            features=self._features,
        )
        return replace(bare, signature=sign(bare.statement(self.federation.digest())))

    @property
    def keeps(self) -> bool:
        """Whether our shares may serve another job, here and wherever they are held. Slots are another order of rows in every
        job, so with private membership they cannot."""
        return self.guard.policy.keep_shares and not self.plan.private

    def may_keep(self, owner: str) -> bool:
        """Whether an owner's shares may outlive the job here: it and we must want that."""
        return self.keeps and self.members[self.federation.roster.index(owner)].keeps

    @property
    def _commitment(self) -> bytes:
        return start.commitment(self.name, self._secrets.coin)

    # --- what the server says ------------------------------------------------------------------------------------------

    def handle(self, event: events.Event) -> events.RoundRequest | None:
        """Take in an event; a request is returned if it is for us to answer (with `answer`)."""
        if self.phase in (Phase.FINISHED, Phase.FAILED):
            return None
        match event:
            case events.Roster():
                self._roster(event)
            case events.Agreements():
                self._agreements(event)
            case events.Opened():
                self._opened(event)
            case events.Reveals():
                self._reveals(event)
            case events.Assignment():
                self._assignment(event)
            case events.RoundRequest():
                return self._request(event)
            case events.Finished():
                self._finish(event)
            case events.Failed():
                self.phase, self.failure, self.failed_for_now = Phase.FAILED, event.reason, event.again
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
        ours = (self.share_set.id, public, self._secrets.nonce, self._commitment, self.keeps, self._features)
        if (mine.share_set, mine.x25519, mine.nonce, mine.commitment, mine.keeps, mine.features) != ours:
            raise WrongSender("the server shows an introduction of ours that we did not make")
        for member in roster.members:
            self._verify(member)
        if len({m.x25519 for m in roster.members}) != len(roster.members):
            raise WrongSender("two clients show the same X25519 key")
        if others := [member.name for member in roster.members if member.features != self._features]:
            raise Malformed(events.other_features(self.name, others))
        total = sum(m.rows for m in roster.members)
        least = 0 if self.plan.private else self.federation.k
        most = 0 if self.plan.private else self.federation.max_rows
        if not least <= total <= most:
            raise Malformed(f"the roster has {total} rows in all, beyond what federation.toml allows")
        if self._secrets.revealed not in (b"", events.session(self.federation.digest(), roster.members)):
            raise WrongSender(
                "our coin was revealed in another job, so this one's start would not be fair; "
                "begin a new job (secfc-server --new), and start this client once with --new"
            )
        session = events.session(self.federation.digest(), roster.members)
        if self.past.of(session).dead:
            raise JobFailed(f"this job was broken off before and is not taken up again: {confirming.DISPUTED}")
        parties = [(member.name, member.x25519) for member in roster.members]
        self._pairwise = keys.pair_keys(self._secrets.x25519, session, parties, self.index)
        self.members, self.session, self.phase = roster.members, session, Phase.AGREEING

    def agreement(self, sign: Callable[[bytes], bytes]) -> events.Agreed:
        """Our signature under the session that the roster makes, and our proofs to all others; to be told again whenever the
        roster is."""
        if self.phase is Phase.JOINING:
            raise OutOfTurn("there is no session to agree to before the roster is known")
        mine = events.Agreement(self.name, self.session, self.members[self.index].certificate)
        proofs = keys.proofs(self._pairwise, self.session, self.federation.roster, self.index)
        return events.Agreed(sign(mine.statement(self.federation.digest())), proofs)

    def _agreements(self, event: events.Agreements) -> None:
        if self.phase is not Phase.AGREEING:
            if self.phase is Phase.JOINING:
                raise OutOfTurn("the server shows signatures before the roster")
            return  # told again after a lost connection
        if not len(event.signatures) == len(event.proofs) == len(self.members):
            raise Malformed("the session must be signed by every client of the roster, with a proof by each")
        for member, signature in zip(self.members, event.signatures, strict=True):
            self._verify(events.Agreement(member.name, self.session, member.certificate, signature))
        keys.check_proofs(event.proofs, self._pairwise, self.session, self.federation.roster, self.index)
        self._meet(self.members)

    def _meet(self, members: tuple[events.Introduction, ...]) -> None:
        self.past = self.past.of(self.session)
        if self.plan.private:
            self._align(members)
            return
        edges = np.cumsum([0, *(m.rows for m in members)]).tolist()
        self._own = np.arange(edges[self.index], edges[self.index + 1])
        self._coded = CodedRows(self.plan.field, edges[-1], self.plan.length)
        layouts = [self.plan.share_layout(m.rows) for m in members]
        ids = [m.share_set for m in members]

        def put(owner: int, words: Words) -> None:
            self._coded.put(slice(edges[owner], edges[owner + 1]), words)

        self._stage = Stage(self.index, self.federation.roster, ids, layouts, self.share_set, put)
        self._watch(events.share_sets(members))
        self.phase = Phase.SHARING

    def _align(self, members: tuple[events.Introduction, ...]) -> None:
        self.ids = self._ids_of(self.session)
        share_sets = [m.share_set for m in members]
        names = self.federation.roster
        seed = self._secrets.seed
        known = [bytes.fromhex(digest) for digest in self.past.opened]
        self._alignment = Alignment(self.plan, self.index, names, share_sets, self.session, self.ids, seed, known)
        self._stage = self._alignment.stage
        self.phase = Phase.UNION

    def _watch(self, share_sets: bytes) -> None:
        key = hashlib.sha256(b"secfc/v1/leakage-key|" + self._secrets.seed).digest()
        self.guard.begin(self.session, share_sets, self._coded.rows, key)

    def _fresh_ids(self, session: bytes) -> Ids:
        return identifiers.fresh(self.rows, summing.noise_seed(self._secrets.seed, b"ids", session))

    def _opened(self, piece: events.Opened) -> None:
        if self._alignment is None:
            raise OutOfTurn("the server opens a sum that nobody shared")
        if not self._alignment.take(piece):
            return
        opened = tuple(digest.hex() for digest in self._alignment.opened)
        self.past = replace(self.past, opened=max(opened, self.past.opened, key=len))
        self._stage = self._alignment.stage
        if self._alignment.finished:
            self._confirming = self._confirmation(self._alignment)
            if self.past.confirmed == self._alignment.digest.hex():  # by an earlier process
                self._confirming.opened = True  # whoever restarts asks us once more
                self._begin_sharing(self._alignment)

    def _begin_sharing(self, alignment: Alignment) -> None:
        self._own = alignment.slots
        self._coded = CodedRows(self.plan.field, alignment.rows, self.plan.length)
        self._stage = alignment.rows_stage(self._rows, self._coded)
        self._watch(events.holdings(self.session, self._stage.ids))
        self.phase = Phase.SHARING

    # --- confirming the union --------------------------------------------------------------------------------------------

    def _confirmation(self, known: Alignment) -> Confirming:
        digest, rows = known.digest, len(self.ids)
        args = (self.session, digest, rows, known.complete, self._secrets.seed, self._pairwise)
        words = confirming.vector(self.plan, self.index, *args)
        commitment = confirming.commitment(self.index, self.session, digest, words)
        whole = events.Confirmed(self.session, digest, commitment, words)
        return Confirming(self.index, len(self.members), whole, known.rows)

    @property
    def confirms(self) -> bool:
        """Whether the union is known here and waits for everybody's word."""
        return self.phase is Phase.UNION and self._confirming is not None

    @property
    def confirmation(self) -> events.Confirmed:
        """What we tell every other client about the union, and never the server: our commitment, once opened all of it."""
        if self._confirming is None:
            raise OutOfTurn("the list of row IDs is not known here yet; try again in a moment")
        return self._confirming.mine

    def confirm(self, sender: str, given: events.Confirmed) -> events.Confirmed:
        """What another client tells us about the union; returns what we tell it."""
        j, mine = self.peer(sender), self.confirmation
        if self._confirming is not None and self.phase is Phase.UNION:
            self._confirming.take(j, given)
        return mine

    def unconfirmed(self) -> tuple[str, ...]:
        """Who has not told us about the union yet: its commitment, and once ours is opened all of it."""
        missing = self._confirming.missing() if self.confirms and self._confirming else ()
        return tuple(self.federation.roster[j] for j in missing)

    def note_commitments(self) -> None:
        """Everybody's commitment is here: note them in `past`. Once an earlier process of ours has opened its own, others may
        have seen it, so the commitments must be those that it had."""
        if self._confirming is None:
            raise OutOfTurn("there is no union to be confirmed")
        found = self._confirming.commitments()
        if self.past.committed not in ("", found):
            self._break_off()
        self.past = replace(self.past, committed=found)

    def open_confirmation(self) -> None:
        """From now on others may see our numbers. Pre-condition: the noted commitments are on disk."""
        if self._confirming is None or self.past.committed != self._confirming.commitments():
            raise OutOfTurn("commitments are noted before ours is opened")
        self._confirming.opened = True

    def _break_off(self) -> NoReturn:
        self.past = replace(self.past, dead=True)
        raise JobFailed(confirming.DISPUTED)

    def conclude_union(self) -> None:
        """All have confirmed: go on to the rows, or break off with the words that everybody says."""
        if not self.confirms or self._confirming is None or self._alignment is None:
            raise OutOfTurn("there is no union to be concluded")
        if not (self._confirming.agreed() and self._alignment.complete):
            self._break_off()
        self.past = replace(self.past, confirmed=self._confirming.mine.digest.hex())
        self._begin_sharing(self._alignment)

    # --- shares --------------------------------------------------------------------------------------------------------

    @property
    def stage(self) -> Stage:
        """The exchange of shares that is under way; at the end, the last one."""
        if self._stage is None:
            raise OutOfTurn("the session is not agreed on here yet; try again in a moment")
        return self._stage

    def outgoing(self, receiver: str) -> Words:
        """Our shares for another client (heavy)."""
        return self.stage.outgoing(self.federation.roster.index(receiver))

    def asked(self, receiver: str, session: bytes, share_set: bytes) -> None:
        """Whether another client may fetch our shares for it once more; raises if not."""
        self.peer(receiver)
        if session != self.session or share_set != self.stage.id:
            raise OutOfTurn("these shares belong to another job, or to another step of it")

    def keep_own(self) -> None:
        """Our own share of our own rows (heavy)."""
        self.stage.keep_own()

    def progress(self, owner: str, session: bytes, share_set: bytes) -> int:
        """How many words of an owner's share set have arrived."""
        return self.stage.progress(self._check_owner(owner, session, share_set))

    def receive(self, owner: str, session: bytes, share_set: bytes, chunk: events.Chunk) -> int:
        """A piece of an owner's shares for us, in order; returns how many words have arrived."""
        return self.stage.receive(self._check_owner(owner, session, share_set), chunk)

    def complete(self, owner: str) -> Words | None:
        """An owner's shares that are complete and not settled yet: to be put on disk, then settled."""
        return self.stage.complete(self.peer(owner))

    def settle(self, owner: str, words: Words) -> None:
        """Put an owner's whole shares where they are used (heavy, one at a time); safe to call again."""
        self.stage.settle(self.peer(owner), words)

    def share_set_of(self, owner: str) -> bytes:
        """Names an owner's shares."""
        return self.members[self.federation.roster.index(owner)].share_set

    def due(self, owner: str) -> int:
        """How many words an owner's shares for us have."""
        return self.stage.due(self.peer(owner))

    def share_id(self, owner: str) -> bytes:
        """Names what an owner shares now."""
        return self.stage.ids[self.federation.roster.index(owner)]

    def _check_owner(self, owner: str, session: bytes, share_set: bytes) -> int:
        j = self.peer(owner)
        if share_set != self.stage.ids[j] or session != self.session:
            raise OutOfTurn("these shares belong to another job, or to another step of it")
        return j

    def peer(self, name: str) -> int:
        """The place of another client in the roster."""
        if name not in self.federation.roster or name == self.name:
            raise WrongSender("only the other clients of the roster exchange shares")
        return self.federation.roster.index(name)

    def missing(self) -> tuple[str, ...]:
        """Whose shares we lack."""
        return tuple(self.federation.roster[j] for j in self.stage.missing()) if self._stage else ()

    def contribution(self) -> tuple[bytes, Words]:
        """While IDs are aligned, once nothing is missing: our share of the sum over all clients, and its name (heavy)."""
        if self.phase is not Phase.UNION or self._alignment is None or self._alignment.finished:
            raise OutOfTurn("no sum is due")
        return self._alignment.context, self._alignment.contribution()

    def holdings(self) -> bytes:
        """What to report once nothing is missing (heavy: prepares the rounds)."""
        if self.phase is not Phase.SHARING or self.missing():
            raise OutOfTurn("shares are still missing")
        self._coded.finish()
        self._clusters = CodedClusters(self._coded, self.federation.k)
        self.phase = Phase.ROUNDS
        return events.holdings(self.session, self.stage.ids)

    def coin(self) -> bytes:
        """What to reveal with the holdings: by then everybody has delivered shares of this session, so all commitments
        are fixed."""
        if self.phase in (Phase.JOINING, Phase.AGREEING, Phase.SHARING):
            raise OutOfTurn("a coin is revealed once every client's shares are here, not before")
        return self._secrets.coin

    @property
    def verifiable(self) -> bool:
        """Whether our part of the check of all shares can be given: we hold them, and the coins are known."""
        return self.phase is Phase.ROUNDS and self._tossed is not None and verification.checks(self.plan.code) > 0

    def verification(self) -> tuple[bytes, Words]:
        """Our part of the check that everybody's shares fit together, and its name (heavy). The same shares give the same
        bytes, and in one session no others are given, since they would have the same masks."""
        if not self.verifiable or self._tossed is None:
            raise OutOfTurn("shares are checked once all are here and everybody's coin is known")
        args = (self.session, self._tossed)
        words = verification.contribution(self.plan, self.index, self._coded, *args, self._pairwise)
        digest = hashlib.sha256(words.astype("<u8").tobytes()).hexdigest()
        if self.past.verified not in ("", digest):
            raise JobFailed(
                "the shares kept here are not those that were checked in this job: the state folder or this machine's memory"
                " is damaged; start this client again, and if it says the same, a new job (secfc-server --new)"
            )
        self.past = replace(self.past, verified=digest)
        return verification.purpose(self.plan, *args), words

    # --- rounds --------------------------------------------------------------------------------------------------------

    def _reveals(self, event: events.Reveals) -> None:
        if self.phase in (Phase.JOINING, Phase.AGREEING):
            raise OutOfTurn("the server reveals coins that nobody was asked for")
        coins = start.tossed(self.session, self.members, event.coins)
        if event.coins[self.index] != self._secrets.coin:
            raise WrongSender("the server shows a coin of ours that we did not toss")
        self._tossed = coins

    def _check_start(self, version: int, labels: Labels) -> None:
        if self._tossed is None:
            raise WrongSender("the server skips the start's coins: it must show everybody's before it assigns rows")
        coins = self._tossed if self.federation.seed is None else start.agreed(self.federation.seed)
        start.check_assignment(self.federation.seeding, coins, self.federation.k, version, labels)

    def _assignment(self, piece: events.Assignment) -> None:
        if self.phase not in (Phase.SHARING, Phase.ROUNDS):
            raise OutOfTurn("an assignment comes before the rows are known")
        whole = (piece.version, piece.base, piece.total)
        expected = len(self._pending) if piece.offset else 0
        if expected and self._pending_of != whole:
            raise Malformed("the pieces of an assignment do not belong together")
        if piece.offset != expected or piece.total > assignments.largest(self._coded.rows, self.federation.k):
            raise Malformed("a piece of an assignment is out of order or too long")
        if not expected:
            self._pending, self._pending_of = bytearray(), whole
        self._pending += piece.data
        if len(self._pending) < piece.total:
            return
        data, self._pending = bytes(self._pending), bytearray()
        base = self._versions.get(piece.base)
        labels = assignments.decode(data, self._coded.rows, self.federation.k, base)
        self._check_start(piece.version, labels)
        self._versions = {piece.version: labels}

    def _labels(self, version: int) -> Labels:
        if version not in self._versions:
            raise OutOfTurn("the server refers to an assignment it did not send")
        return self._versions[version]

    def _request(self, request: events.RoundRequest) -> events.RoundRequest | None:
        labels = self._labels(request.number)
        try:
            self.plan.check_responders(request.responders)
        except InvalidInput as error:
            raise WrongSender(f"the server names a wrong responder set: {error}") from None
        if tuple(sorted(request.responders)) != request.responders:
            raise Malformed("responders must be in roster order")
        if masks.assignment_digest(labels.astype("<i4").tobytes()) != request.assignment_digest:
            raise Malformed("the assignment is not the one the request speaks of")
        if request.past and (request.number != 1 or self.guard.began):
            if request.number != 1:
                raise Malformed("of requests that are over, only the first is shown")
            return None
        asked = self.index in request.responders and not request.past
        if asked and self.phase is not Phase.ROUNDS:
            raise OutOfTurn("distances are wanted before all shares are here")
        self.guard.admit(request, labels)
        return request if asked else None

    def answer(self, request: events.RoundRequest) -> Words:
        """The upload for a request that `handle` returned (heavy). The same request gives the same bytes."""
        labels = self._labels(request.number)
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
        self.guard.finish(event.version)
        self.finished, self.phase = event, Phase.FINISHED

    # --- after the end -------------------------------------------------------------------------------------------------

    def centers(self) -> Gathering:
        """Who consents to opening the centres, and with what; only once the final assignment is known."""
        if self.federation.centers == AUDIENCES[0]:
            raise OutOfTurn("the centres of this federation are opened to nobody")
        if self.finished is None:
            raise OutOfTurn("the job is not finished here yet; try again in a moment")
        if self._centers is None:
            labels = self._labels(self.finished.version)
            self._centers = Gathering(self.federation, self.plan, self.session, labels, self.members)
        return self._centers

    def take_centers(self, sender: str, part: events.CentersPart) -> None:
        """A piece of another client's answer to opening the centres."""
        self.centers().take(self.peer(sender), part)

    def final_clusters(self) -> CodedClusters:
        """Our coded sums of the final clusters (heavy)."""
        if self.finished is None:
            raise JobFailed("the job is not finished")
        self._clusters.assign(self._labels(self.finished.version))
        return self._clusters

    def final_digest(self) -> bytes:
        """Names the final assignment of all rows."""
        if self.finished is None:
            raise JobFailed("the job is not finished")
        return masks.assignment_digest(self._labels(self.finished.version).astype("<i4").tobytes())

    def own_labels(self) -> Labels:
        """The clusters of our own rows, in their order."""
        if self.finished is None:
            raise JobFailed("the job is not finished")
        labels = self._labels(self.finished.version)
        return labels[self._own]
