"""What a client answers, whatever the server says: order and shape of requests, the site's policy, the leakage meter.

Rules for the requests of one session, which an honest server never breaks:

* the first request is number 1, so that nobody gets around where the coins begin;
* numbers only rise; under one number the assignment S stays the same, and the columns too, but that a restarted server,
  which has lost the distances of earlier rounds, asks for all; under one (number, attempt) nothing changes at all;
* the number says what is asked for: k-means++ and separation open with k requests, the r-th of which knows r − 1 chosen
  rows, those of before and one of the candidates of before, and the candidates of the next, no more than the job allows; it
  asks for the candidates, or after a restart for all; separation leaves rows out once, in request k + 2; every other S is a
  partition of all rows;
* no number is beyond what `max_rounds` of the job allows.

Then the policy: `committee`, `max_requests`, `smallest_cluster`, `max_directions`. Every client sees every request and checks
it, asked or not, because the distances are those of its rows, whoever computes them.

What a client cannot see: whether the draws of k-means++ and the assignments follow from the distances; requests that the
server shows to others only. Numbers it has not seen are counted as if they had given away all they can.
A pure machine: `kept` is what must survive the process, and be on disk before an answer leaves.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
import numpy.typing as npt

from secfc.agreement.federation import Federation
from secfc.agreement.plan import Plan
from secfc.agreement.policy import FILE, Policy, seeding_requests
from secfc.errors import ConfigError, Malformed, OutOfTurn, Refused, WentBack
from secfc.framing import framed
from secfc.kmeans.distances import UNASSIGNED, Labels
from secfc.kmeans.seeding import chosen_rows
from secfc.privacy.leakage import Leakage
from secfc.protocol.messages import RoundRequest
from secfc.protocol.rounds import kind_of

Sizes = npt.NDArray[np.int64]
_DAMAGED = "what is kept of earlier requests cannot be read; start once with --new to begin a new job with fresh shares"


@dataclass(frozen=True)
class _Asked:
    """The last request of a session; digests in hex."""

    number: int = 0
    attempt: int = 0
    question: str = ""  # of responders, assignment and columns
    assignment: str = ""
    columns: tuple[int, ...] = ()
    seeds: tuple[int, ...] = ()  # the single rows of the seeding: number − 1 that are chosen, in order, then candidates


@dataclass(frozen=True, eq=False)
class Examined:
    """A request that may be answered, if what it gives away is not too much."""

    asked: _Asked
    meter: Leakage
    labels: Labels | None  # None: the server sees no distances

    def count(self) -> Leakage:
        """The meter once it is answered (heavy, O(m))."""
        return self.meter if self.labels is None else self.meter.after(self.labels, self.asked.columns)


class Guard:
    """See the module's docstring."""

    def __init__(
        self,
        federation: Federation,
        plan: Plan,
        policy: Policy | None = None,
        kept: bytes = b"",
        *,
        any_start: bool = False,
    ) -> None:
        """`kept`: what an earlier process had in `kept`, if there was one. `any_start`: a job may begin with any assignment
        and ask for what it likes; in one process only."""
        self.policy = policy or Policy()
        self._any_start, self._shows = any_start, kind_of(plan).shows_distances
        self._federation, self._plan = federation, plan
        self._session = self._share_sets = b""
        self._asked = _Asked()
        self._meter: Leakage | None = None
        self._unseen = 0  # what may have been given away besides, in ranks of the meter
        self._before = 0  # the same, by shares that are none of ours any more: what `budget` keeps of these rows
        if kept:
            self._restore(kept)

    @property
    def began(self) -> bool:
        """Whether something was asked in the session we know."""
        return self._asked.number > 0

    @property
    def ranks(self) -> int:
        """All that these shares may have told so far, in ranks of a meter of whole rows: open uploads tell as much of every
        segment."""
        return self._segments * (self._unseen + (self._meter.rank if self._meter else 0))

    @property
    def _segments(self) -> int:
        """What an upload tells apart."""
        return self._plan.segments if kind_of(self._plan).shows_segments else 1

    def charge(self, ranks: int) -> None:
        """Count in what our rows have given away besides, in other jobs, whatever shares those had."""
        self._before, most = ranks, self.policy.max_directions
        if most is not None and min(ranks, self._federation.job.features) > most:
            raise ConfigError(
                f"{FILE}: max_directions = {most}, and earlier jobs on these rows may have given away as many; "
                "secfc budget shows it, and a person at this site can reset it"
            )

    @property
    def leakage(self) -> Leakage | None:
        """All that our rows may have told so far; None before the roster is known."""
        return self._with_unseen(self._meter, self._unseen + self._before) if self._meter else None

    def text(self) -> str:
        """For progress and logs; empty before the roster is known."""
        leakage = self.leakage
        if leakage is None:
            return ""
        unseen = " at most, as some requests were not seen here" if self._unseen else ""
        before = " at most, with what earlier jobs on these rows gave away" if self._before else ""
        return leakage.text() + (before or unseen)

    @staticmethod
    def _with_unseen(meter: Leakage, unseen: int) -> Leakage:
        return replace(meter, rank=meter.rank + unseen)

    def begin(self, session: bytes, share_sets: bytes, rows: int, key: bytes) -> None:
        """The roster is known: how many rows, and whether we knew the session or all of these share sets before."""
        if session != self._session:
            self._asked = _Asked()
        same = self._meter is not None and share_sets == self._share_sets and self._meter.rows == rows
        if not same:  # the others' rows may be new; ours are not, and what was told of them stays told
            self._unseen += self._meter.rank if self._meter else 0
            self._meter = Leakage(rows, self._federation.job.features, self._segments, key)
        self._session, self._share_sets = session, share_sets

    # --- checking ------------------------------------------------------------------------------------------------------

    def examine(self, request: RoundRequest, labels: Labels) -> Examined | None:
        """What answering a request for these labels would give away, to be counted and then admitted; None if it is the last
        request once more. Raises if no honest server asks that, or our policy forbids it; changes nothing."""
        self._check_committee(request)
        question = _question(request)
        if self._ordered(request, question):
            return None
        if self._meter is None:
            raise OutOfTurn("the server asks before the roster is known")
        sizes = np.bincount(labels[labels != UNASSIGNED], minlength=self._federation.job.k)
        self._check_columns(request, sizes)
        seeds = () if self._any_start else self._check_shape(request.number, labels)
        self._check_limits(request.number, labels, sizes)
        digest = request.assignment_digest.hex()
        asked = _Asked(request.number, request.attempt, question, digest, request.columns, seeds)
        return Examined(asked, self._meter, labels if self._shows else None)

    def admit(self, examined: Examined, counted: Leakage) -> None:
        """Take note of a request and of what it gives away, or raise Refused and change nothing. Pre-condition: nothing was
        admitted since it was examined."""
        unseen = self._unseen_before(counted, examined.asked.number)
        now, most = self._with_unseen(counted, unseen + self._before), self.policy.max_directions
        if most is not None and now.count > most:
            raise Refused(f"{FILE}: max_directions = {most}, and this request would make it {now.count} of {now.total}")
        self._meter, self._unseen, self._asked = counted, unseen, examined.asked

    def _check_committee(self, request: RoundRequest) -> None:
        """Who may compare, whoever is asked: with the server, one of them sees the distances of our rows too. A request that
        we know is checked as well, for the policy may be a new one."""
        allowed, members = self.policy.committee, kind_of(self._plan).committee(self._plan, request)
        others = [name for name in map(self._federation.roster.__getitem__, members) if name not in allowed]
        if allowed and others:
            raise Refused(f"{FILE}: committee = {', '.join(allowed)}, but {', '.join(others)} would compare")

    def _ordered(self, request: RoundRequest, question: str) -> bool:
        """Whether it is the last request once more; raises if it does not go on from there."""
        now, last = (request.number, request.attempt), (self._asked.number, self._asked.attempt)
        if now < last or request.number < 1:
            raise WentBack(
                "the server goes back to an earlier request, and this client answers none twice; if its journal is an old "
                "copy, this job is over: begin a new one with secfc-server --new, then start the clients again"
            )
        self._check_first(request)
        if now == last and question != self._asked.question:
            raise OutOfTurn(f"the server asks something else than before as request {now[0]}, attempt {now[1]}")
        if now[0] == last[0] and request.assignment_digest.hex() != self._asked.assignment:
            raise OutOfTurn(f"the server repeats request {now[0]} with another assignment")
        return now == last

    def _check_first(self, request: RoundRequest) -> None:
        if not self.began and request.number > 1:
            raise OutOfTurn(f"the server begins with request {request.number}: it skips where the clients' coins begin")

    def _check_columns(self, request: RoundRequest, sizes: Sizes) -> None:
        columns = request.columns
        if list(columns) != sorted(set(columns)) or not all(0 <= h < len(sizes) and sizes[h] for h in columns):
            raise Malformed(
                "the server asks for impossible columns: they must be clusters with rows, each once, in order"
            )
        whole = tuple(np.flatnonzero(sizes).tolist())
        if request.number == self._asked.number and columns not in (self._asked.columns, whole):
            raise OutOfTurn(f"the server repeats request {request.number} with other columns")
        newest = tuple(h for h in whole if h >= request.number - 1)
        if request.number <= self._seeds_due and columns not in (newest, whole):
            raise Malformed("while seeding, the distances to the newest row are asked for, or to all")

    @property
    def _seeds_due(self) -> int:
        return 0 if self._federation.job.seeding == "random" else self._federation.job.k

    def _check_shape(self, number: int, labels: Labels) -> tuple[int, ...]:
        """Whether an assignment may have this number; returns the rows the seeding has chosen."""
        due = self._seeds_due
        measured = 0 if self._shows else 1  # one request more, for the inertia
        if number > seeding_requests(self._federation) + self._federation.job.max_rounds + measured:
            raise OutOfTurn(
                f"request {number} is beyond max_rounds = {self._federation.job.max_rounds} of federation.toml"
            )
        if number > due:
            leaves_out = self._federation.job.seeding == "separation" and number == due + 2
            if not leaves_out and (labels == UNASSIGNED).any():
                raise Malformed("the assignment leaves rows out; only a partition of all rows is answered here")
            if labels.max() >= self._federation.job.k:
                raise Malformed(f"the assignment names a cluster beyond {self._federation.job.k - 1}")
            return self._asked.seeds
        return self._check_seeds(number, labels)

    def _check_seeds(self, number: int, labels: Labels) -> tuple[int, ...]:
        seeds = tuple(chosen_rows(labels))
        most = number - 1 + (self._plan.candidates if number > 1 else 1)
        if not number <= len(seeds) <= most or labels[list(seeds)].tolist() != list(range(len(seeds))):
            known = f"{number} single rows" if most == number else f"{number} to {most} single rows"
            raise Malformed(f"request {number} of the seeding must know {known} and nothing else")
        settled = max(self._asked.number - 1, 0)  # by the last request we have seen, which had candidates besides
        before, candidates = self._asked.seeds[:settled], self._asked.seeds[settled:]
        if seeds[:settled] != before or (candidates and seeds[settled] not in candidates):
            raise OutOfTurn("the server exchanges rows that the seeding has chosen before")
        return seeds

    def _check_limits(self, number: int, labels: Labels, sizes: Sizes) -> None:
        rules = self.policy
        if rules.max_requests is not None and number > rules.max_requests:
            raise Refused(f"{FILE}: max_requests = {rules.max_requests}, and this is request {number}")
        smallest = int(sizes[sizes > 0].min(initial=len(labels)))
        if smallest < rules.smallest_cluster:
            why = "an empty cluster takes one row, so an honest job may end here too"
            raise Refused(f"{FILE}: smallest_cluster = {rules.smallest_cluster}, but one has {smallest} ({why})")

    def finish(self, version: int) -> None:
        """The job has ended with the assignment that the request `version` would have had."""
        if self._meter is not None:
            self._unseen = self._unseen_before(self._meter, version)
            self._asked = replace(self._asked, number=max(self._asked.number, version - 1))

    def _unseen_before(self, meter: Leakage, number: int) -> int:
        """What we did not see being given away, once the requests up to that number are behind us; in ranks."""
        first, due = self._asked.number + 1, self._seeds_due
        missed = max(number - first, 0) if self._shows else 0
        seeds = min(max(due + 1 - first, 0), missed)
        most = self._unseen + seeds * self._plan.candidates + (missed - seeds) * self._federation.job.k
        return min(most, meter.total + 1)  # more cannot be told

    # --- keeping -------------------------------------------------------------------------------------------------------

    def kept(self) -> bytes:
        """What the next process must know. Secret, as the meter's key is."""
        names = {"session": self._session.hex(), "share_sets": self._share_sets.hex(), "unseen": self._unseen}
        head = json.dumps(names | {"asked": asdict(self._asked)}).encode()
        return len(head).to_bytes(4, "big") + head + (self._meter.to_bytes() if self._meter else b"")

    def _restore(self, kept: bytes) -> None:
        try:
            end = 4 + int.from_bytes(kept[:4], "big")
            head = json.loads(kept[4:end])
            asked = head["asked"]
            self._session, self._share_sets = bytes.fromhex(head["session"]), bytes.fromhex(head["share_sets"])
            self._asked = _Asked(**asked | {name: tuple(asked[name]) for name in ("columns", "seeds")})
            self._unseen = int(head["unseen"])
            self._meter = Leakage.from_bytes(kept[end:]) if kept[end:] else None
        except (ValueError, KeyError, TypeError, Malformed):
            raise ConfigError(_DAMAGED) from None


def _question(request: RoundRequest) -> str:
    return hashlib.sha256(
        framed(_numbers(request.responders), request.assignment_digest, _numbers(request.columns), request.detail)
    ).hexdigest()


def _numbers(values: Sequence[int]) -> bytes:
    return b",".join(b"%d" % value for value in values)
