"""Small charts as SVG text, for files that people open without a server. Every text is escaped; colours are classes."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
W, H, EDGE, BOTTOM, TOP = 460, 190, 10, 22, 18
SHADES = 10  # colours of clusters; the number of each stands at its middle


def _drawing(label: str, inner: Sequence[str], height: int = H) -> str:
    return f'<svg viewBox="0 0 {W} {height}" role="img" aria-label="{escape(label)}">{"".join(inner)}</svg>'


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def lines(label: str, series: Sequence[Sequence[tuple[float, float]]], top: str) -> str:
    """Polylines over common axes; each point is (x, y)."""
    points = np.array([point for one in series for point in one], dtype=np.float64)
    low, high = points.min(axis=0), points.max(axis=0)
    spread = np.where(high > low, high - low, 1.0)
    size = np.array([W - 2 * EDGE, H - BOTTOM - TOP - 8])
    out = [f'<line class="axis" x1="{EDGE}" x2="{W - EDGE}" y1="{H - BOTTOM}" y2="{H - BOTTOM}"/>']
    for number, one in enumerate(series):
        at = (np.array(one, dtype=np.float64) - low) / spread * size
        places = [(EDGE + x, H - BOTTOM - 4 - y) for x, y in at]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        out.append(f'<polyline class="line s{number % SHADES}" points="{path}"/>')
        out += [f'<circle class="f{number % SHADES}" cx="{x:.1f}" cy="{y:.1f}" r="2.2"/>' for x, y in places[:80]]
    ends = [_text(EDGE, H - 6, f"{low[0]:g}"), _text(W - EDGE, H - 6, f"{high[0]:g}", "end"), _text(EDGE, 12, top)]
    return _drawing(label, out + ends)


def bars(label: str, values: Sequence[float], names: Sequence[str], top: str) -> str:
    """One bar per name."""
    highest, step = max(*values, 1e-12) if len(values) > 1 else max(values[0], 1e-12), (W - 2 * EDGE) / len(values)
    wide = min(0.8 * step, 44)
    out = [
        f'<line class="axis" x1="{EDGE}" x2="{W - EDGE}" y1="{H - BOTTOM}" y2="{H - BOTTOM}"/>',
        _text(EDGE, 12, top),
    ]
    for place, (value, name) in enumerate(zip(values, names, strict=True)):
        tall, x = (H - BOTTOM - TOP) * value / highest, EDGE + step * place + (step - wide) / 2
        box = f'x="{x:.1f}" y="{H - BOTTOM - tall:.1f}" width="{wide:.1f}" height="{tall:.1f}"'
        out.append(f'<rect class="f{place % SHADES}" {box}/>')
        if len(values) <= 24:
            out.append(_text(x + wide / 2, H - 6, name, "middle"))
    return _drawing(label, out)


def scatter(label: str, points: Floats, clusters: npt.NDArray[np.int32]) -> str:
    """Points in the plane by cluster, with each cluster's number at its mean."""
    tall, low, high = 340, points.min(axis=0), points.max(axis=0)
    spread = np.where(high > low, high - low, 1.0)
    at = (points - low) / spread * np.array([W - 2 * EDGE, tall - 2 * EDGE]) + EDGE
    out = []
    for cluster in np.unique(clusters):
        own = at[clusters == cluster]
        dots = "".join(f"M{x:.1f} {tall - y:.1f}h0" for x, y in own)  # one path per cluster: files stay small
        out.append(f'<path class="dots s{cluster % SHADES}" d="{dots}"/>')
    for cluster in np.unique(clusters):
        x, y = at[clusters == cluster].mean(axis=0)
        out.append(f'<circle class="halo" cx="{x:.1f}" cy="{tall - y:.1f}" r="9"/>')
        out.append(_text(x, tall - y + 4, str(cluster), "middle"))
    return _drawing(label, out, tall)
