"""SIGINT and SIGTERM: everybody ends in seconds, says what to do, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from secfc.local import Local
from tests.integration import helpers
from tests.integration.helpers import until

CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}
BOTH = pytest.mark.parametrize("number", CODES, ids=lambda number: number.name)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


def site_of(
    folder: Path, stack: ExitStack, rows: int = 90, k: int = 3, **settings: object
) -> tuple[Local, helpers.Parts]:
    parts = helpers.split(helpers.mixture(rows, 3, k), [rows // 3] * 3)
    site = helpers.prepared(folder, parts, helpers.describe(parts, k, **settings))
    stack.callback(site.stop)
    return site, parts


def joined(site: Local, count: int) -> None:
    until(lambda: helpers.said(site, "server", "listening"), "the server listens")
    until(lambda: sum(c.connected for c in helpers.status_of(site).clients) == count, f"{count} clients have joined")


def check_words(site: Local, party: str, words: str) -> None:
    text = helpers.text(site, party)
    assert "Traceback" not in text, text
    assert words in text, text


def nothing_left(site: Local) -> None:
    until(lambda: not helpers.processes_with(str(site.folder)), "no process of the federation is left", 15)


@pytest.mark.slow
def test_the_server_is_interrupted_while_joining(tmp_path: Path, stack: ExitStack) -> None:
    """The exit code is the signal's; a client that waits hears it at once and ends too."""
    site, _ = site_of(tmp_path, stack)
    server, client = site.start("server"), site.start("client-1")
    joined(site, 1)
    began = time.monotonic()
    code = helpers.signalled(server, signal.SIGINT)
    assert time.monotonic() - began < 10
    assert until(lambda: client.poll() is not None and [client.returncode], "the client ends", 15) == [4]
    nothing_left(site)
    check_words(site, "client-1", "the job has failed: the server was stopped")
    check_words(site, "server", "stopped")
    assert code == 130


@pytest.mark.slow
def test_the_server_is_terminated_while_joining_and_takes_up_again(tmp_path: Path, stack: ExitStack) -> None:
    """Whatever terminates a server may start it again (an engine, a service manager), so a client waits for it."""
    site, parts = site_of(tmp_path, stack)
    server, client = site.start("server"), site.start("client-1")
    joined(site, 1)
    assert helpers.signalled(server, signal.SIGTERM) == 143
    check_words(site, "server", "stopped; start the same command again to go on")
    until(lambda: helpers.said(site, "client-1", "cannot reach the server; trying again"), "the client tries on")
    assert client.poll() is None
    for name in ("server", "client-2", "client-3"):
        site.start(name)
    site.wait(60)
    helpers.check_labels(site, parts)


@pytest.mark.slow
@BOTH
def test_a_client_is_stopped_while_joining_and_takes_up_again(
    tmp_path: Path, stack: ExitStack, number: signal.Signals
) -> None:
    site, parts = site_of(tmp_path, stack)
    site.start("server")
    client = site.start("client-1")
    joined(site, 1)
    assert helpers.signalled(client, number) == CODES[number]
    check_words(site, "client-1", "stopped; start the same command again to go on")
    until(lambda: not helpers.status_of(site).clients[0].joined, "the server knows that it is gone")
    if number is signal.SIGTERM:  # once is enough
        return
    for name in ("client-1", "client-2", "client-3"):
        site.start(name)
    site.wait(60)
    helpers.check_labels(site, parts)


@pytest.mark.slow
@BOTH
def test_a_client_is_stopped_in_rounds(tmp_path: Path, stack: ExitStack, number: signal.Signals) -> None:
    """Nobody can take its place (n = R), so the others wait; its words say what to do."""
    site, _ = site_of(tmp_path, stack, rows=30000, k=32, precision=4)
    site.server_options = ("--round-timeout", "8")
    site.start_all()
    until(lambda: helpers.in_rounds(site), "rounds have begun")
    assert helpers.signalled(site.processes["client-2"], number) == CODES[number]
    check_words(site, "client-2", "stopped; start the same command again to go on")
    server = site.processes["server"]
    assert until(lambda: server.poll() is not None and [server.returncode], "the server gives up", 60) == [3]
    check_words(site, "server", "client-2")
    for name in ("client-1", "client-3"):
        process = site.processes[name]
        assert until(lambda p=process: p.poll() is not None and [p.returncode], f"{name} ends", 20) == [3]
        check_words(site, name, "client-2")
    nothing_left(site)


