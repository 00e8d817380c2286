"""The federation over lines of 50 ms that lose every hundredth packet: the same labels, and what it costs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration import helpers, switch
from tests.integration.test_namespaces import NAMES, Network, Sites, federation_on, ip, namespaces_work

DELAY, LOSS = 0.050, 0.01


def has_netem(space: str) -> bool:
    """Whether the kernel can delay and lose packets itself; tried on a namespace's loopback."""
    call = ["tc", "-n", space, "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"]
    try:
        done = subprocess.run(call, capture_output=True, timeout=20, check=False)
    except FileNotFoundError:
        return False
    if done.returncode == 0:
        subprocess.run(
            ["tc", "-n", space, "qdisc", "del", "dev", "lo", "root"], capture_output=True, timeout=20, check=True
        )
    return done.returncode == 0


class SlowNetwork(Network):
    """Every line delays and loses what its party sends: by `tc netem`, or where that is missing by a switch of our own."""

    def slow_down(self, delay: float, loss: float) -> str:
        hub = self.space("hub")
        if has_netem(hub):
            for party in self._parties:
                words = [
                    "qdisc",
                    "add",
                    "dev",
                    "eth0",
                    "root",
                    "netem",
                    "delay",
                    f"{delay * 1000:g}ms",
                    "loss",
                    f"{loss:.0%}",
                ]
                subprocess.run(["tc", "-n", self.space(party), *words], check=True, timeout=20)
            return "tc netem"
        for i, party in enumerate(self._parties):
            ip("netns", "exec", self.space(party), sys.executable, switch.__file__, "wire", "eth0")
            ip("-n", hub, "link", "set", f"cable{i}", "nomaster")
        cables = [f"cable{i}" for i in range(len(self._parties))]
        call = [switch.__file__, str(delay), str(loss), "7", *cables]
        self.start("hub", Path("/dev/null"), *call)
        return "a switch in user space"


@pytest.fixture
def network() -> Iterator[SlowNetwork]:
    if reason := namespaces_work():
        pytest.skip(reason)
    made = SlowNetwork(["server", "north", "south", "east"])
    try:
        yield made
    finally:
        made.tear_down()


def pings(network: Network, count: int = 20) -> list[float]:
    """Seconds of round trips by TCP from one party to another's closed port, which answers at once."""
    code = (
        "import socket, time\n"
        f"for _ in range({count}):\n"
        "    began = time.monotonic()\n"
        "    try: socket.create_connection((" + repr(network.address["server"]) + ", 9), 10)\n"
        "    except ConnectionRefusedError: print(time.monotonic() - began)\n"
    )
    call = ["ip", "netns", "exec", network.space("north"), sys.executable, "-c", code]
    done = subprocess.run(call, capture_output=True, text=True, timeout=300, check=True)
    return [float(line) for line in done.stdout.split()]


def run_job(network: SlowNetwork, root: Path, seconds: float, **settings: object) -> dict[str, float]:
    """A job of 2000 rows from start to end; what the server says how many seconds each part took."""
    root.mkdir()
    parts = helpers.split(helpers.mixture(2000, 3, 3), [800, 1190, 10])
    sites = Sites(network, root, federation_on(network, max_rows=2000, k=4, precision=8, **settings), parts)
    for party in ("server", *sites.made.roster):
        sites.start(party)
    slow = network.processes.pop("hub", None)
    try:
        sites.finish(seconds)
    finally:
        if slow is not None:
            network.processes["hub"] = slow
    result = json.loads((root / "server" / "result.json").read_text())
    return {part: float(took) for part, took in result["seconds"].items()}


@pytest.mark.slow
@pytest.mark.alone
def test_50_ms_and_1_percent_loss(network: SlowNetwork, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    network.build(NAMES)
    quick = run_job(network, tmp_path / "quick", 120)
    how = network.slow_down(DELAY, LOSS)
    trips = sorted(pings(network))
    assert trips[0] >= 2 * DELAY * 0.99, "the lines are not slow"
    slow = run_job(network, tmp_path / "slow", 300)
    without, between = (one["sharing"] + one["rounds"] for one in (quick, slow))
    with capsys.disabled():
        sys.stdout.write(
            f"\nby {how}: sharing and rounds {without:.2f} s, with {DELAY * 1000:g} ms and {LOSS:.0%} loss {between:.2f} s\n"
        )


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.parametrize("uploads", ["masked", "sealed"])
def test_ten_starts_over_50_ms(
    network: SlowNetwork, tmp_path: Path, uploads: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """They go side by side, so they take few round trips more than one; printed, since timings decide nothing."""
    network.build(NAMES)
    network.slow_down(DELAY, 0.0)
    one, ten = (run_job(network, tmp_path / str(n), 300, uploads=uploads, starts=n) for n in (1, 10))
    ratios = ", ".join(f"{part} {ten[part]:.2f} / {one[part]:.2f} s" for part in ("rounds", "total"))
    with capsys.disabled():
        sys.stdout.write(f"\n{uploads}, ten starts / one start over {DELAY * 1000:g} ms: {ratios}\n")
