"""Whoever has no certificate, and only connects, ends nobody: descriptors are left for state, and for those who have one."""

from __future__ import annotations

import resource
import socket
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.integration import helpers
from tests.integration.helpers import said, until

DESCRIPTORS = 150  # of the parties under attack
AT_ONCE = 400


class Strangers:
    """So many idle connections to each address, opened again when they are turned away, until `stop`."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self._addresses = [(host, int(port)) for host, _, port in (one.rpartition(":") for one in addresses)]
        self._stopped = threading.Event()
        self._idle: list[socket.socket] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopped.is_set():
            for address in self._addresses:
                self._open(address)
            self._stopped.wait(2.0)

    def _open(self, address: tuple[str, int]) -> None:
        for _ in range(AT_ONCE):
            try:
                self._idle.append(socket.create_connection(address, 0.2))
            except OSError:
                return

    def stop(self) -> None:
        """No new ones; those that are open stay, and say nothing."""
        self._stopped.set()
        self._thread.join()

    def close(self) -> None:
        self.stop()
        for one in self._idle:
            one.close()


@pytest.mark.slow
def test_idle_connections_end_nobody(tmp_path: Path) -> None:
    """The job is attacked while it joins and shares; it ends as any other does, and says that it ran out of rounds."""
    parts = helpers.split(helpers.mixture(600, 4, 5, seed=2), (200, 200, 200))
    site = helpers.prepared(tmp_path, parts, helpers.describe(parts, 5, max_rounds=2))
    for party in ("server", "client-1"):
        pid = site.start(party).pid
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))  # before its first import is done
    strangers = None
    try:
        for party in ("server", "client-1"):
            until(lambda party=party: said(site, party, "listening"), f"{party} listens")  # type: ignore[misc]
        until(lambda: said(site, "client-1", "joined"), "client-1 joins")
        strangers = Strangers([site.federation.party(party).address for party in ("server", "client-1")])
        for party in ("client-2", "client-3"):
            site.start(party)
        time.sleep(8.0)  # of attack; whoever is not in yet may be kept out by it, but nobody ends
        strangers.stop()
        site.wait(120)
    finally:
        if strangers is not None:
            strangers.close()
        site.stop()
    helpers.check_labels(site, parts)
    assert not site.result()["converged"]
    for party in ("server", "client-1"):
        warned = said(site, party, "stopped after max_rounds = 2; not converged")
        assert warned is not None
        assert warned["level"] == "warning"
