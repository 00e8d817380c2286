"""Last step of `docker compose up`: what was found, and where it is. Ends with 1 if a client's labels are missing.

Parties write for themselves only (mode 0600), as they should at a site. Here all is one person's: the owner of ./out. A link
in a result's place leads to an earlier job's (see provision.py), which is not what was asked for now.
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
    kept = [path for path in OUT.glob("*/*") if path.is_dir() and not path.is_symlink()]  # earlier jobs' folders
    for path in [*OUT.glob("*/result.json"), *OUT.glob("*/labels*"), *kept]:
        os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)
    for j in range(result["clients"]):
        name = f"client-{j + 1}"
        labels = OUT / name / "labels.csv"
        if labels.is_file() and not labels.is_symlink():
            say(f"out/{name}/labels.csv\n")
        else:
            missing.append(name)
    for name in sorted({path.name for path in kept}):
        say(f"kept from an earlier job: out/*/{name}\n")
    if missing:
        sys.stderr.write(f"error: no labels of {', '.join(missing)}; see their logs\n")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
