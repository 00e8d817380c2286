"""The plots: one function a figure, all in one style, as small PNGs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

Row = dict[str, Any]
COLOURS = {
    "central": "#4c72b0",
    "central10": "#9db3d6",
    "kfed": "#dd8452",
    "uifca": "#8172b3",
    "secfc": "#55a868",
    "secfc10": "#a3d0ae",
    "paper": "#333333",
}
NAMES = {
    "central": "central Lloyd",
    "central10": "central Lloyd, 10 starts",
    "kfed": "k-FED",
    "uifca": "UIFCA",
    "secfc": "SecFC",
    "secfc10": "SecFC, 10 starts",
}
_STYLE: dict[Any, Any] = {
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
        1, len(settings), figsize=(4.8 * len(settings), 3.4), sharey=True, squeeze=False, layout="constrained"
    )
    for panel, setting in zip(panels[0], settings, strict=True):
        _bars(panel, [row for row in rows if row["setting"] == setting])
        panel.set_title(setting)
    panels[0][0].set_ylabel("accuracy, %")
    handles, names = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=4)
    figure.suptitle(title, fontsize=10)
    _save(figure, path)


_BAR = 0.84 / len(NAMES)


def _bars(panel: Any, rows: Sequence[Row]) -> None:
    most = list(dict.fromkeys(row["most"] for row in rows))
    for offset, (method, name) in enumerate(NAMES.items()):
        own = [row for row in rows if row["method"] == method]
        at = np.arange(len(own)) + _BAR * (offset - (len(NAMES) - 1) / 2)
        error = {"elinewidth": 1, "ecolor": "#666666", "capsize": 2}
        panel.bar(
            at,
            [row["mean"] for row in own],
            0.9 * _BAR,
            color=COLOURS[method],
            label=name,
            yerr=[row["std"] for row in own],
            error_kw=error,
        )
        told = [(x, row["paper_mean"]) for x, row in zip(at, own, strict=True) if row["paper_mean"] is not None]
        if told:
            label = "the paper's figure" if offset == 0 else None
            panel.plot(
                *zip(*told, strict=True), "_", color=COLOURS["paper"], markersize=8, markeredgewidth=2, label=label
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


_LINES = {
    "client_round_s": ("#55a868", "o-"),
    "client_masked_round_s": ("#55a868", "s--"),
    "server_s": ("#4c72b0", "o-"),
    "kfed_s": ("#dd8452", "o-"),
    "network_round_s": ("#8172b3", "D:"),
}


def run_times(rows: Sequence[Row], parts: dict[str, str], paper: float, path: Path) -> None:
    """Seconds against n, d and m, both axes logarithmic, with the paper's upper limit as a line."""
    sweeps = list(dict.fromkeys(row["sweep"] for row in rows))
    figure, panels = _pyplot().subplots(
        1, len(sweeps), figsize=(3.3 * len(sweeps), 3.6), sharey=True, squeeze=False, layout="constrained"
    )
    for panel, sweep in zip(panels[0], sweeps, strict=True):
        own = [row for row in rows if row["sweep"] == sweep]
        for name, title in parts.items():
            known = [(row[sweep], row[name]) for row in own if row.get(name) is not None]
            colour, line = _LINES[name]
            if known:
                panel.plot(*zip(*known, strict=True), line, color=colour, markersize=4, linewidth=1.3, label=title)
        panel.axhline(paper, color=COLOURS["paper"], linestyle="--", linewidth=1, label=f"the paper: < {paper:g} s")
        panel.set(xscale="log", yscale="log", xlabel=sweep)
        _plain_ticks(panel, [row[sweep] for row in own])
    panels[0][0].set_ylabel("seconds")
    by_name = {
        name: handle for panel in panels[0] for handle, name in zip(*panel.get_legend_handles_labels(), strict=True)
    }
    figure.legend(by_name.values(), by_name.keys(), loc="outside lower center", ncols=3)
    figure.suptitle("SecFC an iteration, k-FED all of it", fontsize=10)
    _save(figure, path)


def _plain_ticks(panel: Any, values: Sequence[int]) -> None:
    panel.set_xticks(values, [f"{value // 1000}k" if value >= 10000 else str(value) for value in values])
    panel.minorticks_off()


def peers(rows: Sequence[Row], path: Path) -> None:
    """Seconds an iteration, one panel a size, logarithmic."""
    sizes = list(dict.fromkeys(row["size"] for row in rows))
    figure, panels = _pyplot().subplots(
        1, len(sizes), figsize=(1.8 + 3.4 * len(sizes), 3.0), sharey=True, squeeze=False, layout="constrained"
    )
    for panel, size in zip(panels[0], sizes, strict=True):
        own = [row for row in rows if row["size"] == size and row["seconds"] is not None][::-1]
        colours = [COLOURS["secfc"] if row["peer"].startswith("SecFC") else "#999999" for row in own]
        bars = panel.barh([row["peer"] for row in own], [row["seconds"] for row in own], color=colours)
        panel.bar_label(bars, [seconds_text(row["seconds"]) for row in own], padding=3, fontsize=8)
        panel.set(xscale="log", title=size, xlabel="seconds an iteration (k-FED: all of it)")
        panel.margins(x=0.25)
        panel.grid(visible=False, axis="y")
    _save(figure, path)


def seconds_text(value: float) -> str:
    """Three digits and a fitting unit."""
    return f"{value:.3g} s" if value >= 1 else f"{1000 * value:.3g} ms"


def growth(series: dict[str, list[Row]], figures: dict[str, str], path: Path) -> None:
    """Every figure against rows, and against clients, on logarithmic axes."""
    figure, panels = _pyplot().subplots(2, len(series), figsize=(4.2 * len(series), 5.6), squeeze=False, layout="tight")
    for column, (by, rows) in enumerate(series.items()):
        for name, label in figures.items():
            axes = panels[int("_m" in name)][column]
            axes.loglog([row[by] for row in rows], [row[name] for row in rows], marker="o", markersize=3, label=label)
        for line in (0, 1):
            panels[line][column].set_xlabel(by)
            panels[line][column].legend(fontsize=7)
    _save(figure, path)
