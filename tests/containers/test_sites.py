"""Parties as on machines of their own: deploy/server and deploy/site, each on its own network.

A container's network reaches no other's: parties meet only at the ports that each publishes on the host, which stands for
the internet here. Each has its own kit, rows, state and output.
"""

from __future__ import annotations

import ipaddress
import json
import re
import shutil
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from secfc.agreement import federation as federations
from secfc.agreement.federation import Federation
from secfc.agreement.parties import Party, split_address
from secfc.kmeans import central, fixedpoint
from secfc.kmeans.coins import Coins
from secfc.pki import authority as authorities
from secfc.pki import enrolment, provision
from tests.containers.compose import Composer, inspect
from tests.containers.engine import run
from tests.integration import helpers
from tests.integration.helpers import until

ROOT = Path(__file__).parents[2]
SIZES = [16000, 20000, 14000, 18000]
USER = 10001
PASSPHRASE = "four words in a row"
LONG = 300.0  # a job of several seconds, on a machine that may be busy with other things


def host_address() -> str:
    """Where containers of any network reach the host."""
    (settings,) = json.loads(run("docker", "network", "inspect", "bridge").stdout)
    pool = settings["IPAM"]["Config"][0]
    return str(pool.get("Gateway") or next(ipaddress.ip_network(pool["Subnet"]).hosts()))


def free_ports(address: str, count: int) -> list[int]:
    sockets = [socket.create_server((address, 0)) for _ in range(count)]
    ports = [int(one.getsockname()[1]) for one in sockets]
    for one in sockets:
        one.close()
    return ports


def describe(parts: helpers.Parts) -> Federation:
    host = host_address()
    ports = free_ports(host, 5)
    names = ["server", "north", "south", "east", "west"]
    parties = [Party(name, f"{host}:{port}", f"0.0.0.0:{port}") for name, port in zip(names, ports, strict=True)]
    base = helpers.describe(parts, 24, dropouts=1, precision=4, max_rounds=100)
    made = replace(base, name="sites", server=parties[0], clients=tuple(parties[1:]))
    return federations.parse(federations.dumps(made), "the federation of the sites")


