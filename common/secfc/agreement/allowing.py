"""Which submitted jobs a site takes part in without asking anybody: the [[allow]] rules of `policy.toml`.

Nothing is allowed by default: without a rule that fits, a job waits for a person at the site. A rule fits if the job is
within all that the rule says. What a rule does not mention, it does not limit; but submitter, dataset and features must be
named ("*" stands for any). The other keys of `policy.toml` are no permissions but limits, which no rule and no person
overrides; `open_centers` alone is a consent, and `centers` of a rule is that consent for the jobs that it allows.

What depends on rows or on the course of the job is looked at when it runs (`limits`): so many rows of our own and in all,
directions and assignments over all jobs on the same rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from secfc.agreement import policy as policies
from secfc.agreement import toml
from secfc.agreement.federation import Federation
from secfc.agreement.job import AUDIENCES, CLUSTER, KINDS
from secfc.agreement.policy import Policy
from secfc.agreement.submission import Submission
from secfc.agreement.uploads import UPLOADS
from secfc.errors import ConfigError

ANY = "*"
PENDING_HOURS = 72.0
_KEYS = (
    *("name", "submitter", "dataset", "features", "uploads", "least_privacy", "k", "starts", "least_rows"),
    *("least_rows_in_all", "max_directions", "max_assignments", "centers", "kinds", "prune"),
)


@dataclass(frozen=True)
class Rule:
    """One [[allow]] table."""

    name: str
    submitter: tuple[str, ...]
    dataset: tuple[str, ...]
    features: tuple[str, ...]
    uploads: tuple[str, ...] = UPLOADS
    least_privacy: int = 0
    k: int | None = None  # the largest
    starts: int | None = None  # the most
    least_rows: int = 1  # of this site's own
    least_rows_in_all: int = 1
    max_directions: int | None = None  # over all jobs on the same rows
    max_assignments: int | None = None
    centers: str = AUDIENCES[0]  # who may see them, at most
    kinds: tuple[str, ...] = (CLUSTER,)  # rows of others' choice tell where clusters lie: only where the rule says so
    prune: bool = False  # whether all parties may see which rows lie near a border

    def complaints(self, job: Submission, federation: Federation) -> list[str]:
        """Why this rule does not allow a job; nothing is read for it but the job. `federation`: that runs the job."""
        wanted, found = job.wanted.job, []
        columns = tuple(one.name for one in wanted.agreed) or wanted.feature_names or ()
        for what, value, allowed in (
            ("submitter", job.submitter, self.submitter),
            ("dataset", job.wanted.dataset, self.dataset),
            ("uploads", federation.uploads, self.uploads),
            ("kind", wanted.kind, self.kinds),
        ):
            if value not in allowed and ANY not in allowed:
                found.append(f"{what} {value} is not among {', '.join(allowed)}")
        if ANY not in self.features:
            if not columns:
                found.append("features are not named in the job")
            if other := [name for name in columns if name not in self.features]:
                found.append(f"feature {toml.show(other[0])} is not in the rule")
        if federation.privacy < self.least_privacy:
            found.append(f"privacy = {federation.privacy} is below {self.least_privacy}")
        if self.k is not None and max(wanted.ks) > self.k:
            found.append(f"k = {max(wanted.ks)} is above {self.k}")
        if self.starts is not None and wanted.starts > self.starts:
            found.append(f"starts = {wanted.starts} is above {self.starts}")
        if AUDIENCES.index(wanted.centers) > AUDIENCES.index(self.centers):
            found.append(f"centers = {wanted.centers!r} is more than {self.centers!r}")
        if wanted.prune and not self.prune:
            found.append("prune = true shows all parties which rows lie near a border")
        return found

    def limits(self, policy: Policy) -> Policy:
        """The site's limits while a job runs that this rule has allowed: the stricter of both; centres as the rule says."""
        return replace(
            policy,
            max_directions=_least(policy.max_directions, self.max_directions),
            max_assignments=_least(policy.max_assignments, self.max_assignments),
            least_rows=max(policy.least_rows, self.least_rows),
            least_rows_in_all=max(policy.least_rows_in_all, self.least_rows_in_all),
            open_centers=max(policy.open_centers, self.centers, key=AUDIENCES.index),
        )


