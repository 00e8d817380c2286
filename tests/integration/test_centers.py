"""Centres opened by real processes: exact means for those who may see them, and nothing without enough consent."""

from __future__ import annotations

import csv
import re
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from secfc import local
from secfc.agreement import plan
from secfc.kmeans import fixedpoint
from secfc.local import Local
from tests.integration import helpers

Centres = dict[int, tuple[int, list[float]]]


def run(folder: Path, parts: helpers.Parts, k: int, consents: dict[str, str], **settings: Any) -> Local:
    """A whole job in which each client lets the centres be seen by whom `consents` says; default: nobody."""
    site = helpers.prepared(folder, parts, helpers.describe(parts, k, **settings))
    if site.federation.job.centers != "nobody":  # what an earlier job left must not be taken for this one's
        for party in site.federation.roster + (("server",) if site.federation.job.centers == "server" else ()):
            site.centers_file(party).write_text("cluster,size\n7,7\n", encoding="utf-8")
    try:
        site.start("server")
        for name in site.federation.roster:
            site.start(name, "--open-centers", consents.get(name, "nobody"))
        site.wait(180)
    finally:
        site.stop()
    helpers.check_labels(site, parts)
    return site


def read(path: Path) -> tuple[list[str], Centres]:
    with open(path, newline="", encoding="utf-8") as file:
        header, *lines = csv.reader(file)
    return header, {int(line[0]): (int(line[1]), [float(x) for x in line[2:]]) for line in lines}


def means(site: Local, parts: helpers.Parts) -> Centres:
    """The exact means of the final clusters above the floor: sums of integers below 2^53, then two correctly rounded
    divisions, the second of them exact. Rows of the site with most of them do not count for the floor, t being 1."""
    made, labels = site.federation, site.labels()
    owners = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    rows: npt.NDArray[np.int64] = fixedpoint.quantise(np.concatenate(parts), made.job.bound, made.job.precision)
    out: Centres = {}
    for h in range(made.job.k):
        members = rows[labels == h]
        if len(members) - np.bincount(owners[labels == h]).max(initial=0) >= made.job.centers_smallest:
            out[h] = (len(members), (members.sum(axis=0) / len(members) / 2.0**made.job.precision).tolist())
    return out


def opened(site: Local, party: str) -> Centres | None:
    path = site.centers_file(party)
    return read(path)[1] if path.exists() else None


def everybody(count: int, audience: str) -> dict[str, str]:
    return {f"client-{j + 1}": audience for j in range(count)}


@pytest.mark.slow
def test_three_clients_open_the_centres_to_each_other(tmp_path: Path) -> None:
    parts = helpers.split(helpers.mixture(120, 5, 3), [50, 69, 1])
    site = run(tmp_path, parts, 3, everybody(3, "server"), centers="clients", max_rounds=4)
    expected = means(site, parts)
    assert len(expected) == 3
    for name in site.federation.roster:
        assert opened(site, name) == expected
    assert read(tmp_path / "client-1.centers.csv")[0] == ["cluster", "size", "x1", "x2", "x3", "x4", "x5"]
    assert opened(site, "server") is None, "federation.toml says clients, whatever the sites would allow"
    assert "OpenCenters" not in helpers.text(site, "server")
    left = sorted(path.name.split("-")[0] for path in (site.kit("client-1") / "state").iterdir())
    assert left == ["audit.jsonl", "budget.json", "labels", "lock", "roster.json"], "the rest is cleared in the end"


