"""UNION: shares of counts, then of tables of IDs are exchanged and summed until all slots are known; then the clients confirm
them to each other (`privacy.confirming`)."""

from __future__ import annotations

import hashlib
from dataclasses import replace

from secfc.agreement.federation import SERVER
from secfc.errors import JobFailed, Malformed, WrongSender
from secfc.framing import framed
from secfc.privacy import confirming
from secfc.protocol import messages, parcels
from secfc.protocol.client.phases.base import ClientPhase, Ended, Seated
from secfc.protocol.client.phases.sharing import begin_sharing
from secfc.protocol.client.site import SHARE_SECONDS, Desk, Met
from secfc.protocol.client.stages import Patience
from secfc.protocol.client.unionstages import OpenedSum, UnionStages
from secfc.protocol.effects import Effects, Send, Work, Worked
from secfc.protocol.messages import Phase
from secfc.protocol.parcels import Kind, Parcel, Whole, of_words
from secfc.protocol.transfer import Gathered, Sink

CONFIRM_SECONDS = 3600.0  # as long as the server waits for an exchange of shares by default
LINGER_SECONDS = 5.0  # after breaking off, for clients that ask again


class Union(Seated):
    """Stage after stage until the union of IDs is known."""

    phase = Phase.UNION

    def __init__(self, desk: Desk, now: float, met: Met) -> None:
        super().__init__(desk, now, met)
        site = desk.site
        share_sets = [member.share_set for member in met.members]
        known = [bytes.fromhex(digest) for digest in desk.past.opened]
        self._union = UnionStages(
            site.plan,
            site.index,
            site.federation.roster,
            share_sets,
            met.session,
            site.ids_in(met.session),
            site.secrets.seed,
            known,
            [site.federation.roster.index(name) for name in site.federation.holders],
        )
        self._sum: Send | None = None  # our part of the sum of this stage, once it is made
        self._patience = Patience(max(SHARE_SECONDS, site.patience), now)

    def begin(self, now: float, out: Effects) -> ClientPhase | None:
        self.desk.deliver(self._union.stage.begin(self.desk.resumed, out), now)
        return None

    def again(self, now: float, out: Effects) -> None:
        if self._sum is not None:
            self.desk.outbox.post(self._sum, now)

    def sink(self, sender: str, parcel: Parcel) -> Sink | None:
        site = self.desk.site
        match parcel.kind:
            case Kind.OPENED if sender == SERVER:
                return self._union.sink(parcel.name)
            case Kind.SHARES:
                return self._union.stage.sink(site.peer(sender), parcel.name)
            case Kind.WANTED if parcel.name == self._union.stage.id:
                return Gathered(0)
        return None

    def arrived(self, sender: str, parcel: Parcel, sink: Sink, now: float, out: Effects) -> ClientPhase | None:
        stage = self._union.stage
        match parcel.kind:
            case Kind.OPENED:
                return self._learn(self._union.arrived(parcel.name), now, out)
            case Kind.SHARES:
                stage.arrived(self.desk.site.peer(sender), out)
            case Kind.WANTED:
                self.desk.outbox.post(stage.outgoing(self.desk.site.peer(sender)), now)
        return None

    def worked(self, given: Worked, now: float, out: Effects) -> ClientPhase | None:
        union = self._union
        if given.name == ("sum", union.context):
            super().worked(given, now, out)
            parcel = Parcel(self.session, Kind.SUM, union.context)
            self._sum = Send(SERVER, parcel, of_words(given.result), patient=False)
            self.desk.outbox.post(self._sum, now)
            return None
        if given.name[0] not in ("kept", "used"):
            return None
        if (wanted := union.stage.worked(given, out)) is not None:
            self.desk.outbox.post(wanted, now)
        if given.name[:2] == ("used", union.stage.id) and not union.stage.missing():
            out.work.append(Work(("sum", union.context), union.contribution))
        return None

    def _learn(self, shown: OpenedSum, now: float, out: Effects) -> ClientPhase | None:
        desk, union = self.desk, self._union
        if not shown.new:
            return None
        found = {"rows": shown.left} if shown.step == 0 else {"ids": shown.ids, "left": shown.left}
        out.say("a sum over all clients was opened", step=shown.step, **found)
        opened = tuple(digest.hex() for digest in union.opened)
        desk.keep_past(replace(desk.past, opened=max(opened, desk.past.opened, key=len)), out)
        desk.outbox.cancel(lambda send: isinstance(send.message, Parcel))  # of the stage that is over
        self._sum, self.since = None, now
        if union.finished:
            return Confirming(desk, now, self.met, union)
        return self.begin(now, out)

    def tick(self, now: float, out: Effects) -> ClientPhase | None:
        stage = self._union.stage
        if stage.missing():
            lacking = ", ".join(self.names(stage.missing()))
            self._patience.check(stage.received_bytes, now, f"no shares have arrived from {lacking}")
        self.desk.check_deliveries(now)
        return None

    def missing(self) -> tuple[str, ...]:
        return self.names(self._union.stage.missing())


