"""Killed at any moment and started again with the same command: the labels are those of the undisturbed job."""

from __future__ import annotations

import shutil
import signal
import sys
from pathlib import Path

import pytest

from secfc import local
from secfc.local import Local
from secfc.protocol.effects import Put
from secfc_client import keptlabels
from secfc_client.store import Store
from tests.integration import helpers

MOMENTS = ["joined", "sharing", "rounds", "round 7", "finished"]


def make(
    tmp_path: Path, sizes: tuple[int, ...] = (300, 500, 1, 399), **settings: object
) -> tuple[Local, helpers.Parts]:
    parts = helpers.split(helpers.mixture(sum(sizes), 12, 5, seed=3), sizes)
    made = helpers.describe(parts, 6, precision=8, **settings)
    return helpers.prepared(tmp_path, parts, made, environment={"SECFC_THREADS": "1"}), parts


def ended(site: Local, party: str) -> int:
    """The exit code of a party that must come to an end by itself."""
    code = helpers.until(lambda: (code := site.processes[party].poll()) is not None and [code], f"{party} ends", 120)
    return int(code[0])


def kill(site: Local, party: str) -> None:
    site.processes[party].kill()
    site.processes[party].wait()


@pytest.mark.slow
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("party", ["client-2", "server"])
def test_killed_and_started_again(tmp_path: Path, party: str, moment: str) -> None:
    site, parts = make(tmp_path, seed=None)  # the clients' coins must survive too
    with local.running(site):
        speaker = party if moment == "joined" else "server"  # the server says it of any client
        helpers.until(lambda: helpers.said(site, speaker, moment), f"{speaker} says {moment}")
        kill(site, party)
        if party != "server" and not (site.kit(party) / "state" / "secrets.json").exists():
            assert moment == "finished"  # it was through, and the server knew: starting it again would be a new job
            site.processes.pop(party)
        else:
            site.start(party)
        site.wait(120)
    helpers.check_labels(site, parts)


def of_role(site: Local, party: str) -> str:
    """Who that is in the committee that compares now; any other name is a party's own."""
    committees = [line["members"] for line in site.events("server") if line["event"] == "committee"]
    leader, member = sorted(committees[-1])
    outsider = next(name for name in site.federation.roster if name not in (leader, member))
    return {"leader": leader, "member": member, "outsider": outsider}.get(party, party)


@pytest.mark.slow
@pytest.mark.parametrize("party", ["leader", "member", "outsider", "server"])
def test_killed_in_a_sealed_round_and_started_again(tmp_path: Path, party: str) -> None:
    site, parts = make(tmp_path, (100, 150, 1, 149), seed=None, uploads="sealed", dropouts=1)
    with local.running(site):
        helpers.until(lambda: helpers.in_rounds(site, 3), "the third request")
        victim = of_role(site, party)
        kill(site, victim)
        site.start(victim)
        site.wait(240)
    helpers.check_labels(site, parts)


@pytest.mark.slow
def test_a_client_killed_between_writing_its_labels_and_ending(tmp_path: Path) -> None:
    """The server has heard of the labels and is gone; the same command says that the job is over, and ends well."""
    site, parts = make(tmp_path)
    state = site.kit("client-2") / "state"
    with local.running(site):
        helpers.until(lambda: helpers.in_rounds(site), "the first round")
        secrets = (state / "secrets.json").read_bytes()
        site.wait(120)
    before = site.labels_file("client-2").read_bytes()
    (state / "secrets.json").write_bytes(secrets)
    _, labels = keptlabels._read(next(state.glob("labels-*.kept")))
    Store(state).put([Put("written", labels.session + bytes(32))])
    again = Local(site.federation, site.folder)
    try:
        again.start("client-2")
        again.wait(120)
    finally:
        again.stop()
    assert helpers.said(again, "client-2", "the labels are already written; the job is over")
    assert site.labels_file("client-2").read_bytes() == before
    left = sorted(path.name.split("-")[0] for path in state.iterdir())
    assert left == ["audit.jsonl", "budget.json", "labels", "lock", "roster.json"], "the next start is a new job"
    helpers.check_labels(site, parts)


@pytest.mark.slow
def test_a_client_whose_kept_shares_are_torn_asks_for_them_again(tmp_path: Path) -> None:
    site, parts = make(tmp_path, (300, 500, 399))  # R = 3: the job cannot end without it
    with local.running(site):
        helpers.until(lambda: helpers.in_rounds(site), "the first round")
        kill(site, "client-2")
        kept = sorted((site.kit("client-2") / "state").glob("*.shares"))
        assert len(kept) == 2
        kept[0].write_bytes(kept[0].read_bytes()[:-1])
        kept[1].unlink()
        site.start("client-2")
        site.wait(120)
    helpers.check_labels(site, parts)
    again = helpers.said(site, "client-2", "resuming after a restart")
    assert again is not None
    assert sorted(again["lacking"]) == ["client-1", "client-3"]


@pytest.mark.slow
def test_within_dropouts_a_killed_client_is_not_waited_for(tmp_path: Path) -> None:
    site, parts = make(tmp_path, dropouts=1)
    with local.running(site):
        helpers.until(lambda: helpers.in_rounds(site, 3), "the third round")
        kill(site, "client-1")
        helpers.until(lambda: helpers.said(site, "server", "finished"), "the job ends without client-1")
        site.start("client-1")  # and still gets its labels
        site.wait(120)
    helpers.check_labels(site, parts)


