"""From nobody to shares that fit together: JOINING, AGREEING, SCALING, UNION, SHARING and CHECKING."""

from __future__ import annotations

from secfc.errors import JobFailed, Malformed
from secfc.privacy import verification
from secfc.protocol import messages
from secfc.protocol.effects import Arrived, Effects, Work, Worked
from secfc.protocol.messages import Phase
from secfc.protocol.parcels import Kind, Parcel
from secfc.protocol.server import records
from secfc.protocol.server.job import Met, ServerJob
from secfc.protocol.server.phases.base import Begun, JobPhase
from secfc.protocol.server.phases.rounds import RoundsPhase
from secfc.protocol.server.sums import Parts
from secfc.protocol.server.unionsums import UnionSums
from secfc.protocol.transfer import Sink

DIFFERENT_SCALES = (
    "the clients have added up different sums for the scale, so one of them does not keep to the protocol; no rows were"
    " shared; start a new job (secfc-server --new)"
)


class Joining(JobPhase):
    """Every client of the roster introduces itself."""

    phase = Phase.JOINING

    def joined(self, sender: str, introduction: messages.Introduction) -> None:
        """Raise unless this introduction fits those that are here."""
        job, others = self.job, [one for one in self.job.introductions() if one.name != sender]
        if job.plan.private and introduction.rows:
            raise Malformed("with private membership no client may say how many rows it has")
        total, most = introduction.rows + sum(other.rows for other in others), job.federation.job.max_rows
        if total > most:
            raise Malformed(f"{total} rows in all exceed max_rows = {most} of the job")
        agreed = job.federation.job.feature_names
        if agreed is not None and introduction.features != messages.feature_digest(agreed):
            raise Malformed(f"the feature columns of {sender} are not those of the job: {', '.join(agreed)[:300]}")
        if different := [one.name for one in others if one.features != introduction.features]:
            raise Malformed(messages.other_features(sender, different))

    def reported(self, sender: str, report: messages.Report, now: float, out: Effects) -> JobPhase | None:
        following = super().reported(sender, report, now, out)
        if isinstance(report, messages.Stopped):
            member = self.job.members[sender]
            member.introduction, member.instance = None, b""
        return following

    def connected(self, now: float, out: Effects) -> JobPhase | None:
        job = self.job
        if len(job.introductions()) < len(job.members):
            return None
        for one in job.introductions():
            out.put(f"introduction/{one.name}", records.introduction_to(one))
            out.put(f"committee/{one.name}", records.names_to(job.members[one.name].committee))
        return self._met(job.meet(), now)

    def _met(self, met: Met, now: float) -> JobPhase:
        k = max(self.job.federation.job.ks)
        if self.job.plan.frozen and not self.rows:
            return self.fail(JobFailed("no client brings a row, so there is nothing to assign"), now)
        if not self.job.plan.private and not self.job.plan.frozen and self.rows < k:
            return self.fail(JobFailed(f"{self.rows} rows in all cannot make k = {k} clusters"), now)
        self.met = met
        return Agreeing(self.job, now, self)

    def missing(self) -> tuple[str, ...]:
        return tuple(name for name, member in self.job.members.items() if member.introduction is None)

    def tick(self, now: float, out: Effects) -> JobPhase | None:
        return self._overdue(self.job.deadlines.join, "have not joined", now)


class Agreeing(JobPhase):
    """Every client signs the session that follows from all introductions."""

    phase = Phase.AGREEING

    def begin(self, now: float, out: Effects) -> JobPhase | None:
        """A job that goes on may have all signatures."""
        return self._if_agreed(now)

    def reported(self, sender: str, report: messages.Report, now: float, out: Effects) -> JobPhase | None:
        if not isinstance(report, messages.Agreed):
            return super().reported(sender, report, now, out)
        self._check_agreement(sender, report)
        member = self.job.members[sender]
        if member.agreed is None:
            member.agreed = report
            out.put(f"agreed/{sender}", records.agreed_to(report))
        return self._if_agreed(now)

    def _if_agreed(self, now: float) -> JobPhase | None:
        if not all(member.agreed for member in self.job.members.values()):
            return None
        return (Scaling if self.job.federation.job.standard else aligned(self.job))(self.job, now, self)

    def missing(self) -> tuple[str, ...]:
        return tuple(name for name, member in self.job.members.items() if member.agreed is None)

    def tick(self, now: float, out: Effects) -> JobPhase | None:
        return self._overdue(self.job.deadlines.join, "have not signed the session", now)


def aligned(job: ServerJob) -> type[Union | Sharing]:
    """What follows when rows are ready to be shared."""
    return Union if job.plan.private else Sharing


