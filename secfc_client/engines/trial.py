"""A Dask cluster of processes on this machine, to try the engine with."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from secfc.errors import Unavailable

ENGINES = ("local", "dask")
_START_SECONDS = 120.0
_MEMORY = "DASK_DISTRIBUTED__WORKER__MEMORY__"
_IN_MEMORY = {f"{_MEMORY}TARGET": "False", f"{_MEMORY}SPILL": "False"}  # and never on a worker's disk


@dataclass
class Trial:
    """Its processes; the scheduler is the first. `folder` is for their files; `environment`: what Dask is to be told about
    certificates, if it is to speak TLS."""

    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def _file(self) -> Path:
        return self.folder / "scheduler.json"

    def start(self, workers: int) -> str:
        """What --engine takes."""
        protocol = "tls" if self.environment else "tcp"
        self._run(
            "dask_scheduler",
            "--host",
            "127.0.0.1",
            "--port",
            "0",
            "--no-show",
            "--protocol",
            protocol,
            "--idle-timeout",
            "1h",
        )
        deadline = time.monotonic() + _START_SECONDS
        while not self._file.exists() or not self._file.read_bytes().endswith(b"}"):
            if time.monotonic() > deadline or self.processes[0].poll() is not None:
                raise Unavailable("the Dask scheduler does not start; is secfc-kmeans[dask] installed?")
            time.sleep(0.1)
        for _ in range(workers):
            self.add_worker()
        address: str = json.loads(self._file.read_text())["address"]
        return address.replace("tcp://", "dask://")

    def add_worker(self) -> None:
        """One more worker, of one thread."""
        place = "--local-directory", str(self.folder), "--host", "127.0.0.1"
        self._run("dask_worker", *place, "--nthreads", "1", "--no-nanny", "--death-timeout", "120")

    def _run(self, program: str, *options: str) -> None:
        call: Sequence[str] = (
            "-m",
            f"distributed.cli.{program}",
            "--no-dashboard",
            "--scheduler-file",
            str(self._file),
        )
        log = (self.folder / "dask.log").open("ab")
        with log:
            self.processes.append(
                subprocess.Popen(  # noqa: S603 - our own modules
                    [sys.executable, *call, *options],
                    stdout=log,
                    stderr=log,
                    env={**os.environ, **_IN_MEMORY, **self.environment},
                    start_new_session=True,
                )
            )

    def stop(self) -> None:
        """End all of them."""
        for process in reversed(self.processes):
            process.kill()  # they keep nothing
            process.wait()


@contextmanager
def running(
    folder: Path, workers: int = 2, environment: Mapping[str, str] | None = None
) -> Iterator[tuple[Trial, str]]:
    """A scheduler and some workers, and what --engine takes; ended at the end."""
    trial = Trial(folder, environment or {})
    try:
        yield trial, trial.start(workers)
    finally:
        trial.stop()


@contextmanager
def options(engine: str) -> Iterator[list[str]]:
    """What clients are started with to have this engine."""
    if engine == ENGINES[0]:
        yield []
        return
    with tempfile.TemporaryDirectory(prefix="secfc-dask-") as folder, running(Path(folder)) as (_, url):
        yield ["--engine", url]
