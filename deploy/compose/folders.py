"""Step 1 of `docker compose up`: give every party's volume and folder of ./out to the user the parties run as.

Runs as root, without a network and with nothing but the right to change owners and modes. What it makes in ./out keeps
that folder's group and is writable for it, so whoever cloned the repository can remove the results again.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

PARTY_USER = 10001  # as in deploy/Dockerfile
KITS, OUT = Path("/kits"), Path("/out")


def main() -> int:
    group = OUT.stat().st_gid
    for volume in KITS.iterdir():
        _give(volume, PARTY_USER, 0o700)
        _give(OUT / volume.name, group, 0o775)
    return 0


def _give(folder: Path, group: int, mode: int) -> None:
    folder.mkdir(exist_ok=True)
    os.chown(folder, PARTY_USER, group)
    folder.chmod(mode)


if __name__ == "__main__":
    sys.exit(main())
