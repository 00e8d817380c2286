"""A site's report: one HTML file with what was asked, what its own rows are like by cluster, and what was given away.

It has this site's own rows in it (means, and a picture of some of them), so like the labels it is for its owner only.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import numpy.typing as npt

from secfc import __version__, atomicfile, limits, textfile
from secfc.agreement.federation import Federation
from secfc.agreement.uploads import MEANING
from secfc.errors import DataError
from secfc.kmeans.distances import Labels
from secfc.web import jobreport, svg
from secfc.web.document import Document
from secfc.web.jobreport import Result
from secfc_client.budget import Entry
from secfc_client.data import Table
from secfc_client.datasets.formats import suffix_of
from secfc_client.profile import means_by_cluster

MOST_POINTS = 1500
_CURE = "make room there, choose another --report, or leave it out with --no-report"


def beside(out: Path) -> Path:
    """Where it goes if nobody says otherwise: labels.csv has its report in labels.report.html."""
    return out.with_name(out.name[: -len(suffix_of(out))] + ".report.html")


def preflight(path: Path, *others: Path) -> None:
    """Fail now, not after a long job, if the report could not be written."""
    if not path.name.lower().endswith(".html"):
        raise DataError(f"{path}: the report is written as HTML; choose a --report file that ends with .html")
    if path.resolve() in [other.resolve() for other in others]:
        raise DataError(f"{path}: another result is written to this file; choose another --report")
    textfile.preflight(path, _CURE)


def write(path: Path, html: str) -> None:
    """Replace the file; like the labels, it is for its owner only."""
    try:
        atomicfile.write(path, [html.encode()])
    except OSError as error:
        raise limits.failure(error, f"{path}: cannot be written", _CURE) from None


def report(
    federation: Federation,
    party: str,
    session: bytes,
    table: Table,
    labels: Labels,
    given: Entry | None,
    result: Result | None = None,
    origin: Sequence[tuple[str, str]] = (),
) -> str:
    """The HTML text. `session`: empty if it is not known any more; `result`: what the server has written, if it
    is at hand; `origin`: who asked for a submitted job."""
    document = Document(f"{federation.name}: clusters at {party}")
    document.paragraph(
        f"Written {datetime.now(UTC):%Y-%m-%d %H:%M} UTC by SecFC {__version__}. It shows rows of {party}: keep it there."
    )
    _asked(document, federation, table, origin)
    _own(document, table, labels)
    if result is not None:
        jobreport.sections(document, result)
    else:
        document.section("What the server has learnt").paragraph(MEANING[federation.uploads])
    _given(document, given)
    document.section("Versions and digests").facts(
        [
            ("SecFC", __version__),
            ("federation and job", federation.agreed().hex()),
            ("job", federation.job.digest().hex()),
            *([("submission", federation.submission.hex())] if federation.submission else []),
            *([("session", session.hex())] if session else []),
        ]
    )
    return document.html()


def _asked(document: Document, federation: Federation, table: Table, origin: Sequence[tuple[str, str]]) -> None:
    job = federation.job
    document.section("What was asked").facts(
        [
            ("federation", f"{federation.name}: {federation.n} sites and a server"),
            *(origin or [("agreed by", "every party, in federation.toml (digest below)")]),
            ("clusters", ", ".join(map(str, job.ks)) + f"; {job.starts} start(s) each, seeding {job.seeding}"),
            ("features", f"{len(table.feature_names)}: {', '.join(table.feature_names)}"),
            ("uploads", federation.uploads),
            ("privacy", f"t = {federation.privacy}; membership {job.membership}"),
        ]
    )


def _own(document: Document, table: Table, labels: Labels) -> None:
    if not len(table):
        document.section("This site's rows per cluster")
        document.paragraph("This site took part without rows.")
        return
    clusters, sizes, means = means_by_cluster(table.filled, labels)
    names = [str(cluster) for cluster in clusters.tolist()]
    document.section("This site's rows per cluster")
    document.raw(
        svg.bars(
            "Own rows per cluster", sizes.tolist(), names, f"{sizes.max():,} of {len(table):,} rows in the largest"
        )
    )
    document.table(
        ["Cluster", "Own rows"], [(name, f"{size:,}") for name, size in zip(names, sizes.tolist(), strict=True)]
    )
    document.section("What they are like: means by cluster")
    document.paragraph(
        "Colour: how far a cluster's mean is from the mean of all clusters here, in deviations between clusters."
    )
    document.heat(["Feature", *names], [_heat_row(*one) for one in zip(table.feature_names, means.T, strict=True)])
    if len(table) > 2 and table.features.shape[1] > 1:
        _picture(document, table.filled, labels)


def _heat_row(name: str, means: npt.NDArray[np.float64]) -> tuple[str, list[tuple[str, int]]]:
    scale = np.abs(means).max(initial=0.0) or 1.0
    scaled = means / scale
    deviation = scaled.std() or 1.0
    shades = np.clip(np.rint(2 * (scaled - scaled.mean()) / deviation), -4, 4).astype(int)
    return name, [(f"{mean:.4g}", shade) for mean, shade in zip(means.tolist(), shades.tolist(), strict=True)]


def _picture(document: Document, features: npt.NDArray[np.float64], labels: Labels) -> None:
    """The two principal components of evenly spread rows, each feature scaled to the same deviation."""
    chosen = slice(None, None, max(1, -(-len(features) // MOST_POINTS)))
    rows = features[chosen] / (np.abs(features[chosen]).max(axis=0) + np.finfo(float).tiny)
    rows = rows - rows.mean(axis=0)
    rows /= np.where((deviation := rows.std(axis=0)) > 0, deviation, 1.0)
    _, singular, axes = np.linalg.svd(rows, full_matrices=False)
    share = float((singular[:2] ** 2).sum() / max((singular**2).sum(), np.finfo(float).tiny))
    document.section("A picture of this site's rows")
    document.paragraph(
        f"{len(rows):,} of {len(features):,} rows along their two principal axes, which hold {share:.0%} of the spread."
    )
    document.raw(svg.scatter("Own rows by cluster along two principal axes", rows @ axes[:2].T, labels[chosen]))


def _given(document: Document, given: Entry | None) -> None:
    if given is None:
        return
    document.section("What these rows have given away, over all jobs").facts(
        [
            ("directions of distances, to the server", f"at most {given.directions} of {given.features}"),
            ("assignments of all rows, to all parties", f"{given.assignments:,}"),
            ("inertias opened", f"{given.inertias:,}"),
        ]
    )