@dataclass(frozen=True)
class Allowing:
    """What a site says of jobs that are submitted."""

    rules: tuple[Rule, ...] = ()
    pending_hours: float = PENDING_HOURS  # so long a job waits for a person

    def first(self, job: Submission, federation: Federation) -> Rule | None:
        """The rule that allows a job, if one does."""
        return next((rule for rule in self.rules if not rule.complaints(job, federation)), None)

    def why_not(self, job: Submission, federation: Federation) -> str:
        """What is in the way of each rule."""
        if not self.rules:
            return "policy.toml has no [[allow]] rule"
        reasons = (f"{rule.name}: {rule.complaints(job, federation)[0]}" for rule in self.rules[:5])
        return f"no [[allow]] rule fits ({'; '.join(reasons)})"


def of_kit(kit: Path, chosen: Path | None = None) -> Allowing:
    """The rules of the chosen file, or of policy.toml of the kit if there is one."""
    path = policies.source(kit, chosen)
    return Allowing() if path is None else parse(toml.read_text(path), str(path))


def parse(text: str, where: str) -> Allowing:
    """Validate the [[allow]] tables of a policy."""
    raw = toml.read_toml(text, where)
    hours = toml.Table(raw, where, "", (*policies.KEYS, *policies.ALLOWING))
    tables = hours.tables("allow") if "allow" in raw else []
    rules = tuple(_rule(table, where, number) for number, table in enumerate(tables, 1))
    if twice := toml.first_repeated(rule.name for rule in rules):
        raise ConfigError(f"{where}: two [[allow]] rules are called {toml.show(twice)}; give each a name of its own")
    return Allowing(rules, hours.positive("pending_hours") if "pending_hours" in raw else PENDING_HOURS)


def _rule(raw: dict[str, object], where: str, number: int) -> Rule:
    table = toml.Table(raw, where, f"[[allow]] number {number} ", _KEYS)
    uploads = table.strings("uploads") if "uploads" in raw else UPLOADS
    if not uploads or not set(uploads) <= set(UPLOADS):
        table.fail("uploads", f"must list one or more of {', '.join(UPLOADS)}")
    kinds = table.strings("kinds") if "kinds" in raw else (CLUSTER,)
    if not kinds or not set(kinds) <= set(KINDS):
        table.fail("kinds", f"must list one or more of {', '.join(KINDS)}")
    return Rule(
        name=table.words("name") if "name" in raw else f"number {number}",
        submitter=_named(table, "submitter"),
        dataset=_named(table, "dataset"),
        features=_named(table, "features"),
        uploads=uploads,
        least_privacy=table.integer("least_privacy", 0, default=0),
        k=table.integer("k", 1) if "k" in raw else None,
        starts=table.integer("starts", 1) if "starts" in raw else None,
        least_rows=table.integer("least_rows", 1, default=1),
        least_rows_in_all=table.integer("least_rows_in_all", 1, default=1),
        max_directions=table.integer("max_directions", 0) if "max_directions" in raw else None,
        max_assignments=table.integer("max_assignments", 1) if "max_assignments" in raw else None,
        centers=table.choice("centers", AUDIENCES),
        kinds=kinds,
        prune=table.flag("prune", False),
    )


def _named(table: toml.Table, key: str) -> tuple[str, ...]:
    """One name or a list of them; it must be there, since what is left out would be allowed."""
    if isinstance(table.get(key), str):
        return (table.words(key),)
    names = table.strings(key)
    if not names:
        table.fail(key, f'is empty; name those that are allowed, or "{ANY}" for any')
    return names


def _least(one: int | None, other: int | None) -> int | None:
    return min((value for value in (one, other) if value is not None), default=None)
