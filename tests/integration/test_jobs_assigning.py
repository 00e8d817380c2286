"""New rows later, in a federation that stays: a submitted job assigns them to the clusters of an earlier one."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from secfc.agreement import submission
from secfc.errors import JobFailed
from secfc.kmeans import fixedpoint
from secfc.kmeans.frozen import FrozenClusters
from secfc.net import jobs
from secfc_client import budget
from tests.integration.helpers import mixture, split
from tests.integration.standing import JOB, RULE, Standing, secfc

pytestmark = pytest.mark.slow
OLD, NEW = split(mixture(240, 2, 2, seed=3), [80, 90, 70]), split(mixture(9, 2, 2, seed=8), [5, 4, 0])
BOTH = RULE.replace('"patients"', '["patients", "new"]').replace("k = 4", 'k = 4\nkinds = ["cluster", "assign"]')
FIRST = JOB.replace("max_rows = 200", "max_rows = 300")
PRECISION = submission.parse(FIRST, "job.toml").job.precision


def of_new(name: str, more: str = "") -> str:
    """A job that assigns new rows to the clusters of that name."""
    lines = [line for line in FIRST.splitlines() if not line.startswith(("starts", "seed"))]
    return "\n".join([*lines, 'kind = "assign"', f'from = "{name}"', more, ""]).replace('"patients"', '"new"')


def begun(folder: Path, uploads: str) -> Standing:
    site = Standing(folder, OLD, uploads)
    for name, part in zip(site.federation.roster, NEW, strict=True):
        np.savetxt(folder / f"{name}.new.csv", part, "%.17g", ",", header="age,weight", comments="")
        (site.kit(name) / "policy.toml").write_text("keep_clusters = true\n" + BOTH)
    for name in site.parties:
        more = [] if name == "server" else ["--dataset", f"new={site.folder / name}.new.csv"]
        site.start(name, options=more)
    site.ready()
    return site


@pytest.mark.parametrize("uploads", ["masked", "sealed"])
def test_a_submitted_job_assigns_new_rows(tmp_path: Path, uploads: str) -> None:
    with begun(tmp_path / "f", uploads) as site:
        first = site.submit(FIRST)
        assert site.over(first).state == "finished"
        name = json.loads(jobs.result(site.loaded(), first))["clusters"]
        assert (
            secfc("result", first[:8], "--kit", str(site.kit("analyst")))[1].splitlines()[-1]
            == f"clusters       {name}"
        )
        site.kill("server")
        site.start("server")
        site.until_said("server", "listening", times=2)

        later = site.submit(of_new(name))
        assert site.over(later).state == "finished"
        old, new = (fixedpoint.quantise(np.concatenate(parts), 16.0, PRECISION) for parts in (OLD, NEW))
        expected = FrozenClusters.of(old, site.labels(first), 2).nearest(new)
        np.testing.assert_array_equal(site.labels(later), expected)
        result = json.loads(jobs.result(site.loaded(), later))
        assert (result["kind"], result["assigned_from"], result["rows"]) == ("assign", name, 9)
        entries = budget.read(site.kit("client-1") / "state")
        assert entries[budget.dataset_key("new")].assignments == 1

        for text, complaint in (
            (of_new("0" * 32), f"the server remembers no clusters {'0' * 32}"),
            (of_new(name).replace("bound = 16.0", "bound = 8.0"), "found with other features, scale, bound"),
            (of_new(name, 'sites = ["client-1", "client-2"]'), "not by the clients of this federation.toml"),
        ):
            with pytest.raises(JobFailed, match=complaint):
                site.submit(text)
        kept = secfc("clusters", "--kit", str(site.kit("client-2")))[1]
        assert kept.startswith(name)
        [file] = (site.kit("client-2") / "state").glob("clusters-*.kept")
        file.unlink()
        lost = site.over(site.submit(of_new(name)))
        assert lost.state in ("failed", "refused")
        assert f"client-2 refuses: it keeps no share of the clusters {name}" in lost.reason
        assert str(tmp_path) not in lost.reason
