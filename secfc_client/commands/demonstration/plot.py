"""A picture of the demo's outcome."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from secfc.errors import InvalidInput


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
    """Clusters in two principal components, beside inertia by round, or by k if there are several."""
    plt = pyplot()
    centred = values - values.mean(axis=0)
    axes_of_variance = np.linalg.svd(centred, full_matrices=False)[2][:2]
    flat = centred @ axes_of_variance.T
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.5), layout="constrained")
    second = flat[:, 1] if flat.shape[1] > 1 else np.zeros(len(flat))
    left.scatter(flat[:, 0], second, c=labels, cmap="tab10" if labels.max() < 10 else "nipy_spectral", s=8, alpha=0.7)
    left.set(
        title=f"{len(labels)} rows in {len(outcome['cluster_sizes'])} clusters", xlabel="first principal component"
    )
    left.set_ylabel("second principal component")
    along, inertia, words = _inertia(outcome)
    right.plot(along, inertia, marker="o")
    right.set(title=f"Inertia by {words}", xlabel=words, ylabel="inertia")
    right.xaxis.get_major_locator().set_params(integer=True)
    right.grid(alpha=0.3)
    try:
        figure.savefig(path, dpi=120)
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{path}: the plot cannot be written ({error})") from None
    finally:
        plt.close(figure)


def _inertia(outcome: dict[str, Any]) -> tuple[list[int], list[float], str]:
    """What is drawn against what: the best of every k, or what the requests brought."""
    best, history = [outcome["runs"][number] for number in outcome["best_runs"]], outcome["history"]
    if len(best) > 1:
        found = sorted((run["k"], run["inertia"]) for run in best)
        return [k for k, _ in found], [inertia for _, inertia in found], "k"
    if len(outcome["runs"]) > 1:
        return list(range(1, len(history) + 1)), history, "request, the least of all starts"
    last = outcome["rounds"]  # sealed rounds open the inertia once, at the end
    return list(range(last - len(history) + 1, last + 1)), history, "Lloyd round"
