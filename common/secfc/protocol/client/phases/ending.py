"""The end of a job at a client, in this order, each noted as soon as it is done: labels, centres, IDs if they are published,
"done" at the server. A process that is killed in between leaves the rest to the next one."""

from __future__ import annotations

from collections.abc import Mapping

from secfc.agreement.federation import SERVER
from secfc.agreement.job import AUDIENCES
from secfc.errors import JobFailed, OutOfTurn, PeerError, SecfcError, Unavailable
from secfc.kmeans.assignments import Assignments
from secfc.kmeans.distances import CodedClusters, Labels
from secfc.privacy import identifiers, masks
from secfc.privacy.gathering import REFUSAL, Gathering
from secfc.privacy.identifiers import Ids
from secfc.protocol import messages
from secfc.protocol.client import freezing
from secfc.protocol.client.phases.base import ClientPhase, Ended
from secfc.protocol.client.phases.following import Follows, Holds
from secfc.protocol.client.site import Desk
from secfc.protocol.effects import Effects, Send, Work, Worked
from secfc.protocol.messages import Phase
from secfc.protocol.parcels import Kind, Parcel, Whole
from secfc.protocol.transfer import Gathered, Here, Sink

SECONDS = 60.0  # for answers about the centres to come and go; less than the server waits for clients to be done
GRACE_SECONDS = 5.0  # once it is decided, for those that would only be checked or counted
GOODBYE_SECONDS = 20.0
NOBODY, CLIENTS = AUDIENCES[0], AUDIENCES[1]


def labels_value(labels: Labels, ids: Ids | None, others: Mapping[int, Labels] | None = None) -> bytes:
    """Our rows' clusters as they are kept: int32, then 16 bytes per row if the rows have IDs; then for each of the `others`
    its k and its clusters, int32."""
    more = b"".join(k.to_bytes(4, "little") + one.astype("<i4").tobytes() for k, one in (others or {}).items())
    return labels.astype("<i4").tobytes() + (b"" if ids is None else ids.astype("<u8").tobytes()) + more


