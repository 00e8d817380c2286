"""What a job agrees on about each feature, before anybody looks at rows: its range, its levels, and so how it is scaled.

A feature is a column of every site's file. A numeric one is one column of what is clustered; one with `levels` is a column of
zeros and ones per level (one-hot), so that two rows of different levels are √2 apart. With `log` a value's natural logarithm
stands for it in all that follows, under the name log(NAME). Where columns are split over the
clients, a feature also names the one client that holds it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from secfc.agreement import toml

SCALES = ("none", "range", "standard")
CLIP = 6.0  # deviations, where scale is "standard" and the file says neither clip nor bound
MISSING = ("error", "drop", "mean")
MOST_LEVELS = 1000
_KEYS = ("holder", "range", "log", "levels")


@dataclass(frozen=True)
class Feature:
    """A column by its name, and what is agreed about it."""

    name: str
    range: tuple[float, float] | None = None  # every value lies within it
    levels: tuple[str, ...] = ()  # the values of a category; none: a number
    holder: str = ""  # the client whose column it is, if columns are split over the clients
    log: bool = False  # of values that all are above 0, and spread over powers of ten

    @property
    def columns(self) -> tuple[str, ...]:
        """What is clustered of it."""
        return tuple(f"{self.name}={level}" for level in self.levels) or (
            f"log({self.name})" if self.log else self.name,
        )

    @property
    def ends(self) -> tuple[float, float] | None:
        """The range of what is clustered."""
        return (math.log(self.range[0]), math.log(self.range[1])) if self.log and self.range else self.range

    @property
    def middle(self) -> float:
        """Stands for a missing value."""
        if self.levels:
            return 1 / len(self.levels)
        low, high = self.ends or (0.0, 0.0)
        return low / 2 + high / 2

    def largest(self, scale: str) -> float | None:
        """The largest |x| there can be after scaling; None if nothing is agreed."""
        if self.levels or (scale == "range" and self.range):
            return 1.0
        return max(map(abs, self.ends)) if self.ends else None

    def spread(self, scale: str) -> tuple[float, float]:
        """(shift, unit): a value x is clustered as (x − shift) / unit."""
        if scale != "range" or self.ends is None:  # standard: known once all sites have added up their sums
            return 0.0, 1.0
        low, high = self.ends
        return self.middle, high / 2 - low / 2

    def plain(self) -> dict[str, object]:
        """As in the file."""
        fields: dict[str, object] = {"holder": self.holder, "range": self.range, "log": self.log, "levels": self.levels}
        return {key: value for key, value in fields.items() if value}


def parse(raw: Mapping[str, object], where: str, place: str) -> tuple[Feature, ...]:
    """The features of a table, in its order."""
    found = []
    for name, about in raw.items():
        outer = toml.Table({"name": [name], name: about}, where, f"{place}features: ", ("name", name))
        outer.strings("name")
        table = toml.Table(outer.table(name), where, f"{place}features: {toml.show(name)} ", _KEYS)
        found.append(Feature(name, _range(table), _levels(table), _holder(table), table.flag("log", False)))
        if found[-1].range and found[-1].levels:
            table.fail("range", "is for numbers, and this feature has levels; leave out one of them")
        if found[-1].log and found[-1].levels:
            table.fail("log", "is for numbers, and this feature has levels; leave out one of them")
        _check_log(table, found[-1])
    return tuple(found)


def _check_log(table: toml.Table, feature: Feature) -> None:
    if not feature.log or feature.range is None:
        return
    if feature.range[0] <= 0:
        table.fail("range", "must begin above 0 with log = true: nothing else has a logarithm")
    low, high = feature.ends or feature.range
    if not low < high:
        table.fail("range", "has ends whose logarithms are alike; make it wider")


def _holder(table: toml.Table) -> str:
    if isinstance(table.raw.get("holder"), list):
        table.fail("holder", "must be one client, whose values are taken: those of several would be added up")
    return table.label("holder") if "holder" in table.raw else ""


def _range(table: toml.Table) -> tuple[float, float] | None:
    if "range" not in table.raw:
        return None
    value = table.get("range")
    ends = value if isinstance(value, list) and len(value) == 2 else [None, None]
    low, high = (float(end) if isinstance(end, int | float) and abs(end) < 1e300 else math.nan for end in ends)
    if any(isinstance(end, bool) for end in ends) or not low < high:
        table.fail("range", "must be two finite numbers, the lesser first, as in range = [0, 120]")
    return low, high


def _levels(table: toml.Table) -> tuple[str, ...]:
    if "levels" not in table.raw:
        return ()
    levels = table.strings("levels")
    if not 2 <= len(levels) <= MOST_LEVELS or any(level != level.strip() for level in levels):
        table.fail("levels", f"must be 2 to {MOST_LEVELS} texts without spaces around them")
    return levels
