"""Files that are there as a whole or not at all, and where centres may be written."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from secfc import textfile
from secfc.errors import ConfigError, DataError
from secfc_client import data


def test_a_file_is_replaced_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    for text in ("first\n", "second, ä\n"):
        textfile.write(path, text, "do otherwise")
        assert path.read_text(encoding="utf-8") == text
    assert list(tmp_path.iterdir()) == [path]
    textfile.remove(path, "do otherwise")
    textfile.remove(path, "do otherwise")
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_written_or_removed_is_one_line_with_a_cure(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot be written .*; do otherwise$"):
        textfile.write(tmp_path / "no such folder" / "a.csv", "", "do otherwise")
    with pytest.raises(ConfigError, match=r"cannot be removed .*; do otherwise$"):
        textfile.remove(tmp_path, "do otherwise")


def test_a_file_of_results_is_as_readable_as_any_other(tmp_path: Path) -> None:
    old = os.umask(0o022)
    try:
        textfile.write(tmp_path / "a.csv", "", "do otherwise")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "a.csv").stat().st_mode) == 0o644


def test_centres_go_to_a_csv_file_of_their_own(tmp_path: Path) -> None:
    out = tmp_path / "labels.csv"
    data.preflight_centers(tmp_path / "centers.csv", out)
    with pytest.raises(DataError, match="written as CSV"):
        data.preflight_centers(tmp_path / "centers.parquet", out)
    with pytest.raises(DataError, match="is also the file of the labels"):
        data.preflight_centers(tmp_path / "." / "labels.csv", out)
    with pytest.raises(DataError, match="does not exist; create it first"):
        data.preflight_centers(tmp_path / "none" / "centers.csv", out)
