"""The clusters of a finished job that new rows can be assigned to: what is public about them, and which jobs may use them.

A name says which session found them and who is in them, so parties that were shown different ends have different names, and
agree on no job. What is secret, a client's share of every cluster's sum, is kept by that client only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from secfc.agreement import plan as plans
from secfc.agreement.federation import Federation
from secfc.agreement.job import ASSIGN
from secfc.agreement.plan import Plan
from secfc.errors import ConfigError
from secfc.framing import framed

MOST_KEPT = 16  # jobs whose clusters one party keeps; the oldest give way
LAST = "last"


def name_of(session: bytes, assignment: bytes) -> str:
    """Names clusters by their session and the digest of their final assignment."""
    return hashlib.sha256(framed(b"secfc/v1/clusters", session, assignment)).hexdigest()[:32]


@dataclass(frozen=True)
class Clusters:
    """Clusters that a job has found: by which clients (in their order) with which t and ℓ, how values were made whole
    numbers (`Job.measures`), and the rows of each."""

    name: str
    roster: tuple[str, ...]
    privacy: int
    segments: int
    measures: str
    sizes: tuple[int, ...]

    @classmethod
    def found(cls, federation: Federation, plan: Plan, name: str, sizes: Sequence[int]) -> Clusters:
        """Those of a job that has just ended."""
        measures = federation.job.measures().hex()
        return cls(name, federation.roster, federation.privacy, plan.segments, measures, tuple(map(int, sizes)))

    def fields(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Clusters:
        """From `fields`. Raises ValueError, KeyError or TypeError for anything else."""
        names, sizes = fields["roster"], fields["sizes"]
        if not all(isinstance(one, str) for one in names) or not all(isinstance(s, int) and s >= 0 for s in sizes):
            raise ValueError("not clusters")
        numbers = int(fields["privacy"]), int(fields["segments"])
        return cls(str(fields["name"]), tuple(names), *numbers, str(fields["measures"]), tuple(sizes))

    def federation(self, agreed: Federation) -> Federation:
        """The federation with the job that assigns rows to these clusters: its own, or the one that follows from a job
        that finds clusters."""
        job = agreed.job
        return agreed if job.kind == ASSIGN else replace(agreed, job=job.assigning(self.name, len(self.sizes)))

    def plan(self, agreed: Federation) -> Plan:
        """The plan of a job that assigns rows to these clusters. Raises ConfigError, in one line, if it cannot use them."""
        job, whose = agreed.job, f"the clusters {self.name}"
        if self.roster != agreed.roster:
            raise ConfigError(
                f"{whose} were found by {', '.join(self.roster)[:300]}, not by the clients of this federation.toml; only"
                " the same clients, in the same order, hold shares of them"
            )
        if self.measures != job.measures().hex():
            raise ConfigError(
                f"{whose} were found with other features, scale, bound or precision than the job has; give it those of"
                " the job that found them"
            )
        if job.k != len(self.sizes):
            raise ConfigError(
                f"{whose} are {len(self.sizes)}, and the job says k = {job.k}; give it k = {len(self.sizes)}"
            )
        made = plans.of(agreed)
        if (made.wishes.privacy, made.segments) != (self.privacy, self.segments):
            raise ConfigError(
                f"{whose} were found with privacy = {self.privacy} and segments = {self.segments}, and the job has privacy ="
                f" {made.wishes.privacy} and segments = {made.segments}; give it the same"
            )
        return made.assigning_to(self.sizes)


def contradiction(agreed: Federation, wanted: str | None) -> None:
    """Raise ConfigError if --assign-from names other clusters than the job."""
    job = agreed.job
    if wanted is not None and job.kind == ASSIGN and wanted not in (LAST, job.source):
        raise ConfigError(f"--assign-from {wanted[:40]} contradicts from = {job.source} of the job; leave one out")
