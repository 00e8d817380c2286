"""Policies and the leakage meter with real processes: how a refusal ends a job everywhere, and what a changed server gets."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import pytest

from secfc import local
from secfc.local import Local
from secfc_client import budget
from tests.integration import helpers

ROOT = Path(__file__).parents[2]
CLIENTS = ("client-1", "client-2", "client-3")
K, FEATURES = 4, 40


def make(tmp_path: Path, **settings: Any) -> tuple[Local, helpers.Parts]:
    """n = R = 3."""
    parts = helpers.split(helpers.mixture(150, FEATURES, 6, seed=4), (60, 50, 40))
    made = helpers.describe(parts, K, precision=8, **settings)
    return helpers.prepared(tmp_path, parts, made, environment={"SECFC_THREADS": "1"}), parts


def rules(site: Local, client: str, text: str) -> None:
    (site.kit(client) / "policy.toml").write_text(text)


def ends(site: Local, *parties: str) -> dict[str, int]:
    """The exit codes, each once its process has ended."""
    helpers.until(lambda: all(site.processes[p].poll() is not None for p in parties), f"{parties} end", 120.0)
    return {party: site.processes[party].returncode for party in parties}


def renewed(site: Local, *options: str) -> Local:
    return dataclasses.replace(site, server_options=(*site.server_options, *options), processes={})


def given_up(tmp_path: Path, most: int = 5, **settings: Any) -> tuple[Local, helpers.Parts, str]:
    """A job that client-2 has ended by its policy; the reason."""
    site, parts = make(tmp_path, **settings)
    rules(site, "client-2", f"max_requests = {most}\n")
    with local.running(site):
        codes = ends(site, "server", *CLIENTS)
    assert codes == dict.fromkeys(("server", *CLIENTS), 4)
    return site, parts, f"policy.toml: max_requests = {most}, and this is request {most + 1}"


@pytest.mark.slow
def test_a_refusal_ends_the_job_on_all_sides_and_a_looser_policy_goes_on(tmp_path: Path) -> None:
    site, parts, rule = given_up(tmp_path)
    assert f"error: {rule}" in site.last_words("client-2")
    for party in ("server", "client-1", "client-3"):
        assert f"client-2 refuses: {rule}" in site.last_words(party)
    assert site.result()["state"] == "failed"
    assert site.result()["reason"] == f"client-2 refuses: {rule}"
    rules(site, "client-2", "max_requests = 300\n")
    with local.running(again := renewed(site)):
        again.wait(120)
    expected = helpers.check_labels(again, parts)
    known = again.result()["directions_given_away"]
    assert known["of"] == FEATURES
    assert 2 * (K - 1) <= known["count"] <= min(FEATURES, K + (K - 1) * expected.rounds)
    assert again.result()["history"][-1]["directions"] == known["count"]
    assert again.result()["assignments_given_away"] == expected.rounds + 1, "one of the seeding, one for each round"
    words = f"distance directions given away: {known['count']} of {FEATURES}"
    words += f"; assignments given away: {expected.rounds + 1}"
    for party in ("server", *CLIENTS):
        assert helpers.said(again, party, words), party


@pytest.mark.slow
def test_where_a_coin_was_shown_is_on_disk_when_the_job_is_broken_off(tmp_path: Path) -> None:
    """A coin that was shown serves in no other session: without the note, a restarted client would show it again."""
    # Whatever the coins say, no random start is found again by the first request; k-means++ may well end with its fifth.
    site, *_ = given_up(tmp_path, most=1, seed=None, seeding="random")
    notes = [(site.kit(client) / "state" / "revealed").read_bytes() for client in CLIENTS]
    assert {len(note) for note in notes} == {64}, "a seal and a session"
    assert len({note[32:] for note in notes}) == 1, "all were in one session"


@pytest.mark.slow
def test_a_new_job_after_a_refusal_begins_with_fresh_shares(tmp_path: Path) -> None:
    site, parts, _ = given_up(tmp_path)
    rules(site, "client-2", "")
    with local.running(again := renewed(site, "--new")):
        again.wait(120)
    helpers.check_labels(again, parts)
    for client in CLIENTS:
        said = helpers.said(again, client, "the server begins a new job")
        assert said is not None
        assert said["shares"] == "fresh"
    assert again.result()["history"][0]["directions"] == 0, "fresh shares are counted from nothing"


@pytest.mark.slow
def test_kept_shares_serve_another_job_and_are_counted_on(tmp_path: Path) -> None:
    site, parts = make(tmp_path)
    for client in CLIENTS:
        rules(site, client, "keep_shares = true\n")
    with local.running(site):
        site.wait(120)
    first = site.result()
    assert all(first["bytes"]["sharing_sent"].values())
    with local.running(again := renewed(site, "--new")):
        again.wait(120)
    helpers.check_labels(again, parts)
    second = again.result()
    assert first["directions_given_away"] == second["directions_given_away"]
    known = {record["directions"] for record in second["history"]}
    assert known == {first["directions_given_away"]["count"]}, "the same start asks nothing new of the same rows"
    assert not any(second["bytes"]["sharing_sent"].values()), "nobody had to share again"


@pytest.mark.slow
@pytest.mark.parametrize("uploads", ["masked", "sealed"])
def test_assignments_are_counted_over_jobs_and_end_them(tmp_path: Path, uploads: str) -> None:
    """The budget has what the job gave away; with a limit of as many, the next client ends before it joins."""
    site, _ = make(tmp_path, uploads=uploads)
    with local.running(site):
        site.wait(120)
    result, rows = site.result(), tmp_path / "client-1.parquet"
    assert (result["directions_given_away"]["count"] == 0) is (uploads == "sealed")
    assert result["inertias_opened"] == int(uploads == "sealed")
    [entry] = budget.read(site.kit("client-1") / "state").values()
    assert (entry.assignments, entry.inertias) == (result["assignments_given_away"], result["inertias_opened"])
    assert entry.assignments > 2
    rules(site, "client-1", f"max_assignments = {entry.assignments}\n")
    call = helpers.client_call(site.kit("client-1"), rows, tmp_path / "out.parquet")
    code, _, err = helpers.outcome(helpers.launch(call))
    assert code == 2
    assert helpers.error_line(err).startswith(
        f"error: policy.toml: max_assignments = {entry.assignments}, and earlier jobs on these rows may have given away"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("singleton", "the assignment leaves rows out; only a partition of all rows is answered here"),
        ("repeat", f"the server asks something else than before as request {K + 1}, attempt 1"),
    ],
)
def test_a_changed_server_is_left_by_every_client(tmp_path: Path, kind: str, words: str) -> None:
    site, _ = make(tmp_path)
    call = [sys.executable, "-m", "tests.integration.misbehaving", kind]
    files = ["--kit", str(site.kit("server")), "--out", str(tmp_path), "--log-format", "json"]
    server = helpers.launch([*call, *files], cwd=ROOT)
    try:
        for client in CLIENTS:
            site.start(client)
        assert ends(site, *CLIENTS) == dict.fromkeys(CLIENTS, 4)
        for client in CLIENTS:
            assert site.last_words(client) == f"error: {words}"
    finally:
        site.stop()
        server.kill()
        helpers.outcome(server)
