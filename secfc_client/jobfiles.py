"""What a node remembers of submitted jobs, on disk: STATE/jobs/DIGEST.job, one sealed file per job."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from secfc import limits
from secfc.errors import ConfigError
from secfc.protocol.effects import Drop, Put
from secfc_client import statefiles

_SUFFIX, _KIND = ".job", b"secfc/v1/job-record"


class JobFiles:
    """Where the node's machine keeps what it remembers: a sealed file per job."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def kept(self) -> dict[str, bytes]:
        """All of it; a damaged file is an error: what was decided must not be forgotten."""
        found = {}
        for path in self._folder.glob(f"*{_SUFFIX}"):
            value = statefiles.kept(path, _KIND, path.stem.encode())
            if value is None:
                raise ConfigError(f"{path}: damaged, so what was decided about this job is not known; remove it")
            found[f"job/{path.stem}"] = value
        return found

    def put(self, keep: Sequence[Put | Drop]) -> None:
        for one in keep:
            name = one.key.removeprefix("job/")
            path = self._folder / f"{name}{_SUFFIX}"
            if isinstance(one, Drop):
                with limits.telling(f"{path}: cannot be removed", "remove it by hand"):
                    path.unlink(missing_ok=True)
            else:
                statefiles.keep(path, one.value, _KIND, name.encode())

    def get(self, key: str) -> bytes | None:
        name = key.removeprefix("job/")
        return statefiles.kept(self._folder / f"{name}{_SUFFIX}", _KIND, name.encode())