class Scaling(Begun):
    """The clients add up counts, sums and squares among themselves, and say that they have the same. We see none of them."""

    phase = Phase.SCALING
    takes_held = False

    def begin(self, now: float, out: Effects) -> JobPhase | None:
        """A job that goes on may be through."""
        return aligned(self.job)(self.job, now, self) if self.job.scale else None

    def reported(self, sender: str, report: messages.Report, now: float, out: Effects) -> JobPhase | None:
        if not isinstance(report, messages.Scaled):
            return super().reported(sender, report, now, out)
        self.job.members[sender].scaled = report.digest
        self.job.touch()
        said = [member.scaled for member in self.job.members.values()]
        if not all(said):
            return None
        if len(set(said)) > 1:
            return self.fail(JobFailed(DIFFERENT_SCALES), now)
        self.job.scale = report.digest
        out.put("scale", report.digest)
        return aligned(self.job)(self.job, now, self)

    def missing(self) -> tuple[str, ...]:
        return tuple(name for name, member in self.job.members.items() if not member.scaled)

    def tick(self, now: float, out: Effects) -> JobPhase | None:
        return self._overdue(self.job.deadlines.share, "have not added up everybody's sums for the scale", now)


class Union(Begun):
    """Sums over all clients are opened until every row has its slot."""

    phase = Phase.UNION
    takes_held = False

    def __init__(self, job: ServerJob, now: float, before: JobPhase) -> None:
        super().__init__(job, now, before)
        self._union = self.union = UnionSums(job.plan, job.meet().session, len(job.federation.holders))

    def sink(self, sender: str, parcel: Parcel) -> Sink | None:
        union = self._union
        if parcel.kind is not Kind.SUM or parcel.name != union.context:
            return None
        return union.sink(self.job.index(sender))

    def arrived(self, given: Arrived, sink: Sink, now: float, out: Effects) -> JobPhase | None:
        if (opening := self._union.take_work()) is not None:
            out.work.append(Work(("open", self._union.step), opening.run))
        return None

    def worked(self, given: Worked, now: float, out: Effects) -> JobPhase | None:
        union = self._union
        if given.name != ("open", union.step):
            return None
        out.put(f"opened/{union.step:06d}", records.shown_to(given.result))
        union.complete(given.result)
        return Sharing(self.job, now, self) if union.finished else None

    def missing(self) -> tuple[str, ...]:
        return tuple(self.job.names[j] for j in self._union.missing())

    def tick(self, now: float, out: Effects) -> JobPhase | None:
        return self._overdue(self.job.deadlines.share, "have not given their share of a sum", now)


class Sharing(Begun):
    """Every client comes to hold every other's shares, of the very share sets introduced, and reveals its coin."""

    phase = Phase.SHARING

    def connected(self, now: float, out: Effects) -> JobPhase | None:
        if not all(member.held for member in self.job.members.values()):
            return None
        self.tossed = self.job.tossed(self.job.meet())
        return Checking(self.job, now, self)

    def missing(self) -> tuple[str, ...]:
        return tuple(name for name, member in self.job.members.items() if not member.ready)

    def tick(self, now: float, out: Effects) -> JobPhase | None:
        return self._overdue(self.job.deadlines.share, "do not hold all shares or are gone", now)


class Checking(Begun):
    """Every client's part of the check that all shares fit together is added up."""

    phase = Phase.CHECKING

    def __init__(self, job: ServerJob, now: float, before: JobPhase) -> None:
        super().__init__(job, now, before)
        met = job.meet()
        self._purpose = verification.purpose(job.plan, met.session, job.tossed(met))
        self._parts = Parts(verification.layout(job.plan), len(job.names))

    def begin(self, now: float, out: Effects) -> JobPhase | None:
        over = self.job.verified or not verification.checks(self.job.plan.code)
        return RoundsPhase(self.job, now, self) if over else None

    def sink(self, sender: str, parcel: Parcel) -> Sink | None:
        due = parcel.kind is Kind.SUM and parcel.name == self._purpose
        return self._parts.sink(self.job.index(sender)) if due else None

    def arrived(self, given: Arrived, sink: Sink, now: float, out: Effects) -> JobPhase | None:
        if (parts := self._parts.take()) is not None:
            plan, names = self.job.plan, self.job.names
            out.work.append(Work(("compare",), lambda: verification.verify(plan, names, parts)))
        return None

    def worked(self, given: Worked, now: float, out: Effects) -> JobPhase | None:
        if given.name != ("compare",):
            return None
        self.job.verified = True
        out.put("verified")
        return RoundsPhase(self.job, now, self)

    def missing(self) -> tuple[str, ...]:
        return tuple(self.job.names[j] for j in self._parts.missing())

    def tick(self, now: float, out: Effects) -> JobPhase | None:
        return self._overdue(self.job.deadlines.share, "have not given their part of the check", now)
