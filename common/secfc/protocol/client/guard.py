"""What a client answers, whatever the server says: order and shape of requests, the site's policy, the leakage meter.

Rules for the requests of one session, which an honest server never breaks, for every run (`runrules`):

* the first request is number 1 and about all runs, so that nobody gets around where the coins begin; a run that a request is
  not about is over, and does not come back;
* numbers only rise; under one number the assignment S stays the same, and the columns and their rows too, but that a
  restarted server, which has lost the distances of earlier rounds, asks for all; under one (number, attempt) nothing changes
  at all;
* some rows of a column are asked for only if the job prunes, and not before a Lloyd round has asked for all; the meter counts
  them as the whole column. Then an assignment that came back may be asked about once more, and nothing after it;
* the number says what is asked for: k-means++ and separation open with k requests, the r-th of which knows r − 1 chosen
  rows, those of before and one of the candidates of before, and the candidates of the next, no more than the job allows; it
  asks for the candidates, or after a restart for all; separation leaves rows out once, in request k + 2; every other S is a
  partition of all rows;
* no number is beyond what `max_rounds` of the job allows;
* once a run's inertia is opened, nothing else is asked about that run;
* a job that assigns rows to an earlier job's clusters has one request, in which no row has a cluster yet.

Then the policy: `committee`, `max_requests`, `smallest_cluster`, `max_directions`, `max_assignments`, over all runs. Every
client sees every request and checks it, asked or not, because the distances are those of its rows, whoever computes them.

What a client cannot see: whether the draws of k-means++ and the assignments follow from the distances; requests that the
server shows to others only. Numbers it has not seen are counted as if they had given away all they can.
A pure machine: `kept` is what must survive the process, and be on disk before an answer leaves.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from secfc.agreement.federation import Federation
from secfc.agreement.plan import Plan
from secfc.agreement.policy import FILE, Policy
from secfc.errors import ConfigError, Malformed, OutOfTurn, Refused, WentBack
from secfc.framing import framed
from secfc.kmeans.assignments import Assignments
from secfc.kmeans.distances import Labels
from secfc.kmeans.nearest import Sizes
from secfc.privacy.leakage import Leakage, Tally
from secfc.protocol.client.runrules import RunAsked, RunRules
from secfc.protocol.messages import RoundRequest
from secfc.protocol.rounds import kind_of

_DAMAGED = "what is kept of earlier requests cannot be read; start once with --new to begin a new job with fresh shares"


@dataclass(frozen=True)
class _Asked:
    """The last request of a session."""

    runs: tuple[RunAsked, ...]  # what was asked last of every run of the job
    number: int = 0
    attempt: int = 0
    question: str = ""  # digest of responders, and of every run's assignment and columns, in hex


@dataclass(frozen=True, eq=False)
class Examined:
    """A request that may be answered, if what it gives away is not too much."""

    asked: _Asked
    meter: Leakage
    shown: tuple[tuple[Labels, tuple[int, ...]], ...]  # of every run; nothing if the server sees no distances
    frozen: bytes = b""  # names the clusters of other rows that distances are asked to

    def count(self) -> Leakage:
        """The meter once it is answered (heavy, O(m) per run)."""
        meter = self.meter
        for labels, columns in self.shown:
            meter = meter.after_frozen(self.frozen, columns) if self.frozen else meter.after(labels, columns)
        return meter


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
        self._kind, job = kind_of(plan), federation.job
        self._federation, self._plan = federation, plan
        self._rules = tuple(RunRules(job, plan.of_run(k), any_start) for k in job.runs)
        self._session = self._share_sets = b""
        self._asked = self._nothing()
        self._meter: Leakage | None = None
        self._unseen = 0  # what may have been given away besides, in ranks of the meter
        self._earlier = Tally()  # assignments and inertias of earlier sessions with these shares
        self._before = Tally()  # by shares that are none of ours any more: what `budget` keeps of these rows
        if kept:
            self._restore(kept)

    def _nothing(self) -> _Asked:
        return _Asked(tuple(RunAsked() for _ in self._rules))

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
    def tally(self) -> Tally:
        """The same with assignments and opened inertias: what `budget` is to keep."""
        return self._earlier + self._session_tally(self._asked) + Tally(self.ranks)

    def _session_tally(self, asked: _Asked) -> Tally:
        """What the answers up to a request of this session make known, over all runs."""
        return sum((rules.tally(run) for rules, run in zip(self._rules, asked.runs, strict=True)), Tally())

    @property
    def _segments(self) -> int:
        """What an upload tells apart."""
        return self._plan.segments if self._kind.shows_segments else 1

    def charge(self, before: Tally) -> None:
        """Count in what our rows have given away besides, in other jobs, whatever shares those had. Where rows are assigned
        to clusters of other rows of ours, the larger of both counts."""
        self._before, rules = before, self.policy
        if rules.max_directions is not None and min(before.ranks, self._federation.job.features) > rules.max_directions:
            self._refuse_to_begin("max_directions", rules.max_directions)
        if rules.max_assignments is not None and before.assignments >= rules.max_assignments:
            self._refuse_to_begin("max_assignments", rules.max_assignments)

    def _refuse_to_begin(self, rule: str, most: int) -> None:
        raise ConfigError(
            f"{FILE}: {rule} = {most}, and earlier jobs on these rows{self._or_clusters} may have given away as many; "
            "secfc budget shows it, and a person at this site can reset it"
        )

    @property
    def _or_clusters(self) -> str:
        """An assign job counts for the rows that made the clusters too."""
        return ", or on those that made the clusters," if self._plan.frozen else ""

    @property
    def leakage(self) -> Leakage | None:
        """All that our rows may have told so far; None before the roster is known."""
        return self._with_unseen(self._meter, self._unseen + self._before.ranks) if self._meter else None

    @property
    def given(self) -> Tally:
        """All that our rows may have given away, in this job and before."""
        return self._before + self.tally

    def text(self) -> str:
        """For progress and logs; empty before the roster is known."""
        leakage = self.leakage
        if leakage is None:
            return ""
        unseen = " at most, as some requests were not seen here" if self._unseen else ""
        before = " at most, with what earlier jobs on these rows gave away" if self._before.ranks else ""
        return f"{leakage.text()}{before or unseen}; {self.given.text()}"

    @staticmethod
    def _with_unseen(meter: Leakage, unseen: int) -> Leakage:
        return replace(meter, rank=meter.rank + unseen)

    def begin(self, session: bytes, share_sets: bytes, rows: int, key: bytes) -> None:
        """The roster is known: how many rows, and whether we knew the session or all of these share sets before."""
        if rows < self.policy.least_rows_in_all:
            least = self.policy.least_rows_in_all
            raise Refused(f"{FILE}: least_rows_in_all = {least}, and all clients together bring {rows}")
        if session != self._session:
            self._earlier += self._session_tally(self._asked)
            self._asked = self._nothing()
        same = self._meter is not None and share_sets == self._share_sets and self._meter.rows == rows
        if not same:  # the others' rows may be new; ours are not, and what was told of them stays told
            self._unseen += self._meter.rank if self._meter else 0
            self._meter = Leakage(rows, self._federation.job.features, self._segments, key)
        self._session, self._share_sets = session, share_sets

    # --- checking ------------------------------------------------------------------------------------------------------

    def examine(self, request: RoundRequest, labels: Assignments) -> Examined | None:
        """What answering a request for these labels, by run, would give away, to be counted and then admitted; None if it is
        the last request once more. Raises if no honest server asks that, or our policy forbids it; changes nothing."""
        by_run = request.by_run
        for one in by_run.values():
            self._check_committee(one)
        question = _question(by_run)
        if self._ordered(request, question):
            return None
        if self._meter is None:
            raise OutOfTurn("the server asks before the roster is known")
        runs = tuple(
            rules.next(asked, by_run[run], labels[run]) if run in by_run else rules.ended(asked, request.number)
            for run, (rules, asked) in enumerate(zip(self._rules, self._asked.runs, strict=True))
        )
        asked = _Asked(runs, request.number, request.attempt, question)
        self._check_limits(asked)
        for run in by_run:
            self._check_smallest(self._rules[run].sizes(labels[run]), len(labels[run]))
        shown = [(labels[run], one.columns) for run, one in by_run.items()] if self._kind.shows_distances else []
        return Examined(asked, self._meter, tuple(shown), self._federation.job.source.encode())

    def admit(self, examined: Examined, counted: Leakage) -> None:
        """Take note of a request and of what it gives away, or raise Refused and change nothing. Pre-condition: nothing was
        admitted since it was examined."""
        unseen = self._unseen_before(counted, examined.asked.number)
        now, most = self._with_unseen(counted, unseen + self._before.ranks), self.policy.max_directions
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
        for run, one in request.by_run.items():
            self._rules[run].check_order(self._asked.runs[run], one)
        left = {run for run, asked in enumerate(self._asked.runs) if not asked.over}
        if now[0] in (1, last[0]) and set(request.by_run) != left:
            raise OutOfTurn(f"the server leaves out runs that request {now[0]} must be about")
        return now == last

    def _check_first(self, request: RoundRequest) -> None:
        if not self.began and request.number > 1:
            raise OutOfTurn(f"the server begins with request {request.number}: it skips where the clients' coins begin")

    def _check_limits(self, asked: _Asked) -> None:
        rules, requests = self.policy, sum(run.number for run in asked.runs)
        if rules.max_requests is not None and requests > rules.max_requests:
            several = f" over {len(self._rules)} runs" if len(self._rules) > 1 else ""
            raise Refused(f"{FILE}: max_requests = {rules.max_requests}, and this is request {requests}{several}")
        given = (self._before + self._earlier + self._session_tally(asked)).assignments
        if rules.max_assignments is not None and given > rules.max_assignments:
            raise Refused(
                f"{FILE}: max_assignments = {rules.max_assignments}, and this request would make it {given}"
                f" over all jobs on these rows{self._or_clusters}"
            )

    def _check_smallest(self, sizes: Sizes, rows: int) -> None:
        least, smallest = self.policy.smallest_cluster, int(sizes[sizes > 0].min(initial=rows))
        if smallest < least:
            why = "an empty cluster takes one row, so an honest job may end here too"
            raise Refused(f"{FILE}: smallest_cluster = {least}, but one has {smallest} ({why})")

    def finish(self, version: int) -> None:
        """The job has ended with the assignment that the request `version` would have had."""
        if self._meter is not None:
            self._unseen = self._unseen_before(self._meter, version)
            runs = [rules.ended(run, version) for rules, run in zip(self._rules, self._asked.runs, strict=True)]
            self._asked = replace(self._asked, runs=tuple(runs), number=max(self._asked.number, version - 1))

    def _unseen_before(self, meter: Leakage, number: int) -> int:
        """What we did not see being given away, once the requests up to that number are behind us; in ranks."""
        missed = sum(rules.unseen(run, number) for rules, run in zip(self._rules, self._asked.runs, strict=True))
        return min(self._unseen + missed, meter.total + 1)  # more cannot be told

    # --- keeping -------------------------------------------------------------------------------------------------------

    def kept(self) -> bytes:
        """What the next process must know. Secret, as the meter's key is."""
        names = {"session": self._session.hex(), "share_sets": self._share_sets.hex(), "unseen": self._unseen}
        head = json.dumps(names | {"asked": asdict(self._asked), "earlier": asdict(self._earlier)}).encode()
        return len(head).to_bytes(4, "big") + head + (self._meter.to_bytes() if self._meter else b"")

    def _restore(self, kept: bytes) -> None:
        try:
            end = 4 + int.from_bytes(kept[:4], "big")
            head = json.loads(kept[4:end])
            asked = head["asked"]
            self._session, self._share_sets = bytes.fromhex(head["session"]), bytes.fromhex(head["share_sets"])
            self._asked = _Asked(**asked | {"runs": tuple(map(RunAsked.of, asked["runs"]))})
            self._unseen, self._earlier = int(head["unseen"]), Tally(**head.get("earlier", {}))
            self._meter = Leakage.from_bytes(kept[end:]) if kept[end:] else None
            if len(self._asked.runs) != len(self._rules):
                raise ValueError("of a job with another number of runs")
        except (ValueError, KeyError, TypeError, Malformed):
            raise ConfigError(_DAMAGED) from None


def _question(by_run: Mapping[int, RoundRequest]) -> str:
    asked = hashlib.sha256()
    for run, one in by_run.items():
        what = (one.assignment_digest, _numbers(one.columns), one.detail, *filter(None, [one.rows]))
        asked.update(framed(b"%d" % run, _numbers(one.responders), *what))
    return asked.hexdigest()


def _numbers(values: Sequence[int]) -> bytes:
    return b",".join(b"%d" % value for value in values)
