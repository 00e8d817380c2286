"""What the server must not forget: a SQLite file (WAL) of values under keys, on disk when `put` returns.

What is kept, and what it means, is the machine's business (`records`). Every value carries a digest of itself: a file that
was damaged without SQLite's noticing is refused, not clustered on.
"""

from __future__ import annotations

import hashlib
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from secfc import limits
from secfc.errors import ConfigError, StorageError
from secfc.protocol.effects import Drop, Put

FILE = "journal.sqlite"
_SCHEMA = "CREATE TABLE IF NOT EXISTS kept (key TEXT PRIMARY KEY, value BLOB NOT NULL);"
_VERSION = b"6"
_PASSING = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_NOMEM)
_PAUSES = (0.1, 0.2, 0.4, 0.8, 1.5, 2.0)  # seconds between tries at what passes by itself
_SEAL = 16  # bytes of a value's digest


class Journal:
    """One job's journal."""

    def __init__(self, folder: Path, agreed: bytes) -> None:
        """`agreed` names the federation and the job it belongs to."""
        self.path = folder / FILE
        self._lock = threading.Lock()  # writes come from several threads, over this one connection
        with self._translated():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.path.touch(mode=0o600, exist_ok=True)
            self._database = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
            self._database.execute("PRAGMA journal_mode=WAL")
            self._database.execute("PRAGMA synchronous=FULL")
            self._check(agreed)

    def _check(self, agreed: bytes) -> None:
        tables = {name for (name,) in self._database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        self._database.execute(_SCHEMA)
        kept = self.kept() if "kept" in tables else {}
        if (tables and "kept" not in tables) or kept.get("version", _VERSION) != _VERSION:
            raise ConfigError(f"{self.path}: written by another version; finish that job with it, or remove the file")
        if kept.get("agreed", agreed) != agreed:
            raise ConfigError(
                f"{self.path}: belongs to a job of another federation.toml; use --new for a new job, or another --state"
            )
        self.put([Put("version", _VERSION), Put("agreed", agreed)])

    def kept(self) -> dict[str, bytes]:
        """All that is kept."""
        with self._translated():
            return {key: _opened(value) for key, value in self._database.execute("SELECT key, value FROM kept")}

    def get(self, key: str) -> bytes | None:
        """One value."""
        with self._translated():
            found = self._database.execute("SELECT value FROM kept WHERE key = ?", (key,)).fetchone()
            return None if found is None else _opened(found[0])

    def put(self, keep: Sequence[Put | Drop]) -> None:
        """One transaction, on disk when this returns."""
        puts = [(one.key, _sealed(bytes(one.value))) for one in keep if isinstance(one, Put)]
        with self._transaction() as database:
            database.executemany("INSERT OR REPLACE INTO kept VALUES (?, ?)", puts)
            database.executemany(
                "DELETE FROM kept WHERE key = ?", [(one.key,) for one in keep if isinstance(one, Drop)]
            )

    def close(self) -> None:
        with self._translated():
            self._database.close()

    @staticmethod
    def remove(folder: Path) -> bytes:
        """Forget the job kept there, for a new one; returns its leakage meter, which counts on if the new job has the same
        share sets."""
        leakage = _leakage_of(folder / FILE)
        for suffix in ("", "-wal", "-shm"):
            (folder / (FILE + suffix)).unlink(missing_ok=True)
        return leakage

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock, self._translated():
            self._begin()
            try:
                yield self._database
                self._database.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):  # SQLite may have rolled back already; that must not hide the cause
                    self._database.execute("ROLLBACK")
                raise

    def _begin(self) -> None:
        """Begin to write; tried again for a while where SQLite cannot open a file, as when descriptors are short."""
        for pause in (*_PAUSES, None):
            try:
                self._database.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                if pause is None or _primary(error) not in _PASSING:
                    raise
                time.sleep(pause)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (ConfigError, StorageError):
            raise
        except sqlite3.Error as error:
            raise self._failure(error) from None
        except OSError as error:
            raise limits.failure(error, f"{self.path}: the journal cannot be used", "choose another --state") from None
        except (ValueError, KeyError, TypeError):
            raise self._damaged("a value is not what was written") from None

    def _failure(self, error: sqlite3.Error) -> ConfigError | StorageError:
        """What a person can do about it. A new job is the last resort, for a journal from which none can go on."""
        code, name = _primary(error), getattr(error, "sqlite_errorname", type(error).__name__)
        unread = not code and isinstance(error, sqlite3.OperationalError)  # Python's own: no value is text
        if unread or code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return self._damaged(f"{error}, {name}")
        if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH):
            return ConfigError(f"{self.path}: the journal cannot be written ({error}, {name}); make it writable")
        if code in (
            sqlite3.SQLITE_ERROR,
            sqlite3.SQLITE_SCHEMA,
            sqlite3.SQLITE_MISMATCH,
        ):  # tables that are none of ours
            return self._damaged(f"{error}, {name}")
        return StorageError(
            f"{self.path}: the journal cannot be written ({error}, {name}); make room on that disk or see what is wrong "
            "with it, then start the same command again: the job goes on from its last completed round"
        )

    def _damaged(self, how: str) -> ConfigError:
        return ConfigError(
            f"{self.path}: the journal is damaged ({how}), and this job cannot go on; begin a new one with --new, then start "
            "the clients again"
        )


def _primary(error: sqlite3.Error) -> int:
    """SQLite's primary result code; 0 if the error does not come from there."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def _leakage_of(path: Path) -> bytes:
    """The meter in a journal of any state; nothing if there is none to be read."""
    if not path.exists():
        return b""
    database = sqlite3.connect(path)
    try:
        found = database.execute("SELECT value FROM kept WHERE key = 'leakage'").fetchone()
        return _opened(found[0]) if found else b""
    except (sqlite3.Error, ValueError):
        return b""
    finally:
        database.close()


def _sealed(value: bytes) -> bytes:
    return hashlib.sha256(value).digest()[:_SEAL] + value


def _opened(value: object) -> bytes:
    """A value as it was written; ValueError for any other."""
    if not isinstance(value, bytes) or value != _sealed(value[_SEAL:]):
        raise ValueError("damaged")
    return value[_SEAL:]
