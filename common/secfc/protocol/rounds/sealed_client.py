"""A client's half of sealed rounds: it uploads as in masked rounds; the leader's upload carries one more mask, and the
members of the committee compare (docs/sealed.md)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from secfc.coding.prg import KEY_BYTES
from secfc.errors import InvalidInput, Malformed, OutOfTurn, Refused
from secfc.kmeans.candidates import draw_labels
from secfc.kmeans.coins import Coins
from secfc.kmeans.distances import CodedClusters, Labels
from secfc.kmeans.seeding import choose, points_of
from secfc.privacy import masks
from secfc.privacy.sealed import cost, epochs, member
from secfc.privacy.sealed.context import Context, Purse, leader_pad
from secfc.privacy.sealed.epochs import Epoch
from secfc.privacy.sealed.member import Ledger, MemberHalf
from secfc.privacy.sealed.messages import OF_THE_SERVER, Said
from secfc.privacy.sealed.questions import Asked, Inertia, Lloyd, Seed
from secfc.protocol.messages import RoundRequest
from secfc.protocol.parcels import Body, Whole
from secfc.protocol.rounds import sealing
from secfc.protocol.rounds.kinds import SERVER, ClientExchange, Holding, Outgoing
from secfc.protocol.rounds.sealing import CHECK, DONE, KEY, SEED, Detail
from secfc.protocol.rounds.unread import Unread
from secfc.protocol.rounds.uploads import body_of
from secfc.protocol.transfer import Gathered, Here, Sink

MOST_OPENINGS = 16  # committees that a client helps to open the inertia: each has a blur of its own


@dataclass
class _Membership:
    """What a member knows in one epoch; in memory only."""

    epoch: Epoch
    own: bytes = field(repr=False)  # our part of the key
    shares: dict[int, bytes] = field(repr=False)
    seed: bytes = field(default=b"", repr=False)
    key: bytes = field(default=b"", repr=False)
    kept: member.Kept = field(default_factory=member.Kept, repr=False)
    following: tuple[int, member.Kept] | None = field(default=None, repr=False)  # after the request of that number
    ledger: Ledger = field(default_factory=Ledger, repr=False)

    def settle(self, number: int) -> None:
        """A request of this number begins: the one before it was answered, if it had a lower one."""
        if self.following is not None and self.following[0] < number:
            self.kept = self.following[1]
            self.following = None


class SealedClient:
    """See the module's docstring."""

    def __init__(self, holding: Holding) -> None:
        self.holding = holding
        plan = holding.plan
        self.terms = plan.sealed(holding.coded.rows)
        session, *noted = holding.noted.split(b" ")
        known = [int(one) for one in noted] if session == holding.session.hex().encode() else []
        self._last, self._opening, self._openings = (*known, 0, 0, 0)[:3]  # as `note` says
        self.lock = threading.Lock()  # one attempt at a time is at work, on whatever thread
        self.current: _Answering | None = None  # the attempt that counts: what others still compute is dropped
        self.seeding: tuple[int, Labels] | None = (
            None  # what the request of that number must go on from, as we were told
        )
        self._membership: _Membership | None = None
        self._clusters = CodedClusters(holding.coded, plan.wishes.clusters, holding.frozen)
        self._rows = CodedClusters(holding.coded, plan.slots)  # of single rows, while seeding

    def note(self, request: RoundRequest) -> bytes:
        """What must be on disk before a request is answered: the last epoch that we were a member in, whose keys serve no
        other process; the epoch in which we last helped to open the inertia, and in how many we did. Raises Refused if that
        would be too many: blurs that differ tell what each of them hides."""
        detail = Detail.from_bytes(request.detail)
        if detail.opens_inertia and detail.epoch != self._opening:
            if self._openings == MOST_OPENINGS:
                times = f"the inertia was asked for in {MOST_OPENINGS} epochs"
                raise Refused(f"{times}, and each shows it under another blur; start a new job")
            self._opening, self._openings = detail.epoch, self._openings + 1
        compares = self.holding.index in detail.committee
        if not compares and not detail.opens_inertia:
            return b""
        last = max(detail.epoch, self._last) if compares else self._last
        return b"%s %d %d %d" % (self.holding.session.hex().encode(), last, self._opening, self._openings)

    def answer(self, request: RoundRequest, labels: Labels) -> ClientExchange:
        detail, holding = Detail.from_bytes(request.detail), self.holding
        epoch = Epoch(holding.session, holding.plan.digest, detail.epoch, detail.committee)
        sealing.committee_of(holding.plan, request)
        questions = detail.questions(labels, request.columns, self.terms, holding.plan.candidates)
        self._check_step(request.number, questions[-1])
        self._check_draws(request.number, labels, questions[-1])
        membership = self._join(epoch) if holding.index in detail.committee else None
        silent = holding.index in detail.committee and membership is None
        self.current = _Answering(self, request, labels, detail, [] if silent else questions, membership)
        return self.current

    def _check_step(self, number: int, due: Asked) -> None:
        """Raise Malformed unless the request of that number asks such a thing: assignments are counted by numbers, and those
        of the seeding give none before the last."""
        wishes = self.holding.plan.wishes
        if self.holding.coins() is None:
            return
        seeds = 0 if wishes.seeding == "random" else wishes.clusters
        separates = wishes.seeding == "separation" and number == seeds + 1
        if isinstance(due, Seed) != (number <= seeds) or (isinstance(due, Lloyd) and due.separate) != separates:
            raise Malformed(f"the server asks in request {number} what is not due there")

    def _check_draws(self, number: int, labels: Labels, due: Asked) -> None:
        """Raise Malformed unless points are those of everybody's coins, and seeds what the committee was told of the request
        before: a server that draws with other points learns more of D² than where one draw falls."""
        coins = self.holding.coins()
        if coins is not None and isinstance(due, Seed) and due.points not in ((), self._points(coins, due)):
            raise Malformed("the server draws seeds with other numbers than everybody's coins give")
        if self.seeding is not None and self.seeding[0] == number and (self.seeding[1] != labels).any():
            raise Malformed("the server goes on with other seeds than it told the committee")

    def _points(self, coins: Coins, due: Seed) -> tuple[int, ...]:
        draws = draw_labels(due.number + 1, self.holding.plan.candidates)
        return points_of(coins, draws, self.terms.draw_bits)

    def _join(self, epoch: Epoch) -> _Membership | None:
        """Our place in an epoch; None if an earlier process had it, whose keys are gone: the server begins another."""
        now = self._membership
        if now is not None and now.epoch == epoch:
            return now
        try:
            epoch.check_number(self._last)
        except OutOfTurn:
            return None
        own = epochs.contribution()
        self._last = epoch.number
        self._membership = _Membership(epoch, own, {self.holding.index: own})
        return self._membership

    def upload(self, question: Asked, context: Context, pad: tuple[bytes, int] | None) -> Body:
        """The masked upload for one question (heavy); the leader's with the pad."""
        holding, plan = self.holding, self.holding.plan
        labels = sealing.labels_of(question, self.terms.rows)
        coded = self._rows if isinstance(question, Seed) else self._clusters
        coded.assign(labels)
        try:
            shape = question.shape(self.terms)
        except InvalidInput as error:
            raise Malformed(f"the server asks for impossible columns: {error}") from None
        bound = masks.MaskContext(
            context.session,
            context.plan,
            context.request,
            context.attempt,
            context.responders,
            context.assignment,
            shape.columns,
        )
        keys = masks.signed_keys(holding.index, plan.wishes.privacy, bound, holding.pairs)
        weights = plan.code.weights(context.responders)[:, context.responders.index(holding.index)]
        return body_of(coded, shape, weights, [*keys, pad] if pad is not None else keys)


