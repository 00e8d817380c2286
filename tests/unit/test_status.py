"""`secfc status` against a real gRPC server with mutual TLS on this machine, whose answers the tests make up."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from click.testing import CliRunner, Result

from secfc.agreement import federation as federations
from secfc.agreement.federation import Federation
from secfc.agreement.job import KEYS
from secfc.commands import status
from secfc.errors import ConfigError, JobFailed, Malformed, Unavailable, WrongSender
from secfc.net import inquiry, rpc
from secfc.pki import kit, probe
from secfc.pki.provision import provision
from secfc.v1 import secfc_pb2 as pb
from secfc.v1.secfc_pb2_grpc import CoordinatorServicer, add_CoordinatorServicer_to_server

PATIENCE = 120.0  # only ever waited for in full when a test fails


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on; all are open at once, so they differ."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [int(one.getsockname()[1]) for one in sockets]


def make_federation(names: tuple[str, ...] = ("a", "b", "c"), **changes: Any) -> Federation:
    """A federation on this machine; `changes` replace keys of the federation or of its job."""
    ports = free_ports(1 + len(names))
    keys = {
        "name": "trial",
        "k": 2,
        "privacy": 1,
        "max_rows": 10,
        "features": ["x", "y"],
        "bound": 1,
        "precision": 8,
    } | changes
    line = {key: f"{key} = {json.dumps(value)}" for key, value in keys.items()}
    lines = [line[key] for key in keys if key not in KEYS] + ["[job]"] + [line[key] for key in keys if key in KEYS]
    lines += ["[server]", f'address = "127.0.0.1:{ports[0]}"', f'bind = "127.0.0.1:{ports[0]}"']
    for name, port in zip(names, ports[1:], strict=True):
        lines += ["[[client]]", f'name = "{name}"', f'address = "127.0.0.1:{port}"', f'bind = "127.0.0.1:{port}"']
    return federations.parse("\n".join(lines), "federation.toml")


class Fake(CoordinatorServicer):  # type: ignore[misc]
    """Gives these answers one after the other and keeps to the last; a status code refuses, None is silence."""

    def __init__(self, *answers: pb.StatusReply | grpc.StatusCode | None) -> None:
        self.answers = deque(answers)
        self.asked = 0

    async def Status(self, request: pb.StatusRequest, context: Any) -> Any:
        self.asked += 1
        answer = self.answers.popleft() if len(self.answers) > 1 else self.answers[0]
        if answer is None:
            await asyncio.sleep(PATIENCE)
        if not isinstance(answer, pb.StatusReply):
            await context.abort(answer or grpc.StatusCode.UNAVAILABLE, "for a\ntest")
        return answer


@contextmanager
def serving(folder: Path, servicer: Fake | None = None) -> Iterator[None]:
    """A party's gRPC server from its kit, in a thread with a loop of its own; without servicer it offers nothing."""
    own = kit.load(folder)
    ready, stop = threading.Event(), threading.Event()

    async def serve() -> None:
        server = rpc.server(own)
        if servicer is not None:
            add_CoordinatorServicer_to_server(servicer, server)
        rpc.listen(server, own, own.federation.party(own.party_name).bind)
        await server.start()
        ready.set()
        while not stop.is_set():
            await asyncio.sleep(0.02)
        await server.stop(0)

    task = inquiry.in_background(lambda: asyncio.run(serve()))
    task.add_done_callback(lambda _: ready.set())
    assert ready.wait(PATIENCE)
    try:
        yield
    finally:
        stop.set()
        task.result(PATIENCE)


def reply(federation: Federation, phase: str = "joining", **changes: Any) -> pb.StatusReply:
    """What a server says at the beginning: of the clients, only the first has joined."""
    clients = [pb.ClientStatus(name=name, joined=not j, connected=False) for j, name in enumerate(federation.roster)]
    digests = {"federation_digest": federation.agreed(), "job_digest": federation.job.digest()}
    told = {"federation": federation.name, "phase": f"PHASE_{phase.upper()}", "clients": clients, **digests}
    if phase == "joining":
        told["missing"] = federation.roster[1:]
    return pb.StatusReply(**(told | changes))


