"""The tables that `secfc demo` ends with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from secfc_client.commands.demonstration import outcome

KNOWN = {"silhouette": 0.5432, "calinski_harabasz": 210.7, "davies_bouldin": 0.9737}


def run(k: int) -> dict[str, Any]:
    return {"k": k, "start": 0, "rounds": 12, "inertia": 119810.1, "indices": KNOWN}


def test_they_fit_80_columns_and_need_no_colour(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    found = {
        **{"clients": 25, "relay": "only", "rows": 1_000_000, "features": 784, "privacy": 12, "uploads": "sealed"},
        **{"split": "rows", "membership": "private", "rounds": 300, "converged": False, "inertia": 1.234567e9},
        "cluster_sizes": [100_000] * 10,
        "identical_to_central": True,
        "accuracy": 0.5,
        "centers": {"opened": 10, "exact": True},
        "seconds": dict.fromkeys(
            ("joining", "agreeing", "scaling", "union", "sharing", "checking", "rounds"), 123.4567
        ),
        "bytes": {"per_client_link": 1 << 30, "client_to_server": 1 << 40},
        "runs": [run(3), run(10)],
        "best_runs": [0, 1],
        "chosen_run": 1,
    }
    outcome.show(found, Path("/somewhere/far/away") / ("x" * 60 + ".png"), None)
    told = capsys.readouterr().out
    assert max(map(len, told.splitlines())) <= 80
    assert "\x1b[3" not in told.replace("\x1b[3m", "")  # slanted titles may be; colours may not
    for words in ("identical to central Lloyd", "yes", "*10", "stopped before it converged"):
        assert words in told