def three_of_four(folder: Path, stack: ExitStack) -> tuple[Local, helpers.Parts]:
    """Four clients, of which three suffice; the fourth is stopped in the rounds."""
    parts = helpers.split(helpers.mixture(24000, 3, 16), [6000] * 4)
    site = helpers.prepared(folder, parts, helpers.describe(parts, 16, dropouts=1, max_rounds=40, precision=4))
    stack.callback(site.stop)
    site.start_all()
    until(lambda: helpers.in_rounds(site), "rounds have begun")
    assert helpers.signalled(site.processes["client-4"], signal.SIGTERM) == 143
    return site, parts


@pytest.mark.slow
def test_a_stopped_client_is_replaced_where_the_plan_allows_it(tmp_path: Path, stack: ExitStack) -> None:
    site, parts = three_of_four(tmp_path, stack)
    until(site.result_file.exists, "the job finishes", 60)
    expected, result = helpers.pooled(site.federation, parts), site.result()
    assert (result["state"], result["rounds"]) == ("finished", expected.rounds)
    for j, name in enumerate(("client-1", "client-2", "client-3")):
        until(lambda n=name: site.processes[n].poll() == 0, f"{name} ends well")
        written = pq.read_table(site.labels_file(name)).column("cluster").to_numpy()
        np.testing.assert_array_equal(written, expected.labels[6000 * j : 6000 * (j + 1)])


@pytest.mark.slow
def test_a_client_stopped_in_rounds_takes_up_again_as_its_last_words_say(tmp_path: Path, stack: ExitStack) -> None:
    site, parts = three_of_four(tmp_path, stack)
    site.start("client-4")
    site.wait(60)
    helpers.check_labels(site, parts)


@pytest.mark.slow
def test_the_server_is_interrupted_in_rounds(tmp_path: Path, stack: ExitStack) -> None:
    site, _ = site_of(tmp_path, stack, rows=30000, k=32, precision=4)
    site.start_all()
    until(lambda: helpers.in_rounds(site), "rounds have begun")
    code = helpers.signalled(site.processes["server"], signal.SIGINT)
    for name in site.federation.roster:
        process = site.processes[name]
        assert until(lambda p=process: p.poll() is not None and [p.returncode], f"{name} ends", 15) == [4]
        check_words(site, name, "the job has failed: the server was stopped")
        assert not site.labels_file(name).exists()
    nothing_left(site)
    check_words(site, "server", "stopped")
    assert code == 130


@pytest.mark.slow
def test_the_server_is_terminated_in_rounds_and_takes_up_again(tmp_path: Path, stack: ExitStack) -> None:
    site, parts = site_of(tmp_path, stack, rows=30000, k=32, precision=4, max_rounds=40)
    site.start_all()
    until(lambda: helpers.in_rounds(site), "rounds have begun")
    assert helpers.signalled(site.processes["server"], signal.SIGTERM) == 143
    assert not site.result_file.exists()
    site.start("server")
    site.wait(120)
    helpers.check_labels(site, parts)
    check_words(site, "server", "going on with an unfinished job")


# --- the demo ------------------------------------------------------------------------------------------------------------


def demo(folder: Path, *options: str) -> subprocess.Popen[str]:
    """A demo whose temporary files, hence its processes, are under this folder."""
    heard = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"  # tests may run where it is ignored
    )
    call = [sys.executable, "-c", f"{heard}; from secfc_client.cli import main; main()", "demo", *options]
    return helpers.launch(call, env=os.environ | {"TMPDIR": str(folder)})


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


@pytest.mark.slow
@pytest.mark.parametrize("when", ["starting", "rounds"])
@BOTH
def test_an_interrupted_demo_leaves_nothing_behind(tmp_path: Path, number: signal.Signals, when: str) -> None:
    assert interrupted(tmp_path, number, when) == CODES[number]


@pytest.mark.slow
def test_a_demo_whose_terminal_closes_leaves_nothing_behind(tmp_path: Path) -> None:
    assert interrupted(tmp_path, signal.SIGHUP, "starting") == CODES[signal.SIGTERM]