@pytest.fixture
def federation() -> Federation:
    return make_federation()


@pytest.fixture
def kits(federation: Federation, tmp_path: Path) -> Path:
    return provision(federation, tmp_path / "kits").ca.parent


def run(folder: Path, *options: str) -> Result:
    return CliRunner().invoke(status.command, ["--kit", str(folder), *options])


@pytest.mark.parametrize("party", ["a", "server"])
def test_any_party_may_ask(kits: Path, federation: Federation, party: str) -> None:
    with serving(kits / "server", Fake(reply(federation, rows=7))):
        result = run(kits / party)
    assert result.exit_code == 0, result.output
    assert "joining" in result.output
    assert "waiting for  b, c" in result.output
    assert "7 of all clients" in result.output


def test_a_round_is_shown_with_its_numbers_and_broken_links(kits: Path, federation: Federation) -> None:
    told = {
        "round": 4,
        "attempt": 2,
        "inertia": 12.5,
        "changed": 3,
        "seconds": 65.25,
        "step": "lloyd",
        "broken_links": ["a -> b: [red]x"],
    }
    with serving(kits / "server", Fake(reply(federation, "rounds", **told))):
        result = run(kits / "b")
    assert "4 (lloyd): inertia 12.5, 3 rows changed cluster" in result.output
    assert "attempt 2" in result.output
    assert "0:01:05" in result.output
    assert "a -> b: [red]x" in result.output  # a text from elsewhere is no markup


def test_a_round_that_cannot_be_asked_names_whom_it_waits_for(kits: Path, federation: Federation) -> None:
    with serving(kits / "server", Fake(reply(federation, "rounds", round=4, attempt=0, missing=["b"]))):
        assert re.search(r"waiting for +b *\n", run(kits / "a").output)
    with serving(kits / "server", Fake(reply(federation, "rounds", round=4, attempt=1))):
        assert "waiting for" not in run(kits / "a").output, "the round goes on without it"


def test_json_holds_everything(kits: Path, federation: Federation) -> None:
    told = {"round": 1, "attempt": 1, "changed": 3, "seconds": 0.5, "step": "seed", "rows": 9, "inertia": float("nan")}
    with serving(kits / "server", Fake(reply(federation, "rounds", **told))):
        result = run(kits / "a", "--json")
    names = [
        {
            "name": n,
            "joined": n == "a",
            "connected": False,
            "holds_shares": False,
            "done": False,
            "liar": False,
            "shares_checked": False,
        }
        for n in "abc"
    ]
    assert json.loads(result.stdout) == {
        "federation": "trial",
        "federation_digest": federation.agreed().hex(),
        "job_digest": federation.job.digest().hex(),
        "phase": "rounds",
        "missing": [],
        "committee": [],
        "directions": 0,
        "of_directions": 0,
        "assignments": 0,
        "runs": 0,
        "moving": 0,
        "step": "seed",
        "rows": 9,
        "round": 1,
        "attempt": 1,
        "inertia": None,
        "changed": 3,
        "seconds": 0.5,
        "clients": names,
        "broken_links": [],
        "reason": "",
    }


def test_who_compares_is_shown(kits: Path, federation: Federation) -> None:
    with serving(kits / "server", Fake(reply(federation, "rounds", round=2, attempt=1, committee=["a", "c"]))):
        assert json.loads(run(kits / "a", "--json").stdout)["committee"] == ["a", "c"]
        shown = run(kits / "a").output
    (line,) = [line for line in shown.splitlines() if "committee" in line]
    assert "a, c" in line


@pytest.mark.parametrize(("runs", "words"), [(8, "3 of 8 runs still move"), (1, "")])
def test_how_many_runs_move_is_shown(kits: Path, federation: Federation, runs: int, words: str) -> None:
    with serving(kits / "server", Fake(reply(federation, "rounds", round=2, runs=runs, moving=min(runs, 3)))):
        shown = " ".join(run(kits / "a").output.split())
    assert ("still move" in shown) is bool(words)
    assert words in shown