CASES: dict[str, tuple[int, dict[str, str], dict[str, Any], dict[str, bool]]] = {
    # clients, consents, settings of the federation, who gets to see the centres
    "server too": (3, everybody(3, "server"), {"centers": "server"}, {"server": True, "client-1": True}),
    "five with two segments": (
        5,
        everybody(5, "server"),
        {"centers": "server", "segments": 2},
        {"server": True, "client-5": True},
    ),
    "just enough": (
        5,
        {"client-1": "clients", "client-4": "clients", "client-5": "server"},
        {"centers": "clients", "segments": 2},
        {"server": False, "client-1": True, "client-2": True},
    ),
    "one too few": (
        5,
        {"client-1": "clients", "client-4": "clients"},
        {"centers": "clients", "segments": 2},
        {"server": False, "client-1": False, "client-2": False},
    ),
    "enough for clients, too few for the server": (
        5,
        everybody(5, "clients") | {"client-2": "server", "client-3": "server"},
        {"centers": "server", "segments": 2},
        {"server": False, "client-1": True, "client-2": True},
    ),
    "nobody is asked": (3, everybody(3, "server"), {}, {"server": False, "client-1": False}),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_who_sees_the_centres(tmp_path: Path, case: str) -> None:
    clients, consents, settings, sees = CASES[case]
    parts = helpers.split(helpers.mixture(60 * clients, 5, 4, seed=clients), [60] * clients)
    site = run(tmp_path, parts, 4, consents, **settings)
    expected = means(site, parts)
    for party, allowed in sees.items():
        assert opened(site, party) == (expected if allowed else None), party
    need = plan.of(site.federation).segments + 1
    if case == "one too few":
        for name in site.federation.roster:  # who hears three refusals first does not wait long for the rest
            words = [
                re.fullmatch(rf"centres were not opened: [0-2] of {need} needed clients consent", line["event"])
                for line in site.events(name)
            ]
            assert len(list(filter(None, words))) == 1
    if case == "enough for clients, too few for the server":
        assert helpers.said(site, "server", f"centres were not opened: 2 of {need} needed clients consent")


@pytest.mark.slow
def test_clusters_below_the_floor_stay_closed(tmp_path: Path) -> None:
    values = helpers.mixture(200, 4, 3, seed=2)
    values[:2] = 15.5  # two rows far from all others: a cluster of their own
    parts = helpers.split(values, [80, 80, 40])
    site = run(tmp_path, parts, 5, everybody(3, "server"), centers="server", centers_smallest=20)
    floor = means(site, parts)
    assert 0 < len(floor) < 5
    assert [opened(site, party) for party in ("server", "client-1", "client-3")] == [floor] * 3


@pytest.mark.slow
def test_a_client_that_is_gone_does_not_keep_the_others_from_opening(tmp_path: Path) -> None:
    parts = helpers.split(helpers.mixture(400, 4, 3, seed=2), [80] * 5)
    made = helpers.describe(parts, 3, centers="clients", dropouts=2, segments=1)
    site = helpers.prepared(tmp_path, parts, made, client_options=("--open-centers", "clients"))
    with local.running(site):
        helpers.until(lambda: helpers.said(site, "server", "finished") or helpers.in_rounds(site), "rounds have begun")
        gone = site.processes.pop("client-5")
        gone.kill()
        gone.wait()
        for name in site.federation.roster[:4]:
            helpers.until(lambda name=name: helpers.said(site, name, "centres written"), f"{name} has centres", 180)
    labels = helpers.pooled(made, parts).labels
    rows = fixedpoint.quantise(np.concatenate(parts), made.job.bound, made.job.precision)
    sums = [rows[labels == h].sum(axis=0) / np.count_nonzero(labels == h) / 2.0**made.job.precision for h in range(3)]
    for name in site.federation.roster[:4]:
        assert [row for _, row in (opened(site, name) or {}).values()] == [each.tolist() for each in sums]


@pytest.mark.slow
def test_by_default_the_centres_are_beside_the_labels(tmp_path: Path) -> None:
    parts = helpers.split(helpers.mixture(90, 3, 3), [30, 30, 30])
    names = ("age", "size", "weight, kg")
    made = helpers.describe(parts, 3, centers="clients", seed="a", features=3, feature_names=names)
    site = helpers.prepared(tmp_path, parts, made, client_options=("--open-centers", "clients"))
    (tmp_path / "own").mkdir()
    call = helpers.client_call(
        site.kit("client-3"),
        tmp_path / "client-3.parquet",
        tmp_path / "own" / "labels.csv",
        *("--open-centers", "clients"),
    )
    last = helpers.launch(call)
    try:
        for party in ("server", "client-1", "client-2"):
            site.start(party)
        code, _, err = helpers.outcome(last, 180)
        assert code == 0, err
        site.wait(180)
    finally:
        last.kill()
        site.stop()
    header, centres = read(tmp_path / "own" / "centers.csv")
    assert header == ["cluster", "secfc_size", "age", "size", "weight, kg"]
    assert len(centres) == 3
    assert read(site.centers_file("client-1")) == (header, centres)


@pytest.mark.slow
def test_a_restarted_server_still_has_the_answers(tmp_path: Path) -> None:
    """A client answers once and may be gone when the server is back, so the answer is on disk before its receipt."""
    parts = helpers.split(helpers.mixture(240, 5, 4, seed=4), [60] * 4)
    site = helpers.prepared(tmp_path, parts, helpers.describe(parts, 4, centers="server", dropouts=1))
    journal = site.kit("server") / "state" / "journal.sqlite"
    try:
        site.start("server")
        for name in site.federation.roster:
            site.start(name, "--open-centers", "server")
        helpers.until(lambda: helpers.in_rounds(site, 1), "the first round")
        site.processes["client-4"].send_signal(signal.SIGSTOP)  # so that the server waits for it at the end
        with closing(sqlite3.connect(f"file:{journal}?mode=ro", uri=True)) as database:
            count = "SELECT count(*) FROM kept WHERE key LIKE 'centers/%'"
            helpers.until(lambda: database.execute(count).fetchone() == (3,), "three have answered")
        site.processes["server"].kill()
        site.processes["server"].wait()
        site.start("server")
        site.processes["client-4"].send_signal(signal.SIGCONT)
        site.wait(120)
    finally:
        site.processes["client-4"].send_signal(signal.SIGCONT)
        site.stop()
    helpers.check_labels(site, parts)
    assert opened(site, "server") == means(site, parts)
