"""A federation that stays, with real processes: jobs are submitted, allowed, refused, run and remembered."""

from __future__ import annotations

import json
import os
import signal
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

import secfc as secfc_api
from secfc import auditfile
from secfc.agreement import submission
from secfc.errors import ConfigError, OutOfTurn, PeerError
from secfc.net import jobs
from secfc.v1 import secfc_pb2 as pb
from secfc.v1 import secfc_pb2_grpc as stubs
from tests.integration.helpers import dial, mixture, pooled, refusal, split, until
from tests.integration.standing import JOB, RULE, Standing, secfc

PARTS = split(mixture(60, 2, 2, seed=3), [25, 20, 15])


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Standing]:
    with Standing(tmp_path / "f", PARTS) as made:
        yield made


def check_labels(site: Standing, name: str, text: str = JOB) -> None:
    wanted = submission.parse(text, "job.toml")
    made = site.federation.running(wanted.job, site.federation.roster, b"")
    np.testing.assert_array_equal(site.labels(name), pooled(made, PARTS).labels)


def test_jobs_from_submission_to_labels(site: Standing) -> None:
    """One that rules allow; one that waits for a person, whose site has not even the file before; what nobody can compute."""
    third = site.federation.roster[2]
    rows = site.rows(third).read_text()
    site.rows(third).unlink()  # whoever looks at it before the job is approved fails
    (site.kit(third) / "policy.toml").write_text(RULE.replace("k = 4", "k = 1"))
    site.start()
    site.ready()
    job_file = site.folder / "job.toml"
    job_file.write_text(JOB)
    code, out, err = secfc("submit", str(job_file), "--kit", str(site.kit("analyst")), "--token", "once", "--json")
    assert code == 0, err
    name = json.loads(out)["digest"]
    until(lambda: _state(site, name) == ("waiting", (third,)), f"{third} is waited for")
    assert site.submit(token="once") == name
    shown = site.show(name)
    assert shown.state == "waiting"
    assert (third, "pending", "no [[allow]] rule fits (all: k = 2 is above 1)") in shown.decisions
    with pytest.raises(OutOfTurn, match="it has no result yet"):
        jobs.result(site.loaded(), name)
    assert site.processes[third].poll() is None

    node = site.kit(third) / "state" / "node.sock"
    assert stat.S_IMODE(node.stat().st_mode) == 0o600
    code, out, _ = secfc("approve", name[:8], "--kit", str(site.kit(third)))
    assert code == 130, "nobody confirms"
    assert "assignments: 0 so far, at most 301 afterwards" in out
    assert site.show(name).state == "waiting"
    site.rows(third).write_text(rows)
    code, _, err = secfc("approve", name[:8], "--kit", str(site.kit(third)), "--yes")
    assert code == 0, err
    code, out, err = secfc("wait", name[:8], "--kit", str(site.kit("analyst")), "--timeout", "60", "--json")
    assert (code, json.loads(out)["state"]) == (0, "finished"), err
    check_labels(site, name)
    found = json.loads(jobs.result(site.loaded(), name))
    assert (found["rows"], found["k"], found["digest"]) == (60, 2, name)
    assert "labels" not in found
    check_audit(site, third, name)
    check_in_python(site, third, name)
    until(lambda: not (site.kit(third) / "state" / "jobs" / name[:16]).exists(), "secrets of the job are gone")
    folder = site.kit(third) / "jobs" / name[:16]
    assert {one.name for one in folder.iterdir()} == {"labels.csv", "profile.csv", "report.html", "result.json"}

    for text, complaint in (
        (JOB.replace('"patients"', '"nobody-has-it"'), 'it has no dataset called "nobody-has-it"'),
        (JOB.replace('["age", "weight"]', '["age", "shoe size"]').replace("k = 2", "k = 1"), "feature 'shoe size'"),
    ):
        one = site.submit(text)
        until(lambda one=one: site.show(one).state in ("refused", "waiting"), "decided")  # type: ignore[misc]
        assert complaint in " ".join(why for _, _, why in site.show(one).decisions)
    code, _, err = secfc("cancel", one[:8], "--kit", str(site.kit("analyst")))
    assert code == 0, err
    assert site.over(one).state == "cancelled"


def check_audit(site: Standing, third: str, name: str) -> None:
    """Every party has recorded the job from the first word to the last, in a file whose lines fit together."""
    for party in site.parties:  # a site may be told after the submitter that the job is over
        site.until_said(party, "the audit file stands")
    code, out, err = secfc("audit", "--kit", str(site.kit(third)), "--verify")
    assert (code, out.strip().endswith(f"head {site.head(third)}")) == (0, True), err
    for party in site.parties:
        found = auditfile.verified(audit_file(site, party))
        assert (found.fault, str(found.head)) == ("", site.head(party)), "the log names the same head"
    told = facts(site, third)
    events = [line["event"] for line in told if line.get("job") == name]
    answered = [line for line in told if line["event"] == "request answered"]
    approved = ["job offered", "job approved", "job begins", "rows shared"]
    assert events == [*approved, *["request answered"] * len(answered), "labels written", "job over"]
    assert [line["verdict"] for line in told if line["event"] == "job offered"] == ["pending"]
    shown = json.loads(jobs.result(site.loaded(), name))
    given = {"directions": shown["directions_given_away"]["count"], "assignments": shown["assignments_given_away"]}
    assert given == {what: answered[-1][what] for what in given}
    told = facts(site, "server")
    answered = [line for line in told if line["event"] == "request answered"]
    assert [line["request"] for line in answered] == [one["request"] for one in shown["history"]]
    assert given == {what: answered[-1][what] for what in given}
    decided = {line["site"]: line["verdict"] for line in told if line["event"] == "site decided"}
    assert decided == dict.fromkeys(site.federation.roster, "allowed")


