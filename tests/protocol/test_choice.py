"""Which of several k is taken, by indices of the final partitions."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import calinski_harabasz_score, davies_bouldin_score

from secfc.agreement import federation as federations
from secfc.agreement import job as jobs
from secfc.errors import ConfigError
from secfc.kmeans.indices import CHOICES, Indices
from secfc.kmeans.runs import Runs
from secfc.protocol.server import records
from tests.parties import make_federation
from tests.protocol.bench import Bench

KS = [4, 2, 3]


def groups() -> list[np.ndarray]:
    """Rows of five clients, each of which has rows of all of three groups that lie apart."""
    chance = np.random.default_rng(5)
    return [
        np.array([[-90, 0], [90, 0], [0, 110]])[chance.permutation(3)] + chance.integers(-9, 9, (3, 2))
        for _ in range(5)
    ]


def job_of(choose: str, uploads: str = "masked", **changes: object) -> Bench:
    made = make_federation(5, uploads=uploads, k=KS, starts=2, choose=choose, features=2, **changes)
    return Bench(made, groups())


def runs_of(job: Bench) -> Runs:
    asking = job.server._phase.asking
    assert asking is not None
    return asking.runs


@pytest.mark.parametrize("choose", CHOICES)
@pytest.mark.parametrize("uploads", ["masked", "open"])
def test_the_best_index_decides_and_clients_get_those_labels(choose: str, uploads: str) -> None:
    job, rows = job_of(choose, uploads), np.concatenate(groups())
    job.finish()
    runs = runs_of(job)
    chosen = runs.all[runs.chosen]
    assert chosen.clusters == (KS[0] if choose == "first" else 3)
    assert job.labels() == chosen.labels.tolist()
    for one in runs.all:
        assert one.indices.calinski_harabasz == pytest.approx(calinski_harabasz_score(rows, one.labels))
        assert one.indices.davies_bouldin == pytest.approx(davies_bouldin_score(rows, one.labels))


def test_with_sealed_uploads_the_server_knows_no_index() -> None:
    job = job_of("first", "sealed")
    job.finish()
    assert {one.indices for one in runs_of(job).all} == {Indices()}


def test_runs_that_stopped_early_have_no_index_and_the_first_k_is_taken() -> None:
    job = job_of("silhouette", seeding="random", max_rounds=1)
    job.finish()
    runs = runs_of(job)
    assert not any(one.converged for one in runs.all)
    assert runs.chosen == runs.best[0]


def test_a_state_brings_the_indices_back() -> None:
    job = job_of("silhouette")
    job.finish()
    runs = runs_of(job)
    states = {run: records.state_from(records.state_to(state)) for run, state in runs.states().items()}
    others = Runs.of(15, job.federation.job.runs, job.server.job.coins(job.server._phase.tossed), choose="silhouette")
    others.resume(states)
    assert [one.indices for one in others.all] == [one.indices for one in runs.all]
    assert others.chosen == runs.chosen


def test_ties_go_to_the_first_and_what_has_no_index_is_never_preferred() -> None:
    assert place_of_chosen([Indices(), Indices(silhouette=0.5), Indices(silhouette=0.5)]) == 1
    assert place_of_chosen([Indices(silhouette=-1.0), Indices(), Indices()]) == 0
    assert place_of_chosen([Indices(), Indices(), Indices()]) == 0


def place_of_chosen(known: list[Indices]) -> int:
    """Which k is taken if the best runs have these indices."""
    job = job_of("silhouette")
    job.finish()
    runs = runs_of(job)
    for run, indices in zip(runs.best, known, strict=True):
        runs.all[run].indices = indices
    return runs.best.index(runs.chosen)


def test_bad_choices_are_told_in_one_line() -> None:
    made = make_federation(5, uploads="masked", k=KS, starts=2, choose="silhouette")
    text = federations.dumps(made)
    assert federations.parse(text, "f").job == made.job
    with pytest.raises(ConfigError, match=r"choose = .silhouette. needs distances, which the server does not get"):
        federations.parse(text.replace('uploads = "masked"', 'uploads = "sealed"'), "f")
    with pytest.raises(ConfigError, match=r"choose = .silhouette. needs several k"):
        federations.parse(text.replace("k = [4, 2, 3]", "k = 4"), "f")
    with pytest.raises(ConfigError, match="choose: must be one of first, silhouette"):
        federations.parse(text.replace("silhouette", "elbow"), "f")
    assert jobs.Job.digest(made.job) != jobs.Job.digest(make_federation(5, uploads="masked", k=KS, starts=2).job)
