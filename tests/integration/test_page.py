"""The pages of server and site in a real browser, beside a federation of real processes.

With SECFC_PICTURES=FOLDER the pictures of docs/ are taken on the way.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
from selenium.webdriver.chrome.webdriver import WebDriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from secfc import local
from secfc.local import Local
from tests.integration import browser as browsers
from tests.integration.helpers import check_labels, describe, mixture, prepared, split, until
from tests.integration.standing import JOB, Standing

pytestmark = pytest.mark.slow
PARTS = split(mixture(900, 6, 4), (300, 350, 250))
PEOPLE = split(mixture(150, 2, 2, seed=3), [60, 50, 40])


@pytest.fixture(scope="module")
def browser() -> Iterator[WebDriver]:
    with browsers.chromium() as opened:
        yield opened


def federation(folder: Path, **settings: object) -> tuple[Local, str, str]:
    """Three clients and a server, nothing started; the pages of the server and of client-1."""
    server, client = local.free_ports(2)
    site = prepared(folder, PARTS, describe(PARTS, 4, **settings), server_options=["--web", f"127.0.0.1:{server}"])
    return site, f"http://127.0.0.1:{server}/", f"http://127.0.0.1:{client}/"


def text(browser: WebDriver, name: str) -> str:
    return str(browser.execute_script(f"return document.getElementById({name!r}).textContent"))


def state(browser: WebDriver, party: str) -> str:
    rows = browser.execute_script("return [...document.querySelectorAll('#parties tr')].map(r => r.innerText)")
    return next((row for row in rows if row.startswith(party)), "")


def picture(browser: WebDriver, name: str, width: int, *, dark: bool = False) -> None:
    """Whatever is shown fits the width; and a picture for people."""
    browsers.emulate(browser, width, dark=dark)
    shown = browser.execute_script("return document.documentElement.scrollWidth")
    assert shown == width, f"{name} is {shown} wide, and the window {width}"
    if folder := os.environ.get("SECFC_PICTURES"):
        browsers.picture(browser, Path(folder) / f"{name}.png")


def test_the_pages_follow_a_job_through_a_lost_client_and_a_restart_to_its_end(
    tmp_path: Path, browser: WebDriver
) -> None:
    site, server_url, client_url = federation(tmp_path, uploads="masked", other_k=(3,), starts=2)
    try:
        site.start("server")
        until(lambda: any(one["event"] == "page" for one in site.events("server")), "the server has a page")
        browser.get(server_url)
        until(lambda: "waiting for client-1, client-2, client-3" in text(browser, "now"), "it waits for all")
        site.start("client-1", "--web", client_url.removeprefix("http://").rstrip("/"))
        site.start("client-2")
        until(lambda: text(browser, "now").endswith("waiting for client-3"), "it waits for the last")
        assert state(browser, "client-2").split("\t")[1] == "here"

        assert min(_shown_after(browser, site) for _ in range(3)) < 3.0, (
            "seconds; on a busy machine one may take longer"
        )

        site.processes["server"].send_signal(signal.SIGTERM)
        site.processes["server"].wait(20)
        until(lambda: text(browser, "live").startswith("no connection"), "the page shows that the server is gone", 20)
        site.start("server")
        until(lambda: text(browser, "live") == "live", "the page is back by itself")

        browser.switch_to.new_window("tab")
        browser.get(client_url)
        until(lambda: "as client-1 sees it" in text(browser, "who"), "the site has a page")
        with urlopen(f"{client_url}view") as answer:
            told = answer.read().decode()
        assert str(tmp_path) not in told
        assert "/" not in told
        site.start("client-2")
        site.start("client-3")
        site.wait(60)
        until(lambda: text(browser, "now") == "Finished.", "the site's page shows the end", 20)
        assert "x1" in text(browser, "profile")
        assert sum(int(row.split()[-1]) for row in _rows(browser, "t-sizes")) == 300
        _look(browser, "page-site")

        browser.switch_to.window(browser.window_handles[0])
        until(lambda: text(browser, "now") == "Finished.", "the server's page shows the end", 20)
        until(lambda: text(browser, "live") == "ended", "and that nobody is there any more", 20)
        result = site.result()
        assert [int(row.split()[-1].replace(",", "")) for row in _rows(browser, "t-sizes")] == result["cluster_sizes"]
        assert len(_rows(browser, "t-time")) == len(result["history"])
        assert f"assignments of all rows\t{result['assignments_given_away']}" in "\n".join(_rows(browser, "given"))
        _look(browser, "page-server")
        assert browsers.complaints(browser) == []
        check_labels(site, PARTS)
        _report(browser, site)
    finally:
        site.stop()


def test_a_person_decides_in_the_page_of_a_site_and_the_hub_s_page_tells_of_all_jobs(
    tmp_path: Path, browser: WebDriver
) -> None:
    with Standing(tmp_path / "f", PEOPLE, relay="only") as site:
        first, second, third = site.federation.roster
        (site.kit(second) / "policy.toml").write_text("max_assignments = 2000\n")
        hub, node = (f"http://127.0.0.1:{port}/" for port in local.free_ports(2))
        site.start("server", options=["--web", hub.removeprefix("http://").rstrip("/")])
        site.start(second, options=["--web", node.removeprefix("http://").rstrip("/")])
        site.start(first, third)
        site.ready()
        for party in ("server", second):
            site.until_said(party, "page")
        browser.get(hub)
        until(lambda: text(browser, "now").startswith("No job has run"), "the hub has a page")
        until(lambda: state(browser, third).split("\t")[1] == "connected", "who is there")
        refused = site.submit(JOB.replace("k = 2", "k = 4"))
        until(
            lambda: f"waiting for {second}" in _job(browser, refused), "the hub's page shows whose approval is missing"
        )
        assert f"secfc approve {refused[:8]} --kit KIT" in _job(browser, refused)

        browser.switch_to.new_window("tab")
        browser.get(node)
        until(lambda: f"Job {refused[:8]} of analyst" in text(browser, "asks"), "the site is asked")
        assert "assignments: 0 so far, at most " in text(browser, "asks")
        unlabelled = "return [...document.querySelectorAll('input')].filter(i => !i.labels.length).length"
        assert browser.execute_script(unlabelled) == 0
        token = (site.kit(second) / "state" / "decide.token").read_text().strip()
        _decide(browser, "refuse", "0" * 20, "")
        until(
            lambda: "the token is not the one in STATE/decide.token" in text(browser, "asks"),
            "a wrong token is refused",
        )
        _type(browser, token, "no" + Keys.ENTER)
        time.sleep(1)  # longer than an answer takes
        assert f"Job {refused[:8]} of analyst" in text(browser, "asks"), "Enter decides nothing"
        assert not site.show(refused).over
        _decide(browser, "refuse", token, "too many clusters")
        until(
            lambda: browser.find_element(By.ID, "s-asks").get_attribute("hidden") is not None, "nothing waits any more"
        )
        assert site.over(refused).reason == f"{second} refuses: too many clusters"

        wanted = site.submit()
        until(lambda: f"Job {wanted[:8]}" in text(browser, "asks"), "the site is asked again")
        picture(browser, "page-node-phone", 390)
        picture(browser, "page-node-dark", 1200, dark=True)
        _decide(browser, "approve", token, "")
        assert site.over(wanted).state == "finished"
        until(lambda: "finished" in _job(browser, wanted), "the site's page shows the end")
        until(lambda: "age" in text(browser, "profile"), "and what its rows are like")
        later = site.submit(JOB.replace('"s"', '"another"'))
        until(lambda: f"Job {later[:8]}" in text(browser, "asks"), "and what is asked next")
        picture(browser, "page-node", 1200)
        assert browsers.complaints(browser) == []

        browser.switch_to.window(browser.window_handles[0])
        until(lambda: f"waiting for {second}" in _job(browser, later), "the hub's page has followed")
        assert "approved by" not in _job(browser, wanted)
        assert [row.split("\t")[0] for row in _rows(browser, "jobs")] == [one[:8] for one in (later, wanted, refused)]
        picture(browser, "page-hub-phone", 390)
        picture(browser, "page-hub", 1200)
        assert browsers.complaints(browser) == []


def _job(browser: WebDriver, name: str) -> str:
    return next((row for row in _rows(browser, "jobs") if row.startswith(name[:8])), "")


def _decide(browser: WebDriver, what: str, token: str, why: str) -> None:
    _type(browser, token, why)
    browser.find_element(By.TAG_NAME, "form").find_element(By.CSS_SELECTOR, f"button[value={what}]").click()


def _type(browser: WebDriver, token: str, why: str) -> None:
    shown = browser.find_element(By.TAG_NAME, "form")
    for field, typed in zip(shown.find_elements(By.TAG_NAME, "input"), (token, "Ada", why), strict=True):
        field.clear()
        field.send_keys(typed)


def _shown_after(browser: WebDriver, site: Local) -> float:
    """Kill a client: seconds until the page says so."""
    if "here" not in state(browser, "client-2"):
        site.start("client-2")
        until(lambda: "here" in state(browser, "client-2"), "it is back")
        until(lambda: "client-2" not in text(browser, "trouble"), "and no trouble any more")
    lost = site.processes["client-2"]
    lost.kill()
    began = time.monotonic()
    lost.wait()
    until(lambda: "lost: no connection" in state(browser, "client-2"), "the page shows who was killed", 20)
    assert "client-2" in text(browser, "trouble")
    return time.monotonic() - began


def _rows(browser: WebDriver, name: str) -> list[str]:
    script = """
        const found = document.getElementById(arguments[0]), body = (found.tBodies && found.tBodies[0]) || found;
        return [...body.rows].map((row) => [...row.cells].map((cell) => cell.textContent).join("\\t"));
    """
    return list(browser.execute_script(script, name))


def _look(browser: WebDriver, name: str) -> None:
    """Wide, dark and on a phone; everything can be reached by keyboard."""
    picture(browser, name, 1200)
    picture(browser, f"{name}-dark", 1200, dark=True)
    picture(browser, f"{name}-phone", 390)
    body, reached = browser.find_element(By.TAG_NAME, "body"), set()
    for _ in range(12):
        body.send_keys(Keys.TAB)
        reached.add(browser.execute_script("return document.activeElement.tagName"))
    assert {"SUMMARY", "A"} <= reached
    spoken = "return [...document.querySelectorAll('[role=status], [role=alert]')].length"
    assert browser.execute_script(spoken) == 3
    silent = (
        "return [...document.querySelectorAll('.scroll')].filter(s => s.tabIndex !== 0 || s.role !== 'region').length"
    )
    assert browser.execute_script(silent) == 0, "who has no mouse scrolls them too"
    unnamed = "return [...document.querySelectorAll('svg')].filter(s => !s.getAttribute('aria-label')).length"
    assert browser.execute_script(unnamed) == 0


def _report(browser: WebDriver, site: Local) -> None:
    path = site.folder / "client-1.labels.report.html"
    assert path.stat().st_mode & 0o777 == 0o600
    browser.get(path.as_uri())
    assert "A picture of this site's rows" in browser.find_element(By.TAG_NAME, "body").text
    picture(browser, "report", 900)
    picture(browser, "report-phone", 390)
    assert browsers.complaints(browser) == []
