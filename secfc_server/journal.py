"""What the server must not forget: a SQLite file (WAL) that is brought up to date before anything depends on it.

Kept: which federation the job belongs to, everybody's introduction, agreement and coin, what was opened while IDs were
aligned, that the shares were found to fit together, who has its labels, who has lied, what each client answered to opening
the centres, and after every completed request the clustering's state, its record and the leakage meter, which outlives the
job. Not kept: what clients tell again when they come back, and uploads, distances and attempts, which a restarted server asks
for again. `epoch` counts the server's starts; attempts are numbered from it, so that no restart reuses an attempt's number.
Every value carries a digest of itself: a file that was damaged without SQLite's noticing is refused, not clustered on.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from secfc import events, limits
from secfc.errors import ConfigError, StorageError
from secfc.identifiers import Ids
from secfc.lloyd import State
from secfc_server.alignment import Result as Aligned
from secfc_server.rounds import RoundRecord

FILE = "journal.sqlite"
_SCHEMA = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS members (name TEXT PRIMARY KEY, introduction BLOB NOT NULL, done INTEGER NOT NULL DEFAULT 0);
CREATE TABLE IF NOT EXISTS agreements (name TEXT PRIMARY KEY, agreed BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS coins (name TEXT PRIMARY KEY, coin BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS opened (step INTEGER PRIMARY KEY, ids BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS published (name TEXT PRIMARY KEY, ids BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS centers (name TEXT PRIMARY KEY, answer BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS rounds (number INTEGER PRIMARY KEY, record BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS state (one INTEGER PRIMARY KEY CHECK (one = 1), fields BLOB NOT NULL, labels BLOB NOT NULL);
"""
_VERSION = b"4"
_PASSING = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_NOMEM)
_PAUSES = (0.1, 0.2, 0.4, 0.8, 1.5, 2.0)  # seconds between tries at what passes by itself
_SEAL = 16  # bytes of a value's digest
_BYTES = ("share_set", "x25519", "nonce", "commitment", "certificate", "signature", "features")


@dataclass(frozen=True)
class Kept:
    """What a journal holds of a job."""

    epoch: int
    introductions: dict[str, events.Introduction]
    agreed: dict[str, events.Agreed]
    coins: dict[str, bytes]
    done: frozenset[str]
    state: State | None
    records: list[RoundRecord]
    opened: list[Aligned] = field(default_factory=list)
    published: dict[str, Ids] = field(default_factory=dict)
    centers: dict[str, events.CentersPart] = field(default_factory=dict)
    liars: tuple[str, ...] = ()
    leakage: bytes = b""
    verified: bool = False


