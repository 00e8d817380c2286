"""A site's own rows, cluster by cluster."""

from __future__ import annotations

import csv
import stat
from pathlib import Path

import numpy as np
import pytest

from secfc.errors import DataError
from secfc_client import data, profile


def table_of(folder: Path, text: str) -> data.Table:
    (folder / "rows.csv").write_text(text)
    return data.load(folder / "rows.csv", feature_count=None)


def read(path: Path) -> list[list[str]]:
    with path.open(newline="") as file:
        return list(csv.reader(file))


def test_size_mean_and_deviation_of_every_cluster_that_has_rows_here(tmp_path: Path) -> None:
    rows = np.random.default_rng(2).normal(50, 20, (40, 2)).round(3)
    table = table_of(tmp_path, 'age,"b,mi"\n' + "".join(f"{a},{b}\n" for a, b in rows))
    labels = np.array([0, 3, 3, 5] * 10, dtype=np.int32)
    profile.write(tmp_path / "p.csv", table, labels)
    head, *lines = read(tmp_path / "p.csv")
    assert head == ["cluster", "rows", "age mean", "age deviation", "b,mi mean", "b,mi deviation"]
    assert [line[:2] for line in lines] == [["0", "10"], ["3", "20"], ["5", "10"]]
    for cluster, _, *values in lines:
        mine = rows[labels == int(cluster)]
        assert [float(v) for v in values] == pytest.approx(np.stack([mine.mean(0), mine.std(0)], 1).ravel(), rel=1e-8)
    assert stat.S_IMODE((tmp_path / "p.csv").stat().st_mode) == 0o600


def test_a_single_row_huge_values_and_no_rows(tmp_path: Path) -> None:
    lone = table_of(tmp_path, "x\n7\n")
    assert profile.profile(lone, np.zeros(1, np.int32)) == "cluster,rows,x mean,x deviation\n0,1,7,0\n"
    huge = table_of(tmp_path, "x\n1e300\n-1e300\n")
    assert profile.profile(huge, np.zeros(2, np.int32)).endswith("\n0,2,0,1e+300\n")
    empty = table_of(tmp_path, "x\n")
    assert profile.profile(empty, np.zeros(0, np.int32)) == "cluster,rows,x mean,x deviation\n"


def test_it_has_a_file_of_its_own(tmp_path: Path) -> None:
    out = tmp_path / "site.a.csv.gz"
    assert profile.beside(out) == tmp_path / "site.a.profile.csv"
    profile.preflight(profile.beside(out), out)
    with pytest.raises(DataError, match="written as CSV"):
        profile.preflight(tmp_path / "p.parquet", out)
    with pytest.raises(DataError, match="another result is written to this file"):
        profile.preflight(tmp_path / "." / "labels.csv", tmp_path / "labels.csv")
    with pytest.raises(DataError, match="does not exist; create it first"):
        profile.preflight(tmp_path / "none" / "p.csv", out)
