"""The picture of `secfc demo --plot`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from secfc_client.commands.demonstration import plot


def run(k: int, inertia: float, silhouette: float | None) -> dict[str, Any]:
    return {
        "k": k,
        "inertia": inertia,
        "indices": dict.fromkeys(("silhouette", "calinski_harabasz", "davies_bouldin"), silhouette),
    }


def outcome(*runs: dict[str, Any], best: list[int], chosen: int) -> dict[str, Any]:
    lists = {"runs": list(runs), "best_runs": best, "history": [9.0, 7.0]}
    return {**lists, "chosen_run": chosen, "rounds": 5, "cluster_sizes": [3, 3]}


MASKED = outcome(run(3, 5.0, 0.5), run(3, 4.0, 0.6), run(2, 6.0, 0.7), run(1, 9.0, None), best=[1, 2, 3], chosen=2)
SEALED = outcome(run(3, 5.0, None), run(2, 6.0, None), best=[0, 1], chosen=0)
ONE = outcome(run(3, 5.0, None), best=[0], chosen=0)
STARTS = outcome(run(3, 5.0, None), run(3, 4.0, None), best=[1], chosen=1)


@pytest.mark.parametrize("shown", [MASKED, SEALED, ONE, STARTS])
def test_a_picture_is_written(tmp_path: Path, shown: dict[str, Any]) -> None:
    plot.draw(tmp_path / "p.png", np.arange(12.0).reshape(6, 2), np.array([0, 0, 0, 1, 1, 1]), shown)
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


def test_indices_are_drawn_against_k_where_the_server_knows_them() -> None:
    curves = plot._curves(MASKED)
    assert set(curves) == {"inertia", "silhouette", "calinski_harabasz", "davies_bouldin"}
    assert (curves["inertia"].along, curves["inertia"].values, curves["inertia"].taken) == ([1, 2, 3], [9, 6, 4], 2)
    assert math.isnan(curves["silhouette"].values[0])
    assert curves["silhouette"].values[1:] == [0.7, 0.6]
    assert list(plot._curves(SEALED)) == ["inertia"]
    assert plot._curves(ONE)["inertia"].along == [4, 5]  # Lloyd rounds
    assert plot._curves(STARTS)["inertia"].along == [1, 2]  # requests
