"""Sites that only dial out: what clients say to each other goes through the server, and the labels are the same."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from secfc import local
from secfc.local import Local
from tests.integration import helpers
from tests.integration.connecting import ConnectProxy
from tests.integration.helpers import until
from tests.integration.proxy import Proxy

SIZES = [60, 89, 1]


def parts() -> helpers.Parts:
    return helpers.split(helpers.mixture(sum(SIZES), 4, 3), SIZES)


def listening(pid: int) -> list[int]:
    """The ports on which a process listens (Linux); none if it has ended."""
    with contextlib.suppress(OSError):
        tables = [Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:] for table in ("tcp", "tcp6")]
        lines = [line.split() for table in tables for line in table]
        ports = {f"socket:[{one[9]}]": int(one[1].rpartition(":")[2], 16) for one in lines if one[3] == "0A"}
        links = [os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir()]
        return [ports[link] for link in links if link in ports]
    return []


def finish(site: Local, seconds: float = 120.0) -> None:
    site.wait(seconds)
    helpers.check_labels(site, parts())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "listeners"),
    [({"relay": "only", "uploads": "sealed"}, []), ({"dial_out": [2]}, ["client-1", "client-3"])],
    ids=["all-relayed", "mixed"],
)
def test_labels_are_the_same_and_who_dials_out_listens_nowhere(
    tmp_path: Path, settings: dict[str, Any], listeners: list[str]
) -> None:
    """Direct: `test_identical`, against the same central Lloyd."""
    site = helpers.prepared(tmp_path, parts(), helpers.describe(parts(), 3, **settings))
    found: set[str] = set()

    def look() -> None:
        running = {name for name in site.federation.roster if site.processes[name].poll() is None}
        found.update(name for name in running - found if listening(site.processes[name].pid))

    with local.running(site):
        site.wait(120, look)
    helpers.check_labels(site, parts())
    assert sorted(found) == listeners


@pytest.mark.slow
@pytest.mark.parametrize("verdict", ["reset", "swallow"])
def test_a_client_behind_a_firewall_is_reached_through_the_server_which_is_said_once(
    tmp_path: Path, verdict: str
) -> None:
    """Also behind one that answers nothing: gRPC gives up after 20 s."""
    plain = helpers.describe(parts(), 3, relay="fallback", uploads="sealed")
    with Proxy(plain.client("client-2").bind, verdict=lambda _: verdict) as firewall:
        made = helpers.readdressed(plain, {"client-2": firewall.address})
        site = helpers.prepared(tmp_path, parts(), made)
        with local.running(site):
            finish(site)
        assert firewall.turned_away
    for name in ("client-1", "client-3"):
        said = [line for line in site.events(name) if "goes through the server" in line["event"]]
        assert [line["event"].split()[0] for line in said] == ["client-2"], helpers.text(site, name)


@pytest.mark.slow
def test_a_server_that_meddles_with_envelopes_is_named_and_changes_nothing(tmp_path: Path) -> None:
    site = helpers.prepared(tmp_path, parts(), helpers.describe(parts(), 3, relay="only", uploads="sealed"))
    call = [sys.executable, "-m", "tests.integration.misbehaving", "relay", "--kit", str(site.kit("server"))]
    with open(site.log("server"), "ab") as log:
        site.processes["server"] = subprocess.Popen(
            [*call, "--out", str(site.folder), "--log-format", "json"], stdout=log, stderr=log, stdin=subprocess.DEVNULL
        )
    try:
        for name in site.federation.roster:
            site.start(name)
        finish(site)
    finally:
        site.stop()
    noticed = "".join(helpers.text(site, name) for name in site.federation.roster)
    for words in ("sealed for us: altered, or put in another's place", "came a second time", "is missing where"):
        assert words in noticed, words
    assert "the server does not carry faithfully" in noticed


@pytest.mark.slow
def test_through_an_http_proxy_that_only_knows_connect(tmp_path: Path) -> None:
    site = helpers.prepared(tmp_path, parts(), helpers.describe(parts(), 3, relay="only"))
    address = site.federation.server.address
    with ConnectProxy() as proxy:
        site.start("server")
        try:
            until(lambda: helpers.said(site, "server", "listening"), "the server listens")
            site.environment = {"https_proxy": proxy.url, "no_proxy": ""}
            check_through_a_proxy(site, proxy)
            for name in site.federation.roster:
                site.start(name)
            finish(site)
        finally:
            site.stop()
        assert set(proxy.asked) == {f"CONNECT {address}"}
        assert len(proxy.asked) > site.federation.n


def check_through_a_proxy(site: Local, proxy: ConnectProxy) -> None:
    call = [str(Path(sys.executable).with_name("secfc")), "check", "--kit", str(site.kit("client-1")), "--json"]
    done = subprocess.run(
        call, capture_output=True, text=True, timeout=60, check=False, env=os.environ | site.environment
    )
    findings = json.loads(done.stdout)["findings"]
    wrong = [one for one in findings if one["status"] == "fail"]
    assert not wrong, wrong
    assert any("through https_proxy" in one["detail"] for one in findings)
    rules = [one["detail"] for one in findings if one["name"] == "firewall"]
    host, _, port = site.federation.server.address.rpartition(":")
    assert rules == [
        "inbound: nothing",
        f"outbound: allow CONNECT to {host} port {port} (server) at the proxy of https_proxy",
    ]