def test_what_was_given_away_is_shown(kits: Path, federation: Federation) -> None:
    given = {"directions": 3, "of_directions": 7, "assignments": 5}
    with serving(kits / "server", Fake(reply(federation, "rounds", round=2, **given))):
        told = json.loads(run(kits / "a", "--json").stdout)
        shown = run(kits / "a").output
    assert given.items() <= told.items()
    (line,) = [line for line in shown.splitlines() if "given away" in line]
    assert "3 of 7 directions" in line
    assert "5 assignments" in line


def test_a_failed_job_is_an_answer(kits: Path, federation: Federation) -> None:
    with serving(kits / "server", Fake(reply(federation, "failed", reason="b stopped\x1b[2J"))):
        result = run(kits / "a")
    assert result.exit_code == 0
    assert "b stopped [2J" in result.output  # no control characters from elsewhere


def test_no_server_is_named_as_the_step_that_fails(kits: Path) -> None:
    error = run(kits / "a").exception
    assert isinstance(error, Unavailable)
    assert "refuses: nothing listens there" in str(error)
    assert "\n" not in str(error)


def test_a_server_of_another_authority(kits: Path, federation: Federation, tmp_path: Path) -> None:
    strange = provision(federation, tmp_path / "strange").ca.parent
    with serving(strange / "server", Fake(reply(federation))):
        error = run(kits / "a").exception
    assert isinstance(error, Unavailable)
    assert "another authority" in str(error)


def test_a_server_without_our_service(kits: Path) -> None:
    with serving(kits / "server"):
        error = run(kits / "a").exception
    assert isinstance(error, JobFailed)  # asking again would not help
    assert "the server cannot answer" in str(error)


def test_a_server_that_can_be_reached_but_does_not_answer(kits: Path) -> None:
    with serving(kits / "server", Fake(grpc.StatusCode.UNAVAILABLE)):
        error = run(kits / "a").exception
    assert isinstance(error, Unavailable)
    assert "is up and accepts our certificate, but SecFC does not answer there" in str(error)


def test_a_refusal_is_not_taken_for_an_outage(kits: Path) -> None:
    with serving(kits / "server", Fake(grpc.StatusCode.PERMISSION_DENIED)):
        error = run(kits / "a").exception
    assert isinstance(error, WrongSender)
    assert "\n" not in str(error)