class Sites:
    """The parties' machines: a folder and a compose project each."""

    def __init__(self, root: Path, command: list[str], image: str, base: str) -> None:
        self.root, self.image = root, image
        self.parts = helpers.split(helpers.mixture(sum(SIZES), 3, 24), SIZES)
        self.made = describe(self.parts)
        self.parties = ("server", *self.made.roster)
        self.projects: dict[str, Composer] = {}
        for party in self.parties:
            kind = "server" if party == "server" else "site"
            settings = {"IMAGE": image, "LISTEN": self.made.party(party).address, "MEMORY": "1g"}
            settings |= {name: str(root / party / name.lower()) for name in ("KIT", "DATA", "OUT")}
            file = ROOT / "deploy" / kind / "docker-compose.yml"
            self.projects[party] = Composer(command, file, base=base, **settings)

    def prepare(self) -> None:
        """Every party enrols where it is, as docs/operations.md says: its key is made in a container of its own and never
        leaves its kit folder."""
        (self.root / "authority").mkdir()
        (self.root / "federation.toml").write_text(federations.dumps(self.made))
        made = provision.provision(self.made, self.root / "authority", ca_only=True, passphrase=PASSPHRASE)
        authority = authorities.load(made.ca, self.made.name, lambda: PASSPHRASE)
        for party in self.parties:
            for folder in ("kit", "data", "out"):
                (self.root / party / folder).mkdir(parents=True)
            self.give(party, USER)
            told = json.loads(self.enrol(party))
            self.give(party, 0)
            request = enrolment.read_request((self.root / party / "kit" / "request.pem").read_bytes(), self.made)
            heard, answer = told["fingerprint"], self.root / party / "answer"
            enrolment.sign(authority, made.ca, self.made, request, heard, answer)
        for party in self.parties:
            shutil.copyfile(made.ca / "roster.json", self.root / party / "answer" / "roster.json")
            self.give(party, USER)
            self.accept(party, made.authority)
            self.give(party, 0)
        for name, part in zip(self.made.roster, self.parts, strict=True):
            path, header = self.root / name / "data" / "rows.csv", ",".join(self.made.job.feature_names or ())
            np.savetxt(path, part, fmt="%.17g", delimiter=",", header=header, comments="")
            (self.root / name / "kit" / "policy.toml").write_text('uploads = ["masked"]\n')
        for party in self.parties:
            self.give(party, USER)

    def enrol(self, party: str) -> str:
        kit, shared = self.root / party / "kit", self.root / "federation.toml"
        mounts = ["-v", f"{kit}:/kit", "-v", f"{shared}:/federation.toml:ro"]
        call = ["secfc", "enroll", "/federation.toml", "--as", party, "--out", "/kit", "--json"]
        return run("docker", "run", "--rm", "--read-only", "--network", "none", *mounts, self.image, *call).stdout

    def accept(self, party: str, fingerprint: str) -> str:
        kit, answer = self.root / party / "kit", self.root / party / "answer"
        mounts = ["-v", f"{kit}:/kit", "-v", f"{answer}:/answer:ro"]
        call = ["secfc", "accept", "--kit", "/kit", "--answer", "/answer", "--authority-fingerprint", fingerprint]
        return run("docker", "run", "--rm", "--read-only", "--network", "none", *mounts, self.image, *call).stdout

    def give(self, party: str, user: int) -> None:
        """The party's folders to that user, by a container, which may do so whoever runs the tests."""
        owner = f"{user}:{user}" if user else f"{Path(self.root).stat().st_uid}:{Path(self.root).stat().st_gid}"
        call = ["chown", "-R", owner, "/it"]
        run("docker", "run", "--rm", "--user", "0:0", "-v", f"{self.root / party}:/it", self.image, *call)

    def start(self, party: str) -> None:
        self.projects[party].run("up", "-d", "--no-build")

    def container(self, party: str) -> str:
        return self.projects[party].container("server" if party == "server" else "client")

    def logs(self, party: str) -> str:
        return self.projects[party].logs("server" if party == "server" else "client")

    def round(self) -> int:
        """The last round that the server has finished."""
        return max(map(int, re.findall(r" round (\d+) ", self.logs("server"))), default=0)

    def code(self, party: str) -> int | None:
        state = inspect(self.container(party))["State"]
        return None if state["Running"] or state["Restarting"] else int(state["ExitCode"])

    def in_rounds(self) -> None:
        until(lambda: self.round() >= 3, "the third round", LONG)

    def ends(self, *parties: str) -> None:
        for party in parties or self.parties:
            until(lambda p=party: self.code(p) is not None, f"{party} ends", LONG)
            assert self.code(party) == 0, self.logs(party)[-3000:]

    def check(self, *clients: str) -> central.Central:
        """These clients' labels, and the server's result, are those of central Lloyd."""
        result = json.loads(self.read("server", "result.json"))
        rows = fixedpoint.quantise(np.concatenate(self.parts), self.made.job.bound, self.made.job.precision)
        coins = Coins(bytes.fromhex(result["seed"]))
        job = self.made.job
        runs = central.runs(
            rows, job.runs, start=job.seeding, coins=coins, max_rounds=job.max_rounds, candidates=job.candidates
        )
        expected = runs[result["chosen_run"]]
        edges = dict(zip(self.made.roster, np.split(expected.labels, np.cumsum(SIZES)[:-1]), strict=True))
        for name in clients or self.made.roster:
            lines = self.read(name, "labels.csv").splitlines()[1:]
            np.testing.assert_array_equal([int(line.rpartition(",")[2]) for line in lines], edges[name])
        assert (result["state"], result["rounds"]) == ("finished", expected.rounds)
        return expected

    def read(self, party: str, name: str) -> str:
        """A file a party wrote, which is its own only."""
        mount = f"{self.root / party / 'out'}:/it:ro"
        return run("docker", "run", "--rm", "-v", mount, self.image, "cat", f"/it/{name}").stdout

    def remove(self) -> None:
        for party, project in self.projects.items():
            project.remove()
            if (self.root / party).exists():
                self.give(party, 0)


@pytest.fixture
def sites(tmp_path: Path, composers: dict[str, list[str]], image: str, base: str) -> Iterator[Sites]:
    """A federation that has begun its rounds."""
    command = composers.get("v2") or composers["v1"]
    with ExitStack() as stack:
        made = Sites(tmp_path, command, image, base)
        stack.callback(made.remove)
        made.prepare()
        for party in made.parties:
            made.start(party)
        made.in_rounds()
        yield made


@contextmanager
def held(sites: Sites, *parties: str) -> Iterator[None]:
    """The job stands still, because these do: all others wait for them and can be looked at."""
    for party in parties:
        run("docker", "pause", sites.container(party))
    assert running(sites), "the job was over too soon for this test"
    try:
        yield
    finally:
        for party in parties:
            run("docker", "unpause", sites.container(party))


def running(sites: Sites) -> bool:
    return "finished" not in sites.logs("server")


def test_a_client_that_is_killed_is_not_missed(sites: Sites) -> None:
    """(b) Within `dropouts` the others finish with the same labels; started again, it gets its own too."""
    run("docker", "kill", sites.container("west"))
    assert running(sites), "the job was over too soon for this test"
    until(lambda: not running(sites), "the job finishes without it", LONG)
    others = ("north", "south", "east")
    sites.ends(*others)
    assert sites.code("west") == 137
    sites.start("west")
    sites.ends()
    sites.check()


