"""What must hold whatever the machine: claims about results, none about time. `all` checks them; CI runs it with --quick."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import sqrt
from typing import Any

Row = dict[str, Any]


@dataclass(frozen=True)
class Verdict:
    """A claim, whether it holds, and in how many cases it was looked at."""

    claim: str
    holds: bool
    cases: int


def check(results: Mapping[str, Row]) -> list[Verdict]:
    """Every claim that the results at hand can be held to; one without a single case does not hold."""
    verdicts = []
    for name, result in results.items():
        for claim, cases in CLAIMS.get(name, {}).items():
            found = cases(result["rows"])
            verdicts.append(Verdict(f"{name}: {claim}", bool(found) and all(found), len(found)))
    return verdicts


def _equal(rows: list[Row]) -> list[bool]:
    return [one for row in rows if row["method"] in ("secfc", "secfc10") for one in row["equal"]]


def _same_for_every_most(rows: list[Row]) -> list[bool]:
    own = [row for row in rows if row["method"] == "secfc"]
    first = {row["setting"]: row["accuracies"] for row in reversed(own)}
    return [row["accuracies"] == first[row["setting"]] for row in own]


def _kfed_where_proven(rows: list[Row]) -> list[bool]:
    return [row["mean"] >= 90.0 for row in rows if row["method"] == "kfed" and row["most"] <= sqrt(row["k"])]


def _upload_of_n(rows: list[Row]) -> list[bool]:
    return _same([row["upload_bytes"] for row in rows if row["sweep"] == "n"])


def _upload_of_m(rows: list[Row]) -> list[bool]:
    return _same([round(row["upload_bytes"] / row["m"]) for row in rows if row["sweep"] == "m"])


def _same(values: list[Any]) -> list[bool]:
    return [value == values[0] for value in values]


def _peers_exact(rows: list[Row]) -> list[bool]:
    exact = ("SecFC open", "SecFC masked", "MPyC")
    return [row["differ"] == 0 for row in rows if row["peer"] in exact and row["seconds"] is not None]


def _skipped_say_why(rows: list[Row]) -> list[bool]:
    return [row["seconds"] is not None or bool(row["left_out"]) for row in rows]


def _authors_beat_chance(rows: list[Row]) -> list[bool]:
    by = {(row["variant"], row["sigma"], row["k"], row["most"]): row["mean"] for row in rows}
    return [
        mean > by["chance", *rest]
        for (name, *rest), mean in by.items()
        if name == "as its authors have it" and rest[0] == 1
    ]


def _as_good(rows: list[Row]) -> list[bool]:
    """Equal means of equal clusterings may differ in the last digits."""
    return [row["ratio"] <= 1 + 1e-6 for row in rows]


_TABLE: dict[str, Callable[[list[Row]], list[bool]]] = {
    "SecFC's labels equal central Lloyd's in every cell": _equal,
    "SecFC's accuracy does not depend on k′": _same_for_every_most,
}
CLAIMS: dict[str, dict[str, Callable[[list[Row]], list[bool]]]] = {
    "table1": _TABLE | {"k-FED is good where its authors prove it (k′ ≤ √k)": _kfed_where_proven},
    "table2": _TABLE,
    "table3": _TABLE,
    "figure1": {
        "an upload is as large for any number of clients": _upload_of_n,
        "an upload grows in proportion to m": _upload_of_m,
    },
    "kfed": {"k-FED as its authors have it is better than chance at σ = 1": _authors_beat_chance},
    "quality": {"mean inertia with default settings is at most that of scikit-learn's KMeans()": _as_good},
    "peers": {
        "SecFC and MPyC give exactly Lloyd's labels": _peers_exact,
        "a peer that is left out says why": _skipped_say_why,
    },
}