def interrupted(tmp_path: Path, number: signal.Signals, when: str) -> int:
    """The exit code of a demo that gets this signal; nothing of it is left."""
    process = demo(tmp_path, "--rows", "60000", "--clusters", "24", "--features", "20")
    try:
        until(lambda: len(helpers.processes_with(str(tmp_path))) >= 2, "the parties start")
        if when == "rounds":
            until(lambda: any('"round 1"' in log.read_text() for log in tmp_path.glob("*/server.log")), "rounds")
        process.send_signal(number)
        code, _, err = helpers.outcome(process)
    finally:
        left = {pid: command_of(pid) for pid in helpers.processes_with(str(tmp_path))}
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        process.kill()
        process.communicate()
    assert left == {}
    assert list(tmp_path.iterdir()) == []
    assert "Traceback" not in err
    return code


DEMO_KEYS = {
    *("clients", "privacy", "segments", "responders", "lanes", "uploads", "membership", "relay", "rows", "features"),
    *("rounds", "converged", "runs", "best_runs", "chosen_run", "scale", "split", "holders"),
    *("identical_to_central", "inertia", "central_inertia", "cluster_sizes", "seconds", "bytes", "history", "accuracy"),
}


@pytest.mark.slow
def test_the_demo_reports_as_json(tmp_path: Path) -> None:
    options = ("--clients", "3", "--rows", "400", "--k", "4", "--starts", "1", "--features", "3", "--seed", "7")
    process = demo(tmp_path, "--json", "--uploads", "masked", *options)
    code, out, err = helpers.outcome(process, 120)
    assert code == 0, err
    told = json.loads(out)
    assert set(told) == DEMO_KEYS
    assert told["identical_to_central"] is True
    assert told["uploads"] == "masked"
    assert "warning: masked uploads: quicker than sealed, but" in err
    assert (told["clients"], told["rows"], told["features"]) == (3, 400, 3)
    assert told["inertia"] == told["central_inertia"] == told["history"][-1]
    assert sum(told["cluster_sizes"]) == 400
    assert len(told["history"]) == told["rounds"]
    assert set(told["bytes"]) == {"client_to_client", "client_to_server", "per_client_link", "per_server_link"}
    assert 0.5 < told["accuracy"] <= 1
    assert list(tmp_path.iterdir()) == []
    assert not helpers.processes_with(str(tmp_path))


@pytest.mark.slow
def test_the_demo_is_sealed_unless_one_asks_for_less(tmp_path: Path) -> None:
    options = ("--clients", "3", "--rows", "400", "--k", "4", "--starts", "1", "--features", "3", "--seed", "7")
    code, out, err = helpers.outcome(demo(tmp_path, "--json", *options), 120)
    assert (code, err) == (0, "")
    told = json.loads(out)
    assert set(told) == DEMO_KEYS
    assert (told["uploads"], told["identical_to_central"]) == ("sealed", True)
    assert told["history"] == [told["inertia"]], "no round but the last opens an inertia"
    assert told["inertia"] == pytest.approx(told["central_inertia"], rel=1e-6)


@pytest.mark.slow
def test_the_demo_clusters_a_file_of_ones_own(tmp_path: Path) -> None:
    """Its --keep folder holds what every party wrote; a folder that exists is refused in one line."""
    with tempfile.TemporaryDirectory() as name:
        data = Path(name) / "rows.csv"
        values = helpers.mixture(90, 2, 3)
        data.write_text("id,a,b\n" + "".join(f"r{i},{a!r},{b!r}\n" for i, (a, b) in enumerate(values.tolist())))
        keep = Path(name) / "kept"
        options = [
            "--json",
            "--data",
            str(data),
            "--id",
            "id",
            "--clients",
            "3",
            "--clusters",
            "3",
            "--keep",
            str(keep),
        ]
        code, out, err = helpers.outcome(demo(tmp_path, *options), 120)
        assert code == 0, err
        assert json.loads(out)["identical_to_central"] is True
        assert {"kits", "result.json", "server.log", "client-1.labels.parquet"} <= {p.name for p in keep.iterdir()}
        code, out, err = helpers.outcome(demo(tmp_path, *options), 60)
        assert (code, out) == (2, "")
        assert "--keep needs a new folder" in helpers.error_line(err)
