"""The paper's accuracy tables: central Lloyd, k-FED, UIFCA and SecFC on the same rows, for several k′.

A cell is one run of one setting with one k′. Central Lloyd does not depend on k′, so a run of a setting has one cell of it.
SecFC is really run in every cell, on rows dealt again, with its whole protocol (start included) in memory; the start is the
same because it is drawn by the same public coins and rows keep their numbers. That its labels equal central Lloyd's in every
row is asserted; a cell in which they do not ends the experiment with an error.

Both also take the best of `STARTS` starts, the first of which is the one start; all starts are compared in every row. As it
does not depend on k′ either, SecFC runs them once per run of a setting, on rows dealt with the largest k′.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.table import Table

from experiments import kmeans_fed, output, plots, uifca
from experiments.accuracy import accuracy, mean_std
from experiments.mixtures import Rows, deal
from experiments.output import Cells, Row, Tick
from secfc.agreement import plan
from secfc.errors import JobFailed
from secfc.kmeans import central, fixedpoint
from secfc.kmeans.coins import Coins
from secfc.kmeans.runs import Runs
from secfc.protocol import memory

Labels = npt.NDArray[np.int32]
START = "separation"
STARTS = 10
METHODS = plots.NAMES
ONCE = ("central", "central10", "secfc10")  # do not depend on k′, and are run once
PAPER_OF = {"central10": "central", "secfc10": "secfc"}


@dataclass(frozen=True)
class Setting:
    """A block of a table: the rows of a run, how many clients, which k′, and the paper's figures (mean, std) by method."""

    title: str
    parameters: Row
    clients: int
    privacy: int
    most: tuple[int, ...]
    rows: Callable[[int], Rows]
    paper: dict[str, tuple[tuple[float, float], ...]]


class Run:
    """One run of a setting: its rows and central Lloyd's labels, made when a cell needs them."""

    def __init__(self, setting: Setting, seed: int) -> None:
        self.setting, self.seed = setting, seed
        self._rows: Rows | None = None
        self._central: list[central.Central] = []

    @property
    def rows(self) -> Rows:
        self._rows = self._rows or self.setting.rows(self.seed)
        return self._rows

    @property
    def coins(self) -> Coins:
        return Coins(f"experiments {self.seed}".encode())

    @property
    def quantised(self) -> npt.NDArray[np.int64]:
        return fixedpoint.quantise(self.rows.values, self.rows.bound, self.rows.precision)

    def references(self, starts: int = 1) -> list[central.Central]:
        """Central Lloyd in exact integers, from the same starts and with the same rule for empty clusters."""
        while len(self._central) < starts:
            coins = self.coins.of_run(len(self._central))
            self._central.append(central.run(self.quantised, self.rows.clusters, start=START, coins=coins))
        return self._central[:starts]

    def central(self, starts: int = 1) -> Row:
        """Central Lloyd, the best of so many starts."""
        made = self.references(starts)
        result = central.best(made)
        inertia = float(result.inertia) / 4.0**self.rows.precision
        counted = {"rounds": result.rounds, "converged": result.converged, "inertia": inertia}
        return self._figures(result.labels) | counted | {"best": _number(result, made)}

    def kfed(self, most: int) -> Row:
        """k-FED on rows dealt by k′."""
        parts = deal(self.rows.truth, self.setting.clients, most, self.seed)
        found = kmeans_fed.cluster([self.rows.values[at] for at in parts], most, self.rows.clusters, self.seed)
        return self._figures(gather(parts, found.labels)) | {"bytes": found.bytes_sent}

    def uifca(self, most: int) -> Row:
        """UIFCA on rows dealt by k′, from central Lloyd's first assignment."""
        parts = deal(self.rows.truth, self.setting.clients, most, self.seed)
        first = self.references()[0].history[0].astype(np.int64)
        found = uifca.cluster([self.rows.values[at] for at in parts], [first[at] for at in parts], self.rows.clusters)
        return self._figures(gather(parts, found.labels)) | {"rounds": found.rounds, "bytes": found.bytes_sent}

    def secfc(self, most: int, starts: int = 1) -> Row:
        """The whole protocol on rows dealt by k′; raises JobFailed unless all labels of all starts equal central Lloyd's."""
        parts = deal(self.rows.truth, self.setting.clients, most, self.seed)
        own = [self.quantised[at] for at in parts]
        result = memory.run(self.plan(), own, lambda rows: self._machine(rows, starts), starts=starts, positions=parts)
        expected = self.references(starts)
        made = result.runs.all if result.runs is not None else ()
        for number, (one, other) in enumerate(zip(made, expected, strict=True)):
            self._compare(most, number, int((one.labels != other.labels).sum()), one.rounds, other.rounds)
        best = central.best(expected)
        differ = int((result.labels != best.labels).sum())
        self._compare(most, _number(best, expected), differ, result.rounds, best.rounds)
        return self._figures(result.labels) | {"rounds": result.rounds, "equal": True}

    def _compare(self, most: int, start: int, differ: int, rounds: int, expected: int) -> None:
        if differ or rounds != expected:
            raise JobFailed(
                f"{self.setting.title}, k' = {most}, seed {self.seed}, start {start}: SecFC differs from central Lloyd in "
                f"{differ} rows after {rounds} rounds (central: {expected}); this must not happen, please report it"
            )

    def plan(self) -> plan.Plan:
        """Masked uploads, the largest ℓ that fits."""
        return plan.make(
            plan.Wishes(
                clients=self.setting.clients,
                privacy=self.setting.privacy,
                clusters=self.rows.clusters,
                features=self.rows.values.shape[1],
                max_rows=len(self.rows.values),
                bound=self.rows.bound,
                precision=self.rows.precision,
            )
        )

    def _machine(self, rows: int, starts: int) -> Runs:
        return Runs.of(rows, [self.rows.clusters] * starts, self.coins, start=START)

    def _figures(self, labels: npt.ArrayLike) -> Row:
        return {"accuracy": accuracy(self.rows.truth, labels), "accuracy_nearest": accuracy(self.rows.nearest, labels)}


