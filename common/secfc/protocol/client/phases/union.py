"""UNION: shares of counts, then of tables of IDs are exchanged and summed until all slots are known; then the clients confirm
them to each other (`privacy.confirming`)."""

from __future__ import annotations

from dataclasses import replace

from secfc.agreement.federation import SERVER
from secfc.errors import JobFailed
from secfc.privacy import confirming
from secfc.protocol import messages
from secfc.protocol.client.phases.base import ClientPhase, Ended, Seated
from secfc.protocol.client.phases.sharing import begin_sharing
from secfc.protocol.client.site import SHARE_SECONDS, Desk, Met
from secfc.protocol.client.stages import Patience
from secfc.protocol.client.unionstages import OpenedSum, UnionStages
from secfc.protocol.client.vows import Vows
from secfc.protocol.effects import Effects, Send, Work, Worked
from secfc.protocol.messages import Phase
from secfc.protocol.parcels import Kind, Parcel, of_words
from secfc.protocol.transfer import Gathered, Sink

CONFIRM_SECONDS = 3600.0  # as long as the server waits for an exchange of shares by default
LINGER_SECONDS = 5.0  # after breaking off, for clients that ask again


class Union(Seated):
    """Stage after stage until the union of IDs is known."""

    phase = Phase.UNION

    def __init__(self, desk: Desk, now: float, met: Met) -> None:
        super().__init__(desk, now, met)
        site = desk.site
        known = [bytes.fromhex(digest) for digest in desk.past.opened]
        self._union = UnionStages(
            site.plan,
            site.index,
            site.federation.roster,
            met.share_sets,
            met.session,
            site.ids_in(met.session),
            met.seed(site),
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
            return super().worked(given, now, out)
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
    gathered (`vows`)."""

    phase = Phase.UNION

    def __init__(self, desk: Desk, now: float, met: Met, union: UnionStages) -> None:
        super().__init__(desk, now, met)
        site = desk.site
        self._union = union
        args = (met.session, union.digest, union.brought, union.complete, site.secrets.seed, met.pairs)
        words = confirming.vector(site.plan, site.index, *args)
        kinds = Kind.COMMITMENT, Kind.CONFIRMATION
        self._vows = Vows(desk, met.session, union.digest, words, confirming.LAYOUT, kinds)
        self._disputed: float | None = None  # when we broke off

    def begin(self, now: float, out: Effects) -> ClientPhase | None:
        desk = self.desk
        if desk.past.confirmed == self._union.digest.hex():  # by an earlier process, whom not everybody may have heard
            self._vows.reveal(now)
            return begin_sharing(desk, now, self.met, self)
        self._vows.begin(now)
        return None

    def tell_again(self, name: str, now: float) -> None:
        """A client that has restarted asks, when all have confirmed."""
        self._vows.revealed = True
        self._vows.tell(name, now)

    def sink(self, sender: str, parcel: Parcel) -> Sink | None:
        if parcel.kind is Kind.OPENED and sender == SERVER:
            return self._union.sink(parcel.name)
        return self._vows.sink(sender, parcel)

    def arrived(self, sender: str, parcel: Parcel, sink: Sink, now: float, out: Effects) -> ClientPhase | None:
        if parcel.kind is Kind.OPENED:
            self._union.arrived(parcel.name)  # told again after a lost connection
            return None
        self._vows.arrived(sender, parcel, now)
        return self._advance(now, out)

    def _advance(self, now: float, out: Effects) -> ClientPhase | None:
        vows = self._vows
        if self._disputed is not None or vows.missing:
            return None
        if not vows.revealed:
            return self._note_commitments(now, out)
        if not vows.agreed or not confirming.agree(self._union.total, vows.given) or not self._union.complete:
            return self._break_off(now, out)
        desk = self.desk
        desk.keep_past(replace(desk.past, confirmed=self._union.digest.hex()), out)
        return begin_sharing(desk, now, self.met, self)

    def _note_commitments(self, now: float, out: Effects) -> ClientPhase | None:
        desk, found = self.desk, self._vows.committed
        if desk.past.committed not in ("", found):
            return self._break_off(now, out)
        desk.keep_past(replace(desk.past, committed=found), out)
        self._vows.reveal(now)
        return self._advance(now, out)

    def _break_off(self, now: float, out: Effects) -> ClientPhase | None:
        self.desk.keep_past(replace(self.desk.past, dead=True), out)
        self.desk.report(messages.Refused(confirming.DISPUTED), now)
        self._disputed = now
        return None

    @property
    def parting(self) -> bool:
        return self._disputed is not None

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
        return self.names(self._vows.missing)

    @property
    def union(self) -> UnionStages:
        return self._union