def test_a_server_that_never_answers_is_given_up(kits: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A resolver that hangs cannot be interrupted, only left behind."""
    monkeypatch.setattr(inquiry, "DEADLINE", 0.5)
    monkeypatch.setattr(probe, "probe", lambda *_: time.sleep(PATIENCE))
    begin = time.monotonic()
    error = run(kits / "a").exception
    assert isinstance(error, Unavailable)
    assert "takes too long" in str(error)
    assert time.monotonic() - begin < PATIENCE / 2


def test_too_many_clients_are_refused(federation: Federation) -> None:
    with pytest.raises(Malformed):
        inquiry.from_reply(pb.StatusReply(clients=[pb.ClientStatus()] * 2048))


def test_a_broken_kit_is_a_configuration_error(kits: Path) -> None:
    (kits / "a" / "key.pem").chmod(0o644)
    assert isinstance(run(kits / "a").exception, ConfigError)
    assert run(kits / "nowhere").exit_code == 2


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inquiry, "INTERVAL", 0.01)


@pytest.mark.usefixtures("hurried")
class TestWatch:
    """Off a terminal: a line at every change, until the job ends."""

    def test_lines_until_the_end(self, kits: Path, federation: Federation) -> None:
        second = {"round": 1, "attempt": 1, "changed": 2, "inertia": 3.0}
        answers = [
            reply(federation),
            reply(federation),
            reply(federation, "rounds", seconds=1.0, **second),
            reply(federation, "rounds", seconds=2.0, **second),  # another time is no change
            reply(federation, "finished", round=2, inertia=2.0),
        ]
        with serving(kits / "server", Fake(*answers)):
            result = run(kits / "a", "--watch")
        assert result.exit_code == 0, result.output
        phases = [line.split()[1].rstrip(";") for line in result.stdout.splitlines()]
        assert phases == ["joining", "rounds", "finished"]

    def test_json_lines(self, kits: Path, federation: Federation) -> None:
        with serving(kits / "server", Fake(reply(federation), reply(federation, "finished"))):
            result = run(kits / "a", "--watch", "--json")
        assert [json.loads(line)["phase"] for line in result.stdout.splitlines()] == ["joining", "finished"]

    def test_a_job_that_fails_is_a_failure(self, kits: Path, federation: Federation) -> None:
        with serving(kits / "server", Fake(reply(federation), reply(federation, "failed", reason="b is gone"))):
            result = run(kits / "a", "--watch")
        assert isinstance(result.exception, JobFailed)
        assert "b is gone" in str(result.exception)

    def test_a_short_outage_is_borne(self, kits: Path, federation: Federation) -> None:
        away = [grpc.StatusCode.UNAVAILABLE] * 3
        with serving(kits / "server", Fake(reply(federation), *away, reply(federation, "finished"))):
            result = run(kits / "a", "--watch")
        assert result.exit_code == 0, result.output
        assert result.stderr.count("no answer") == 1

    def test_a_long_outage_is_not(self, kits: Path, federation: Federation, monkeypatch: pytest.MonkeyPatch) -> None:
        fake = Fake(reply(federation), grpc.StatusCode.UNAVAILABLE)
        monkeypatch.setattr(inquiry, "PATIENCE", 2.5)
        monkeypatch.setattr(
            inquiry, "time", SimpleNamespace(monotonic=lambda: float(fake.asked))
        )  # a second per answer
        with serving(kits / "server", fake):
            error = run(kits / "a", "--watch").exception
        assert isinstance(error, Unavailable)
        assert "last seen in phase joining" in str(error)
        assert fake.asked == 4

    def test_the_first_answer_must_come(self, kits: Path) -> None:
        assert isinstance(run(kits / "a", "--watch").exception, Unavailable)


def test_exit_codes_of_the_real_command(kits: Path, federation: Federation) -> None:
    def code(*options: str) -> int:
        line = [sys.executable, "-c", "from secfc_client.cli import main; main()", "status", *options]
        return subprocess.run(line, capture_output=True, timeout=PATIENCE, check=False).returncode

    assert code("--kit", str(kits / "a")) == 3
    with serving(kits / "server", Fake(reply(federation, "failed", reason="b is gone"))):
        assert code("--kit", str(kits / "a")) == 0
        assert code("--kit", str(kits / "a"), "--watch") == 4


def on_a_terminal(*arguments: str, columns: int = 100) -> tuple[int, str]:
    """The real command on a pseudo-terminal: its exit code and what a person sees, colours and all."""
    outside, inside = pty.openpty()
    line = [sys.executable, "-c", "from secfc_client.cli import main; main()", *arguments]
    environment = os.environ | {"TERM": "xterm", "COLUMNS": str(columns), "LINES": "40"}
    seen = inquiry.in_background(lambda: b"".join(_read(outside)))
    try:
        done = subprocess.run(line, stdout=inside, stderr=inside, env=environment, timeout=PATIENCE, check=False)
    finally:
        os.close(inside)
    text = seen.result(PATIENCE).decode()
    os.close(outside)
    return done.returncode, text


def _read(terminal: int) -> Iterator[bytes]:
    with suppress(OSError):  # how Linux says that the other end has gone
        while piece := os.read(terminal, 1 << 16):
            yield piece


def test_watch_on_a_terminal_redraws(kits: Path, federation: Federation) -> None:
    answers = (reply(federation), reply(federation, "finished", round=3, inertia=1.5))
    with serving(kits / "server", Fake(*answers)):
        code, seen = on_a_terminal("status", "--watch", "--kit", str(kits / "a"))
    assert code == 0, seen
    assert "joining" in seen
    assert "\x1b[1A" in seen  # goes up to draw over what it drew
    assert seen.rindex("finished") > seen.rindex("joining")
