"""UIFCA, a baseline of the accuracy tables: its Gaussians, how the server merges them, and the clusters it finds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from experiments import uifca
from experiments.accuracy import accuracy
from experiments.mixtures import deal, mixture
from experiments.tables import Run, Setting, gather
from secfc.errors import JobFailed

DRAW = np.random.default_rng(11)


def covariance(model: uifca.Model) -> Any:
    beyond = np.eye(len(model.mean)) - model.axes @ model.axes.T
    return model.axes * model.variances @ model.axes.T + model.rest * beyond


def test_a_fit_has_the_rows_mean_and_covariance() -> None:
    rows = DRAW.normal(size=(60, 5)) @ DRAW.normal(size=(5, 5))
    model = uifca.fit(rows, 4)
    assert model is not None
    assert np.allclose(model.mean, rows.mean(axis=0))
    assert np.allclose(covariance(model), np.cov(rows.T, bias=True))
    assert np.allclose(model.axes.T @ model.axes, np.eye(4))


def test_a_cut_fit_keeps_the_greatest_axes_and_the_whole_variance() -> None:
    rows = DRAW.normal(size=(500, 6)) * [9.0, 5.0, 1.0, 1.0, 1.0, 1.0]
    model = uifca.fit(rows, 2)
    assert model is not None
    expected = np.linalg.eigvalsh(np.cov(rows.T, bias=True))[::-1]
    assert np.allclose(model.variances, expected[:2])
    assert model.rest == pytest.approx(expected[2:].mean())


def test_merged_models_are_that_of_all_rows_together() -> None:
    rows = DRAW.normal(size=(90, 4)) @ DRAW.normal(size=(4, 4)) + 3.0
    parts = [rows[:20], rows[20:21], rows[21:], rows[:0]]
    together = uifca.merged([uifca.fit(part, 3) for part in parts], 3, 0.0)
    assert together is not None
    assert together.rows == 90
    assert np.allclose(together.mean, rows.mean(axis=0))
    assert np.allclose(covariance(together), np.cov(rows.T, bias=True))
    assert uifca.merged([None, None], 3, 0.0) is None


def test_unlikelihood_is_that_of_the_density() -> None:
    model = uifca.fit(DRAW.normal(size=(40, 5)) * [4.0, 3.0, 1.0, 1.0, 1.0], 2)
    assert model is not None
    rows = DRAW.normal(size=(7, 5))
    expected = -2 * multivariate_normal(model.mean, covariance(model)).logpdf(rows) - 5 * np.log(2 * np.pi)
    assert np.allclose(model.unlikelihood(rows), expected)


@pytest.mark.parametrize("most", [1, 2, 4])
def test_clusters_far_apart_are_found_however_rows_are_dealt(most: int) -> None:
    rows = mixture(400, 20, 4, 1.0, 5)
    parts = deal(rows.truth, 6, most, 5)
    start = np.where(DRAW.random(400) < 0.2, 0, rows.truth)
    found = uifca.cluster([rows.values[at] for at in parts], [start[at] for at in parts], 4)
    assert accuracy(rows.truth, gather(parts, found.labels)) == 100.0
    assert found.rounds > 1
    assert found.bytes_sent > 0


def test_flat_clusters_side_by_side_are_told_apart_which_lloyd_would_cut_across() -> None:
    truth = np.arange(600) % 2
    values = np.stack([DRAW.normal(scale=40, size=600), 6.0 * truth + DRAW.normal(scale=0.5, size=600)], axis=1)
    start = np.where(DRAW.random(600) < 0.3, 1 - truth, truth)
    found = uifca.cluster([values[:300], values[300:]], [start[:300], start[300:]], 2, rank=1)
    assert accuracy(truth, np.concatenate(found.labels)) == 100.0


def test_a_cluster_that_nobody_has_rows_of_stays_without_a_model() -> None:
    rows = DRAW.normal(size=(30, 3))
    found = uifca.cluster([rows[:10], rows[10:]], [np.zeros(10, int), np.zeros(20, int)], 2)
    assert set(np.concatenate(found.labels)) == {0}


def test_equal_rows_are_no_obstacle() -> None:
    rows = np.repeat(np.eye(2), 5, axis=0)
    found = uifca.cluster([rows], [np.repeat([0, 1], 5)], 2)
    assert found.labels[0].tolist() == [0] * 5 + [1] * 5
    assert set(uifca.cluster([np.ones((4, 2))], [np.zeros(4, int)], 2).labels[0]) == {0}


def test_ten_starts_are_compared_one_by_one_and_the_best_is_taken() -> None:
    run = Run(Setting("small", {"m": 90}, 5, 1, (1, 3), lambda seed: mixture(90, 6, 9, 4.0, seed), {}), 3)
    one, ten = run.central(), run.central(4)
    assert ten["inertia"] < one["inertia"]
    assert ten["best"] > 0
    secure = run.secfc(3, 4)
    assert secure["accuracy"] == ten["accuracy"]
    run.references(4)[2].labels[0] ^= 1  # a start that is not the best one
    assert ten["best"] != 2
    with pytest.raises(JobFailed, match="start 2: SecFC differs from central Lloyd in 1 rows"):
        run.secfc(3, 4)
