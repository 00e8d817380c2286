"""The pages of a federation that stays: jobs, who is waited for, and decisions of a person, without a browser."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from secfc.agreement.allowing import Allowing
from secfc.agreement.policy import Policy
from secfc.agreement.submission import Submission
from secfc.errors import OWN_FILES, ConfigError, InvalidInput, NoSuchJob, OutOfTurn
from secfc.protocol.effects import Put
from secfc.protocol.jobs.hub import Decided, Hub, Submitted
from secfc.protocol.jobs.hub import Ended as JobEnded
from secfc.protocol.jobs.node import Node, Offer, Offered
from secfc.protocol.jobs.record import Decision, Record, State, Verdict
from secfc.web import deciding, metrics
from secfc.web import page as pages
from secfc.web.deciding import Deciding
from secfc.web.door import Door
from secfc.web.page import MOST_BODY, PACE_SECONDS, Page
from secfc.web.view import IDLE, MOST_JOBS
from secfc_client import budget, data, describing, donejobs, nodeview, report
from secfc_client.budget import Account, Entry
from secfc_client.commands.report import command as reporting
from secfc_client.jobfiles import JobFiles
from secfc_client.nodeview import NodeView
from secfc_client.offering import Dataset, Offering
from secfc_server.current import CurrentCoordinator
from secfc_server.hubview import HubView
from tests.jobs import JOB, NOW, Kits, signed, standing
from tests.unit.test_web import ROOT, asked, exchanged, status

NUMBERED = JOB.replace('["age", "weight"]', "2")
ALLOWED, PENDING = Decision(Verdict.ALLOWED, "rule x"), Decision(Verdict.PENDING, "no rule")
TOKEN = "aaaa bbbb cccc dddd eeee"


@pytest.fixture(scope="module")
def kits(tmp_path_factory: pytest.TempPathFactory) -> Kits:
    return Kits(tmp_path_factory.mktemp("pages") / "kits")


@pytest.fixture(scope="module")
def job(kits: Kits) -> Submission:
    return signed(kits["analyst"], clock=NOW)


def hub(*jobs: Submission) -> Hub:
    made = Hub(standing(), lambda *_: None)
    for one in jobs:
        made.handle(Submitted(one.submitter, one), NOW)
    return made


def hub_page(made: Hub, *attending: str) -> HubView:
    return HubView(standing(), made, CurrentCoordinator(), lambda: frozenset(attending))


class Site:
    """A node at b with a page."""

    def __init__(self, kits: Kits, state: Path, said: Decision = PENDING) -> None:
        self.kit, self.state = kits["b"], state
        rules = Policy(max_assignments=500)
        self.offering = Offering(
            standing(), (Dataset("patients", state / "secret place" / "p.csv"),), rules, Allowing()
        )
        self.node = Node("b", standing(), lambda *_: None, lambda _: said)
        self.page = NodeView(self.kit, self.node, self.described, self.offering, state, state / "out")

    def described(self, one: Record, entries: Any) -> dict[str, Any]:
        said = self.node.decision(one)
        return describing.described(one, said.verdict.value, said.why, standing(), self.offering.policy, entries)

    def offer(self, *jobs: Submission, now: float) -> None:
        self.node.handle(Offered([Offer(one, False, None) for one in jobs]), now)


# --- the hub ---------------------------------------------------------------------------------------------------------------


def test_a_hub_without_jobs_shows_who_is_connected() -> None:
    shown = hub_page(hub(), "a", "c").view()
    assert (shown.phase, shown.stays, shown.jobs, shown.over) == (IDLE, True, (), False)
    assert [(party.name, party.ok) for party in shown.parties] == [("a", True), ("b", False), ("c", True)]
    assert json.loads(shown.to_json())["uploads"] == "sealed"


def test_a_job_is_followed_from_submission_to_its_end(job: Submission) -> None:
    made = hub(job)
    page = hub_page(made, "a", "b", "c")

    def state() -> tuple[str, tuple[str, ...], tuple[str, ...]]:
        (one,) = page.view().jobs
        return one.state, one.waits_for, one.approvals_of

    assert state() == ("submitted", ("a", "b", "c"), ())
    made.handle(Decided("a", job.digest, ALLOWED), NOW)
    assert state() == ("submitted", ("b", "c"), ())
    made.handle(Decided("b", job.digest, PENDING), NOW)
    made.handle(Decided("c", job.digest, ALLOWED), NOW)
    assert state() == ("waiting", ("b",), ("b",))
    made.handle(Decided("b", job.digest, ALLOWED), NOW)
    assert state() == ("running", (), ())
    made.handle(JobEnded(job.digest, State.FAILED, "b was lost"), NOW + 7)
    (one,) = page.view().jobs
    assert (one.state, one.reason, one.ended - one.began, one.over) == ("failed", "b was lost", 7, True)
    assert (one.id, one.submitter, one.dataset, one.k) == (job.id, "analyst", "patients", (2,))


def test_the_newest_job_comes_first_and_old_ones_are_left_out_but_never_open_ones(kits: Kits) -> None:
    jobs = [signed(kits["analyst"], f"t{number}", clock=NOW) for number in range(MOST_JOBS + 3)]
    made = hub(jobs[0])
    for one in jobs[1:]:
        made.handle(Submitted("analyst", one), NOW)
        made.handle(Decided("a", one.digest, Decision(Verdict.REFUSED, "no")), NOW)
    view = hub_page(made).view()
    assert [one.id for one in view.jobs] == [one.id for one in reversed(jobs)]
    told = [one["id"] for one in json.loads(view.to_json())["jobs"]]
    assert told == [*[one.id for one in reversed(jobs)][:MOST_JOBS], jobs[0].id]


def test_jobs_are_counted_by_state_and_the_dashboard_draws_them(job: Submission) -> None:
    page = hub_page(hub(job), "a")
    text = metrics.Exporter(page.view).render()[0].decode()
    assert 'secfc_jobs{state="submitted"} 1.0' in text
    assert 'secfc_jobs{state="running"} 0.0' in text
    assert "secfc_connected_clients 1.0" in text
    assert "secfc_jobs{" in (ROOT / "deploy" / "grafana" / "secfc.json").read_text()


def test_drawing_many_jobs_costs_less_than_a_fiftieth_of_the_time_between_two_views(kits: Kits, tmp_path: Path) -> None:
    """CPU time, as in test_web: of a hub that remembers 150 jobs, and of a node where 30 wait for a person."""
    jobs = [signed(kits["analyst"], f"t{number}", clock=NOW) for number in range(150)]
    made, site = hub(), Site(kits, tmp_path)
    for one in jobs:
        made.handle(Submitted("analyst", one), NOW)
        made.handle(Decided("a", one.digest, Decision(Verdict.REFUSED, "no")), NOW)
    site.offer(*jobs[:30], now=NOW)
    for page in (hub_page(made), site.page):
        page.view().to_json()
        took = []
        for _ in range(10):
            began = time.process_time()
            page.view().to_json()
            took.append(time.process_time() - began)
        assert min(took) < 0.02 * PACE_SECONDS


# --- a node ----------------------------------------------------------------------------------------------------------------


def test_a_node_shows_what_a_person_has_to_decide_with_what_it_would_give_away(kits: Kits, tmp_path: Path) -> None:
    job = signed(kits["analyst"], clock=NOW)
    site = Site(kits, tmp_path)
    site.offer(job, now=NOW)
    (one,) = site.page.view().jobs
    assert (one.state, one.approvals_of) == ("waiting", ("b",))
    facts = dict(one.question)
    assert facts["digest"].replace(" ", "") == job.digest.hex()
    assert facts["submitter"].startswith("analyst, ")
    assert 'features = ["age", "weight"]' in facts["parameters"]
    assert "assignments: 0 so far, at most 301 afterwards" in facts["given away by this dataset, over all jobs"]
    assert "secret place" not in site.page.view().to_json().decode()
    assert str(tmp_path) not in site.page.view().to_json().decode()


def test_a_reason_that_names_files_of_the_site_is_in_its_log_only(kits: Kits, tmp_path: Path) -> None:
    job, site = signed(kits["analyst"], clock=NOW), Site(kits, tmp_path, ALLOWED)
    site.node.handle(Offered([Offer(job, True, ALLOWED)]), NOW)
    for why, shown in ((f"{tmp_path}/out/x: disk full", OWN_FILES), ("client a was lost", "client a was lost")):
        site.node.records[job.digest] = site.node.records[job.digest].over(State.FAILED, why, NOW)
        assert [(one.reason, one.began) for one in site.page.view().jobs] == [(shown, 0)]


def test_a_path_is_found_however_it_is_written_and_a_word_is_no_path(
    kits: Kits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    named = nodeview._naming((kits["b"].path, Path("state"), Path("out"), Path("rows/p.csv"), Path("p.csv")))
    for text in (
        f"{tmp_path}/out/x: disk full",
        "out/x: disk full",
        "p.csv: cannot be read",
        "column 'rows/p.csv' of it",
        f"{kits['b'].path}/policy.toml: max_requests = 5",
    ):
        assert named.search(text), text
    for text in (
        "ended without result",
        "time ran out",
        "the state of p.csv.",
        f"{tmp_path}/outer/x: full",
        "a/b/out/x",
    ):
        assert not named.search(text), text


def test_what_a_rule_allows_asks_nobody(kits: Kits, tmp_path: Path) -> None:
    site = Site(kits, tmp_path, ALLOWED)
    site.offer(signed(kits["analyst"], clock=NOW), now=NOW)
    (one,) = site.page.view().jobs
    assert (one.state, one.question) == ("queued", ())


def test_what_a_dataset_has_given_away_is_shown_with_what_is_left(kits: Kits, tmp_path: Path) -> None:
    site = Site(kits, tmp_path)
    key = budget.dataset_key("patients")
    Account(tmp_path, key, Entry(0, "", 20, 2, "dataset patients")).spend(budget.Tally(3, 120, 4))
    directions, assignments, inertias = site.page.view().given
    assert (directions.count, directions.most) == (2, 2)
    assert (assignments.count, assignments.limit) == (120, 500)
    assert inertias.count == 4
    site.offer(signed(kits["analyst"], clock=NOW), now=NOW)
    for more in (120, 150):  # what is asked is drawn anew as that grows
        Account(tmp_path, key, Entry(0, "", 20, 2, "dataset patients")).spend(budget.Tally(3, more, 4))
        (one,) = site.page.view().jobs
        assert f"assignments: {more} so far" in dict(one.question)["given away by this dataset, over all jobs"]
    (tmp_path / budget.FILE).write_text("{}")
    damaged = site.page.view()
    assert damaged.given == ()
    assert "is damaged" in damaged.given_note
    assert str(tmp_path) not in damaged.given_note


def test_the_server_is_shown_as_lost_until_it_has_told_what_there_is(kits: Kits, tmp_path: Path) -> None:
    site = Site(kits, tmp_path)
    assert [(party.name, party.ok) for party in site.page.view().parties] == [("server", False), ("b", True)]
    site.page.linked = True
    assert site.page.view().parties[0].state == "connected"


# --- decisions -------------------------------------------------------------------------------------------------------------


class Asked:
    """What the node was asked to do."""

    def __init__(self) -> None:
        self.done: list[dict[str, str]] = []

    async def __call__(self, wanted: dict[str, str]) -> None:
        if wanted["job"].startswith("00"):
            raise OutOfTurn("it is over already")
        self.done.append(wanted)


def post(body: object, *headers: str, path: str = "/decide", host: str = "127.0.0.1:1") -> bytes:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    known = [one.partition(":")[0] for one in headers]
    usual = {"Origin": f"http://{host}", "Content-Type": "application/json"}
    lines = [f"{name}: {value}" for name, value in usual.items() if name not in known]
    lines += [one for one in headers if not one.endswith(": none")]
    head = [f"POST {path} HTTP/1.1", f"Host: {host}", *lines, f"Content-Length: {len(data)}", "Connection: close"]
    return ("\r\n".join(head) + "\r\n\r\n").encode() + data


def decided(test: Callable[[Page, Asked], Awaitable[None]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deciding, "WRONG_SECONDS", 0.01)

    async def whole() -> None:
        node = Asked()
        idle = hub_page(hub()).view()
        page = Page(Door("127.0.0.1", 0, frozenset({"localhost"})), lambda: idle, Deciding(node, TOKEN))
        await page.open()
        try:
            await test(page, node)
        finally:
            await page.close()

    asyncio.run(whole())


WANTED = {"do": "approve", "job": "1f" * 32, "token": TOKEN, "who": "Ada", "why": ""}


def test_only_a_decision_that_was_carried_out_draws_the_view_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "PACE_SECONDS", 60.0)
    drawn = []
    idle = hub_page(hub()).view()

    async def whole() -> None:
        page = Page(Door("127.0.0.1", 0, frozenset()), lambda: drawn.append(1) or idle, Deciding(Asked(), TOKEN))
        await page.open()
        try:
            for sent, times in (({}, 1), ({"do": "approve"}, 1), (WANTED, 2)):
                await exchanged(page, asked("/view"))
                await exchanged(page, post(sent))
                await exchanged(page, asked("/view"))
                assert len(drawn) == times
        finally:
            await page.close()

    asyncio.run(whole())


def test_a_decision_with_the_token_from_our_own_page_is_carried_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(page: Page, node: Asked) -> None:
        answer = await exchanged(page, post(WANTED))
        assert (status(answer), answer[-9:]) == (200, b"approved\n")
        read_out = WANTED | {"do": "refuse", "job": "1F1F " * 16, "token": TOKEN.replace(" ", "").upper()}
        same = post(read_out, "Sec-Fetch-Site: same-origin", "Content-Type: application/json; charset=utf-8")
        assert status(await exchanged(page, same)) == 200
        said = {"do": "refuse", "job": "1f" * 32, "who": "Ada", "why": ""}
        assert node.done == [said | {"do": "approve"}, said]
        over = await exchanged(page, post(WANTED | {"job": "00" * 32}))
        assert (status(over), b"it is over already" in over) == (409, True)

    decided(test, monkeypatch)


@pytest.mark.parametrize(
    ("body", "headers", "code"),
    [
        (WANTED | {"token": TOKEN[:-1] + "f"}, (), 403),
        (WANTED | {"token": ""}, (), 403),
        (WANTED | {"token": "ÿ\ud800"}, (), 403),
        (WANTED, ("Origin: none",), 403),  # nobody says who asks
        (WANTED, ("Origin: null",), 403),  # a file, or a frame in a sandbox
        (WANTED, ("Origin: http://evil.example",), 403),
        (WANTED, ("Origin: http://127.0.0.1:2",), 403),  # another page on this machine
        (WANTED, ("Origin: https://127.0.0.1:1",), 403),
        (WANTED, ("Sec-Fetch-Site: cross-site",), 403),
        (WANTED, ("Sec-Fetch-Site: same-site",), 403),
        (WANTED, ("Content-Type: text/plain",), 415),  # what a form of another site could send
        (WANTED, ("Content-Type: none",), 415),
        (b"{", (), 400),
        (b"[" * 3000, (), 400),
        ([], (), 400),
        (WANTED | {"do": "list"}, (), 400),
        (WANTED | {"job": "1f1f"}, (), 400),  # not what was shown, but anything that begins so
        (WANTED | {"more": ""}, (), 400),
        (WANTED | {"who": 1}, (), 400),
        ({"do": "approve", "job": "1f" * 32}, (), 400),
        (WANTED | {"why": "x" * MOST_BODY}, (), 413),
    ],
)
def test_any_other_decision_is_refused_and_does_nothing(
    body: object, headers: tuple[str, ...], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(page: Page, node: Asked) -> None:
        answer = await exchanged(page, post(body, *headers))
        assert status(answer) == code
        assert b"Traceback" not in answer
        assert b"Access-Control" not in answer
        assert node.done == []

    decided(test, monkeypatch)


def test_a_decision_whose_end_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "SILENT_SECONDS", 0.3)

    async def test(page: Page, node: Asked) -> None:
        assert status(await exchanged(page, post(WANTED)[:-10])) == 408
        assert node.done == []

    decided(test, monkeypatch)


def test_nothing_but_a_post_decides_and_a_page_without_decisions_has_no_such_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test(page: Page, node: Asked) -> None:
        for method in ("GET", "PUT", "OPTIONS"):
            assert status(await exchanged(page, asked("/decide", method=method))) == 405
        assert node.done == []
        other = Page(Door("127.0.0.1", 0, frozenset()), lambda: hub_page(hub()).view())
        await other.open()
        assert status(await exchanged(other, post(WANTED))) == 404
        await other.close()

    decided(test, monkeypatch)


def test_the_token_is_fresh_at_every_start_and_in_no_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("secfc.web").propagate = True
    with caplog.at_level(logging.INFO):
        first, second = deciding.token(tmp_path), deciding.token(tmp_path)
    assert first != second
    path = tmp_path / deciding.FILE
    assert path.read_text().strip() == second
    assert path.stat().st_mode & 0o777 == 0o600
    said = "".join(str(vars(record)) for record in caplog.records)
    assert first not in said
    assert second not in said
    assert second not in repr(Deciding(Asked(), second))


# --- reports ---------------------------------------------------------------------------------------------------------------


def finished(kits: Kits, state: Path, text: str = JOB) -> Submission:
    """A job that ended at b, whose rows are clustered 1, 0, none, 1."""
    rows = "age,weight,cluster\n1,2,x\n3,4,x\n,6,x\n5,6,x\n"
    job = signed(kits["analyst"], text=text + 'missing = "drop"\n', clock=NOW)
    one = Record(job, 1, State.FINISHED, "", {"b": Decision(Verdict.ALLOWED, "approved by <b>Ada</b>")}, 1, 2)
    (state / "jobs").mkdir()
    JobFiles(state / "jobs").put([Put(f"job/{job.digest.hex()}", one.dump())])
    (state / "rows.csv").write_text(rows)
    table = data.of_job(state / "rows.csv", job.wanted.job, None, "age,weight")
    out = state / "out" / job.id
    out.mkdir(parents=True)
    data.write(table, np.array([1, 0, 1], np.int32), out / "labels.csv", others={3: np.array([0, 0, 0], np.int32)})
    return job


def test_a_site_s_job_is_read_back_from_what_its_node_wrote(kits: Kits, tmp_path: Path) -> None:
    job = finished(kits, tmp_path)
    done = donejobs.find(kits["b"], tmp_path, tmp_path / "out", job.id[:6])
    assert done.labels.tolist() == [1, 0, 1]
    assert done.table.features.tolist() == [[1, 2], [3, 4], [5, 6]]
    text = report.report(done.federation, "b", b"", done.table, done.labels, None, None, done.origin)
    assert "&lt;b&gt;Ada&lt;/b&gt;" in text
    assert "analyst, 2033-" in text
    assert "every party, in federation.toml" not in text
    assert job.digest.hex() in text


def test_a_job_that_gives_the_number_of_features_is_read_back_with_those_it_had(kits: Kits, tmp_path: Path) -> None:
    job = finished(kits, tmp_path, NUMBERED)
    path = tmp_path / "out" / job.id / "result.json"
    for damaged in ("", "[]", "{}", '{"features": 2}', '{"features": []}', '{"features": [1, 2]}'):
        path.write_text(damaged)
        with pytest.raises(ConfigError, match=r"result.json: does not say which columns"):
            donejobs.find(kits["b"], tmp_path, tmp_path / "out", job.id)
    path.write_text('{"features": ["age", "weight"]}')
    done = donejobs.find(kits["b"], tmp_path, tmp_path / "out", job.id)
    assert done.table.feature_names == ("age", "weight")
    assert done.table.features.tolist() == [[1, 2], [3, 4], [5, 6]]


def test_jobs_that_have_no_report(kits: Kits, tmp_path: Path) -> None:
    job = finished(kits, tmp_path)
    with pytest.raises(NoSuchJob):
        donejobs.find(kits["b"], tmp_path, tmp_path / "out", "ffff")
    with pytest.raises(ConfigError, match="--jobs"):
        donejobs.find(kits["b"], tmp_path, tmp_path / "other", job.id)
    labels = tmp_path / "out" / job.id / "labels.csv"
    labels.write_text("".join(f"{line},x\n" for line in labels.read_text().splitlines()))
    with pytest.raises(ConfigError, match="its last column"):
        donejobs.find(kits["b"], tmp_path, tmp_path / "out", job.id)


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (("1234", "--data", "x.csv"), "leave out --data"),
        (("--jobs", "x"), "--jobs is about a submitted job"),
        ((), "name the one to report on"),
    ],
)
def test_a_report_of_a_federation_that_stays_is_about_a_job(
    call: tuple[str, ...], complaint: str, kits: Kits, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InvalidInput, match=complaint):
        reporting.main([*call, "--kit", str(kits.folder / "b")], standalone_mode=False)
