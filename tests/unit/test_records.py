"""What the server keeps of a job: every record comes back as it was written, and nothing else is taken for one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from secfc.kmeans.lloyd import State
from secfc.protocol.messages import Agreed, Introduction
from secfc.protocol.server import records
from secfc.protocol.server.asking import RequestRecord
from secfc.protocol.server.unionsums import Shown

INTRODUCTION = Introduction("a", 3, b"s" * 16, b"x" * 32, b"n" * 32, b"c" * 32, b"cert", b"sig", True, b"f" * 32)
RECORD = RequestRecord(1, "seed", 1, (0, 1, 2), 1, 2, None, 0.5, 0.1, 0.1, 0.1, 0.2, 4096, 7)
STATE = State("lloyd", 2, 1, False, np.array([-1, 0, 4], dtype=np.int32), "355/113")


def test_an_introduction() -> None:
    for one in (INTRODUCTION, replace(INTRODUCTION, name="ö", rows=0, keeps=False, signature=b"")):
        assert records.introduction_from(records.introduction_to(one)) == one


def test_a_signed_session() -> None:
    agreed = Agreed(b"signed", (b"", b"p" * 32))
    assert records.agreed_from(records.agreed_to(agreed)) == agreed


@pytest.mark.parametrize("left", [0, 1, 1 << 40])
def test_an_opened_sum(left: int) -> None:
    ids = np.array([[1, 2**63 + 5], [0, 3]], dtype=np.uint64)
    for shown in (Shown(left, ids), Shown(left, ids[:0])):
        again = records.shown_from(records.shown_to(shown))
        assert again.left == left
        np.testing.assert_array_equal(again.ids, shown.ids)


def test_where_a_clustering_stands() -> None:
    again = records.state_from(records.state_to(STATE))
    np.testing.assert_array_equal(again.labels, STATE.labels)
    assert replace(again, labels=STATE.labels) == STATE
    assert again.labels.dtype == np.int32


@pytest.mark.parametrize("record", [RECORD, replace(RECORD, inertia=0.1 + 0.2, responders=())])
def test_a_finished_request(record: RequestRecord) -> None:
    assert records.record_from(records.record_to(record)) == record


@pytest.mark.parametrize("names", [(), ("a",), ("b", "ö")])
def test_names(names: tuple[str, ...]) -> None:
    assert records.names_from(records.names_to(names)) == names


@pytest.mark.parametrize("value", [b"", b"{}", b"3", b"[1]", b'["a"', b"\xff"])
def test_what_is_no_record(value: bytes) -> None:
    """The journal vouches for every byte; what is left is a value of another version."""
    readers = (
        records.introduction_from,
        records.agreed_from,
        records.record_from,
        records.names_from,
        records.state_from,
    )
    for read in readers:
        with pytest.raises((ValueError, KeyError, TypeError)):
            read(value)


def test_what_is_kept_below_a_folder_comes_in_order() -> None:
    kept = {"record/000000010": b"10", "record/000000002": b"2", "recorded": b"no", "state": b"no"}
    assert list(records.below(kept, "record").items()) == [("000000002", b"2"), ("000000010", b"10")]
