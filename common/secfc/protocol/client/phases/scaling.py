"""SCALING: all sites' counts, sums and squares are added up under masks, among the clients (`privacy.scaling`), and every
client scales its rows by the mean and deviation that follow. Nobody shares a row before all are said to have the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from secfc.agreement.federation import SERVER
from secfc.coding.field import Words
from secfc.errors import DataError, JobFailed, SecfcError, WrongSender
from secfc.kmeans.standard import Moments, Spread, Unscaled
from secfc.privacy import scaling
from secfc.protocol import messages, parcels
from secfc.protocol.client.phases.base import ClientPhase, Ended, Seated
from secfc.protocol.client.site import SHARE_SECONDS, Desk, Met, ScaledRows
from secfc.protocol.client.vows import Vows
from secfc.protocol.effects import Effects, Work, Worked
from secfc.protocol.messages import Phase
from secfc.protocol.parcels import Kind, Parcel, of_words
from secfc.protocol.transfer import Sink

BEYOND = (
    "a value lies further from its mean than the job's bound, in deviations, and clip is not agreed on; agree on clip or on a"
    " larger bound"
)
_KINDS = Kind.PLEDGE, Kind.MOMENTS
Following = Callable[[Desk, float, Met], ClientPhase]


class _Scaling(Seated):
    """`gate`: the digest with which the server lets everybody go on, if it has said so; `following` makes the next phase."""

    phase = Phase.SCALING

    def __init__(
        self, desk: Desk, now: float, met: Met, rows: Unscaled, following: Following, gate: bytes = b""
    ) -> None:
        super().__init__(desk, now, met)
        self.rows, self.following, self.gate = rows, following, gate

    def told(self, event: messages.Event, now: float, out: Effects) -> ClientPhase | None:
        if not isinstance(event, messages.Scale):
            return super().told(event, now, out)
        self.gate = event.digest
        return self.if_open(now)

    def broken_off(self, error: SecfcError, now: float, reason: str) -> ClientPhase:
        """The end, whoever's message has led to it; `reason` is what the others hear."""
        self.desk.report(messages.Refused(reason), now)
        return Ended(self.desk, now, error, Phase.FAILED)

    def if_open(self, now: float) -> ClientPhase | None:
        """The next phase, if all have the same scale and we are ready."""
        return None

    def tick(self, now: float, out: Effects) -> ClientPhase | None:
        seconds = max(SHARE_SECONDS, self.desk.site.patience)
        if now - self.since > seconds and self.missing():
            raise JobFailed(
                f"after {seconds:.0f} s these have not given their sums for the scale: {', '.join(self.missing())}; see that"
                " they run and can be reached, and start a new job (secfc-server --new)"
            )
        return None


class Measuring(_Scaling):
    """Our own sums are computed."""

    def begin(self, now: float, out: Effects) -> ClientPhase | None:
        out.work.append(Work(("moments",), self.rows.moments))
        return None

    def worked(self, given: Worked, now: float, out: Effects) -> ClientPhase | None:
        super().worked(given, now, out)
        return Adding(self, now, given.result)


