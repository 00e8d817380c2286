"""Jobs of real processes for the integration tests, and what they must equal."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import grpc
import numpy as np
import numpy.typing as npt

from secfc import local
from secfc.agreement import federation as federations
from secfc.agreement import plan
from secfc.agreement.federation import Federation
from secfc.agreement.parties import Party
from secfc.kmeans import central, fixedpoint
from secfc.kmeans.coins import Coins
from secfc.local import Local
from secfc.pki import kit
from secfc.pki.kit import Kit
from secfc.protocol.rounds import kind_of
from secfc.v1 import secfc_pb2 as pb
from secfc.v1 import secfc_pb2_grpc as stubs
from tests.simulation.scene import partition_inertia

T = TypeVar("T")
Parts = list[npt.NDArray[np.float64]]
PATIENCE = 120.0  # only ever waited for in full when a test fails


def mixture(rows: int, features: int, clusters: int, seed: int = 0) -> npt.NDArray[np.float64]:
    """Rows around `clusters` centres, all within ±16."""
    rng = np.random.default_rng(seed)
    centres = rng.uniform(-6.0, 6.0, size=(clusters, features))
    values = centres[rng.integers(0, clusters, rows)] + rng.normal(scale=2.0, size=(rows, features))
    return np.clip(values, -16.0, 16.0)


def split(values: npt.NDArray[np.float64], sizes: Sequence[int]) -> Parts:
    """The rows dealt out in order, so many to each client."""
    assert sum(sizes) == len(values)
    return np.split(values, np.cumsum(sizes)[:-1])


def describe(parts: Parts, k: int, **settings: Any) -> Federation:
    """A federation on loopback that fits these rows."""
    rows, features = sum(map(len, parts)), parts[0].shape[1]
    wishes: dict[str, Any] = {"privacy": 1, "max_rows": rows, "features": features, "bound": 16.0, "precision": 12}
    return local.describe(len(parts), k=k, **(wishes | settings))


def prepared(folder: Path, parts: Parts, made: Federation, **options: Any) -> Local:
    """A local federation with kits and data, nothing started."""
    folder.mkdir(parents=True, exist_ok=True)
    site = Local(made, folder, **options)
    site.prepare(parts)
    return site


def readdressed(made: Federation, addresses: dict[str, str]) -> Federation:
    """The same federation with some parties dialled elsewhere than they listen, say behind a proxy."""

    def at(party: Party) -> Party:
        return dataclasses.replace(party, address=addresses.get(party.name, party.address))

    moved = dataclasses.replace(made, server=at(made.server), clients=tuple(map(at, made.clients)))
    return federations.parse(federations.dumps(moved), "the local federation")


def pooled(made: Federation, parts: Parts, coins: Coins | None = None) -> central.Central:
    """What central Lloyd in exact integers finds on all rows from the same start: the federation's seed, or its coins."""
    rows = fixedpoint.quantise(np.concatenate(parts), made.job.bound, made.job.precision)
    if coins is None:
        assert made.job.seed is not None
        coins = Coins(made.job.seed.encode())
    agreed = plan.of(made)
    kind = kind_of(agreed)
    runs = central.runs(
        rows,
        made.job.runs[: made.job.starts],
        start=made.job.seeding,
        coins=coins,
        max_rounds=made.job.max_rounds,
        empties=kind.empties,
        draw_bits=kind.draw_bits(agreed),
        candidates=made.job.candidates,
    )
    return central.best(runs)


def check_labels(site: Local, parts: Parts) -> central.Central:
    """Every client's labels are central Lloyd's, and the result says so too."""
    result = site.result()
    expected = pooled(site.federation, parts, Coins(bytes.fromhex(result["seed"])))
    assert site.federation.job.seed is None or result["seed"] == site.federation.job.seed.encode().hex()
    np.testing.assert_array_equal(site.labels(), expected.labels)
    assert (result["state"], result["reason"]) == ("finished", None)
    assert (result["rounds"], result["converged"]) == (expected.rounds, expected.converged)
    check_inertia(site.federation, parts, expected, result["inertia"])
    assert result["cluster_sizes"] == np.bincount(expected.labels, minlength=site.federation.job.k).tolist()
    return expected


def check_inertia(made: Federation, parts: Parts, expected: central.Central, found: float) -> None:
    """Exactly that of the last round; of sealed rounds that of the final partition, whose total is opened under a blur of one
    quantised unit."""
    if kind_of(plan.of(made)).shows_distances:
        assert found == fixedpoint.in_data_units(expected.inertia, made.job.precision)
        return
    rows = fixedpoint.quantise(np.concatenate(parts), made.job.bound, made.job.precision)
    loss = partition_inertia(rows, expected.labels)
    allowed = fixedpoint.in_data_units(1 + loss / 10**6, made.job.precision)
    assert abs(found - fixedpoint.in_data_units(loss, made.job.precision)) <= allowed