class Journal:
    """One job's journal. Every write is a transaction that is on disk when the call returns."""

    def __init__(self, folder: Path, federation_digest: bytes) -> None:
        self.path = folder / FILE
        self._lock = threading.Lock()  # clients report at the same time, each on a thread, over this one connection
        with self._translated():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.path.touch(mode=0o600, exist_ok=True)
            self._database = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
            self._database.execute("PRAGMA journal_mode=WAL")
            self._database.execute("PRAGMA synchronous=FULL")
            self._database.executescript(_SCHEMA)
        self._check(federation_digest)

    def _check(self, digest: bytes) -> None:
        version, owner = self._fact("version"), self._fact("federation")
        if version not in (None, _VERSION):
            raise ConfigError(f"{self.path}: written by another version; finish that job with it, or remove the file")
        if owner not in (None, digest):
            raise ConfigError(
                f"{self.path}: belongs to a job of another federation.toml; use --new for a new job, or another --state"
            )
        self._put(version=_VERSION, federation=digest)

    def begin(self) -> Kept:
        """Count a start, and tell what is kept."""
        with self._translated():
            epoch = int(self._fact("epoch") or b"0") + 1
        self._put(epoch=b"%d" % epoch)
        with self._translated():
            members = self._database.execute("SELECT name, introduction, done FROM members").fetchall()
            agreed = self._database.execute("SELECT name, agreed FROM agreements").fetchall()
            coins = self._database.execute("SELECT name, coin FROM coins").fetchall()
            records = self._database.execute("SELECT record FROM rounds ORDER BY number").fetchall()
            published = self._database.execute("SELECT name, ids FROM published").fetchall()
            centers = self._database.execute("SELECT name, answer FROM centers").fetchall()
            opened = self._database.execute("SELECT ids FROM opened ORDER BY step").fetchall()
            return Kept(
                epoch=epoch,
                introductions={name: _introduction(text) for name, text, _ in members},
                agreed={name: _agreed(text) for name, text in agreed},
                coins={name: _opened(coin) for name, coin in coins},
                done=frozenset(name for name, _, done in members if done),
                state=self._state(),
                records=[_record(text) for (text,) in records],
                opened=[_aligned(value) for (value,) in opened],
                published={name: _ids(_opened(ids)) for name, ids in published},
                centers={name: _answer(answer) for name, answer in centers},
                liars=_names(self._fact("liars") or b"[]"),
                leakage=self._fact("leakage") or b"",
                verified=self._fact("verified") is not None,
            )

    def joined(self, introductions: tuple[events.Introduction, ...]) -> None:
        """Everybody has joined: this is the roster of the job."""
        rows = [(one.name, _introduction_text(one)) for one in introductions]
        with self._transaction() as database:
            database.executemany("INSERT OR IGNORE INTO members (name, introduction) VALUES (?, ?)", rows)

    def agreed(self, name: str, agreed: events.Agreed) -> None:
        """A client has signed the session."""
        fields = {"signature": agreed.signature.hex(), "proofs": [proof.hex() for proof in agreed.proofs]}
        with self._transaction() as database:
            database.execute("INSERT OR IGNORE INTO agreements VALUES (?, ?)", (name, _sealed_text(fields)))

    def opened(self, step: int, result: Aligned) -> None:
        """A sum over all clients was opened."""
        row = (step, _sealed(result.left.to_bytes(8, "little") + result.ids.astype("<u8").tobytes()))
        with self._transaction() as database:
            database.execute("INSERT OR REPLACE INTO opened VALUES (?, ?)", row)

    def published(self, name: str, ids: Ids) -> None:
        """A client says which rows are its own."""
        with self._transaction() as database:
            database.execute(
                "INSERT OR REPLACE INTO published VALUES (?, ?)", (name, _sealed(ids.astype("<u8").tobytes()))
            )

    def answered(self, name: str, answer: events.CentersPart) -> None:
        """A client's whole answer to opening the centres: it gives it once, and may be gone when it is needed."""
        head = answer.session + answer.digest + bytes([answer.consents]) + answer.smallest.to_bytes(8, "little")
        row = (name, _sealed(head + answer.chunk.words.astype("<u8").tobytes()))
        with self._transaction() as database:
            database.execute("INSERT OR REPLACE INTO centers VALUES (?, ?)", row)

    def revealed(self, name: str, coin: bytes) -> None:
        """A client has revealed its coin for the start."""
        with self._transaction() as database:
            database.execute("INSERT OR REPLACE INTO coins VALUES (?, ?)", (name, _sealed(coin)))

    def done(self, name: str) -> None:
        """A client has written its labels."""
        with self._transaction() as database:
            database.execute("UPDATE members SET done = 1 WHERE name = ?", (name,))

    def advanced(self, state: State, record: RoundRecord, leakage: bytes = b"") -> None:
        """A request is complete: where the clustering stands now, and the meter if it has moved."""
        fields = {name: value for name, value in asdict(state).items() if name != "labels"}
        labels = state.labels.astype("<i4").tobytes()
        with self._transaction() as database:
            row = (record.number, _sealed_text(asdict(record)))
            database.execute("INSERT OR REPLACE INTO rounds VALUES (?, ?)", row)
            kept = (_sealed_text(fields), _sealed(labels))
            database.execute("INSERT OR REPLACE INTO state VALUES (1, ?, ?)", kept)
            if leakage:
                database.execute("INSERT OR REPLACE INTO facts VALUES ('leakage', ?)", (_sealed(leakage),))

    def verified(self) -> None:
        """All clients' shares were found to fit together."""
        self._put(verified=b"")

    def liars(self, names: Sequence[str]) -> None:
        """All clients whose uploads were found wrong so far."""
        self._put(liars=json.dumps(list(names)).encode())

    def close(self) -> None:
        with self._translated():
            self._database.close()

    @staticmethod
    def remove(folder: Path) -> bytes:
        """Forget the job kept there, for a new one; returns its leakage meter, to be taken over with `carry`."""
        leakage = _leakage_of(folder / FILE)
        for suffix in ("", "-wal", "-shm"):
            (folder / (FILE + suffix)).unlink(missing_ok=True)
        return leakage

    def carry(self, leakage: bytes) -> None:
        """Take over an earlier job's meter: it counts on if this job has the same share sets."""
        self._put(leakage=leakage)

    def _state(self) -> State | None:
        found = self._database.execute("SELECT fields, labels FROM state").fetchone()
        if found is None:
            return None
        return State(**_opened_text(found[0]), labels=np.frombuffer(_opened(found[1]), dtype="<i4").astype(np.int32))

    def _fact(self, name: str) -> bytes | None:
        with self._translated():
            found = self._database.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
            return _opened(found[0]) if found else None

    def _put(self, **facts: bytes) -> None:
        with self._transaction() as database:
            rows = [(name, _sealed(value)) for name, value in facts.items()]
            database.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", rows)

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
        except sqlite3.Error as error:
            raise self._failure(error) from None
        except OSError as error:
            raise limits.failure(error, f"{self.path}: the journal cannot be used", "choose another --state") from None
        except (ValueError, KeyError, TypeError):
            raise self._damaged("a value is not what was written") from None

    def _failure(self, error: sqlite3.Error) -> ConfigError | StorageError:
        """What a person can do about it. A new job is the last resort, for a journal from which none can go on."""
        code, name = _primary(error), getattr(error, "sqlite_errorname", type(error).__name__)
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
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
        found = database.execute("SELECT value FROM facts WHERE name = 'leakage'").fetchone()
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


