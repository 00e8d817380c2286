"""What labels alone tell, which every party sees in every kind of rounds: rows that often share a cluster lie close.

(j) any party: the share of all assignments, over all rounds and jobs, in which two rows are in one cluster makes a table of
dissimilarities; multidimensional scaling turns it into a cloud, which is laid over the true rows by the best rigid motion
and scale (Procrustes). R² is the part of the rows' spread that it explains: 1 is exact, 0 is putting every row at the mean.

(k) one client: the same cloud, laid over the client's own rows by least squares; R² is that of the others' rows, and nothing
of them was used.

The labels are those of real jobs with sealed rounds and greedy k-means++, in one process; each job has a start of its own. A
guess is a random cloud, laid over the rows in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.table import Table

from experiments import recovery
from experiments.transcript import Setting, machine
from secfc.kmeans import fixedpoint
from secfc.kmeans.distances import UNASSIGNED, Labels
from secfc.kmeans.lloyd import Step
from secfc.protocol import memory

Floats = npt.NDArray[np.float64]
JOBS = (1, 5, 20)


@dataclass(frozen=True)
class Learnt:
    """What the labels of so many jobs tell."""

    jobs: int
    assignments: int
    r2: float  # any party, best case: (j)
    others_r2: float  # one client, of the others' rows: (k)


@dataclass(frozen=True)
class Report:
    """The attack on one data set."""

    setting: Setting
    learnt: list[Learnt]
    guess: float

    def row(self) -> dict[str, Any]:
        """For machines."""
        s = self.setting
        about = {"data": s.name, "m": len(s.values), "d": s.values.shape[1], "k": s.clusters, "n": s.clients}
        return about | {"t": s.privacy, "guess_r2": self.guess, "labels": [vars(one) for one in self.learnt]}


def settings() -> list[Setting]:
    """Small real data, every feature scaled to deviation 1, and the mixture of the other attacks."""
    from sklearn import datasets

    from experiments.attacks import mixture

    real = {"Iris": (datasets.load_iris, 3), "Wine": (datasets.load_wine, 3)}
    real["Breast cancer"] = (datasets.load_breast_cancer, 4)
    found = [_scaled(name, load().data, clusters) for name, (load, clusters) in real.items()]
    return [*found, mixture(20, 400, 6, 5, 1, 2)]


def _scaled(name: str, values: Floats, clusters: int) -> Setting:
    standard = (values - values.mean(axis=0)) / values.std(axis=0)
    return Setting(name, np.clip(standard, -8.0, 8.0), clusters, 5, 1, 2, bound=8.0, precision=10)


def published(setting: Setting, job: int) -> list[Labels]:
    """The assignments of all rows that one job with sealed rounds gives every party; the job's number is its start."""
    rows = fixedpoint.quantise(setting.values, setting.bound, setting.precision)
    places, agreed = dealt(setting), setting.plan("sealed")
    begun = machine(setting, job, agreed.candidates)
    found = memory.run(agreed, [rows[at] for at in places], begun, positions=places)
    answers = [one.labels for one in found.history if one.step is not Step.MEASURE]
    return [labels for labels in answers if (labels != UNASSIGNED).all()]


def dealt(setting: Setting) -> list[npt.NDArray[np.int64]]:
    """Which rows are whose: in turn."""
    return [np.arange(j, len(setting.values), setting.clients) for j in range(setting.clients)]


def cloud(assignments: Sequence[Labels], dimensions: int) -> Floats:
    """(m, dimensions): classical scaling of 1 − the share of assignments in which two rows are in one cluster."""
    table = np.stack(assignments)
    together = np.mean([labels[:, None] == labels for labels in table], axis=0)
    apart = (1.0 - together) ** 2
    centred = apart - apart.mean(axis=0) - apart.mean(axis=1)[:, None] + apart.mean()
    values, vectors = np.linalg.eigh(-centred / 2)
    keep = np.argsort(-values)[:dimensions]
    return np.asarray(vectors[:, keep] * np.sqrt(np.maximum(values[keep], 0.0)))


def learn(setting: Setting, given: Sequence[Sequence[Labels]]) -> Learnt:
    """Both attacks on the assignments of some jobs."""
    assignments = [labels for job in given for labels in job]
    found, truth, own = cloud(assignments, setting.values.shape[1]), setting.values, dealt(setting)[0]
    others = np.setdiff1d(np.arange(len(truth)), own)
    left = truth[others] - _placed(found, own, truth[own])[others]
    spread = ((truth[others] - truth[others].mean(axis=0)) ** 2).sum()
    return Learnt(len(given), len(assignments), _r2(found, truth), float(1 - (left**2).sum() / spread))


def _r2(found: Floats, truth: Floats) -> float:
    return 1 - recovery.aligned(found, truth, scale=True)[1] ** 2


def _placed(found: Floats, own: npt.NDArray[np.int64], rows: Floats) -> Floats:
    """The cloud in the features' terms: an affine map fitted to the rows one has, drawn to the mean where they say little."""
    wide, centre = found - found[own].mean(axis=0), rows.mean(axis=0)
    gram = wide[own].T @ wide[own]
    ridge = gram + np.eye(len(gram)) * np.trace(gram) / len(own)
    return np.asarray(wide @ np.linalg.solve(ridge, wide[own].T @ (rows - centre)) + centre)


def attack(setting: Setting, jobs: Sequence[int] = JOBS) -> Report:
    """Run the jobs, and attack after so many of them."""
    given = [published(setting, job) for job in range(max(jobs))]
    noise = np.random.default_rng(0).normal(size=setting.values.shape)
    return Report(setting, [learn(setting, given[:count]) for count in jobs], _r2(noise, setting.values))


def table(reports: Sequence[Report]) -> Table:
    """For people."""
    title = "What the labels of sealed rounds tell every party: R² of the rows (1: exact, 0: nothing)"
    out = Table(title=title, title_justify="left")
    out.add_column("data")
    for name in ("jobs", "assignments", "(j) any party, best case", "(k) one client, others' rows", "a random guess"):
        out.add_column(name, justify="right")
    for report in reports:
        s = report.setting
        name = f"{s.name}, {len(s.values)} × {s.values.shape[1]}, k = {s.clusters}"
        for one in report.learnt:
            figures = (f"{one.r2:.2f}", f"{one.others_r2:.2f}", f"{report.guess:.2f}")
            out.add_row(name, str(one.jobs), str(one.assignments), *figures, end_section=one is report.learnt[-1])
    return out
