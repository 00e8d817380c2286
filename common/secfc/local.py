"""A whole federation on this machine: real processes, real certificates, real TLS, on loopback.

Used by the demo, the experiments and the integration tests. Whatever happens, no process is left behind.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from secfc.agreement import federation as federations
from secfc.agreement.federation import Federation
from secfc.agreement.job import Job
from secfc.agreement.parties import Party
from secfc.errors import JobFailed, Unavailable
from secfc.pki import provision

# Below those that systems give to outgoing connections: one of these could be taken before its listener starts.
PORTS = range(10000, 32000)
ID_COLUMN = "id"  # names rows where columns are split


def free_ports(count: int) -> list[int]:
    """Ports that nobody uses just now."""
    found: list[int] = []
    candidates = random.sample(PORTS, 20 * count + 200)
    for port in candidates:
        with socket.socket() as one:
            try:
                one.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise Unavailable(f"this machine has no {count} free ports between {PORTS[0]} and {PORTS[-1]}")


def describe(clients: int, *, dial_out: Sequence[int] = (), **settings: Any) -> Federation:
    """A federation of that many clients on loopback; settings as in federation.toml, the job's among them, `features` a
    number. Clients of these numbers, from 1, have no address; with relay "only" none has one."""
    ports = free_ports(clients + 1)
    addresses = [f"127.0.0.1:{port}" for port in ports]
    names = [f"client-{j + 1}" for j in range(clients)]
    parties = [
        Party(name=name, address=address, bind=address, names=())
        for name, address in zip(["server", *names], addresses, strict=True)
    ]
    for j in range(1, clients + 1) if settings.get("relay") == "only" else dial_out:
        parties[j] = Party(names[j - 1], "", "")
    who: dict[str, Any] = {"name": "local", "dropouts": 0, "liars": 0, "uploads": "masked"}
    who["relay"] = "fallback" if dial_out else "never"
    what: dict[str, Any] = {
        "feature_names": tuple(f"x{f + 1}" for f in range(settings["features"])),
        "seed": "local",  # so that every job can be repeated; None: the clients toss coins
        "starts": 1,  # unless the caller wants more
    }
    if settings.get("split") == "columns":
        what |= {"membership": "private", "ids": "linked"}
    for key, value in settings.items():
        (what if key in Job.__dataclass_fields__ else who)[key] = value
    made = Federation(**who, server=parties[0], clients=tuple(parties[1:]), job=Job(**what))
    return federations.parse(federations.dumps(made), "the local federation")


@dataclass
class Local:
    """The processes and files of one local federation."""

    federation: Federation
    folder: Path
    server_options: Sequence[str] = ()
    client_options: Sequence[str] = ()
    environment: dict[str, str] = field(default_factory=dict)
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def kit(self, party: str) -> Path:
        return self.folder / "kits" / party

    def log(self, party: str) -> Path:
        return self.folder / f"{party}.log"

    def labels_file(self, client: str) -> Path:
        return self.folder / f"{client}.labels.parquet"

    def centers_file(self, party: str) -> Path:
        return self.folder / ("centers.csv" if party == federations.SERVER else f"{party}.centers.csv")

    @property
    def result_file(self) -> Path:
        return self.folder / "result.json"

    def data_file(self, client: str) -> Path:
        return self.folder / f"{client}.parquet"

    @property
    def sites(self) -> tuple[str, ...]:
        """The clients that have rows: all, or if columns are split those that hold some."""
        return self.federation.holders or self.federation.roster

    def prepare(self, parts: Sequence[npt.NDArray[np.float64]]) -> None:
        """Kits for everybody, and each client's rows in a file of its own; if columns are split, its own of them, and rows
        are named by their number."""
        provision.provision(self.federation, self.folder / "kits", passphrase=None)  # an authority for one trial
        job = self.federation.job
        names = job.feature_names or [f"x{f + 1}" for f in range(job.features)]
        for client, part in zip(self.sites, parts, strict=True):
            columns: dict[str, Any] = {names[f]: part[:, f] for f in job.columns_of(client)}
            if job.holders:
                columns |= {ID_COLUMN: [f"row {i}" for i in range(len(part))]}
            pq.write_table(pa.table(columns), self.data_file(client))

    def start(self, party: str, *options: str) -> subprocess.Popen[bytes]:
        """Start the server ("server") or a client as a process of its own."""
        common = ["--kit", str(self.kit(party)), "--log-format", "json"]
        if party == federations.SERVER:
            call = ["-m", "secfc_server", *common, "--out", str(self.folder), *self.server_options]
        else:
            call = ["-m", "secfc_client", *common, *self._files(party), *self.client_options]
        with open(self.log(party), "ab") as log, _signals_deferred():
            self.processes[party] = subprocess.Popen(  # noqa: S603 - our own modules
                [sys.executable, *call, *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | self.environment,
                start_new_session=True,  # a Ctrl-C at the terminal reaches us only, and we end them in order
            )
        return self.processes[party]

    def _files(self, client: str) -> list[str]:
        if client not in self.sites:
            return []
        named = ["--id", ID_COLUMN] if self.federation.holders else []
        files = ["--data", str(self.data_file(client)), "--out", str(self.labels_file(client))]
        return [*files, "--centers", str(self.centers_file(client)), *named]

    def start_all(self) -> None:
        for party in (federations.SERVER, *self.federation.roster):
            self.start(party)

    def events(self, party: str) -> list[dict[str, Any]]:
        """What a party has logged so far."""
        if not self.log(party).exists():
            return []
        lines = self.log(party).read_text(encoding="utf-8", errors="replace").splitlines()
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]

    def wait(self, timeout: float, look: Callable[[], None] | None = None) -> None:
        """Until every process has ended well; raises JobFailed with the last words of one that did not."""
        deadline = time.monotonic() + timeout
        while running := [name for name, process in self.processes.items() if process.poll() is None]:
            if look is not None:
                look()
            self._check()
            if time.monotonic() > deadline:
                raise Unavailable(f"after {timeout:.0f} s still running: {', '.join(running)}")
            time.sleep(0.05)
        self._check()

    def _check(self) -> None:
        for name, process in self.processes.items():
            if process.poll() not in (None, 0):
                raise JobFailed(f"{name} ended with code {process.returncode}: {self.last_words(name)}")

    def last_words(self, party: str) -> str:
        """The last line a party wrote."""
        lines = self.log(party).read_text(encoding="utf-8", errors="replace").strip().splitlines()
        if lines and lines[-1].startswith("{") and lines[-1].endswith("}"):
            last = json.loads(lines[-1])
            return ("error: " if last["level"] == "error" else "") + str(last["event"])[:500]
        return lines[-1][:500] if lines else "it wrote nothing"

    def labels(self) -> npt.NDArray[np.int32]:
        """All clients' labels, by roster and row, from the files they wrote; if columns are split, those of the rows, which
        all holders have in one order."""
        parts: list[npt.NDArray[np.int32]] = []
        for client in self.sites:
            table = pq.read_table(self.labels_file(client))
            parts.append(table.column(table.num_columns - 1).to_numpy().astype(np.int32))
        if not self.federation.holders:
            return np.concatenate(parts)
        if any((part != parts[0]).any() for part in parts):
            raise JobFailed("holders of the same rows have written different labels")
        return parts[0]

    def ids(self) -> list[str]:
        """All rows' IDs, by roster and row, of clients started with --write-ids."""
        sites = self.sites[:1] if self.federation.holders else self.sites
        return [
            str(name)
            for client in sites
            for name in pq.read_table(self.labels_file(client)).column("secfc_id").to_pylist()
        ]

    def result(self) -> dict[str, Any]:
        result: dict[str, Any] = json.loads(self.result_file.read_text(encoding="utf-8"))
        return result

    def stop(self) -> None:
        """End whatever still runs: politely, then not."""
        running = [process for process in self.processes.values() if process.poll() is None]
        for process in running:
            process.terminate()
        deadline = time.monotonic() + 5.0
        for process in running:
            try:
                process.wait(max(deadline - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def _signals_deferred() -> Iterator[None]:
    """Let a signal wait until a process that is just being started is known, so that it can be ended too."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers, arrived = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP), []
    before = [signal.signal(number, lambda number, _: arrived.append(number)) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
        if arrived:
            signal.raise_signal(arrived[0])


@contextmanager
def running(local: Local) -> Iterator[Local]:
    """All parties started; all ended at the end, whatever happens."""
    try:
        local.start_all()
        yield local
    finally:
        local.stop()
