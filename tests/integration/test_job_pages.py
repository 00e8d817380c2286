"""The pages of a hub and a node of real processes, asked as a browser asks them (test_page.py has a browser)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from secfc import local
from tests.integration.helpers import until
from tests.integration.standing import Standing, secfc
from tests.integration.test_jobs import PARTS, check_labels

pytestmark = pytest.mark.slow


def view(url: str) -> dict[str, Any]:
    with urlopen(f"{url}/view", timeout=10) as answer:
        told: dict[str, Any] = json.loads(answer.read())
    return told


def decide(url: str, origin: str, **asked: str) -> tuple[int, str]:
    headers = {"Origin": origin, "Content-Type": "application/json"}
    request = Request(f"{url}/decide", json.dumps(asked).encode(), headers)
    try:
        with urlopen(request, timeout=10) as answer:
            return answer.status, answer.read().decode().strip()
    except HTTPError as error:
        return error.code, error.read().decode().strip()


def of(url: str, digest: str) -> dict[str, Any]:
    jobs = [one for one in view(url)["jobs"] if one["digest"].replace(" ", "") == digest]
    return jobs[0] if jobs else {"state": ""}


def test_a_job_is_approved_in_a_site_s_page_and_followed_to_its_end_where_all_dial_out(tmp_path: Path) -> None:
    with Standing(tmp_path / "f", PARTS, relay="only") as site:
        first, second, third = site.federation.roster
        (site.kit(second) / "policy.toml").write_text("max_assignments = 900\n")
        hub, node = (f"http://127.0.0.1:{port}" for port in local.free_ports(2))
        site.start("server", options=["--web", hub.removeprefix("http://")])
        site.start(second, options=["--web", node.removeprefix("http://")])
        for party in ("server", second):
            site.until_said(party, "page")
        until(lambda: [party["ok"] for party in view(hub)["parties"]] == [False, True, False], "who is there")
        site.start(first, third)
        site.ready()

        name = site.submit()
        until(lambda: of(hub, name)["state"] == "waiting", "the hub's page shows that a person is waited for")
        assert of(hub, name)["approvals_of"] == [second]
        until(lambda: of(node, name)["state"] == "waiting", "and so does the site's")
        question = dict(of(node, name)["question"])
        assert "at most 301 afterwards" in question["given away by this dataset, over all jobs"]

        token = (site.kit(second) / "state" / "decide.token").read_text()
        assert token.strip() not in (site.folder / f"{second}.log").read_text()
        assert decide(node, node, do="approve", job=name, token="0" * 20)[0] == 403
        assert decide(node, hub, do="approve", job=name, token=token)[0] == 403
        assert decide(hub, hub, do="approve", job=name, token=token)[0] == 404
        assert of(hub, name)["state"] == "waiting"
        assert decide(node, node, do="approve", job=name, token=token, who="Ada") == (200, "approved")

        assert site.over(name).state == "finished"
        assert (second, "allowed", "approved by Ada") in site.show(name).decisions
        check_labels(site, name)
        until(lambda: of(node, name)["state"] == "finished", "the site's page shows the end")
        own, all_of_it = view(node), view(hub)
        assert (own["job"], all_of_it["job"]) == (name[:16], name[:16])
        assert sum(own["sizes"]) == len(PARTS[1])
        assert own["profile"]["features"] == ["age", "weight"]
        assert sum(all_of_it["sizes"]) == sum(map(len, PARTS))
        assignments = next(one for one in own["given"] if one["what"] == "assignments of all rows")
        assert 0 < assignments["count"] < assignments["limit"] == 900
        for told in (json.dumps(own), json.dumps(all_of_it)):
            assert str(tmp_path) not in told
        assert decide(node, node, do="refuse", job=name, token=token) == (
            409,
            f"job {name[:16]} is over already: it is finished",
        )

        check_reports(site, name)
        site.kill("server")
        code, _, err = secfc("report", name[:8], "--kit", str(site.kit(second)), "--out", str(tmp_path / "alone.html"))
        assert (code, "without the server's part" in err) == (0, True), err
        assert "Request by request" not in (tmp_path / "alone.html").read_text()
        until(lambda: not view(node)["parties"][0]["ok"], "the site's page shows that the server is gone")
        for party in site.parties:
            wrong = [one for one in site.events(party) if "does not carry faithfully" in one["event"]]
            assert not wrong, "an honest server is accused of nothing"


def check_reports(site: Standing, name: str) -> None:
    """Of a site, with its own rows and what the server tells; of others, without rows; and the one that the node wrote."""
    second, path = site.federation.roster[1], site.folder / "report.html"
    for party, own in ((second, True), ("analyst", False), ("server", False)):
        code, _, err = secfc("report", name[:8], "--kit", str(site.kit(party)), "--out", str(path))
        assert code == 0, err
        text = path.read_text()
        assert ("A picture of this site" in text, "means by cluster" in text) == (own, own)
        for words in ("What was asked", "analyst, ", "Request by request", "What the server has learnt", name):
            assert words in text, (party, words)
    by_itself = (site.kit(second) / "jobs" / name[:16] / "report.html").read_text()
    assert "approved by Ada" in by_itself
    assert "every party, in federation.toml" not in by_itself
    assert "analyst, " in by_itself
