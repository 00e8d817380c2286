"""The server's journal: what is written is there after a crash, and nothing else is believed."""

from __future__ import annotations

import sqlite3
import stat
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from secfc.errors import ConfigError, StorageError, Unavailable
from secfc.events import Agreed, CentersPart, Chunk, Introduction
from secfc.lloyd import State
from secfc.lock import Lock
from secfc_server.journal import FILE, Journal
from secfc_server.rounds import RoundRecord

DIGEST = bytes(32)
ONE = Introduction("a", 3, b"s" * 16, b"x" * 32, b"n" * 32, b"c" * 32, b"cert", b"sig")
TWO = Introduction("b", 0, b"t" * 16, b"y" * 32, b"m" * 32, b"c" * 32, b"cert", b"sig")
AGREED = Agreed(b"signed", (b"", b"p" * 32))
RECORD = RoundRecord(1, "seed", 1, (0, 1, 2), 1, 2, None, 0.5, 0.1, 0.1, 0.1, 0.2, 4096)
STATE = State("lloyd", 2, 1, False, np.array([-1, 0, 4], dtype=np.int32))


def test_what_is_written_is_there_for_the_next_process(tmp_path: Path) -> None:
    first = Journal(tmp_path, DIGEST)
    assert first.begin().epoch == 1
    first.joined((ONE, TWO))
    first.advanced(STATE, RECORD)
    first.done("b")
    first.agreed("a", AGREED)
    first.agreed("a", Agreed(b"another", (b"",)))
    first.revealed("a", b"heads")
    first.revealed("a", b"tails")
    # no close: a killed process does not close either
    kept = Journal(tmp_path, DIGEST).begin()
    assert (kept.coins, kept.epoch) == ({"a": b"tails"}, 2)
    assert kept.introductions == {"a": ONE, "b": TWO}
    assert kept.agreed == {"a": AGREED}
    assert kept.done == {"b"}
    assert kept.records == [RECORD]
    assert kept.state is not None
    assert (kept.state.phase, kept.state.number, kept.state.rounds, kept.state.converged) == ("lloyd", 2, 1, False)
    np.testing.assert_array_equal(kept.state.labels, STATE.labels)


def test_a_fresh_journal_knows_nothing_and_is_the_owners_only(tmp_path: Path) -> None:
    kept = Journal(tmp_path / "state", DIGEST).begin()
    assert (kept.introductions, kept.state, kept.records, kept.done, kept.coins) == ({}, None, [], frozenset(), {})
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "state" / FILE).stat().st_mode) == 0o600


def test_a_roster_once_written_does_not_change(tmp_path: Path) -> None:
    journal = Journal(tmp_path, DIGEST)
    journal.joined((ONE,))
    journal.joined((Introduction("a", 9, b"z" * 16, b"x" * 32, b"n" * 32, b"c" * 32, b"cert", b"sig"),))
    assert journal.begin().introductions == {"a": ONE}


def test_another_federation_is_refused_and_remove_makes_room(tmp_path: Path) -> None:
    Journal(tmp_path, DIGEST).close()
    with pytest.raises(ConfigError, match=r"another federation\.toml"):
        Journal(tmp_path, b"x" * 32)
    Journal.remove(tmp_path)
    assert Journal(tmp_path, b"x" * 32).begin().epoch == 1


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=300), keep=st.booleans())
def test_a_damaged_file_is_an_error_of_ours(tmp_path: Path, content: bytes, keep: bool) -> None:
    path = tmp_path / FILE
    Journal.remove(tmp_path)
    Journal(tmp_path, DIGEST).close()
    path.write_bytes((path.read_bytes()[:100] if keep else b"") + content)
    with suppress(ConfigError):  # or SQLite finds it whole enough; nothing else may come out
        Journal(tmp_path, DIGEST).begin()


def test_a_damaged_value_is_an_error_of_one_line(tmp_path: Path) -> None:
    journal = Journal(tmp_path, DIGEST)
    journal.joined((ONE,))
    journal._database.execute("UPDATE members SET introduction = '{\"name\": 3'")
    with pytest.raises(ConfigError, match=r"damaged .* begin a new one with --new"):
        journal.begin()


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be used"):
        Journal(tmp_path / "file" / "state", DIGEST)


def test_reports_of_many_clients_at_once(tmp_path: Path) -> None:
    """Each is written on a thread of its own, all over one connection."""
    journal = Journal(tmp_path, DIGEST)
    names = [f"client-{j}" for j in range(24)]
    journal.joined(tuple(replace(ONE, name=name) for name in names))
    with ThreadPoolExecutor(12) as pool:
        for number in range(20):
            list(pool.map(journal.done, names))
            assert journal.begin().epoch == number + 1
    assert journal.begin().done == set(names)


def test_the_meter_is_kept_and_carried_to_the_next_job(tmp_path: Path) -> None:
    journal = Journal(tmp_path, DIGEST)
    journal.advanced(STATE, RECORD, b"meter 1")
    journal.advanced(STATE, RECORD)  # it has not moved
    assert journal.begin().leakage == b"meter 1"
    journal.close()
    assert Journal.remove(tmp_path) == b"meter 1"
    following = Journal(tmp_path, DIGEST)
    following.carry(b"meter 1")
    kept = following.begin()
    assert (kept.leakage, kept.state, kept.records) == (b"meter 1", None, [])


