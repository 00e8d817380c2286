"""The job: what a federation computes. Who takes part, and under which guarantees, is `federation`'s.

A job comes from the [job] table of `federation.toml`, or is submitted in a file of its own with the same keys
(`submission`). It becomes one frozen `Job`, validated once, here. `Job.digest()` is part of what all parties compare when
they join (`Federation.agreed()`).
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from secfc.agreement import measures, toml
from secfc.agreement.features import MISSING, SCALES, Feature
from secfc.errors import ConfigError
from secfc.kmeans.candidates import MOST_CANDIDATES
from secfc.kmeans.indices import CHOICES

CLUSTER, ASSIGN = KINDS = ("cluster", "assign")  # find clusters, or assign new rows to those of an earlier job
SEEDINGS = ("k-means++", "random", "separation")
MEMBERSHIPS = ("public", "private")
IDS = ("fresh", "linked")
SPLITS = ("rows", "columns")  # what differs from client to client: whose rows, or whose columns of the same rows
AUDIENCES = ("nobody", "clients", "server")  # who may see the final centres; each includes the ones before
SMALLEST = 11  # fewer rows than this are a small cell, by the norm for health data
MOST_ROUNDS = 300
PRUNE = False  # whether distances that cannot matter are left out, where the server sees distances
STARTS = 4  # of every k: with greedy k-means++, poor optima are rare (docs/operations.md)
MOST_RUNS = 200  # of a job

KEYS = (
    "kind",
    "from",
    *("k", "features", "scale", "clip", "missing", "bound", "precision", "max_rows"),
    *("max_rounds", "starts", "choose", "seeding"),
    *("candidates", "segments", "membership", "ids", "split", "centers", "centers_smallest", "seed", "prune"),
)
_OF_ASSIGNING = ("kind", "from", "k", "features", "scale", "missing", "bound", "precision", "max_rows", "segments")
_CLUSTERS_NAME = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True)
class Job:
    """What is computed. Made by `parse`, which validates; names and defaults are the file's."""

    k: int  # the first of the file's
    features: int  # columns that are clustered
    bound: float  # of every |x| after scaling
    precision: int
    max_rows: int
    other_k: tuple[int, ...] = ()  # that are tried besides, from the same shares
    starts: int = STARTS  # of every k; the best is taken
    choose: str = CHOICES[0]  # which of several k is taken: the first, or that with the best index
    feature_names: tuple[str, ...] | None = None  # of these columns
    agreed: tuple[Feature, ...] = ()  # what is said about each feature, if the file says more than names
    scale: str = SCALES[0]
    clip: float | None = None  # with standard scaling: values further from the mean, in deviations, are taken as so far
    missing: str = MISSING[0]  # what becomes of rows with missing values
    max_rounds: int = MOST_ROUNDS  # of Lloyd
    seeding: str = SEEDINGS[0]
    candidates: int | None = None  # of each seed of k-means++; without it 2 + ⌊ln k⌋
    segments: int | None = None  # ℓ; without it the plan takes the largest that fits
    membership: str = MEMBERSHIPS[0]
    ids: str = IDS[0]  # how rows are named where membership is private
    centers: str = AUDIENCES[0]  # who may see the final centres: nobody, the clients, or the server as well
    centers_smallest: int = SMALLEST  # rows of a cluster, beside those of the t sites with most, to open its centre
    seed: str | None = None  # fixes the start, to repeat a run; without it the clients toss coins
    kind: str = CLUSTER
    source: str = ""  # `from` in the file: names the clusters that rows are assigned to (`secfc.agreement.clusters`)
    split: str = SPLITS[0]
    prune: bool = PRUNE

    @property
    def ks(self) -> tuple[int, ...]:
        """Every number of clusters that is tried, in the file's order."""
        return (self.k, *self.other_k)

    @property
    def runs(self) -> tuple[int, ...]:
        """The clusters of every run, by its number: all starts of the first k, then those of the next."""
        return tuple(k for k in self.ks for _ in range(self.starts))

    @property
    def holders(self) -> tuple[str, ...]:
        """The clients among which columns are split, in the order of their first features; none if rows are."""
        return tuple(dict.fromkeys(one.holder for one in self.agreed)) if self.split == "columns" else ()

    def columns_of(self, client: str) -> tuple[int, ...]:
        """Which columns of what is clustered a client brings: all of them, or if columns are split its own."""
        if self.split != "columns":
            return tuple(range(self.features))
        holders = [one.holder for one in self.agreed for _ in one.columns]
        return tuple(place for place, holder in enumerate(holders) if holder == client)

    def of(self, client: str) -> Job:
        """What a client has to bring: this job, or if columns are split the same with its own features only. It is for
        reading its rows; what is agreed on, and has a digest, is the whole."""
        if self.split != "columns":
            return self
        own = tuple(one for one in self.agreed if one.holder == client)
        names = tuple(column for one in own for column in one.columns)
        return dataclasses.replace(self, agreed=own, features=len(names), feature_names=names)

    @property
    def spread(self) -> tuple[tuple[float, float], ...]:
        """(shift, unit) of every column: x is clustered as (x − shift) / unit. Empty if nothing is scaled."""
        if self.scale != "range":
            return ()
        return tuple(one.spread(self.scale) for one in self.agreed for _ in one.columns)

    @property
    def standard(self) -> bool:
        """Whether columns are scaled by their mean and deviation over all sites, which no file can say."""
        return self.scale == "standard"

    @property
    def numeric(self) -> tuple[bool, ...]:
        """Of every column, whether it holds numbers and not the zeros and ones of a category."""
        return tuple(not one.levels for one in self.agreed for _ in one.columns) or (True,) * self.features

    def measures(self) -> bytes:
        """SHA-256 of how values become whole numbers: rows of jobs that differ in it cannot be compared."""
        names = ("features", "feature_names", "agreed", "scale", "bound", "precision")
        fields = {name: value for name, value in dataclasses.asdict(self).items() if name in names}
        fields["agreed"] = _without(fields["agreed"], "log")
        return hashlib.sha256(json.dumps(fields, sort_keys=True, separators=(",", ":")).encode("ascii")).digest()

    def assigning(self, source: str, k: int) -> Job:
        """The job that assigns new rows, measured alike, to the k clusters of that name, which one like this has found."""
        kept = ("features", "feature_names", "agreed", "scale", "missing", "bound", "precision", "max_rows", "segments")
        return Job(k=k, starts=1, seeding="random", kind=ASSIGN, source=source, **{n: getattr(self, n) for n in kept})

    def digest(self) -> bytes:
        """SHA-256 of the content: spacing, comments and key order (but that of features) do not matter. What a job of one
        run, or one that says no more than names about its features, has nothing to say about is left out."""
        fields = dataclasses.asdict(self)
        silent: dict[str, object] = {"other_k": (), "starts": 1, "choose": CHOICES[0]}
        silent |= {"agreed": (), "scale": SCALES[0], "clip": None, "missing": MISSING[0], "split": SPLITS[0]}
        silent |= {"kind": CLUSTER, "source": "", "prune": PRUNE}
        fields["agreed"] = _without(fields["agreed"], "holder", "log")
        for name, plain in silent.items():
            if fields[name] == plain:
                del fields[name]
        canonical = json.dumps(fields, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode("ascii")).digest()


