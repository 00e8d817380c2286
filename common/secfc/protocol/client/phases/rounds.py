"""ROUNDS: our part of the check of all shares is given; then requests are answered, in whatever way the round kind has."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace

from secfc.agreement.federation import SERVER
from secfc.coding.field import Words
from secfc.errors import JobFailed, OutOfTurn, SecfcError, Unavailable
from secfc.kmeans.assignments import Assignments
from secfc.privacy import verification
from secfc.protocol import messages, parcels
from secfc.protocol.client.phases.base import ClientPhase
from secfc.protocol.client.phases.following import Follows
from secfc.protocol.client.site import Desk
from secfc.protocol.effects import Effects, Send, Work, Worked
from secfc.protocol.messages import Phase, RoundRequest
from secfc.protocol.parcels import Kind, Parcel, Whole, of_words
from secfc.protocol.rounds import kind_of, kinds
from secfc.protocol.rounds.kinds import Holding, Outgoing
from secfc.protocol.rounds.several_client import Answering, ClientRounds
from secfc.protocol.transfer import Sink

REJOIN_SECONDS = 1.0
_HEAD = len(parcels.attempt_name(0, 0))


class Rounds(Follows):
    """Until the server says that it is finished."""

    phase = Phase.ROUNDS

    def __init__(self, desk: Desk, now: float, before: Follows, held: messages.Held) -> None:
        super().__init__(desk, now, before.met, before.table, before.published)
        self._requests, self._finished, self._due = before._requests, before._finished, before._due
        site = desk.site
        self._held = held
        noted, coins = desk.kept.get("noted", b""), self.published.coins
        place = (site.plan, site.index, self.session)
        holding = Holding(*place, self.table.coded, self.met.pairs, noted, site.frozen, coins)
        self._half = ClientRounds(kind_of(site.plan), holding, site.federation.job.runs)
        self._exchange: tuple[tuple[int, int], Answering] | None = None  # of the attempt that we answer
        self._held_back: list[Worked] = []  # steps of it, until the request is admitted and that is on disk
        self._part: Send | None = None  # of the check of all shares, once it is made
        self._untaken: float | None = None  # since when the server does not take what we hold
        self._join_at: float | None = None  # when to join once more, for that reason

    def begin(self, now: float, out: Effects) -> ClientPhase | None:
        self.desk.report(self._held, now)
        self._verify(out)
        return self.go_on(now, out)

    def again(self, now: float, out: Effects) -> None:
        self.desk.report(self._held, now)

    def sent(self, send: Send, now: float, out: Effects) -> ClientPhase | None:
        if isinstance(send.message, messages.Held):
            self._untaken = None
        return super().sent(send, now, out)

    def unsent(self, send: Send, error: SecfcError, now: float, out: Effects) -> ClientPhase | None:
        if isinstance(send.message, messages.Held) and isinstance(error, OutOfTurn):
            self._not_taken(error, now)
            return None
        if send.to == SERVER and _of_round(send) and not isinstance(error, OutOfTurn):
            raise error  # an honest client's answer is never malformed
        return super().unsent(send, error, now, out)

    def _not_taken(self, error: OutOfTurn, now: float) -> None:
        """The server has forgotten us, though our connection seems to be alive: join once more, and tell it again."""
        self._untaken = now if self._untaken is None else self._untaken
        patience = self.desk.site.patience
        if now - self._untaken > patience:
            raise Unavailable(
                f"for {patience:.0f} s the server has not accepted our report of what we hold: {error};"
                " start the same command again to go on"
            )
        self._join_at = now + REJOIN_SECONDS

    def tick(self, now: float, out: Effects) -> ClientPhase | None:
        if self._join_at is not None and now >= self._join_at:
            self._join_at, self.desk.redial = None, True
        return super().tick(now, out)

    # --- the check of all shares -------------------------------------------------------------------------------------------

    def told(self, event: messages.Event, now: float, out: Effects) -> ClientPhase | None:
        following = super().told(event, now, out)
        if isinstance(event, messages.Reveals):  # the server may have restarted, or been given it too early
            if self._part is not None:
                self.desk.outbox.post(self._part, now)
            else:
                self._verify(out)
        return following

    def _verify(self, out: Effects) -> None:
        site, tossed = self.desk.site, self.published.tossed
        if tossed is None or not verification.checks(site.plan.code):
            return
        args = (site.plan, site.index, self.table.coded, self.session, tossed, self.met.pairs)
        out.work.append(Work(("verify",), lambda: verification.contribution(*args)))

    def _verified(self, words: Words, now: float, out: Effects) -> None:
        """The same shares give the same bytes, and in one session no others are given, since they would have the same
        masks."""
        site, desk, tossed = self.desk.site, self.desk, self.published.tossed
        digest = hashlib.sha256(words.astype("<u8").tobytes()).hexdigest()
        if desk.past.verified not in ("", digest):
            raise JobFailed(
                "the shares kept here are not those that were checked in this job: the state folder or this machine's memory"
                " is damaged; start this client again; if the error remains, start a new job (secfc-server --new)"
            )
        desk.keep_past(replace(desk.past, verified=digest), out)
        if tossed is None:
            return
        name = verification.purpose(site.plan, self.session, tossed)
        self._part = Send(SERVER, Parcel(self.session, Kind.SUM, name), of_words(words), patient=False)
        desk.outbox.post(self._part, now)

    # --- answers -----------------------------------------------------------------------------------------------------------

    def noting(self, request: RoundRequest) -> bytes:
        return self._half.note(request)

    def _checked(self, request: RoundRequest) -> Assignments:
        labels, site = super()._checked(request), self.desk.site
        name = (request.number, request.attempt)
        if request.past or (self._exchange is not None and self._exchange[0] == name):
            return labels
        self._exchange, self._held_back = None, []  # what was asked before is over, whoever is asked now
        self.desk.outbox.cancel(_of_round)
        if site.index in request.responders:  # its first messages may come at once
            self._exchange = name, self._half.answer(request, labels)
        return labels

    def answering(self, request: RoundRequest) -> Callable[[], Sequence[Outgoing]]:
        name = (request.number, request.attempt)
        if self._exchange is None or self._exchange[0] != name:  # a newer attempt has come meanwhile
            return tuple
        return self._exchange[1].begin

    def answered(self, request: RoundRequest, made: Sequence[Outgoing], seconds: float, now: float) -> None:
        name = (request.number, request.attempt)
        if self._exchange is None or self._exchange[0] != name:
            return  # what is held back belongs to a newer attempt, which is not admitted yet
        self._post(name, made, seconds, now)
        held_back, self._held_back = self._held_back, []
        for one in held_back:
            self._post(one.name[1], one.result, one.seconds, now)

    def _post(self, name: tuple[int, int], made: Sequence[Outgoing], seconds: float, now: float) -> None:
        if self._exchange is None or self._exchange[0] != name:
            return
        roster = self.desk.site.federation.roster
        for one in made:
            first = one.to == kinds.SERVER and not one.name
            parcel = Parcel(self.session, Kind.UPLOAD if first else Kind.STEP, parcels.attempt_name(*name) + one.name)
            body = replace(one.body, seconds=seconds) if isinstance(one.body, Whole) else one.body
            to = SERVER if one.to == kinds.SERVER else roster[one.to]
            self.desk.outbox.post(Send(to, parcel, body, patient=one.to != kinds.SERVER), now)

    def sink(self, sender: str, parcel: Parcel) -> Sink | None:
        if parcel.kind is not Kind.STEP:
            return super().sink(sender, parcel)
        if self._exchange is None or parcels.attempt_of(parcel.name) != self._exchange[0]:
            return None
        return self._exchange[1].sink(self._number(sender), parcel.name[_HEAD:])

    def _number(self, sender: str) -> int:
        return kinds.SERVER if sender == SERVER else self.desk.site.peer(sender)

    def arrived(self, sender: str, parcel: Parcel, sink: Sink, now: float, out: Effects) -> ClientPhase | None:
        if parcel.kind is not Kind.STEP or self._exchange is None:
            return super().arrived(sender, parcel, sink, now, out)
        (name, exchange), number, rest = self._exchange, self._number(sender), parcel.name[_HEAD:]
        out.work.append(Work(("step", name), lambda: exchange.take(number, rest)))
        return None

    def worked(self, given: Worked, now: float, out: Effects) -> ClientPhase | None:
        following = super().worked(given, now, out)
        if given.name == ("verify",):
            self._verified(given.result, now, out)
        elif given.name[0] == "step" and self._due:
            self._held_back.append(given)
        elif given.name[0] == "step":
            self._post(given.name[1], given.result, given.seconds, now)
        while self._exchange is not None and not self._due and (run := self._exchange[1].due()) is not None:
            out.work.append(Work(("step", self._exchange[0]), run))
        return following


def _of_round(send: Send) -> bool:
    return isinstance(send.message, Parcel) and send.message.kind in (Kind.UPLOAD, Kind.STEP)
