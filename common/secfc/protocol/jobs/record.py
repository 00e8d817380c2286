"""What is remembered of one submitted job: the signed job itself, who decided what about it, and how it ended."""

from __future__ import annotations

import base64
import enum
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from secfc.agreement import job as jobs
from secfc.agreement import submission
from secfc.agreement.submission import ID_DIGITS, Submission
from secfc.errors import InvalidInput, NoSuchJob


class State(enum.Enum):
    """Where a job stands."""

    SUBMITTED = "submitted"  # not every site has said something
    WAITING = "waiting"  # for a person's approval
    QUEUED = "queued"  # everybody agrees, and another job is running
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    REFUSED = "refused"
    CANCELLED = "cancelled"
    EXPIRED = "expired"

    @property
    def over(self) -> bool:
        """Whether nothing happens any more."""
        return self not in (State.SUBMITTED, State.WAITING, State.QUEUED, State.RUNNING)


class Verdict(enum.Enum):
    """What a site says of a job."""

    PENDING = "pending"  # a person has to decide
    ALLOWED = "allowed"
    REFUSED = "refused"


@dataclass(frozen=True)
class Decision:
    """A verdict, and the rule or person behind it."""

    verdict: Verdict
    why: str = ""


@dataclass(frozen=True)
class Record:
    """One job, as one party remembers it."""

    job: Submission
    number: int  # in the order of their coming
    state: State = State.SUBMITTED  # of an open job: see `Hub.state`
    reason: str = ""
    decisions: Mapping[str, Decision] = field(default_factory=dict)  # by site; a node remembers its own
    began: int = 0
    ended: int = 0

    @property
    def digest(self) -> bytes:
        return self.job.digest

    def decided(self, site: str, decision: Decision) -> Record:
        """The same with what a site says now."""
        return replace(self, decisions={**self.decisions, site: decision})

    def over(self, state: State, reason: str, now: float) -> Record:
        """The same, ended."""
        return replace(self, state=state, reason=reason, ended=int(now))

    def dump(self) -> bytes:
        """For a disk."""
        decisions = {site: [one.verdict.value, one.why] for site, one in self.decisions.items()}
        fields: dict[str, Any] = {"job": base64.b64encode(self.job.packed()).decode(), "number": self.number}
        fields |= {"state": self.state.value, "reason": self.reason, "decisions": decisions}
        return json.dumps(fields | {"began": self.began, "ended": self.ended}).encode()


def parse(content: bytes) -> Record:
    """What `Record.dump` made; ValueError, KeyError or TypeError for anything else."""
    fields = json.loads(content)
    decisions = {site: Decision(Verdict(verdict), why) for site, (verdict, why) in fields.pop("decisions").items()}
    job = submission.unpack(base64.b64decode(fields.pop("job"), validate=True))
    return Record(job, state=State(fields.pop("state")), decisions=decisions, **fields)


def asked(job: Submission) -> dict[str, Any]:
    """Who asked what, for the audit file: it outlives the record."""
    wanted, sites = job.wanted, list(job.wanted.sites)
    named = {"job": job.digest.hex(), "submitter": job.submitter, "token": job.token, "dataset": wanted.dataset}
    return named | {"sites": sites, "parameters": jobs.dumps(wanted.job), "expires": job.expires}


def find(records: Iterable[Record], name: str) -> Record:
    """The one whose digest begins with these digits."""
    digits = "".join(name.split()).lower()
    found = [one for one in records if one.digest.hex().startswith(digits)]
    if len(digits) < 4 or any(digit not in "0123456789abcdef" for digit in digits):
        raise InvalidInput(
            f"{name[:80]!a} does not name a job; give at least four of its digits, as secfc jobs shows them"
        )
    if not found:
        raise NoSuchJob(f"no job {digits[:ID_DIGITS]} is known here; secfc jobs lists those that are")
    if len(found) > 1:
        raise InvalidInput(f"{len(found)} jobs begin with {digits[:ID_DIGITS]}; give more digits")
    return found[0]
