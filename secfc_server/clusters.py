"""What the server remembers of finished jobs' clusters: that all sites have kept their shares of them, and their sizes. One
JSON file in its state folder, which a new job leaves alone; the oldest clusters give way."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path

from secfc import atomicfile, limits, textfile
from secfc.agreement import clusters
from secfc.agreement import plan as plans
from secfc.agreement.clusters import LAST, MOST_KEPT, Clusters
from secfc.agreement.federation import Federation
from secfc.agreement.job import ASSIGN
from secfc.agreement.plan import Plan
from secfc.errors import ConfigError, InvalidInput
from secfc.logs import say
from secfc.pki.kit import Kit

log = logging.getLogger("secfc.server")
FILE = "clusters.json"
_LARGEST = 1 << 24


def remember(folder: Path, found: Clusters) -> None:
    """Put them on disk, as the newest."""
    others = [one for one in read(folder) if one.name != found.name]
    text = json.dumps([one.fields() for one in (*others, found)[-MOST_KEPT:]], indent=1)
    with limits.telling(f"{folder / FILE}: cannot be written", "make room there"):
        atomicfile.write(folder / FILE, [text.encode()])


def read(folder: Path) -> list[Clusters]:
    """All that are remembered, the oldest first."""
    path = folder / FILE
    if not path.exists():
        return []
    try:
        return [Clusters.of(one) for one in json.loads(textfile.read_small_file(path, _LARGEST))]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ConfigError(f"{path}: damaged, so no rows can be assigned to earlier jobs' clusters; remove it") from None


def prepared(loaded: Kit, folder: Path, wanted: str | None) -> tuple[Kit, Plan]:
    """The kit and the plan of the job. `wanted`: the name of an earlier job's clusters, if the kit's job is to be exchanged
    for one that assigns rows to them."""
    agreed = loaded.federation
    clusters.contradiction(agreed, wanted)
    if wanted is None and agreed.job.kind != ASSIGN:
        return loaded, plans.of(agreed)
    name, known = agreed.job.source or wanted, read(folder)
    found = known[-1:] if name == LAST else [one for one in known if one.name == name]
    if not found:
        raise ConfigError(
            f"{folder / FILE}: no job with the clusters {str(name)[:40]} is remembered here: it was another server's, or not"
            " every site's policy.toml said keep_clusters, or it was removed"
        )
    assigning = found[0].federation(agreed)
    return replace(loaded, federation=assigning), found[0].plan(assigning)


def plan_of(federation: Federation, folder: Path) -> Plan:
    """The plan of a submitted job. Raises InvalidInput with words for its submitter, who need not know our folders."""
    job = federation.job
    if job.kind != ASSIGN:
        return plans.of(federation)
    try:
        found = [one for one in read(folder) if one.name == job.source]
    except ConfigError as error:
        say(log, str(error), level=logging.WARNING)
        found = []
    if not found:
        raise InvalidInput(
            f"the server remembers no clusters {job.source}: no job here has found them, or not every site's policy.toml said"
            " keep_clusters, or they were removed"
        )
    return found[0].plan(federation)