def _without(agreed: Iterable[Mapping[str, object]], *keys: str) -> tuple[dict[str, object], ...]:
    """Features without those of these keys that say nothing: as before there were such keys."""
    return tuple({key: value for key, value in one.items() if key not in keys or value} for one in agreed)


def parse(source: str | Mapping[str, object], where: str, place: str = "") -> Job:
    """Validate a job file's text, or a table that was read before; `where` and `place` name file and table in errors."""
    raw = toml.read_toml(source, where) if isinstance(source, str) else source
    table = toml.Table(raw, where, place, KEYS)
    kind, source = _kind(table)
    features, feature_names, agreed = measures.features(table)
    scale, max_rows = measures.scale(table, agreed), table.integer("max_rows", 1)
    clip = measures.clip(table, scale)
    bound = table.positive("bound") if "bound" in raw else clip or measures.bound(table, scale, agreed)
    precision = (
        table.integer("precision", -60, 60) if "precision" in raw else measures.precision(bound, max_rows, features)
    )
    k, *other_k = _clusters(table)
    columns = table.choice("split", SPLITS) == "columns"  # which implies private membership and linked IDs
    job = Job(
        k=k,
        other_k=tuple(other_k),
        starts=table.integer("starts", 1, MOST_RUNS, default=STARTS),
        choose=table.choice("choose", CHOICES),
        features=features,
        feature_names=feature_names,
        agreed=agreed,
        scale=scale,
        clip=clip,
        missing=measures.missing(table, scale, agreed),
        bound=bound,
        precision=precision,
        max_rows=max_rows,
        max_rounds=table.integer("max_rounds", 1, default=MOST_ROUNDS),
        seeding=table.choice("seeding", SEEDINGS),
        candidates=table.integer("candidates", 1, MOST_CANDIDATES) if "candidates" in raw else None,
        segments=table.integer("segments", 1) if "segments" in raw else None,
        membership=table.choice("membership", MEMBERSHIPS) if "membership" in raw else MEMBERSHIPS[columns],
        ids=table.choice("ids", IDS) if "ids" in raw else IDS[columns],
        split=SPLITS[columns],
        centers=table.choice("centers", AUDIENCES),
        centers_smallest=table.integer("centers_smallest", 1, default=SMALLEST),
        seed=table.words("seed") if "seed" in raw else None,
        prune=table.flag("prune", PRUNE),
    )
    if kind == ASSIGN:
        return job.assigning(source, job.k)
    _check_together(job, f"{where}: {place}")
    return job


