"""Several starts of several k over TLS: every run is central Lloyd's, restarts go on with all, and the files say so."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from secfc import local
from secfc.agreement import plan
from secfc.kmeans import central, fixedpoint
from secfc.kmeans.coins import Coins
from secfc.protocol.rounds import kind_of
from tests.integration import helpers
from tests.integration.test_restarts import kill

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("uploads", ["masked", "sealed"])
def test_all_runs_end_as_they_would_alone(tmp_path: Path, uploads: str) -> None:
    parts = helpers.split(helpers.mixture(240, 5, 4, seed=3), (60, 90, 1, 89))
    made = helpers.describe(parts, 4, other_k=(3,), starts=3, uploads=uploads, dropouts=1, precision=8)
    site = helpers.prepared(tmp_path, parts, made, client_options=["--all-k"], environment={"SECFC_THREADS": "1"})
    with local.running(site):
        for number, party in ((2, "client-1"), (4, "server")):
            helpers.until(lambda n=number: helpers.in_rounds(site, n), f"request {number}")  # type: ignore[misc]
            kill(site, party)
            site.start(party)
        site.wait(240)
    helpers.check_labels(site, parts)
    result, kind = site.result(), kind_of(plan.of(made))
    runs = central.runs(
        fixedpoint.quantise(np.concatenate(parts), made.job.bound, made.job.precision),
        made.job.runs,
        coins=Coins(bytes.fromhex(result["seed"])),
        empties=kind.empties,
        draw_bits=kind.draw_bits(plan.of(made)),
    )
    assert [(run["k"], run["start"]) for run in result["runs"]] == [(k, start) for k in (4, 3) for start in range(3)]
    assert [run["rounds"] for run in result["runs"]] == [run.rounds for run in runs]
    assert result["assignments_given_away"] == sum(run.rounds + 1 for run in runs)
    assert result["inertias_opened"] == (6 if uploads == "sealed" else 0)
    of_four, of_three = result["best_runs"]
    assert (of_four, of_four < 3 <= of_three) == (result["chosen_run"], True)
    tables = [pq.read_table(site.labels_file(name)) for name in made.roster]
    for name, run in (("cluster", of_four), ("cluster_k3", of_three)):
        labels = np.concatenate([table.column(name).to_numpy() for table in tables])
        np.testing.assert_array_equal(labels, runs[run].labels)