class Ending(Holds):
    """The labels first: they do not depend on anybody's consent. Then the centres."""

    phase = Phase.FINISHED

    def __init__(
        self, desk: Desk, now: float, before: Follows, finished: messages.Finished, final: Assignments
    ) -> None:
        """`final`: the assignment of the chosen run, and of the best run of every other k."""
        super().__init__(desk, now, before.met, before.table, before.published)
        site = desk.site
        self.finished, self._labels = finished, final[finished.run]
        clusters = site.federation.job.runs
        self._clusters = clusters[finished.run]
        self._others = {clusters[run]: labels for run, labels in final.items() if run != finished.run}
        self._digest = masks.assignment_digest(self._labels.astype("<i4").tobytes())
        self._ids = site.ids_in(self.session) if site.plan.private else None
        self._opens = site.federation.job.centers != NOBODY and "centers-done" not in desk.kept
        self._gathering: Gathering | None = None
        self._sinks: dict[str, Gathered] = {}
        self._ours: bytes | None = None
        self._decided: float | None = None

    def begin(self, now: float, out: Effects) -> ClientPhase | None:
        """What is kept for later rows comes before the labels: once these are written, a client that restarts is done."""
        if self.desk.site.keeps_clusters and self._may_freeze(out):
            out.work.append(Work(("freeze",), self._sums))
            return None
        return self._write(now, out)

    def _may_freeze(self, out: Effects) -> bool:
        why = "shares that were lost here could not be recovered"
        if self.table.held:
            why = freezing.refusal(self.desk.site, self.met, self._labels, self._clusters)
        if why:
            out.say("the clusters are not kept for later rows", level=30, reason=why)
        return not why

    def _freeze(self, coded: CodedClusters, out: Effects) -> None:
        kept = freezing.kept(self.desk.site, self.session, coded)
        out.put("clusters", kept.to_bytes())
        out.say("our share of the clusters is kept for later rows", clusters=kept.public.name)
        out.record("clusters kept", clusters=kept.public.name)

    def _write(self, now: float, out: Effects) -> ClientPhase | None:
        kept, job = self.desk.kept, self.session + self._digest
        own = self.table.labels
        others = {k: own(labels) for k, labels in self._others.items()}
        out.put("labels", self.session + labels_value(own(self._labels), self._ids, others))
        if "written" not in kept:
            if self._opens:
                out.put("no-centers")  # an earlier job's centres are not this one's
            out.put("written", job)
            out.record("labels written", session=self.session.hex())
        if not self._opens:
            return self._goodbye(now)
        site = self.desk.site
        self._gathering = Gathering(site.federation, site.plan, self._labels, self.met.members)
        self._restore(self._gathering, out)
        # an earlier process may have given its values: the same are given again, but none for another assignment
        other = "written" in kept and kept["written"] != job
        if other or not self._allows(CLIENTS) or not self.table.held:
            return self._answer(REFUSAL, now, out)
        out.work.append(Work(("sums",), self._sums))
        return None

    def _sums(self) -> CodedClusters:
        coded = CodedClusters(self.table.coded, self._clusters)
        coded.assign(self._labels)
        return coded

    def _restore(self, gathering: Gathering, out: Effects) -> None:
        """What an earlier process of ours was answered about the centres of the same final assignment."""
        for key, value in self.desk.kept.items():
            if key.startswith("answer/") and value.startswith(self.session):
                try:
                    gathering.take(self.desk.site.peer(key.removeprefix("answer/")), value[len(self.session) :])
                except SecfcError as error:
                    out.say("a stored answer cannot be used", level=30, client=key, reason=str(error))

    def _allows(self, audience: str) -> bool:
        """Whether the job and this site both let these see the centres."""
        site = self.desk.site
        limit = min(map(AUDIENCES.index, (site.federation.job.centers, site.guard.policy.open_centers)))
        return AUDIENCES.index(audience) <= limit

    def worked(self, given: Worked, now: float, out: Effects) -> ClientPhase | None:
        following = super().worked(given, now, out)
        if given.name == ("freeze",):
            self._freeze(given.result, out)
            return self._write(now, out)
        if given.name == ("sums",) and self._gathering is not None:
            smallest = self.desk.site.guard.policy.centers_smallest
            return self._answer(self._gathering.consent(given.result, smallest), now, out)
        return following

    def _answer(self, ours: bytes, now: float, out: Effects) -> ClientPhase | None:
        """Say to everybody who may see the centres whether we consent, and with what."""
        site, gathering = self.desk.site, self._gathering
        if gathering is None:
            return None
        self._ours = ours
        sees = [who for who in (CLIENTS, SERVER) if ours != REFUSAL and self._allows(who)]
        out.record("centres", our_part_to=sees)
        gathering.take(site.index, ours)
        parcel = Parcel(self.session, Kind.CENTERS, self._digest)
        for name in (*site.federation.roster, *([SERVER] if site.federation.job.centers == SERVER else [])):
            body = ours if self._allows(SERVER if name == SERVER else CLIENTS) else REFUSAL
            if name != site.name:
                self.desk.outbox.post(Send(name, parcel, Whole(body)), now)
        return self.tick(now, out)

    def sink(self, sender: str, parcel: Parcel) -> Sink | None:
        if parcel.kind is not Kind.CENTERS:
            return super().sink(sender, parcel)
        gathering, peer = self._gathering, self.desk.site.peer(sender)
        if gathering is None or parcel.name != self._digest:
            return None
        if peer in gathering.answered:
            return Here()
        return self._sinks.setdefault(sender, Gathered(gathering.most))

    def arrived(self, sender: str, parcel: Parcel, sink: Sink, now: float, out: Effects) -> ClientPhase | None:
        if parcel.kind is not Kind.CENTERS or self._gathering is None:
            return super().arrived(sender, parcel, sink, now, out)
        data = self._sinks.pop(sender).data
        self._gathering.take(self.desk.site.peer(sender), data)
        out.put(f"answer/{sender}", self.session + data)  # it does not come again, even if we are killed now
        return None

    def tick(self, now: float, out: Effects) -> ClientPhase | None:
        """Until all have answered, it is decided and a little time has passed, or the deadline has."""
        gathering = self._gathering
        if gathering is None or self._ours is None:
            return None
        if gathering.decided and self._decided is None:
            self._decided = now
        over = now - self.since > SECONDS or (self._decided is not None and now - self._decided > GRACE_SECONDS)
        told = not self._untold() or now - self.since > SECONDS
        return self._conclude(gathering, now, out) if (gathering.settled or over) and told else None

    def _untold(self) -> bool:
        """Whether somebody has not taken our answer."""
        parcel = Parcel(self.session, Kind.CENTERS, self._digest)
        names = (*self.desk.site.federation.roster, SERVER)
        return any(Send(name, parcel) in self.desk.outbox for name in names)

    def _conclude(self, gathering: Gathering, now: float, out: Effects) -> ClientPhase | None:
        try:
            opened = gathering.opened_centers()
        except (JobFailed, PeerError) as error:
            out.say(str(error), level=30)
        else:
            site, scaled = self.desk.site, self.met.scaled
            spread = scaled.spread if scaled is not None else site.federation.job.spread
            out.put("centers", opened.table(site.feature_names, spread).encode())
        out.put("centers-done")
        self.desk.outbox.cancel(lambda send: isinstance(send.message, Parcel) and send.message.kind is Kind.CENTERS)
        return self._goodbye(now)

    def _goodbye(self, now: float) -> ClientPhase:
        published = self._ids if self.desk.site.publishes else None
        return Goodbye(self.desk, now, self, published)

    def told(self, event: messages.Event, now: float, out: Effects) -> ClientPhase | None:
        return None  # the server has nothing more to say that matters


