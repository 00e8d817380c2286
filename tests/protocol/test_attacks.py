"""docs/privacy.md in action: what the server, alone or with one client, gets out of what the real protocol transmits.

Open uploads are attacked successfully, masked ones are not, and what masked ones still tell is shown too.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from experiments import attacks, recovery
from experiments.transcript import Setting, Transcript, record

ROOT = Path(__file__).parents[2]
SETTINGS = {"Iris": attacks.iris, "20-d": lambda: attacks.mixture(20, 400, 4, 11, 2, 4)}
both = pytest.mark.parametrize("data", SETTINGS)


@cache
def transcript(data: str, uploads: str) -> Transcript:
    return record(SETTINGS[data](), uploads)


def small(**changes: object) -> Setting:
    """A mixture of 60 rows, 7 features; ℓ = 3 does not divide them."""
    return dataclasses.replace(attacks.mixture(7, 60, 3, 11, 3, 3), **changes)  # type: ignore[arg-type]


@both
def test_open_uploads_show_the_server_the_geometry_of_every_segment(data: str) -> None:
    """Attack (a): from φ(β_u), after ⌈d/ℓ⌉ directions, where the distances d′ alone do not determine it yet."""
    seen = transcript(data, "open")
    found = attacks.segments(seen)
    assert found.error < 1e-9
    assert found.directions == seen.plan.length < seen.plan.wishes.features


@both
def test_open_uploads_and_one_client_give_every_row_exactly(data: str) -> None:
    """Attack (b), although t = 2: linear algebra in each lane, from ⌈d/ℓ⌉ directions."""
    found = attacks.insider(transcript(data, "open"))
    assert found.exact == 1.0
    assert found.error == 0.0


@pytest.mark.parametrize(("clients", "privacy", "segments"), [(3, 1, 1), (11, 5, 1), (7, 1, 3), (11, 3, 3), (5, 1, 2)])
def test_no_t_protects_open_uploads(clients: int, privacy: int, segments: int) -> None:
    """Attack (b) whatever t and ℓ are, padded segments included."""
    seen = record(small(clients=clients, privacy=privacy, segments=segments), "open")
    assert attacks.insider(seen).exact == 1.0


@both
def test_masked_uploads_do_not_show_segments(data: str) -> None:
    """Attack (a) on masked uploads has the error of a guess, after the best rigid motion and scale."""
    seen = transcript(data, "masked")
    found = attacks.segments(seen)
    assert found.error > 0.85  # noise of 150 rows reaches this by chance once in 10⁸ runs
    assert attacks.guess(seen) > 0.95


@both
def test_masked_uploads_and_one_client_give_no_row(data: str) -> None:
    """Attack (b) on masked uploads, with the insider's own masks taken off: contradictions, no row, the error of a guess."""
    seen = transcript(data, "masked")
    assert recovery.rows_with_insider(seen).contradictions > 0
    found = attacks.insider(seen)
    assert found.exact == 0.0
    assert found.error > 0.85  # noise of 150 rows reaches this by chance once in 10⁸ runs
    assert attacks.guess(seen) > 0.95


@pytest.mark.parametrize("uploads", ["masked", "open"])
@both
def test_distances_give_the_geometry_exactly_when_the_meter_says_so(data: str, uploads: str) -> None:
    """Attack (c): the server alone, whatever the uploads; before d directions an error remains, with d there is none."""
    seen = transcript(data, uploads)
    steps = attacks.curve(seen)
    assert steps[-1].directions == seen.plan.wishes.features
    assert len(steps) >= 3
    assert all(earlier.error > later.error for earlier, later in itertools.pairwise(steps))
    assert [step.error < 1e-6 for step in steps] == [step.directions == seen.meter().total for step in steps]
    assert seen.meter().complete


@both
def test_known_rows_turn_geometry_into_rows(data: str) -> None:
    """Attack (e): masked uploads, d directions, and one client with more than d rows: all rows, to the last bit."""
    seen = transcript(data, "masked")
    assert len(seen.insider.own) > seen.plan.wishes.features
    assert attacks.own_rows(seen).exact == 1.0


def test_fewer_directions_than_features_keep_rows_apart() -> None:
    """One round of k = 3 in 20 dimensions: 2 directions, and own rows do not make up for the rest."""
    seen = record(dataclasses.replace(attacks.mixture(20, 400, 3, 5, 1, 1), max_rounds=1), "masked")
    assert seen.meter().text() == "geometry known: 2 of 20 directions"
    assert attacks.own_rows(seen).exact == 0.0
    assert attacks.distances(seen).error > 0.3


def test_jobs_on_the_same_shares_add_up() -> None:
    """Neither job tells the geometry, both together do, and the meter that is kept says so."""
    setting = dataclasses.replace(attacks.mixture(6, 60, 4, 3, 1, 1), max_rounds=1)
    seen = record(setting, "masked", jobs=2)
    assert [len(seen.requests), seen.meter(1).count, seen.meter().count] == [2, 3, 6]
    assert attacks.distances(seen, 1).error > 0.1
    assert attacks.distances(seen).error < 1e-6


@pytest.mark.parametrize("uploads", ["masked", "open"])
def test_the_attacks_do_not_look_at_the_rows(uploads: str) -> None:
    """With the rows hidden after the run, what the attacks compute is the same."""
    seen = record(small(), uploads)
    columns = seen.independent(seen.plan.length + 1)
    before = recovery.rows_with_insider(seen).rows, recovery.segment_distances(seen, columns, 1), seen.decoded(0)
    seen.rows = np.zeros_like(seen.rows)
    after = recovery.rows_with_insider(seen).rows, recovery.segment_distances(seen, columns, 1), seen.decoded(0)
    for one, other in zip(before, after, strict=True):
        assert np.array_equal(one, other)


def test_too_few_directions_are_said() -> None:
    with pytest.raises(ValueError, match="2 directions are known, 7 are needed"):
        recovery.rows_with_insider(record(small(clients=3, privacy=1, segments=1, max_rounds=1), "open"))


@pytest.mark.slow
def test_the_command_prints_figures_and_draws_plots(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "experiments", "attacks", "--json", "--out", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    reports = json.loads(done.stdout)
    assert [report["data"] for report in reports] == ["Iris", "20-d mixture", "100-d mixture"]
    for report in reports:
        results = {(found["attack"], found["uploads"]): found for found in report["attacks"]}
        assert results["a", "open"]["error"] < 1e-6
        assert results["b", "open"]["exact"] == 1.0
        assert results["b", "masked"]["exact"] == 0.0
        assert min(results["a", "masked"]["error"], results["b", "masked"]["error"]) > 0.85
    assert json.loads((tmp_path / "attacks.json").read_text()) == reports
    plots = sorted(path.name for path in tmp_path.glob("*.png"))
    assert plots == [f"attacks-{name}.png" for name in ("100-d-mixture", "20-d-mixture", "directions", "iris")]
    assert all((tmp_path / name).read_bytes().startswith(b"\x89PNG") for name in plots)