class _Answering:
    """One attempt at a responder."""

    def __init__(
        self,
        client: SealedClient,
        request: RoundRequest,
        labels: Labels,
        detail: Detail,
        questions: list[Asked],
        membership: _Membership | None,
    ) -> None:
        self._client, self._request, self._labels, self._detail = client, request, labels, detail
        self._questions, self._membership = questions, membership
        holding, rows = client.holding, client.terms.rows
        args = (request.number, request.attempt, request.responders)
        self._contexts = [
            sealing.context_of(holding.plan, holding.session, detail, *args, one, rows) for one in questions
        ]
        self._sinks: dict[tuple[int, bytes], Gathered] = {}
        self._taken: set[tuple[int, bytes]] = set()
        self._unread: dict[int, Unread] = {}  # of the server, by question
        self._early: list[tuple[bytes, bytearray]] = []
        self._half: MemberHalf | None = None
        self._place = 0
        self._begun = self._uploaded = self._checked = self._handed = False
        self._kept = member.Kept()

    # --- what is said ------------------------------------------------------------------------------------------------------

    def begin(self) -> Sequence[Outgoing]:
        """Asked again, nothing: what was said is tried until the server has taken it, and it keeps that for the attempt."""
        with self._client.lock:
            if self._begun or self._client.current is not self:
                return ()
            self._begun, mine = True, self._membership
            out: list[Outgoing] = []
            if mine is not None:
                mine.settle(self._request.number)
                self._kept = mine.kept
                out += [] if self._detail.agreed else self._wrapped(mine)
            return out + self._go_on()

    def _wrapped(self, mine: _Membership) -> list[Outgoing]:
        """Our part of the committee's key, for every other member."""
        me, pairs, epoch = self._client.holding.index, self._client.holding.pairs, mine.epoch
        others = [client for client in epoch.committee if client != me]
        name = KEY + b"%d" % epoch.number
        return [Outgoing(to, name, Whole(epochs.wrap(epoch, pairs[to], me, to, mine.own))) for to in others]

    def _go_on(self) -> list[Outgoing]:
        """All that can be said now."""
        out: list[Outgoing] = []
        mine = self._membership
        if mine is not None and not mine.key and set(mine.shares) == set(mine.epoch.committee):
            mine.key = epochs.committee_key(mine.epoch, mine.shares)
        if mine is not None and mine.key and not self._checked:
            self._checked = True
            out.append(Outgoing(SERVER, CHECK, Whole(epochs.check_value(mine.epoch, mine.key))))
            self._foresee(mine)
        if not self._uploaded and self._questions and (not self._leads() or (mine is not None and mine.key)):
            self._uploaded = True
            out += [self._upload(place) for place in range(len(self._questions))]
        if mine is not None and self._half is not None:
            out += self._compare(mine)
        return out

    def _foresee(self, mine: _Membership) -> None:
        """The server may have its answer before we have begun to compare, if there is nothing to ask us."""
        question, context = (self._questions[0], self._contexts[0]) if self._questions else (None, None)
        if context is not None and isinstance(question, Lloyd | Inertia):
            after = member.kept_after(self._client.terms, question, context, mine.key, mine.kept)
            mine.following = self._request.number, after

    def _leads(self) -> bool:
        return bool(self._contexts) and self._contexts[0].leader == self._client.holding.index

    def _upload(self, place: int) -> Outgoing:
        context, mine = self._contexts[place], self._membership
        pad = None
        if self._leads() and mine is not None:
            pad = leader_pad(Purse(mine.key, context.session), context)
        body = self._client.upload(self._questions[place], context, pad)
        return Outgoing(SERVER, sealing.upload_name(place), body)

    # --- comparing ---------------------------------------------------------------------------------------------------------

    def due(self) -> Callable[[], Sequence[Outgoing]] | None:
        """The next chunk: all members but its last need nothing of the server for their first answer."""
        mine, half = self._membership, self._half
        if mine is None or not (mine.key and mine.seed and self._begun) or self._handed:
            return None
        if self._place == len(self._questions) or (half is not None and not half.room):
            return None
        self._handed = True
        return lambda: self._begin_chunk(mine)

    def _begin_chunk(self, mine: _Membership) -> Sequence[Outgoing]:
        with self._client.lock:
            self._handed = False
            if self._client.current is not self:
                return ()
            out = self._compare(mine)
            if self._half is not None:
                out += self._messages(self._half.work())
            out += self._compare(mine)
            self._settle()
            return out

    def _compare(self, mine: _Membership) -> list[Outgoing]:
        """Go on with what is here."""
        out: list[Outgoing] = []
        while self._place < len(self._questions):
            if self._half is None:
                self._half = self._start(mine)
            out += self._take_early(self._half)
            if not self._half.done:
                return out
            self._note_seeds(self._half)
            self._kept, self._half = self._half.kept, None
            if isinstance(self._questions[self._place], Seed):  # of others the server asks for no more than answers
                out.append(Outgoing(SERVER, DONE + bytes([self._place]), Whole(b"")))
            self._place += 1
            if self._place == len(self._questions):
                mine.following = self._request.number, self._kept
        return out

    def _note_seeds(self, half: MemberHalf) -> None:
        if half.drawn is not None and isinstance(half.question, Seed):
            following = choose(self._labels, half.question.number, *half.drawn)
            self._client.seeding = self._request.number + 1, following

    def _start(self, mine: _Membership) -> MemberHalf:
        place = mine.epoch.committee.index(self._client.holding.index)
        return MemberHalf(
            self._client.terms,
            self._questions[self._place],
            self._contexts[self._place],
            place,
            mine.key,
            mine.seed,
            self._kept,
            mine.ledger,
        )

    def _messages(self, said: Sequence[Said]) -> list[Outgoing]:
        place, bundles = self._place, sealing.bundles([one.message for one in said])
        return [
            Outgoing(SERVER, sealing.message_name(place, some[0]), sealing.bundle_of(place, some)) for some in bundles
        ]

    def _take_early(self, half: MemberHalf) -> list[Outgoing]:
        out: list[Outgoing] = []
        early, self._early = self._early, []
        for name, data in early:
            place, message = sealing.message_of(name, data)
            if place == self._place:
                out += self._messages(half.take(message))
            elif place > self._place:
                self._early.append((name, data))
        return out

    # --- what arrives ------------------------------------------------------------------------------------------------------

    def sink(self, sender: int, name: bytes) -> Sink | None:
        mine = self._membership
        if mine is None:  # a member whose keys are gone with an earlier process: the server has yet to notice
            return Here() if sender == SERVER and self._client.holding.index in self._detail.committee else None
        if sender != SERVER and (sender, name) in self._taken:
            return Here()
        if sender == SERVER and name != SEED:
            return self._dealt(name)
        if sender == SERVER:
            most = KEY_BYTES
        elif sender in mine.epoch.committee and name == KEY + b"%d" % mine.epoch.number:
            most = epochs.WRAPPED_BYTES
        else:
            return None
        return self._sinks.setdefault((sender, name), Gathered(most))

    def _dealt(self, name: bytes) -> Sink:
        """Where a message of the server goes. Raises Malformed for one that it never sends."""
        place, message = sealing.message_of(name, b"", OF_THE_SERVER)
        if place >= len(self._questions):
            raise Malformed(f"the server deals for question {place + 1} of {len(self._questions)}")
        again = (SERVER, name) in self._taken
        if place < self._place and not again:
            return Here()  # nobody will read it
        if place not in self._unread:
            self._unread[place] = Unread(cost.most_dealt(self._client.terms, self._questions[place]), "the server")
        self._unread[place].check_chunk(message.chunk)
        return self._unread[place].sink(name, again)

    def take(self, sender: int, name: bytes) -> Sequence[Outgoing]:
        with self._client.lock:
            mine, data = self._membership, self._popped(sender, name)
            if mine is None or data is None or self._client.current is not self:
                return ()
            again = (sender, name) in self._taken
            self._taken.add((sender, name))
            if sender != SERVER:
                me, pair = self._client.holding.index, self._client.holding.pairs[sender]
                mine.shares.setdefault(sender, epochs.unwrap(mine.epoch, pair, sender, me, bytes(data)))
            elif name == SEED:
                if len(data) != KEY_BYTES:
                    raise Malformed(f"the server shares a seed of {KEY_BYTES} bytes with a member, not {len(data)}")
                mine.seed = mine.seed or bytes(data)
                _same(mine.seed, data)
            elif again:
                self._compare_again(mine, name, data)
            else:
                self._early.append((name, data))
            out = self._go_on() if self._begun else []
            self._settle()
            return out

    def _popped(self, sender: int, name: bytes) -> bytearray | None:
        if sender == SERVER and name != SEED:
            return self._unread[sealing.message_of(name, b"")[0]].pop(name)
        found = self._sinks.pop((sender, name), None)
        return None if found is None else found.taken()

    def _settle(self) -> None:
        """Count what was read."""
        for place, box in list(self._unread.items()):
            waits = sum(len(data) for name, data in self._early if sealing.message_of(name, b"")[0] == place)
            if self._half is not None and place == self._place:
                waits += self._half.unread(SERVER)
            box.settle(waits)

    def _compare_again(self, mine: _Membership, name: bytes, data: bytes | bytearray) -> None:
        """What comes again after a lost connection must be what came before; it was answered then."""
        waiting = [early for known, early in self._early if known == name]
        place, message = sealing.message_of(name, data)
        if waiting:
            _same(waiting[0], data)
        else:
            mine.ledger.note(self._contexts[place].digest, message)


def _same(before: bytes | bytearray, now: bytes | bytearray) -> None:
    if before != now:
        raise Refused("the server deals other data than before under one name; the job ends here")
