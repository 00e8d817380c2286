"""A site's own rules (`policy.toml`): what its client does, whatever the server asks and the federation file says.

The federation file is what all parties agreed on; a policy can only be stricter. Without a file the defaults below hold.
What can be told from the federation file is checked here, before the client joins; what depends on the server's requests
is checked by `guard`, request by request.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

from secfc.agreement import toml
from secfc.agreement.features import SCALES
from secfc.agreement.federation import Federation
from secfc.agreement.job import ASSIGN, SMALLEST, Job
from secfc.agreement.uploads import UPLOADS
from secfc.errors import ConfigError

TO_NOBODY, TO_CLIENTS, TO_SERVER = "nobody", "clients", "server"  # each includes the ones before
FILE = "policy.toml"


@dataclass(frozen=True)
class Policy:
    """What one site accepts. `None`: no limit of its own beside the federation file's."""

    least_privacy: int = 0  # the smallest t
    uploads: tuple[str, ...] = UPLOADS
    max_requests: int | None = None  # answered in one job, seeding included; every run of several counts
    max_directions: int | None = None  # independent distance directions given away (`secfc.privacy.leakage`)
    max_assignments: int | None = None  # assignments of all rows given away, over all jobs on the same rows
    smallest_cluster: int = 1  # rows a cluster must have before distances to its centre are given; k-means++ needs 1
    open_centers: str = TO_NOBODY  # who may see the centres after the job
    centers_smallest: int = SMALLEST  # rows of a cluster, beside those of the t sites with most, to open its centre
    committee: tuple[str, ...] = ()  # who may compare in sealed rounds; nobody named: anybody
    keep_shares: bool = False  # whether what we hold may serve another job
    least_rows: int = 0  # that this site brings
    least_rows_in_all: int = 0  # that all clients together bring
    scales: tuple[str, ...] = SCALES  # how columns may be scaled
    keep_clusters: bool = False  # whether shares of the final clusters' sums may be kept, to assign rows later

    def describe(self) -> str:
        """The rules that differ from the defaults, as one line."""
        own = {one.name: getattr(self, one.name) for one in fields(self) if getattr(self, one.name) != one.default}
        return ", ".join(f"{name} = {_toml(value)}" for name, value in own.items()) or "the defaults"


KEYS = tuple(one.name for one in fields(Policy))
ALLOWING = ("allow", "pending_hours")  # in the same file, about submitted jobs: `allowing` reads them


def load(path: Path) -> Policy:
    """Read and validate a policy file."""
    return parse(toml.read_text(path), str(path))


def of_kit(kit: Path, chosen: Path | None = None, *, required: bool = False) -> Policy:
    """The chosen file, or policy.toml of the kit if there is one, or the defaults; these not if a file is `required`."""
    path = source(kit, chosen)
    if path is None and required:
        raise ConfigError(
            f"{kit / FILE}: there is no such file, and --require-policy asks for one; put this site's rules there"
            " (an empty file stands for the defaults)"
        )
    return Policy() if path is None else load(path)


def source(kit: Path, chosen: Path | None = None) -> Path | None:
    """The file that holds; None if there is none. A link that leads nowhere is a file that cannot be read, not none."""
    path = chosen or kit / FILE
    return path if chosen or path.exists() or path.is_symlink() else None


def parse(text: str, where: str) -> Policy:
    """Validate a policy's text; `where` names it in errors."""
    raw = toml.read_toml(text, where)
    if "max_rounds" in raw:  # its name before; a job's max_rounds counts something else
        raise ConfigError(f"{where}: max_rounds is now called max_requests, as it counts requests; rename it")
    table = toml.Table(raw, where, "", (*KEYS, *ALLOWING))
    return Policy(
        least_privacy=table.integer("least_privacy", 0, default=Policy.least_privacy),
        uploads=_some(table, "uploads", UPLOADS),
        scales=_some(table, "scales", SCALES),
        max_requests=table.integer("max_requests", 1) if "max_requests" in raw else None,
        max_directions=table.integer("max_directions", 0) if "max_directions" in raw else None,
        max_assignments=table.integer("max_assignments", 1) if "max_assignments" in raw else None,
        smallest_cluster=table.integer("smallest_cluster", 1, default=Policy.smallest_cluster),
        open_centers=table.choice("open_centers", (TO_NOBODY, TO_CLIENTS, TO_SERVER)),
        centers_smallest=table.integer("centers_smallest", 1, default=Policy.centers_smallest),
        committee=table.strings("committee") if "committee" in raw else (),
        keep_shares=table.flag("keep_shares", Policy.keep_shares),
        least_rows=table.integer("least_rows", 0, default=Policy.least_rows),
        least_rows_in_all=table.integer("least_rows_in_all", 0, default=Policy.least_rows_in_all),
        keep_clusters=table.flag("keep_clusters", Policy.keep_clusters),
    )


