"""Submitted jobs that assign new rows: which rules allow them, and what is said where they cannot be."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from secfc.agreement import allowing, submission
from secfc.agreement.clusters import Clusters
from secfc.errors import ConfigError, InvalidInput, Refused
from secfc_client import keptclusters
from secfc_client.describing import most_given
from secfc_server import clusters
from tests.jobs import JOB, Kits, signed

NAME = "0123456789abcdef" * 2
ASSIGN = JOB.replace("starts = 1\n", f'kind = "assign"\nfrom = "{NAME}"\n')
RULE = '[[allow]]\nsubmitter = "*"\ndataset = "*"\nfeatures = "*"\n'


@pytest.fixture(scope="module")
def kits(tmp_path_factory: pytest.TempPathFactory) -> Kits:
    return Kits(tmp_path_factory.mktemp("kits") / "kits")


def test_a_rule_allows_no_rows_of_others_choice_unless_it_says_so(kits: Kits) -> None:
    one = signed(kits["analyst"], text=ASSIGN)
    running = one.within(kits.federation)
    assert "kind assign is not among cluster" in allowing.parse(RULE, "x").why_not(one, running)
    assert allowing.parse(RULE + 'kinds = ["assign", "cluster"]\n', "x").first(one, running) is not None
    with pytest.raises(ConfigError, match=r"kinds.* must list one or more of cluster, assign"):
        allowing.parse(RULE + 'kinds = ["assing"]\n', "x")


def test_a_rule_allows_no_pruned_job_unless_it_says_so(kits: Kits) -> None:
    one = signed(kits["analyst"], text=JOB + "prune = true\n")
    running = one.within(dataclasses.replace(kits.federation, uploads="masked"))
    assert "shows all parties which rows lie near a border" in allowing.parse(RULE, "x").why_not(one, running)
    assert allowing.parse(RULE + "prune = true\n", "x").first(one, running) is not None


def test_what_cannot_be_is_told_without_naming_a_file(kits: Kits, tmp_path: Path) -> None:
    running = signed(kits["analyst"], text=ASSIGN).within(kits.federation)
    for damaged in (False, True):
        if damaged:
            (tmp_path / clusters.FILE).write_text("[")
        with pytest.raises(InvalidInput, match=f"the server remembers no clusters {NAME}") as unknown:
            clusters.plan_of(running, tmp_path)
        assert str(tmp_path) not in str(unknown.value)
    (tmp_path / clusters.FILE).unlink()
    clusters.remember(tmp_path, Clusters(NAME, running.roster, 1, 1, "00" * 32, (20, 30)))
    with pytest.raises(InvalidInput, match="were found with other features, scale, bound or precision"):
        clusters.plan_of(running, tmp_path)
    clusters.remember(tmp_path, Clusters(NAME, running.roster, 1, 1, running.job.measures().hex(), (20, 30)))
    assert clusters.plan_of(running, tmp_path).frozen == (20, 30)
    with pytest.raises(Refused, match=f"it keeps no share of the clusters {NAME}") as gone:
        keptclusters.for_job(running, tmp_path, "a")
    assert str(tmp_path) not in str(gone.value)


def test_one_assignment_is_the_most_that_is_given() -> None:
    wanted = submission.parse(ASSIGN, "x").job
    sealed, masked = most_given(wanted, "sealed"), most_given(wanted, "masked")
    assert (sealed.ranks, sealed.assignments, sealed.inertias) == (0, 1, 0)
    assert (masked.ranks, masked.assignments, masked.inertias) == (2, 1, 0)
