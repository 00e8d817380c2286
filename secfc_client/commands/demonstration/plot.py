"""A picture of the demo's outcome."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from secfc.errors import InvalidInput

TITLES = {
    "silhouette": ("Silhouette", "larger is better"),
    "calinski_harabasz": ("Calinski–Harabasz", "larger is better"),
    "davies_bouldin": ("Davies–Bouldin", "smaller is better"),
}


@dataclass(frozen=True)
class Curve:
    """Values along something that `words` name; what was taken is marked."""

    words: str
    along: list[int]
    values: list[float]
    taken: int | None = None


def pyplot() -> Any:
    """matplotlib's, without a display; InvalidInput where it is not installed."""
    try:
        import matplotlib
    except ImportError:
        raise InvalidInput("--plot needs matplotlib; install it with: pip install matplotlib") from None
    matplotlib.use("Agg")
    import matplotlib.pyplot

    return matplotlib.pyplot


def draw(path: Path, values: Any, labels: Any, outcome: dict[str, Any]) -> None:
    """Clusters in two principal components, beside inertia by round, or if there are several k, by k with the indices."""
    plt = pyplot()
    curves = _curves(outcome)
    figure, axes = plt.subplot_mosaic(_layout(list(curves)), figsize=(11, 4.5), layout="constrained")
    _clusters(axes["clusters"], values, labels, len(outcome["cluster_sizes"]))
    for name, curve in curves.items():
        _line(axes[name], name, curve)
    try:
        figure.savefig(path, dpi=120)
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{path}: the plot cannot be written ({error})") from None
    finally:
        plt.close(figure)


def _line(panel: Any, name: str, curve: Curve) -> None:
    panel.plot(curve.along, curve.values, marker="o", color="C0")
    if curve.taken is not None:
        panel.plot([curve.taken], [curve.values[curve.along.index(curve.taken)]], "o", color="C3", markersize=10)
    title, better = TITLES.get(name, (f"Inertia by {curve.words}", ""))
    panel.set(title=title, xlabel=curve.words, ylabel=better or "inertia")
    panel.xaxis.get_major_locator().set_params(integer=True)
    panel.grid(alpha=0.3)


def _layout(names: list[str]) -> list[list[str]]:
    """The clusters on the left, on the right one panel or two by two."""
    if len(names) == 1:
        return [["clusters", *names]]
    return [["clusters", "clusters", *row] for row in (names[:2], names[2:])]


def _clusters(panel: Any, values: Any, labels: Any, clusters: int) -> None:
    centred = values - values.mean(axis=0)
    axes_of_variance = np.linalg.svd(centred, full_matrices=False)[2][:2]
    flat = centred @ axes_of_variance.T
    second = flat[:, 1] if flat.shape[1] > 1 else np.zeros(len(flat))
    panel.scatter(flat[:, 0], second, c=labels, cmap="tab10" if labels.max() < 10 else "nipy_spectral", s=8, alpha=0.7)
    panel.set(title=f"{len(labels)} rows in {clusters} clusters", xlabel="first principal component")
    panel.set_ylabel("second principal component")


def _curves(outcome: dict[str, Any]) -> dict[str, Curve]:
    """What is drawn: of the best of every k all that is known of each, or the inertia that the requests brought."""
    if len(outcome["best_runs"]) > 1:
        return _by_k(outcome)
    history, runs, last = outcome["history"], outcome["runs"], outcome["rounds"]
    if len(runs) > 1:
        return {"inertia": Curve("request, the least of all starts", list(range(1, len(history) + 1)), history)}
    # sealed rounds open the inertia once, at the end
    return {"inertia": Curve("Lloyd round", list(range(last - len(history) + 1, last + 1)), history)}


def _by_k(outcome: dict[str, Any]) -> dict[str, Curve]:
    """Inertia, and with uploads that show the server distances the indices (one cluster alone has none)."""
    best = sorted((outcome["runs"][number] for number in outcome["best_runs"]), key=lambda run: int(run["k"]))
    ks, taken = [run["k"] for run in best], outcome["runs"][outcome["chosen_run"]]["k"]
    curves = {"inertia": Curve("k", ks, [run["inertia"] for run in best], taken)}
    known = {name: [run["indices"][name] for run in best] for name in TITLES}
    if any(value is not None for values in known.values() for value in values):
        curves |= {
            name: Curve("k", ks, [math.nan if one is None else one for one in values], taken)
            for name, values in known.items()
        }
    return curves