def check(policy: Policy, federation: Federation) -> None:
    """Raise ConfigError if no job of this federation can fit the policy."""
    found = complaints(policy, federation)
    if found:
        raise ConfigError(f"policy.toml does not allow this federation.toml: {found[0]}")


def complaints(policy: Policy, federation: Federation) -> list[str]:
    """Why no job of this federation can fit the policy."""
    f, found = federation, []
    if f.privacy < policy.least_privacy:
        found.append(f"least_privacy = {policy.least_privacy}, but privacy = {f.privacy}")
    if f.uploads not in policy.uploads:
        found.append(f"uploads = {_toml(policy.uploads)}, but uploads = {_toml(f.uploads)}")
    if f.job.scale not in policy.scales:
        found.append(f"scales = {_toml(policy.scales)}, but scale = {_toml(f.job.scale)}")
    if seeding_requests(f.job, f.job.k) and policy.smallest_cluster > 1:
        floor = f"smallest_cluster = {policy.smallest_cluster}, but seeding = {_toml(f.job.seeding)}"
        found.append(f'{floor} asks for distances to single rows; it needs 1, or agree on seeding = "random"')
    sealed = f.uploads == "sealed"  # shows no distances, and asks for the inertia at the end
    measured = sealed and f.job.kind != ASSIGN
    least = [seeding_requests(f.job, k) + 1 + measured for k in f.job.runs]
    if policy.max_requests is not None and policy.max_requests < sum(least):
        found.append(f"max_requests = {policy.max_requests}, but the shortest job makes {sum(least)} requests")
    assignments = sum(assignments_given(f.job, k, n - measured) for k, n in zip(f.job.runs, least, strict=True))
    if policy.max_assignments is not None and policy.max_assignments < assignments:
        found.append(
            f"max_assignments = {policy.max_assignments}, but the shortest job gives away {assignments} of them"
        )
    if unknown := [name for name in policy.committee if name not in f.roster]:
        found.append(f"committee names {', '.join(unknown)}, and no client of the federation is called that")
    elif policy.committee and len(policy.committee) <= f.privacy:
        found.append(f"committee names {len(policy.committee)} clients, and {f.privacy + 1} compare")
    largest = max(f.job.ks)
    directions = min(largest - 1, f.job.features) if not sealed else 0
    if policy.max_directions is not None and policy.max_directions < directions:
        found.append(
            f"max_directions = {policy.max_directions}, but k = {largest} clusters give away {directions} at once"
        )
    return found


def seeding_requests(job: Job, k: int) -> int:
    """Requests before the first of Lloyd's, in a run with k clusters: a single row's distances each, and one to separate."""
    return {"random": 0, "k-means++": k, "separation": k + 1}[job.seeding]


def assignments_given(job: Job, k: int, requests: int) -> int:
    """Assignments of all rows that the answers to the first so many requests of a run with k clusters make known: the last
    one of the seeding does, and every one after it. Where a random start begins is no answer."""
    first = 1 if job.seeding == "random" else k
    return max(requests - first + 1, 0)


def _some(table: toml.Table, key: str, known: tuple[str, ...]) -> tuple[str, ...]:
    """One or more of what is known; all of them if the file does not say."""
    if key not in table.raw:
        return known
    chosen = table.strings(key)
    if not chosen or not set(chosen) <= set(known):
        table.fail(key, f"must list one or more of {', '.join(known)}")
    return chosen


def _toml(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)