class Farewell(ClientPhase):
    """What is left when the labels are written: the IDs, if they are published, then "done"; for a while also to a server
    that is just restarting."""

    phase = Phase.FINISHED

    def _leave(self, session: bytes, publishes: Ids | None) -> None:
        self._parcel, self._ids, self._told = Parcel(session, Kind.IDS), publishes, publishes is None
        self._reason = "there was no time left"

    def _say(self, now: float) -> None:
        if self._told or self._ids is None:
            self.desk.report(messages.Done(), now)
            return
        data = self._ids[identifiers.order(self._ids)].astype("<u8").tobytes()
        self.desk.outbox.post(Send(SERVER, self._parcel, Whole(data), patient=False), now)

    def told(self, event: messages.Event, now: float, out: Effects) -> ClientPhase | None:
        if isinstance(event, messages.Roster):  # we have joined, or joined once more
            self._say(now)
        return None

    def sent(self, send: Send, now: float, out: Effects) -> ClientPhase | None:
        if isinstance(send.message, Parcel) and send.message.kind is Kind.IDS:
            self._told = True
            out.say("our IDs are published", rows=0 if self._ids is None else len(self._ids))
            self._say(now)
        if isinstance(send.message, messages.Done):
            return Ended(self.desk, now, None, Phase.FINISHED)
        return None

    def unsent(self, send: Send, error: SecfcError, now: float, out: Effects) -> ClientPhase | None:
        self._reason = str(error)
        if (isinstance(send.message, messages.Done) or send.message == self._parcel) and isinstance(
            error, OutOfTurn
        ):  # a server that has restarted wants us to join first
            self.desk.redial = True
        return None

    def tick(self, now: float, out: Effects) -> ClientPhase | None:
        if now - self.since <= GOODBYE_SECONDS:
            return None
        if not self._told:
            raise Unavailable(
                f"the labels are written, but our IDs are not published ({self._reason}); start the server, if it has ended, "
                "and the same command again"
            )
        out.say("the server does not know that we are done", level=30, reason=self._reason)
        return Ended(self.desk, now, None, Phase.FINISHED, untold=True)


class Goodbye(Farewell, Holds):
    """Tell the server that our labels are written."""

    def __init__(self, desk: Desk, now: float, before: Holds, publishes: Ids | None) -> None:
        Holds.__init__(self, desk, now, before.met, before.table, before.published)
        self._leave(self.session, publishes)

    def begin(self, now: float, out: Effects) -> ClientPhase | None:
        if self._ids is not None:
            out.record("IDs published", rows=len(self._ids))
        self._say(now)
        return None


class Leaving(Farewell):
    """An earlier process wrote the labels: a server that waits to hear it is told. One that runs another job is not."""

    def __init__(self, desk: Desk, now: float, session: bytes, publishes: Ids | None) -> None:
        super().__init__(desk, now)
        self._leave(session, publishes)

    def tick(self, now: float, out: Effects) -> ClientPhase | None:
        try:
            following = super().tick(now, out)
        except Unavailable as error:
            return Ended(self.desk, now, error, Phase.FINISHED)
        return Ended(self.desk, now, None, Phase.FINISHED) if following is not None else None
