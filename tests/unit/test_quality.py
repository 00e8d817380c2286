"""`python -m experiments quality`: default settings beside scikit-learn's, and beside Lloyd on floating-point numbers."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from experiments import quality, sections


def test_the_data_sets_that_are_compared() -> None:
    sizes = {
        name: (len(data.rows), data.rows.shape[1], data.k) for name, make in quality.SETS.items() if (data := make())
    }
    for name, size in {"iris": (150, 4, 3), "wine": (178, 13, 3), "breast cancer": (569, 30, 2)}.items():
        assert sizes[name] == sizes[f"{name}, standardised"] == sizes[f"{name}, scaled by the job"] == size
    assert sizes["digits"] == sizes["digits, standardised"] == (1797, 64, 10)
    assert sizes["diabetes, k = 8"] == (442, 10, 8)
    assert sizes["twelve blobs"] == (1200, 2, 12)


@pytest.mark.slow
def test_from_the_same_start_only_quantisation_differs(tmp_path: Path) -> None:
    raw, scaled = quality.measure(("iris", "iris, scaled by the job"), 2, 0, tmp_path)
    for row in (raw, scaled):
        assert row["rows unlike"] == 0.0
        assert row["inertia unlike"] == pytest.approx(0.0, abs=1e-9)
        assert row["ratio"] == row["secfc inertia"] / row["scikit-learn inertia"]
        assert row["secfc inertia"] >= row["secfc least"]
    result = {"asked": {"runs": 2, "seed": 0}, "rows": [raw, scaled], "machine": {"processor": "x", "cores": 1}}
    console = Console(width=200, record=True, quiet=True)
    console.print(quality.table(result))
    lines = sections.quality(result)
    assert lines[3].startswith("| iris, scaled by the job | 150 × 4, 3 | ")
    assert all(len(quality.cells_of(row)) == lines[0].count("|") - 1 for row in result["rows"])
    assert "Means over 2 seeds, 0 to 1." in lines[-2]
