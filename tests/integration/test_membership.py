"""Private membership with real processes: same labels row by row, nobody's rows shown, restarts, linked IDs."""

from __future__ import annotations

import csv
import dataclasses
import json
import re
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from secfc import local
from secfc.errors import JobFailed
from secfc.kmeans import central, fixedpoint
from secfc.kmeans.coins import Coins
from secfc.local import Local
from secfc.privacy import confirming
from tests.integration import helpers

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]


def make(tmp_path: Path, sizes: list[int], **settings: object) -> tuple[Local, helpers.Parts]:
    parts = helpers.split(helpers.mixture(sum(sizes), 6, 5, seed=4), sizes)
    made = helpers.describe(parts, 5, precision=8, membership="private", **settings)
    site = helpers.prepared(tmp_path, parts, made, environment={"SECFC_THREADS": "1"}, client_options=("--write-ids",))
    return site, parts


def check(site: Local, parts: helpers.Parts) -> None:
    """The labels are central Lloyd's, with the rows in the order of their IDs."""
    made, order = site.federation, np.argsort(site.ids())
    rows = fixedpoint.quantise(np.concatenate(parts), made.job.bound, made.job.precision)
    [expected] = central.runs(
        rows[order],
        made.job.runs,
        start=made.job.seeding,
        coins=Coins(bytes.fromhex(site.result()["seed"])),
        max_rounds=made.job.max_rounds,
        candidates=made.job.candidates,
    )
    np.testing.assert_array_equal(site.labels()[order], expected.labels)
    result = site.result()
    assert (result["state"], result["rounds"], result["rows"]) == ("finished", expected.rounds, len(rows))


@pytest.mark.parametrize(("sizes", "uploads"), [([200, 0, 101], "masked"), ([1, 90, 0, 150, 60], "open")])
def test_labels_row_by_row(tmp_path: Path, sizes: list[int], uploads: str) -> None:
    site, parts = make(tmp_path, sizes, uploads=uploads)
    with local.running(site):
        site.wait(240)
    check(site, parts)
    for told in site.result()["bytes"].values():
        assert len(set(told.values())) == 1, "whoever owns what, all send the same"


def test_ten_clients_and_nothing_shows_who_owns_what(tmp_path: Path) -> None:
    sizes = [37, 0, 211, 5, 1, 64, 93, 12, 8, 29]
    site, parts = make(tmp_path, sizes, privacy=3)
    with local.running(site):
        site.wait(300)
    check(site, parts)
    shown = helpers.text(site, "server") + json.dumps(site.result())
    for rows in (37, 211, 64, 93, 29):
        assert not re.search(rf'"(rows|m)": ?{rows}\b', shown), f"{rows} rows of one client are shown"
    for name in site.federation.roster:
        own = helpers.text(site, name)
        assert f'"rows": {sum(sizes)}' in own, "the total is known to all"
    assert not (site.folder / "published.csv").exists()


@pytest.mark.parametrize("party", ["client-2", "server"])
@pytest.mark.parametrize("moment", ["union", "sharing", "round 3"])
def test_killed_and_started_again(tmp_path: Path, party: str, moment: str) -> None:
    site, parts = make(tmp_path, [300, 500, 0, 400])
    with local.running(site):
        helpers.until(lambda: helpers.said(site, "server", moment), f"the server says {moment}", 120)
        site.processes[party].kill()
        site.processes[party].wait()
        site.start(party)
        site.wait(240)
    check(site, parts)


def test_within_dropouts_a_lost_client_is_not_waited_for_and_gets_its_labels(tmp_path: Path) -> None:
    site, parts = make(tmp_path, [300, 500, 0, 400], dropouts=1)
    with local.running(site):
        helpers.until(lambda: helpers.in_rounds(site, 3), "the third round", 120)
        site.processes["client-1"].kill()
        site.processes["client-1"].wait()
        helpers.until(lambda: helpers.said(site, "server", "finished"), "the job ends without client-1", 120)
        site.start("client-1")
        site.wait(240)
    check(site, parts)


@pytest.mark.parametrize("kind", ["exchanged", "two-faced"])
def test_a_server_that_changes_the_union_is_left_by_all_clients_with_the_same_words(tmp_path: Path, kind: str) -> None:
    """Once the owner of the ID alone broke off, and said why."""
    site, parts = make(tmp_path, [30, 0, 40])
    call = [sys.executable, "-m", "tests.integration.misbehaving", kind, "--kit", str(site.kit("server"))]
    server = helpers.launch([*call, "--out", str(tmp_path), "--log-format", "json"], cwd=ROOT)
    try:
        for client in site.federation.roster:
            site.start(client)
        ended = helpers.outcome(server, 120)
        helpers.until(lambda: all(p.poll() is not None for p in site.processes.values()), "all clients end", 120)
    finally:
        site.stop()
        server.kill()
    assert ended[0] == 4
    assert helpers.error_line(ended[2]) == f"error: {confirming.DISPUTED}"
    for client in site.federation.roster:
        assert site.processes[client].returncode == 4
        words = site.last_words(client).removeprefix("error: ").removeprefix("the job has failed: ")
        assert words == confirming.DISPUTED[:500], "nobody says more than the others"
        assert not site.labels_file(client).exists()

    with local.running(again := dataclasses.replace(site, server_options=("--new",), processes={})):
        again.wait(240)
    check(again, parts)


def with_names(site: Local, names: list[list[str]]) -> None:
    for client, own in zip(site.federation.roster, names, strict=True):
        path = site.folder / f"{client}.parquet"
        pq.write_table(pq.read_table(path).append_column("patient", pa.array(own, pa.string())), path)


def test_linked_rows_and_published_ids(tmp_path: Path) -> None:
    sizes = [40, 30, 25]
    site, parts = make(tmp_path, sizes, ids="linked")
    assert not (site.kit("server") / "link.key").exists()
    with_names(site, [[f"{j}-{i}" for i in range(size)] for j, size in enumerate(sizes)])
    site.client_options = ("--write-ids", "--id", "patient", "--features", ",".join(f"x{f + 1}" for f in range(6)))
    try:
        site.start("server")
        for name in site.federation.roster:
            site.start(name, *(("--publish-ids",) if name == "client-2" else ()))
        site.wait(240)
    finally:
        site.stop()
    check(site, parts)
    with open(site.folder / "published.csv", encoding="utf-8") as file:
        published = list(csv.DictReader(file))
    assert {row["client"] for row in published} == {"client-2"}
    table = pq.read_table(site.labels_file("client-2"))
    own = dict(zip(table["secfc_id"].to_pylist(), table["cluster"].to_pylist(), strict=True))
    assert {row["id"]: int(row["cluster"]) for row in published} == own


def test_a_linked_row_held_twice_stops_the_job_and_nothing_says_by_whom(tmp_path: Path) -> None:
    site, _ = make(tmp_path, [20, 20, 20], ids="linked")
    with_names(
        site, [[f"p{i}" for i in range(20)], [f"q{i}" for i in range(20)], ["p7", *(f"r{i}" for i in range(19))]]
    )
    site.client_options = ("--id", "patient", "--features", ",".join(f"x{f + 1}" for f in range(6)))
    with local.running(site), pytest.raises(JobFailed, match="held more than once"):
        site.wait(240)
    said = helpers.text(site, "server")
    assert "p7" not in said
    failure = site.last_words("server")
    assert "held more than once" in failure
    assert not any(name in failure for name in site.federation.roster)
