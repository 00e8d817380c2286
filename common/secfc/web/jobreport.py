"""What `result.json` tells, as sections of a report: the same at the server and at a site that was given the file."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from secfc import textfile
from secfc.agreement.uploads import MEANING
from secfc.errors import ConfigError
from secfc.web import svg
from secfc.web.document import Document

_LARGEST = 64 << 20
_INDICES = {
    "silhouette": "Silhouette",
    "calinski_harabasz": "Calinski–Harabasz",
    "davies_bouldin": "Davies–Bouldin (smaller is better)",
}
Result = Mapping[str, Any]


def load(path: Path, digest: str | None = None) -> Result:
    """A server's result.json; with `digest`, of that federation. Raises ConfigError for anything else."""
    return read(textfile.read_small_file(path, _LARGEST), str(path), digest)


def read(content: bytes, where: str, digest: str | None = None) -> Result:
    """The same of its content; `where` names it in errors."""
    try:
        found = json.loads(content)
        state, named = found["state"], found["federation_digest"]
        sections(Document("trial"), found)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError, OverflowError):
        raise ConfigError(f"{where}: not a result.json that secfc-server has written") from None
    if state != "finished":
        raise ConfigError(f"{where}: the job is {str(state)[:40]!a}; only finished jobs have a report")
    if digest is not None and named != digest:
        raise ConfigError(f"{where}: the result of another federation or job than the kit's")
    return found if isinstance(found, dict) else {}


def sections(document: Document, result: Result) -> None:
    """How the job ended, how it got there, and what it has shown."""
    chosen = result["runs"][result["chosen_run"]] if result["runs"] else None
    ended = f"{result['rounds']} rounds, {'converged' if result['converged'] else 'stopped before it converged'}"
    document.section("Result").facts(
        [
            ("rows of all sites", f"{result['rows']:,}"),
            ("clusters", f"{result['k']}" + (f" (start {chosen['start'] + 1})" if chosen else "")),
            ("ended after", ended),
            ("inertia", number(result["inertia"])),
            ("time", ", ".join(f"{name} {seconds:.3g} s" for name, seconds in result["seconds"].items())),
        ]
    )
    sizes = result["cluster_sizes"] or []
    if sizes:
        document.section("Rows per cluster, all sites")
        document.raw(
            svg.bars(
                "Rows per cluster", sizes, [str(h) for h in range(len(sizes))], f"{max(sizes):,} rows in the largest"
            )
        )
        document.table(["Cluster", "Rows"], [(str(h), f"{size:,}") for h, size in enumerate(sizes)])
    _course(document, result["history"])
    if len(result["runs"]) > 1:
        _runs(document, result)
    _learnt(document, result)


def _course(document: Document, history: Sequence[Mapping[str, Any]]) -> None:
    known = [(one["request"], one["inertia"]) for one in history if one["inertia"] is not None]
    moved = [(one["request"], one["changed"]) for one in history if one["step"] != "seed"]
    if not history:
        return
    document.section("Request by request")
    if len(known) > 1:
        document.raw(
            svg.lines("Inertia per request", [known], f"inertia, from {number(known[0][1])} to {number(known[-1][1])}")
        )
    if moved:
        names = [str(request) for request, _ in moved]
        document.raw(svg.bars("Rows moved per request", [c for _, c in moved], names, "rows that moved, by request"))
    rows = [
        (f"{one['request']}", str(one["step"]), f"{one['changed']:,}", number(one["inertia"]), f"{one['seconds']:.3g}")
        for one in history
    ]
    document.table(["Request", "Step", "Rows moved", "Inertia", "Seconds"], rows)


def _runs(document: Document, result: Result) -> None:
    runs, best = result["runs"], [result["runs"][number] for number in result["best_runs"]]
    known = [name for name in _INDICES if any(run["indices"][name] is not None for run in runs)]
    document.section("Starts and numbers of clusters")
    if len(best) > 1:
        curves = [("inertia", "Inertia")] + [(name, _INDICES[name]) for name in known]
        drawn = [
            (title, sorted((run["k"], v) for run in best if (v := value(run, name)) is not None))
            for name, title in curves
        ]
        charts = [
            svg.lines(f"{title} against k", [points], f"{title}, against k")
            for title, points in drawn
            if len(points) > 1
        ]
        document.raw(f'<div class="charts">{"".join(charts)}</div>')
    heads = ["k", "Start", "Rounds", "Inertia", *(_INDICES[name] for name in known), ""]
    rows = []
    for at, run in enumerate(runs):
        fate = "taken" if at == result["chosen_run"] else "best of its k" if at in result["best_runs"] else ""
        indices = [number(value(run, name)) for name in known]
        rows.append([f"{run['k']}", f"{run['start'] + 1}", f"{run['rounds']}", number(run["inertia"]), *indices, fate])
    document.table(heads, rows)


def value(run: Mapping[str, Any], name: str) -> float | None:
    """The inertia or an index of a run."""
    found: float | None = run["inertia"] if name == "inertia" else run["indices"][name]
    return found


def _whose(result: Result) -> tuple[str, str]:
    if result.get("split") == "columns":
        return "columns", f"split over {', '.join(map(str, result['holders']))}, which all have these rows"
    return "whose row is whose", "hidden" if result["membership"] == "private" else "known to all parties"


def _learnt(document: Document, result: Result) -> None:
    directions = result["directions_given_away"] or {"count": 0, "of": 0}
    document.section("What the server has learnt").paragraph(MEANING[result["uploads"]])
    document.facts(
        [
            ("directions of distances", f"{directions['count']} of {directions['of']}"),
            ("assignments of all rows", number(result["assignments_given_away"])),
            ("inertias opened", number(result["inertias_opened"])),
            _whose(result),
            ("t, clients that may collude", f"{result['privacy']} of {result['clients']}"),
        ]
        + ([("committee", ", ".join(map(str, result["committee"])))] if result["committee"] else [])
        + ([("liars", ", ".join(map(str, result["liars"])))] if result["liars"] else [])
    )


def number(found: float | None) -> str:
    """For people."""
    if found is None or not math.isfinite(found):
        return "–"
    return f"{found:,}" if isinstance(found, int) else f"{found:.6g}"
