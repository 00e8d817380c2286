"""`result.json`: what a job found and what it cost."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from secfc import textfile
from secfc.privacy import identifiers
from secfc.protocol.server.asking import RequestRecord
from secfc.protocol.server.phases.finished import Finished
from secfc.protocol.server.snapshot import Snapshot

FILE = "result.json"
KEPT = "result.finished.json"  # of the last job that was finished, if a later one was not
PUBLISHED = "published.csv"


def describe(now: Snapshot, wire_seconds: float, clusters: str | None = None) -> dict[str, Any]:
    """The result, or the failure, as plain values. `clusters`: their name, if rows can be assigned to them later."""
    federation, plan, outcome = now.federation, now.plan, now.outcome
    held = {client.name: client.held for client in now.clients if client.held}
    return {
        "federation": federation.name,
        "federation_digest": federation.agreed().hex(),
        "kind": federation.job.kind,
        "assigned_from": federation.job.source or None,  # the clusters of an earlier job
        "clusters": clusters,
        "state": now.phase.value,
        "reason": str(now.failure) if now.failure else None,
        "clients": len(now.clients),
        "rows": now.rows,
        "k": outcome.clusters if outcome else federation.job.k,
        "privacy": plan.wishes.privacy,
        "segments": plan.segments,
        "responders": plan.responders,
        "lanes": plan.field.lanes,
        "uploads": plan.wishes.uploads,
        "membership": plan.wishes.membership,
        "split": federation.job.split,
        "holders": list(federation.holders),  # among whom columns are split
        "seed": now.seed.hex() if now.seed else None,  # of the start: with it anybody can repeat the job centrally
        "liars": list(now.liars),
        "committee": list(outcome.committee) if outcome else [],  # who compared last, in sealed rounds
        "rounds": outcome.rounds if outcome else 0,
        "converged": outcome.converged if outcome else False,
        "inertia": outcome.inertia if outcome else None,
        "cluster_sizes": outcome.sizes if outcome else None,
        "runs": [asdict(run) for run in outcome.runs] if outcome else [],
        "best_runs": list(outcome.best) if outcome else [],  # of every k
        "chosen_run": outcome.chosen if outcome else None,  # what `k`, `rounds`, `inertia` and so on are of
        "directions_given_away": {"count": outcome.directions, "of": outcome.of_directions} if outcome else None,
        "assignments_given_away": outcome.given.assignments if outcome else None,
        "inertias_opened": outcome.given.inertias if outcome else None,
        "seconds": {**now.phase_seconds, "total": wire_seconds},
        "bytes": {
            "sharing_sent": {name: report.sent_bytes for name, report in held.items()},
            "sharing_received": {name: report.received_bytes for name, report in held.items()},
            "uploaded": {client.name: client.uploaded_bytes for client in now.clients},
            "dealt": {client.name: client.told_bytes for client in now.clients},  # to members, in sealed rounds
        },
        "sharing_seconds": {name: report.seconds for name, report in held.items()},
        "labels_written": [client.name for client in now.clients if client.done],
        "pairs_asked": sum(record.pairs_asked for record in now.records),  # distances, by each responder
        "pairs": sum(record.pairs for record in now.records),  # the same, had nothing been left out (`prune`)
        "history": [_request(record, federation.roster) for record in now.records],
    }


def _request(record: RequestRecord, names: tuple[str, ...]) -> dict[str, Any]:
    fields = asdict(record)
    rounded = {key: round(value, 6) for key, value in fields.items() if key.endswith("seconds")}
    responders = [names[j] for j in record.responders]
    return {"request": fields.pop("number")} | fields | rounded | {"responders": responders}


def write(path: Path, result: dict[str, Any]) -> None:
    """Write the result. That of an earlier job that was finished is kept beside it if this job was not."""
    if result["state"] != "finished" and _finished(path):
        textfile.rename(path, path.with_name(KEPT), "choose another --out")
    textfile.write(path, json.dumps(result, indent=2) + "\n", "choose another --out")


def _finished(path: Path) -> bool:
    """Whether a file is there, no link to one, with the result of a finished job."""
    try:
        return not path.is_symlink() and json.loads(path.read_bytes())["state"] == "finished"
    except (OSError, ValueError, KeyError, TypeError):
        return False


def write_published(path: Path, ending: Finished | None) -> list[str]:
    """The rows that clients said to be their own: client, ID, cluster. Returns whose; no file if nobody's."""
    if ending is None or ending.union is None or not ending.published:
        return []
    lines = ["client,id,cluster"]
    for name in sorted(ending.published, key=ending.job.index):
        ids = ending.published[name]
        labels = ending.union.labels(ids, ending.labels).tolist()
        lines += [f"{name},{text},{label}" for text, label in zip(identifiers.texts(ids), labels, strict=True)]
    textfile.write(path, "\n".join(lines) + "\n", "choose another --out")
    return sorted(ending.published, key=ending.job.index)
