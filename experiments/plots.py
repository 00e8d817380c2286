"""The plots: one function a figure, all in one style, as small PNGs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

Row = dict[str, Any]
COLOURS = {"central": "#4c72b0", "kfed": "#dd8452", "secfc": "#55a868", "paper": "#333333"}
NAMES = {"central": "central Lloyd", "kfed": "k-FED", "secfc": "SecFC"}
_STYLE = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "axes.axisbelow": True,
    "legend.frameon": False,
}
DPI = 110


def _pyplot() -> Any:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    pyplot.rcParams.update(_STYLE)
    return pyplot


def _save(figure: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=DPI, metadata={"Software": None})
    _pyplot().close(figure)


def accuracies(rows: Sequence[Row], title: str, path: Path) -> None:
    """Bars of accuracy by k′, one panel a setting; a black mark is the paper's figure."""
    settings = list(dict.fromkeys(row["setting"] for row in rows))
    figure, panels = _pyplot().subplots(
        1, len(settings), figsize=(4.2 * len(settings), 3.2), sharey=True, squeeze=False, layout="constrained"
    )
    for panel, setting in zip(panels[0], settings, strict=True):
        _bars(panel, [row for row in rows if row["setting"] == setting])
        panel.set_title(setting)
    panels[0][0].set_ylabel("accuracy, %")
    handles, names = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=len(names))
    figure.suptitle(title, fontsize=10)
    _save(figure, path)


def _bars(panel: Any, rows: Sequence[Row]) -> None:
    most = list(dict.fromkeys(row["most"] for row in rows))
    for offset, (method, name) in enumerate(NAMES.items()):
        own = [row for row in rows if row["method"] == method]
        at = np.arange(len(own)) + 0.27 * (offset - 1)
        error = {"elinewidth": 1, "ecolor": "#666666", "capsize": 2}
        panel.bar(
            at,
            [row["mean"] for row in own],
            0.25,
            color=COLOURS[method],
            label=name,
            yerr=[row["std"] for row in own],
            error_kw=error,
        )
        told = [(x, row["paper_mean"]) for x, row in zip(at, own, strict=True) if row["paper_mean"] is not None]
        if told:
            label = "the paper's figure" if offset == 0 else None
            panel.plot(
                *zip(*told, strict=True), "_", color=COLOURS["paper"], markersize=15, markeredgewidth=2, label=label
            )
    panel.set_xticks(range(len(most)), [f"k′ = {one}" for one in most])
    panel.set_ylim(0, 105)
    panel.grid(visible=False, axis="x")


def settings(rows: Sequence[Row], path: Path) -> None:
    """k-FED's accuracy at k′ = k by setting, one panel a mixture; the dashed line is the paper's figure."""
    widest = [row for row in rows if row["most"] == row["k"]]
    panels_of = list(dict.fromkeys((row["sigma"], row["k"]) for row in widest))
    figure, panels = _pyplot().subplots(
        1, len(panels_of), figsize=(1.6 + 2.3 * len(panels_of), 3.6), sharey=True, squeeze=False, layout="constrained"
    )
    for panel, (sigma, k) in zip(panels[0], panels_of, strict=True):
        own = [row for row in widest if (row["sigma"], row["k"]) == (sigma, k)][::-1]
        names = [row["variant"] for row in own]
        colours = ["#999999" if name in ("chance", "other order") else COLOURS["kfed"] for name in names]
        panel.barh(names, [row["mean"] for row in own], xerr=[row["std"] for row in own], color=colours,
                   error_kw={"elinewidth": 1, "ecolor": "#666666"})  # fmt: skip
        if own[0]["paper_mean"] is not None:
            panel.axvline(own[0]["paper_mean"], color=COLOURS["paper"], linestyle="--", linewidth=1.2)
        panel.set_title(f"σ = {sigma:g}, k = k′ = {k}", fontsize=9)
        panel.set_xlim(0, 105)
        panel.grid(visible=False, axis="y")
    figure.suptitle("k-FED at k′ = k (%), by setting; dashed: the paper's figure", fontsize=10)
    _save(figure, path)
