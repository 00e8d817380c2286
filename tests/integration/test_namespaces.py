"""Every party on a network of its own: namespaces joined by a bridge; kits are carried there, nothing else is shared."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from secfc.agreement import federation as federations
from secfc.agreement.federation import Federation
from secfc.agreement.parties import Party
from secfc.pki import provision
from tests.integration import helpers
from tests.integration.helpers import until

SUBNET = "10.231.77"
PORT = 7443


def ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr}"


def namespaces_work() -> str:
    """Why they do not, or nothing."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "iproute2 (`ip`) is not installed"
    name = f"secfc-try-{os.getpid()}"
    done = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, timeout=20, check=False)
    if done.returncode != 0:
        return f"`ip netns add` does not work here: {done.stderr.strip()}"
    subprocess.run(["ip", "netns", "del", name], capture_output=True, timeout=20, check=False)
    return ""


class Network:
    """A hub with a bridge, and one namespace a party, each with one address and a hosts file of its own."""

    def __init__(self, parties: list[str]) -> None:
        self._prefix = f"secfc-{os.getpid()}"
        self._parties = parties
        self.address = {party: f"{SUBNET}.{i + 1}" for i, party in enumerate(parties)}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def space(self, party: str) -> str:
        return f"{self._prefix}-{party}"

    def build(self, hosts: dict[str, str]) -> None:
        hub = self.space("hub")
        ip("netns", "add", hub)
        ip("-n", hub, "link", "add", "bridge", "type", "bridge")
        ip("-n", hub, "link", "set", "bridge", "up")
        lines = "".join(f"{self.address[party]} {name}\n" for name, party in hosts.items())
        for i, party in enumerate(self._parties):
            space, cable = self.space(party), f"cable{i}"
            ip("netns", "add", space)
            ip("link", "add", cable, "netns", hub, "type", "veth", "peer", "name", "eth0", "netns", space)
            ip("-n", hub, "link", "set", cable, "master", "bridge", "up")
            ip("-n", space, "address", "add", f"{self.address[party]}/24", "dev", "eth0")
            ip("-n", space, "link", "set", "eth0", "up")
            ip("-n", space, "link", "set", "lo", "up")
            folder = Path("/etc/netns") / space
            folder.mkdir(parents=True)
            (folder / "hosts").write_text("127.0.0.1 localhost\n" + lines)

    def build_spokes(self) -> None:
        """One cable from each client to the server and none between clients: no client has a route to another, or any that
        others could take to it."""
        hub = self.space("server")
        ip("netns", "add", hub)
        ip("-n", hub, "link", "set", "lo", "up")
        ip("-n", hub, "address", "add", f"{self.address['server']}/32", "dev", "lo")
        for i, party in enumerate(self._parties[1:], 1):
            space, cable = self.space(party), f"cable{i}"
            ip("netns", "add", space)
            ip("link", "add", cable, "netns", hub, "type", "veth", "peer", "name", "eth0", "netns", space)
            for where, device in ((hub, cable), (space, "eth0"), (space, "lo")):
                ip("-n", where, "link", "set", device, "up")
            ip("-n", space, "address", "add", f"{self.address[party]}/32", "dev", "eth0")
            ip("-n", space, "route", "add", f"{self.address['server']}/32", "dev", "eth0", "src", self.address[party])
            ip("-n", hub, "route", "add", f"{self.address[party]}/32", "dev", cable)

    def unplug(self, party: str) -> None:
        ip("-n", self.space("hub"), "link", "set", f"cable{self._parties.index(party)}", "down")

    def plug(self, party: str) -> None:
        ip("-n", self.space("hub"), "link", "set", f"cable{self._parties.index(party)}", "up")

    def start(self, party: str, log: Path, *call: str) -> subprocess.Popen[bytes]:
        clean = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
        with open(log, "ab") as file:
            self.processes[party] = subprocess.Popen(
                ["ip", "netns", "exec", self.space(party), sys.executable, *call],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env=clean,
                start_new_session=True,
            )
        return self.processes[party]

    def tear_down(self) -> None:
        """Whatever was built of it."""
        for process in self.processes.values():  # `ip netns exec` becomes the program itself
            with suppress(ProcessLookupError):
                process.kill()
            process.wait(20)
        for party in (*self._parties, "hub"):
            subprocess.run(["ip", "netns", "del", self.space(party)], capture_output=True, timeout=20, check=False)
            shutil.rmtree(Path("/etc/netns") / self.space(party), ignore_errors=True)


@pytest.fixture
def network() -> Iterator[Network]:
    if reason := namespaces_work():
        pytest.skip(reason)
    made = Network(["server", "north", "south", "east"])
    try:
        yield made
    finally:
        made.tear_down()