def check_in_python(site: Standing, third: str, name: str) -> None:
    job = secfc_api.connect(site.kit(third)).job(name[:8])
    assert (job.digest, job.state, repr(job)) == (name, "finished", f"<job {name[:16]}: finished>")
    assert (job.wait().result.k, sum(job.result.sizes)) == (2, 60)
    own = secfc_api.labels(job)
    assert list(own.columns) == ["age", "weight", "cluster"]
    assert own["cluster"].tolist() == site.labels(name)[-len(PARTS[2]) :].tolist()
    with pytest.raises(ConfigError, match="analyst is no site: labels stay with the owners"):
        secfc_api.labels(secfc_api.connect(site.kit("analyst")).job(name))


def audit_file(site: Standing, party: str) -> Path:
    return site.kit(party) / "state" / auditfile.FILE


def facts(site: Standing, party: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in audit_file(site, party).read_text().splitlines()]


def test_who_may_call_what(site: Standing) -> None:
    site.start("server")
    site.until_said("server", "listening")
    analyst, client = site.loaded("analyst"), site.loaded(site.federation.roster[0])
    with dial(analyst, "server") as channel:
        for call in (
            lambda: stubs.CoordinatorStub(channel).Join(pb.JoinRequest(), timeout=10),
            lambda: stubs.JobsStub(channel).Decide(pb.DecideRequest(digest=bytes(32)), timeout=10),
            lambda: stubs.ExchangeStub(channel).Progress(pb.Parcel(), timeout=10),
            lambda: next(stubs.JobsStub(channel).Attend(pb.AttendRequest(), timeout=10)),
        ):
            code, text = refusal(call)
            assert (code, text) == (grpc.StatusCode.PERMISSION_DENIED, "analyst is not in the roster of local"), text
    with dial(client, "server") as channel:
        signed = pb.SignedJob(body=b"{}")
        code, text = refusal(lambda: stubs.JobsStub(channel).Submit(signed, timeout=10))
        assert code is grpc.StatusCode.PERMISSION_DENIED
        assert "lacks the right to submit jobs" in text
        assert refusal(lambda: stubs.CoordinatorStub(channel).Join(pb.JoinRequest(), timeout=10))[0] is (
            grpc.StatusCode.UNAVAILABLE
        )
    with pytest.raises(PeerError, match="no job 1234 is known here"):
        jobs.listed(analyst, "1234")


@pytest.mark.slow
def test_a_site_without_the_feature_and_a_refusal(site: Standing) -> None:
    """Whoever lacks a column says which; a person's refusal reaches the submitter; the next job runs all the same."""
    first, second, _ = site.federation.roster
    site.write_rows(first, PARTS[0], ("age", "mass"))
    site.start()
    site.ready()
    one = site.over(site.submit())
    assert (one.state, one.reason) == ("refused", f"{first} refuses: its dataset \"patients\" has no column 'weight'")
    (site.kit(second) / "policy.toml").write_text("pending_hours = 1\n")
    site.kill(second, signal.SIGTERM)
    site.start(second)
    site.write_rows(first, PARTS[0])
    name = site.submit()
    until(lambda: _state(site, name) == ("waiting", (second,)), "somebody is asked")
    code, _, err = secfc("refuse", name[:8], "--kit", str(site.kit(second)), "--why", "no ethics approval")
    assert code == 0, err
    assert site.over(name).reason == f"{second} refuses: no ethics approval"
    (site.kit(second) / "policy.toml").write_text(RULE)
    site.kill(second, signal.SIGTERM)
    site.start(second)
    name = site.submit()
    assert site.over(name).state == "finished"
    check_labels(site, name)


