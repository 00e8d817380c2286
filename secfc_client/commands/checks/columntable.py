"""What a site's columns look like, and what they are used for: a line of `secfc check --data` each, under one another."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from secfc.agreement.job import Job
from secfc_client.commands.checks.verdicts import OK, WARN, Verdict
from secfc_client.datasets import description
from secfc_client.datasets.description import Column
from secfc_client.datasets.formats.base import check_names, shown

MOST_OTHERS = 30  # columns shown that are not used
FEATURE, ID, KEPT = "feature", "id", "kept, not used"
FEW = "few values"  # `data values` says what that means


def verdicts(path: Path, rows: pa.Table, job: Job, id_column: str | None) -> list[Verdict]:
    """Type, ends, distinct and missing values of every column, what it is used for, and what is odd about it. Raises
    DataError if two columns have one name."""
    check_names(path, rows.column_names)
    features = {feature.name for feature in job.agreed} or set(job.feature_names or ())
    uses = [
        ID if name == id_column else FEATURE if name in features or not features else KEPT for name in rows.column_names
    ]
    shown_too = [name for name, use in zip(rows.column_names, uses, strict=True) if use == KEPT][:MOST_OTHERS]
    names = [name for name, use in zip(rows.column_names, uses, strict=True) if use != KEPT or name in shown_too]
    found = description.described(path, rows.select(names))
    told = [_cells(one, uses[rows.column_names.index(one.name)]) for one in found]
    widths = [max(map(len, cells)) for cells in zip(*told, strict=True)]
    results = [_verdict(one, cells, widths) for one, cells in zip(found, told, strict=True)]
    if left := len(uses) - len(names):
        results.append(Verdict("columns", OK, f"{left} more, which are kept and not used"))
    return results


def _cells(one: Column, use: str) -> tuple[str, ...]:
    ends = f"{one.least:g} to {one.most:g}" if one.least is not None and one.most is not None else ""
    remark = "" if use == ID else one.remark or (FEW if use == FEATURE and one.few else "")
    return one.kind, ends, f"{one.distinct} distinct", f"{one.missing} missing", use, remark


def _verdict(one: Column, cells: tuple[str, ...], widths: list[int]) -> Verdict:
    kind, ends, distinct, missing, use, remark = cells
    left = [kind.ljust(widths[0]), ends.ljust(widths[1])] if widths[1] else [kind.ljust(widths[0])]
    counts = [distinct.rjust(widths[2]), missing.rjust(widths[3])]
    line = "  ".join([*left, *counts, use.ljust(widths[4]), remark]).rstrip()
    return Verdict(f"column {shown(one.name)}", WARN if one.remark and use == FEATURE else OK, line)
