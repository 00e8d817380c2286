"""The server's journal: what is written is there after a crash, and nothing else is believed."""

from __future__ import annotations

import sqlite3
import stat
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from secfc.errors import ConfigError, StorageError, Unavailable
from secfc.lock import Lock
from secfc.protocol.effects import Drop, Put
from secfc_server.journal import FILE, Journal

DIGEST = bytes(32)
VALUES = {"state": b"where it stands", "record/000000001": b"{}", "verified": b"", "centers/a": bytes(range(256))}


def put(journal: Journal, **values: bytes) -> None:
    journal.put([Put(key, value) for key, value in values.items()])


def kept(folder: Path) -> dict[str, bytes]:
    """What the next process finds, beside what the journal says of itself."""
    found = Journal(folder, DIGEST).kept()
    return {key: value for key, value in found.items() if key not in ("version", "agreed")}


def test_what_is_written_is_there_for_the_next_process(tmp_path: Path) -> None:
    first = Journal(tmp_path, DIGEST)
    put(first, **VALUES)
    # no close: a killed process does not close either
    assert kept(tmp_path) == VALUES
    assert first.get("state") == VALUES["state"]
    assert first.get("another") is None


def test_a_value_is_replaced_or_dropped_in_one_transaction(tmp_path: Path) -> None:
    journal = Journal(tmp_path, DIGEST)
    put(journal, **VALUES)
    journal.put([Put("state", memoryview(b"further")), Put("record/000000002", b"[]"), Drop("verified"), Drop("none")])
    changed = VALUES | {"state": b"further", "record/000000002": b"[]"}
    del changed["verified"]
    assert kept(tmp_path) == changed


def test_a_fresh_journal_knows_nothing_and_is_the_owners_only(tmp_path: Path) -> None:
    assert kept(tmp_path / "state") == {}
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "state" / FILE).stat().st_mode) == 0o600


@pytest.mark.parametrize("version", [b"5", b"7", b""])
def test_a_journal_of_another_version_is_refused(tmp_path: Path, version: bytes) -> None:
    journal = Journal(tmp_path, DIGEST)
    put(journal, version=version)
    journal.close()
    with pytest.raises(ConfigError, match="written by another version; finish that job with it, or remove the file"):
        Journal(tmp_path, DIGEST)


def test_a_journal_of_the_time_before_keys_is_refused(tmp_path: Path) -> None:
    old = sqlite3.connect(tmp_path / FILE)
    old.execute("CREATE TABLE members (name TEXT PRIMARY KEY, introduction TEXT)")
    old.commit()
    old.close()
    with pytest.raises(ConfigError, match="written by another version"):
        Journal(tmp_path, DIGEST)


def test_another_federation_is_refused_and_remove_makes_room(tmp_path: Path) -> None:
    Journal(tmp_path, DIGEST).close()
    with pytest.raises(ConfigError, match=r"another federation\.toml"):
        Journal(tmp_path, b"x" * 32)
    Journal.remove(tmp_path)
    assert set(Journal(tmp_path, b"x" * 32).kept()) == {"version", "agreed"}


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=300), keep=st.booleans())
def test_a_damaged_file_is_an_error_of_ours(tmp_path: Path, content: bytes, keep: bool) -> None:
    path = tmp_path / FILE
    Journal.remove(tmp_path)
    Journal(tmp_path, DIGEST).close()
    path.write_bytes((path.read_bytes()[:100] if keep else b"") + content)
    with suppress(ConfigError):  # or SQLite finds it whole enough; nothing else may come out
        Journal(tmp_path, DIGEST).kept()


@pytest.mark.parametrize("value", ["'text'", "x'00'", "x''", "substr(value, 1, length(value) - 1)", "value || x'00'"])
def test_a_damaged_value_is_an_error_of_one_line(tmp_path: Path, value: str) -> None:
    journal = Journal(tmp_path, DIGEST)
    put(journal, **VALUES)
    journal._database.execute(f"UPDATE kept SET value = {value} WHERE key = 'centers/a'")
    for read in (journal.kept, lambda: Journal(tmp_path, DIGEST)):
        with pytest.raises(ConfigError, match=r"damaged .* begin a new one with --new") as caught:
            read()
        assert len(str(caught.value).splitlines()) == 1


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be used"):
        Journal(tmp_path / "file" / "state", DIGEST)


def test_many_writers_at_once(tmp_path: Path) -> None:
    """Each write is on a thread of its own, all over one connection."""
    journal = Journal(tmp_path, DIGEST)
    names = [f"done/client-{j}" for j in range(24)]
    with ThreadPoolExecutor(12) as pool:
        for number in range(20):
            list(pool.map(lambda name, value=b"%d" % number: journal.put([Put(name, value)]), names))
            assert journal.get(names[number]) == b"%d" % number
    assert kept(tmp_path) == dict.fromkeys(names, b"19")


def test_the_meter_is_carried_to_the_next_job(tmp_path: Path) -> None:
    journal = Journal(tmp_path, DIGEST)
    put(journal, leakage=b"meter 1", **VALUES)
    journal.close()
    assert Journal.remove(tmp_path) == b"meter 1"
    following = Journal(tmp_path, DIGEST)
    put(following, leakage=b"meter 1")
    assert kept(tmp_path) == {"leakage": b"meter 1"}


def test_a_damaged_meter_is_not_carried(tmp_path: Path) -> None:
    journal = Journal(tmp_path, DIGEST)
    put(journal, leakage=b"meter 1")
    journal._database.execute("UPDATE kept SET value = value || x'00' WHERE key = 'leakage'")
    journal.close()
    assert Journal.remove(tmp_path) == b""


@pytest.mark.parametrize("content", [b"", b"not a database" * 100])
def test_a_journal_that_cannot_be_read_carries_nothing(tmp_path: Path, content: bytes) -> None:
    assert Journal.remove(tmp_path) == b""
    (tmp_path / FILE).write_bytes(content)
    assert Journal.remove(tmp_path) == b""
    assert not (tmp_path / FILE).exists()


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
    put(journal, **VALUES)
    (pages,) = journal._database.execute("PRAGMA page_count").fetchone()
    journal._database.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StorageError, match=r"database or disk is full.*start the same command again") as caught:
        put(journal, verified=b"again", state=bytes(1 << 18))
    assert "--new" not in str(caught.value)
    assert "journal.sqlite" in str(caught.value)
    assert kept(tmp_path) == VALUES, "all or nothing"


@pytest.mark.parametrize("code", [sqlite3.SQLITE_IOERR, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_FULL])
def test_a_rollback_that_fails_does_not_hide_the_cause(tmp_path: Path, code: int) -> None:
    journal = Journal(tmp_path, DIGEST)
    journal._database = Failing(journal._database, code, "COMMIT", 1)  # type: ignore[assignment]
    with pytest.raises(StorageError, match="it did not work, SQLITE_NAME") as caught:
        put(journal, done=b"a")
    assert "--new" not in str(caught.value)
    put(journal, done=b"a")
    assert kept(tmp_path) == {"done": b"a"}


def test_no_descriptors_are_waited_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite says that it cannot open a file when there are no descriptors left; that passes."""
    monkeypatch.setattr("time.sleep", lambda _: None)
    journal = Journal(tmp_path, DIGEST)
    journal._database = Failing(journal._database, sqlite3.SQLITE_CANTOPEN, "BEGIN", 3)  # type: ignore[assignment]
    put(journal, coin=b"heads")
    assert kept(tmp_path) == {"coin": b"heads"}
    journal._database.times = 1000
    with pytest.raises(StorageError, match="start the same command again"):
        put(journal, coin=b"tails")


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
