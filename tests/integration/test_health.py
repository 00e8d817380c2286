"""`secfc health`: the answer of a real process, and of none."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from secfc import exits
from secfc_client import cli
from tests.integration import helpers
from tests.integration.helpers import until


@pytest.fixture
def health(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def ask(kit: Path, *options: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            exits.run(cli.group, "secfc", ["health", "--kit", str(kit), *options])
        return ended.value.code, *capsys.readouterr()

    return ask


def test_a_server_that_serves_and_a_client_that_is_not_there(
    tmp_path: Path, health: Callable[..., tuple[int, str, str]]
) -> None:
    parts = helpers.split(helpers.mixture(30, 2, 2), [10, 10, 10])
    site = helpers.prepared(tmp_path, parts, helpers.describe(parts, 2))
    try:
        site.start("server")
        until(lambda: helpers.said(site, "server", "listening"), "the server listens")
        assert health(site.kit("server"))[:2] == (0, "serving\n")
        address = site.federation.server.address
        code, out, _ = health(site.kit("server"), "--json", "--address", address)
        assert (code, json.loads(out)) == (0, {"party": "server", "address": address, "state": "SERVING"})
        code, out, err = health(site.kit("client-1"))
        assert (code, out) == (3, "")
        assert helpers.error_line(err).startswith("error: client-1 at 127.0.0.1:")
        code, _, err = health(
            site.kit("client-1"), "--address", address
        )  # somebody else's process is no health of ours
        assert code == 3
    finally:
        site.stop()


def test_an_address_that_is_none(tmp_path: Path, health: Callable[..., tuple[int, str, str]]) -> None:
    parts = helpers.split(helpers.mixture(30, 2, 2), [10, 10, 10])
    site = helpers.prepared(tmp_path, parts, helpers.describe(parts, 2))
    code, _, err = health(site.kit("server"), "--address", "nowhere")
    assert code == 2
    assert 'is not "host:port"' in helpers.error_line(err)
