"""The job: what a federation computes. Who takes part, and under which guarantees, is `federation`'s.

A job comes from the [job] table of `federation.toml`, or from a file of its own with the same keys. It becomes one frozen
`Job`, validated once, here. `Job.digest()` is part of what all parties compare when they join (`Federation.agreed()`).
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from secfc.agreement import toml
from secfc.errors import ConfigError
from secfc.kmeans.candidates import MOST_CANDIDATES, candidates_per_seed

SEEDINGS = ("k-means++", "random", "separation")
MEMBERSHIPS = ("public", "private")
IDS = ("fresh", "linked")
AUDIENCES = ("nobody", "clients", "server")  # who may see the final centres; each includes the ones before
SMALLEST = 11  # fewer rows than this are a small cell, by the norm for health data
MOST_ROUNDS = 300

KEYS = (
    *("k", "features", "bound", "precision", "max_rows", "max_rounds", "seeding", "candidates", "segments"),
    *("membership", "ids", "centers", "centers_smallest", "seed"),
)


@dataclass(frozen=True)
class Job:
    """What is computed. Made by `parse` or `load`, which validate; names and defaults are the file's."""

    k: int
    features: int
    bound: float
    precision: int
    max_rows: int
    feature_names: tuple[str, ...] | None = None
    max_rounds: int = MOST_ROUNDS  # of Lloyd
    seeding: str = SEEDINGS[0]
    candidates: int | None = None  # of each seed of k-means++; without it 2 + ⌊ln k⌋
    segments: int | None = None  # ℓ; without it the plan takes the largest that fits
    membership: str = MEMBERSHIPS[0]
    ids: str = IDS[0]  # how rows are named where membership is private
    centers: str = AUDIENCES[0]  # who may see the final centres: nobody, the clients, or the server as well
    centers_smallest: int = SMALLEST  # rows of a cluster, beside those of the t sites with most, to open its centre
    seed: str | None = None  # fixes the start, to repeat a run; without it the clients toss coins

    @property
    def seed_candidates(self) -> int:
        """How many rows each seed is chosen from."""
        return candidates_per_seed(self.k, self.seeding, self.candidates)

    def digest(self) -> bytes:
        """SHA-256 of the content: spacing, comments and key order do not matter."""
        canonical = json.dumps(dataclasses.asdict(self), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode("ascii")).digest()


def load(path: str | Path) -> Job:
    """Read and validate a job file."""
    return parse(toml.read_text(path), str(path))


def parse(source: str | Mapping[str, object], where: str, place: str = "") -> Job:
    """Validate a job file's text, or a table that was read before; `where` and `place` name file and table in errors."""
    raw = toml.read_toml(source, where) if isinstance(source, str) else source
    table = toml.Table(raw, where, place, KEYS)
    features, feature_names = _features(table)
    job = Job(
        k=table.integer("k", 1),
        features=features,
        feature_names=feature_names,
        bound=table.positive("bound"),
        precision=table.integer("precision", -60, 60),
        max_rows=table.integer("max_rows", 1),
        max_rounds=table.integer("max_rounds", 1, default=MOST_ROUNDS),
        seeding=table.choice("seeding", SEEDINGS),
        candidates=table.integer("candidates", 1, MOST_CANDIDATES) if "candidates" in raw else None,
        segments=table.integer("segments", 1) if "segments" in raw else None,
        membership=table.choice("membership", MEMBERSHIPS),
        ids=table.choice("ids", IDS),
        centers=table.choice("centers", AUDIENCES),
        centers_smallest=table.integer("centers_smallest", 1, default=SMALLEST),
        seed=table.words("seed") if "seed" in raw else None,
    )
    _check_together(job, f"{where}: {place}")
    return job


def dumps(job: Job) -> str:
    """TOML text that `parse` reads back as an equal value."""
    fields = dataclasses.asdict(job) | {"features": job.feature_names or job.features}
    return "\n".join(toml.lines(fields, KEYS)) + "\n"


def _features(table: toml.Table) -> tuple[int, tuple[str, ...] | None]:
    """How many features, and their names if the file gives names rather than a count."""
    if not isinstance(table.get("features"), list):
        return table.integer("features", 1), None
    names = table.strings("features")
    if not names:
        table.fail("features", "is an empty list; name at least one feature, or give their number")
    return len(names), names


def _check_together(job: Job, place: str) -> None:
    if job.candidates is not None and job.seeding != SEEDINGS[0]:
        raise ConfigError(f'{place}candidates needs seeding = "{SEEDINGS[0]}"; leave candidates out or change seeding')
    if job.ids == "linked" and job.membership != "private":
        raise ConfigError(f'{place}ids = "linked" needs membership = "private"; leave ids out or change membership')
    if job.centers != AUDIENCES[0] and job.membership == "private":
        raise ConfigError(
            f'{place}centers = "{job.centers}" needs membership = "public": where nobody knows whose rows are in a cluster,'
            " nobody can tell a cluster of many sites from one row among a colluder's; leave centers out"
        )
