"""Plots of the attacks: original against recovered, and the error of the geometry against the directions given away."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

from experiments.attacks import WITH_CLIENT, Outcome, Report

matplotlib.use("Agg")
from matplotlib import pyplot as plt

_GREY, _INK = "#c9ced6", "#1f2933"
_COLOURS = ("#2563a8", "#d1631c", "#2f8f5b", "#8a4fa3", "#b3892a", "#b03a5b", "#4a9fb5", "#6b7280")


def write(reports: Sequence[Report], folder: Path) -> list[Path]:
    """One figure a data set, and one of all error curves."""
    paths = [_recovered(report, folder) for report in reports]
    return [*paths, _curves(reports, folder)]


def _recovered(report: Report, folder: Path) -> Path:
    figure, axes = plt.subplots(2, 6, figsize=(22, 7.8), sharex=True, sharey=True, layout="constrained")
    centre, view = _view(report)
    for line, uploads in zip(axes, ("open", "masked"), strict=True):
        for axis, outcome in zip(line, [o for o in report.outcomes if o.uploads == uploads], strict=True):
            _panel(axis, report, (report.rows - centre) @ view, (outcome.estimate - centre) @ view, outcome)
        line[0].set_ylabel(f"{uploads} uploads", fontsize=13, color=_INK)
    s = report.setting
    figure.suptitle(
        f"{s.name}: {len(report.rows)} rows in {report.rows.shape[1]} dimensions, "
        f"n = {s.clients}, t = {s.privacy}, ℓ = {s.segments}, k = {s.clusters}.   "
        "Grey rings: true rows; dots: recovered (first two principal components)",
        fontsize=12,
        color=_INK,
    )
    return _save(figure, folder / f"attacks-{s.name.lower().replace(' ', '-')}.png")


def _view(report: Report) -> tuple[Any, Any]:
    """The mean and the first two principal components of the true rows."""
    centre = report.rows.mean(axis=0)
    return centre, np.linalg.svd(report.rows - centre, full_matrices=False)[2][:2].T * 2.0**-report.setting.precision


def _panel(axis: Any, report: Report, truth: Any, found: Any, outcome: Outcome) -> None:
    colours = [_COLOURS[label % len(_COLOURS)] for label in report.labels]
    ring, dot = (34, 7) if len(truth) < 500 else (16, 3)
    axis.scatter(*truth.T, s=ring, facecolors="none", edgecolors=_GREY, linewidths=0.8, zorder=1)
    axis.scatter(*found.T, s=dot, c=colours, linewidths=0, zorder=2)
    who = "server + client" if outcome.attack in WITH_CLIENT else "server"
    given = f"{outcome.directions} directions of {outcome.requests} requests"
    axis.set_title(f"({outcome.attack}) {who}, {given}\n{_verdict(report, outcome)}", fontsize=9.5, color=_INK)
    axis.tick_params(labelsize=8, colors="#6b7280")
    for spine in axis.spines.values():
        spine.set_color(_GREY)


def _verdict(report: Report, outcome: Outcome) -> str:
    if outcome.exact == 1.0:
        return "exact"
    if outcome.error < 1e-3:
        return f"error {outcome.error:.0e}"
    return f"error {outcome.error:.2f} (a guess {report.guess:.2f})"


def _curves(reports: Sequence[Report], folder: Path) -> Path:
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.6), sharey=True, layout="constrained")
    for report, colour in zip(reports, _COLOURS, strict=False):
        error, features = [step.error for step in report.curve], report.rows.shape[1]
        style = {"marker": "o", "markersize": 4, "color": colour}
        label = f"{report.setting.name}, k = {report.setting.clusters}"
        axes[0].plot([step.directions / features for step in report.curve], error, label=label, **style)
        axes[1].plot([step.requests for step in report.curve], error, **style)
        last = report.curve[-1]
        if last.error < 1e-3:
            at = (last.requests, 0)
            axes[1].annotate(f"{last.error:.0e}", at, (7, 3), textcoords="offset points", color=colour)
    axes[0].set_xlim(0, 1.03)
    axes[1].set_xlim(left=0)
    axes[0].set_ylim(-0.03, 1.05)
    axes[0].set_xlabel("directions given away, as a share of d (the leakage meter)", color=_INK)
    axes[1].set_xlabel("requests answered", color=_INK)
    axes[0].set_ylabel("error after the best alignment", color=_INK)
    axes[0].legend(frameon=False, loc="lower left")
    figure.suptitle(
        "(c) The server alone, masked uploads: geometry of the rows from distances", fontsize=12, color=_INK
    )
    for axis in axes:
        axis.grid(True, color="#eceff3", zorder=0)
        for side in ("top", "right"):
            axis.spines[side].set_visible(False)
    return _save(figure, folder / "attacks-directions.png")


def _save(figure: Any, path: Path) -> Path:
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return path
