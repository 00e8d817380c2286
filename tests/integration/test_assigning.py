"""New rows later, over TLS: only they are shared, and their labels are the nearest centres of an earlier job's clusters."""

from __future__ import annotations

import shutil
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from secfc import local
from secfc.kmeans import fixedpoint
from secfc.kmeans.frozen import FrozenClusters
from secfc.local import Local
from secfc_client import budget
from tests.integration import helpers
from tests.integration.helpers import Parts
from tests.integration.test_restarts import kill

pytestmark = pytest.mark.slow
SIZES = (60, 90, 1, 89)
KEEP = "keep_clusters = true\n"


def clustered(folder: Path, uploads: str, policy: str = KEEP, **settings: object) -> tuple[Local, Parts]:
    """A finished job whose sites have this policy."""
    parts = helpers.split(helpers.mixture(240, 5, 4, seed=3), SIZES)
    made = helpers.describe(parts, 4, uploads=uploads, dropouts=1, precision=8, starts=2, **settings)
    site = helpers.prepared(folder, parts, made, environment={"SECFC_THREADS": "1"})
    for name in made.roster:
        (site.kit(name) / "policy.toml").write_text(policy)
    with local.running(site):
        site.wait(240)
    return site, parts


def bring(site: Local, parts: Parts) -> None:
    """Each site's file of new rows takes the place of the old one."""
    for name, part in zip(site.federation.roster, parts, strict=True):
        table = pa.table({f"x{f + 1}": part[:, f] for f in range(part.shape[1])})
        pq.write_table(table, site.folder / f"{name}.parquet")


def called(*arguments: str) -> tuple[int, str]:
    """A command's exit code and the last line it says."""
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, (done.stdout + done.stderr).strip().splitlines()[-1]


def refused(site: Local, client: str, *options: str) -> str:
    """The one line with which a client declines to begin."""
    files = ["--data", str(site.folder / f"{client}.parquet"), "--out", str(site.labels_file(client))]
    code, words = called("-m", "secfc_client", "--kit", str(site.kit(client)), *files, "--quiet", *options)
    assert code == 2, words
    return words


@pytest.mark.parametrize("uploads", ["open", "masked", "sealed"])
def test_new_rows_get_the_labels_of_the_nearest_centres(tmp_path: Path, uploads: str) -> None:
    site, old = clustered(tmp_path, uploads)
    found = np.concatenate(
        [pq.read_table(site.labels_file(n)).column("cluster").to_numpy() for n in site.federation.roster]
    )
    name = site.result()["clusters"]
    job = site.federation.job
    folders = {client: site.kit(client) / "state" for client in site.federation.roster}
    for folder in folders.values():
        [file] = folder.glob("clusters-*")
        assert file.name == f"clusters-{name}.kept"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert file.stat().st_size < 2000  # sums of four clusters, not shares of 240 rows
    before = {client: budget.read(folder) for client, folder in folders.items()}

    new = helpers.split(helpers.mixture(50, 5, 4, seed=9), (20, 0, 29, 1))
    bring(site, new)
    site.server_options = ["--new", "--assign-from", "last"]
    site.client_options = ["--assign-from", name]
    with local.running(site):
        helpers.until(lambda: helpers.said(site, "client-1", "all shares have arrived"), "shares")
        kill(site, "client-1")
        site.start("client-1")
        site.wait(240)
    quantised = [fixedpoint.quantise(np.concatenate(parts), job.bound, job.precision) for parts in (old, new)]
    expected = FrozenClusters.of(quantised[0], found.astype(np.int32), 4).nearest(quantised[1])
    np.testing.assert_array_equal(site.labels(), expected)
    result = site.result()
    assert (result["kind"], result["assigned_from"], result["clusters"]) == ("assign", name, None)
    assert (result["assignments_given_away"], result["inertias_opened"]) == (1, 0)
    assert [record["step"] for record in result["history"]] == ["assign"]
    assert bool(result["directions_given_away"]["count"]) == (uploads != "sealed")

    for client, folder in folders.items():  # counted for the new rows, and for those that made the clusters
        entries = budget.read(folder)
        [(old_key, spent)] = before[client].items()
        assert entries[old_key].assignments == spent.assignments + 1
        assert sorted(one.assignments for key, one in entries.items() if key != old_key) == [1]
        assert len(list(folder.glob("clusters-*"))) == 1  # and they can be used again


def test_what_cannot_be_is_told_in_one_line_and_nothing_is_lost(tmp_path: Path) -> None:
    site, _ = clustered(tmp_path, "masked", KEEP + "max_assignments = 40\n")
    name = site.result()["clusters"]
    kept = {path: path.read_bytes() for path in site.folder.glob("kits/*/state/clusters-*")}
    assert len(kept) == 4
    labels = site.labels()
    new = helpers.split(helpers.mixture(20, 5, 4, seed=9), (5, 5, 5, 5))
    bring(site, new)

    assert "no share of the clusters 0123" in refused(site, "client-1", "--assign-from", "0123")
    other = tmp_path / "other.csv"
    pacsv.write_csv(pa.table({f"y{f}": [0.0] for f in range(5)}), other)
    assert "x1" in refused(site, "client-1", "--assign-from", name, "--data", str(other))
    server = ("-m", "secfc_server", "--kit", str(site.kit("server")), "--out", str(site.folder))
    code, words = called(*server, "--assign-from", "f" * 32)
    assert (code, "is remembered here" in words) == (2, True)
    code, words = called(*server, "--assign-from", name)  # without --new
    assert (code, "--new" in words) == (2, True)

    shutil.copytree(site.kit("client-1") / "state", tmp_path / "borrowed")
    assert "kept here for client-1" in refused(
        site, "client-2", "--assign-from", name, "--state", str(tmp_path / "borrowed")
    )
    secfc = ("-c", "from secfc_client.cli import main; main()", "clusters", "--kit", str(site.kit("client-3")))
    code, words = called(*secfc)
    assert (code, words.startswith(f"{name}  4 clusters of 240 rows")) == (0, True)
    assert called(*secfc, "--forget", "zz")[0] == 2
    assert called(*secfc, "--forget", name[:8]) == (0, f"removed: {name}")
    assert "no clusters kept here" in refused(site, "client-3", "--assign-from", "last")

    assert {path: path.read_bytes() for path in kept if path.exists()} == {
        path: value for path, value in kept.items() if "client-3" not in str(path)
    }
    np.testing.assert_array_equal(site.labels(), labels)
    assert site.result()["clusters"] == name


def test_a_policy_bounds_how_often_rows_are_assigned_to_clusters(tmp_path: Path) -> None:
    """Of the rows that made the clusters, which are not those of the job."""
    site, _ = clustered(tmp_path, "masked")
    folder = site.kit("client-2") / "state"
    [entry] = budget.read(folder).values()
    (site.kit("client-2") / "policy.toml").write_text(f"max_assignments = {entry.assignments}\n")
    bring(site, helpers.split(helpers.mixture(20, 5, 4, seed=9), (5, 5, 5, 5)))
    words = refused(site, "client-2", "--assign-from", "last")
    assert f"max_assignments = {entry.assignments}" in words
    assert "or on those that made the clusters" in words
