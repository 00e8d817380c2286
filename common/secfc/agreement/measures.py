"""How rows are measured: what the job's file says about features, their scale and what becomes of missing values, and the
bound and precision that follow where it does not say them."""

from __future__ import annotations

from secfc.agreement import features as agreements
from secfc.agreement import toml
from secfc.agreement.features import CLIP, MISSING, SCALES, Feature

BITS = 16  # of a value below its bound, where precision is left out; fewer if the field would be large
FIELD_BITS = 84  # of four lanes
LEAST_BITS = 10


def features(table: toml.Table) -> tuple[int, tuple[str, ...] | None, tuple[Feature, ...]]:
    """How many columns there are, their names if the file gives more than a count, and what it says about each feature."""
    given = table.get("features")
    if isinstance(given, dict):
        agreed = agreements.parse(given, table.where, table.place)
        names = tuple(column for one in agreed for column in one.columns)
        if twice := toml.first_repeated(names):
            table.fail("features", f"two columns would be called {toml.show(twice)}; rename a feature or a level")
    elif isinstance(given, list):
        names, agreed = table.strings("features"), ()
    else:
        return table.integer("features", 1), None, ()
    if not names:
        table.fail("features", "is empty; name at least one feature, or give their number")
    return len(names), names, agreed


def scale(table: toml.Table, agreed: tuple[Feature, ...]) -> str:
    """With a range for every number, they are scaled by it unless the file says otherwise."""
    lacking = [one.name for one in agreed if not one.range and not one.levels]
    if "scale" not in table.raw:
        return "range" if agreed and not lacking else SCALES[0]
    scale = table.choice("scale", SCALES)
    if scale == "range" and (lacking or not agreed):
        what = f"none is given for {toml.show(lacking[0])}" if lacking else "only names are given"
        table.fail("scale", f'"range" needs a range for every feature, as in age = {{ range = [0, 120] }}; {what}')
    return scale


def clip(table: toml.Table, scale: str) -> float | None:
    """In deviations; without one, a value beyond a bound that the file sets is an error."""
    if "clip" in table.raw:
        clip = table.positive("clip")
        if scale != "standard":
            table.fail("clip", 'is in deviations and needs scale = "standard"; leave it out')
        if clip < 1:
            table.fail("clip", f"must be at least 1, not {clip:g}")
        return clip
    return CLIP if scale == "standard" and "bound" not in table.raw else None


def missing(table: toml.Table, scale: str, agreed: tuple[Feature, ...]) -> str:
    missing = table.choice("missing", MISSING)
    ranges = bool(agreed) and all(one.range or one.levels for one in agreed)
    if missing == "mean" and not ranges and scale != "standard":
        what = '"mean" needs a range for every feature, whose middle stands for what is missing, or scale = "standard"'
        table.fail("missing", what)
    return missing


def bound(table: toml.Table, scale: str, agreed: tuple[Feature, ...]) -> float:
    """What follows from the ranges."""
    largest = [one.largest(scale) for one in agreed]
    known = [value for value in largest if value is not None]
    if not known or len(known) < len(largest):
        what = (
            'is missing; add the largest |x| there can be, give every feature a range, or agree on scale = "standard"'
        )
        table.fail("bound", f"{what} (all sites then learn each feature's mean and deviation over all of them)")
    return max(known)


def precision(bound: float, rows: int, features: int) -> int:
    """As many fractional bits as make 2^16 steps of the bound, or fewer if m²·d·(2η)² would need a field of five lanes."""
    from secfc.kmeans import fixedpoint  # loads numpy, which most commands can do without

    most = (FIELD_BITS - 1 - (rows**2 * features).bit_length()) // 2 - 1
    return min(max(fixedpoint.precision_for(bound, max(min(BITS, most), LEAST_BITS)), -60), 60)