def federation_on(network: Network, **settings: object) -> Federation:
    """The server and one client are dialled by address, the others by name; all listen on every address they have."""

    def party(name: str, host: str, names: tuple[str, ...] = ()) -> Party:
        return Party(name=name, address=f"{host}:{PORT}", bind=f"0.0.0.0:{PORT}", names=names)

    base = helpers.describe([np.zeros((1, 3))] * 3, **({"k": 3} | settings))
    server = party("server", network.address["server"], ("hub.secfc.test",))
    clients = (
        party("north", network.address["north"]),
        party("south", "south.secfc.test", (network.address["south"],)),
        party("east", "east.secfc.test"),
    )
    made = dataclasses.replace(base, server=server, clients=clients)
    return federations.parse(federations.dumps(made), "the federation of the namespaces")


class Sites:
    """Each party's machine: a folder with its kit, its rows and its output."""

    def __init__(self, network: Network, root: Path, made: Federation, parts: helpers.Parts) -> None:
        self.network, self.made, self.root, self.parts = network, made, root, parts
        provision.provision(made, root / "provisioned")
        for name in ("server", *made.roster):
            (root / name).mkdir(mode=0o700)
            helpers.copied_kit(root / "provisioned" / name, root / name / "kit")
        shutil.rmtree(root / "provisioned")  # nobody but its owner has a kit from now on
        for name, part in zip(made.roster, parts, strict=True):
            pq.write_table(
                pa.table({f"x{f + 1}": part[:, f] for f in range(part.shape[1])}), root / name / "rows.parquet"
            )

    def start(self, party: str) -> subprocess.Popen[bytes]:
        here = self.root / party
        common = ["--kit", str(here / "kit"), "--log-format", "json"]
        if party == "server":
            options = ["-m", "secfc_server", *common, "--out", str(here)]
        else:
            options = [
                "-m",
                "secfc_client",
                *common,
                "--data",
                str(here / "rows.parquet"),
                "--out",
                str(here / "out.csv"),
            ]
        return self.network.start(party, here / "log", *options)

    def events(self, party: str) -> list[dict[str, object]]:
        log = self.root / party / "log"
        lines = log.read_text().splitlines() if log.exists() else []
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]

    def finish(self, seconds: float) -> None:
        """All end well, with central Lloyd's labels."""
        for name, process in self.network.processes.items():
            code = until(lambda p=process: p.poll() is not None and [p.returncode], f"{name} ends", seconds)
            assert code == [0], (self.root / name / "log").read_text()[-2000:]
        labels = []
        for name in self.made.roster:
            lines = (self.root / name / "out.csv").read_text().splitlines()[1:]
            labels += [int(line.rpartition(",")[2]) for line in lines]
        expected = helpers.pooled(self.made, self.parts)
        np.testing.assert_array_equal(labels, expected.labels)
        result = json.loads((self.root / "server" / "result.json").read_text())
        assert (result["state"], result["rounds"]) == ("finished", expected.rounds)
        assert sorted(result["labels_written"]) == sorted(self.made.roster)


NAMES = {"south.secfc.test": "south", "east.secfc.test": "east", "hub.secfc.test": "server"}


@pytest.mark.slow
def test_parties_on_networks_of_their_own(network: Network, tmp_path: Path) -> None:
    network.build(NAMES)
    parts = helpers.split(helpers.mixture(200, 3, 3), [80, 119, 1])
    sites = Sites(network, tmp_path, federation_on(network, max_rows=200), parts)
    for party in ("server", *sites.made.roster):
        sites.start(party)
    sites.finish(90)


@pytest.mark.slow
def test_sites_that_can_only_dial_out(network: Network, tmp_path: Path) -> None:
    """Each reaches the server's one port and nothing else."""
    network.build_spokes()
    base = federation_on(network, max_rows=200, uploads="sealed")
    clients = tuple(Party(client.name, "", "") for client in base.clients)
    made = federations.parse(federations.dumps(dataclasses.replace(base, clients=clients, relay="only")), "spokes")
    parts = helpers.split(helpers.mixture(200, 3, 3), [80, 119, 1])
    sites = Sites(network, tmp_path, made, parts)
    for party in ("server", *made.roster):
        sites.start(party)
    south = ["ip", "-n", network.space("north"), "route", "get", network.address["south"]]
    assert subprocess.run(south, capture_output=True, timeout=20, check=False).returncode != 0, "there is a route"
    sites.finish(90)


@pytest.mark.slow
def test_a_cable_that_is_pulled_for_a_while_in_the_rounds(network: Network, tmp_path: Path) -> None:
    """No reset, no error, only silence; TCP goes on when the cable is back, and so does the job."""
    network.build(NAMES)
    parts = helpers.split(helpers.mixture(24000, 3, 16), [8000, 8000, 8000])
    made = federation_on(network, max_rows=24000, k=16, precision=4, max_rounds=60)
    sites = Sites(network, tmp_path, made, parts)
    for party in ("server", *made.roster):
        sites.start(party)
    until(lambda: any(line["event"] == "round 1" for line in sites.events("server")), "rounds have begun")
    network.unplug("south")

    def stands() -> bool:
        return network.processes["server"].poll() is None

    with pytest.raises(AssertionError, match="is over"):  # nothing moves without south
        until(lambda: not stands(), "the job is over", 6.0)
    network.plug("south")
    sites.finish(120)