class Confirming(Seated):
    """First everybody's commitment is gathered; once those are noted on disk, our words may be seen, and everybody's are
    gathered. A client that restarts asks everybody once more."""

    phase = Phase.UNION

    def __init__(self, desk: Desk, now: float, met: Met, union: UnionStages) -> None:
        super().__init__(desk, now, met)
        site = desk.site
        self._union, self._clients = union, len(met.members)
        args = (met.session, union.digest, union.brought, union.complete, site.secrets.seed, met.pairs)
        self._words = confirming.vector(site.plan, site.index, *args)
        self._mine = confirming.commitment(site.index, met.session, union.digest, self._words)
        self._committed = {site.index: self._mine}
        self._given = {site.index: self._words}
        self._sinks: dict[tuple[str, Kind], Gathered] = {}
        self._revealed = False  # whether our words may be seen
        self._disputed: float | None = None  # when we broke off

    def begin(self, now: float, out: Effects) -> ClientPhase | None:
        desk, digest = self.desk, self._union.digest
        if desk.past.confirmed == digest.hex():  # by an earlier process, whose word may not have reached everybody
            for name in self._others():
                self.tell_again(name, now)
            return begin_sharing(desk, now, self.met, self)
        for name in self._others():
            self._tell(name, now)
            if desk.resumed:
                parcel = Parcel(self.session, Kind.WANTED, digest)
                desk.outbox.post(Send(name, parcel, Whole(b"")), now)
        return None

    def _others(self) -> list[str]:
        site = self.desk.site
        return [name for name in site.federation.roster if name != site.name]

    def _tell(self, name: str, now: float) -> None:
        """Our commitment, and once it is opened our words."""
        digest, post = self._union.digest, self.desk.outbox.post
        post(Send(name, Parcel(self.session, Kind.COMMITMENT, digest), Whole(self._mine)), now)
        if self._revealed:
            post(Send(name, Parcel(self.session, Kind.CONFIRMATION, digest), of_words(self._words)), now)

    def tell_again(self, name: str, now: float) -> None:
        """A client that has restarted asks, when all have confirmed."""
        self._revealed = True
        self._tell(name, now)

    def sink(self, sender: str, parcel: Parcel) -> Sink | None:
        if parcel.kind is Kind.OPENED and sender == SERVER:
            return self._union.sink(parcel.name)
        sizes = {Kind.COMMITMENT: 32, Kind.CONFIRMATION: 8 * confirming.LAYOUT.words, Kind.WANTED: 0}
        if parcel.kind not in sizes:
            return None
        self.desk.site.peer(sender)
        if parcel.kind is Kind.WANTED and parcel.name != self._union.digest:
            return None
        return self._sinks.setdefault((sender, parcel.kind), Gathered(sizes[parcel.kind]))

    def arrived(self, sender: str, parcel: Parcel, sink: Sink, now: float, out: Effects) -> ClientPhase | None:
        if parcel.kind is Kind.OPENED:
            self._union.arrived(parcel.name)  # told again after a lost connection
            return None
        j, data = self.desk.site.peer(sender), self._sinks.pop((sender, parcel.kind)).data
        match parcel.kind:
            case Kind.WANTED:
                self._tell(sender, now)
            case Kind.COMMITMENT:
                self._take_commitment(j, parcel.name, data)
            case Kind.CONFIRMATION:
                self._take_words(j, parcel.name, data)
        return self._advance(now, out)

    def _take_commitment(self, j: int, digest: bytes, data: bytes) -> None:
        if len(data) != 32:
            raise Malformed("a commitment has 32 bytes")
        said = hashlib.sha256(framed(digest, data)).digest() if digest != self._union.digest else data
        if self._committed.setdefault(j, said) != said:
            raise WrongSender("a client confirms the list of row IDs twice, and not the same way")

    def _take_words(self, j: int, digest: bytes, data: bytes) -> None:
        words = parcels.to_words(data)
        if len(words) != confirming.LAYOUT.words:
            raise Malformed(f"a confirmation has {confirming.LAYOUT.words} words, not {len(words)}")
        confirming.LAYOUT.check(words, 0)
        said = confirming.commitment(j, self.session, digest, words)
        said = hashlib.sha256(framed(digest, said)).digest() if digest != self._union.digest else said
        if self._committed.setdefault(j, said) != said:
            raise WrongSender("a client confirms the list of row IDs in another way than it has committed itself to")
        self._given[j] = words if digest == self._union.digest else words[:0]

    def _advance(self, now: float, out: Effects) -> ClientPhase | None:
        if self._disputed is not None or self._missing():
            return None
        if not self._revealed:
            return self._note_commitments(now, out)
        agreed = all(len(words) for words in self._given.values())
        given = [self._given[j] for j in range(self._clients)]
        if not agreed or not confirming.agree(self._union.total, given) or not self._union.complete:
            return self._break_off(now, out)
        desk = self.desk
        desk.keep_past(replace(desk.past, confirmed=self._union.digest.hex()), out)
        return begin_sharing(desk, now, self.met, self)

    def _note_commitments(self, now: float, out: Effects) -> ClientPhase | None:
        """Everybody's commitment is here. Once an earlier process of ours has opened its own, others may have seen it, so the
        commitments must be those that it had."""
        desk = self.desk
        found = hashlib.sha256(framed(*(self._committed[j] for j in range(self._clients)))).hexdigest()
        if desk.past.committed not in ("", found):
            return self._break_off(now, out)
        desk.keep_past(replace(desk.past, committed=found), out)
        self._revealed = True
        for name in self._others():
            self._tell(name, now)
        return self._advance(now, out)

    def _break_off(self, now: float, out: Effects) -> ClientPhase | None:
        self.desk.keep_past(replace(self.desk.past, dead=True), out)
        self.desk.report(messages.Refused(confirming.DISPUTED), now)
        self._disputed = now
        return None

    @property
    def parting(self) -> bool:
        return self._disputed is not None

    def _missing(self) -> list[int]:
        return [j for j in range(self._clients) if j not in (self._given if self._revealed else self._committed)]

    def told(self, event: messages.Event, now: float, out: Effects) -> ClientPhase | None:
        if self._disputed is not None and isinstance(event, messages.Failed):
            return None  # we say what all say, when others have had time to ask us
        return super().told(event, now, out)

    def tick(self, now: float, out: Effects) -> ClientPhase | None:
        if self._disputed is not None:
            over = now - self._disputed > LINGER_SECONDS
            return Ended(self.desk, now, JobFailed(confirming.DISPUTED), Phase.FAILED) if over else None
        if now - self.since > CONFIRM_SECONDS:
            raise JobFailed(
                f"after {CONFIRM_SECONDS:.0f} s these have not confirmed the list of row IDs: {', '.join(self.missing())};"
                " make sure that they are running and reachable, and start a new job (secfc-server --new)"
            )
        return None

    def missing(self) -> tuple[str, ...]:
        return self.names(self._missing())

    @property
    def union(self) -> UnionStages:
        return self._union