def until(look: Callable[[], T], what: str, seconds: float = PATIENCE) -> T:
    """The first true thing `look` returns; fails, saying what was awaited, after so many seconds."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, f"after {seconds:.0f} s still not: {what}"
        time.sleep(0.02)
    return found


def said(site: Local, party: str, event: str) -> dict[str, Any] | None:
    """The first log line of a party with that event."""
    return next((line for line in site.events(party) if line["event"] == event), None)


def text(site: Local, party: str) -> str:
    """All that a party has written."""
    return site.log(party).read_text(encoding="utf-8", errors="replace") if site.log(party).exists() else ""


def in_rounds(site: Local, number: int = 1) -> bool:
    """Whether the server has finished a round of that number or a later one."""
    return any(
        line["event"].startswith("round ") and int(line["event"].split()[1]) >= number for line in site.events("server")
    )


# --- commands ----------------------------------------------------------------------------------------------------------


def client_call(kit_folder: Path, data: Path, out: Path, *options: str) -> list[str]:
    """The command line of a client."""
    files = ["--kit", str(kit_folder), "--data", str(data), "--out", str(out)]
    return [sys.executable, "-m", "secfc_client", *files, "--log-format", "json", *options]


def launch(call: Sequence[str], **options: Any) -> subprocess.Popen[str]:
    """A command with its output on pipes, in a session of its own."""
    pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(call, text=True, start_new_session=True, **pipes, **options)


def outcome(process: subprocess.Popen[str], timeout: float = PATIENCE) -> tuple[int, str, str]:
    """Exit code, output and error text; a process that does not end in time is killed, and the test fails."""
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(f"still running after {timeout:.0f} s: {err[-500:]}") from None
    return process.returncode, out, err


def error_line(err: str) -> str:
    """The one line a command ends with, where all before it is logs; with logs as JSON, it is JSON too."""
    lines = err.splitlines()
    assert "Traceback" not in err, err
    if lines and all(line.startswith("{") for line in lines):
        last = [json.loads(line) for line in lines][-1]
        return ("error: " if last["level"] == "error" else "") + str(last["event"])
    assert len(lines) == 1, f"one line is due beside the logs, not: {err}"
    return lines[0]


def signalled(process: subprocess.Popen[Any], number: signal.Signals, seconds: float = 15.0) -> int:
    """Send a signal; the exit code, which must come within so many seconds."""
    process.send_signal(number)
    return until(lambda: (code := process.poll()) is not None and [code], f"{process.args} ends", seconds)[0]


def processes_with(word: str) -> list[int]:
    """Processes whose command line names this (unique) word; not ourselves."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if word.encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def copied_kit(source: Path, target: Path) -> Path:
    """A kit carried elsewhere file by file, its key still private."""
    target.mkdir(mode=0o700, parents=True)
    for name in ("federation.toml", "ca.pem", "cert.pem", "key.pem"):
        shutil.copyfile(source / name, target / name)
        (target / name).chmod(0o600)
    return target


# --- a client of the test's own ------------------------------------------------------------------------------------------


def dial(
    own: Kit, party: str, address: str | None = None, *, certificate: bool = True, ca_pem: bytes | None = None
) -> grpc.Channel:
    """A channel as that kit's party would open it, or without showing a certificate, or trusting another authority."""
    pair = (own.key_pem, own.certificate_pem) if certificate else (None, None)
    credentials = grpc.ssl_channel_credentials(ca_pem or own.ca_pem, *pair)
    name = federations.identity(own.federation.name, party)
    options = [("grpc.ssl_target_name_override", name), ("grpc.enable_retries", 0)]
    return grpc.secure_channel(address or own.federation.party(party).address, credentials, options)


def status_of(site: Local, party: str = "client-1") -> pb.StatusReply:
    """What the server says of the job, asked as one of the parties."""
    with dial(kit.load(site.kit(party)), "server") as channel:
        return stubs.CoordinatorStub(channel).Status(pb.StatusRequest(), timeout=10.0)


def refusal(call: Callable[[], Any]) -> tuple[grpc.StatusCode, str]:
    """Status code and text of a call that must be refused."""
    try:
        answer = call()
    except grpc.RpcError as error:
        return error.code(), error.details() or ""
    raise AssertionError(f"was taken: {answer}")