def test_a_client_that_is_cut_off_for_a_while(sites: Sites) -> None:
    """(c) No reset, no goodbye: the network is gone; rounds go on without it, and it comes back."""
    network = sites.projects["south"].network()
    run("docker", "network", "disconnect", network, sites.container("south"))
    assert running(sites), "the job was over too soon for this test"
    seen = sites.round()
    until(lambda: sites.round() >= seen + 2 or not running(sites), "rounds go on without it", LONG)
    run("docker", "network", "connect", network, sites.container("south"))
    sites.ends()
    sites.check()


def test_the_server_is_restarted(sites: Sites) -> None:
    """(d) Clients wait for it and go on; nothing is asked of people."""
    run("docker", "restart", sites.container("server"))
    assert "going on with an unfinished job" in until(
        lambda: (text := sites.logs("server")).count("listening") == 2 and text, "the server is back", LONG
    )
    sites.ends()
    sites.check()


SEARCH = """
import pathlib, sys
words = sys.stdin.read().split()
for path in pathlib.Path("/").rglob("*"):
    if path.parts[1:2] in (("proc",), ("sys",), ("usr",), ("opt",)) or not path.is_file():
        continue
    try:
        content = path.read_bytes()
    except OSError:
        continue
    for word in words:
        if word.encode() in content:
            print(path, word[:12])
"""


def test_a_client_cannot_read_what_is_anothers(sites: Sites) -> None:
    """(e) Not its kit, not its rows, not the shares it holds: they are not there, and there is no way to them."""
    with held(sites, "server"):
        look_for_what_is_anothers(sites)


def look_for_what_is_anothers(sites: Sites) -> None:
    secret = {party: own_words(sites, party) for party in sites.made.roster}

    def found(party: str, words: list[str]) -> str:
        call = ["docker", "exec", "-i", sites.container(party), "python", "-c", SEARCH]
        return run(*call, input=" ".join(words)).stdout

    assert found("north", secret["north"]).count("\n") >= 2  # the search does find what is there
    others = [word for party in ("south", "east", "west") for word in secret[party]]
    assert found("north", others) == ""
    held = run("docker", "exec", sites.container("north"), "ls", "/state").stdout.split()
    assert sorted(name for name in held if name.endswith(".shares")) == ["east.shares", "south.shares", "west.shares"]
    sources = {party: mounts(sites, party) for party in sites.parties}
    for one in sites.parties:
        for other in sites.parties:
            assert one == other or not sources[one] & sources[other]
    address = next(iter(inspect(sites.container("south"))["NetworkSettings"]["Networks"].values()))["IPAddress"]
    host, port = split_address(sites.made.client("south").address)
    assert dial(sites, "north", host, port) == 0  # where it publishes
    assert dial(sites, "north", address, 7000) != 0  # not past that


def own_words(sites: Sites, party: str) -> list[str]:
    """A line of its key, and one of its rows."""
    mount = f"{sites.root / party}:/it:ro"
    text = run("docker", "run", "--rm", "-v", mount, sites.image, "cat", "/it/kit/key.pem", "/it/data/rows.csv").stdout
    lines = text.splitlines()
    return [lines[1], lines[10]]


def mounts(sites: Sites, party: str) -> set[str]:
    return {one["Source"] for one in inspect(sites.container(party))["Mounts"]}


def dial(sites: Sites, party: str, host: str, port: int) -> int:
    code = f"import socket; socket.create_connection(({host!r}, {port}), 5)"
    return run("docker", "exec", sites.container(party), "python", "-c", code, check=False).returncode


def test_parties_run_as_nobody_on_a_root_they_cannot_write(sites: Sites) -> None:
    """(f) What holds for a running party."""
    with held(sites, "server"):
        for client in sites.made.roster:
            look_at(sites, client)
    with held(sites, "east", "west"):
        look_at(sites, "server")


def look_at(sites: Sites, party: str) -> None:
    settings = inspect(sites.container(party))
    assert settings["HostConfig"]["ReadonlyRootfs"] is True
    assert settings["HostConfig"]["CapDrop"] == ["ALL"]
    assert "no-new-privileges:true" in settings["HostConfig"]["SecurityOpt"]
    told = executed(sites, party, "import os; print(os.getuid(), os.getgid(), os.getgroups())")
    assert told.split() == ["10001", "10001", "[10001]"]
    status = executed(sites, party, "print(open('/proc/1/status').read())")
    assert re.search(r"^CapEff:\s+0+$", status, re.M)
    assert re.search(r"^NoNewPrivs:\s+1$", status, re.M)
    assert executed(sites, party, WRITE) == "no\n" * 4


WRITE = """
import pathlib
for place in ("/opt/secfc/x", "/x", "/etc/x", "/kit/x"):
    try:
        pathlib.Path(place).touch()
    except OSError:
        print("no")
"""


def executed(sites: Sites, party: str, code: str) -> str:
    return run("docker", "exec", sites.container(party), "python", "-c", code).stdout
