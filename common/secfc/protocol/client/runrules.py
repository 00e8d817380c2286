"""The rules for the requests about one run, which an honest server never breaks. Pure: from what was asked last and what is
asked now to what is noted of it. What concerns all runs is the `guard`'s."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from secfc.agreement.job import Job
from secfc.agreement.plan import Plan
from secfc.agreement.policy import assignments_given, seeding_requests
from secfc.errors import Malformed, OutOfTurn
from secfc.kmeans import rowsets
from secfc.kmeans.distances import UNASSIGNED, Labels
from secfc.kmeans.nearest import Sizes
from secfc.kmeans.seeding import chosen_rows
from secfc.privacy.leakage import Tally
from secfc.protocol.messages import RoundRequest
from secfc.protocol.rounds import kind_of


@dataclass(frozen=True)
class RunAsked:
    """What was asked last of a run in a session; digests in hex."""

    number: int = 0
    assignment: str = ""
    columns: tuple[int, ...] = ()
    seeds: tuple[int, ...] = ()  # the single rows of the seeding: number − 1 that are chosen, in order, then candidates
    inertia: bool = False  # whether it opens the inertia, and gives no assignment
    over: bool = False  # a later request was not about this run, or the job has ended
    rows: str = ""  # digest of which rows of the columns; empty: all of them
    again: bool = False  # whether it is about the assignment of the request before, which then is the last one

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> RunAsked:
        """From plain values, as `kept` has them."""
        return cls(**{**fields, "columns": tuple(fields["columns"]), "seeds": tuple(fields["seeds"])})


class RunRules:
    """What may be asked of a run with the plan's number of clusters. `any_start`: any assignment may be asked about."""

    def __init__(self, job: Job, plan: Plan, any_start: bool) -> None:
        self._job, self._plan, self._any_start = job, plan, any_start
        self._k, self._kind = plan.wishes.clusters, kind_of(plan)
        self._seeds_due = 0 if job.seeding == "random" else self._k

    def tally(self, asked: RunAsked) -> Tally:
        """What the answers up to a request make known. Counted by its number: attempts count once, and requests that we did
        not see count too."""
        given = assignments_given(self._job, self._k, asked.number - (asked.inertia or asked.again))
        return Tally(0, given, int(asked.inertia))

    def sizes(self, labels: Labels) -> Sizes:
        """Rows of every cluster, and while seeding of every candidate."""
        if self._plan.frozen:
            return np.array(self._plan.frozen, dtype=np.int64)
        return np.bincount(labels[labels != UNASSIGNED], minlength=self._k)

    def unseen(self, asked: RunAsked, number: int) -> int:
        """What the requests between the last one and that number may have given away, in ranks of the meter."""
        if asked.over or not self._kind.shows_distances:
            return 0
        first = asked.number + 1
        missed = max(number - first, 0)
        seeds = min(max(self._seeds_due + 1 - first, 0), missed)
        return seeds * self._plan.candidates + (missed - seeds) * self._k

    def ended(self, asked: RunAsked, number: int) -> RunAsked:
        """The request of that number is not about this run, or would be the job's next. One that we did not see being asked
        is taken to have gone on until then, and to have opened what the kind opens."""
        if asked.over or asked.number >= number - 1:
            return replace(asked, over=True)
        opened = not self._kind.shows_distances and not self._plan.frozen
        return replace(asked, over=True, number=number - 1, inertia=opened)

    # --- checking ------------------------------------------------------------------------------------------------------

    def check_order(self, asked: RunAsked, request: RoundRequest) -> None:
        """Raise OutOfTurn if it does not go on from what was asked last."""
        if asked.over:
            raise OutOfTurn(f"the server goes on with run {request.run}, which was over")
        if request.number > asked.number and asked.inertia:
            raise OutOfTurn("the server continues although the inertia was opened, which ends every honest job")
        if request.number > asked.number and asked.again:
            raise OutOfTurn("the server continues although the assignment came twice, which ends every honest job")
        if request.number == asked.number and request.assignment_digest.hex() != asked.assignment:
            raise OutOfTurn(f"the server repeats request {request.number} with another assignment")

    def next(self, asked: RunAsked, request: RoundRequest, labels: Labels) -> RunAsked:
        """What is noted of a request in the right order. Raises if no honest server makes it."""
        self._check_columns(asked, request, self.sizes(labels))
        self._check_rows(request, labels)
        if self._plan.frozen:
            self._check_assigning(request, labels)
        again = self._again(asked, request)
        seeds = () if self._any_start else self._check_shape(asked, request.number, labels, again)
        digest, inertia = request.assignment_digest.hex(), self._kind.opens_inertia(request)
        rows = _digest(request.rows)
        return RunAsked(request.number, digest, request.columns, seeds, inertia, rows=rows, again=again)

    @property
    def _prunes(self) -> bool:
        """Whether some rows of a column may be asked for."""
        return self._job.prune and self._kind.shows_distances and not self._plan.frozen

    def _again(self, asked: RunAsked, request: RoundRequest) -> bool:
        """Whether a request is about an assignment that has come back: distances that were left out before are asked for."""
        if request.number == asked.number:
            return asked.again
        of_lloyd = request.number > seeding_requests(self._job, self._k) + 1
        follows = asked.number == request.number - 1 and asked.assignment == request.assignment_digest.hex()
        return self._prunes and not self._any_start and of_lloyd and follows

    def _measures(self, asked: RunAsked, number: int, again: bool) -> bool:
        """Whether a request may be one more than there are rounds: for the inertia, or for the indices of an assignment that
        came back; whether it did, nobody can tell who has not seen the request before."""
        return not self._kind.shows_distances or again or (self._prunes and asked.number != number - 1)

    def _check_rows(self, request: RoundRequest, labels: Labels) -> None:
        """Some rows may be asked for once a Lloyd round has asked for all."""
        if not request.rows:
            return
        first = seeding_requests(self._job, self._k) + 1
        if not self._prunes or (request.number <= first and not self._any_start):
            raise OutOfTurn("the server asks for some rows of a column, where all are asked for in this job")
        rowsets.decode(request.rows, request.columns, labels)

    def _check_columns(self, asked: RunAsked, request: RoundRequest, sizes: Sizes) -> None:
        columns, asked_now = request.columns, (request.columns, _digest(request.rows))
        if list(columns) != sorted(set(columns)) or not all(0 <= h < len(sizes) and sizes[h] for h in columns):
            raise Malformed(
                "the server asks for impossible columns: they must be clusters with rows, each once, in order"
            )
        whole = tuple(np.flatnonzero(sizes).tolist())
        if request.number == asked.number and asked_now not in ((asked.columns, asked.rows), (whole, "")):
            raise OutOfTurn(f"the server repeats request {request.number} with other columns")
        newest = tuple(h for h in whole if h >= request.number - 1)
        if request.number <= self._seeds_due and columns not in (newest, whole):
            raise Malformed("while seeding, the distances to the newest row are asked for, or to all")

    def _check_assigning(self, request: RoundRequest, labels: Labels) -> None:
        if request.number > 1 or self._kind.opens_inertia(request):
            raise OutOfTurn(
                "rows are assigned to an earlier job's clusters in one request, and nothing more is answered"
            )
        if (labels != UNASSIGNED).any():
            raise Malformed("the assignment puts rows into an earlier job's clusters, which stay as they are")

    def _check_shape(self, asked: RunAsked, number: int, labels: Labels, again: bool) -> tuple[int, ...]:
        """Whether an assignment may have this number; returns the rows the seeding has chosen."""
        due = self._seeds_due
        measured = int(self._measures(asked, number, again))
        if number > seeding_requests(self._job, self._k) + self._job.max_rounds + measured:
            raise OutOfTurn(f"request {number} is beyond max_rounds = {self._job.max_rounds} of federation.toml")
        if number > due:
            leaves_out = self._plan.frozen or (self._job.seeding == "separation" and number == due + 2)
            if not leaves_out and (labels == UNASSIGNED).any():
                raise Malformed("the assignment leaves rows out; only a partition of all rows is answered here")
            if labels.max() >= self._k:
                raise Malformed(f"the assignment names a cluster beyond {self._k - 1}")
            return asked.seeds
        return self._check_seeds(asked, number, labels)

    def _check_seeds(self, asked: RunAsked, number: int, labels: Labels) -> tuple[int, ...]:
        seeds = tuple(chosen_rows(labels))
        most = number - 1 + (self._plan.candidates if number > 1 else 1)
        if not number <= len(seeds) <= most or labels[list(seeds)].tolist() != list(range(len(seeds))):
            known = f"{number} single rows" if most == number else f"{number} to {most} single rows"
            raise Malformed(f"request {number} of the seeding must know {known} and nothing else")
        settled = max(asked.number - 1, 0)  # by the last request we have seen, which had candidates besides
        before, candidates = asked.seeds[:settled], asked.seeds[settled:]
        if seeds[:settled] != before or (candidates and seeds[settled] not in candidates):
            raise OutOfTurn("the server replaces seeds that were chosen before")
        return seeds


def _digest(rows: bytes) -> str:
    """What stands for the rows of a request; empty: all of them."""
    return hashlib.sha256(rows).hexdigest() if rows else ""