def _number(one: central.Central, made: Sequence[central.Central]) -> int:
    return next(number for number, other in enumerate(made) if other is one)


def gather(parts: Sequence[npt.NDArray[np.int64]], labels: Sequence[npt.NDArray[Any]]) -> npt.NDArray[np.int64]:
    """The clients' labels in the order of all rows."""
    out = np.empty(sum(len(part) for part in parts), dtype=np.int64)
    for at, own in zip(parts, labels, strict=True):
        out[at] = own
    return out


def measure(name: str, settings: Sequence[Setting], runs: int, seed: int, folder: Path) -> list[Row]:
    """All cells of a table, then one row a setting, k′ and method."""
    cells = Cells(folder, name)
    steps = runs * sum(len(ONCE) + (len(METHODS) - len(ONCE)) * len(setting.most) for setting in settings)
    rows: list[Row] = []
    with output.progress(name, steps) as step:
        for setting in settings:
            found = [_one_run(cells, setting, seed + number, step) for number in range(runs)]
            rows += [_row(setting, method, most, found) for most in setting.most for method in METHODS]
    return rows


def _one_run(cells: Cells, setting: Setting, seed: int, step: Tick) -> dict[tuple[str, int], Row]:
    run, found = Run(setting, seed), {}
    asked = setting.parameters | {"n": setting.clients, "t": setting.privacy, "start": START, "seed": seed}

    def cell(method: str, most: int, work: Callable[[], Row]) -> None:
        step(f"{setting.title}, k′ = {most}, seed {seed}: {METHODS[method]}")
        name = f"{method}-{setting.title.replace(' ', '')}-{most}-seed{seed}"
        found[method, most] = cells.get(name, asked | {"method": method, "most": most}, work)
        gc.collect()  # the parties of a protocol in memory know each other, and hold gigabytes of shares

    last = max(setting.most)
    cell("central", 0, run.central)
    for most in setting.most:
        cell("kfed", most, lambda most=most: run.kfed(most))  # type: ignore[misc]
        cell("uifca", most, lambda most=most: run.uifca(most))  # type: ignore[misc]
        cell("secfc", most, lambda most=most: run.secfc(most))  # type: ignore[misc]
    cell("central10", 0, lambda: run.central(STARTS))
    cell("secfc10", last, lambda: run.secfc(last, STARTS))
    once = {"central": 0, "central10": 0, "secfc10": last}
    return found | {(method, most): found[method, at] for method, at in once.items() for most in setting.most}


def _row(setting: Setting, method: str, most: int, found: Sequence[dict[tuple[str, int], Row]]) -> Row:
    own = [one[method, most] for one in found]
    mean, std = mean_std([figures["accuracy"] for figures in own])
    nearest, nearest_std = mean_std([figures["accuracy_nearest"] for figures in own])
    paper = setting.paper.get(PAPER_OF.get(method, method))
    paper_mean, paper_std = paper[setting.most.index(most)] if paper else (None, None)
    row: Row = {"setting": setting.title} | setting.parameters | {"n": setting.clients, "t": setting.privacy}
    row |= {"most": most, "method": method, "mean": mean, "std": std, "paper_mean": paper_mean, "paper_std": paper_std}
    row |= {"nearest_mean": nearest, "nearest_std": nearest_std, "accuracies": [one["accuracy"] for one in own]}
    row |= {name: [one[name] for one in own] for name in ("rounds", "inertia") if name in own[0]}
    if method in ("secfc", "secfc10"):
        row["equal"] = [figures["equal"] for figures in own]
    return row


def table(result: Row) -> Table:
    """Methods down, k′ across, the paper's figure below ours."""
    title, rows = result["asked"]["title"], result["rows"]
    out = Table(title=title, title_justify="left", caption="below: the paper's figure", caption_justify="left")
    cells = list(dict.fromkeys((row["setting"], row["most"]) for row in rows))
    out.add_column("accuracy, %")
    for setting, most in cells:
        out.add_column(f"{setting}\nk′ = {most}", justify="right")
    for method, name in METHODS.items():
        own = {(row["setting"], row["most"]): row for row in rows if row["method"] == method}
        out.add_row(name, *(both(own[cell]) for cell in cells))
    return out


def both(row: Row) -> str:
    """Ours over the paper's."""
    paper = "–" if row["paper_mean"] is None else f"{row['paper_mean']:.1f} ± {row['paper_std']:.1f}"
    return f"{row['mean']:.1f} ± {row['std']:.1f}\n[dim]{paper}[/]"


def run(name: str, title: str, settings: Sequence[Setting], asked: Row, folder: Path) -> Row:
    """Measure, write and draw a table."""
    output.say_seeds(name, asked["seed"], asked["runs"])
    rows = measure(name, settings, asked["runs"], asked["seed"], folder)
    plots.accuracies(rows, title, folder / f"{name}.png")
    return output.write(folder, name, asked | {"title": title}, rows)
