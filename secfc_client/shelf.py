"""Shares that a node keeps between submitted jobs, where every policy lets it, so that the next job need not share again.

    STATE/shares/KEY/       the state folder of the last job of its kind, with fresh keys: our seed, and others' shares
    STATE/jobs/JOB/         the same folder while a job uses it

Jobs are of one kind if they are about the same dataset, the same sites, features and scale, and the same code; then the same
seed makes the same polynomials of the same rows. Which rows they are, `Store` checks; whose shares may stay, the owners say
in every job. Counts of what was given away are in the budget, which adds up jobs, whether or not shares were the same.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

from secfc import limits
from secfc.agreement.federation import Federation
from secfc.agreement.plan import Plan
from secfc.framing import framed
from secfc_client.store import LASTING, SECRETS, Store

FOLDER = "shares"
MOST_KINDS = 8  # whose shares are kept; those that were not used for longest give way
_CURE = "remove that folder by hand; the next job then shares again"


def kind(dataset: str, federation: Federation, made: Plan) -> bytes:
    """Names the jobs that can use the same shares. `federation`: that runs the job."""
    code, field = made.code, made.field
    numbers = [code.clients, code.privacy, code.segments, *map(int, field.primes)]
    parts = dataset.encode(), federation.digest(), federation.job.measures(), json.dumps(numbers).encode()
    return hashlib.sha256(framed(b"secfc/v1/kind-of-job", *parts)).digest()


class Shelf:
    """Of one node."""

    def __init__(self, state: Path) -> None:
        self._folder = state / FOLDER

    def lend(self, name: bytes, job: Path) -> bool:
        """Give a job that begins the folder of the last one of its kind, if there is one."""
        kept = self._path(name)
        if job.exists() or not kept.is_dir():
            return False
        with limits.telling(f"{kept}: cannot be moved", _CURE):
            job.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            kept.rename(job)
        return True

    def give_back(self, name: bytes, store: Store) -> None:
        """A job is over: what may serve another one stays. Keys and nonce of this one are gone first."""
        store.finish(keep=True)
        kept = self._path(name)
        with limits.telling(f"{kept}: cannot be replaced", _CURE):
            for path in store.folder.iterdir():  # `given` too: of other runs than the next job's, and the budget has it
                if path.name != SECRETS and path.suffix != LASTING:
                    path.unlink()
            shutil.rmtree(kept, ignore_errors=True)
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            store.folder.rename(kept)
            kept.touch()
            oldest = sorted(self._folder.iterdir(), key=lambda path: path.stat().st_mtime)
        for path in oldest[:-MOST_KINDS]:
            shutil.rmtree(path, ignore_errors=True)

    def forget(self, name: bytes | None = None) -> None:
        """Nothing of this kind of job is kept any more, or nothing at all."""
        shutil.rmtree(self._folder if name is None else self._path(name), ignore_errors=True)

    def _path(self, name: bytes) -> Path:
        return self._folder / name.hex()[:32]