@pytest.mark.slow
def test_within_dropouts_a_frozen_client_is_replaced(tmp_path: Path) -> None:
    site, parts = make(tmp_path, dropouts=1)
    with local.running(site):
        helpers.until(lambda: helpers.in_rounds(site, 3), "the third round")
        frozen = site.processes["client-1"]
        frozen.send_signal(signal.SIGSTOP)
        try:
            helpers.until(lambda: helpers.said(site, "server", "finished"), "the job ends without client-1")
        finally:
            frozen.send_signal(signal.SIGCONT)
        site.wait(120)
    helpers.check_labels(site, parts)


@pytest.mark.slow
def test_a_finished_job_says_so_and_a_new_one_can_begin(tmp_path: Path) -> None:
    site, parts = make(tmp_path)
    with local.running(site):
        site.wait(120)
    before = site.result()
    again = Local(site.federation, site.folder)
    try:
        again.start("server")
        again.wait(60)
    finally:
        again.stop()
    said = [line["event"] for line in site.events("server")]
    assert any("finished already; use --new" in event for event in said)
    assert (site.result()["inertia"], site.result()["rounds"]) == (before["inertia"], before["rounds"])
    fresh = Local(site.federation, site.folder, server_options=("--new",))
    with local.running(fresh):
        fresh.wait(120)
    helpers.check_labels(fresh, parts)


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["joining", "rounds"])
def test_a_deadline_names_who_is_missing_and_the_same_commands_go_on(tmp_path: Path, moment: str) -> None:
    """Nothing is lost by it: all parties started again complete the job, from the last round that was done."""
    site, parts = make(tmp_path, (300, 500, 400))
    option = {"joining": "--join-timeout", "rounds": "--round-timeout"}[moment]
    missing, others = "client-3", ["client-1", "client-2"]
    site.server_options = (option, "20")
    try:
        for party in ["server", *others, *([missing] if moment == "rounds" else [])]:
            site.start(party)
        if moment == "rounds":
            helpers.until(lambda: helpers.in_rounds(site, 3), "the third round")
            kill(site, missing)
            helpers.until(lambda: helpers.said(site, "server", "waiting"), "the server says whom it waits for")
        assert ended(site, "server") == 3
        assert [ended(site, name) for name in others] == [3, 3]  # what a service manager starts again
        done = len([line for line in site.events("server") if line["event"].startswith("round ")])
        for name in ["server", *others]:
            words = site.last_words(name)
            assert missing in words, words
            assert "start the server and the clients again to go on" in words
        site.server_options = ()
        site.start_all()
        site.wait(240)
    finally:
        site.stop()
    helpers.check_labels(site, parts)
    again = helpers.said(site, "server", "going on with an unfinished job")
    assert (again is not None) == (moment == "rounds")
    if again is not None:
        assert again["round"] > done, "rounds that were done are not done again"


@pytest.mark.slow
def test_an_old_copy_of_the_journal_is_refused_with_advice_that_works(tmp_path: Path) -> None:
    parts = helpers.split(helpers.mixture(2000, 12, 5, seed=3), (500, 500, 500, 500))
    made = helpers.describe(
        parts, 60, precision=8
    )  # seeding alone asks sixty times: long enough to be stopped in between
    site = helpers.prepared(tmp_path, parts, made, environment={"SECFC_THREADS": "1"})
    state, copy = site.kit("server") / "state", tmp_path / "copy"
    try:
        site.start_all()
        helpers.until(lambda: helpers.in_rounds(site, 2), "the second round")
        kill(site, "server")
        shutil.copytree(state, copy)
        done = sum(line["event"].startswith("round ") for line in site.events("server"))
        site.start("server")
        helpers.until(lambda: helpers.in_rounds(site, done + 3), "rounds beyond those of the copy")
        kill(site, "server")
        shutil.rmtree(state)
        shutil.copytree(copy, state)
        site.start("server")
        for again in (True, False):  # started again it is refused again, with the same words
            assert [ended(site, party) for party in ("server", *site.federation.roster)] == [4] * 5
            for party in ("server", *site.federation.roster):
                assert "begin a new one with secfc-server --new, then start the clients again" in site.last_words(party)
            if again:
                site.start_all()
        site.server_options = ("--new",)
        site.start_all()
        site.wait(120)
    finally:
        site.stop()
    helpers.check_labels(site, parts)


@pytest.mark.slow
def test_a_second_server_leaves_the_first_ones_journal_alone(tmp_path: Path) -> None:
    """Also with --new, and with another port, where it would have deleted the journal of the running job."""
    site, parts = make(tmp_path, (6000, 8000, 1, 6000))
    call = [sys.executable, "-m", "secfc_server", "--kit", str(site.kit("server")), "--new", "--out", str(tmp_path)]
    with local.running(site):
        helpers.until(lambda: helpers.said(site, "server", "agreeing"), "the roster")  # which the journal then holds
        kill(site, "client-4")  # so that the job, which has shares and rounds before it, is not over before we are
        for options in ([], ["--bind", "127.0.0.1:0"]):
            code, _, err = helpers.outcome(helpers.launch([*call, *options]))
            assert (code, len(err.splitlines())) == (3, 1)
            assert "another secfc-server runs with this state" in err
        kill(site, "server")
        site.start("server")  # the journal is what it was
        site.start("client-4")
        site.wait(120)
    helpers.check_labels(site, parts)
    assert helpers.said(site, "server", "going on with an unfinished job") is not None
