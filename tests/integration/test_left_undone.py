"""A client killed after its labels are written does the rest when it is started again; and what its rows gave away stays
counted, whatever the server does."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from secfc import local
from secfc.local import Local
from tests.integration import helpers
from tests.integration.test_centers import opened
from tests.integration.test_policies import ends, make, renewed, rules


@pytest.mark.slow
def test_centres_after_a_kill(tmp_path: Path) -> None:
    """While one client is frozen the others wait for its answer about the centres, so the moment can be chosen."""
    parts = helpers.split(helpers.mixture(160, 4, 3, seed=2), [60, 50, 30, 20])
    made = helpers.describe(parts, 3, centers="clients", dropouts=1, segments=1, max_rounds=6)
    site = helpers.prepared(
        tmp_path,
        parts,
        made,
        client_options=("--open-centers", "clients"),
        environment={"SECFC_THREADS": "1"},
    )
    with local.running(site):
        helpers.until(lambda: helpers.in_rounds(site), "rounds have begun", 120)
        frozen = site.processes["client-4"]
        frozen.send_signal(signal.SIGSTOP)
        try:
            helpers.until(lambda: helpers.said(site, "client-2", "labels written"), "client-2 has its labels", 120)
            site.processes["client-2"].kill()
            site.processes["client-2"].wait()
            site.labels_file("client-2").unlink()
            site.start("client-2")
            helpers.until(lambda: helpers.said(site, "client-2", "resuming after a restart"), "client-2 is back", 120)
        finally:
            frozen.send_signal(signal.SIGCONT)
        site.wait(240)
    assert "Traceback" not in helpers.text(site, "client-2")
    assert opened(site, "client-1") is not None
    assert opened(site, "client-2") == opened(site, "client-1")


def budget_of(site: Local, client: str) -> int:
    call = [
        sys.executable,
        "-c",
        "from secfc_client.cli import main; main()",
        "budget",
        "--kit",
        str(site.kit(client)),
        "--json",
    ]
    shown: dict[str, dict[str, Any]] = json.loads(
        subprocess.run(call, capture_output=True, text=True, check=True).stdout
    )
    return int(sum(entry["directions"] for entry in shown.values()))


@pytest.mark.slow
def test_a_server_that_starts_over_again_and_again_never_gets_beyond_the_limit(tmp_path: Path) -> None:
    """After three restarts with a limit of 4 the server knew 10 of 10."""
    site, _ = make(tmp_path)
    with local.running(site):
        site.wait(120)
    known = budget_of(site, "client-2")
    assert known >= site.result()["directions_given_away"]["count"] > 0
    limit = known + 4
    rules(site, "client-2", f"max_directions = {limit}\n")
    for _ in range(3):
        with local.running(again := renewed(site, "--new", "--join-timeout", "5")):
            codes = ends(again, "client-2", "server")
        assert codes["client-2"] in (2, 4), "it refuses, before it joins or in a round"
        assert codes["server"] in (3, 4)
        assert budget_of(site, "client-2") <= limit
    assert f"max_directions = {limit}" in site.last_words("client-2")
