"""SHARING: shares of every other client's rows arrive and ours are delivered; meanwhile assignments may come already.

A client that comes back to a job that ended without it gets its labels even if shares it lost cannot be had any more.
"""

from __future__ import annotations

import hashlib
import itertools

import numpy as np

from secfc.agreement.federation import SERVER
from secfc.coding.blocks import Packed
from secfc.coding.field import Words
from secfc.coding.sharing import ShareSet
from secfc.errors import SecfcError
from secfc.framing import framed
from secfc.protocol import messages
from secfc.protocol.client.phases.base import ClientPhase, Seated
from secfc.protocol.client.phases.following import Confirmed, Follows, JobTable, Published
from secfc.protocol.client.phases.rounds import Rounds
from secfc.protocol.client.site import SHARE_SECONDS, Desk, Met
from secfc.protocol.client.stages import Patience, Stage
from secfc.protocol.effects import Effects, Send, Work, Worked
from secfc.protocol.messages import Phase


class Sharing(Follows):
    """Until we hold everybody's shares."""

    phase = Phase.SHARING

    def __init__(self, desk: Desk, now: float, met: Met, table: JobTable, published: Published) -> None:
        super().__init__(desk, now, met, table, published)
        self._patience = Patience(max(SHARE_SECONDS, desk.site.patience), now)

    def begin(self, now: float, out: Effects) -> ClientPhase | None:
        site = self.desk.site
        self._begin_guard()
        for member in self.met.members:  # shares kept from an earlier job, whose owner does not let them serve another
            if self.desk.resumed and not (site.keeps and member.keeps):
                out.put(f"this-job-only/{member.name}")
        if site.federation.holders and not site.federation.helps(site.name):
            outside = int((self.table.own < 0).sum())
            out.say("rows are those that all holders have", rows=self.table.coded.rows, ours_outside=outside)
        others = [name for name in site.federation.roster if name != site.name]
        again = (
            site.keeps and self.desk.resumed and "joined" not in self.desk.kept
        )  # whoever has lost them gets them again
        facts = {"rows": len(site.rows), "session": self.session.hex(), "clients": others}
        out.record("rows shared", **facts, same_as_before=again)
        self.desk.deliver(self.table.stage.begin(self.desk.resumed, out), now)
        return None

    def _begin_guard(self) -> None:
        """Our rules about all rows together are asked here, where they refuse the job, and not whoever's message led here."""
        site, met, table = self.desk.site, self.met, self.table
        lasts = table.confirmed is None and met.scaled is None  # whether another job may be about the same rows
        names = messages.share_sets(met.members) if lasts else messages.holdings(met.session, table.stage.ids)
        key = hashlib.sha256(framed(b"secfc/v1/leakage-key", site.secrets.seed)).digest()
        site.guard.begin(met.session, names, table.coded.rows, key)

    def worked(self, given: Worked, now: float, out: Effects) -> ClientPhase | None:
        following = super().worked(given, now, out)
        if given.name == ("held",):
            return self._hold(now, out)
        if given.name[:2] == ("used", self.table.stage.id) and not self.table.stage.missing():
            out.work.append(Work(("held",), self.table.coded.finish))
        return following

    def _hold(self, now: float, out: Effects) -> ClientPhase:
        """Everybody has delivered shares of this session, so all commitments are fixed, and our coin may be shown."""
        desk, stage = self.desk, self.table.stage
        out.put("revealed", self.session)
        self.table.held = True
        digest, seconds = messages.holdings(self.session, stage.ids), now - self.since
        sent, coin = desk.sent_bytes, desk.site.secrets.coin
        held = messages.Held(digest, sent, stage.received_bytes, seconds, coin)
        out.say("all shares have arrived", seconds=round(seconds, 2), sent=sent, received=stage.received_bytes)
        return Rounds(desk, now, self, held)

    def unsent(self, send: Send, error: SecfcError, now: float, out: Effects) -> ClientPhase | None:
        if self.desk.resumed or send.to == SERVER:
            return super().unsent(send, error, now, out)
        return Seated.unsent(self, send, error, now, out)

    def tick(self, now: float, out: Effects) -> ClientPhase | None:
        stage = self.table.stage
        if stage.missing():
            lacking = ", ".join(self.names(stage.missing()))
            self._patience.check(stage.received_bytes, now, f"no shares have arrived from {lacking}")
        return super().tick(now, out)

    def missing(self) -> tuple[str, ...]:
        return self.names(self.table.stage.missing())


def begin_sharing(desk: Desk, now: float, met: Met, confirmed: Confirmed | None) -> Sharing:
    """Every row has its place: by roster, or with private membership by the confirmed union of IDs."""
    table = _by_roster(desk, met) if confirmed is None else _by_slots(desk, met, confirmed)
    return Sharing(desk, now, met, table, Published(desk.site, table.coded.rows))


def _by_roster(desk: Desk, met: Met) -> JobTable:
    site, plan = desk.site, desk.site.plan
    edges = np.cumsum([0, *(member.rows for member in met.members)]).tolist()
    coded = site.hold(plan.field, edges[-1], plan.length)
    places = site.places or [np.arange(a, b) for a, b in itertools.pairwise(edges)]
    layouts = [plan.share_layout(member.rows) for member in met.members]
    shares = ShareSet(plan.code, met.rows(site), met.seed(site))

    def put(owner: int, words: Words | Packed) -> None:
        at = slice(edges[owner], edges[owner + 1]) if site.places is None else places[owner]
        coded.put(at, words)

    def lasting(owner: int) -> bool:
        return site.keeps and met.members[owner].keeps

    people = site.federation.roster
    stage = Stage(site.index, people, met.session, met.share_sets, layouts, shares, put, lasting, coded.spool)
    return JobTable(coded, places[site.index], stage)


def _by_slots(desk: Desk, met: Met, confirmed: Confirmed) -> JobTable:
    plan, union = desk.site.plan, confirmed.union
    coded = desk.site.hold(plan.field, union.rows, plan.length)
    return JobTable(coded, union.slots, union.rows_stage(met.rows(desk.site), coded), confirmed)
