"""Submitted jobs: the hub and the nodes as machines, with every party killed between any two effects."""

from __future__ import annotations

import dataclasses
import random
import time
from collections import Counter

import pytest

from secfc.agreement import job as jobs
from secfc.agreement.submission import Submission
from secfc.errors import InvalidInput, NoSuchJob, OutOfTurn, PeerError, WrongSender
from secfc.pki import submitting
from secfc.protocol.effects import Drop, Effects, Fact, Put, Tick
from secfc.protocol.jobs import hub as hubs
from secfc.protocol.jobs import node as nodes
from secfc.protocol.jobs import record
from secfc.protocol.jobs.hub import Cancelled, Decided, Hub, Submitted
from secfc.protocol.jobs.node import Approved, Decide, Node, Offer, Offered
from secfc.protocol.jobs.record import Decision, Record, State, Verdict
from tests.jobs import JOB, Kits, signed, standing
from tests.parties import unchanged

ROSTER = ("a", "b", "c")
ALLOWED, PENDING = Decision(Verdict.ALLOWED, "rule x"), Decision(Verdict.PENDING, "no rule")


@pytest.fixture(scope="module")
def kits(tmp_path_factory: pytest.TempPathFactory) -> Kits:
    return Kits(tmp_path_factory.mktemp("jobs") / "kits")


@pytest.fixture(scope="module")
def start(kits: Kits) -> float:
    return time.time()


class Disk(dict[str, bytes]):
    def carry_out(self, out: Effects) -> None:
        for one in out.keep:
            if isinstance(one, Put):
                self[one.key] = bytes(one.value)
            elif isinstance(one, Drop):
                self.pop(one.key, None)


class World:
    """A hub and its nodes. Whoever is killed loses all but its disk; messages may be lost."""

    def __init__(self, kits: Kits, judge: dict[str, Decision], now: float, seed: int = 0) -> None:
        self.kits, self.judge, self.now, self.chance = kits, judge, now, random.Random(seed)
        self.verify = {name: submitting.verifier(kits[name]) for name in ("server", *ROSTER)}
        self.disks = {name: Disk() for name in ("server", *ROSTER)}
        self.hub, self.nodes = self._hub(), {name: self._node(name) for name in ROSTER}
        self.audit: dict[str, list[Fact]] = {name: [] for name in ("server", *ROSTER)}  # on disk too
        self.began: Counter[tuple[str, bytes]] = Counter()  # first beginnings, of a job at a site or the server
        self.risk = 0.0

    def _hub(self) -> Hub:
        return Hub(standing(), self.verify["server"], kept=self.disks["server"])

    def _node(self, name: str) -> Node:
        return Node(name, standing(), self.verify[name], lambda _: self.judge[name], kept=self.disks[name])

    def restart(self, name: str) -> None:
        if name == "server":
            self.hub = self._hub()
        else:
            self.nodes[name] = self._node(name)

    def give(self, name: str, given: object) -> None:
        """An input with its effects; at risk, the party dies before or after they are recorded or kept, or before they are
        sent."""
        machine = self.hub if name == "server" else self.nodes[name]
        running = {one.digest for one in machine.records.values() if one.state is State.RUNNING}
        out = machine.handle(given, self.now)  # type: ignore[arg-type]
        fate = self.chance.random() / self.risk if self.risk else 1.0
        if fate < 0.2:
            self.restart(name)
            return
        self.audit[name] += out.audit
        if fate < 0.35:
            self.restart(name)
            return
        self.disks[name].carry_out(out)
        for one in machine.records.values():
            if one.state is State.RUNNING and one.digest not in running:
                self.began[name, one.digest] += 1
        if fate < 0.6:
            self.restart(name)
            return
        for send in out.send:
            if fate > 0.8:
                self.give("server", Decided(name, send.message.digest, send.message.decision))

    def offers(self, site: str) -> list[Offer]:
        return [Offer(one.job, one.state is State.RUNNING, one.decisions.get(site)) for one in self.hub.offers(site)]

    def step(self) -> None:
        name = self.chance.choice(ROSTER)
        self.give(name, Offered(self.offers(name)))
        self.give(self.chance.choice(("server", *ROSTER)), Tick())
        running = self.hub.running
        if running is not None and self.chance.random() < 0.3:
            site = self.chance.choice(ROSTER)
            if self.nodes[site].due == running.digest:
                self.give(site, nodes.Ended(running.digest, State.FINISHED))
        if running is not None and all(self.state(site, running.digest) is State.FINISHED for site in ROSTER):
            self.give("server", hubs.Ended(running.digest, State.FINISHED, "", b"{}"))

    def state(self, name: str, digest: bytes) -> State | None:
        machine = self.hub if name == "server" else self.nodes[name]
        one = machine.records.get(digest)
        return one.state if one else None

    def told(self, name: str, offers: list[Offer]) -> list[Decision]:
        """What a node tells the server after an offer."""
        out = self.nodes[name].handle(Offered(offers), self.now)
        self.disks[name].carry_out(out)
        return [send.message.decision for send in out.send if isinstance(send.message, Decide)]


