"""`result.json`: what a job found and what it cost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from secfc import identifiers, textfile
from secfc_server.coordinator import Coordinator, Phase

FILE = "result.json"
KEPT = "result.finished.json"  # of the last job that was finished, if a later one was not
PUBLISHED = "published.csv"


def describe(coordinator: Coordinator, wire_seconds: float) -> dict[str, Any]:
    """The result, or the failure, as plain values."""
    names = coordinator.federation.roster
    rounds = coordinator.rounds
    records = rounds.records if rounds else []
    clustering = rounds.clustering if rounds and not rounds.busy else None
    members, coins = coordinator.members, coordinator.coins
    leakage = rounds.leakage if rounds else None
    held = {name: member.held for name, member in members.items() if member.held}
    return {
        "federation": coordinator.federation.name,
        "federation_digest": coordinator.federation.digest().hex(),
        "state": coordinator.phase.value,
        "reason": str(coordinator.failure) if coordinator.failure else None,
        "clients": len(names),
        "rows": coordinator.rows,
        "k": coordinator.federation.k,
        "privacy": coordinator.plan.wishes.privacy,
        "segments": coordinator.plan.segments,
        "responders": coordinator.plan.responders,
        "lanes": coordinator.plan.field.lanes,
        "uploads": coordinator.plan.wishes.uploads,
        "membership": coordinator.plan.wishes.membership,
        "seed": coins.seed.hex() if coins else None,  # of the start: with it anybody can repeat the job centrally
        "liars": list(coordinator.liars),
        "rounds": clustering.rounds if clustering else 0,
        "converged": clustering.converged if clustering else False,
        "inertia": records[-1].inertia if records else None,
        "cluster_sizes": clustering.sizes.tolist() if clustering else None,
        "directions_given_away": {"count": leakage.count, "of": leakage.total} if leakage else None,
        "seconds": coordinator.phase_seconds | {"total": wire_seconds},
        "bytes": {
            "sharing_sent": {name: report.sent_bytes for name, report in held.items()},
            "sharing_received": {name: report.received_bytes for name, report in held.items()},
            "uploaded": {name: member.uploaded_bytes for name, member in members.items()},
        },
        "sharing_seconds": {name: report.seconds for name, report in held.items()},
        "labels_written": [name for name, member in members.items() if member.done],
        "history": [
            {
                "request": record.number,
                "step": record.step,
                "attempts": record.attempts,
                "responders": [names[j] for j in record.responders],
                "columns": record.columns,
                "directions": record.directions,
                "changed": record.changed,
                "inertia": record.inertia,
                "seconds": round(record.seconds, 6),
                "compute_seconds": round(record.compute_seconds, 6),
                "transport_seconds": round(record.transport_seconds, 6),
                "waiting_seconds": round(record.waiting_seconds, 6),
                "decode_seconds": round(record.decode_seconds, 6),
                "upload_bytes": record.upload_bytes,
            }
            for record in records
        ],
    }


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


def write_published(path: Path, coordinator: Coordinator) -> list[str]:
    """The rows that clients said to be their own: client, ID, cluster. Returns whose; no file if nobody's."""
    names = [name for name, member in coordinator.members.items() if member.published is not None]
    if not names or coordinator.alignment is None or coordinator.phase is not Phase.FINISHED:
        return []
    lines = ["client,id,cluster"]
    for name in names:
        ids = coordinator.members[name].published
        if ids is not None:
            labels = coordinator.alignment.labels(ids, coordinator.labels()).tolist()
            lines += [f"{name},{text},{label}" for text, label in zip(identifiers.texts(ids), labels, strict=True)]
    textfile.write(path, "\n".join(lines) + "\n", "choose another --out")
    return names