@pytest.mark.parametrize("content", [b"", b"not a database" * 100])
def test_a_journal_that_cannot_be_read_carries_nothing(tmp_path: Path, content: bytes) -> None:
    assert Journal.remove(tmp_path) == b""
    (tmp_path / FILE).write_bytes(content)
    assert Journal.remove(tmp_path) == b""
    assert not (tmp_path / FILE).exists()


def test_answers_about_the_centres_are_kept(tmp_path: Path) -> None:
    journal = Journal(tmp_path, DIGEST)
    words = np.array([1, 2**63 + 5, 3], dtype=np.uint64)
    journal.answered("a", CentersPart(b"s" * 32, b"d" * 32, True, 20, Chunk(0, 3, words)))
    journal.answered("b", CentersPart(b"s" * 32, b"d" * 32, False, 0, Chunk(0, 0, words[:0])))
    kept = Journal(tmp_path, DIGEST).begin().centers
    assert sorted(kept) == ["a", "b"]
    np.testing.assert_array_equal(kept["a"].chunk.words, words)
    assert (kept["a"].session, kept["a"].digest, kept["a"].consents) == (b"s" * 32, b"d" * 32, True)
    assert (kept["a"].smallest, kept["a"].chunk.total) == (20, 3)
    assert (kept["b"].consents, kept["b"].chunk.total) == (False, 0)


# --- a disk that is full or fails ------------------------------------------------------------------------------------------


class Failing:
    """A database of which some calls fail, as SQLite reports what happens to its files."""

    def __init__(self, real: sqlite3.Connection, code: int, statement: str, times: int) -> None:
        self.real, self.code, self.statement, self.times = real, code, statement, times

    def execute(self, text: str, *values: object) -> object:
        if text.startswith(self.statement) and self.times:
            self.times -= 1
            error = sqlite3.OperationalError("it did not work")
            error.sqlite_errorcode, error.sqlite_errorname = self.code, "SQLITE_NAME"
            if self.statement != "BEGIN":
                self.real.execute("ROLLBACK")  # as SQLite does by itself with the worse ones
            raise error
        return self.real.execute(text, *values)

    def executemany(self, text: str, values: object) -> object:
        return self.real.executemany(text, values)  # type: ignore[arg-type]


def test_a_full_disk_is_named_and_costs_nothing(tmp_path: Path) -> None:
    """The advice must never be --new, which would discard the job."""
    journal = Journal(tmp_path, DIGEST)
    journal.advanced(STATE, RECORD)
    (pages,) = journal._database.execute("PRAGMA page_count").fetchone()
    journal._database.execute(f"PRAGMA max_page_count = {pages}")
    large = replace(STATE, number=3, labels=np.zeros(1 << 16, dtype=np.int32))
    with pytest.raises(StorageError, match=r"database or disk is full.*start the same command again") as caught:
        journal.advanced(large, replace(RECORD, number=2))
    assert "--new" not in str(caught.value)
    assert "journal.sqlite" in str(caught.value)
    kept = Journal(tmp_path, DIGEST).begin()
    assert kept.records == [RECORD]
    assert kept.state is not None
    assert kept.state.number == STATE.number


@pytest.mark.parametrize("code", [sqlite3.SQLITE_IOERR, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_FULL])
def test_a_rollback_that_fails_does_not_hide_the_cause(tmp_path: Path, code: int) -> None:
    journal = Journal(tmp_path, DIGEST)
    journal._database = Failing(journal._database, code, "COMMIT", 1)  # type: ignore[assignment]
    with pytest.raises(StorageError, match="it did not work, SQLITE_NAME") as caught:
        journal.done("a")
    assert "--new" not in str(caught.value)
    journal.done("a")


def test_no_descriptors_are_waited_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite says that it cannot open a file when there are no descriptors left; that passes."""
    monkeypatch.setattr("time.sleep", lambda _: None)
    journal = Journal(tmp_path, DIGEST)
    journal._database = Failing(journal._database, sqlite3.SQLITE_CANTOPEN, "BEGIN", 3)  # type: ignore[assignment]
    journal.revealed("a", b"heads")
    assert Journal(tmp_path, DIGEST).begin().coins == {"a": b"heads"}
    journal._database.times = 1000
    with pytest.raises(StorageError, match="start the same command again"):
        journal.revealed("a", b"tails")


def test_a_file_that_is_no_journal_needs_a_new_job(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"no database at all" * 100)
    with pytest.raises(ConfigError, match=r"damaged \(file is not a database.*--new"):
        Journal(tmp_path, DIGEST)


# --- one server per folder ----------------------------------------------------------------------------------------------


def test_a_second_server_is_told_so_before_it_touches_anything(tmp_path: Path) -> None:
    first = Lock(tmp_path / "state", "secfc-server")
    with pytest.raises(Unavailable, match="another secfc-server runs with this state"):
        Lock(tmp_path / "state", "secfc-server")
    first.release()
    Lock(tmp_path / "state", "secfc-server").release()