def _sealed_text(fields: dict[str, Any]) -> bytes:
    return _sealed(json.dumps(fields).encode())


def _opened_text(value: object) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(_opened(value))
    return fields


def _introduction_text(one: events.Introduction) -> bytes:
    fields: dict[str, Any] = asdict(one)
    return _sealed_text(fields | {name: fields[name].hex() for name in _BYTES})


def _introduction(value: object) -> events.Introduction:
    fields = _opened_text(value)
    return events.Introduction(**(fields | {name: bytes.fromhex(fields[name]) for name in _BYTES}))


def _agreed(value: object) -> events.Agreed:
    fields = _opened_text(value)
    return events.Agreed(bytes.fromhex(fields["signature"]), tuple(map(bytes.fromhex, fields["proofs"])))


def _aligned(value: object) -> Aligned:
    data = _opened(value)
    return Aligned(int.from_bytes(data[:8], "little"), _ids(data[8:]))


def _answer(value: object) -> events.CentersPart:
    data = _opened(value)
    words = np.frombuffer(data[73:], dtype="<u8").astype(np.uint64)
    smallest = int.from_bytes(data[65:73], "little")
    return events.CentersPart(data[:32], data[32:64], bool(data[64]), smallest, events.Chunk(0, len(words), words))


def _ids(data: bytes) -> Ids:
    return np.frombuffer(data, dtype="<u8").astype(np.uint64).reshape(-1, 2)


def _names(text: bytes) -> tuple[str, ...]:
    names = json.loads(text)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError("not a list of names")
    return tuple(names)


def _record(value: object) -> RoundRecord:
    fields = _opened_text(value)
    return RoundRecord(**(fields | {"responders": tuple(fields["responders"])}))