@pytest.mark.slow
@pytest.mark.parametrize("who", ["server", 0, 1, "all"])
@pytest.mark.parametrize("when", ["waiting", "begun", "sharing", "rounds", "finished"])
def test_kill_anybody_in_any_state(site: Standing, who: str | int, when: str) -> None:
    """Nothing is lost, no job runs twice, no approval is forgotten or invented; and audit files say the same."""
    second = site.federation.roster[1]
    (site.kit(second) / "policy.toml").write_text("")
    names = site.parties if who == "all" else (who if isinstance(who, str) else site.federation.roster[who],)
    site.start()
    site.ready()
    name = site.submit()
    until(lambda: _state(site, name) == ("waiting", (second,)), "a person is asked")

    def crash() -> None:
        for party in names:
            site.kill(party)
        site.start(*names)

    if when == "waiting":
        crash()
        until(lambda: _state(site, name) == ("waiting", (second,)), "it waits as before")
    until(lambda: secfc("approve", name[:8], "--kit", str(site.kit(second)), "--yes")[0] == 0, "approved")
    phases = {"begun": "a job begins", "sharing": "everybody has joined", "rounds": "all shares are checked"}
    if when in phases:
        seen = phases[when]
        until(lambda: any(seen in line["event"] or "round" in line["event"] for line in site.events("server")), when)
        crash()
    if when == "finished":
        until(lambda: _state(site, name)[0] == "finished", "finished")
        crash()
    until(lambda: _state(site, name)[0] == "finished", "finished", 120)
    check_labels(site, name)
    for party in site.federation.roster:
        assert sum(line["event"] == "labels written" for line in site.events(party)) <= 2

        def over(party: str = party) -> set[str]:
            return {line["state"] for line in facts(site, party) if line["event"] == "job over"}

        until(over, f"{party} has ended its part")
        assert over() == {"finished"}
        assert not auditfile.verified(audit_file(site, party)).fault
    assert [line["event"] for line in facts(site, second)].count("job approved") in (1, 2)  # twice: killed in between
    again = site.submit()
    until(lambda: _state(site, again) == ("waiting", (second,)), "the next job needs its own approval")


def _state(site: Standing, name: str) -> tuple[str, tuple[str, ...]]:
    try:
        one = site.show(name)
    except Exception:
        return "", ()
    return one.state, one.waiting_for


@pytest.mark.slow
def test_fifty_jobs_in_a_row(site: Standing) -> None:
    """Memory, descriptors and files of a hub and its nodes stay what they were after the first ten."""
    site.start(options=["--keep-jobs", "5"])
    site.ready()
    seen: list[dict[str, tuple[int, int, int]]] = []
    for number in range(50):
        name = site.submit(JOB.replace('"s"', f'"s{number}"'))
        assert site.over(name).state == "finished"
        if number in (14, 49):
            seen.append({party: _usage(site, party) for party in site.parties})
    for party in site.parties:
        (memory, descriptors, files), (later, more, others) = seen[0][party], seen[1][party]
        assert later < 1.1 * memory + (8 << 20), f"{party}: {memory} bytes became {later}"
        # connections come and go; what every job left open would be 35 more
        assert more <= descriptors + 15, f"{party}: {descriptors} descriptors became {more}"
        # a record per job until it expires; another file of every job would make it 70
        assert others <= files + 50, f"{party}: {files} files became {others}"


def _usage(site: Standing, party: str) -> tuple[int, int, int]:
    pid = site.processes[party].pid
    resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    files = sum(len(names) for _, _, names in os.walk(site.kit(party)))
    return resident, len(os.listdir(f"/proc/{pid}/fd")), files


@pytest.mark.slow
def test_jobs_of_one_kind_share_once_where_policies_let_them(site: Standing) -> None:
    """Other k and starts use the same shares; a site that keeps none any more shares again, and so do changed rows."""
    first, second, third = site.federation.roster
    for name in site.federation.roster:
        (site.kit(name) / "policy.toml").write_text("keep_shares = true\n" + RULE)
    site.start()
    site.ready()

    def run(text: str) -> dict[str, int]:
        """What each site has sent of its shares."""
        name = site.submit(text)
        assert site.over(name).state == "finished"
        check_labels(site, name, text)
        for party in site.federation.roster:
            until(lambda: not (site.kit(party) / "state" / "jobs" / name[:16]).exists(), "nothing of it is left")  # noqa: B023
        sent: dict[str, int] = json.loads(jobs.result(site.loaded(), name))["bytes"]["sharing_sent"]
        return sent

    whole = run(JOB)
    assert min(whole.values()) > 0
    assert run(JOB.replace("k = 2", "k = [3, 2]").replace("starts = 1", "starts = 2")) == dict.fromkeys(whole, 0)
    site.kill(second)  # and what it keeps is on its disk
    site.start(second)
    assert run(JOB.replace('"s"', '"t"')) == dict.fromkeys(whole, 0)
    shared = [line for line in facts(site, first) if line["event"] == "rows shared"]
    assert [line["same_as_before"] for line in shared] == [False, True, True]

    (site.kit(third) / "policy.toml").write_text(RULE)
    site.kill(third, signal.SIGTERM)
    site.start(third)
    sent = run(JOB)
    assert sent[third] == whole[third]
    assert not (site.kit(third) / "state" / "shares").exists()
    kept = {path.name for path in (site.kit(first) / "state" / "shares").rglob("*.lasting")}
    assert kept == {f"{second}.lasting"}, "of a site that keeps none, nobody else does"
    site.parts = [PARTS[0] + 0.5, *PARTS[1:]]
    site.write_rows(first, site.parts[0])
    name = site.submit()
    assert site.over(name).state == "finished"
    wanted = submission.parse(JOB, "job.toml")
    expected = pooled(site.federation.running(wanted.job, site.federation.roster, b""), site.parts)
    np.testing.assert_array_equal(site.labels(name), expected.labels)
