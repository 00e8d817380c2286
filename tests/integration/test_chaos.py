"""Jobs of real processes through kills, restarts and cut links at random moments, on loopback and over lines of 50 ms.

Everything random comes from one seed, which is printed and stands in every failure; SECFC_CHAOS_SEED=… tries it again.
"""

from __future__ import annotations

import os
import random
import secrets
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from secfc.local import Local
from tests.integration import helpers, test_membership
from tests.integration.chaos import MOMENTS, Event, Line, Manager, plan

SEED = os.environ.get("SECFC_CHAOS_SEED") or str(secrets.randbelow(10**9))
DEADLINES = ("--join-timeout", "40", "--share-timeout", "40", "--round-timeout", "8")  # some will pass: code 3
EVENTS = 4
JOB_SECONDS = 240.0  # a server waits 120 s at its end for clients that could not tell it that they are done
SIZES = ((200, 300, 1, 199), (300, 1, 399))  # of four clients three suffice in a round; of three all are needed


def make(
    folder: Path, stack: ExitStack, sizes: tuple[int, ...], delay: float, membership: str
) -> tuple[Local, helpers.Parts, dict[str, Line]]:
    """A job in which everybody is reached through a line of its own."""
    parts = helpers.split(helpers.mixture(sum(sizes), 6, 5, seed=3), sizes)
    plain = helpers.describe(parts, 5, precision=8, membership=membership, seed=None, max_rounds=15)
    names = ("server", *plain.roster)
    lines = {name: Line(plain.party(name).bind, delay) for name in names}
    for line in lines.values():
        stack.callback(line.close)
    made = helpers.readdressed(plain, {name: line.address for name, line in lines.items()})
    options = {"server_options": DEADLINES, "client_options": ("--write-ids",) if membership == "private" else ()}
    return helpers.prepared(folder, parts, made, environment={"SECFC_THREADS": "1"}, **options), parts, lines


def check(site: Local, parts: helpers.Parts) -> None:
    """Labels as by central Lloyd from the seed in result.json, and nobody crashed on the way."""
    test_membership.check(site, parts) if site.federation.job.membership == "private" else helpers.check_labels(
        site, parts
    )
    for party in ("server", *site.federation.roster):
        assert "Traceback" not in helpers.text(site, party), helpers.text(site, party)[-3000:]


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.parametrize("delay", [0.0, 0.05], ids=["loopback", "50 ms"])
@pytest.mark.parametrize("membership", ["public", "private"])
def test_labels_are_those_of_lloyd_whatever_happens(tmp_path: Path, membership: str, delay: float) -> None:
    told = f"SECFC_CHAOS_SEED={SEED}, {membership}, {delay:g} s"
    rng = random.Random(told)
    with ExitStack() as stack:
        site, parts, lines = make(tmp_path, stack, rng.choice(SIZES), delay, membership)
        stack.callback(site.stop)
        manager = Manager(site, lines, plan(rng, site.federation.roster, EVENTS))
        began = time.monotonic()
        try:
            manager.run(JOB_SECONDS)
            check(site, parts)
            assert manager.happened, "nothing happened, so nothing was tried"
        except Exception as error:
            error.add_note(f"{told}\nhappened: {manager.happened}\nnot yet: {manager.events}\nsaid: {manager.errors}")
            raise
    sys.stdout.write(f"\n{told}: {time.monotonic() - began:.0f} s\n")  # seen with `pytest -s`
    sys.stdout.writelines(f"  {line}\n" for line in [*manager.happened, *manager.errors])


# --- the means themselves ------------------------------------------------------------------------------------------------


def test_one_seed_one_plan_with_a_kill_of_the_server_and_of_a_client() -> None:
    roster = ["client-1", "client-2", "client-3"]
    for seed in range(50):
        events = plan(random.Random(seed), roster, 5)
        assert events == plan(random.Random(seed), roster, 5)
        assert [MOMENTS.index(event.moment) for event in events] == sorted(MOMENTS.index(e.moment) for e in events)
        killed = {event.party for event in events if event.what == "kill"}
        assert "server" in killed
        assert killed & set(roster)
    assert plan(random.Random(1), roster, 5) != plan(random.Random(2), roster, 5)


def test_a_line_delays_cuts_and_refuses() -> None:
    with socket.create_server(("127.0.0.1", 0)) as target:
        host, port = target.getsockname()
        with Line(f"{host}:{port}", 0.05) as line:
            address = (host, int(line.address.rpartition(":")[2]))
            with socket.create_connection(address, 5.0) as near, target.accept()[0] as far:
                began = time.monotonic()
                near.sendall(b"to")
                assert far.recv(16) == b"to"
                far.sendall(b"fro")
                assert near.recv(16) == b"fro"
                assert time.monotonic() - began >= 0.1
                line.down()
                assert gone(near)
            assert refused(address)
            line.up()
            with socket.create_connection(address, 5.0), target.accept()[0]:
                pass


def gone(connection: socket.socket) -> bool:
    """Whether it is closed or reset by the other side."""
    try:
        return connection.recv(16) == b""
    except ConnectionError:
        return True


def refused(address: tuple[str, int]) -> bool:
    """Whether a new connection is reset, before or after it is made."""
    try:
        with socket.create_connection(address, 5.0) as one:
            return gone(one)
    except ConnectionError:
        return True


class Scripted(Local):
    """Every party is a script that ends as told."""

    script = ""

    def start(self, party: str, *_: str) -> subprocess.Popen[bytes]:
        with open(self.log(party), "ab") as log:
            self.processes[party] = subprocess.Popen([sys.executable, "-S", "-c", self.script], stdout=log, stderr=log)
        return self.processes[party]


@pytest.mark.parametrize(
    ("script", "complaint"),
    [
        ("raise SystemExit(4)", "ended with 4"),
        ("print('hm'); raise SystemExit(3)", "without a clear line"),
        ("import time; time.sleep(20)", "still running: server, client-1"),
    ],
)
def test_a_wrong_end_or_none_fails(tmp_path: Path, script: str, complaint: str) -> None:
    parts = helpers.split(helpers.mixture(3, 2, 1), (1, 1, 1))
    site = Scripted(helpers.describe(parts, 1), tmp_path)
    site.script = script
    try:
        with pytest.raises(AssertionError, match=complaint):
            Manager(site, {}, []).run(0.5 if "sleep" in script else 10.0)
    finally:
        site.stop()


def test_code_3_is_started_again_and_a_killed_party_too(tmp_path: Path) -> None:
    parts = helpers.split(helpers.mixture(3, 2, 1), (1, 1, 1))
    site = Scripted(helpers.describe(parts, 1), tmp_path)
    mark = str(tmp_path / "mark")
    site.script = (
        f"import os, time\nif os.path.exists({mark!r}): raise SystemExit(0)\n"
        'print(\'{"level": "info", "event": "joined"}\', flush=True)\n'
        f"time.sleep(0.5)\nopen({mark!r}, 'w')\nprint('error: too late')\nraise SystemExit(3)"
    )
    manager = Manager(site, {}, [Event("joined", 0.0, "kill", "client-2", 0.6)])
    try:
        manager.run(20.0)
    finally:
        site.stop()
    assert [event.party for event in manager.happened] == ["client-2"]
    assert sorted({words.partition(":")[0] for words in manager.errors}) == ["client-1", "client-3", "server"]