def dumps(job: Job) -> str:
    """TOML text that `parse` reads back as an equal value."""
    agreed = {one.name: one.plain() for one in job.agreed}
    fields = dataclasses.asdict(job) | {"features": agreed or job.feature_names or job.features}
    fields["k"] = job.ks if job.other_k else job.k
    fields["from"] = job.source
    if job.prune == PRUNE:  # so that files and signatures of jobs that say nothing about it stay as they were
        fields["prune"] = None
    keys = _OF_ASSIGNING if job.kind == ASSIGN else [key for key in KEYS if key not in ("kind", "from")]
    return "\n".join(toml.lines(fields, keys)) + "\n"


def _kind(table: toml.Table) -> tuple[str, str]:
    """What kind of job it is, and the clusters that rows are assigned to, if they are."""
    kind = table.choice("kind", KINDS)
    if kind == CLUSTER:
        if "from" in table.raw:
            table.fail("from", f'needs kind = "{ASSIGN}"; add it, or leave from out')
        return kind, ""
    if useless := [key for key in table.raw if key not in _OF_ASSIGNING]:
        table.fail(useless[0], f'has no meaning with kind = "{ASSIGN}", whose clusters are found; leave it out')
    if isinstance(table.get("k"), list):
        table.fail("k", f'must be one number with kind = "{ASSIGN}": that of the clusters of the job it is from')
    if table.raw.get("scale") == "standard":
        table.fail("scale", f'cannot be "standard" with kind = "{ASSIGN}": new rows have another mean and deviation')
    source = table.text("from")
    if not _CLUSTERS_NAME.fullmatch(source):
        table.fail("from", "must be 32 hexadecimal digits, the name of clusters that secfc clusters shows")
    return kind, source


def _clusters(table: toml.Table) -> tuple[int, ...]:
    """k, or every k of a list."""
    if not isinstance(table.get("k"), list):
        return (table.integer("k", 1),)
    return table.integers("k", 1)


def _check_together(job: Job, place: str) -> None:
    if len(job.runs) > MOST_RUNS:
        raise ConfigError(
            f"{place}{len(job.ks)} values of k with {job.starts} starts each make {len(job.runs)} runs, and {MOST_RUNS} are"
            " possible; lower starts"
        )
    if job.standard and not any(job.numeric):
        raise ConfigError(f'{place}scale = "standard" is for numbers, and every feature has levels; leave scale out')
    least = max(job.clip or 1.0, 1.0)
    if job.standard and job.bound < least:
        raise ConfigError(
            f"{place}bound = {job.bound:g} is in deviations here and must be at least {least:g}; leave it out"
        )
    if job.choose != CHOICES[0] and not job.other_k:
        raise ConfigError(f'{place}choose = "{job.choose}" needs several k, as in k = [2, 3, 4]; leave choose out')
    if job.candidates is not None and job.seeding != SEEDINGS[0]:
        raise ConfigError(f'{place}candidates needs seeding = "{SEEDINGS[0]}"; leave candidates out or change seeding')
    _check_split(job, place)
    if job.ids == "linked" and job.membership != "private":
        raise ConfigError(f'{place}ids = "linked" needs membership = "private"; leave ids out or change membership')
    if job.centers != AUDIENCES[0] and job.membership == "private":
        raise ConfigError(
            f'{place}centers = "{job.centers}" needs membership = "public": where nobody knows whose rows are in a cluster,'
            " nobody can tell a cluster of many sites from one row among a colluder's; leave centers out"
        )


def _check_split(job: Job, place: str) -> None:
    """Columns that are split over the clients have one holder each, and rows find each other by linked IDs."""
    named = [one.name for one in job.agreed if one.holder]
    if job.split != "columns":
        if named:
            raise ConfigError(f'{place}features: {toml.show(named[0])} has a holder, which needs split = "columns"')
        return
    example = 'as in age = { holder = "clinic" }'
    if lacking := [one.name for one in job.agreed if not one.holder]:
        raise ConfigError(f"{place}features: nobody holds {toml.show(lacking[0])}; name its one holder, {example}")
    if not job.agreed:
        raise ConfigError(
            f'{place}split = "columns" needs a table of features that names the holder of each, {example}'
        )
    if len(job.holders) < 2:
        raise ConfigError(f'{place}split = "columns", but {job.holders[0]} holds all features; leave split out')
    if job.scale not in ("none", "range"):  # sums over all sites would be one holder's own
        raise ConfigError(
            f'{place}scale = "{job.scale}" would tell everybody the mean and deviation of columns that one client holds; with'
            ' split = "columns" use ranges, or let each holder scale its columns before it takes part'
        )
    if (job.membership, job.ids) != ("private", "linked"):
        raise ConfigError(f'{place}split = "columns" needs membership = "private" and ids = "linked"; leave both out')
