"""One client's side of a job as a machine: no sockets, threads, files or clocks.

Phases and what moves them (`phases`):

    JOINING   the roster arrives: everybody's signed introduction is verified, the session follows from them  → AGREEING
    AGREEING  everybody's signature under that session arrives, and everybody's proof that its key is its own
              → SHARING, or with standard scaling SCALING, or with private membership UNION
    SCALING   everybody's masked sums arrive; the mean and deviation of every feature follow                  → SHARING, UNION
    UNION     shares of counts, then of tables of IDs are exchanged and summed, until all slots are known
              and all clients have confirmed them to each other                                               → SHARING
    SHARING   shares of every other client arrive, residue by residue checked, ours are delivered             → ROUNDS
    ROUNDS    everybody's coins arrive, our part of the check of all shares is given; then assignments
              arrive, requests are answered                                                                   → FINISHED
    FINISHED  labels are written, centres opened if that is agreed, and the server is told
    any       the server says that the job has failed, or something is wrong                                  → FAILED

What another client sends and is not due or malformed is refused, and changes nothing. What no honest server says ends this
client. It trusts its own federation file and its CA, nothing else: it computes session, plan, weights and masks by itself,
and answers only requests with exactly R distinct responders (with `liars = A`: up to R + 2A), the assignment they claim,
beginning where everybody's coins say, and what `guard` lets pass.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from secfc.agreement.federation import SERVER
from secfc.coding.blocks import Blocks
from secfc.errors import (
    AlreadyJoined,
    ConfigError,
    JobFailed,
    NoSuchJob,
    OutOfTurn,
    Refused,
    SecfcError,
    StorageError,
    Unavailable,
    WentBack,
    told,
)
from secfc.privacy.identifiers import Ids
from secfc.protocol import messages, transfer
from secfc.protocol.client.heard import Heard
from secfc.protocol.client.inputs import Input, Linked, Lost, Sent, Stop, Told, Unsent
from secfc.protocol.client.past import Past
from secfc.protocol.client.phases.base import ClientPhase, Ended, Seated
from secfc.protocol.client.phases.ending import Leaving
from secfc.protocol.client.phases.following import Holds, JobTable, Published
from secfc.protocol.client.phases.opening import Joining
from secfc.protocol.client.serverline import ServerLine
from secfc.protocol.client.site import Desk, Site
from secfc.protocol.client.snapshot import Snapshot
from secfc.protocol.effects import Arrived, Effects, Send, Started, Tick, Worked
from secfc.protocol.messages import Phase
from secfc.protocol.outbox import FIRST_PAUSE, Outbox
from secfc.protocol.parcels import Parcel
from secfc.protocol.transfer import Here, Sink

LAST_WORDS_SECONDS = 2.0  # for the server to hear why we go


class Participant:
    """See the module's docstring."""

    def __init__(
        self,
        site: Site,
        *,
        kept: Mapping[str, bytes] | None = None,
        resumed: bool = False,
        leaving: tuple[bytes, Ids | None] | None = None,
        now: float = 0.0,
    ) -> None:
        """`kept`: what an earlier process was told to keep, all but shares; `resumed`: whether there was one with these
        secrets. `leaving`: all that is left is to say goodbye, in this session and with these IDs to be published."""
        kept = kept or {}
        self.site = site
        self._desk = Desk(site, Outbox(site.chance), Past.restored(kept.get("past", b"")), resumed, kept)
        self._phase: ClientPhase = Joining(self._desk, now)
        if leaving is not None:
            self._phase = Leaving(self._desk, now, *leaving)
        self._line = ServerLine(self._desk, now)
        self._news = Heard(site)
        self._last: JobTable | None = None  # all rows as they are known here, once they have places
        self._published: Published | None = None

    # --- reading ---------------------------------------------------------------------------------------------------------

    @property
    def phase(self) -> Phase:
        """Where the job stands for us."""
        return self._phase.phase

    @property
    def ended(self) -> Ended | None:
        """How it ended, once it has."""
        return self._phase if isinstance(self._phase, Ended) else None

    @property
    def session(self) -> bytes:
        """Of the job; empty before the roster is known."""
        return self._phase.session

    @property
    def shared(self) -> dict[str, bytes]:
        """By client, the key that only it and we know (`secfc.privacy.keys`); nothing before the roster is known."""
        if not isinstance(self._phase, Seated):
            return {}
        return {self.site.federation.roster[j]: key for j, key in self._phase.met.pairs.items()}

    @property
    def own(self) -> npt.NDArray[np.int64]:
        """Where our rows stand among all; -1: they take no part. Pre-condition: a job with a result has ended."""
        return self._table().own

    @property
    def coded(self) -> Blocks:
        """The shares that we hold. Pre-condition as above."""
        return self._table().coded

    def _table(self) -> JobTable:
        if self._last is None:
            raise JobFailed("the rows have no places yet")
        return self._last

    def over(self, now: float) -> bool:
        """Whether there is nothing left to do, and the server has had time to hear why."""
        if (ended := self.ended) is None:
            return False
        words = messages.Stopped(""), messages.Refused("")
        untold = any(Send(SERVER, word) in self._desk.outbox for word in words)
        return not untold or now - ended.since > LAST_WORDS_SECONDS

    def snapshot(self) -> Snapshot:
        """A picture of the job as we see it."""
        newest = self._published.newest if self._published is not None else {}
        found = self._news.found
        run = found.run if found is not None and found.run in newest else min(newest, default=0)
        ended = self.ended
        return Snapshot(
            site=self.site,
            phase=self.phase,
            linked=self._line.linked,
            missing=self._phase.missing(),
            failure=ended.error if ended is not None else None,
            unreachable_by=self._news.unreachable_by,
            run=run,
            labels=self._table().labels(newest[run]) if newest else None,
            taken=self._table().own >= 0 if newest else None,
            rows=len(newest[run]) if newest else 0,
            course=dict(self._published.course) if self._published is not None else {},
            found=found,
        )

    def progress(self, sender: str, parcel: Parcel) -> int:
        """How many bytes of another client's parcel have arrived; raises OutOfTurn if it is not due."""
        self.site.peer(sender)
        return self._sink(sender, parcel).received

    # --- inputs ----------------------------------------------------------------------------------------------------------

    def handle(self, given: Input, now: float) -> Effects:
        """Take in an input, and say what is to be done. What is refused to another client raises and changes nothing; what is
        found wrong once its message is taken is not its fault, and neither are our own files."""
        out, following = Effects(), None
        try:
            following = self._take(given, now, out)
        except SecfcError as error:
            if isinstance(given, Arrived) and not isinstance(error, ConfigError | StorageError):
                raise
            self._end(error, now, out)
        try:
            self._enter(following, now, out)
        except SecfcError as error:
            self._end(error, now, out)
        self._send(now, out)
        return out

    def _enter(self, following: ClientPhase | None, now: float, out: Effects) -> None:
        while following is not None and following is not self._phase:
            self._phase = following
            if isinstance(following, Holds):
                self._last, self._published = following.table, following.published
            following = following.begin(now, out)

    def _end(self, error: SecfcError, now: float, out: Effects) -> None:
        """We cannot go on, and say so."""
        if isinstance(self._phase, Ended):
            return
        self._desk.outbox.cancel(lambda _: True)
        reason = told(error)
        refuses = isinstance(error, Refused | WentBack)
        if not isinstance(error, NoSuchJob):
            self._desk.report(messages.Refused(reason) if refuses else messages.Stopped(reason), now)
        self._phase = Ended(self._desk, now, error, Phase.FAILED)

    def _take(self, given: Input, now: float, out: Effects) -> ClientPhase | None:
        match given:
            case Arrived():
                self.site.peer(given.sender)  # the server has another way: what it says is told
                return self._arrived(given, now, out)
            case Told():
                return self._heard(given.event, now, out)
            case Worked():
                return self._phase.worked(given, now, out)
            case Sent():
                self._desk.count(given)
                return self._phase.sent(given.send, now, out) if self._desk.outbox.sent(given.send) else None
            case Unsent():
                error = self._desk.outbox.unsent(given.send, given.error, given.progressed, now)
                return None if error is None else self._phase.unsent(given.send, error, now, out)
            case _:
                return self._passing(given, now, out)

    def _passing(self, given: Started | Tick | Linked | Lost | Stop, now: float, out: Effects) -> ClientPhase | None:
        """Time, and what becomes of our connection to the server."""
        match given:
            case Tick():
                if self._line.due(now):
                    self._dial(out)
                return self._phase.tick(now, out)
            case Started():
                self._dial(out)
            case Linked():
                self._line.joined(out)
            case Lost():
                return self._lost(given.error, now, out)
            case Stop():
                raise Unavailable(given.reason)
        return None

    def _heard(self, event: messages.Event, now: float, out: Effects) -> ClientPhase | None:
        try:
            return self._told(event, now, out)
        except Unavailable as error:  # a certificate that is not in force here yet: the roster may be on its way
            if isinstance(self._phase, Ended):
                return None
            return self._lost(error, now, out)

    def _told(self, event: messages.Event, now: float, out: Effects) -> ClientPhase | None:
        if isinstance(event, messages.Piece):
            return self._arrived(Arrived(SERVER, event.parcel, event.offset, event.total, event.data), now, out)
        self._news.take(event, out)
        return self._phase.told(event, now, out)

    def _arrived(self, given: Arrived, now: float, out: Effects) -> ClientPhase | None:
        if given.sender == SERVER and isinstance(self._phase, Leaving | Ended):
            return None
        sink = self._sink(given.sender, given.parcel)
        before = sink.received
        if isinstance(sink, Here) or not transfer.take(sink, given) or (given.total and sink.received == before):
            return None
        return self._phase.arrived(given.sender, given.parcel, sink, now, out)

    def _sink(self, sender: str, parcel: Parcel) -> Sink:
        if not self.session:
            raise OutOfTurn("the session is not agreed on here yet; try again in a moment")
        if parcel.session != self.session:
            raise OutOfTurn("this belongs to another job, or to another step of it")
        sink = self._phase.sink(sender, parcel)
        if sink is None:
            raise OutOfTurn("this is not due here: it is too early, or belongs to another step of the job")
        return sink

    # --- the server ------------------------------------------------------------------------------------------------------

    def _dial(self, out: Effects) -> None:
        self._line.dial(self._desk.used or isinstance(self._phase, Seated | Leaving), out)

    def _lost(self, error: SecfcError, now: float, out: Effects) -> ClientPhase | None:
        self._line.broke(now)
        if self._phase.parting:
            return None
        if self.phase is not Phase.FINISHED:
            self._line.refused(error, now, out)
        elif isinstance(self._phase, Leaving) and not isinstance(error, Unavailable | AlreadyJoined):
            raise NoSuchJob(str(error))  # it runs another job
        elif isinstance(self._phase, Leaving) or self._desk.redial:  # all that is left is to say goodbye
            self._line.dial_at(now + FIRST_PAUSE)
        return None

    # --- what leaves -----------------------------------------------------------------------------------------------------

    def _send(self, now: float, out: Effects) -> None:
        """Hand out what is due, and tell the server about links that have broken or are back."""
        desk = self._desk
        for peer, reason in desk.outbox.links().items():
            if peer != SERVER and not isinstance(self._phase, Ended):
                if reason:
                    out.say("cannot reach a client", level=logging.WARNING, peer=peer, reason=reason)
                else:
                    out.say("link is back", peer=peer)
                desk.report(messages.Unreachable(peer, reason), now)
        if desk.redial and self._line.idle:
            self._dial(out)
        desk.outbox.ready(now, out)

    def __repr__(self) -> str:
        return f"Participant({self.site.name}, {self.phase.value})"
