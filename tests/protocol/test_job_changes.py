"""Jobs that are submitted: what holds when rosters and policies change between the offer and the run."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from secfc.agreement import allowing, plan, policy, submission
from secfc.auditfile import AuditFile
from secfc.coding.sharing import ShareSet
from secfc.errors import Refused, Unavailable
from secfc.protocol.client.stages import Stage
from secfc.protocol.effects import Effects, Fact, Worked
from secfc.protocol.jobs.node import Approved, Node, Offer, Offered
from secfc.protocol.jobs.record import Decision, State, Verdict
from secfc_client.offering import Dataset, Offering
from tests.jobs import JOB, Kits, signed, standing


@pytest.fixture(scope="module")
def kits(tmp_path_factory: pytest.TempPathFactory) -> Kits:
    return Kits(tmp_path_factory.mktemp("jobs") / "kits")


ALLOWED, PENDING = Decision(Verdict.ALLOWED, "allowed by rule x"), Decision(Verdict.PENDING, "no rule")


def test_a_submitter_that_the_roster_does_not_list_yet_holds_up_nobody(kits: Kits) -> None:
    now = time.time()
    first, new, later = (
        signed(kits[who], who + str(n), clock=now) for n, who in enumerate(("analyst", "b", "analyst"))
    )
    listed = {"analyst"}

    def verify(job, clock):
        if job.submitter not in listed:
            raise Unavailable("version 2 of the roster does not list it")

    node = Node("a", standing(), verify, lambda _: ALLOWED)
    offers = Offered([Offer(one, False, None) for one in (first, new, later)])
    out = node.handle(offers, now)
    assert [send.message.digest for send in out.send] == [first.digest, later.digest]
    assert [fact.event for fact in out.audit] == ["job offered"] * 2
    assert len(out.keep) == 2
    assert not any("waits" in note.text for note in node.handle(offers, now).note), "said once"
    listed.add("b")
    assert new.digest in {send.message.digest for send in node.handle(offers, now).send}


def test_a_person_does_not_override_the_sites_limits(kits: Kits) -> None:
    now, said = time.time(), [PENDING]
    one = signed(kits["analyst"], clock=now)
    node = Node("a", standing(), lambda *_: None, lambda _: said[-1])
    node.handle(Offered([Offer(one, False, None)]), now)
    node.handle(Approved(one.digest, "nora"), now)
    said.append(Decision(Verdict.REFUSED, 'uploads = ["sealed"]'))
    node.handle(Offered([Offer(one, True, None)]), now)
    assert (node.due, node.records[one.digest].state) == (None, State.REFUSED)


def test_limits_of_rules_hold_when_policy_has_changed(kits: Kits) -> None:
    one = signed(kits["analyst"], clock=time.time())
    rule = '[[allow]]\nname = "{}"\nsubmitter = "analyst"\ndataset = "patients"\nfeatures = "*"\nmax_directions = {}\n'

    def offering(*rules):
        text = "".join(rule.format(*each) for each in rules)
        return Offering(
            standing(), (Dataset("patients", Path("x")),), policy.parse(text, "p"), allowing.parse(text, "p")
        )

    said = offering(("weekly", 4)).judge(one)
    assert offering(("weekly", 4)).limits(one, said).max_directions == 4
    assert offering(("monthly", 2), ("weekly", 4)).limits(one, said).max_directions == 2
    with pytest.raises(Refused, match=r"no .* rule allows it any more"):
        offering().limits(one, said)
    assert offering(("weekly", 4)).limits(one, Decision(Verdict.ALLOWED, "approved by nora")).max_directions is None


def test_nothing_is_gathered_that_may_be_on_our_disk() -> None:
    made = plan.of(standing().running(submission.parse(JOB, "j").job, ("a", "b", "c"), b""))
    own = ShareSet(made.code, np.zeros((6, 2), np.int64), bytes(32))
    stage = Stage(0, ("a", "b", "c"), bytes(32), [b"A", b"B", b"C"], [own.layout] * 3, own, lambda *_: None)
    stage.begin(True, Effects())
    assert stage.sink(1, b"B") is None, "its owner would send all of it"
    for owner, found in ((1, bytes(8 * own.layout.words)), (2, None)):
        stage.worked(Worked(("kept", b"A", owner), found), Effects())
    assert [stage.sink(j, name).received for j, name in ((1, b"B"), (2, b"C"))] == [8 * own.layout.words, 0]


def test_that_nobody_reads_on_is_not_the_files_fault(tmp_path: Path) -> None:
    AuditFile(tmp_path, "a", bytes(32)).append([Fact("request answered", {"request": n}) for n in range(3000)])
    call = [
        sys.executable,
        "-c",
        "from secfc_client.cli import main; main()",
        "audit",
        "--kit",
        str(tmp_path),
        "--state",
        str(tmp_path),
    ]
    with subprocess.Popen(call, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdout.readline()
        process.stdout.close()
        assert "cannot be read" not in process.stderr.read()
