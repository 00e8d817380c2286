"""Labels of finished jobs stay in the state folder until a person removes them."""

from __future__ import annotations

import stat
import time
from pathlib import Path

import numpy as np
import pytest

from secfc.errors import ConfigError
from secfc_client import data, keptlabels
from secfc_client.keptlabels import KeptLabels

LABELS = np.array([2, 0, 1], np.int32)
IDS = np.arange(6, dtype=np.uint64).reshape(3, 2)


def test_the_last_labels_of_the_very_same_rows_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter((3.0, 5.0, 4.0))
    monkeypatch.setattr(time, "time", lambda: next(now))
    keptlabels.keep(tmp_path, KeptLabels(b"a" * 32, "mine", LABELS, None))
    keptlabels.keep(tmp_path, KeptLabels(b"b" * 32, "mine", LABELS[::-1], IDS))
    keptlabels.keep(tmp_path, KeptLabels(b"c" * 32, "other", LABELS, None))
    kept = keptlabels.latest(tmp_path, "mine")
    assert kept is not None
    assert (kept.session, kept.labels.tolist()) == (b"b" * 32, [1, 0, 2])
    assert kept.ids is not None
    assert kept.ids.tolist() == IDS.tolist()
    first = keptlabels.of_session(tmp_path, b"a" * 32)
    assert first is not None
    assert (first.labels.tolist(), first.ids) == ([2, 0, 1], None)
    assert keptlabels.latest(tmp_path, "none") is None
    assert keptlabels.of_session(tmp_path, b"d" * 32) is None
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}


def test_no_rows_have_labels_too(tmp_path: Path) -> None:
    keptlabels.keep(tmp_path, KeptLabels(b"a" * 32, "mine", LABELS[:0], IDS[:0]))
    kept = keptlabels.latest(tmp_path, "mine")
    assert kept is not None
    assert (len(kept.labels), kept.ids is not None) == (0, True)


@pytest.mark.parametrize("size", [0, 10, 40, -1])
def test_a_damaged_file_is_told(tmp_path: Path, size: int) -> None:
    keptlabels.keep(tmp_path, KeptLabels(b"a" * 32, "mine", LABELS, None))
    [path] = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(ConfigError, match="damaged, so its labels are lost here; remove it"):
        keptlabels.latest(tmp_path, "mine")


def test_a_table_is_known_by_its_rows_in_their_order(tmp_path: Path) -> None:
    def key(text: str) -> str:
        (tmp_path / "rows.csv").write_text(text)
        return keptlabels.table_key(data.load(tmp_path / "rows.csv", feature_count=None, id_column="id"))

    assert key("id,x\na,1\nb,2\n") == key("id,x\na,1.0\nc,2\n")
    assert key("id,x\na,1\nb,2\n") != key("id,x\nb,2\na,1\n")
    assert key("id,x\na,1\nb,2\n") != key("id,y\na,1\nb,2\n")
