"""`python -m experiments`: what it prints can be read by machines. Timings never decide a test."""

from __future__ import annotations

import csv
import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.scale import FIGURES, exponent

ROOT = Path(__file__).parents[2]
SPEED_KEYS = {
    *("m", "d", "k", "n", "t", "segments", "lanes"),
    *("sklearn_iteration_s", "client_round_s", "client_first_round_s", "server_s", "server_after_last_s"),
    *("client_round_ratio", "server_ratio", "server_after_last_ratio", "server_open_ratio", "mask_over_aes"),
    *("sharing_s_per_row", "client_memory_bytes", "client_memory_planned_bytes"),
}


def experiments(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "experiments", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_help_names_the_experiments() -> None:
    done = experiments("--help")
    assert done.returncode == 0
    assert "speed" in done.stdout


def test_an_unknown_experiment_is_refused() -> None:
    done = experiments("spede")
    assert done.returncode == 2
    assert done.stdout == ""


@pytest.mark.slow
def test_quick_speed_gives_every_figure(tmp_path: Path) -> None:
    done = experiments("speed", "--quick", "--json", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert [(row["m"], row["d"], row["k"]) for row in rows] == [(1000, 20, 4), (10000, 100, 4)]
    for row in rows:
        assert row.keys() >= SPEED_KEYS
        for name in SPEED_KEYS:
            assert math.isfinite(row[name])
            assert row[name] > 0, name
    assert rows[0]["galois_ratio"] > 0
    assert json.loads((tmp_path / "speed.json").read_text()) == rows
    with (tmp_path / "speed.csv").open(newline="") as file:
        assert [row["m"] for row in csv.DictReader(file)] == ["1000", "10000"]


def test_an_exponent_is_fitted_over_the_larger_half() -> None:
    assert exponent([10, 100, 1000, 10_000], [50.0, 60.0, 1e6, 1e8]) == pytest.approx(3.11, abs=0.01)
    assert exponent([1, 2, 4], [1.0, 4.0, 16.0]) == pytest.approx(2.0)
    assert exponent([5], [1.0]) is None
    assert exponent([5, 6], [0.0, 0.0]) is None


@pytest.mark.slow
def test_growth_with_rows_and_clients(tmp_path: Path) -> None:
    done = experiments("scale", "--rows", "300,3000", "--clients", "3", "--json", "--plot", str(tmp_path / "scale.png"))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    few, many = found["series"]["rows"]
    assert many["client_sent_mb"] == pytest.approx(10 * few["client_sent_mb"], rel=0.01)
    assert all(row[name] > 0 for row in (few, many) for name in FIGURES)
    assert 1.0 <= found["exponents"]["rows"]["client_upload_mb"] < 1.3, "larger sums take more lanes"
    assert (tmp_path / "scale.png").stat().st_size > 1000