class Adding(_Scaling):
    """Everybody's masked sums are gathered: commitments first (`vows`)."""

    def __init__(self, before: Measuring, now: float, own: tuple[Moments, ...]) -> None:
        super().__init__(before.desk, now, before.met, before.rows, before.following, before.gate)
        site, met = self.desk.site, self.met
        words = scaling.vector(site.plan, site.index, met.session, own, site.secrets.seed, met.pairs)
        self.columns = len(own)
        layout = scaling.layout(self.columns)
        self.vows = Vows(self.desk, met.session, scaling.purpose(met.session), words, layout, _KINDS)

    def begin(self, now: float, out: Effects) -> ClientPhase | None:
        kept = self.desk.past.scale
        if kept:  # an earlier process had everybody's words, and not everybody may have heard its own
            self.vows.reveal(now)
            return Settling(self, now, parcels.to_words(bytes.fromhex(kept)))
        self.vows.begin(now)
        return self._advance(now, out)

    def sink(self, sender: str, parcel: Parcel) -> Sink | None:
        return None if sender == SERVER else self.vows.sink(sender, parcel)

    def arrived(self, sender: str, parcel: Parcel, sink: Sink, now: float, out: Effects) -> ClientPhase | None:
        self.vows.arrived(sender, parcel, now)
        return self._advance(now, out)

    def _advance(self, now: float, out: Effects) -> ClientPhase | None:
        desk, vows = self.desk, self.vows
        if vows.missing:
            return None
        if not vows.revealed:
            if desk.past.sums not in ("", vows.committed):
                return self._disputed("a client has changed its sums for the scale", now)
            desk.keep_past(replace(desk.past, sums=vows.committed), out)
            vows.reveal(now)
            return self._advance(now, out)
        if not vows.agreed:
            return self._disputed("a client adds up other sums for the scale than ours", now)
        total = scaling.added(self.columns, vows.given)
        desk.keep_past(replace(desk.past, scale=bytes(of_words(total).data).hex()), out)
        return Settling(self, now, total)

    def _disputed(self, what: str, now: float) -> ClientPhase:
        reason = f"{what}; start a new job (secfc-server --new)"
        return self.broken_off(JobFailed(reason), now, reason)

    def missing(self) -> tuple[str, ...]:
        return self.names(self.vows.missing)


class Settling(_Scaling):
    """The scale is known: our rows are scaled, and we wait until everybody has the same. Clients that restart may ask for our
    words until then."""

    def __init__(self, before: Adding, now: float, total: Words) -> None:
        super().__init__(before.desk, now, before.met, before.rows, before.following, before.gate)
        self._vows = before.vows
        self._totals = scaling.totals(before.columns, self.session, total)
        self._ready: Met | None = None  # with our rows, once they are scaled

    def begin(self, now: float, out: Effects) -> ClientPhase | None:
        site, job, rows = self.desk.site, self.desk.site.federation.job, self.rows
        try:
            spread = self._spread()
        except JobFailed as error:  # as with everybody
            return self.broken_off(error, now, str(error))
        out.say("scale", mean=[shift for shift, _ in spread], deviation=[unit for _, unit in spread])
        digest, terms = self._totals.digest, (job.clip, job.bound, job.precision)

        def scaled() -> ScaledRows:
            return ScaledRows(digest, spread, rows.quantised(spread, site.feature_names, terms))

        out.work.append(Work(("scaled",), scaled))
        return None

    def _spread(self) -> Spread:
        """Raises JobFailed if no honest clients have such totals."""
        site, moments = self.desk.site, self._totals.moments
        rows = sum(member.rows for member in self.met.members)  # 0: nobody tells
        if rows and site.federation.job.missing != "mean" and any(one.count != rows for one in moments):
            raise JobFailed("the sums for the scale count other rows than there are; start again (secfc-server --new)")
        return self.rows.spread(moments, site.feature_names)

    def worked(self, given: Worked, now: float, out: Effects) -> ClientPhase | None:
        if isinstance(given.error, DataError):  # others hear that there is such a value, and not where
            return self.broken_off(given.error, now, BEYOND)
        super().worked(given, now, out)
        self._ready = replace(self.met, scaled=given.result)
        self.again(now, out)
        return self.if_open(now)

    def again(self, now: float, out: Effects) -> None:
        if self._ready is not None:
            self.desk.report(messages.Scaled(self._totals.digest), now)

    def sink(self, sender: str, parcel: Parcel) -> Sink | None:
        return None if sender == SERVER else self._vows.sink(sender, parcel)

    def arrived(self, sender: str, parcel: Parcel, sink: Sink, now: float, out: Effects) -> ClientPhase | None:
        self._vows.arrived(sender, parcel, now)
        return None

    def if_open(self, now: float) -> ClientPhase | None:
        if not self.gate or self._ready is None:
            return None
        if self.gate != self._totals.digest:
            reason = "the server says that the clients have another scale than ours; it, or a client, is not honest"
            return self.broken_off(WrongSender(reason), now, reason)
        said = (*_KINDS, Kind.WANTED)
        self.desk.outbox.cancel(lambda send: isinstance(send.message, Parcel) and send.message.kind in said)
        return self.following(self.desk, now, self._ready)
