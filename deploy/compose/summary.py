"""Last step of `docker compose up`: what was found, and where it is. Ends with 1 if a client's labels are missing.

Parties write for themselves only (mode 0600), as they should at a site. Here all is one person's: the owner of ./out.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

OUT = Path("/out")


def main() -> int:
    result = json.loads((OUT / "server" / "result.json").read_text(encoding="utf-8"))
    sizes = ", ".join(map(str, result["cluster_sizes"]))
    say = sys.stdout.write
    say(f"{result['state']} after {result['rounds']} rounds, inertia {result['inertia']:.6g}, cluster sizes {sizes}\n")
    say("out/server/result.json\n")
    missing, owner = [], OUT.stat()
    os.chown(OUT / "server" / "result.json", owner.st_uid, owner.st_gid)
    for j in range(result["clients"]):
        name = f"client-{j + 1}"
        if (labels := OUT / name / "labels.csv").exists():
            os.chown(labels, owner.st_uid, owner.st_gid)
            say(f"out/{name}/labels.csv\n")
        else:
            missing.append(name)
    if missing:
        sys.stderr.write(f"error: no labels of {', '.join(missing)}; see their logs\n")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