def world(kits: Kits, now: float, seed: int = 0, **judge: Decision) -> World:
    return World(kits, {name: judge.get(name, ALLOWED) for name in ROSTER}, now, seed)


def job(kits: Kits, now: float, token: str = "t", **wanted: object) -> Submission:
    return signed(kits["analyst"], token, clock=now, **wanted)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 60))])
def test_jobs_run_once_whoever_is_killed_whenever(kits: Kits, start: float, seed: int) -> None:
    made = world(kits, start, seed, b=PENDING)
    jobs = [job(kits, start, f"t{number}") for number in range(3)]
    made.risk, approved = 0.5, set()
    for turn in range(600):
        one = jobs[min(turn // 20, 2)]
        if made.hub.of_token("analyst", one.token) is None or turn % 50 == 0:  # the submitter tries until it is taken
            made.give("server", Submitted("analyst", one))
        waiting = [known for known in made.nodes["b"].records.values() if made.nodes["b"].decision(known) == PENDING]
        if waiting and made.chance.random() < 0.1 and waiting[0].state is State.SUBMITTED:
            made.give("b", Approved(waiting[0].digest, "nora"))
            approved.add(waiting[0].digest)
        for site in ROSTER:
            due = made.nodes[site].due
            assert due is None or made.nodes[site].decision(made.nodes[site].records[due]).verdict is Verdict.ALLOWED
            assert site != "b" or due is None or due in approved
        made.step()
        if turn == 400:
            made.risk = 0.0
    assert [made.state("server", one.digest) for one in jobs] == [State.FINISHED] * 3
    assert all(made.state(site, one.digest) is State.FINISHED for site in ROSTER for one in jobs)
    assert set(made.began.values()) == {1}, "no job begins twice anywhere"
    assert len(made.began) == 4 * 3
    for name in ("server", *ROSTER):
        check_recorded(made.audit[name], {one.digest.hex() for one in jobs}, {one.hex() for one in approved}, name)


def check_recorded(facts: list[Fact], jobs: set[str], approved: set[str], name: str) -> None:
    """Nothing that happened is lacking, and nobody is said to have approved what nobody did; some lines are there twice."""
    steps = (
        ("job submitted", "job begins", "job over") if name == "server" else ("job offered", "job begins", "job over")
    )
    for digest in jobs:
        events = [fact.event for fact in facts if fact.fields["job"] == digest]
        places = [events.index(step) for step in steps]
        assert places == sorted(places), f"{name}: {events}"
    told = {fact.fields["job"] for fact in facts if fact.event == "job approved"}
    assert told == (approved if name == "b" else set())


def test_one_job_at_a_time_and_a_waiting_one_holds_up_nobody(kits: Kits, start: float) -> None:
    made = world(kits, start, b=PENDING)
    first, second = job(kits, start, "1"), job(kits, start, "2")
    made.give("server", Submitted("analyst", first))
    assert made.hub.state(made.hub.records[first.digest]) is State.SUBMITTED
    made.give("b", Offered(made.offers("b")))
    assert made.hub.silent(made.hub.records[first.digest]) == ("a", "c")
    made.judge["b"] = ALLOWED
    made.give("server", Submitted("analyst", second))
    for site in ROSTER:
        made.give(site, Offered(made.offers(site)))
    assert made.hub.state(made.hub.records[first.digest]) is State.WAITING
    assert made.hub.pending(made.hub.records[first.digest]) == ("b",)
    assert made.hub.running is not None
    assert made.hub.running.digest == second.digest
    made.give("b", Approved(first.digest, "nora"))
    assert made.hub.state(made.hub.records[first.digest]) is State.QUEUED
    made.give("server", hubs.Ended(second.digest, State.FAILED, "why"))
    assert made.state("server", first.digest) is State.RUNNING


def test_a_token_submits_once(kits: Kits, start: float) -> None:
    made = world(kits, start)
    made.give("server", Submitted("analyst", job(kits, start)))
    made.give("server", Submitted("analyst", job(kits, start - 5.0)))  # signed at another time
    assert len(made.hub.records) == 1
    other = job(kits, start, text=JOB.replace("k = 2", "k = 3"))
    with unchanged(made.hub), pytest.raises(OutOfTurn, match="this token has submitted another job"):
        made.hub.handle(Submitted("analyst", other), start)
    made.give("a", Offered(made.offers("a")))
    (said,) = made.told("a", [*made.offers("a"), Offer(job(kits, start - 5.0), True, None)])
    assert said.verdict is Verdict.REFUSED
    assert "this token has submitted a job before" in said.why, "even if the server forgets"


def test_who_may_do_what(kits: Kits, start: float) -> None:
    made, one = world(kits, start), job(kits, start)
    with unchanged(made.hub), pytest.raises(WrongSender, match="the certificate says b, the job analyst"):
        made.hub.handle(Submitted("b", one), start)
    made.give("server", Submitted("analyst", one))
    with unchanged(made.hub), pytest.raises(WrongSender, match="nobody else can cancel it"):
        made.hub.handle(Cancelled("b", one.digest), start)
    with unchanged(made.hub), pytest.raises(WrongSender, match="takes no part"):
        made.hub.handle(Decided("analyst", one.digest, ALLOWED), start)
    with pytest.raises(NoSuchJob):
        made.hub.handle(Decided("a", bytes(32), ALLOWED), start)
    made.give("server", Cancelled("analyst", one.digest))
    made.give("server", Cancelled("server", one.digest))
    assert made.state("server", one.digest) is State.CANCELLED
    made.give("a", Offered(made.offers("a")))
    assert made.nodes["a"].due is None


def test_a_server_that_lies_begins_nothing(kits: Kits, start: float) -> None:
    """It says that a job runs that nobody allowed, or that was altered, or that is long over here."""
    made, one = world(kits, start, a=PENDING), job(kits, start)
    assert made.told("a", [Offer(one, True, None)]) == [PENDING]
    assert made.nodes["a"].due is None
    assert made.told("a", [Offer(one, True, ALLOWED)]) == [PENDING], "it does not get to say what we decided"
    forged = dataclasses.replace(job(kits, start, "u"), signature=kits["server"].sign(b"x"))
    (said,) = made.told("a", [Offer(one, False, PENDING), Offer(forged, True, None)])
    assert said.verdict is Verdict.REFUSED
    assert made.nodes["a"].due is None
    assert set(made.nodes["a"].records) == {one.digest}, "nothing is remembered of what is not signed"
    made.disks["a"].carry_out(made.nodes["a"].handle(nodes.Refused(one.digest, "no"), start))
    assert made.told("a", [Offer(one, True, None)]) == [Decision(Verdict.REFUSED, "no")]
    made.restart("a")
    assert made.told("a", [Offer(one, True, None)]) == [Decision(Verdict.REFUSED, "no")]
    with pytest.raises(OutOfTurn, match="is over already"):
        made.nodes["a"].handle(Approved(one.digest, "nora"), start)


def test_a_finished_job_does_not_run_again(kits: Kits, start: float) -> None:
    made, one = world(kits, start), job(kits, start)
    made.told("a", [Offer(one, True, ALLOWED)])
    assert made.nodes["a"].due == one.digest
    made.disks["a"].carry_out(made.nodes["a"].handle(nodes.Ended(one.digest, State.FINISHED), start))
    for _ in range(2):
        assert made.told("a", [Offer(one, True, ALLOWED)]) == []
        assert made.nodes["a"].due is None
        made.restart("a")
    made.now = one.expires + 1.0
    assert made.told("a", [Offer(one, True, ALLOWED)]) == []
    assert made.nodes["a"].due is None


def test_what_waits_runs_out(kits: Kits, start: float) -> None:
    made, one = world(kits, start, a=PENDING), job(kits, start, hours=100.0)
    assert made.told("a", [Offer(one, False, None)]) == [PENDING]
    made.now = start + 72 * 3600 + 1
    made.disks["a"].carry_out(made.nodes["a"].handle(Tick(), made.now))
    made.restart("a")
    said = Decision(Verdict.REFUSED, "nobody there decided within 72 hours")
    assert made.told("a", [Offer(one, False, PENDING)]) == [said]
    made = world(kits, start, b=PENDING)
    made.give("server", Submitted("analyst", one))
    made.give("b", Offered(made.offers("b")))
    made.now = one.expires + 1.0
    made.give("server", Tick())
    assert made.state("server", one.digest) is State.EXPIRED
    assert made.hub.records[one.digest].reason == "it expired while it waited for a, c, b"
    late = world(kits, one.expires - 1.0)
    late.told("a", [Offer(one, False, None)])
    late.now = one.expires + 1.0
    (said,) = late.told("a", [Offer(one, True, ALLOWED)])
    assert (said.verdict, said.why) == (Verdict.REFUSED, "the job has expired; submit it again")
    assert late.nodes["a"].due is None


def test_rules_that_changed_meanwhile_count_but_a_person_has_decided(kits: Kits, start: float) -> None:
    made, one = world(kits, start), job(kits, start)
    made.told("a", [Offer(one, False, None)])
    made.judge["a"] = PENDING
    (said,) = made.told("a", [Offer(one, True, ALLOWED)])
    assert said.why == "it is no longer allowed: no rule"
    assert made.nodes["a"].due is None
    made = world(kits, start, a=PENDING)
    made.told("a", [Offer(one, False, None)])
    made.disks["a"].carry_out(made.nodes["a"].handle(Approved(one.digest, "nora"), start))
    made.restart("a")
    made.told("a", [Offer(one, True, None)])
    assert made.nodes["a"].due == one.digest


def test_what_is_kept_stays_bounded(kits: Kits, start: float) -> None:
    made = Hub(standing(), lambda *_: None, keep_jobs=2)
    disk, jobs = Disk(), [job(kits, start, f"t{number}", hours=1.0) for number in range(8)]
    for number, one in enumerate(jobs):
        now = start + 4000.0 * number
        for given in (
            Submitted("analyst", one),
            Cancelled("analyst", one.digest),
            hubs.Ended(one.digest, State.FAILED, "", b"{}"),
        ):
            disk.carry_out(made.handle(given, now))
    assert len(made.records) == len([key for key in disk if key.startswith("job/")]) <= 3
    for number in range(hubs.MOST_OPEN):
        made.handle(Submitted("analyst", job(kits, start, f"many{number}")), start)
    with pytest.raises(OutOfTurn, match="jobs are open"):
        made.handle(Submitted("analyst", job(kits, start, "one more")), start)


def test_what_a_site_records_of_a_job(kits: Kits, start: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "MOST_STRANGE", 3)
    made, one = world(kits, start, a=PENDING), job(kits, start)
    named, node = {"job": one.digest.hex()}, made.nodes["a"]
    (offered,) = node.handle(Offered([Offer(one, False, None)]), start).audit
    asked = offered.fields | {"expires": 0}
    assert offered.event == "job offered"
    assert asked == named | {
        **{"submitter": "analyst", "token": "t", "dataset": "patients", "sites": [], "expires": 0},
        **{"parameters": jobs.dumps(one.wanted.job), "verdict": "pending", "why": "no rule"},
    }
    assert node.handle(Offered([Offer(one, False, PENDING)]), start).audit == [], "once"
    assert node.handle(Approved(one.digest, "nora"), start).audit == [Fact("job approved", named | {"by": "nora"})]
    assert node.handle(Offered([Offer(one, True, None)]), start).audit == [Fact("job begins", named)]
    over = Fact("job over", named | {"state": "finished", "why": ""})
    assert node.handle(nodes.Ended(one.digest, State.FINISHED), start).audit == [over]
    assert node.handle(nodes.Ended(one.digest, State.FINISHED), start).audit == []
    for number in range(5):
        forged = dataclasses.replace(job(kits, start, f"u{number}"), signature=b"x")
        for _ in range(2):
            node.handle(Offered([Offer(forged, True, None)]), start)
    assert len(node._strange) == 3, "a server that makes up jobs does not fill the disk"


def test_a_site_records_what_it_does_not_take_and_what_runs_out(kits: Kits, start: float) -> None:
    made, one = world(kits, start, a=PENDING, b=Decision(Verdict.REFUSED, "no")), job(kits, start, hours=100.0)
    forged = dataclasses.replace(one, signature=b"x")
    (fact,) = made.nodes["a"].handle(Offered([Offer(forged, True, None)]), start).audit
    assert (fact.event, fact.fields["job"]) == ("job not taken", one.digest.hex())
    assert "the signature is not that of" in fact.fields["why"]
    made.nodes["a"].handle(Offered([Offer(one, False, None)]), start)
    (fact,) = made.nodes["a"].handle(Tick(), start + 72 * 3600 + 1).audit
    assert (fact.event, fact.fields["state"]) == ("job over", "expired")
    offered, over = made.nodes["b"].handle(Offered([Offer(one, False, None)]), start).audit
    assert (offered.fields["verdict"], over.fields["state"], over.fields["why"]) == ("refused", "refused", "no")
    made.nodes["c"].handle(Offered([Offer(one, False, None)]), start)
    (fact,) = made.nodes["c"].handle(Offered([]), start).audit
    assert fact.fields["why"] == "the server offers it no more"


def test_what_the_server_records_of_a_job(kits: Kits, start: float) -> None:
    made, one = world(kits, start), job(kits, start)
    found = [*made.hub.handle(Submitted("analyst", one), start).audit]
    assert made.hub.handle(Submitted("analyst", one), start).audit == [], "the token submits once"
    for site in ROSTER:
        found += made.hub.handle(Decided(site, one.digest, ALLOWED), start).audit
    found += made.hub.handle(Cancelled("server", one.digest), start).audit
    told = [(fact.event, fact.fields.get("site"), fact.fields.get("why")) for fact in found]
    assert told == [
        ("job submitted", None, None),
        *(("site decided", site, "rule x") for site in ROSTER),
        ("job begins", None, None),
        ("job over", None, "cancelled by server"),
    ]
    assert {fact.fields["job"] for fact in found} == {one.digest.hex()}


def test_names_of_jobs(kits: Kits, start: float) -> None:
    one = Record(job(kits, start), 1)
    assert record.find([one], one.job.id) is one
    assert record.parse(one.dump()) == one
    for name in ("", "123", "zzzz", one.job.id[:3]):
        with pytest.raises(InvalidInput):
            record.find([one], name)
    with pytest.raises(InvalidInput, match="2 jobs begin with"):
        record.find([one, one], one.job.id)
    with pytest.raises(PeerError):
        record.find([], one.job.id)
