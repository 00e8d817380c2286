"""A job of 200,000 rows × 50 features: default message sizes suffice, and memory and bytes are what the plan says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from secfc import local
from secfc.agreement import costs, plan
from secfc.local import Local
from secfc.protocol import transfer
from tests.integration import helpers

ROWS, FEATURES, CLIENTS, CLUSTERS, ROUNDS = 200_000, 50, 5, 8, 3
MEMORY_FACTOR = 1.5  # measured / planned may not exceed this
MIB = 1 << 20


def peak(pid: int) -> int:
    """The most memory a process has ever held, in bytes; 0 if it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM:")), 0)


def measure(site: Local, seconds: float) -> dict[str, int]:
    """Run to the end; the largest memory seen of each party."""
    seen = dict.fromkeys(("server", *site.federation.roster), 0)

    def look() -> None:
        for party, process in site.processes.items():
            seen[party] = max(seen[party], peak(process.pid))

    with local.running(site):
        site.wait(seconds, look)
    return seen


@pytest.mark.slow
@pytest.mark.alone
def test_memory_and_bytes_are_as_planned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values = helpers.mixture(ROWS, FEATURES, CLUSTERS)
    parts = helpers.split(values, [ROWS // CLIENTS] * CLIENTS)
    made = helpers.describe(parts, CLUSTERS, max_rounds=ROUNDS, precision=6)
    site = helpers.prepared(tmp_path, parts, made)
    seen = measure(site, 300)
    helpers.check_labels(site, parts)
    result, cost, agreed = site.result(), costs.of(plan.of(made)), plan.of(made)
    client = max(seen[name] for name in made.roster)
    with capsys.disabled():
        print(f"\nm={ROWS} d={FEATURES} k={CLUSTERS} n={CLIENTS} t=1 l={agreed.segments} lanes={agreed.field.lanes}")  # noqa: T201
        for name, measured, planned in (
            ("client", client, cost["client_process_bytes"]),
            ("server", seen["server"], cost["server_process_bytes"]),
        ):
            print(f"{name}: peak {measured / MIB:.0f} MiB, planned {planned / MIB:.0f} MiB, x {measured / planned:.2f}")  # noqa: T201
        print(f"seconds: { {phase: round(value, 1) for phase, value in result['seconds'].items()} }")  # noqa: T201
        print(f"bytes: {result['bytes']}")  # noqa: T201
    check_bytes(result, agreed)
    assert client <= MEMORY_FACTOR * cost["client_process_bytes"]
    assert seen["server"] <= MEMORY_FACTOR * cost["server_process_bytes"]


def check_bytes(result: dict[str, Any], agreed: plan.Plan) -> None:
    """Sharing: m_j·⌈d/ℓ⌉ residues a lane to each other client. A round: at most m·k residues a lane from each responder."""
    cost = costs.of(agreed)
    assert set(result["bytes"]["sharing_sent"].values()) == {cost["sharing_bytes_per_client"]}
    assert cost["sharing_bytes_per_client"] > 4 * transfer.PIECE_BYTES  # beyond gRPC's limit for one message
    per_residue = 8 / 3
    owned, length, lanes = ROWS // CLIENTS, -(-FEATURES // agreed.segments), agreed.field.lanes
    assert cost["sharing_bytes_per_client"] == pytest.approx(
        (CLIENTS - 1) * owned * length * lanes * per_residue, rel=1e-3
    )
    for step in result["history"]:
        each = step["upload_bytes"] / len(step["responders"])
        assert each <= step["columns"] * ROWS * lanes * per_residue + 8
        assert each <= cost["round_bytes_per_client"]
    full = [step for step in result["history"] if step["step"] == "lloyd" and step["columns"] == CLUSTERS]
    assert full
    assert full[0]["upload_bytes"] / len(full[0]["responders"]) > transfer.PIECE_BYTES
    each_client = {name: sum(step["upload_bytes"] // agreed.responders for step in result["history"]) for name in
                   result["bytes"]["uploaded"]}  # fmt: skip
    assert result["bytes"]["uploaded"] == each_client  # R = n: everybody answers every time
