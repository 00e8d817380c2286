"""FINISHED: the result is there, and clients fetch their labels."""

from __future__ import annotations

import math

import numpy as np

from secfc.agreement.clusters import Clusters, name_of
from secfc.agreement.federation import SERVER
from secfc.errors import JobFailed, Malformed, OutOfTurn, SecfcError
from secfc.kmeans.fixedpoint import in_data_units
from secfc.privacy import identifiers, masks
from secfc.privacy.centers import Centers, needed
from secfc.privacy.gathering import Gathering
from secfc.privacy.identifiers import Ids
from secfc.protocol import messages
from secfc.protocol.effects import Arrived, Effects
from secfc.protocol.messages import Phase
from secfc.protocol.parcels import Kind, Parcel
from secfc.protocol.server.job import ServerJob
from secfc.protocol.server.phases.base import Begun, JobPhase
from secfc.protocol.transfer import Gathered, Here, Sink


class Finished(Begun):
    """The result is there; clients fetch their labels, and say what they wish to say."""

    phase = Phase.FINISHED

    def __init__(self, job: ServerJob, now: float, before: JobPhase) -> None:
        super().__init__(job, now, before)
        if self.asking is None or not self.asking.records:
            raise JobFailed("a job cannot finish without a round")
        self._asking = self.asking
        self.published: dict[str, Ids] = {}
        self._centers = self._gathering()
        self._sinks: dict[tuple[str, Kind], Gathered] = {}

    @property
    def labels(self) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
        """The final assignment of the run that is chosen."""
        return self._asking.runs.all[self._asking.runs.chosen].labels

    def reported(self, sender: str, report: messages.Report, now: float, out: Effects) -> JobPhase | None:
        match report:
            case messages.Done():
                self.job.members[sender].done = True
                out.put(f"done/{sender}")
            case messages.Refused():  # nothing is asked of it any more
                pass
            case _:
                return super().reported(sender, report, now, out)
        return None

    def missing(self) -> tuple[str, ...]:
        return tuple(name for name, member in self.job.members.items() if not member.done)

    def fail(self, error: SecfcError, now: float) -> JobPhase:
        return self

    # --- what clients give of their own free will --------------------------------------------------------------------------

    def sink(self, sender: str, parcel: Parcel) -> Sink | None:
        match parcel.kind:
            case Kind.IDS if self.union is not None:
                most = identifiers.ID_BYTES * self.rows
            case Kind.CENTERS if self._centers is not None and parcel.name == self._centers.digest:
                if self.job.index(sender) in self._centers.answered:
                    return Here()  # the first counts
                most = self._centers.most
            case _:
                return None
        return self._sinks.setdefault((sender, parcel.kind), Gathered(most))

    def arrived(self, given: Arrived, sink: Sink, now: float, out: Effects) -> JobPhase | None:
        kind, data = given.parcel.kind, self._sinks.pop((given.sender, given.parcel.kind)).data
        if kind is Kind.IDS:
            self.published[given.sender] = self._owned(data)
            out.put(f"published/{given.sender}", data)
        elif self._centers is not None:
            self._centers.take(self.job.index(given.sender), data)
            out.put(f"centers/{given.sender}", data)
        return None

    def _owned(self, data: bytes) -> Ids:
        if len(data) % identifiers.ID_BYTES or self.union is None:
            raise Malformed("published IDs have 16 bytes each")
        ids = np.frombuffer(data, dtype="<u8").astype(np.uint64).reshape(-1, 2)
        self.union.labels(ids, self.labels)
        return ids

    def restore(self, sender: str, kind: str, data: bytes) -> None:
        """What an earlier process of the server was given."""
        if kind == "published":
            self.published[sender] = self._owned(data)
        elif self._centers is not None:
            self._centers.take(self.job.index(sender), data)

    def _gathering(self) -> Gathering | None:
        job = self.job
        if job.federation.job.centers != SERVER:
            return None
        return Gathering(job.federation, job.plan, self.labels, job.meet().introductions)

    def opened_centers(self) -> Centers:
        """The centres, from what clients have given; raises JobFailed, saying who is lacking, or Malformed."""
        if self._centers is None:
            raise OutOfTurn("the centres of this job are not for the server")
        if not self._centers.answered:
            raise JobFailed(f"centres were not opened: 0 of {needed(self.job.plan.code)} needed clients consent")
        return self._centers.opened_centers()

    @property
    def clusters(self) -> Clusters | None:
        """What all clients have agreed to keep for later rows, if they have."""
        if not self.job.keeps_clusters:
            return None
        digest, met = masks.assignment_digest(self.labels.astype("<i4").tobytes()), self.job.meet()
        sizes = np.bincount(self.labels, minlength=self._asking.runs.all[self._asking.runs.chosen].clusters)
        return Clusters.found(self.job.federation, self.job.plan, name_of(met.session, digest), sizes.tolist())

    def told(self) -> messages.Finished:
        run = self._asking.runs.chosen
        chosen = self._asking.runs.all[run]
        loss = math.nan if chosen.inertia is None else in_data_units(chosen.inertia, self.job.plan.wishes.precision)
        return messages.Finished(self._asking.version, chosen.rounds, chosen.converged, loss, run)
