"""result.json: what a later job leaves of an earlier one's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from secfc_server import result


def test_a_job_that_fails_leaves_the_result_of_a_finished_one(tmp_path: Path) -> None:
    """Say its clients did not come: result.json was all there was of the job before."""
    path = tmp_path / result.FILE
    result.write(path, {"state": "finished", "inertia": 1.5})
    for reason in ("too late", "too late again"):
        result.write(path, {"state": "failed", "reason": reason})
        assert json.loads(path.read_text()) == {"state": "failed", "reason": reason}
        assert json.loads((tmp_path / result.KEPT).read_text()) == {"state": "finished", "inertia": 1.5}


def test_a_finished_job_takes_the_place_of_any_other(tmp_path: Path) -> None:
    path = tmp_path / result.FILE
    for before in ({"state": "failed"}, {"state": "finished", "inertia": 1.5}):
        result.write(path, before)
        result.write(path, {"state": "finished", "inertia": 2.5})
        assert json.loads(path.read_text())["inertia"] == 2.5
        assert not (tmp_path / result.KEPT).exists()


@pytest.mark.parametrize("before", [b"", b"[1]", b"{", b"\xff"])
def test_what_is_no_result_is_replaced(tmp_path: Path, before: bytes) -> None:
    path = tmp_path / result.FILE
    path.write_bytes(before)
    result.write(path, {"state": "failed"})
    assert json.loads(path.read_text()) == {"state": "failed"}
    assert [one.name for one in tmp_path.iterdir()] == [result.FILE]
