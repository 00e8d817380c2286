"""A federation that stays, of real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from secfc import local
from secfc.agreement import federation as federations
from secfc.agreement import submission
from secfc.agreement.federation import Federation
from secfc.net import jobs
from secfc.net.jobs import Listed
from secfc.pki import kit, provision, submitting
from secfc.pki.kit import Kit
from tests.integration.helpers import PATIENCE, Parts, until

NAMES = ("age", "weight")
JOB = (
    'dataset = "patients"\nk = 2\nstarts = 1\nfeatures = ["age", "weight"]\nbound = 16.0\nmax_rows = 200\nseed = "s"\n'
)
RULE = '[[allow]]\nname = "all"\nsubmitter = "analyst"\ndataset = "patients"\nfeatures = ["age", "weight"]\nk = 4\n'


class Standing:
    """A hub and nodes on loopback; analyst may submit."""

    def __init__(self, folder: Path, parts: Parts, uploads: str = "masked", relay: str | None = None) -> None:
        self.folder, self.parts = folder, parts
        made = local.describe(
            len(parts), k=1, privacy=1, max_rows=1, features=1, bound=1.0, precision=1, uploads=uploads, relay=relay
        )
        text = federations.dumps(made)
        self.federation: Federation = federations.parse(
            text[: text.index("[job]")] + text[text.index("[server]") :], "f"
        )
        folder.mkdir(parents=True, exist_ok=True)
        provision.provision(self.federation, folder / "kits", submitters=("analyst",))
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        for name, part in zip(self.federation.roster, parts, strict=True):
            self.write_rows(name, part)
            (folder / "kits" / name / "policy.toml").write_text(RULE)

    @property
    def parties(self) -> tuple[str, ...]:
        return ("server", *self.federation.roster)

    def kit(self, name: str) -> Path:
        return self.folder / "kits" / name

    def loaded(self, name: str = "analyst") -> Kit:
        return kit.load(self.kit(name))

    def rows(self, name: str) -> Path:
        return self.folder / f"{name}.csv"

    def write_rows(self, name: str, part: npt.NDArray[np.float64], names: Sequence[str] = NAMES) -> None:
        lines = [",".join(names), *(",".join(map(repr, row)) for row in part.tolist())]
        self.rows(name).write_text("\n".join(lines) + "\n")

    def start(self, *names: str, options: Sequence[str] = ()) -> None:
        for name in names or self.parties:
            module = (
                ["secfc_server"] if name == "server" else ["secfc_client", "--dataset", f"patients={self.rows(name)}"]
            )
            call = [sys.executable, "-m", *module, "--kit", str(self.kit(name)), "--log-format", "json", *options]
            with (self.folder / f"{name}.log").open("ab") as log:
                self.processes[name] = subprocess.Popen(call, stdout=log, stderr=log, start_new_session=True)

    def __enter__(self) -> Standing:
        return self

    def __exit__(self, *_: object) -> None:
        for name in self.processes:
            self.kill(name)

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> int:
        process = self.processes[name]
        if process.poll() is None:
            process.send_signal(number)
        return process.wait(PATIENCE)

    def events(self, name: str) -> list[dict[str, Any]]:
        path = self.folder / f"{name}.log"
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]

    def until_said(self, name: str, event: str, times: int = 1) -> None:
        until(lambda: sum(line["event"] == event for line in self.events(name)) >= times, f"{name} says: {event}")

    def ready(self) -> None:
        self.until_said("server", "listening")
        for name in self.federation.roster:
            self.until_said(name, "waiting for jobs")

    def head(self, name: str) -> str:
        """Of a party's audit file, as its log says at the end of a job."""
        return str([line["head"] for line in self.events(name) if line["event"] == "the audit file stands"][-1])

    def submit(self, text: str = JOB, token: str | None = None) -> str:
        """A job, submitted until the server takes it; the digest of the job, in hex."""
        own = self.loaded()
        signed = submitting.sign(
            own, submission.parse(text, "job.toml"), token or os.urandom(8).hex(), clock=time.time()
        )
        return jobs.submit(own, signed).job.digest.hex()

    def show(self, name: str) -> Listed:
        return jobs.named(self.loaded(), name)

    def over(self, name: str, seconds: float = PATIENCE) -> Listed:
        def look() -> Listed | None:
            return one if (one := self.show(name)).over else None

        return until(look, f"job {name[:8]} is over", seconds)

    def labels(self, name: str) -> npt.NDArray[np.int32]:
        """All sites' labels of a job, in the order of the federation."""
        found = []
        for site in self.federation.roster:
            lines = (self.kit(site) / "jobs" / name[:16] / "labels.csv").read_text().splitlines()
            column = lines[0].split(",").index("cluster")
            found += [int(line.split(",")[column]) for line in lines[1:]]
        return np.array(found, dtype=np.int32)


def secfc(*call: str) -> tuple[int, str, str]:
    """A `secfc` command: exit code, output, errors."""
    words = [sys.executable, "-c", "from secfc_client.cli import main; main()", *call]
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=PATIENCE, check=False, stdin=subprocess.DEVNULL
    )
    return done.returncode, done.stdout, done.stderr
