"""What this site keeps of finished jobs' clusters, in the state folder: its share of every cluster's sum (`freezing`).

One sealed file per job, readable by its owner only. They outlive the job; at most so many are kept, the oldest give way, and
`secfc clusters --forget` removes them.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

from secfc import limits
from secfc.agreement import clusters
from secfc.agreement import plan as plans
from secfc.agreement.clusters import LAST, MOST_KEPT
from secfc.agreement.federation import Federation
from secfc.agreement.job import ASSIGN
from secfc.agreement.plan import Plan
from secfc.errors import ConfigError, Malformed, Refused
from secfc.logs import say
from secfc.pki.kit import Kit
from secfc.protocol import messages
from secfc.protocol.client.freezing import KeptClusters
from secfc_client import statefiles

log = logging.getLogger("secfc.client")
_PREFIX, _SUFFIX = "clusters-", ".kept"
_KIND = b"secfc/v1/kept-clusters"


def keep(folder: Path, kept: KeptClusters) -> None:
    """Put one on disk; if there are too many, the oldest are removed."""
    statefiles.keep(_path(folder, kept.public.name), kept.to_bytes(), _KIND)
    for old in sorted(_readable(folder), key=lambda one: one.when)[:-MOST_KEPT]:
        say(log, "the clusters of an older job are no longer kept", clusters=old.public.name, most=MOST_KEPT)
        _remove(_path(folder, old.public.name))


def every(folder: Path) -> list[KeptClusters]:
    """All that are kept, the newest first. Raises ConfigError if one is damaged."""
    return sorted((_read(path) for path in _paths(folder)), key=lambda one: -one.when)


def find(folder: Path, name: str) -> KeptClusters:
    """Those of that name, or the last. Raises ConfigError if they are not here."""
    if name == LAST and (found := every(folder)):
        return found[0]
    path = _path(folder, name)
    if name != LAST and path in _paths(folder):
        return _read(path)
    what = "no clusters" if name == LAST else f"no share of the clusters {name[:40]}"
    raise ConfigError(
        f"{folder}: {what} kept here: this site was not in that job, or keep_clusters was not in every site's policy.toml, or"
        " they were removed; secfc clusters lists what is kept"
    )


def named(folder: Path, beginning: str = "") -> list[str]:
    """The names that begin so, also of damaged files."""
    return [_name(path) for path in _paths(folder) if _name(path).startswith(beginning)]


def forget(folder: Path, beginning: str | None) -> list[str]:
    """Remove those whose name begins so, or all, damaged ones too; returns the names of what is gone."""
    gone = named(folder, beginning or "")
    for name in gone:
        _remove(_path(folder, name))
    return gone


def prepared(loaded: Kit, folder: Path, wanted: str | None) -> tuple[Kit, Plan, KeptClusters | None]:
    """The kit and the plan of the job, and our share of the clusters if it assigns rows to an earlier job's. `wanted`: the
    clusters' name, if the kit's job is to be exchanged for one that assigns rows to them."""
    agreed = loaded.federation
    clusters.contradiction(agreed, wanted)
    if wanted is None and agreed.job.kind != ASSIGN:
        return loaded, plans.of(agreed), None
    kept = find(folder, agreed.job.source or wanted or LAST)
    assigning, made = kept.job(agreed, loaded.party_name)
    return replace(loaded, federation=assigning), made, kept


def for_job(federation: Federation, folder: Path, party: str) -> tuple[Plan, KeptClusters | None]:
    """The plan of a submitted job, and our share of the clusters if it assigns rows to an earlier job's. Raises Refused, with
    words for everybody, if it cannot be."""
    if federation.job.kind != ASSIGN:
        return plans.of(federation), None
    name = federation.job.source
    if not named(folder, name):
        raise Refused(
            f"it keeps no share of the clusters {name}: it was not in that job, or keep_clusters was not in every site's"
            " policy.toml, or it was removed"
        )
    kept = find(folder, name)
    try:
        return kept.job(federation, party)[1], kept
    except ConfigError as error:
        raise Refused(str(error)) from None


def check_features(kept: KeptClusters, names: tuple[str, ...]) -> None:
    """Raise ConfigError if the columns of new rows are not those of the rows that made the clusters."""
    if kept.features != messages.feature_digest(names).hex():
        raise ConfigError(
            f"the feature columns {', '.join(names)[:300]} are not those of the job that found the clusters"
            f" {kept.public.name}, or stand in another order; --features names them"
        )


def _readable(folder: Path) -> list[KeptClusters]:
    """All that are whole."""
    out = []
    for path in _paths(folder):
        try:
            out.append(_read(path))
        except ConfigError as error:
            say(log, str(error), level=logging.WARNING)
    return out


def _paths(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"{_PREFIX}*{_SUFFIX}"))


def _path(folder: Path, name: str) -> Path:
    return folder / f"{_PREFIX}{name}{_SUFFIX}"


def _name(path: Path) -> str:
    return path.name.removeprefix(_PREFIX).removesuffix(_SUFFIX)


def _remove(path: Path) -> None:
    with limits.telling(f"{path}: cannot be removed", "remove it by hand"):
        path.unlink(missing_ok=True)


def _read(path: Path) -> KeptClusters:
    try:
        found = KeptClusters.from_bytes(statefiles.kept(path, _KIND) or b"")
        if found.public.name == _name(path):
            return found
    except Malformed:
        pass
    cure = f"remove it: secfc clusters --forget {_name(path)[:12]}"
    raise ConfigError(f"{path}: damaged, so no rows can be assigned to these clusters; {cure}")
