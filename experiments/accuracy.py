"""Clustering accuracy as the paper defines it: the best match of clusters and classes, by the Hungarian method."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from statistics import fmean

import numpy as np
import numpy.typing as npt
from scipy.optimize import linear_sum_assignment


def accuracy(truth: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """Percent of rows whose cluster, under the best one-to-one match, is their class."""
    truth, labels = np.asarray(truth), np.asarray(labels)
    size = int(max(truth.max(), labels.max())) + 1
    together = np.zeros((size, size), dtype=np.int64)
    np.add.at(together, (truth, labels), 1)
    return 100.0 * float(together[linear_sum_assignment(together, maximize=True)].sum()) / len(truth)


def mean_std(values: Sequence[float]) -> tuple[float, float]:
    """Mean and population standard deviation, which is what `numpy.std` gives."""
    mean = fmean(values)
    return mean, sqrt(fmean((value - mean) ** 2 for value in values))
