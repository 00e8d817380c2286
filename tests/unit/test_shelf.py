"""Shares that are kept between submitted jobs: only for jobs of one kind, with fresh keys, and not for ever."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from secfc.agreement import job as jobs
from secfc.agreement import plan
from secfc.protocol.effects import Put
from secfc_client import shelf
from secfc_client.shelf import MOST_KINDS, Shelf
from secfc_client.store import Store
from tests.jobs import standing

NAME, ROWS = b"\1" * 32, np.arange(12, dtype=np.int64).reshape(6, 2)
JOB = 'k = 2\nstarts = 1\nfeatures = ["age", "weight"]\nbound = 16.0\nmax_rows = 100\n'


def begun(folder: Path) -> Store:
    """A job's folder in the middle of it, with shares of b that may last and of c that may not."""
    store = Store(folder)
    store.secrets(NAME, ROWS)
    owned = [Put(f"lasting/b/{'22' * 16}", b"b's"), Put(f"shares/c/{'33' * 16}", b"c's")]
    store.put([Put("joined", b""), Put("given", b"much"), Put("past", b"{}"), *owned])
    return store


def test_the_next_job_has_the_seed_and_what_may_last_and_nothing_else(tmp_path: Path) -> None:
    kept, first = Shelf(tmp_path), begun(tmp_path / "jobs" / "first")
    before = first.secrets(NAME, ROWS)
    assert not kept.lend(NAME, tmp_path / "jobs" / "other"), "there is nothing yet"
    (first.folder / f"labels-{'11' * 16}.kept").write_bytes(b"of the first job")
    kept.give_back(NAME, first)
    assert not first.folder.exists()
    (left,) = (tmp_path / "shares").iterdir()
    assert sorted(path.name for path in left.iterdir()) == ["b.lasting", "secrets.json"]
    second = Store(tmp_path / "jobs" / "second")
    assert kept.lend(NAME, second.folder)
    after = second.secrets(NAME, ROWS)
    assert after.seed == before.seed
    assert second.resumed
    fresh = (after.nonce != before.nonce, after.coin != before.coin, after.public != before.public)
    assert fresh == (True, True, True), "what serves one session serves no other"
    assert second.kept() == {}
    assert second.get(f"lasting/b/{'22' * 16}") == b"b's"
    assert second.get(f"lasting/c/{'33' * 16}") is None
    assert not kept.lend(NAME, tmp_path / "jobs" / "third"), "no two jobs have it at once"


def test_other_rows_are_shared_with_another_seed(tmp_path: Path) -> None:
    kept, first = Shelf(tmp_path), begun(tmp_path / "jobs" / "first")
    seed = first.secrets(NAME, ROWS).seed
    kept.give_back(NAME, first)
    second = Store(tmp_path / "jobs" / "second")
    kept.lend(NAME, second.folder)
    assert second.secrets(NAME, ROWS + 1).seed != seed
    assert not second.resumed


def test_a_job_that_goes_on_has_its_folder_already(tmp_path: Path) -> None:
    kept = Shelf(tmp_path)
    kept.give_back(NAME, begun(tmp_path / "jobs" / "first"))
    second = begun(tmp_path / "jobs" / "second")
    assert not kept.lend(NAME, second.folder)
    assert second.begun


def test_the_disk_does_not_fill(tmp_path: Path) -> None:
    kept = Shelf(tmp_path)
    for number in range(MOST_KINDS + 3):
        kept.give_back(bytes([number]) * 32, begun(tmp_path / "jobs" / f"job-{number}"))
        os.utime(tmp_path / "shares" / (bytes([number]) * 16).hex(), (number, number))
    left = sorted(path.name for path in (tmp_path / "shares").iterdir())
    assert left == [(bytes([number]) * 16).hex() for number in range(3, MOST_KINDS + 3)]
    kept.forget(b"\4" * 32)
    assert not kept.lend(b"\4" * 32, tmp_path / "jobs" / "x")
    kept.forget()
    assert not (tmp_path / "shares").exists()
    kept.forget()


@pytest.mark.parametrize(
    ("change", "same"),
    [
        (("k = 2", "k = [2, 3]"), True),
        (("starts = 1", 'starts = 9\nseeding = "random"\nmax_rounds = 3'), True),
        (('"weight"', '"height"'), False),
        (("16.0", "17.0"), False),
        (("max_rows = 100", "max_rows = 900000"), False),  # another field
        (("k = 2", "k = 2\nsegments = 1\nprecision = 3"), False),
    ],
)
def test_which_jobs_are_of_one_kind(change: tuple[str, str], same: bool) -> None:
    def kind(text: str, dataset: str = "patients", sites: tuple[str, ...] = ("a", "b", "c")) -> bytes:
        made = standing().running(jobs.parse(text, "job"), sites, b"")
        return shelf.kind(dataset, made, plan.of(made))

    assert (kind(JOB) == kind(JOB.replace(*change))) is same
    assert kind(JOB) != kind(JOB, "others")
    assert kind(JOB) == kind(JOB, sites=("a", "b", "c"))
