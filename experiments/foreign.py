"""Peers that are other people's software, run as processes of their own by an interpreter that has them.

They need other versions of libraries than SecFC does (SPU: numpy below 2), so the interpreter may be that of another virtual
environment. A peer that is not installed there is left out, with a message that names the extra.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from experiments.contest import Job
from secfc import local
from secfc.coding import parallel

Row = dict[str, Any]
MODULUS = (1 << 63) - 25  # prime, and above m²·d·(2η)² at these sizes
TIMEOUT = 600.0


@dataclass(frozen=True)
class Peer:
    """A peer: its name, what must be importable, its script beside this file, and the largest m·d·k it is run at."""

    name: str
    module: str
    script: str
    largest: int | None = None


SPU = Peer("SPU", "spu", "peer_spu.py")
MPYC = Peer("MPyC", "mpyc", "peer_mpyc.py", largest=5_000_000)  # beyond, an iteration takes minutes
PEERS = (SPU, MPYC)


def missing(peer: Peer, python: str) -> str | None:
    """Why the peer cannot run, or None."""
    code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({peer.module!r}) is None)"
    try:
        found = subprocess.run([python, "-c", code], capture_output=True, check=False, timeout=120).returncode == 0
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{python} does not run ({error})"
    if found:
        return None
    return f"not installed for {Path(python).name}; pip install '.[peers]', best in a virtual environment, see --peers-python"


def run(peer: Peer, job: Job, python: str) -> Row:
    """Seconds, bytes and labels of a peer; raises RuntimeError with its last words if it fails."""
    with tempfile.TemporaryDirectory(prefix="secfc-peer-") as folder:
        source, target = Path(folder) / "in.npz", Path(folder) / "out.json"
        np.savez(
            source,
            rows=job.rows,
            centres=job.centres,
            quantised=job.quantised,
            labels=job.start,
            k=job.size.k,
            modulus=MODULUS,
            iterations=job.iterations,
            threads=parallel.threads(),
        )
        options = _parties(job) if peer is MPYC else []
        script = str(Path(__file__).with_name(peer.script))
        _wait([python, script, *options, str(source), str(target)], folder)
        found = json.loads(target.read_text(encoding="utf-8"))
    seconds = float(min(found["seconds"]))
    labels = np.asarray(found["labels"], dtype=np.int32)
    return {"seconds": seconds, "bytes": found["bytes"], "labels": labels, "version": found["version"]}


def _parties(job: Job) -> list[str]:
    base = min(local.free_ports(1)[0], 60000)
    return [f"-M{job.clients}", f"-T{job.privacy}", "-B", str(base), "--no-log"]


def _wait(call: Sequence[str], folder: str) -> None:
    """Run a peer with everything it starts in a session of its own, of which nothing is left behind."""
    log = Path(folder) / "log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            call, cwd=folder, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True
        )
        try:
            code = process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"{Path(call[1]).name} took more than {TIMEOUT:g} s") from None
        finally:
            _end(process)
    if code:
        last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:] or ["it wrote nothing"]
        raise RuntimeError(f"{Path(call[1]).name} ended with code {code}: {last[0][:200]}")


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    process.wait()
